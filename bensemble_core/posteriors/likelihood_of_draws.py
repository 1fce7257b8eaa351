"""The log-likelihood of many draws of some weights, the others held: a trunk is computed once for all of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core.ensemble.members import gather, plan
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel
from bensemble_core.models.transforms import join
from bensemble_core.posteriors.head import find_head
from bensemble_core.types import Data, Problem, Progress, Tensors

_ENTRIES = 1 << 20  # numbers in the outputs of a step
_AT_ONCE = 50  # draws of a whole network in a step


def quiet(done: int, total: int, message: str) -> None:
    """The progress that nobody reads."""


def log_likelihoods(
    problem: Problem, centre: Tensors, drawn: Tensors, data: Data, progress: Progress = quiet
) -> Tensor:
    """Σ_n log p(y_n | x_n, θ_s) for every draw, in float64: named [S, ...] -> [S].

    Everything that is not drawn is as at the centre.
    """
    n_draws = len(next(iter(drawn.values())))
    total = torch.zeros(n_draws, dtype=torch.float64, device=data.x.device)
    if not data.n_rows:
        return total
    likelihood = LikelihoodOfDraws.of(problem, centre, drawn, data, progress)
    at_once, rows = likelihood.outputs.draws, likelihood.parts()
    step, steps = 0, -(-n_draws // at_once) * len(rows)
    with torch.no_grad():
        for first in range(0, n_draws, at_once):
            chosen = {k: v[first : first + at_once] for k, v in drawn.items()}
            for part in rows:
                total[first : first + at_once] += likelihood(chosen, part)
                step += 1
                progress(step, steps, f"weighed {min(n_draws, first + at_once)} of {n_draws} draws")
    return total


@dataclass(frozen=True, kw_only=True, eq=False)
class LikelihoodOfDraws:
    """log p(y | x, θ) of draws of some weights, summed over a part of the rows at a time; it can be differentiated."""

    problem: Problem
    data: Data
    outputs: "_Head | _Networks"
    extra: Tensors

    @classmethod
    def of(
        cls, problem: Problem, centre: Tensors, drawn: Tensors, data: Data, progress: Progress = quiet
    ) -> "LikelihoodOfDraws":
        """`drawn` says which weights these are, by draws [S, ...] of which the first is not at the centre."""
        outputs = _Head.of(problem, centre, drawn, data.x, progress) or _Networks.of(problem, centre, drawn, data.x)
        extra = {k: v.double() for k, v in split_extra(centre)[1].items()}
        return cls(problem=problem, data=data, outputs=outputs, extra=extra)

    def parts(self) -> list[slice]:
        """Of the rows, each to be taken at a time."""
        return [slice(i, i + self.outputs.rows) for i in range(0, self.data.n_rows, self.outputs.rows)]

    def __call__(self, drawn: Tensors, rows: slice) -> Tensor:
        """Named [m, ...] -> [m], in float64."""
        found = self.outputs(drawn, rows).double()  # [m, n, O]
        y = self.data.y[rows]
        y = y.double() if y.is_floating_point() else y
        return self.problem.likelihood.log_prob(found, y.expand(len(found), *y.shape), self.extra).sum(1)

    def slope(self, theta: Tensors) -> tuple[float, dict[str, Tensor]]:
        """The log-likelihood of all rows at one place, named [1, ...], and its gradient there."""
        total, slopes = 0.0, {k: torch.zeros_like(v) for k, v in theta.items()}
        for rows in self.parts():
            leaves = {k: v.detach().requires_grad_() for k, v in theta.items()}
            with torch.enable_grad():
                value = self(leaves, rows).sum()
            for name, slope in zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True):
                slopes[name] += slope
            total += float(value.detach())
        return total, slopes


@dataclass(frozen=True, kw_only=True, eq=False)
class _Head:
    """The last layer of all draws as one product, in float64: what comes before it is computed once."""

    features: Tensor  # [N, F], what the layer is given
    weight: str
    bias: str
    fixed: Tensors  # of the two, what is not drawn: [1, ...]
    draws: int
    rows: int

    @classmethod
    def of(
        cls, problem: Problem, centre: Tensors, drawn: Tensors, x: Tensor, progress: Progress = quiet
    ) -> "_Head | None":
        """None where other layers differ between draws too, or the layer's outputs are not the network's."""
        try:
            head = find_head(problem)
        except InvalidModel:
            return None
        names = {join(head, "weight"), join(head, "bias")}
        network, _ = split_extra(centre)
        if not set(drawn) <= names or join(head, "weight") not in network:  # a weight that is computed from others
            return None
        members = gather(problem, {k: v[None] for k, v in network.items()}, {}, mode="loop")
        width = max(network[join(head, "weight")].shape)
        rows = max(1, min(1024, _ENTRIES // width))
        with torch.no_grad():
            parts: list[Tensor] = []
            for part in torch.split(x, rows):
                parts.append(members.inputs_of(head, network, {}, part.clone()))
                done = min(len(x), rows * len(parts))
                progress(done, len(x), f"features of {done} of {len(x)} rows")
            if any(part.ndim != 2 for part in parts):
                return None
            made = cls(
                features=torch.cat(parts),
                weight=join(head, "weight"),
                bias=join(head, "bias"),
                fixed={k: v[None].double() for k, v in network.items() if k in names and k not in drawn},
                draws=max(1, _ENTRIES // (min(rows, len(x)) * width)),
                rows=rows,
            )
            # elsewhere than at the centre: there a weight that is tied to the trunk's would not show
            one = {k: v[:1].to(problem.dtype) for k, v in drawn.items()}
            few = slice(0, 8)
            expected = members({**{k: v[None] for k, v in network.items()}, **one}, {}, x[few])
            found = made(one, few)
        close = 1e-4 * max(1.0, float(expected.abs().max()))
        same = found.shape == expected.shape and float((found - expected).abs().max()) <= close
        return made if same else None

    def __call__(self, drawn: Tensors, rows: slice) -> Tensor:
        """[m, n, O]."""
        own = {**self.fixed, **{k: v.double() for k, v in drawn.items()}}
        weight, bias, features = own[self.weight], own.get(self.bias), self.features[rows].double()
        n_outputs, n_features = weight.shape[1:]
        products = features @ weight.reshape(-1, n_features).mT  # [n, m · O]
        outputs = products.reshape(len(features), -1, n_outputs).transpose(0, 1)
        return outputs if bias is None else outputs + bias[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Networks:
    """Draws of any parameters through the whole network, in its own dtype."""

    run: Callable[[Tensors, Tensor], Tensor]
    x: Tensor
    dtype: torch.dtype
    draws: int
    rows: int

    @classmethod
    def of(cls, problem: Problem, centre: Tensors, drawn: Tensors, x: Tensor) -> "_Networks":
        shared = {k: v for k, v in split_extra(centre)[0].items() if k not in drawn}
        some = {k: v[:_AT_ONCE].to(problem.dtype) for k, v in drawn.items()}
        chosen = plan(problem, some, shared, None)
        members = gather(problem, some, shared, mode=chosen.mode)
        return cls(
            run=lambda own, x: members(own, shared, x), x=x, dtype=problem.dtype, draws=_AT_ONCE, rows=chosen.rows
        )

    def __call__(self, drawn: Tensors, rows: slice) -> Tensor:
        """[m, n, O]."""
        return self.run({k: v.to(self.dtype) for k, v in drawn.items()}, self.x[rows])
