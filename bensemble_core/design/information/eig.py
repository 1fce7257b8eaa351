"""Expected information gain, EIG(ξ) = I(y; φ | ξ) for the targets φ ⊂ θ (Lindley 1956), in nats, with its error.

    EIG(ξ) = H[p̄(y | ξ)] − E_φ H[p(y | φ, ξ)]
    p̄(y) = Σ_p w_p p(y | θ_p),    p(y | φ) = Σ_{p: φ_p = φ} w_p p(y | θ_p) / w_φ

with the sum over y an enumeration or a quadrature. Columns of weights are worked through together: the belief's own,
and those from which the error is read (every second point of a grid; sixteenths of a cloud of particles). After the one
large product everything is small, and in numpy, whose small operations cost a fraction of torch's.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor

from bensemble_core.design.belief.belief import Belief, PointBelief
from bensemble_core.design.belief.convergence import remaining
from bensemble_core.design.belief.gaussian import GaussianBelief, gaussian_eig
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.nuisances import MEMBERS, aligned, leftover
from bensemble_core.design.belief.points import N_PARTS, Array, Points
from bensemble_core.design.information.bounds import Bounds, bounds
from bensemble_core.design.information.coarseness import NOTE, Flags, nowhere, too_coarse
from bensemble_core.design.information.expected_utility import average, beyond, rings
from bensemble_core.design.information.nodes import N_PANELS, Placement
from bensemble_core.design.information.shelf import blocks, method_of, passed
from bensemble_core.design.information.tables import Layout, Method, Stream, Table
from bensemble_core.design.spec.model import Model

ROUNDING = 1e-14
TINY = 1e-300
COARSE = 0.1  # error of a grid, in nats
MISSED = 1e-6  # of a quadrature, in nats, beyond which its nodes are placed anew


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """EIG of one design in nats. `se` is how far it may be off: a standard error where particles or samples are used,
    an estimate of the error of grid and quadrature elsewhere, 0 in closed form. It is None where the grid is too coarse
    for how precise the outcome is: `method` is then "coarse_grid", and `note` says so.

    `lower` and `upper` are bounds in expectation, where it was bounded by sampling. `utility` is E[U] where the spec
    states one. `cost` is the design's.
    """

    eig: float
    se: float | None
    method: Method
    cost: float = 1.0
    utility: float | None = None
    lower: float | None = None
    upper: float | None = None
    note: str | None = None

    @property
    def score(self) -> float:
        """What is maximised: utility or else EIG, for its cost."""
        return (self.eig if self.utility is None else self.utility) / self.cost


class Told(NamedTuple):
    """How sure an estimate is, in the words of `Estimate`."""

    se: float | None
    method: Method
    note: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimates of many designs as arrays [J]. Those of a grid that is `too_coarse` have an `se` to work with, which is
    not told."""

    eig: Array
    se: Array
    method: Method
    too_coarse: Flags
    utility: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    by_cells: Flags | None = None  # where the outcome is too precise for the grid, and cells were taken instead

    @property
    def worth(self) -> Array:
        """What `se` is the error of: utility, or else EIG."""
        return self.eig if self.utility is None else self.utility

    def with_some(self, places: npt.NDArray[np.int64], new: "Estimates") -> "Estimates":
        """Those at some places [n] replaced."""

        def put(name: str) -> Any:
            values, given = getattr(self, name), getattr(new, name)
            if values is None or given is None:
                return values
            made = values.copy()
            made[places] = given
            return made

        return replace(self, **{name: put(name) for name in ("eig", "se", "too_coarse", "utility", "by_cells")})

    def some(self, kept: Flags) -> "Estimates":
        """Those of some of the designs, by mask."""
        found = {name: getattr(self, name) for name in self.__annotations__ if name != "method"}
        made: dict[str, Any] = {name: None if x is None else x[kept] for name, x in found.items()}
        return Estimates(method=self.method, **made)

    def told(self, place: int) -> Told:
        """Error, method and note of one design, as they are stated."""
        if self.too_coarse[place]:
            return Told(se=None, method="coarse_grid", note=NOTE)
        is_by_cells = self.by_cells is not None and bool(self.by_cells[place])
        return Told(se=float(self.se[place]), method="cells" if is_by_cells else self.method, note=None)

    def listed(self, costs: Tensor) -> list[Estimate]:
        def column(x: Array | None) -> Sequence[float | None]:
            return [None] * len(self.eig) if x is None else x.tolist()

        return [
            Estimate(eig=e, cost=c, utility=u, lower=low, upper=high, **self.told(place)._asdict())
            for place, (e, c, u, low, high) in enumerate(
                zip(
                    self.eig.tolist(),
                    costs.tolist(),
                    column(self.utility),
                    column(self.lower),
                    column(self.upper),
                    strict=True,
                )
            )
        ]


