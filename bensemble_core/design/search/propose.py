"""The next design: the most informative for its cost, with ties broken by rule and the runner-up named."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.gaussian import GaussianBelief
from bensemble_core.design.belief.infer import infer
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Array
from bensemble_core.design.information.accuracy import sharpened
from bensemble_core.design.information.batch import Batch, CellBatch, conditional, joined
from bensemble_core.design.information.eig import Estimates, plain_estimates
from bensemble_core.design.information.tables import Method, is_kept, method_of, n_numbers
from bensemble_core.design.search.search import Search, starts, with_corners
from bensemble_core.design.spec.expressions import parse
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.spaces import Row
from bensemble_core.design.spec.spec import Spec
from bensemble_core.errors import InvalidData, NotFinite
from bensemble_core.randomness import derive

N_COMPARED = 8  # designs at least that are compared from all points, after a look from fewer
NEAR = 0.2  # share of the range of the scores: those as near to the best are compared, too
ROUGH = 1e-2  # relative error of the best score beyond which the contenders are compared on finer grids
SHARP = 1e-3  # relative error down to which they are, and between two views of what is searched
MUCH = 0.5  # of the best's information, below which a design ties with it no more, however rough the estimates
N_JUDGED = 4  # of the best designs that tell how fine a grid is climbed on
N_FINER = 2  # times that it is made finer
N_CLOSELY = 64  # designs by cells that are looked at closely
SHAKY = 0.1  # nats, an error with which an estimate rules nothing out
AFFORDABLE = 300_000  # points × outcomes of a design at a first look
Reason = Literal["best", "tie", "random"]


@dataclass(frozen=True, kw_only=True)
class RunnerUp:
    """What would be proposed if the proposed design were not there. `se` is None as in `Estimate`."""

    design: dict[str, Any]
    eig: float
    se: float | None
    score: float


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A design to run next. `eig` is what it adds to designs that are pending or were picked before it in the same
    batch; `joint_eig` is that of all of them together. `score` is what was maximised. `se`, `method` and `note` are as
    in `Estimate`. `max_eig` is the most that any allowed design promises, where that was looked for: not where designs
    are drawn at random, or compared for their cost or utility."""

    design: dict[str, Any]
    eig: float
    se: float | None
    method: Method
    runner_up: RunnerUp | None
    score: float
    cost: float
    joint_eig: float
    reason: Reason = "best"
    utility: float | None = None
    note: str | None = None
    max_eig: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What is known and asked for, checked."""

    events: Sequence[Event]
    pending: Sequence[Row] = ()
    fixed: Mapping[str, float]
    excluded: frozenset[Row] = frozenset()
    n_prior: int = 0  # the first so many events only inform: they are no rounds of this experiment

    @property
    def run(self) -> list[Row]:
        """Designs of this experiment that were run or are pending."""
        return [row for row, _ in self.events[self.n_prior :]] + list(self.pending)


def choose(spec: Spec, batch: Batch | CellBatch, request: Request, memory: Memory, count: int) -> list[Proposal]:
    """Greedy picks from a batch that holds the pending designs; fewer than `count` when no more can be afforded."""
    run = request.run
    found: list[Proposal] = []
    for pick in range(count):
        turn = len(request.events) + len(request.pending) + pick
        candidates = _candidates(spec, batch, request, memory)
        scores = _allowed(spec, candidates, request, run)
        if scores.max() == -math.inf:
            break
        chosen, reason = _pick(spec, candidates, scores, run, turn)
        proposal = _proposal(spec, batch, candidates, scores, chosen, reason, run, turn)
        found.append(proposal)
        run.append(tuple(candidates.rows[chosen].tolist()))
        if pick + 1 < count:
            batch = joined(spec.model, batch, run[-1], memory, seed=spec.select.seed)
    return found


def max_eig(spec: Spec, batch: Batch | CellBatch, request: Request, memory: Memory) -> float | None:
    """The most information that any allowed design promises, whatever it costs and by whichever rule designs are
    chosen; None if none was found. Within a budget the search is for what is cheap as well."""
    model = spec.model if spec.budget < math.inf else replace(spec.model, cost=parse(1, degrees={}, pointer=""))
    plain = replace(spec, model=model, select=replace(spec.select, rule="argmax"))
    candidates = _candidates(plain, batch, request, memory)
    candidates = replace(candidates, costs=spec.model.costs(candidates.rows).numpy())
    return _most(candidates, _allowed(spec, candidates, request, request.run))


def _most(candidates: "_Candidates", scores: Array) -> float | None:
    """The greatest EIG of those that may be proposed; one of which next to nothing is known counts with its error."""
    is_allowed, found = scores > -math.inf, candidates.estimates
    most = found.eig + np.where((found.se > SHAKY) & ~found.too_coarse, found.se, 0.0)
    return float(most[is_allowed].max()) if is_allowed.any() else None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Candidates:
    """Designs and what they are worth. In numpy, whose small operations cost a fraction of torch's."""

    rows: Tensor  # [J, D]
    costs: Array  # [J]
    estimates: Estimates
    scores: Array  # [J]
    se: Array  # [J] of the scores


