"""Score the rows of a pool in constant memory: one number a row, or several from one forward pass."""

import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.acquisition import ACQUISITIONS, SELECTIONS, resolve_acquisition, resolve_pair
from bensemble_core.acquisition.entries import Entry, Rows, SelectionEntry, SelectionOptions
from bensemble_core.acquisition.fused import kernels
from bensemble_core.acquisition.progress import REPORT_SECONDS, Tick, silent
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.options import seed_of
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive, join
from bensemble_core.threads import in_order
from bensemble_core.types import Family, Progress

CHUNK_ROWS = 1024  # the same everywhere: a score's last bits depend on where chunks begin

Array: TypeAlias = Tensor | npt.NDArray[Any]  # memory maps included
Pool: TypeAlias = Array | Sequence[Array]  # one array, or its shards in order


class Scorable(Protocol):
    """What scoring asks of an ensemble."""

    @property
    def n_members(self) -> int: ...

    @property
    def family(self) -> Family: ...

    @property
    def log_weights(self) -> Tensor | None: ...

    @property
    def is_concurrent(self) -> bool: ...  # several threads may predict at once, and gain by it

    def iter_predict(self, x: Tensor, chunk_rows: int) -> Iterator[Predictive]: ...

    def features(self, x: Tensor) -> Tensor: ...  # asked for by selections that need them


def score(
    ensemble: Scorable | None,
    x: Pool,
    acquisition: object | None = None,
    *,
    seed: int = 0,
    first_row: int = 0,
    target: Array | Predictive | None = None,
    chunk_rows: int | None = None,
    report: Progress | None = None,
) -> Tensor:
    """Score every row of a pool; the higher, the more useful is its label: x [N, ...] -> [N].

    ensemble: what predicts, from `fitted.sample(20)`; None for an acquisition that needs none (`random`).
    x: rows [N, ...], or a sequence of such arrays (shards).
    acquisition: a name in `bc.ACQUISITIONS`, a dict with a name and options, or an options object. Default: that of
        `rank`, `margin` for classes and the members' spread for numbers.
    seed: for `random`; default 0.
    first_row: the pool-wide number of x's first row, default 0: a shard scored alone gets the bits that it has within
        the pool when it starts where a chunk starts.
    target: the rows [T, ...] that are to be predicted well, for `epig`; or what the ensemble predicts for them.
    chunk_rows: rows scored at a time; default 1,024.
    report: `report(done, total, message)`, called often; raise in it to stop.

    A student (`bc.distil`) is refused for scores of disagreement.
    """
    options, how = resolve_pair(acquisition, "top_k", ensemble.family if ensemble is not None else None)
    refuse_student(ensemble, options, how)
    return score_shards(ensemble, as_shards(x), [options], seed, first_row, target, chunk_rows, report)[0]


def score_columns(
    ensemble: Scorable,
    x: Pool,
    acquisitions: Sequence[object],
    *,
    seed: int = 0,
    first_row: int = 0,
    target: Array | Predictive | None = None,
    chunk_rows: int | None = None,
    report: Progress | None = None,
    finite: bool = True,
) -> Tensor:
    """Several scores of every row from one forward pass, each with the bits that `score` gives it: -> [J, N].

    A score that is not finite raises NotFinite; with `finite=False` it stays, for whoever knows which rows may be
    chosen to judge (`require_finite`). Of a student the scores of disagreement are 0 here and not refused: columns are
    stored for later questions, and `conclude` refuses the one that asks for them.
    """
    options = [resolve_acquisition(acquisition) for acquisition in acquisitions]
    return score_shards(ensemble, as_shards(x), options, seed, first_row, target, chunk_rows, report, finite=finite)


