"""Variational implicit processes: Bayesian linear regression over functions drawn from the network's prior.

State: the S networks under their own names, [S, ...]; `vip/prior_mean/…` and `vip/prior_sd/…` [1] of each tensor they
were drawn from; in float64 `vip/precision` A [S, S], `vip/pull` b [S], `vip/misfit` [1], `vip/log_evidence` [1] and
`diagnostics/…` [1]; and, where it is learnt, the likelihood's own noise, [1, T].
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import Members, gather
from bensemble_core.ensemble.rows import Rows, as_rows
from bensemble_core.errors import InvalidOption, NotFinite
from bensemble_core.io import above
from bensemble_core.likelihoods import LOG_NOISE, Gaussian
from bensemble_core.models.derived import Basis
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.options import STRICT
from bensemble_core.posteriors.gaussian import LARGEST_DRAW, in_units, normal_prior
from bensemble_core.posteriors.start import check_trainable, member_shapes, start_members
from bensemble_core.predictive import GaussianPredictive
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.randomness import derive, draw_seed, generator
from bensemble_core.types import Aim, Data, Diagnostics, Over, Problem, Report, Shapes, Tensors, silent

_PREFIX = "vip/"
PRECISION, PULL, MISFIT, EVIDENCE = (_PREFIX + name for name in ("precision", "pull", "misfit", "log_evidence"))
LEARNT, ROUNDING = "diagnostics/learnt", "diagnostics/rounding"
PRIOR_MEAN, PRIOR_SD = _PREFIX + "prior_mean/", _PREFIX + "prior_sd/"
_BLOCK = 2_048  # rows predicted at once
_WIDEST = 10.0  # of a mean, or of the logarithm of an sd, either way
_ROUNDING = 0.1  # nats of log evidence that may be lost to rounding
_QUIETEST = 0.03  # least noise sd of several targets that is learnt, as a share of their sd
# Nats a number by which a point without an evidence is worse than any that has one. L-BFGS guesses its next step from
# this: from a huge value it guesses a step of nearly 0, and stops.
_WORSE = 10.0


@dataclass(frozen=True, kw_only=True)
class VIP:
    """Bayesian linear regression over functions drawn from the network's prior (Ma et al. 2019).

        f(x) = f̄(x) + Σ_s a_s φ_s(x),   φ_s = (f_s − f̄) / √S,   a ~ N(0, I),   y = f(x) + ε,   ε ~ N(0, σ²),

    f_s = f(·, θ_s) with θ_s drawn from the prior of the weights, f̄ their average. That is a Gaussian process with the
    mean and covariance of S functions of the network, and its posterior is exact: a | D ~ N(A⁻¹b, A⁻¹) with
    A = I + Φᵀ Φ / σ², b = Φᵀ (y − f̄) / σ². The spread has S dimensions: with more rows than that it can be too small.

    `learn_prior`: θ_s = m + s ε_s with a mean m and an sd s for each parameter tensor, at the largest log evidence of
    the regression, the draws ε_s held; a learnt noise σ is found with them. L-BFGS on all rows, from the prior handed
    in and from sds of 1/√fan-in; the best that was seen is kept, and a point where rounding may cost more than .1 nats
    counts as none. `log_evidence` is log p(y) given all that. Departures: the paper learns by an α-divergence in place
    of the evidence, with other functions in each step; here the evidence is in closed form, on one fixed set.
    Normalisation layers use the statistics that they start with.

    Several targets have the a_s in common, each its own noise, which is not learnt below .03 of a target's sd: the
    evidence of a target without noise would grow until the functions serve that one alone (of sin 2x and x the first
    was given up, with an error of about .66, in 29 of 40 fits; with the limit the largest error at the rows was .04).

    `update` adds rows to A and b, exactly; functions and noise stay. Classes are refused: the regression has no closed
    form for them.
    """

    name: Literal["vip"] = "vip"
    functions: int = field(
        default=50, metadata={"ge": 2, "le": 2_000, "description": "S, networks drawn from the prior"}
    )
    learn_prior: bool = field(
        default=True, metadata={"description": "find a mean and an sd of each parameter tensor by log evidence"}
    )
    steps: int = field(
        default=60, metadata={"ge": 1, "le": 10_000, "description": "evaluations of the log evidence from each start"}
    )
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    aims: ClassVar[Aim] = "none"
    batches: ClassVar[bool] = False
    over: ClassVar[Over] = "weights"  # its prior is one
    resumes: ClassVar[bool] = False
    starts_from_weights: ClassVar[bool] = False

    def check(self, problem: Problem) -> None:
        if not isinstance(problem.likelihood, Gaussian):
            raise InvalidOption(
                f"vip is for numbers with Gaussian noise of one level, got {type(problem.likelihood).__name__}: with "
                'any other the regression has no closed form; pass likelihood="gaussian", or use laplace, mfvi or hmc'
            )
        normal_prior(problem, self.name)
        check_trainable(self.name, problem)
        size = sum(p.numel() for p in outline(problem.model).parameters())
        if self.functions * size > LARGEST_DRAW:
            raise InvalidOption(
                f"vip holds all its networks at once: {self.functions:,} functions of {size:,} weights are more than "
                f"{LARGEST_DRAW:,} numbers; pass functions={max(2, LARGEST_DRAW // size):,} or fewer, or a smaller "
                "network"
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
        """State: as this file's docstring has it. The search starts from the seed, whatever came before."""
        search = _Search.of(self, problem, data, draw_seed(rng))
        phi, learnt = search.best(self.steps, report)
        with torch.no_grad():
            networks, log_noise = search.networks(phi)
            mean, sd = search.prior(phi)
            state = {**networks, **search.fixed}
            state |= above(PRIOR_MEAN, {k: v[None] for k, v in mean.items()})
            state |= above(PRIOR_SD, {k: v[None] for k, v in sd.items()})
            if log_noise is not None:
                state[LOG_NOISE] = log_noise[None].to(problem.dtype)
            n = self.functions
            like: dict[str, Any] = {"dtype": torch.float64, "device": data.x.device}
            nothing = {PRECISION: torch.eye(n, **like), PULL: torch.zeros(n, **like), MISFIT: torch.zeros(1, **like)}
            state[LEARNT] = torch.full((1,), float(learnt), **like)
            return self.update(problem, {**state, **nothing}, data, rng=rng)

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
        """A and b of all rows, old and new; a sum over rows, so that the old ones are not needed."""
        mean, features = self._features(problem, state, data.x)
        more = _sums(mean, features, data.y, _noise(problem, state))
        new = {PRECISION: state[PRECISION] + more[0], PULL: state[PULL] + more[1], MISFIT: state[MISFIT] + more[2]}
        units = in_units(problem, data.n_rows)  # of the new rows; what the old ones added is kept in the misfit
        new[MISFIT] = new[MISFIT] - 2 * units
        evidence = _log_evidence(new[PRECISION], new[PULL], new[MISFIT])
        if not bool(evidence.isfinite().all()):
            what = "the functions of the network are not finite at these rows"
            if bool(features.isfinite().all()):
                what = "the noise is so small beside the functions of the prior that the regression loses its digits"
            raise NotFinite(f"vip: {what}; pass a tighter prior, prior=Normal(scale=…), or a larger noise")
        rounding = _rounding(new[PRECISION], new[PULL], problem.dtype)
        return {**state, **new, EVIDENCE: evidence, ROUNDING: rounding[None]}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of a; the functions are shared."""
        factor = torch.linalg.cholesky(state[PRECISION])
        z = torch.randn(self.functions, n, generator=rng, dtype=torch.float64).to(factor)
        a = torch.cholesky_solve(state[PULL][:, None], factor)
        a = (a + torch.linalg.solve_triangular(factor.mT, z, upper=True)).mT  # [n, S]
        shared = above("functions.", self.unfold(problem, state))
        shared |= {LOG_NOISE: shared.pop("functions." + LOG_NOISE)[0]} if LOG_NOISE in state else {}
        model = Basis(inner=problem.model, n_functions=self.functions)
        return Ensemble(problem=replace(problem, model=model), stacked={"a": a.to(problem.dtype)}, shared=shared)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        n, names = self.functions, trainable_names(outline(problem.model))
        shapes = member_shapes(problem, n)
        shapes |= {LOG_NOISE: (1, *shapes[LOG_NOISE][1:])} if LOG_NOISE in shapes else {}
        shapes |= {prefix + name: (1,) for prefix in (PRIOR_MEAN, PRIOR_SD) for name in names}
        return shapes | {PRECISION: (n, n), PULL: (n,), MISFIT: (1,), EVIDENCE: (1,), LEARNT: (1,), ROUNDING: (1,)}

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.functions * (2 * self.steps + 1)

    def log_evidence(self, problem: Problem, state: Tensors) -> float:
        """Of the targets in their own units, given the functions and the noise."""
        return float(state[EVIDENCE][0])

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        """`learnt`: 1 where the search found more log evidence than at its start. `rounding`: nats of log evidence that
        may be lost to rounding."""
        values = {k.removeprefix("diagnostics/"): float(state[k][0]) for k in (LEARNT, ROUNDING)}
        warnings = []
        if not values["learnt"] and (self.learn_prior or _gaussian(problem).learns):
            warnings.append(
                "No log evidence above that of the start was found: prior and noise are those that were handed in. "
                "Raise steps or functions, pass another seed, or a prior with another scale."
            )
        if not values["rounding"] < _ROUNDING:
            warnings.append(
                f"Rounding may have cost {values['rounding']:.2g} nats of log evidence: the noise is too small beside "
                "the functions of the prior. Pass a larger noise or a tighter prior, or rows in float64."
            )
        return Diagnostics(values=values, warnings=tuple(warnings))

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """The networks that the functions are, [S, ...]."""
        return {k: v for k, v in state.items() if not k.startswith((_PREFIX, "diagnostics/"))}

    def function_covariance(self, problem: Problem, state: Tensors, x: Tensor) -> Tensor:
        """Posterior covariance of f at standardised rows in the units of y: [N, T, T]."""
        _, covariance = self._moments(problem, state, x)
        scale = covariance.new_tensor(_gaussian(problem).scale)
        return (covariance * scale * scale[:, None]).to(problem.dtype)

    def analytic(self, problem: Problem, state: Tensors, x: Rows) -> GaussianPredictive:
        """The exact predictive of y, as one member: [1, N]."""
        rows = as_rows(x, problem, state[PULL].device)
        means, covariance = self._moments(problem, state, rows if problem.scaling is None else problem.scaling(rows))
        variances = covariance.diagonal(dim1=-2, dim2=-1) + _noise(problem, state)
        likelihood = _gaussian(problem)
        shift, scale = means.new_tensor(likelihood.mean), means.new_tensor(likelihood.scale)
        found = ((means * scale + shift)[None], (variances * scale.square())[None])
        means, variances = (f.squeeze(-1) if f.shape[-1] == 1 else f for f in found)
        return GaussianPredictive(means=means.to(problem.dtype), variances=variances.to(problem.dtype))

    def _moments(self, problem: Problem, state: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of f at standardised rows, in standardised units: [N, T], [N, T, T]."""
        mean, features = self._features(problem, state, x)
        factor = torch.linalg.cholesky(state[PRECISION])
        a = torch.cholesky_solve(state[PULL][:, None], factor)[:, 0]
        spread: Tensor = torch.linalg.solve_triangular(factor, features.flatten(1), upper=False).reshape(features.shape)
        return mean + torch.einsum("s,snt->nt", a, features), torch.einsum("snt,snu->ntu", spread, spread)

    def _features(self, problem: Problem, state: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
        """f̄ [N, T] and φ [S, N, T] at standardised rows, in float64."""
        networks = {k: v for k, v in self.unfold(problem, state).items() if k != LOG_NOISE}
        members = gather(problem, networks, {})
        with torch.no_grad():
            return _centred(torch.cat([members(networks, {}, block) for block in torch.split(x, _BLOCK)], 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """The log evidence as a function of φ: prior mean and log sd of each parameter tensor, and log noise, as far as
    they are learnt."""

    problem: Problem
    data: Data
    members: Members
    draws: dict[str, Tensor]  # ε [S, ...] of each trainable tensor
    fixed: dict[str, Tensor]  # [S, ...]
    scale: float  # of the prior handed in
    learn_prior: bool

    @classmethod
    def of(cls, options: VIP, problem: Problem, data: Data, seed: int) -> "_Search":
        seeds = [derive(seed, s) for s in range(options.functions)]
        theta, fixed = start_members(problem, seeds, warm=None, from_weights=False, device=data.x.device)
        theta.pop(LOG_NOISE, None)
        draws = {}
        for i, (name, tensor) in enumerate(theta.items()):
            rng = generator(seed, options.functions + i)
            draws[name] = torch.randn(tensor.shape, generator=rng, dtype=problem.dtype).to(data.x.device)
        return cls(
            problem=problem,
            data=data,
            members=gather(problem, {**draws, **fixed}, {}),
            draws=draws,
            fixed=fixed,
            scale=normal_prior(problem, options.name).scale,
            learn_prior=options.learn_prior,
        )

    def starts(self) -> Tensor:
        """The prior handed in and, where it is learnt, sds of 1/√fan-in: [1 or 2, Q]."""
        quiet: list[float] = []
        likelihood = _gaussian(self.problem)
        if likelihood.learns:
            quiet = (likelihood.start(dtype=torch.float64)[LOG_NOISE] - float(likelihood.noise is None)).tolist()
        if not self.learn_prior:
            return torch.tensor([quiet], dtype=torch.float64)
        fans = [t[0, 0].numel() if t.ndim > 2 else 1 for t in self.draws.values()]
        zeros = [0.0] * len(fans)
        told, narrow = [math.log(self.scale)] * len(fans), [-0.5 * math.log(fan) for fan in fans]
        return torch.tensor([[*zeros, *told, *quiet], [*zeros, *narrow, *quiet]], dtype=torch.float64)

    def bounds(self, start: list[float]) -> list[tuple[float, float]]:
        """Of φ: the noise of several targets stays above `_QUIETEST`, or above a smaller start that the caller gave."""
        likelihood = _gaussian(self.problem)
        if not likelihood.learns or likelihood.n_outputs == 1:
            return [(-_WIDEST, _WIDEST)] * len(start)
        n_noises = likelihood.n_outputs
        least = [math.log(_QUIETEST * spread) for spread in likelihood.spread]
        quiet = [(min(low, at), at + _WIDEST) for low, at in zip(least, start[-n_noises:], strict=True)]
        return [(-_WIDEST, _WIDEST)] * (len(start) - n_noises) + quiet

    def prior(self, phi: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Mean and sd of every trainable tensor: []."""
        n, dtype = len(self.draws), self.problem.dtype
        if not self.learn_prior:
            one = torch.ones((), dtype=dtype, device=phi.device)
            return dict.fromkeys(self.draws, 0 * one), dict.fromkeys(self.draws, self.scale * one)
        means, sds = phi[:n].to(dtype), phi[n : 2 * n].exp().to(dtype)
        return dict(zip(self.draws, means, strict=True)), dict(zip(self.draws, sds, strict=True))

    def networks(self, phi: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Trainable tensors [S, ...], and the log noise [T] where it is learnt."""
        mean, sd = self.prior(phi)
        drawn = {name: mean[name] + sd[name] * z for name, z in self.draws.items()}
        return drawn, phi[-_gaussian(self.problem).n_outputs :] if _gaussian(self.problem).learns else None

    def log_evidence(self, phi: Tensor) -> Tensor:
        """In standardised units: []."""
        drawn, log_noise = self.networks(phi)
        mean, features = _centred(self.members({**drawn, **self.fixed}, {}, self.data.x))
        extra = {} if log_noise is None else {LOG_NOISE: log_noise}
        noise = _gaussian(self.problem).variance(extra, mean).reshape(-1)
        added, pull, misfit = _sums(mean, features, self.data.y, noise)
        precision = added + torch.eye(len(pull)).to(added)
        found = _log_evidence(precision, pull, misfit)
        trusted = _rounding(precision.detach(), pull.detach(), self.problem.dtype) < _ROUNDING
        return found if bool(trusted) else found * math.nan

    def best(self, steps: int, report: Report) -> tuple[Tensor, bool]:
        """φ [Q] at the largest log evidence that L-BFGS saw from the starts, and whether that is more than at the
        first."""
        starts, done = self.starts().to(self.data.x.device), 0
        total = len(starts) * steps

        n_numbers = self.data.n_rows * _gaussian(self.problem).n_outputs
        best, least, highest = starts[0], math.inf, 0.0
        first = math.inf

        def value_and_slope(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            """Negative log evidence of a number, on average: as a sum its slope is a first step to all the bounds."""
            nonlocal done, best, least, highest, first
            done = min(done + 1, total)  # the last line search may look once or twice more
            report(done, total, f"log evidence {done}", dict)
            phi = torch.from_numpy(values.copy()).to(starts).requires_grad_()
            with torch.enable_grad():
                found = -self.log_evidence(phi) / n_numbers
                (slope,) = torch.autograd.grad(found, phi)
            value = float(found.detach())
            if not (math.isfinite(value) and bool(slope.isfinite().all())):
                return highest + _WORSE, np.zeros_like(values)
            highest = max(highest, value)
            first = value if done == 1 else first
            if value < least:
                best, least = phi.detach(), value
            return value, slope.cpu().numpy()

        for start in starts if starts.shape[1] else ():
            optimize.minimize(
                value_and_slope,
                start.cpu().numpy(),
                jac=True,
                method="L-BFGS-B",
                bounds=self.bounds(start.tolist()),
                options={"maxfun": steps},
            )
        report(total, total, "conditioning", dict)
        return best, least < first


def _centred(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """f̄ and φ = (f − f̄)/√S, in float64: [S, N, T] -> [N, T], [S, N, T]."""
    wide = outputs.to(torch.float64)
    mean = wide.mean(0)
    return mean, (wide - mean) * len(wide) ** -0.5


def _sums(mean: Tensor, features: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What rows add: ΦᵀR⁻¹Φ [S, S], ΦᵀR⁻¹r [S] and rᵀR⁻¹r + log |2πR| [], with r = y − f̄ and R the noise [T]."""
    scaled = (features / noise.sqrt()).flatten(1)
    residual = ((y.to(torch.float64) - mean) / noise.sqrt()).flatten()
    misfit = residual.square().sum() + len(y) * (noise.log() + LOG_2PI).sum()
    return scaled @ scaled.mT, scaled @ residual, misfit


def _log_evidence(precision: Tensor, pull: Tensor, misfit: Tensor) -> Tensor:
    """½ bᵀA⁻¹b − ½ log |A| − ½ misfit, in the shape of the misfit; not finite where A has no Cholesky factor."""
    factor, _ = torch.linalg.cholesky_ex(precision)
    whitened = torch.linalg.solve_triangular(factor, pull[:, None], upper=False)
    found: Tensor = 0.5 * whitened.square().sum() - factor.diagonal().log().sum() - 0.5 * misfit
    return found


def _rounding(precision: Tensor, pull: Tensor, dtype: torch.dtype) -> Tensor:
    """Nats of log evidence that may be lost: (ε₆₄ + ε²) tr A |A⁻¹b|², [].

    A Cholesky factor is that of A + E with |E| of about ε₆₄ tr A, which moves bᵀA⁻¹b by aᵀEa; and the networks
    compute functions to the ε of their own type, which moves Φa by ε |Φ| |a| in units of the noise.
    """
    factor, _ = torch.linalg.cholesky_ex(precision)
    a = torch.cholesky_solve(pull[:, None], factor)
    found: Tensor = (
        (torch.finfo(torch.float64).eps + torch.finfo(dtype).eps ** 2) * precision.trace() * a.square().sum()
    )
    return found


def _noise(problem: Problem, state: Tensors) -> Tensor:
    """Noise variance of each standardised target: [T]."""
    extra = {k: v[0].to(torch.float64) for k, v in state.items() if k == LOG_NOISE}
    return _gaussian(problem).variance(extra, state[PULL]).reshape(-1)


def _gaussian(problem: Problem) -> Gaussian:
    assert isinstance(problem.likelihood, Gaussian)
    return problem.likelihood