def estimate(model: Model, belief: Belief, rows: Tensor, memory: Memory, *, seed: int = 0) -> Estimates:
    """EIG of each design [J, D] under a belief, by the best way there is."""
    if isinstance(belief, GaussianBelief):
        eig = gaussian_eig(model, belief, rows).numpy()
        return Estimates(eig=eig, se=np.zeros_like(eig), method="linear_gaussian", too_coarse=nowhere(rows))
    assert isinstance(belief, PointBelief)
    method = method_of(model, belief.points, rows, memory)
    if method == "bounds":
        return bounded(bounds(model, belief, rows, seed=seed))
    is_drawn = belief.method == "particles"
    columns = None if is_drawn else weight_columns(belief)
    n_columns = 1 + N_PARTS if columns is None else columns.shape[1]
    has_rims = model.utility is not None and belief.points.strides is not None
    if has_rims and columns is not None:
        columns = torch.cat([columns, belief.weights[:, None] * torch.from_numpy(rings(belief.points))], 1)
    has_cells = is_drawn and belief.points.groups is not None and not belief.points.is_grouped
    found = resolved(model, belief, rows, columns, memory, is_joint=has_cells)
    by_column = found.eig
    utility = found.utility if model.utility is not None else None
    if belief.method == "particles":
        eig, se = _from_particles(model, belief, rows, by_column)
        if utility is not None:
            # of a heavy tail the part with the largest contribution stands for others that no particle has
            without = utility[:, 1:]
            se = jackknife(utility)[1] + np.abs(without - without.mean(1, keepdims=True)).max(1)
    else:
        eig, se = by_column[:, 0], grid_error((by_column if utility is None else utility)[:, :n_columns])
        if has_rims and utility is not None:  # it may bend in θ: the error need not be the square of the last change
            se = np.maximum(se, np.abs(utility[:, 0] - utility[:, 1])) + beyond(*utility[:, n_columns:].T)
    return Estimates(
        eig=np.maximum(eig, 0),
        se=se + overlooked(found),
        method=method,
        too_coarse=too_coarse(model, belief, rows),
        utility=None if utility is None else utility[:, 0],
    )


def bounded(found: Bounds) -> Estimates:
    return Estimates(
        eig=found.middle.numpy(),
        se=(found.se if found.utility_se is None else found.utility_se).numpy(),
        method="bounds",
        too_coarse=nowhere(found.lower),
        lower=found.lower.numpy(),
        upper=found.upper.numpy(),
        utility=None if found.utility is None else found.utility.numpy(),
    )


def joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gains:
    eig: Array  # [J, c]
    missing: Array  # [J] what the nodes over y leave out and rounding adds, in nats
    blurred: Array  # [J] what nodes of the nuisances may be off by, in nats
    utility: Array  # [J, c], empty without a utility
    utility_error: Array  # [J] of integrals over y; empty where it is summed
    is_integrated: npt.NDArray[np.bool_]  # [J] whether the sum over y is a quadrature

    def improved(self, places: npt.NDArray[np.int64], other: "Gains") -> "Gains":
        """The same with what others miss less of at some of the designs, by number."""
        is_better = other.missing < self.missing[places]
        made = {}
        for name in self.__annotations__:
            values = getattr(self, name).copy()
            if len(getattr(other, name)):
                values[places[is_better]] = getattr(other, name)[is_better]
            made[name] = values
        return Gains(**made)