def score_shards(
    ensemble: Scorable | None,
    shards: Sequence[Array],
    acquisitions: Sequence[Any],
    seed: int,
    first_row: int,
    target: Array | Predictive | None,
    chunk_rows: int | None,
    report: Progress | None,
    *,
    finite: bool = True,
) -> Tensor:
    """[J, N], a row for each of the acquisitions."""
    seed = seed_of(seed)
    chunk_rows = CHUNK_ROWS if chunk_rows is None else chunk_rows
    if chunk_rows < 1:
        raise InvalidOption(f"chunk_rows is at least 1, got {chunk_rows}")
    needs = {need for options in acquisitions for need in ACQUISITIONS[options.name].needs}
    for options in acquisitions:
        if ensemble is None and "ensemble" in ACQUISITIONS[options.name].needs:
            raise InvalidOption(f"{options.name} needs an ensemble; only {_without_ensemble()} does without")
        if ensemble is not None and "ensemble" in needs:
            check_family(ensemble.family, ACQUISITIONS, options.name)
    predicted_target = _target(ensemble, target, acquisitions)
    predicting = ensemble if "ensemble" in needs else None
    total, done = sum(map(len, shards)), 0
    reported, lock = time.monotonic(), Lock()

    def tick() -> None:
        """Called by any thread within a long chunk; an exception of the report ends it, and so all scoring."""
        nonlocal reported
        with lock:
            if report is not None and time.monotonic() - reported >= REPORT_SECONDS:
                report(done, total, f"scored {done} of {total} rows")
                reported = time.monotonic()

    def chunks() -> Iterator[tuple[Array, Rows]]:
        first = first_row
        for shard in shards:
            for start in range(0, len(shard), chunk_rows):
                chunk = shard[start : start + chunk_rows]
                yield chunk, Rows(seed=seed, first=first, count=len(chunk), target=predicted_target, tick=tick)
                first += len(chunk)

    def work(given: tuple[Array, Rows]) -> Tensor:
        chunk, rows = given
        with torch.no_grad():
            predictive = None if predicting is None else _predict(predicting, chunk, chunk_rows)
            columns = [column[: len(chunk)] for column in _columns(predictive, acquisitions, rows)]
            found = torch.stack([column.cpu() for column in columns])
        if finite:
            for column in found:
                require_finite(column, first=rows.first)
        return found

    side_by_side = predicting is not None and predicting.is_concurrent and total > chunk_rows
    parts: list[Tensor] = []
    for part in in_order(work, chunks(), torch.get_num_threads() if side_by_side else 1):
        parts.append(part)
        done += part.shape[1]
        if report is not None:
            with lock:
                report(done, total, f"scored {done} of {total} rows")
    return torch.cat(parts, dim=1) if parts else torch.empty(len(acquisitions), 0)


def _columns(predictive: Predictive | None, acquisitions: Sequence[Any], rows: Rows) -> list[Tensor]:
    """The scores of each acquisition; those that the fused pass gives come from one run of it, with the same bits."""
    entries = [ACQUISITIONS[options.name] for options in acquisitions]
    names: list[str | None] = [getattr(options, "column", None) for options in acquisitions]
    found = None
    if isinstance(predictive, CategoricalPredictive) and any(names):
        n_columns = kernels.width(name for name in names if name)
        found = kernels.statistics(predictive.logits, predictive.log_weights, n_columns=n_columns)
    return [
        entry.score(predictive, options, rows) if found is None or name is None else found[kernels.COLUMNS.index(name)]
        for entry, options, name in zip(entries, acquisitions, names, strict=True)
    ]


def _predict(ensemble: Scorable, chunk: Array, chunk_rows: int) -> Predictive:
    """The chunk's predictive, its last row repeated to the full length: the same shape in every call means that the
    kernels vectorise, and round, in the same way whatever the length of the pool.
    """
    (predictive,) = ensemble.iter_predict(as_tensor(chunk), chunk_rows)
    if predictive.n_rows == chunk_rows:
        return predictive
    return predictive.take(torch.arange(chunk_rows).clamp(max=predictive.n_rows - 1))


def _target(
    ensemble: Scorable | None, target: Array | Predictive | None, acquisitions: Sequence[Any]
) -> Predictive | None:
    """What the ensemble predicts for the target rows, where an acquisition needs it."""
    takers = [options.name for options in acquisitions if "target" in ACQUISITIONS[options.name].needs]
    if not takers:
        if target is not None:
            known = ", ".join(name for name, entry in ACQUISITIONS.items() if "target" in entry.needs)
            raise InvalidOption(f"{acquisitions[0].name} knows no target set; leave target out, or use {known}")
        return None
    if target is None:
        raise InvalidOption(f"{takers[0]} needs a target set; pass target=…, the rows to be predicted well")
    if isinstance(target, (CategoricalPredictive, GaussianPredictive)):
        return _check_target(target)
    target = as_array(target, "target")
    if len(target) == 0:
        raise InvalidData(f"the target set has no rows; {takers[0]} is an average over at least one")
    return None if ensemble is None else _check_target(predict_all(ensemble, target))


