"""Does an estimate from the labels alone cover the truth? `python benchmarks/lure.py [--runs 100]`.

A pool of 1,500 points, inside a noisy circle or not. A round draws 25 rows with probability ∝ 1 − max_c p̄_c, the first
one evenly, and `auto` is fitted anew; after four rounds the accuracy and the NLL on the whole pool are estimated from
the 100 labels (LURE of out-of-fold losses, as the service does), and compared with what the ensemble has on all rows.
"""

import argparse
import math

import numpy as np
import torch

import bensemble_core as bc
from bensemble_core.posteriors.auto.kept import held_out
from bensemble_core.predictive.lure import Draws, lure_rounds

ROWS, ROUNDS, PICKS = 1_500, 4, 25


def run(seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32)
    y = ((x**2).sum(1) + 0.15 * rng.normal(size=ROWS) < 0.5).astype(np.int64)
    left, weights = np.arange(ROWS), np.ones(ROWS)
    labelled: list[int] = []
    rounds: list[tuple[list[int], np.ndarray, int, list[int]]] = []
    for _ in range(ROUNDS):
        own = weights[left]
        picked = np.argsort(-(np.log(own) + rng.gumbel(size=len(left))))[:PICKS]
        remaining = own.sum() - np.concatenate([[0.0], np.cumsum(own[picked])[:-1]])
        rounds.append((left[picked].tolist(), own[picked] / remaining, len(left), list(labelled)))
        labelled += left[picked].tolist()
        left = np.delete(left, picked)
        fitted = bc.fit("auto", None, (x[labelled], y[labelled]), likelihood="categorical", unlabelled=x, seed=seed)
        probs = fitted.sample(20).predict(x).mean().numpy()
        weights = 1 - probs.max(1) + 1e-6
    kept = held_out(fitted.problem, fitted.state)
    assert kept is not None
    truth = torch.from_numpy(y[labelled])
    wrong = (kept[0].mean().argmax(-1) != truth).double().numpy()
    found = {}
    for name, losses, real in (
        ("error", wrong, float((probs.argmax(1) != y).mean())),
        ("nll", -kept[0].log_prob(truth).numpy(), float(-np.log(probs[np.arange(ROWS), y]).mean())),
    ):
        by_row = dict(zip(labelled, losses, strict=True))
        draws = [
            Draws(
                losses=np.array([by_row[row] for row in rows]),
                probabilities=probabilities,
                n_rows=n_rows,
                known=np.array([by_row[row] for row in before]),
            )
            for rows, probabilities, n_rows, before in rounds
        ]
        estimate = lure_rounds([draws], within="share" if name == "error" else "positive")
        found[f"{name} covered"] = float(estimate.low <= real <= estimate.high)
        found[f"{name} off by"] = estimate.value - real
        if name == "error":
            plain = float(losses.mean())
            found["plain covered"] = float(abs(plain - real) <= 1.96 * math.sqrt(plain * (1 - plain) / len(losses)))
            found["plain off by"] = plain - real
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = [run(seed) for seed in range(parser.parse_args().runs)]
    for name in runs[0]:
        values = np.array([one[name] for one in runs])
        print(f"{name:14s} {values.mean():7.3f} ± {values.std() / math.sqrt(len(runs)):.3f}")


if __name__ == "__main__":
    main()
