"""What many write themselves, for `benchmarks/labels_saved.py`: scikit-learn's logistic regression and its margin."""

from collections.abc import Callable
from typing import Any

import numpy as np
from labels_saved_peer import Floats, Given, Ints, Player, run
from sklearn.linear_model import LogisticRegression


def fit(x: Floats, y: Ints, n_classes: int) -> Callable[[Floats], Floats]:
    """What predicts [N, C], with 0 for a class that has no label; its default penalty, C = 1."""
    seen = np.unique(y)
    model = LogisticRegression(max_iter=1000).fit(x, y) if len(seen) > 1 else None

    def predict(rows: Floats) -> Floats:
        probs = np.zeros((len(rows), n_classes))
        probs[:, seen] = model.predict_proba(rows) if model is not None else 1.0
        return probs

    return predict


def by(rank: Callable[[Floats, np.random.Generator], Floats]) -> Player:
    """The `step` unlabelled rows with the highest scores."""

    def play(given: Given, rows: Ints) -> tuple[Floats, Callable[[], Any]]:
        predict = fit(given.x[rows], given.y[rows], given.n_classes)

        def choose() -> Ints:
            left = np.setdiff1d(np.arange(len(given.x)), rows)
            scores = rank(predict(given.x[left]), np.random.default_rng([given.seed, len(rows)]))
            return left[np.argsort(-scores, kind="stable")[: given.step]]

        return predict(given.test), choose

    return play


def margin(probs: Floats, _: np.random.Generator) -> Floats:
    two = np.sort(probs, axis=1)[:, -2:]
    gap: Floats = two[:, 0] - two[:, 1]
    return gap


def uniform(probs: Floats, rng: np.random.Generator) -> Floats:
    return rng.random(len(probs))


if __name__ == "__main__":
    run({"margin": by(margin), "random": by(uniform)})