def _check_target(target: Predictive) -> Predictive:
    """One target row that cannot be predicted would spoil the score of every row of the pool."""
    parts = [target.logits] if isinstance(target, CategoricalPredictive) else [target.means, target.variances]
    for part in parts:
        broken = (part.isnan() | (part == torch.inf)).flatten(2).any(-1) if part.ndim > 2 else ~part.isfinite()
        if bool(broken.any()):
            row = int(broken.any(0).nonzero()[0])
            raise NotFinite(f"row {row} of the target set has predictions that are not finite; check its numbers")
    return target


def predict_all(ensemble: Scorable, x: Array, tick: Tick = silent) -> Predictive:
    """The predictive of rows that fit in memory, chunk by chunk; `tick` may raise to stop it."""
    parts = []
    for at in range(0, max(1, len(x)), CHUNK_ROWS):
        tick()
        parts.append(next(iter(ensemble.iter_predict(as_tensor(x[at : at + CHUNK_ROWS]), CHUNK_ROWS))))
    return join(parts)


def check_family(family: Family, registry: Mapping[str, Entry | SelectionEntry], name: str) -> None:
    if family in registry[name].families:
        return
    others = [n for n, e in registry.items() if family in e.families]
    raise InvalidOption(f"{name} is not defined for a {family} likelihood; use one of {', '.join(others)}")


def refuse_student(ensemble: Scorable | None, options: Any, how: SelectionOptions) -> None:
    """InvalidOption where the choice rests on disagreement, and the ensemble is one network that learnt their mean.

    Every such score of it is 0 by construction, however much its teacher's members disagree.
    """
    if ensemble is None or not getattr(ensemble, "is_student", False):
        return
    selection = SELECTIONS[how.name]
    by_score = "scores" in selection.needs and ACQUISITIONS[options.name].is_disagreement(options)
    if not (selection.is_disagreement or by_score):
        return
    own = [(entry, entry.options()) for entry in ACQUISITIONS.values() if ensemble.family in entry.families]
    others = [_called(o) for entry, o in own if "ensemble" in entry.needs and not entry.is_disagreement(o)]
    name = _called(how if selection.is_disagreement else options)
    raise InvalidOption(
        f"{name} measures how members disagree, and this ensemble is a student: one network, for which it is 0 on "
        f"every row by construction; use {', '.join(others)}, or rank with the ensemble that the student was distilled "
        "from"
    )


def _called(options: Any) -> str:
    return f"{options.name} ({options.part})" if hasattr(options, "part") else str(options.name)


def require_finite(scores: Tensor, *, first: int = 0, rows: Tensor | None = None) -> None:
    """NotFinite, with the row, unless every score is; they are of `rows`, or of those that begin with `first`."""
    finite = torch.isfinite(scores)
    if finite.all():
        return
    at = int((~finite).nonzero()[0])
    row = first + at if rows is None else int(rows[at])
    raise NotFinite(f"row {row} has the score {float(scores[at])}; check its inputs and the ensemble's weights")


def as_shards(x: Pool) -> Sequence[Array]:
    if isinstance(x, (Tensor, np.ndarray)):
        return [x]
    if isinstance(x, Sequence) and all(isinstance(shard, (Tensor, np.ndarray)) and shard.ndim >= 2 for shard in x):
        return x
    raise InvalidData(
        f"a pool is an array [rows, ...] or a sequence of such arrays, got {type(x).__name__}; use numpy.asarray"
    )


def as_array(x: object, what: str) -> Tensor:
    """A tensor of what was given as `what`, or a refusal of what is no array."""
    if not isinstance(x, (Tensor, np.ndarray)) or x.ndim < 1:
        raise InvalidData(f"{what} is an array [rows, ...], got {type(x).__name__}; use numpy.asarray or torch.tensor")
    return as_tensor(x)


def as_tensor(x: Array) -> Tensor:
    """A tensor; a copy of the part that was asked for of a read-only array, one that runs backwards, has its bytes in
    another order or is a memory map."""
    if isinstance(x, Tensor):
        return x
    if x.dtype.kind not in "fiub":
        raise InvalidData(f"expected an array of numbers, got {x.dtype}")
    is_plain = x.flags.writeable and type(x) is np.ndarray and min(x.strides, default=0) >= 0 and x.dtype.isnative
    return torch.from_numpy(x if is_plain else np.array(x, dtype=x.dtype.newbyteorder("=")))


def _without_ensemble() -> str:
    return ", ".join(name for name, entry in ACQUISITIONS.items() if "ensemble" not in entry.needs)
