"""Variational online Newton: a factorised Gaussian whose precision is an average of curvatures."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel
from bensemble_core.io import below
from bensemble_core.models.spec import outline
from bensemble_core.posteriors.gaussian import (
    LOG_SD,
    PRIOR_MEAN,
    PRIOR_SD,
    PRUNED,
    Earlier,
    Factorised,
    noise,
    one_group,
    prior_in,
    reparameterised,
    split_points,
    with_points,
)
from bensemble_core.posteriors.variational.elbo import Elbo, estimate_elbo
from bensemble_core.randomness import generator
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Problem, Report, Tensors, silent

_AT_ONCE = 1 << 24  # numbers in the gradients of single rows that are held at one time
_NOT_BY_ROW = (nn.modules.batchnorm._BatchNorm, nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True, kw_only=True)
class VOGN(Factorised):
    """The Gaussian with independent weights of `mfvi`, found by Newton steps (Shen et al. 2024; Khan et al. 2018).

    With ℓ the negative log-likelihood of a row, averaged over a batch and over `samples` draws θ = μ + σε of q, and a
    prior N(m, s²) on each weight, a step is

        ĥ = ∇ℓ(θ) ε/σ                           hessian="price": E ĥ = E ∂²ℓ/∂θ² (Price's theorem); IVON
        ĥ = 1/B Σ_n [∂ℓ_n(θ)/∂θ]²               hessian="squares": squared gradients of single rows; VOGN
        h ← h + ρ (ĥ − h) + ½ ρ² (ĥ − h)²/(h + δ)      δ = 1/(N s²), ρ = `curvature_lr`; the last term: "price" only
        1/σ² = N (h + δ) = N h + 1/s²
        g ← β g + (1 − β) ∇ℓ(θ)                 β = `momentum`
        μ ← μ − lr (g/(1 − βᵗ) + δ (μ − m))/(h + δ).

    The square keeps h + δ above 0 though ĥ may be negative: it is the step along a geodesic to second order (Lin et al.
    2020). In the terms of mfvi, ĥ + δ = (1 + N ∂L̂/∂log σ)/(N σ²), L̂ being −(evidence lower bound)/N: so "price"
    descends the same bound as mfvi, and "squares" differs in ∂/∂log σ alone.

    On a linear model "price" ends at mfvi's answer, the mean of the posterior and 1/P_ii. "squares" does not: squared
    gradients average to the Hessian only where residuals have the variance of the noise, and under draws the spread of
    q is in them too. They are never negative, and less noisy; they take two to four times as long, and layers through
    which rows meet (batch normalisation) or that torch cannot vmap (recurrent ones) are refused.

    Departures. Both rates follow `schedule` (the papers keep ρ): with draws as noisy as these, σ is right only in an
    average over many steps. `clip` is in units of σ, where the papers have a length: no step takes a mean further than
    lr · clip · σ, which matters where h is close to 0 and g is all noise. h starts from `init_sigma` (the papers give h
    itself), and `lr` is the share of a Newton step (the authors' code multiplies it by h + δ at the start). Points (a
    learnt noise; biases and normalisation by option) move by `optimiser` at the same lr. The reported loss is L̂.

    The means start from a MAP of `map_epochs` (none with epochs=0, where weights stay as they are): as long as σ is
    small, so are the steps, and from a random start σ would grow first. Where a long training of many weights ends at a
    network that says nothing, take a smaller `lr` or more `samples`. `update` takes q as the prior of new rows, see
    gaussian.py.
    """

    name: Literal["vogn"] = "vogn"
    hessian: Literal["price", "squares"] = field(
        default="price",
        metadata={"description": "curvature from the noise of the draws (IVON), or from squared gradients (VOGN)"},
    )
    samples: int = field(default=4, metadata={"ge": 1, "le": 100_000, "description": "draws a step"})
    lr: float = field(
        default=0.1,
        metadata={
            "gt": 0,
            "le": 100,
            "search": ("log", 1e-2, 1.0),
            "description": "share of a Newton step that the means take, at the start",
        },
    )
    momentum: float = field(
        default=0.9, metadata={"ge": 0, "lt": 1, "description": "share of the old gradients in their average"}
    )
    curvature_lr: float = field(
        default=0.01,
        metadata={
            "gt": 0,
            "le": 1,
            "search": ("log", 1e-3, 0.1),
            "description": "share of a step in the averaged curvature, at the start",
        },
    )
    clip: float | None = field(
        default=1.0,
        metadata={"gt": 0, "le": 1e6, "description": "longest Newton step of a mean, in its standard deviations"},
    )
    init_sigma: float = field(default=0.05, metadata=Factorised.__dataclass_fields__["init_sigma"].metadata)
    map_epochs: int = field(default=50, metadata=Factorised.__dataclass_fields__["map_epochs"].metadata)
    aims: ClassVar[Aim] = "mean_field"  # of "price"

    def check(self, problem: Problem) -> None:
        super().check(problem)
        layers = outline(problem.model).modules() if self.hessian == "squares" else ()
        unfit = next((type(layer).__name__ for layer in layers if isinstance(layer, _NOT_BY_ROW)), None)
        if unfit is not None:
            raise InvalidModel(
                f'vogn with hessian="squares" takes the gradient of every row by itself, which {unfit} does not allow; '
                'use hessian="price", or a network without it'
            )

    def fit(
        self,
        problem: Problem,
        data: Data,
        *,
        rng: torch.Generator,
        warm: Tensors | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        own = self if self.epochs else replace(self, map_epochs=0)
        return super(VOGN, own).fit(problem, data, rng=rng, warm=warm, resume=resume, report=report)

    def run(self, start: Run, prior: Tensors, earlier: Earlier | None = None) -> Run:
        elbo = self._elbo(start.fixed, prior, earlier or Earlier())
        mover = _NewtonSteps(options=self, prior=prior, weights=tuple(below(LOG_SD, start.theta)))
        return replace(start, objective=elbo if self.hessian == "price" else _Squares(elbo=elbo), mover=mover)

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """The evidence lower bound of q on all rows, in nats and the units of y: an estimate from `samples` draws."""
        objective = self._elbo(split_points(state)[1], prior_in(state), Earlier(pruned=below(PRUNED, state)))
        return estimate_elbo(objective, None, problem, state, data, samples=samples, rng=rng)

    def cost(self, n_parameters: int) -> int:
        passes = self.samples * (1 if self.hessian == "price" else 2)
        return n_parameters * (passes * self.epochs + (self.map_epochs if self.epochs else 0))

    def _elbo(self, fixed: Tensors, prior: Tensors, earlier: Earlier) -> Elbo:
        extra = split_extra(fixed)[1]
        return Elbo(samples=self.samples, prior=prior, extra=extra, pruned=earlier.pruned, belief=earlier.belief)


@dataclass(frozen=True, kw_only=True, eq=False)
class _NewtonSteps:
    """The steps of means and log-sds, from the gradient of L̂ = −(evidence lower bound)/N in both.

    With d = N ∂L̂/∂log σ = σ² (N ĥ + 1/s²) − 1 the update of h is 1/σ² ← (1 + ρd + ½ρ²d²)/σ², in which neither h nor
    the prior is left.
    """

    options: VOGN
    prior: Tensors
    weights: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.weights, *(LOG_SD + name for name in self.weights)))

    def move(
        self, theta: Tensors, gradient: Tensors, moment: Tensors, *, step: int, lr: float, decay: float, n_rows: int
    ) -> None:
        beta, rate = self.options.momentum, self.options.curvature_lr * decay
        for name in self.weights:
            mean, log_sd, average = theta[name], theta[LOG_SD + name], moment[name]
            change = rate * n_rows * gradient[LOG_SD + name]  # ρd
            growth = change + 0.5 * change.square() if self.options.hessian == "price" else change
            log_sd.sub_(growth.log1p(), alpha=0.5)
            sd = log_sd.exp()
            pull = (mean - self.prior[PRIOR_MEAN + name]) / (n_rows * self.prior[PRIOR_SD + name].square())
            average.lerp_(gradient[name] - pull, 1 - beta)
            newton = n_rows * sd * (average / (1 - beta**step) + pull)  # in units of σ
            if self.options.clip is not None:
                newton = newton.clamp(-self.options.clip, self.options.clip)
            mean.sub_(sd * newton, alpha=lr)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Squares:
    """L̂, with the slope in log σ that squared gradients of rows give: (σ² (N ĥ + 1/s²) − 1)/N."""

    elbo: Elbo

    def prior_of(self, theta: Tensors) -> dict[str, Tensor]:
        return self.elbo.prior_of(theta)

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        held = {k: v.detach() if k.startswith(LOG_SD) else v for k, v in theta.items()}
        loss = self.elbo(problem, forward, held, batch)
        along = loss.new_zeros(())  # its value is taken away again, its slope stays
        for name, squares in self._squares(problem, forward, held, batch).items():
            log_sd = theta[LOG_SD + name]
            precision = batch.n_rows * squares + self.elbo.prior[PRIOR_SD + name].square().reciprocal()
            slope = (precision * (2 * log_sd.detach()).exp() - 1) / batch.n_rows
            if name in self.elbo.pruned:
                slope = slope.masked_fill(self.elbo.pruned[name], 0.0)
            along = along + (slope * log_sd).sum()
        return loss + (along - along.detach())

    def _squares(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> dict[str, Tensor]:
        """ĥ under the draws that the bound is estimated with: [1, ...] for each weight that has a distribution."""
        samples = self.elbo.samples
        x, y = one_group(problem, batch.x), batch.y[0]
        still = {k: v.detach() for k, v in theta.items()}
        extra = {**self.elbo.extra, **split_extra(still)[1]}
        drawn = reparameterised(still, noise(still, samples, rng=generator(batch.seeds[0])), self.elbo.pruned)

        def loss(drawn: Tensors, x: Tensor, y: Tensor) -> Tensor:
            """Of one row, under all draws, each of which has a gradient of its own: []."""
            outputs = forward(with_points(still, drawn, samples), x[None])  # [S, 1, O]
            return -problem.likelihood.log_prob(outputs, y.expand(samples, 1, *y.shape), extra).sum()

        by_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), randomness="different")
        at_once = max(1, _AT_ONCE // sum(v.numel() for v in drawn.values()))
        total = {k: torch.zeros_like(v[:1]) for k, v in drawn.items()}
        for rows in range(0, len(x), at_once):
            try:
                gradients = by_row(drawn, x[rows : rows + at_once], y[rows : rows + at_once])
            except RuntimeError as reason:
                raise InvalidModel(
                    f"vogn: torch.func cannot take the gradients of single rows ({str(reason).splitlines()[0]}); "
                    'use hessian="price"'
                ) from reason
            for name, slopes in gradients.items():
                total[name] += slopes.square().sum((0, 1))  # slopes [B, S, ...]
        return {k: v / (samples * len(x)) for k, v in total.items()}
