"""From the scores of a pool to the k rows to label next."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core import display
from bensemble_core.acquisition import (
    ACQUISITIONS,
    SELECTIONS,
    default_notes,
    resolve_acquisition,
    resolve_pair,
    resolve_selection,
    short_list,
)
from bensemble_core.acquisition.entries import Candidates, Context, Picks, SelectionOptions
from bensemble_core.acquisition.progress import Tick, ticking
from bensemble_core.acquisition.selections.clustering import distinct
from bensemble_core.acquisition.selections.shortlist import short_list_option
from bensemble_core.display import Described
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.options import seed_of, whole
from bensemble_core.predictive import Predictive, mixtures
from bensemble_core.ranking.scoring import (
    CHUNK_ROWS,
    Array,
    Pool,
    Scorable,
    as_array,
    as_shards,
    as_tensor,
    check_family,
    predict_all,
    refuse_student,
    require_finite,
    score_shards,
)
from bensemble_core.types import Family, Progress

Exclude: TypeAlias = Tensor | npt.NDArray[Any] | Iterable[int]  # a mask over the pool, or row numbers
Gather: TypeAlias = Callable[[Tensor], Array]  # pool rows [n], ascending -> their inputs [n, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ranking(Described):
    """The k rows of a pool to label next, best first, with their scores."""

    rows: Tensor  # [k] int64, best first
    scores: Tensor  # [k]
    n_scored: int  # rows that could be chosen, excluded ones not counted
    measure: str  # what the selection did for a pick: "score", "probability", "information_gained", "distance", …
    values: Tensor  # [k] float64, that number for each
    ceiling: float | None = None  # nats that no score of these members can pass, ln M with equal weights
    notes: tuple[str, ...] = ()  # what a reader of this ranking should know

    def _facts(self) -> dict[str, object]:
        return {
            "k": self.rows.numel(),
            "rows": display.numbers(self.rows),
            "scores": display.numbers(self.scores),
            "n_scored": self.n_scored,
            "measure": self.measure,
            "notes": "; ".join(self.notes) or None,
        }


def choose(
    scores: Array,
    selection: object = "top_k",
    *,
    k: int,
    seed: int = 0,
    exclude: Exclude | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose k rows of a pool by their scores [N]: the rows [k], and their scores [k]."""
    k, seed = whole(k, "k"), seed_of(seed)
    how, rows, scores = resolve_selection(selection), _candidate_rows(len(scores), exclude), as_tensor(scores)
    picks = _select(None, scores, how, k, seed, rows, None, None, None, is_uniform=False)
    return picks.rows, scores[picks.rows]


def conclude(
    ensemble: Scorable | None,
    scores: Array,
    *,
    acquisition: object | None = None,
    selection: object | None = None,
    k: int,
    seed: int = 0,
    exclude: Exclude | None = None,
    gather: Gather | None = None,
    labelled: Array | None = None,
    report: Progress | None = None,
) -> Ranking:
    """The ranking that `rank` would give, from scores that were computed before, shard by shard: [N] -> k rows.

    `gather` reads the inputs of some rows of the pool; a selection that needs more than scores predicts its short list
    from them. `report` is called while rows are chosen, and may raise to stop it.
    """
    k, seed = whole(k, "k"), seed_of(seed)
    options, how = _resolve(ensemble, acquisition, selection)
    rows = _candidate_rows(len(scores), exclude)
    scores = as_tensor(scores)
    require_finite(scores[rows], rows=rows)
    is_uniform = ACQUISITIONS[options.name].is_uniform
    picks = _select(ensemble, scores, how, k, seed, rows, gather, labelled, report, is_uniform=is_uniform)
    chosen = scores[picks.rows]
    return Ranking(
        rows=picks.rows,
        scores=chosen,
        n_scored=rows.numel(),
        measure=picks.measure,
        values=picks.values,
        ceiling=_ceiling(ensemble, options),
        notes=(
            *default_notes(acquisition, selection, _family(ensemble)),
            *_notes(ensemble, options, how, scores[rows], chosen),
            *picks.notes,
        ),
    )


