"""E[U(θ, ξ, y) | θ, ξ] for a continuous outcome y, of a utility that may jump or bend.

Nodes that serve all points of a grid would do for something smooth. A utility such as where(y > 1, 1, 0) has a jump,
and max(y − m, 0) a bend in another place at every point: each design and point has panels of its own, between quantiles
of its y. They are cut where the utility switches from one branch to the other: its comparisons, and what abs, min, max
and clip decide by, change sign there. What a panel gives is compared with what its halves give, and where they differ
the halves are panels; which sees to what is smooth but sharp, and to what the signs do not tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bensemble_core.design.deadline import check
from bensemble_core.design.spec.expressions import Run
from bensemble_core.design.spec.families import Arguments
from bensemble_core.design.spec.model import Model

SCORES = (-12.0, -9.0, -6.5, -4.5, -3.0, -1.5, 0.0, 1.5, 3.0, 4.5, 6.5, 9.0, 12.0)
N_BETWEEN = 4  # looks at a sign in each panel
N_BISECTIONS = 44
TOLERANCE = 1e-9  # of a panel, beside E|U|
NEGLIGIBLE = 1e-13  # share of a panel in E|U|
MAX_DEPTH = 40
MAX_PANELS = 64  # for each design and point, on average, that are halved at a time
AT_ONCE = 200_000  # numbers worked on at once
TINY = 1e-300


def _rule(half: Sequence[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    """Nodes from 0 on and weights, of a rule that is symmetric on −1 to 1 -> all of them, on 0 to 1."""
    whole = [(-x, w) for x, w in reversed(half) if x > 0] + list(half)
    x, w = torch.tensor(whole, dtype=torch.float64).unbind(1)
    return 0.5 * (x + 1), 0.5 * w


# Both are exact for polynomials of degree 11. Lobatto's has nodes at the ends, so that no jump is overlooked between
# the last node and the end; a little inside, as the place of a jump itself belongs to either side.
LEGENDRE = _rule(
    [
        (0.2386191860831969, 0.467913934572691),
        (0.6612093864662645, 0.3607615730481386),
        (0.9324695142031521, 0.1713244923791704),
    ]
)
LOBATTO = _rule(
    [
        (0.0, 256 / 525),
        (0.4688487934707142, 0.4317453812098626),
        (0.8302238962785669, 0.2768260473615659),
        (1 - 1e-10, 1 / 21),
    ]
)


def integrates(model: Model, integrated: int | None) -> bool:
    """Whether the utility is integrated over here: with a continuous outcome among others that are enumerated."""
    return model.utility is not None and integrated is not None and not model.outcomes[integrated].family.is_discrete


def expected(
    model: Model, theta: Mapping[str, Tensor], rows: Tensor, arguments: Sequence[Arguments], integrated: int
) -> tuple[Tensor, Tensor]:
    """At designs [J, D] and points θ [P]: [J, P], and about how far it is off [J, P]."""
    with torch.no_grad():
        shape = (len(rows), next(iter(theta.values())).shape[0])
        integrand = _integrand(model, theta, rows, arguments, integrated, shape)
        if model.outcomes[integrated].name not in integrand.utility.names:
            pairs = torch.arange(shape[0] * shape[1])
            value = integrand.averaged(pairs, torch.zeros(len(pairs), 1, dtype=torch.float64))[:, 0]  # at any y
            return value.reshape(shape), torch.zeros(shape, dtype=torch.float64)
        value, error = _integral(integrand, shape[0] * shape[1])
        return value.reshape(shape), error.reshape(shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Integrand:
    """p(s) U(s) at pairs of a design and a point, by number; c = middle + scale · sinh(s), so that tails are short."""

    utility: Any
    name: str  # of y
    family: Any
    arguments: Arguments  # [N] each
    values: Mapping[str, Tensor]  # [N] what the utility names
    others: Mapping[str, Tensor]  # [Q] outcomes that are enumerated
    probs: Tensor | None  # [Q, N] of theirs
    middle: Tensor  # [N]
    scale: Tensor  # [N]

    def outcome(self, pairs: Tensor, s: Tensor) -> Tensor:
        return self.family.outcome(self.middle[pairs, None] + self.scale[pairs, None] * s.sinh())  # type: ignore[no-any-return]

    def named(self, pairs: Tensor, y: Tensor) -> dict[str, Tensor]:
        """What an expression may name, at pairs [n] and outcomes y [n, m]."""
        return {**{name: value[pairs, None] for name, value in self.values.items()}, self.name: y}

    def averaged(self, pairs: Tensor, y: Tensor) -> Tensor:
        """U at y [n, m], over the other outcomes: [n, m]."""
        named = self.named(pairs, y)
        if self.probs is None:
            return self.utility(named).expand(y.shape)  # type: ignore[no-any-return]
        named |= {name: other[:, None, None] for name, other in self.others.items()}
        worth = self.utility(named).expand(len(self.probs), *y.shape)
        probs = self.probs[:, pairs, None]
        return torch.where(probs > 0, probs * worth, 0.0).sum(0)

    def over(self, pairs: Tensor, low: Tensor, high: Tensor, rule: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """∫ p U and ∫ p |U| from low to high: [n] twice."""
        found = []
        at, weights = rule
        stride = max(1, AT_ONCE // (len(at) * (1 if self.probs is None else len(self.probs))))
        for some, a, b in zip(pairs.split(stride), low.split(stride), high.split(stride), strict=True):  # type: ignore[no-untyped-call]
            check()
            width = (b - a)[:, None]
            s, share = a[:, None] + width * at, width * weights
            up = 0.5 * s.exp()
            down = 0.25 / up  # sinh s = up − down, cosh s = up + down
            c = torch.addcmul(self.middle[some, None], self.scale[some, None], up - down)
            arguments = {name: a[some, None] for name, a in self.arguments.items()}
            p = self.family.log_density(arguments, c).exp_()
            worth = self.averaged(some, self.family.outcome(c))
            terms = torch.where(p > 0, p * worth, 0.0) * (share * self.scale[some, None] * (up + down))
            found.append(torch.stack([terms.sum(1), terms.abs().sum(1)]))
        value, size = torch.cat(found, 1)
        return value, size

    def switches(self) -> list[Run]:
        """Those that y can turn."""
        return [switch.run for switch in self.utility.switches if self.name in switch.names]


def _integrand(
    model: Model,
    theta: Mapping[str, Tensor],
    rows: Tensor,
    arguments: Sequence[Arguments],
    integrated: int,
    shape: tuple[int, int],
) -> _Integrand:
    assert model.utility is not None
    variable, own = model.outcomes[integrated], arguments[integrated]
    values = model.values(theta, rows[:, None, :])
    flat = {name: values[name].expand(shape).reshape(-1) for name in model.utility.names if name in values}
    near, middle, far = (variable.family.place(own, score) for score in (-1.0, 0.0, 1.0))
    named = [i for i, v in enumerate(model.outcomes) if i != integrated and v.name in model.utility.names]
    others, probs = _enumerated(model, arguments, named, shape)
    return _Integrand(
        utility=model.utility,
        name=variable.name,
        family=variable.family,
        arguments={name: a.expand(shape).reshape(-1) for name, a in own.items()},
        values=flat,
        others=others,
        probs=probs,
        middle=middle.expand(shape).reshape(-1),
        scale=(0.5 * (far - near)).clamp(min=TINY).expand(shape).reshape(-1),
    )


def _enumerated(
    model: Model, arguments: Sequence[Arguments], which: Sequence[int], shape: tuple[int, int]
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Outcomes of these variables in all combinations, by name [Q], and their probabilities [Q, J P]."""
    if not which:
        return {}, None
    counts = [model.outcomes[i].family.count(arguments[i]) for i in which]
    index = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in counts)).reshape(-1, len(which))
    log_p = torch.zeros((), dtype=torch.float64)
    for column, i in enumerate(which):
        log_p = log_p + model.outcomes[i].family.log_prob(arguments[i], index[:, column, None, None])
    probs = log_p.exp().expand(len(index), *shape).reshape(len(index), -1)
    return {model.outcomes[i].name: index[:, column] for column, i in enumerate(which)}, probs


