"""Probabilistic backpropagation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.rows import Rows, as_rows
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.likelihoods import FLOOR, LOG_NOISE, Gaussian
from bensemble_core.models.spec import checked_state, outline
from bensemble_core.options import STRICT
from bensemble_core.posteriors.moment_matching.filtering import FACTOR, NOISE, PRIOR, VARIANCE, Filter
from bensemble_core.posteriors.moment_matching.gamma import SHAPE
from bensemble_core.posteriors.moment_matching.propagation import (
    Layer,
    Weights,
    chain,
    join,
    propagate,
    separate,
    with_ones,
)
from bensemble_core.posteriors.start import member_shapes
from bensemble_core.predictive import GaussianPredictive
from bensemble_core.priors import DEFAULT_PRIOR, Normal
from bensemble_core.randomness import draw_seed, generator
from bensemble_core.types import Aim, Data, Diagnostics, Problem, Report, Shapes, Tensors, silent

_START = 1  # branch of a problem's seed
_LOOKED_AT = 64  # rows
_DIVERGED = 5.0  # sds of y: more than not knowing y at all
_ROWS = 4096  # that the analytic predictive takes at once


@dataclass(frozen=True, kw_only=True)
class PBP:
    """Gaussians over the weights of a ReLU network, updated row by row without a learning rate, for one number.

    Independent Gaussians by assumed density filtering (Hernández-Lobato & Adams 2015). Each row's moments are
    propagated forward to p(y | x) ≈ Z = N(y | m, v + E 1/γ), and every weight moves by m ← m + v ∂logZ/∂m, v ← v −
    v² ((∂logZ/∂m)² − 2 ∂logZ/∂v), where that leaves a variance positive. An epoch is a pass over the rows in a
    fresh random order; then the prior's factors are refined by expectation propagation. As in the paper nothing
    takes the rows of an earlier pass out again: k passes are k-fold data, and 40 epochs leave less spread than one
    posterior would have; `epochs=1` counts each row once.

    Noise: with `Gaussian(noise=…)` it is that; otherwise its precision is learnt as a Gamma, from Gamma(6, 6 Var y).
    Prior: unless one is handed in, w ~ N(0, 1/λ), λ ~ Gamma(6, 6) on the paper's w, whose pre-activations are divided
    by √(V + 1), V the inputs of a layer (+ 1 for its bias): the network's own weights are θ = w/√(V + 1). A
    prior=Normal(…) of the caller's is taken as it is, on θ (`learn_prior=True`: as the start of the Gamma, on w).

    Departures: means start at the paper's random values, sd 1/√(V + 1) of w, only where there is a hidden layer (a
    linear model has no symmetry to break, and is exact from 0); an update of a Gamma that leaves no Gamma with a mean
    is skipped. For one-output regression with Linear and ReLU layers; all numbers are float64 inside.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["pbp"] = "pbp"
    epochs: int = field(default=40, metadata={"ge": 0, "le": 1_000_000, "description": "passes over the rows"})
    learn_prior: bool | None = field(
        default=None,
        metadata={"description": "learn the precision of the prior; by default only if no prior is given"},
    )
    aims: ClassVar[Aim] = "none"
    batches: ClassVar[bool] = False
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = False

    def check(self, problem: Problem) -> None:
        _layers(problem)

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
        """State: as in filtering.py, float64, with a leading axis of 1.

        `warm` gives the means to start from (its first member's, where it is no state of pbp); variances start from the
        prior. `update` starts from both.
        """
        return self.fit_splits([problem], [data], rngs=[rng], warms=[warm], resume=resume, report=report)[0]

    def fit_splits(
        self,
        problems: Sequence[Problem],
        datas: Sequence[Data],
        *,
        rngs: Sequence[torch.Generator],
        warms: Sequence[Tensors | None] | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> list[dict[str, Tensor]]:
        """The state of each of S problems with the same network, all filtered at once."""
        layers = [_layers(problem) for problem in problems]
        if any(own != layers[0] for own in layers[1:]):
            raise InvalidModel("problems filtered together have to share their network; fit them one by one")
        seeds = [draw_seed(rng) for rng in rngs]
        starts = []
        given: Sequence[Tensors | None] = warms or [None] * len(problems)
        for problem, seed, warm in zip(problems, seeds, given, strict=True):
            start = _start(problem, layers[0], seed, self._learns_prior(problem, warm))
            starts.append(start)
            if warm is None:
                continue
            means = {k: v for k, v in start.items() if "/" not in k}
            checked_state(means, {k: v[:1] for k, v in warm.items()}, "warm start")
            start |= {k: warm[k][:1] for k in means}
        return self._filter(problems, datas, layers[0], starts, seeds, resume, report)

    def update(
        self,
        problem: Problem,
        state: Tensors,
        data: Data,
        *,
        rng: torch.Generator,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        """The same filter on new rows, with the posterior as prior: `epochs` passes over them alone."""
        layers = _layers(problem)
        start = {k: v.to(torch.float64) for k, v in state.items()}
        return self._filter([problem], [data], layers, [start], [draw_seed(rng)], resume, report)[0]

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """θ ~ N(m, v), n times, with the noise at its posterior mean E 1/γ."""
        stacked = {}
        for name in sorted(k for k in state if "/" not in k):  # a file keeps no order
            mean = state[name]
            noise = torch.randn(n, *mean.shape[1:], generator=rng, dtype=torch.float64).to(mean.device)
            stacked[name] = (mean + state[VARIANCE + name].sqrt() * noise).to(problem.dtype)
        if NOISE in state:
            stacked[LOG_NOISE] = _log_noise(problem, state).expand(n, 1)
        return Ensemble(problem=problem, stacked=stacked)

    def moments(self, problem: Problem, state: Tensors, x: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """By moment propagation, in the units of y: mean and variance of the network's output [N], and E 1/γ []."""
        likelihood = problem.likelihood
        assert isinstance(likelihood, Gaussian)
        layers = _layers(problem)
        device = next(iter(state.values())).device
        means, variances = (join(layers, state, prefix) for prefix in ("", VARIANCE))
        found = []
        for start in range(0, max(1, len(x)), _ROWS):
            rows = as_rows(x[start : start + _ROWS], problem, device)
            rows = rows if problem.scaling is None else problem.scaling(rows)
            with torch.no_grad():
                rows = with_ones(layers, rows.flatten(1).to(torch.float64))
                found.append(propagate(layers, means, variances, rows[None]))
        mean, variance = (torch.cat([f[i][0, :, 0] for f in found]) for i in (0, 1))
        scale = likelihood.scale[0]
        return mean * scale + likelihood.mean[0], variance * scale**2, _noise_variance(problem, state) * scale**2

    def analytic(self, problem: Problem, state: Tensors, x: Rows) -> GaussianPredictive:
        """The paper's analytic predictive N(y | m, v + E 1/γ), as one member [1, N]; published figures are of this."""
        mean, variance, noise = self.moments(problem, state, x)
        return GaussianPredictive(
            means=mean[None].to(problem.dtype), variances=(variance + noise)[None].to(problem.dtype)
        )

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """The network of means, with the noise at E 1/γ where it is learnt."""
        named = {k: v.to(problem.dtype) for k, v in state.items() if "/" not in k}
        return named | ({LOG_NOISE: _log_noise(problem, state)[None]} if NOISE in state else {})

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        means = {k: shape for k, shape in member_shapes(problem, 1).items() if "/" not in k}
        prefixes = [VARIANCE, *(f"{FACTOR}{part}/" for part in ("precision", "shape", "rate") if PRIOR in state)]
        gammas = [NOISE] if problem.likelihood.start(dtype=problem.dtype) else []
        gammas += [PRIOR] if PRIOR in state else []
        around = {prefix + k: shape for prefix in prefixes for k, shape in means.items()}
        return means | around | dict.fromkeys(gammas, (1, 2))

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        """`spread`: the sd of the function at rows such as the inputs have, in sds of y. Where that is large the pass
        over the rows has diverged: it happens with few rows and several hidden layers."""
        rows = torch.randn(_LOOKED_AT, *problem.model.input_shape, generator=generator(_START), dtype=torch.float64)
        rows = rows.to(problem.dtype).to(next(iter(state.values())).device)
        if problem.scaling is not None:
            rows = rows * problem.scaling.scale + problem.scaling.mean
        variance = self.moments(problem, state, rows)[1]
        spread = float(variance.median().sqrt()) / getattr(problem.likelihood, "scale", (1.0,))[0]
        if spread <= _DIVERGED:
            return Diagnostics(values={"spread": spread})
        warning = (
            f"pbp has diverged: it leaves an sd of {spread:.3g} sds of y; take one hidden layer, such as "
            '{"name": "mlp", "hidden": [50]}, more rows, or another posterior'
        )
        return Diagnostics(values={"spread": spread}, warnings=(warning,))

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.epochs

    def _learns_prior(self, problem: Problem, warm: Tensors | None) -> bool:
        if self.learn_prior is not None:
            return self.learn_prior
        if warm is not None and any(k.startswith(VARIANCE) for k in warm):  # a file does not say who named the prior
            return PRIOR in warm
        return problem.prior is DEFAULT_PRIOR

    def _filter(
        self,
        problems: Sequence[Problem],
        datas: Sequence[Data],
        layers: tuple[Layer, ...],
        starts: Sequence[Tensors],
        seeds: Sequence[int],
        resume: Tensors | None,
        report: Report,
    ) -> list[dict[str, Tensor]]:
        noises = [_noise_variance(p, {}) for p in problems]
        settings = [(p.prior.to_json() if p.prior else None, getattr(p.likelihood, "noise", None)) for p in problems]
        run = Filter(layers, starts, datas, torch.stack(noises), seeds, self.epochs, settings)
        if resume is not None:
            run.restore(resume)
        run.run(report)
        return run.states()


def _layers(problem: Problem) -> tuple[Layer, ...]:
    """The network as a chain of layers; what pbp is not for is refused, with what to use instead."""
    likelihood = problem.likelihood
    if not isinstance(likelihood, Gaussian):
        raise InvalidModel(
            f'pbp is for regression with one noise level, got {type(likelihood).__name__}; use likelihood="gaussian", '
            "or another posterior (deep_ensemble, laplace, mfvi)"
        )
    if problem.model.n_outputs != 1:
        raise InvalidModel(
            f"pbp is for one output, got {problem.model.n_outputs}; fit one network per output, "
            "or use another posterior (deep_ensemble, laplace, mfvi)"
        )
    if not isinstance(problem.prior, Normal):
        raise InvalidOption(f"pbp needs a prior=Normal(scale=…) on the weights, got {problem.prior}")
    return chain(outline(problem.model))


def _start(problem: Problem, layers: tuple[Layer, ...], seed: int, learns_prior: bool) -> dict[str, Tensor]:
    """The prior as a state, its means random where hidden units would otherwise stay equal."""
    assert isinstance(problem.prior, Normal)
    rng = generator(seed, _START)
    variance = problem.prior.scale**2
    means: Weights = []
    variances: Weights = []
    for layer in layers:
        mean = torch.randn(1, layer.n_outputs, layer.fan_in, generator=rng, dtype=torch.float64) / layer.fan_in
        means.append(mean if len(layers) > 1 else torch.zeros_like(mean))
        own = variance * SHAPE / (SHAPE - 1) / layer.fan_in if learns_prior else variance
        variances.append(torch.full_like(mean, own))
    state = separate(layers, means, "") | separate(layers, variances, VARIANCE)
    observed = problem.likelihood.start(dtype=torch.float64)
    if observed:
        state[NOISE] = torch.stack([torch.tensor([SHAPE]), SHAPE * (2 * observed[LOG_NOISE]).exp()], 1).double()
    if learns_prior:
        state[PRIOR] = torch.tensor([[SHAPE, SHAPE * variance]], dtype=torch.float64)
        precision = [torch.full_like(m, (SHAPE - 1) / (SHAPE * variance)) for m in means]
        nothing = [torch.zeros_like(m) for m in means]
        for part, tensors in (("precision", precision), ("shape", nothing), ("rate", nothing)):
            state |= separate(layers, tensors, f"{FACTOR}{part}/")
    return state


def _log_noise(problem: Problem, state: Tensors) -> Tensor:
    """½ log E 1/γ, as the likelihood keeps a learnt noise: [1]."""
    assert isinstance(problem.likelihood, Gaussian)
    a, b = state[NOISE][0]
    floor = FLOOR * problem.likelihood.spread[0] ** 2  # added again by the likelihood
    log_noise: Tensor = 0.5 * (b / (a - 1) - floor).clamp(min=1e-3 * floor).log()
    return log_noise[None].to(problem.dtype)


def _noise_variance(problem: Problem, state: Tensors) -> Tensor:
    """E 1/γ of the standardised targets where it is learnt, else the noise that was given: []."""
    if NOISE in state:
        a, b = state[NOISE][0].to(torch.float64).unbind()
        return b / (a - 1)
    assert isinstance(problem.likelihood, Gaussian)
    noise = problem.likelihood.noise or 1.0  # where it is learnt and not yet known, this is not used
    return torch.tensor((noise / problem.likelihood.scale[0]) ** 2, dtype=torch.float64)