def overlooked(found: Gains) -> Array:
    """What the nodes over y may have passed by: [J]."""
    return found.utility_error if len(found.utility_error) else found.missing + found.blurred


def resolved(
    model: Model,
    belief: PointBelief,
    rows: Tensor,
    columns: Tensor | None,
    memory: Memory,
    *,
    is_joint: bool = False,
) -> Gains:
    """Those of designs [J, D] under each column of weights [P, c], all integrals over y resolved; without columns from
    all draws and all but a sixteenth of them.

    Nodes lie where the points' outcomes do. Where the belief holds but a few of the points, as with several narrow
    peaks far apart, hardly any lie where something can come out: designs at which that shows are looked at again with
    nodes placed by the belief, and then with more of them. Not where the grid itself is too coarse: the outcomes of
    single points then stand apart, and only a finer one helps.
    """

    def look(tables: Iterable[Table | Stream]) -> Gains:
        if columns is None:
            parts = [gains_by_part(table, belief, is_joint=is_joint) for table in tables]
        else:
            parts = [gains(table, columns, belief.points, is_joint=is_joint) for table in tables]
        made: dict[str, Any] = {name: joined([getattr(part, name) for part in parts]) for name in Gains.__annotations__}
        return Gains(**made)

    if belief.method == "grid" and belief.points.strides is None:  # fewer points: rough however the integral is
        return look(passed(model, belief.points, rows, Placement(log_mass=belief.weights.log())))
    found = look(blocks(model, belief.points, rows, memory))
    plain = replace(model, utility=None)  # which has nodes of its own
    n_own = 1 if belief.points.strides is None else 3
    for n_panels in (N_PANELS, 4 * N_PANELS):
        is_coarse = grid_error(found.eig[:, :n_own]) > COARSE
        some = (found.is_integrated & (found.missing > MISSED) & ~is_coarse).nonzero()[0]
        if not len(some):
            break
        by = Placement(log_mass=belief.weights.log(), n_panels=n_panels)
        again = look(passed(plain, belief.points, rows[torch.from_numpy(some)], by))
        found = found.improved(some, again)
    return found


def weight_columns(belief: PointBelief) -> Tensor:
    """The belief's weights, then those from which its error is read: [P, c]."""
    w = belief.mass
    if belief.points.strides is not None:
        columns = np.zeros((len(w), 3))
        columns[:, 0] = w
        for column, places in enumerate(belief.points.strides, 1):
            some = w[places]
            columns[places, column] = some / (some.sum() or 1.0)
        return torch.from_numpy(columns)
    if belief.method == "particles":
        left = w[:, None] * (_parts(len(w))[:, None] != np.arange(N_PARTS))
        return torch.from_numpy(np.concatenate([w[:, None], left / left.sum(0)], 1))
    return belief.weights[:, None]


def gains(table: Table | Stream, columns: Tensor, points: Points, *, is_joint: bool = False) -> Gains:
    """EIG of a block of designs under each column of weights [P, c]: one matrix product. Where it `is_joint`, all
    parameters count as targets."""
    product: Array = table.times(columns).numpy()  # [(Y + …) J, c]
    has_groups = points.groups is not None and not is_joint
    given = _grouped(table, columns, points) if has_groups else table.entropies(product)
    return _gains(table, product, given)