def _integral(integrand: _Integrand, n_pairs: int) -> tuple[Tensor, Tensor]:
    """∫ p U at each pair, and about how far it is off: [N] twice."""
    edges = _edges(integrand, n_pairs)  # [N, E]
    pairs, low, high = _cut(integrand, edges)
    value, size = integrand.over(pairs, low, high, LOBATTO)
    scale = torch.zeros(n_pairs, dtype=torch.float64).index_add(0, pairs, size)
    error = _beyond(edges, pairs, low, high, value)
    counts = size > NEGLIGIBLE * scale[pairs]
    total = torch.zeros_like(scale).index_add(0, pairs[~counts], value[~counts])
    pairs, low, high, value = pairs[counts], low[counts], high[counts], value[counts]
    for depth in range(MAX_DEPTH + 1):
        middle = 0.5 * (low + high)
        left, _ = integrand.over(pairs, low, middle, LEGENDRE)
        right, _ = integrand.over(pairs, middle, high, LEGENDRE)
        change, beside = (left + right - value).abs(), scale[pairs].clamp(min=TINY)
        again = change > TOLERANCE * beside
        if depth == MAX_DEPTH or int(again.sum()) > MAX_PANELS * n_pairs:
            again = torch.zeros_like(again)
        done = ~again
        total.index_add_(0, pairs[done], (left + right)[done])
        # of something smooth the halves are off by far less than they differ from the whole, as in QUADPACK
        left_over = torch.minimum(change, (200 * change / beside).pow(1.5) * beside) if depth == 0 else change
        error.index_add_(0, pairs[done], torch.where(left_over > 1e-14 * beside, left_over, 0.0)[done])
        if not bool(again.any()):
            break
        pairs = pairs[again].repeat(2)
        low, high = torch.cat([low[again], middle[again]]), torch.cat([middle[again], high[again]])
        value, _ = integrand.over(pairs, low, high, LOBATTO)
    return total, error


