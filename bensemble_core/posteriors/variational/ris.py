"""Mean-field variational inference with hidden units by importance draws."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel
from bensemble_core.models.spec import outline
from bensemble_core.models.transforms import join
from bensemble_core.posteriors.gaussian import LOG_SD, Earlier, Factorised, bayesian_names, normal_prior
from bensemble_core.posteriors.start import check_memory
from bensemble_core.posteriors.variational.elbo import Elbo, Expects
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.posteriors.variational.unit_moments import Nonlinearity, unit_moments
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Forward
from bensemble_core.types import Aim, Data, Problem, Tensors

Layer: TypeAlias = tuple[str, Nonlinearity | None]  # name of a linear layer, and what follows it
_KINDS: dict[type[nn.Module], Nonlinearity] = {nn.ReLU: "relu", nn.Tanh: "tanh"}


@dataclass(frozen=True, kw_only=True)
class RIS(Factorised):
    """The Gaussian of `mfvi`, trained on moments of hidden units by importance draws (after Long et al.).

    The bound is that of mfvi, but no network is drawn in training: a row goes through the layers as means h and
    variances v of units. A linear layer with weights N(μ, σ²) makes of them pre-activations a ~ N(m, s²),

        m = h μᵀ + b,    s² = h² (σ²)ᵀ + v (μ² + σ²)ᵀ + σ_b²,

    and `samples` importance draws of every a estimate mean and variance of f(a), f ReLU or tanh (see unit_moments.py).
    The last layer is treated as in mfvi: outputs are drawn, or for a Gaussian likelihood the expectation is in closed
    form. So on a linear model it is mfvi.

    moments="first" is the form of the slides: variances are dropped between layers (v = 0), and the outputs are the
    mean of `samples` = M plain draws, which has variance s²/M. It is not the default, since the noise that a sampled
    network is to bear is all but gone from training: on a linear model with known noise s it ends at the variance
    1/(Σx²/(M s²) + 1/τ²) of a weight with prior sd τ, as if the rows were M times fewer. On digits (64-50-50-50-10
    units, 1,000 rows, benchmarks/ris.py) a network sampled from it is right on 12 % of rows, and 1,000 of them together
    on 45 % with an NLL of 2.1; with both moments on 87 %, 97 % and .18, of mfvi on 86 %, 96 % and .25.

    The paper is "Reparameterized Importance Sampling for Robust Variational Bayesian Neural Networks"; its slides are
    what was followed. Departures: they draw weights, and find the moments of their proposal by a Taylor expansion; here
    the draws are of pre-activations, which are taken for Gaussian given h and v, and the moments of r* are exact (ReLU)
    or by quadrature (tanh). Their weights γ ≈ 1/|f| are replaced by the ratio of the densities, and the proposal has a
    part of q, without which the variance is infinite.

    That units are independent and pre-activations Gaussian is true of the first hidden layer, whose outputs have the
    right mean and variance, and an approximation beyond it: the loss is no bound. `fitted.bound` is that of q.

    For stacks of linear layers with ReLU or Tanh between them. Members are draws of the weights. Points, `patience` and
    `update` as in mfvi.
    """

    name: Literal["ris"] = "ris"
    samples: int = field(
        default=10, metadata={"ge": 1, "le": 10_000, "description": "importance draws of a hidden unit, for each row"}
    )
    moments: Literal["both", "first"] = field(
        default="both",
        metadata={"description": "what goes from layer to layer: means and variances, or means alone"},
    )
    aims: ClassVar[Aim] = "mean_field"  # of "both"

    def check(self, problem: Problem) -> None:
        normal_prior(problem, self.name)
        bayesian_names(problem, self)
        find_stack(problem)

    def run(self, start: Run, prior: Tensors, earlier: Earlier | None = None) -> Run:
        known = earlier or Earlier()
        rows = min(self.batch_size, start.data.n_rows)
        widest = max(v.shape[1] for k, v in {**start.theta, **start.fixed}.items() if v.ndim == 3 and "/" not in k)
        advice = "take fewer samples, or smaller batches (batch_size)"
        check_memory(self.name, "the draws of a layer's units", self.samples * rows * widest, advice)
        objective = _Moments(
            samples=self.samples,
            prior=prior,
            extra=split_extra(start.fixed)[1],
            pruned=known.pruned,
            belief=known.belief,
            layers=find_stack(start.problem),
            fixed=start.fixed,
            first=self.moments == "first",
        )
        return replace(start, objective=objective, mode="loop")  # which lends the global generator

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """The evidence lower bound of q on all rows, as `mfvi` has it: an estimate from `samples` draws."""
        return MFVI().bound(problem, state, data, samples=samples, rng=rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Moments(Elbo):
    """The bound, with a likelihood from moments that go through the layers."""

    layers: tuple[Layer, ...]
    fixed: Tensors
    first: bool = False

    def log_likelihood(
        self, problem: Problem, forward: Forward, theta: Tensors, x: Tensor, y: Tensor, samples: int, seed: int
    ) -> Tensor:
        """log p(y | x) under draws of the outputs, or its expectation over them: [samples, B], or [1, B]."""
        extra = {**self.extra, **split_extra(theta)[1]}
        mean, variance = self.outputs(theta, x, samples)
        if self.first:
            variance, samples = variance / samples, 1
        if isinstance(problem.likelihood, Expects):
            return problem.likelihood.expected_log_prob(mean[None], variance[None], y[None], extra)
        spread = _root(variance)
        drawn = torch.stack([mean + spread * torch.randn_like(mean) for _ in range(samples)])
        return problem.likelihood.log_prob(drawn, y.expand(samples, *y.shape), extra)

    def outputs(self, theta: Tensors, x: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """Mean and variance of the network's outputs: [B, O] each."""
        mean, variance = x.flatten(1), None
        for name, kind in self.layers:
            mean, variance = self._linear(theta, name, mean, variance)
            if kind is not None:
                mean, second = unit_moments(kind, mean, _root(variance), draws)
                variance = None if self.first else second
        assert variance is not None  # the last layer has no nonlinearity
        return mean, variance

    def _linear(self, theta: Tensors, layer: str, h: Tensor, v: Tensor | None) -> tuple[Tensor, Tensor]:
        weight, spread = self._normal(theta, join(layer, "weight"))
        bias = join(layer, "bias")
        b, b_spread = self._normal(theta, bias) if bias in theta or bias in self.fixed else (None, None)
        variance = linear(h.square(), spread, b_spread)
        if v is not None:
            variance = variance + linear(v, weight.square() + spread)
        return linear(h, weight, b), variance

    def _normal(self, theta: Tensors, name: str) -> tuple[Tensor, Tensor]:
        """Mean and variance of a parameter; a point has variance 0."""
        mean = theta[name][0] if name in theta else self.fixed[name][0]
        variance = (2 * theta[LOG_SD + name][0]).exp() if LOG_SD + name in theta else torch.zeros_like(mean)
        if name in self.pruned:
            mean, variance = (t.masked_fill(self.pruned[name][0], 0.0) for t in (mean, variance))
        return mean, variance