def gains_by_part(table: Table | Stream, belief: PointBelief, *, is_joint: bool) -> Gains:
    """The same from all draws, and from all but a sixteenth of them: columns [1 + 16]."""
    mass = _without(belief.mass.reshape(N_PARTS, -1).sum(1))  # [1 + 16]
    product = _without(table.by_part(belief.weights).numpy()) / mass
    if belief.points.groups is None or is_joint:
        return _gains(table, product, table.entropies(product))
    assert belief.points.half is not None
    weights = torch.stack([belief.weights, belief.weights * belief.points.half], 1)
    sums = table.by_group(weights).numpy()  # [(Y + …) J, G, 2]
    total = weights.reshape(belief.points.n_groups, -1, 2).sum(1).numpy()  # [G, 2]
    whole, half = (
        _entropy(_marginals(table, sums[..., i] / np.maximum(total[:, i], TINY)), table) * total[:, 0] for i in (0, 1)
    )  # [J, G]
    change = np.abs((whole - half).sum(1))  # by every second node of the nuisances
    given = _without(whole.reshape(len(whole), N_PARTS, -1).sum(2)) / mass
    found = _gains(table, product, given)
    return replace(found, blurred=np.minimum(change, 10 * change**2))


def _gains(table: Table | Stream, product: Array, given: Array) -> Gains:
    """From what the table gave for columns of weights, and E_φ H[y | φ] by column: [(Y + …) J, c], [J, c]."""
    marginal = _marginals(table, product)
    missing = np.full(table.n_designs, ROUNDING)
    if not table.is_complete:
        mass = marginal[..., 0] if table.node_weights is None else table.node_weights.numpy() * marginal[..., 0]
        short = np.abs(1 - mass.sum(0))
        lacks = 1 + np.abs(np.log(np.maximum(short, 1e-300)))
        if table.node_weights is not None:  # what is not seen can tell as much as fits into the range of the outcomes
            lacks = lacks + np.maximum(np.log(table.node_weights.numpy().sum(0)) - given[:, 0], 0)
        missing = missing + short * lacks
    stated = table.utilities(product)
    shape = (table.n_utilities * table.n_designs, product.shape[1])
    utility, error = average(stated) if table.n_utilities > 1 else (stated.reshape(shape), np.empty(0))
    return Gains(
        eig=_entropy(marginal, table) - given,
        missing=missing,
        blurred=np.zeros(table.n_designs),
        utility=utility,
        utility_error=error,
        is_integrated=np.full(table.n_designs, table.node_weights is not None),
    )


def _marginals(table: Layout, product: Array) -> Array:
    """p(y) from what the table gave for columns of weights that sum to 1: [Y, J, c]."""
    found = table.outcomes(product)
    if not table.is_closed:
        return found
    whole = np.empty((table.n_outcomes, *found.shape[1:]))
    whole[:-1] = found
    np.maximum(1 - (found[0] if len(found) == 1 else found.sum(0)), 0, out=whole[-1])
    return whole


def _entropy(p: Array, table: Layout) -> Array:
    """−Σ_y ω p log p over the first axis."""
    terms: Array = special.entr(np.maximum(p, 0))
    if table.node_weights is not None:
        terms *= table.node_weights.numpy().reshape(*table.node_weights.shape, *(1,) * (p.ndim - 2))
    return np.asarray(terms.sum(0))


def _grouped(table: Table | Stream, columns: Tensor, points: Points) -> Array:
    """E_φ H[p(y | φ)]: nuisances are averaged within each group of equal targets: [J, c]."""
    found = [
        _entropy(_marginals(table, given.numpy()), table) @ total.numpy()
        for given, total in _within(table, columns, points)
    ]
    return np.stack(found, 1)


def _within(table: Table | Stream, columns: Tensor, points: Points) -> Iterator[tuple[Tensor, Tensor]]:
    """For each column of weights the table averaged within groups of equal targets, [(Y + …) J, G'], and the weight of
    each group [G'], those that have any."""
    assert points.groups is not None
    sums = table.by_group(columns)
    for i, weights in enumerate(columns.unbind(1)):
        total = torch.from_numpy(np.bincount(points.groups.numpy(), weights.numpy(), points.n_groups))
        inside = total > 0
        yield sums[:, inside, i] / total[inside], total[inside]