def _edges(integrand: _Integrand, n_pairs: int) -> Tensor:
    """Quantiles of y at each pair, in s: [N, E]."""
    places = [integrand.family.place(integrand.arguments, score) for score in SCORES]
    c = torch.stack([place.expand(n_pairs) for place in places], 1)
    return torch.asinh((c - integrand.middle[:, None]) / integrand.scale[:, None]).cummax(1).values


def _cut(integrand: _Integrand, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Panels between edges [N, E], cut where a switch changes sign: whose they are, low and high ends: [M] each.

    What is inside of something else comes first: where abs(y − a) bends, abs(y − a) < b is looked at, too.
    """
    switches = [(run, combination) for run in integrand.switches() for combination in _combinations(integrand)]
    if switches:
        at = torch.arange(N_BETWEEN, dtype=torch.float64) / N_BETWEEN
        looks = torch.cat([(edges[:, :-1, None] + edges.diff(dim=1)[..., None] * at).flatten(1), edges[:, -1:]], 1)
        for left, (run, combination) in enumerate(switches, 1 - len(switches)):
            pairs, roots = _roots(integrand, run, combination, looks)
            edges = _merged(edges, pairs, roots)
            looks = _merged(looks, pairs, roots) if left else looks
    low, high = edges[:, :-1], edges[:, 1:]
    pairs, column = (high > low).nonzero().unbind(1)
    return pairs, low[pairs, column], high[pairs, column]


def _merged(edges: Tensor, pairs: Tensor, roots: Tensor) -> Tensor:
    """Ascending edges [N, E] with further ones of some pairs [n], which ascend: [N, E + the most for any]."""
    if not len(pairs):
        return edges
    counts = torch.bincount(pairs, minlength=len(edges))
    more = edges[:, -1:].repeat(1, int(counts.max()))
    more[pairs, torch.arange(len(pairs)) - (counts.cumsum(0) - counts)[pairs]] = roots
    return torch.cat([edges, more], 1).sort(1).values


def _roots(integrand: _Integrand, run: Run, combination: dict[str, Tensor], looks: Tensor) -> tuple[Tensor, Tensor]:
    """Where a switch changes sign between neighbours of the looks [N, L] at each pair: pairs [n] and s [n]."""

    def is_up(pairs: Tensor, s: Tensor) -> Tensor:
        return run(integrand.named(pairs, integrand.outcome(pairs, s)) | combination).expand(s.shape) > 0

    up = is_up(torch.arange(len(looks)), looks)
    pairs, column = (up[:, 1:] != up[:, :-1]).nonzero().unbind(1)
    low, high, starts_up = looks[pairs, column, None], looks[pairs, column + 1, None], up[pairs, column, None]
    for _ in range(N_BISECTIONS if len(pairs) else 0):
        middle = 0.5 * (low + high)
        is_before = is_up(pairs, middle) == starts_up
        low, high = torch.where(is_before, middle, low), torch.where(is_before, high, middle)
    return pairs, (0.5 * (low + high))[:, 0]


def _combinations(integrand: _Integrand) -> list[dict[str, Tensor]]:
    """The other outcomes, one combination after the other, as far as they are few."""
    if integrand.probs is None:
        return [{}]
    n = len(integrand.probs)
    return [{name: y[i] for name, y in integrand.others.items()} for i in range(n if n <= len(SCORES) else 0)]


def _beyond(edges: Tensor, pairs: Tensor, low: Tensor, high: Tensor, value: Tensor) -> Tensor:
    """What may lie outside of all panels, which add ever less towards either end by a factor that does not grow: [N]"""
    lost = torch.zeros(len(edges), dtype=torch.float64)
    for is_last, is_before in (
        (high > edges[pairs, -2], (high <= edges[pairs, -2]) & (high > edges[pairs, -3])),
        (low < edges[pairs, 1], (low >= edges[pairs, 1]) & (low < edges[pairs, 2])),
    ):
        last, before = (
            torch.zeros_like(lost).index_add(0, pairs[some], value[some]).abs() for some in (is_last, is_before)
        )
        ratio = (last / before.clamp(min=TINY)).clamp(max=0.9)
        lost += last * ratio / (1 - ratio)
    return lost