def find_stack(problem: Problem) -> tuple[Layer, ...]:
    """The linear layers of a network in order, each with what follows it; a refusal of any other network."""
    parts = list(_parts(outline(problem.model), ""))
    first = parts[0][1] if parts else None
    if type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1):
        parts = parts[1:]
    found: list[Layer] = []
    for i, (name, part) in enumerate(parts):
        if type(part) not in ((nn.Linear,) if i % 2 == 0 else _KINDS) or _has_hooks(part):
            raise _not_a_stack(f"{type(part).__name__} at {name or 'its top'!r}")
        if isinstance(part, nn.Linear):
            found.append((name, None))
        else:
            found[-1] = (found[-1][0], _KINDS[type(part)])
    if not found or found[-1][1] is not None:
        raise _not_a_stack("no linear layer at its end")
    owned = [id(p) for _, part in parts for p in part.parameters()]
    if len(owned) != len(set(owned)):
        raise _not_a_stack("layers that share a parameter")
    return tuple(found)


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential and not _has_hooks(module):
        for own, part in module._modules.items():
            assert part is not None
            yield from _parts(part, join(name, own))
    elif type(module) is not nn.Identity:
        yield name, module


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _not_a_stack(what: str) -> InvalidModel:
    return InvalidModel(
        f"ris sends moments through linear layers with ReLU or Tanh between them, and this network has {what}; use "
        'mfvi, which takes any network, or a model such as {"name": "mlp", "activation": "relu"}'
    )


def _root(variance: Tensor) -> Tensor:
    # a row of zeros has no variance, and the root no slope there
    return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
