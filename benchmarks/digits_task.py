"""The task of `benchmarks/training.py`, for contenders in environments of their own: needs torch and scikit-learn only.

A contender is a function (training rows, test x, epochs) -> class probabilities [N, C]. `race` times it here, on one
thread, and prints what was measured as JSON on the last line.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn

WIDTHS = (64, 128, 128, 10)
N_NETWORKS, BATCH, LR = 10, 64, 1e-3
Rows: TypeAlias = tuple[Tensor, Tensor]
Contender: TypeAlias = Callable[[Rows, Tensor, int], Tensor]
Measured: TypeAlias = dict[str, float]


def digits() -> tuple[Rows, Rows]:
    """Training and test rows, standardised."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(bunch.data, dtype=torch.float32)[order], torch.tensor(bunch.target)[order]
    x = (x - x[:1437].mean(0)) / x[:1437].std(0).clamp_min(1e-6)
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(WIDTHS)):
        layers += [nn.ReLU()] * (i > 0) + [nn.Linear(n_in, n_out)]
    return nn.Sequential(*layers)


def race(contender: Contender, epochs: int) -> None:
    """Train once for an epoch, since first calls load libraries, then for as many as asked, timed."""
    torch.set_num_threads(1)
    train, (x, y) = digits()
    contender(train, x, 1)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    predicted = contender(train, x, epochs)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    measured: Measured = {
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": after.ru_maxrss / 1024,
        "accuracy": float((predicted.argmax(1) == y).double().mean()),
        "nll": float(nn.functional.nll_loss(predicted.clamp_min(1e-30).log(), y)),
    }
    print(json.dumps(measured), flush=True)


def main(contender: Contender, description: str | None) -> None:
    """What a peer's file ends with."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=1)
    race(contender, parser.parse_args().epochs)
