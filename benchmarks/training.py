"""Training ten 64-128-128-10 networks on scikit-learn's digits: `python benchmarks/training.py [--quick] [--json]`.

100 epochs, batches of 64, Adam. Each contender runs in a process of its own on one thread, so that its peak memory is
its own, and by turns with the others, so that a busy machine slows all of them; a ratio is the median of the turns'
ratios. This is part (c) of `benchmarks/posteriors.py`.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

import bensemble_core as bc

WIDTHS = (64, 128, 128, 10)
N_NETWORKS, BATCH, LR = 10, 64, 1e-3
Rows = tuple[Tensor, Tensor]
Measured = dict[str, float]


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


def by_loop(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    """What most people write: a DataLoader and an optimiser, one network after another."""
    from torch.utils.data import DataLoader, TensorDataset

    probabilities = []
    for seed in range(N_NETWORKS):
        torch.manual_seed(seed)
        net = network()
        optimiser = torch.optim.Adam(net.parameters(), lr=LR)
        loader = DataLoader(TensorDataset(*rows), batch_size=BATCH, shuffle=True)
        for _ in range(epochs):
            for xb, yb in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(xb), yb).backward()
                optimiser.step()
        with torch.no_grad():
            probabilities.append(net(x).softmax(-1))
    return torch.stack(probabilities).mean(0)


def by_vmap(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    """What an expert writes with torch alone: networks stacked, vmap over them, one fused Adam."""
    from torch.func import functional_call, stack_module_state

    torch.manual_seed(0)
    nets = [network() for _ in range(N_NETWORKS)]
    skeleton = network().to("meta")
    params, _ = stack_module_state(nets)
    params = {k: v.detach().requires_grad_() for k, v in params.items()}
    optimiser = torch.optim.Adam(params.values(), lr=LR, fused=True)
    run = torch.vmap(lambda p, x: functional_call(skeleton, p, (x,)))
    xs, ys = rows
    for _ in range(epochs):
        order = torch.stack([torch.randperm(len(ys)) for _ in nets])
        for at in range(0, len(ys), BATCH):
            chosen = order[:, at : at + BATCH]
            optimiser.zero_grad()
            outputs = run(params, xs[chosen])
            loss = nn.functional.cross_entropy(outputs.flatten(0, 1), ys[chosen].flatten()) * N_NETWORKS
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return run(params, x.expand(N_NETWORKS, *x.shape)).softmax(-1).mean(0)


def by_ours(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    """`deep_ensemble` as a user calls it, with the optimiser of the others."""
    fitted = bc.fit(
        "deep_ensemble",
        {"name": "mlp", "hidden": list(WIDTHS[1:-1])},
        rows,
        likelihood="categorical",
        members=N_NETWORKS,
        epochs=epochs,
        batch_size=BATCH,
        lr=LR,
        schedule="constant",
        standardise=False,
    )
    return fitted.sample(N_NETWORKS).predict(x).mean()


CONTENDERS: dict[str, Callable[[Rows, Tensor, int], Tensor]] = {"loop": by_loop, "vmap": by_vmap, "ours": by_ours}


def run_child(contender: str, epochs: int) -> None:
    """Time one contender here and print what was measured as JSON."""
    torch.set_num_threads(1)
    train, (x, y) = digits()
    CONTENDERS[contender](train, x, 1)  # first calls load libraries
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    predicted = CONTENDERS[contender](train, x, epochs)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    nll = nn.functional.nll_loss(predicted.log(), y)
    measured: Measured = {
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": after.ru_maxrss / 1024,
        "accuracy": float((predicted.argmax(1) == y).double().mean()),
        "nll": float(nll),
    }
    print(json.dumps(measured))


def measure(contender: str, epochs: int) -> Measured:
    """The same in a process of its own."""
    here = Path(__file__).resolve()
    command = [sys.executable, str(here), "--child", contender, "--epochs", str(epochs)]
    environment = {**os.environ, "PYTHONPATH": str(here.parents[1])}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def compare(epochs: int, n_turns: int) -> dict[str, Measured]:
    """Medians of each contender, and how many times as fast as the loop it is, by the clock and by processor time."""
    turns: dict[str, list[Measured]] = {name: [] for name in CONTENDERS}
    for _ in range(n_turns):
        for name, found in turns.items():
            found.append(measure(name, epochs))
    table = {}
    for name, found in turns.items():
        table[name] = {key: statistics.median(m[key] for m in found) for key in found[0]}
        for key, of in (("speed", "seconds"), ("cpu_speed", "cpu_seconds")):
            table[name][key] = statistics.median(a[of] / b[of] for a, b in zip(turns["loop"], found, strict=True))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="10 epochs, 3 turns")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--child", choices=sorted(CONTENDERS), help="run this one here")
    given = parser.parse_args()
    if given.child:
        run_child(given.child, given.epochs)
        return
    epochs, n_turns = (10, 3) if given.quick else (given.epochs, given.turns)
    table = compare(epochs, n_turns)
    if given.json:
        print(json.dumps(table))
        return
    print(f"torch {torch.__version__}, Python {platform.python_version()}, one thread")
    print(f"ten {'-'.join(map(str, WIDTHS))} networks on digits, {epochs} epochs, batches of {BATCH}")
    print(f"{'':6} {'seconds':>8} {'speed':>7} {'CPU s':>8} {'speed':>7} {'peak MB':>8} {'accuracy':>9} {'NLL':>7}")
    for name, row in table.items():
        print(
            f"{name:6} {row['seconds']:8.2f} {row['speed']:6.1f}× {row['cpu_seconds']:8.2f} {row['cpu_speed']:6.1f}× "
            f"{row['peak_mb']:8.0f} {row['accuracy']:9.4f} {row['nll']:7.4f}"
        )


if __name__ == "__main__":
    main()