def _candidates(spec: Spec, batch: Batch | CellBatch, request: Request, memory: Memory) -> _Candidates:
    """Where all designs are too many to look at from all points, a first look from few of these, or from few cells,
    tells which may be the best."""
    model, seed = spec.model, spec.select.seed
    if model.space.is_listed and not _is_screened(spec, batch, request, memory):
        found = _scored(spec, batch, model.space.all(), memory)
    else:
        view = _view(spec, batch, request, memory)

        def rough(rows: Tensor) -> Array:
            if isinstance(view, CellBatch):
                return view.rough(model, rows, memory)
            return conditional(model, view, rows, memory, seed=seed).value

        if model.space.is_listed:
            found = _screened(spec, batch, rough(model.space.all().clone()), memory)
        else:
            rows = starts(model.space, seed, request.fixed)
            if spec.select.rule != "random":
                rows = with_corners(model.space, rows, request.fixed)
                is_sampled = not isinstance(view, CellBatch) and _is_sampled(model, view, rows, memory)
                search = Search(model=model, value=rough, fixed=request.fixed, is_sampled=is_sampled)
                # where a first look has no slope, or one of its own making, no climb leads to a corner
                rows = with_corners(model.space, search.refined(rows, search.worth(rows)), request.fixed)
            found = _scored(spec, batch, rows, memory)
    return found if isinstance(batch, CellBatch) else _sharp(spec, batch, request, found, memory)


def _view(spec: Spec, batch: Batch | CellBatch, request: Request, memory: Memory) -> Batch | CellBatch:
    """The batch as seen from so many points as a first look can afford: of a grid as fine as it takes for the best of
    some designs to have a value, as between too few points a climb is led to where these happen to lie."""
    model = spec.model
    if isinstance(batch, CellBatch) or isinstance(batch.belief, GaussianBelief):
        return batch
    rows = model.space.all()[:1] if model.space.is_listed else starts(model.space, spec.select.seed, request.fixed)
    if n_numbers(model, batch.belief.points, rows[:1]) > AFFORDABLE:
        return batch.fewer()
    if model.space.is_listed or not batch.is_empty:
        return batch
    for level in range(1, N_FINER + 1):
        found = conditional(model, batch, rows, memory, seed=spec.select.seed)
        best = np.argsort(-found.value, kind="stable")[:N_JUDGED]
        if (found.se[best] <= SHARP * np.abs(found.value[best])).all():
            break
        finer = infer(model, request.events, memory, seed=spec.select.seed, level=level)
        assert isinstance(finer, PointBelief)
        if n_numbers(model, finer.points, rows[:1]) > AFFORDABLE:
            break
        batch = replace(batch, belief=finer, alone=finer)
    return batch


def _is_sampled(model: Model, batch: Batch, rows: Tensor, memory: Memory) -> bool:
    """Whether values are bounds by sampling, which have steps."""
    if isinstance(batch.belief, GaussianBelief) or batch.columns is not None:
        return False
    return method_of(model, batch.belief.points, rows[:1], memory) == "bounds"


