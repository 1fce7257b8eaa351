"""What peers are asked to do, run by each in its own environment: `python benchmarks/peers.py baal`.

Each is given what it likes best, ready made and in its own layout: probabilities, or log-probabilities; baal also the
logits that a network gives, as ours. Only its own functions are on the clock.
"""

import sys
import time
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
from beside import answer_questions


def draw_logits(m: int, n: int, c: int) -> Any:
    """[M, N, C], the same for everybody."""
    return np.random.default_rng(0).standard_normal((m, n, c), dtype=np.float32) * 2


@cache
def log_probs(m: int, n: int, c: int) -> Any:
    logits = draw_logits(m, n, c)
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits


@lru_cache(maxsize=1)  # 400 MB at full size
def baal_input(shape: tuple[int, ...], kind: str) -> Any:
    given = draw_logits(*shape) if kind == "logits" else np.exp(log_probs(*shape))
    return np.ascontiguousarray(given.transpose(1, 2, 0))  # [N, C, M]


def baal(what: str, shape: tuple[int, ...], kind: str = "probabilities", **how: int) -> float:
    """From logits its own softmax comes first: without it `Entropy` would be that of the members' mean logits."""
    from baal.active.heuristics import BALD, Entropy
    from baal.utils.array_utils import to_prob

    if what == "predict":
        return baal_predict(*shape, **how)
    heuristics = {"bald": [BALD()], "entropy": [Entropy()], "both": [BALD(), Entropy()]}[what]
    given = baal_input(tuple(shape), kind)

    def run() -> None:
        probs = to_prob(given) if kind == "logits" else given
        for heuristic in heuristics:
            heuristic.get_uncertainties(probs)

    return clock(run)


@cache
def dropout_network(n_rows: int) -> Any:
    """As baal's documentation has it: dropout after each hidden layer, kept on by its own patch, and a Dataset."""
    import torch
    from baal.bayesian.dropout import patch_module
    from torch import nn

    first, second = nn.Linear(784, 512), nn.Linear(512, 512)
    net = nn.Sequential(first, nn.ReLU(), nn.Dropout(), second, nn.ReLU(), nn.Dropout(), nn.Linear(512, 10))
    rows = torch.utils.data.TensorDataset(torch.randn(n_rows, 784), torch.zeros(n_rows, dtype=torch.int64))
    return patch_module(net, inplace=False), rows


def baal_predict(n_members: int, n_rows: int, batch_size: int, *, workers: int) -> float:
    from baal.modelwrapper import ModelWrapper, TrainingArgs

    net, rows = dropout_network(n_rows)
    wrapper = ModelWrapper(net, TrainingArgs(batch_size=batch_size, use_cuda=False, workers=workers))
    return clock(lambda: wrapper.predict_on_dataset(rows, iterations=n_members, verbose=False))


@cache
def activeml_input(shape: tuple[int, ...]) -> Any:
    return np.exp(log_probs(*shape))


def scikit_activeml(what: str, shape: tuple[int, ...]) -> float:
    """BALD is its average KL divergence of the members from their mean."""
    from skactiveml.pool import uncertainty_scores
    from skactiveml.pool._query_by_committee import average_kl_divergence

    given = activeml_input(tuple(shape))  # [M, N, C]
    if what == "bald":
        return clock(lambda: average_kl_divergence(given))
    return clock(lambda: uncertainty_scores(given.mean(0), method="entropy"))


@cache
def redux_input(shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(log_probs(*shape).transpose(1, 0, 2)))  # [N, M, C]


def batchbald_redux(what: str, shape: tuple[int, ...]) -> float:
    from batchbald_redux.batchbald import compute_conditional_entropy, compute_entropy

    given = redux_input(tuple(shape))
    if what == "bald":
        return clock(lambda: compute_entropy(given) - compute_conditional_entropy(given))
    return clock(lambda: compute_entropy(given))


def clock(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


PEERS = {"baal": baal, "scikit_activeml": scikit_activeml, "batchbald_redux": batchbald_redux}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # what a peer prints is no answer
    peer = PEERS[sys.argv[1]]

    def measure(**question: Any) -> float:
        sys.stdout = sys.stderr
        try:
            return peer(**question)
        finally:
            sys.stdout = answers

    answer_questions(measure)