def rank(
    ensemble: Scorable | None,
    x: Pool,
    *,
    acquisition: object | None = None,
    selection: object | None = None,
    k: int,
    seed: int = 0,
    exclude: Exclude | None = None,
    target: Array | Predictive | None = None,
    labelled: Array | None = None,
    chunk_rows: int | None = None,
    report: Progress | None = None,
) -> Ranking:
    """Which k rows of a pool to label next: score every row, choose k of those not excluded.

    ensemble: what predicts, from `fitted.sample(20)`; None where there is none yet. A student (`bc.distil`) is refused
        where the choice rests on disagreement.
    x: rows [N, ...], or a sequence of such arrays (shards), which are never joined in memory. Shards give the ranking
        of their concatenation, bit for bit where each starts at a multiple of the chunk.
    acquisition: how a row is scored: a name in `bc.ACQUISITIONS`, a dict with a name and options, or an options object.
        None, the default, and "auto" leave the choice to us; so they do for the selection.
    selection: how k are taken: a name in `bc.SELECTIONS`, a dict or an options object. Where neither is named, `margin`
        with `cluster_margin` ranks classes, `power` on the members' spread (`predictive_variance`, epistemic) numbers;
        without an ensemble, whose task is not known here, `typiclust` chooses one half and the seed the other
        (`random_share` 0.5; `kcenter` and `random` do without one, too). For numbers `acquisition="random"` is the
        better first batch. `notes` say what was chosen. Where an acquisition alone is named, `top_k` takes the highest.
    k: how many rows.
    seed: of ties and draws; the same seed gives the same picks; default 0.
    exclude: rows that must not be chosen, as their numbers or as a mask [N]; default none.
    target: the rows [T, ...] that are to be predicted well, for `epig`; or what the ensemble predicts for them.
    labelled: rows [L, ...] that `kcenter` and `typiclust` keep away from.
    chunk_rows: rows scored at a time; default 1,024.
    report: `report(done, total, message)`, called often; raise in it to stop.
    """
    k, seed = whole(k, "k"), seed_of(seed)
    options, how = _resolve(ensemble, acquisition, selection)
    shards = as_shards(x)
    _check_k(k, _candidate_rows(sum(map(len, shards)), exclude).numel())  # before the work, not after
    _check_selection(ensemble, how)
    scores = score_shards(ensemble, shards, [options], seed, 0, target, chunk_rows, report, finite=False)[0]
    ranking = conclude(
        ensemble,
        scores,
        acquisition=options,
        selection=how,
        k=k,
        seed=seed,
        exclude=exclude,
        gather=_gather(shards),
        labelled=labelled,
        report=report,
    )
    return replace(ranking, notes=(*default_notes(acquisition, selection, _family(ensemble)), *ranking.notes))


def check_combination(acquisition: object, selection: object, family: Family) -> None:
    """Raise InvalidOption where the two cannot rank together with this likelihood; for before the work."""
    options, how = resolve_acquisition(acquisition), resolve_selection(selection)
    check_family(family, ACQUISITIONS, options.name)
    check_family(family, SELECTIONS, how.name)
    _check_signs(options, how, family)


def _resolve(
    ensemble: Scorable | None, acquisition: object | None, selection: object | None
) -> tuple[Any, SelectionOptions]:
    options, how = resolve_pair(acquisition, selection, _family(ensemble))
    if ensemble is not None:
        refuse_student(ensemble, options, how)
        _check_signs(options, how, ensemble.family)
    return options, how


def _family(ensemble: Scorable | None) -> Family | None:
    return ensemble.family if ensemble is not None else None


def _check_signs(options: Any, how: SelectionOptions, family: Family) -> None:
    if family in ACQUISITIONS[options.name].negative_for and not SELECTIONS[how.name].takes_negative(how):
        raise InvalidOption(
            f"{options.name} may be negative for a {family} likelihood, and {how.name} needs scores of at least 0; "
            "use an information or disagreement score, form softmax or softrank, or selection top_k"
        )


def _features(ensemble: Scorable | None, x: Array, labelled: Array | None, tick: Tick) -> tuple[Tensor, Tensor | None]:
    """One member's features or, before there is an ensemble, the rows as they are: [n, F], [L, F].

    Equal rows are run once: a network may round a row by its place among others, and copies would seem to differ.
    """
    rows = as_tensor(x)
    known = None if labelled is None else as_array(labelled, "labelled")
    if known is not None and len(known):
        if known[0].numel() != rows[0].numel():
            raise InvalidData(f"labelled rows have shape {list(known.shape[1:])}, the pool's {list(rows.shape[1:])}")
        # a copy is equal in the pool's own precision
        dtype = rows.dtype if rows.is_floating_point() else torch.promote_types(rows.dtype, known.dtype)
        rows = torch.cat([rows.to(dtype), known.reshape(-1, *rows.shape[1:]).to(device=rows.device, dtype=dtype)])
    if ensemble is None:
        features = rows.flatten(1) if rows.is_floating_point() else rows.flatten(1).double()
    else:
        first, which = distinct(rows)
        parts = []
        for some in torch.split(first, CHUNK_ROWS):
            tick()
            parts.append(ensemble.features(rows[some]))
        features = torch.cat(parts)[which]
    return features[: len(x)], features[len(x) :] if len(rows) > len(x) else None


def _check_selection(ensemble: Scorable | None, how: SelectionOptions) -> None:
    if ensemble is not None:
        check_family(ensemble.family, SELECTIONS, how.name)
    elif "predictive" in SELECTIONS[how.name].needs:
        others = ", ".join(n for n, entry in SELECTIONS.items() if "predictive" not in entry.needs)
        raise InvalidOption(f"{how.name} needs an ensemble; before there is one use one of {others}")