def _is_screened(spec: Spec, batch: Batch | CellBatch, request: Request, memory: Memory) -> bool:
    """Whether the designs of a list are too many to look at closely in every round. Not where the best may not be
    proposed: the best of the others is then wanted as exactly."""
    rows, is_precise = spec.model.space.all(), isinstance(batch, CellBatch)
    if spec.select.rule == "random" or len(rows) <= (N_CLOSELY if is_precise else 2 * N_COMPARED):
        return False
    if isinstance(batch, CellBatch):
        return True
    if isinstance(batch.belief, GaussianBelief):
        return False
    return _is_free(spec, request) and not is_kept(spec.model, batch.belief.points, rows, memory)


def _screened(spec: Spec, batch: Batch | CellBatch, values: Array, memory: Memory) -> _Candidates:
    """All designs of a list, those closely that may be the best by these rough values [J]."""
    model, rows, is_precise = spec.model, spec.model.space.all(), isinstance(batch, CellBatch)
    scores = np.where(np.isfinite(values), values / model.listed_costs, -math.inf)
    least = scores.max() - NEAR * (scores.max() - scores[scores > -math.inf].min())
    n = N_CLOSELY if is_precise else N_COMPARED
    places = np.sort(np.argsort(-scores, kind="stable")[: max(n, int((scores >= least).sum()) * (not is_precise))])
    close = conditional(model, batch, rows[torch.from_numpy(places)], memory, seed=spec.select.seed)
    change = np.abs(close.value - values[places])
    error = float(change[np.isfinite(change)].max(initial=0.0)) + float(close.se.max())
    others = plain_estimates(values, np.full(len(rows), error), close.method)
    if close.utility is not None:
        others = replace(others, utility=values)
    return _valued(spec, rows, others.with_some(places, close))


def _is_free(spec: Spec, request: Request) -> bool:
    """Whether any design may be proposed."""
    is_bound = spec.select.max_repeats is not None or spec.budget < math.inf
    return not (request.fixed or request.excluded or is_bound)


def _scored(spec: Spec, batch: Batch | CellBatch, rows: Tensor, memory: Memory) -> _Candidates:
    return _valued(spec, rows, conditional(spec.model, batch, rows, memory, seed=spec.select.seed))


def _valued(spec: Spec, rows: Tensor, found: Estimates) -> _Candidates:
    """With a score of −inf where an estimate is not finite: such a design is not to be proposed."""
    is_known = np.isfinite(found.value) & np.isfinite(found.se)
    if not is_known.any():
        raise NotFinite(
            "no design has an estimate that is finite: arguments of the outcome are too extreme somewhere within the "
            "prior; narrow the prior, or clip() what overflows"
        )
    costs = spec.model.listed_costs if spec.model.space.is_listed else spec.model.costs(rows).numpy()
    return _Candidates(
        rows=rows,
        costs=costs,
        estimates=found,
        scores=np.where(is_known, found.value / costs, -math.inf),
        se=np.where(is_known, found.se / costs, 0.0),
    )


def _sharp(spec: Spec, batch: Batch, request: Request, found: _Candidates, memory: Memory) -> _Candidates:
    """The same with those that may be the best estimated as exactly as can be. Any may be of which the grid is too
    coarse to tell."""
    best, is_coarse = int(found.scores.argmax()), found.estimates.too_coarse
    if not batch.is_empty or spec.select.rule == "random":
        return found
    contenders = (found.scores + 3 * found.se >= (found.scores - 3 * found.se).max()) | is_coarse
    enough = SHARP if found.estimates.utility is not None else ROUGH
    is_sure = found.se[best] <= enough * abs(found.scores[best]) or contenders.sum() == 1
    if is_sure and not is_coarse.any():
        return found
    seed, estimates = spec.select.seed, found.estimates
    return _valued(
        spec,
        found.rows,
        sharpened(
            spec.model,
            request.events,
            found.rows,
            estimates,
            memory,
            contenders,
            seed=seed,
            tolerance=SHARP * abs(float(found.scores[best] * found.costs[best])),
        ),
    )