def grid_error(by_column: Array) -> Array:
    """How far the first column may be off on a grid: [J, c] -> [J]."""
    return np.zeros(len(by_column)) if by_column.shape[1] == 1 else remaining(*by_column.T)


def _parts(n: int) -> npt.NDArray[np.int64]:
    """Blocks of neighbours: each is spread over the prior, where every sixteenth Sobol point is not; and copies of one
    particle stay together."""
    return np.arange(n) * N_PARTS // n


def jackknife(by_column: Array) -> tuple[Array, Array]:
    """Value and standard error from all particles and from all but a sixteenth: [J, 1 + 16] -> [J] twice.

    Entropies of averages over n particles are off by c / n, which the difference tells (Quenouille 1956); less evenly
    so for Sobol points than for independent ones, hence a third of the correction counts as an error.
    """
    whole, without = by_column[:, 0], by_column[:, 1:]
    mean = without.mean(1)
    spread = np.sqrt((N_PARTS - 1) / N_PARTS * ((without - mean[:, None]) ** 2).sum(1))
    correction = (N_PARTS - 1) * (whole - mean)
    return whole + correction, np.hypot(spread, correction / 3)


def _from_particles(model: Model, belief: PointBelief, rows: Tensor, by_column: Array) -> tuple[Array, Array]:
    """EIG and its standard error, from what all particles tell of all parameters and all but a sixteenth: [J] twice.

    Less what they tell of nuisances, with small cells, middling and large ones. Small ones are noisy and large ones
    blurred: taken is what shows the smaller error, noise and what is left of the change from larger cells together.
    """
    if belief.points.groups is None or belief.points.is_grouped:
        return jackknife(by_column)
    (small, noise), (middling, less_noise), (large, _) = (
        jackknife(by_column - _of_nuisances(model, belief, rows, n_members=n)) for n in MEMBERS
    )
    share = leftover(model.prior)
    change, rough_change = share * (small - middling), share * (middling - large)
    error = noise + np.abs(change)
    # what the small cells show beyond their noise is an error of the others, by whatever luck the two others agree
    other = less_noise + np.maximum(np.abs(rough_change), np.abs(middling - small) - 3 * noise)
    is_smooth = other < error
    return np.where(is_smooth, middling + rough_change, small + change), np.where(is_smooth, other, error)


def _of_nuisances(model: Model, belief: PointBelief, rows: Tensor, *, n_members: float) -> Array:
    """I(y; η | φ) from particles moved together, from all and from all but a sixteenth: [J, 1 + 16].

    I(y; φ) = I(y; θ) − I(y; η | φ): entropies at single φ vary much more from cell to cell than what η adds there.
    """
    points = aligned(model.prior, belief, n_members=n_members * math.sqrt(belief.points.n))
    assert points.groups is not None
    n_cells = points.n_groups
    numbers = points.groups * N_PARTS + torch.from_numpy(_parts(points.n))
    points = replace(points, groups=numbers, n_groups=n_cells * N_PARTS)
    shares = np.bincount(numbers.numpy(), belief.mass, points.n_groups).astype(np.float64)
    weight = _without(shares.reshape(n_cells, N_PARTS))  # [G, 1 + 16]
    found = []
    for table in passed(model, points, rows):
        sums = _without(table.by_group(belief.weights[:, None]).numpy().reshape(-1, n_cells, N_PARTS))
        averages = np.divide(sums, weight, out=np.zeros_like(sums), where=weight > 0)
        averages = averages.reshape(len(sums), -1)
        gain = _entropy(_marginals(table, averages), table) - table.entropies(averages)
        found.append((gain.reshape(-1, *weight.shape) * weight).sum(1) / weight.sum(0))
    return joined(found)


def _without(parts: Array) -> Array:
    """The sum of all parts, and the sum without each: [..., 16] -> [..., 1 + 16]."""
    whole = parts.sum(-1, keepdims=True)
    return np.concatenate([whole, whole - parts], -1)