def _select(
    ensemble: Scorable | None,
    scores: Tensor,
    how: SelectionOptions,
    k: int,
    seed: int,
    rows: Tensor,
    gather: Gather | None,
    labelled: Array | None,
    report: Progress | None,
    *,
    is_uniform: bool,
) -> Picks:
    """k of the candidate `rows` [n] by the pool's scores [N] and, for a short list, what else the selection needs."""
    entry = SELECTIONS[how.name]
    missing = [need for need in entry.needs if need != "scores"]
    if missing and gather is None:
        raise InvalidOption(f"{how.name} needs {' and '.join(missing)}, which a vector of scores does not have")
    _check_k(k, rows.numel())
    every = rows.numel() == scores.numel()
    if not missing or gather is None:
        known_scores = Candidates(rows=rows, scores=scores if every else scores[rows])
        return how(known_scores, k, Context(seed=seed, is_uniform=is_uniform))
    _check_selection(ensemble, how)
    listed = short_list(entry, how, rows, scores if every else scores[rows], k, seed)
    x, tick = gather(listed), ticking(report, (), k)
    labelled = labelled if entry.uses_labelled else None
    features, known = _features(ensemble, x, labelled, tick) if "features" in entry.needs else (None, None)
    candidates = Candidates(
        rows=listed,
        scores=scores[listed],
        predictive=predict_all(ensemble, x, tick) if ensemble is not None and "predictive" in entry.needs else None,
        features=features,
    )
    picks = how(candidates, k, Context(seed=seed, labelled_features=known, is_uniform=is_uniform, report=report))
    if listed.numel() == rows.numel():
        return picks
    which = "those with the highest scores" if entry.short_list == "highest" else "drawn by the seed"
    note = (
        f"{how.name} looked at {listed.numel():,} of {rows.numel():,} rows, {which}; `{short_list_option(how)}` sets "
        "how many"
    )
    return replace(picks, notes=(note, *picks.notes))


def _gather(shards: Sequence[Array]) -> Gather:
    """Rows of the shards by pool row; only these are read."""

    def gather(rows: Tensor) -> Array:
        parts, start = [], 0
        for shard in shards:
            inside = rows[(rows >= start) & (rows < start + len(shard))] - start
            parts.append(as_tensor(shard[inside if isinstance(shard, Tensor) else inside.numpy()]))
            start += len(shard)
        return torch.cat(parts)

    return gather


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


def _notes(
    ensemble: Scorable | None, options: Any, how: SelectionOptions, pool: Tensor, picked: Tensor
) -> tuple[str, ...]:
    """`pool` [n] are the candidates' scores, `picked` [k] the chosen ones'."""
    entry = ACQUISITIONS[options.name]
    notes = list(getattr(ensemble, "notes", ())) if "ensemble" in entry.needs else []
    if ensemble is None and "features" in SELECTIONS[how.name].needs:
        units = "each input divided by its sd" if getattr(how, "standardise", False) else "in their own units"
        notes.append(f"there is no ensemble yet: {how.name} compared the rows as they were given, {units}")
    if ensemble is None or "ensemble" not in entry.needs or "scores" not in SELECTIONS[how.name].needs:
        return tuple(notes)
    if entry.is_coarse:
        last = picked.min()
        tied, taken = int((pool == last).sum()), int((picked == last).sum())
        notes.append(
            f"{options.name} has few values with {ensemble.n_members} members: {tied} rows tie at the lowest chosen "
            f"score {float(last):.6g}, and {taken} of them were chosen"
        )
    if entry.is_disagreement(options) and not bool(pool.any()):
        notes.append(_no_disagreement(ensemble, options.name))
    ceiling = _ceiling(ensemble, options)
    if ceiling is not None and float(pool.max()) > 0.9 * ceiling:
        notes.append(
            f"{ensemble.n_members} members cannot distinguish scores above {ceiling:.4g} nats and the best row has "
            f"{float(pool.max()):.4g}: more members would help"
        )
    return tuple(notes)


def _ceiling(ensemble: Scorable | None, options: Any) -> float | None:
    find = ACQUISITIONS[options.name].ceiling
    if ensemble is None or find is None:
        return None
    return find(options, ensemble.family, ensemble.log_weights, ensemble.n_members)


def _no_disagreement(ensemble: Scorable, name: str) -> str:
    if mixtures.weight_entropy(ensemble.log_weights, ensemble.n_members) > 0:
        return (
            f"the members do not disagree about any row: {name} is 0 for every row and the picks are arbitrary; "
            "use members that differ"
        )
    one = "one member" if ensemble.n_members == 1 else "all weight is on one member, which"
    return (
        f"{one} cannot disagree with itself: {name} is 0 for every row and ranks none above another; "
        "use entropy or margin, or a posterior with several members"
    )
