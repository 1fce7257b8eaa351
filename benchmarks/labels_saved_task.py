"""The sets of `benchmarks/labels_saved.py`: pools, test rows, and which half of the sets options are chosen on."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_diabetes, load_digits

POOL, TEST, FIRST, STEP, LAST = 4_000, 1_000, 20, 20, 300
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    name: str
    x: Floats  # [N, D]
    y: npt.NDArray[Any]  # [N]
    n_classes: int  # 0: numbers

    def split(self, seed: int) -> tuple[Ints, Ints]:
        """Rows of the pool, and of the test."""
        order = np.random.default_rng(seed).permutation(len(self.x))
        n_test = min(TEST, len(order) // 4)
        return order[n_test : n_test + POOL], order[:n_test]

    def standardised(self, seed: int) -> tuple[Floats, Floats]:
        """Pool and test rows by the pool's means and sds."""
        pool, test = self.split(seed)
        mean, sd = self.x[pool].mean(0), self.x[pool].std(0)
        scaled = (self.x - mean) / np.where(sd > 1e-9, sd, 1.0)
        return scaled[pool], scaled[test]

    @property
    def kind(self) -> str:
        return "classes" if self.n_classes else "numbers"


def read_tasks(folder: Path | None) -> list[Task]:
    return list(_read(folder))


def _read(folder: Path | None) -> Iterator[Task]:
    x, y = load_digits(return_X_y=True)
    yield Task(name="digits", x=x, y=y, n_classes=10)
    x, y = load_diabetes(return_X_y=True)
    yield Task(name="diabetes", x=x, y=y, n_classes=0)
    for path in sorted(folder.glob("*.npz")) if folder is not None else ():
        with np.load(path, allow_pickle=False) as held:
            n_classes = len(held["classes"])
            y = held["y"].astype(np.int64 if n_classes else np.float64)
            yield Task(name=path.stem, x=held["x"].astype(np.float64), y=y, n_classes=n_classes)


def halves(tasks: Sequence[Task]) -> tuple[list[str], list[str]]:
    """Names for choosing options and names for reporting, of tasks of one kind: by a hash, and so by nobody's wish."""
    names = sorted((task.name for task in tasks), key=lambda name: zlib.crc32(name.encode()))
    half = (len(names) + 1) // 2
    return names[:half], names[half:]
