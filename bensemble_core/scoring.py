"""Score a pool row by row in constant memory, and choose the k rows to label next."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.acquisition import ACQUISITIONS, SELECTIONS, resolve_acquisition, resolve_selection
from bensemble_core.acquisition.entries import Candidates, Context, Entry, Rows, SelectionOptions
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.predictive import Predictive
from bensemble_core.types import Family

# The same everywhere: chunk boundaries are part of what fixes a score's last bits.
CHUNK_ROWS = 1024

Array: TypeAlias = Tensor | npt.NDArray[Any]  # memory maps included
Pool: TypeAlias = Array | Sequence[Array]  # one array, or its shards in order
Exclude: TypeAlias = Tensor | npt.NDArray[Any] | Iterable[int]  # a mask over the pool, or row numbers
Report: TypeAlias = Callable[[int, int, str], None]  # (done rows, all rows, message); may raise to cancel


class Scorable(Protocol):
    """What scoring asks of an ensemble."""

    @property
    def n_members(self) -> int: ...

    @property
    def family(self) -> Family: ...

    @property
    def log_weights(self) -> Tensor | None: ...

    def iter_predict(self, x: Tensor, chunk_rows: int) -> Iterator[Predictive]: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    rows: Tensor  # [k] int64, best first
    scores: Tensor  # [k]
    n_scored: int  # rows that could be chosen, excluded ones not counted
    notes: tuple[str, ...] = ()  # what a reader of this ranking should know


def score(
    ensemble: Scorable | None,
    x: Pool,
    acquisition: object = "bald",
    *,
    seed: int = 0,
    first_row: int = 0,
    chunk_rows: int | None = None,
    report: Report | None = None,
) -> Tensor:
    """One score a row, higher is more worth labelling: x [N, ...] -> [N].

    `first_row` is the pool-wide number of x's first row: a shard scored alone gets the bits it has within the pool when
    it starts where a chunk starts. `ensemble` may be None for an acquisition that needs none.
    """
    options = resolve_acquisition(acquisition)
    return _score(ensemble, _shards(x), options, seed, first_row, chunk_rows, report)


def choose(
    scores: Array,
    selection: object = "top_k",
    *,
    k: int,
    seed: int = 0,
    exclude: Exclude | None = None,
) -> tuple[Tensor, Tensor]:
    """k rows by the scores of a whole pool, and their scores: [N] -> [k], [k]."""
    options = resolve_selection(selection)
    return _choose(_as_tensor(scores), options, k, seed, _candidate_rows(len(scores), exclude))


def conclude(
    ensemble: Scorable | None,
    scores: Array,
    *,
    acquisition: object = "bald",
    selection: object = "top_k",
    k: int,
    seed: int = 0,
    exclude: Exclude | None = None,
) -> Ranking:
    """The ranking that `rank` would give, from scores that were computed before, shard by shard: [N] -> k rows."""
    options, how = resolve_acquisition(acquisition), resolve_selection(selection)
    rows = _candidate_rows(len(scores), exclude)
    scores = _as_tensor(scores)
    picked, values = _choose(scores, how, k, seed, rows)
    notes = _notes(ensemble, options, scores[rows], values)
    return Ranking(rows=picked, scores=values, n_scored=rows.numel(), notes=notes)


def rank(
    ensemble: Scorable | None,
    x: Pool,
    *,
    acquisition: object = "bald",
    selection: object = "top_k",
    k: int,
    seed: int = 0,
    exclude: Exclude | None = None,
    chunk_rows: int | None = None,
    report: Report | None = None,
) -> Ranking:
    """Score every row of the pool and choose k of those not excluded.

    Shards give the ranking of their concatenation, bit for bit where each starts at a multiple of the chunk.
    """
    options, how = resolve_acquisition(acquisition), resolve_selection(selection)
    shards = _shards(x)
    _check_k(k, _candidate_rows(sum(map(len, shards)), exclude).numel())  # before the work, not after
    scores = _score(ensemble, shards, options, seed, 0, chunk_rows, report)
    return conclude(ensemble, scores, acquisition=options, selection=how, k=k, seed=seed, exclude=exclude)


def _score(
    ensemble: Scorable | None,
    shards: Sequence[Array],
    options: Any,
    seed: int,
    first_row: int,
    chunk_rows: int | None,
    report: Report | None,
) -> Tensor:
    entry = ACQUISITIONS[options.name]
    chunk_rows = CHUNK_ROWS if chunk_rows is None else chunk_rows
    if chunk_rows < 1:
        raise InvalidOption(f"chunk_rows is at least 1, got {chunk_rows}")
    if "ensemble" in entry.needs and ensemble is None:
        raise InvalidOption(f"{options.name} needs an ensemble; only {_without_ensemble()} does without")
    total, done = sum(map(len, shards)), 0
    parts: list[Tensor] = []
    for shard in shards:
        for start in range(0, len(shard), chunk_rows):
            chunk = shard[start : start + chunk_rows]
            rows = Rows(seed=seed, first=first_row + done, count=len(chunk))
            with torch.no_grad():
                if ensemble is None or "ensemble" not in entry.needs:
                    part = entry.score(None, options, rows)
                else:
                    predictive = _predict(ensemble, chunk, chunk_rows)
                    _check_family(predictive, entry, options.name)
                    part = entry.score(predictive, options, rows)[: len(chunk)]
            parts.append(_finite(part.cpu(), rows.first))
            done += len(chunk)
            if report is not None:
                report(done, total, f"scored {done} of {total} rows")
    return torch.cat(parts) if parts else torch.empty(0)


def _predict(ensemble: Scorable, chunk: Array, chunk_rows: int) -> Predictive:
    """The chunk's predictive, its last row repeated to the full length: the same shape in every call means that the
    kernels vectorise, and round, in the same way whatever the length of the pool.
    """
    (predictive,) = ensemble.iter_predict(_as_tensor(chunk), chunk_rows)
    if predictive.n_rows == chunk_rows:
        return predictive
    return predictive.take(torch.arange(chunk_rows).clamp(max=predictive.n_rows - 1))


def _check_family(predictive: Predictive, entry: Entry, name: str) -> None:
    if predictive.family in entry.families:
        return
    others = [n for n, e in ACQUISITIONS.items() if predictive.family in e.families]
    raise InvalidOption(f"{name} is not defined for a {predictive.family} likelihood; use one of {', '.join(others)}")


def _finite(scores: Tensor, first: int) -> Tensor:
    finite = torch.isfinite(scores)
    if finite.all():
        return scores
    at = int((~finite).nonzero()[0])
    raise NotFinite(f"row {first + at} has the score {float(scores[at])}; check its inputs and the ensemble's weights")


def _choose(scores: Tensor, how: SelectionOptions, k: int, seed: int, rows: Tensor) -> tuple[Tensor, Tensor]:
    missing = [need for need in SELECTIONS[how.name].needs if need != "scores"]
    if missing:
        raise InvalidOption(f"{how.name} needs {' and '.join(missing)}, which a vector of scores does not have")
    _check_k(k, rows.numel())
    every = rows.numel() == scores.numel()
    candidates = Candidates(rows=rows, scores=scores if every else scores[rows])
    picked = how(candidates, k, Context(seed=seed))
    return picked, scores[picked]


def _check_k(k: int, available: int) -> None:
    if k < 1:
        raise InvalidOption(f"k is at least 1, got {k}")
    if k > available:
        raise InvalidOption(f"k = {k} rows were asked for and there are {available} to choose from")


def _candidate_rows(n_rows: int, exclude: Exclude | None) -> Tensor:
    """Rows not excluded, ascending: [n]."""
    if exclude is None:
        return torch.arange(n_rows)
    if isinstance(exclude, Tensor):
        exclude = exclude.cpu().numpy()
    given = exclude if isinstance(exclude, np.ndarray) else np.array(list(exclude))
    if given.dtype == np.bool_:
        if given.shape != (n_rows,):
            raise InvalidData(f"the mask of excluded rows has shape {given.shape}, the pool has {n_rows} rows")
        return torch.from_numpy(np.flatnonzero(~given))
    if given.size and given.dtype.kind not in "iu":
        raise InvalidData(f"exclude is a mask or whole row numbers, got {given.dtype}")
    keep = np.ones(n_rows, dtype=np.bool_)
    if given.size:
        if given.min() < 0 or given.max() >= n_rows:
            raise InvalidData(
                f"excluded rows run from {given.min()} to {given.max()}, the pool's from 0 to {n_rows - 1}"
            )
        keep[given] = False
    return torch.from_numpy(np.flatnonzero(keep))


def _shards(x: Pool) -> Sequence[Array]:
    if isinstance(x, (Tensor, np.ndarray)):
        return [x]
    if not all(isinstance(shard, (Tensor, np.ndarray)) and shard.ndim >= 2 for shard in x):
        raise InvalidData("a pool is an array [rows, ...] or a sequence of such arrays")
    return x


def _as_tensor(x: Array) -> Tensor:
    """A tensor; of a read-only array or memory map, a copy of the part that was asked for."""
    if isinstance(x, Tensor):
        return x
    return torch.from_numpy(x if x.flags.writeable and type(x) is np.ndarray else np.array(x))


def _without_ensemble() -> str:
    return ", ".join(name for name, entry in ACQUISITIONS.items() if "ensemble" not in entry.needs)


def _notes(ensemble: Scorable | None, options: Any, pool: Tensor, picked: Tensor) -> tuple[str, ...]:
    """`pool` [n] are the candidates' scores, `picked` [k] the chosen ones'."""
    entry, notes = ACQUISITIONS[options.name], []
    if ensemble is None or "ensemble" not in entry.needs:
        return ()
    if entry.is_coarse:
        last = picked.min()
        tied, taken = int((pool == last).sum()), int((picked == last).sum())
        notes.append(
            f"{options.name} has few values with {ensemble.n_members} members: {tied} rows tie at the lowest chosen "
            f"score {float(last):.6g}, and {taken} of them were chosen"
        )
    if ensemble.n_members == 1 and not bool(pool.any()):
        notes.append(
            f"one member cannot disagree with itself: {options.name} is 0 for every row and these are simply the "
            "first ones; use entropy or margin, or a posterior with several members"
        )
    ceiling = entry.ceiling and entry.ceiling(options, ensemble.family, ensemble.log_weights, ensemble.n_members)
    if ceiling is not None and float(pool.max()) > 0.9 * ceiling:
        notes.append(
            f"{ensemble.n_members} members cannot tell scores above {ceiling:.4g} nats apart and the best row has "
            f"{float(pool.max()):.4g}: more members would help"
        )
    return tuple(notes)
