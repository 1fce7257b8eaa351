"""What a peer of `benchmarks/labels_saved.py` is given and gives back.

It is run as `python benchmarks/labels_saved_PEER.py FILE NAME OUT`. FILE is an npz with the fields of `Given`, OUT
becomes one with the chosen `rows` [n] in their order and `probs` [rounds, T, C], what the peer's own model says of the
test rows after each round. Needs numpy alone, so that it can be imported in every peer's environment.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """A pool and how to play it; a peer looks only at those entries of y whose rows it has chosen."""

    x: Floats  # [N, D], standardised by the pool
    y: Ints  # [N]
    test: Floats  # [T, D], standardised by the pool
    first: Ints  # [n], the random rows that all strategies with a random start share
    n_classes: int
    seed: int
    step: int
    last: int

    def save(self, path: Path) -> None:
        np.savez(path, **{field.name: getattr(self, field.name) for field in fields(self)})


# From the labelled rows: probabilities [T, C] of the test rows (0 for a class that has no label), and what chooses the
# next rows
Player = Callable[[Given, Ints], tuple[Floats, Callable[[], Any]]]


def run(players: Mapping[str, Player], first: Mapping[str, Callable[[Given], Any]] | None = None) -> None:
    """A peer's `main`; `first` has the strategies that choose their first rows themselves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("name", nargs="?", choices=sorted(players))
    parser.add_argument("out", nargs="?", type=Path)
    asked = parser.parse_args()
    if asked.file is None:
        print(f"ready to be asked by benchmarks/labels_saved.py: {', '.join(players)}")
        return
    given = _read(asked.file)
    choose_first = (first or {}).get(asked.name)
    rows = given.first if choose_first is None else np.asarray(choose_first(given), dtype=np.int64)
    probs = []
    while True:
        of_test, choose = players[asked.name](given, rows)
        probs.append(of_test)
        if len(rows) + given.step > min(given.last, len(given.x)):
            break
        rows = np.concatenate([rows, np.asarray(choose(), dtype=np.int64)])
    if len(np.unique(rows)) != len(rows):
        raise RuntimeError(f"{asked.name} chose a row twice")
    np.savez(asked.out, rows=rows, probs=np.stack(probs))


def _read(path: Path) -> Given:
    with np.load(path, allow_pickle=False) as held:
        numbers = {name: int(held[name]) for name in ("n_classes", "seed", "step", "last")}
        return Given(x=held["x"], y=held["y"], test=held["test"], first=held["first"], **numbers)