def _allowed(spec: Spec, candidates: _Candidates, request: Request, run: Sequence[Row]) -> Array:
    """The scores, −inf where a design may not be proposed: without the fixed values, excluded, run too often, or beyond
    the budget: [J]."""
    if _is_free(spec, request):
        return candidates.scores
    rows = candidates.rows.numpy()
    is_wrong = np.zeros(len(rows), dtype=np.bool_)
    for i, name in enumerate(spec.model.space.names):
        if name in request.fixed:
            is_wrong |= rows[:, i] != request.fixed[name]
    if is_wrong.all():
        raise InvalidData(f"no design has the fixed values {dict(request.fixed)}; fix others, or fewer")
    most = math.inf if spec.select.max_repeats is None else spec.select.max_repeats
    for row in request.excluded | {row for row, times in Counter(run).items() if times >= most}:
        is_wrong |= (rows == np.array(row)).all(1)
    if spec.budget < math.inf:
        is_wrong |= candidates.costs > spec.budget - spec.model.spent(Counter(run)) + 1e-9
    return np.where(is_wrong, -math.inf, candidates.scores)


def _pick(spec: Spec, candidates: _Candidates, scores: Array, run: Sequence[Row], turn: int) -> tuple[int, Reason]:
    """The number of the chosen row. Ties go to the least used, and among those by the seed."""
    select = spec.select
    if select.rule == "random" or (select.epsilon > 0 and _uniform(select.seed, turn, 0) < select.epsilon):
        places = (scores > -math.inf).nonzero()[0]
        return int(places[int(_uniform(select.seed, turn, 1) * len(places))]), "random"
    chosen = _leading(spec, candidates, scores, run, turn, 2)
    return chosen, "best" if chosen == scores.argmax() else "tie"


def _leading(spec: Spec, candidates: _Candidates, scores: Array, run: Sequence[Row], *path: int) -> int:
    """The best, or of those that can't be told from it the least used, and among those one by the seed.

    Two designs can't be told apart if they differ by at most tie_tol, or by 2 se of the one that is known better: what
    is surely far below does not tie with something that hardly anything is known of. Where that is all there is, a
    design of less than MUCH of the best's information still does not. An error that is not stated makes no tie.
    """
    best = int(scores.argmax())
    se = np.where(candidates.estimates.too_coarse, 0.0, candidates.se)
    error = 2 * np.minimum(se, se[best])
    if candidates.estimates.utility is None:
        error = np.minimum(error, (1 - MUCH) * scores[best])
    ties = (scores >= scores[best] - np.maximum(spec.select.tie_tol, error)).nonzero()[0].tolist()
    if len(ties) == 1:
        return best
    used = Counter(run)
    counts = [used[tuple(candidates.rows[place].tolist())] for place in ties]
    fresh: list[int] = [place for place, n in zip(ties, counts, strict=True) if n == min(counts)]
    return fresh[int(_uniform(spec.select.seed, *path) * len(fresh))]


def _uniform(seed: int, *path: int) -> float:
    """A number in [0, 1) for a place in the tree below the seed."""
    return derive(seed, *path) / 2**63


def _proposal(
    spec: Spec,
    batch: Batch | CellBatch,
    candidates: _Candidates,
    scores: Array,
    chosen: int,
    reason: Reason,
    run: Sequence[Row],
    turn: int,
) -> Proposal:
    """The chosen row, and what would be chosen by the same rule if it were not there."""
    found = candidates.estimates

    def stated(place: int) -> dict[str, Any]:
        return {
            "design": spec.model.space.decode(candidates.rows[place].tolist()),
            "eig": float(found.eig[place]),
            "se": found.stated(place)["se"],
            "score": float(candidates.scores[place]),
        }

    others = scores.copy()
    others[chosen] = -math.inf  # no two rows are the same
    has_others = others.max() > -math.inf
    return Proposal(
        **stated(chosen),
        method=found.stated(chosen)["method"],
        note=found.stated(chosen)["note"],
        runner_up=RunnerUp(**stated(_leading(spec, candidates, others, run, turn, 3))) if has_others else None,
        cost=float(candidates.costs[chosen]),
        joint_eig=batch.gain + float(found.eig[chosen]),
        reason=reason,
        utility=None if found.utility is None else float(found.utility[chosen]),
        max_eig=_most(candidates, scores) if spec.seeks_information else None,
    )
