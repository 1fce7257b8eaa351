"""Exact Gaussian-process regression.

State, in float64: `gp/x` [N, D] and `gp/y` [N, T], the standardised rows; `gp/lengthscales` [T, D], `gp/scale` [T] and
`gp/linear` [T], the hyper-parameters of each target in standardised units; `gp/log_evidence` [1]; and, where it is
learnt, the likelihood's own noise, [1, T].
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.rows import Rows, as_rows
from bensemble_core.errors import InvalidData, InvalidModel, InvalidOption
from bensemble_core.kernels import KernelName, spectral_draws
from bensemble_core.likelihoods import FLOOR, LOG_NOISE, Gaussian
from bensemble_core.models.derived import Kernel
from bensemble_core.options import STRICT
from bensemble_core.posteriors.function_space.evidence import Hyper, Regression, maximise
from bensemble_core.posteriors.gaussian import in_units
from bensemble_core.predictive import GaussianPredictive
from bensemble_core.priors import GP, Normal
from bensemble_core.randomness import draw_seed, generator, permutation
from bensemble_core.types import Aim, Data, Over, Problem, Report, Shapes, Tensors, silent

LARGEST = 5_000  # rows; their covariance in float64 is 200 MB, its Cholesky factor as much again
LARGEST_ARD = 50  # inputs with a lengthscale each
_PREFIX = "gp/"
X, Y, EVIDENCE = _PREFIX + "x", _PREFIX + "y", _PREFIX + "log_evidence"
LENGTHSCALES, SCALE, LINEAR = _PREFIX + "lengthscales", _PREFIX + "scale", _PREFIX + "linear"
_QUIET = -1.0  # log of the noise sd, as a share of the sd of y, where the search starts
_LONG = (1.0, 1.5)  # mean and sd a priori of log ℓ beside a linear part, which explains what varies slowly
_SOBOL = 21_200  # inputs for which torch has a Sobol sequence
_BLOCK = 1_024  # rows predicted at once
_STARTS, _ROWS = 0, 1  # branches of the seed


@dataclass(frozen=True, kw_only=True)
class GaussianProcess:
    """Gaussian-process regression: the exact posterior over functions under a smooth kernel, up to 5,000 rows.

        f ~ GP(0, s² k(|x − x'| / ℓ) [+ τ² (1 + xᵀx')]),   y = f(x) + ε,   ε ~ N(0, σ²),

    with `linear` the second term too, with `kernel="linear"` it alone (s = 0), on standardised rows (Rasmussen &
    Williams 2006, chapter 2). **The network handed in is not used**: any model is accepted, and rows are flattened.
    Several targets are independent processes. A jitter of 10⁻¹⁰ s² is added to σ²; a covariance that has no Cholesky
    factor even so is an error.

    Hyper-parameters. Without a prior of the caller's, each target's ℓ (one for each input up to 50 inputs, else or
    without `ard` one), s, τ and, where the likelihood learns it, σ maximise log p(y) + Σ log N(log · | 0, 1) (MacKay
    1999), ℓ in units of √D times the sd of its input, as distances between rows of D inputs grow, τ of the sd of y
    divided by √D, the others of the sd of y; `prior=None` leaves the second term out. Beside a linear part log ℓ has
    N(1, 1.5²): that part explains what varies slowly, and long lengthscales, one for each input, fit less of the noise
    of few rows. L-BFGS from several starts, on at most `evidence_rows` rows drawn by the seed: with more rows that is a
    departure, and all of them are conditioned on.
    With `prior=bc.GP(…)` ℓ, s and the kernel are as it says, in the units of x and y handed in, with mean 0 in those of
    y; σ alone is learnt, if it is. `log_evidence` is log p(y) of all rows, given the hyper-parameters.

    Members are functions, drawn along their path (Wilson et al. 2020): a prior draw f̃ of random waves, corrected at
    the rows,

        f(x) = f̃(x) + k(x, X) (K + σ² I)⁻¹ (y − f̃(X) − ε),   f̃(x) = s √(1/F) Σ_f u_f cos ω_fᵀx + v_f sin ω_fᵀx,

    u, v, ε normal, ω of the kernel's spectral density: the correction is exact, and the prior as good as F
    `frequencies` make it. What is left of that error shows between rows that lie close, where the variance is a small
    part of s² and rests on few high frequencies: some per cent of it with 4,000, tens with 500. Departures: cosine and
    sine in pairs, which make the prior variance exact everywhere, and ω at scrambled Sobol points (Avron et al. 2016),
    both in common to all members of an ensemble. `predict` has the predictive in closed form.

    `update` appends rows and keeps the hyper-parameters; `update(…, keep=True)` finds them again. Classes are refused:
    their latent functions have no Gaussian posterior, so that every member would be of an approximation, and for those
    there is `laplace`, or `hmc` for draws without one.
    """

    name: Literal["gp"] = "gp"
    kernel: Literal["rbf", "matern52", "linear"] | None = field(
        default=None,
        metadata={
            "description": "of the functions; linear: planes alone, Bayesian linear regression; null is that of a GP "
            "prior, else rbf"
        },
    )
    ard: bool = field(
        default=True,
        metadata={
            "description": "a lengthscale for each input up to 50 inputs; else one for all, in units of their sd"
        },
    )
    linear: bool = field(default=False, metadata={"description": "add a linear function of the inputs, with a bias"})
    starts: int = field(default=3, metadata={"ge": 1, "le": 100, "description": "of the search for hyper-parameters"})
    steps: int = field(
        default=60, metadata={"ge": 1, "le": 10_000, "description": "evaluations of the log evidence from each start"}
    )
    evidence_rows: int = field(
        default=1_000,
        metadata={"ge": 2, "le": LARGEST, "description": "most rows whose log evidence chooses hyper-parameters"},
    )
    frequencies: int = field(
        default=2_048,
        metadata={"ge": 1, "le": 65_536, "description": "of the waves that a member's prior draw is made of"},
    )
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    aims: ClassVar[Aim] = "none"  # the weights of the network are not inferred
    batches: ClassVar[bool] = False
    over: ClassVar[Over] = "functions"
    resumes: ClassVar[bool] = False
    starts_from_weights: ClassVar[bool] = False

    def check(self, problem: Problem) -> None:
        prior = problem.prior
        if not isinstance(problem.likelihood, Gaussian):
            raise InvalidOption(
                f"gp is for numbers with Gaussian noise of one level, got {type(problem.likelihood).__name__}: with "
                'any other the posterior has no closed form; pass likelihood="gaussian", or use laplace, mfvi or hmc'
            )
        if problem.model.integers:
            raise InvalidModel(
                "gp measures distances between rows, and these are indices into an embedding; pass numbers, such as "
                "the embedded rows"
            )
        if not isinstance(prior, (GP, Normal)) and prior is not None:
            raise InvalidOption(f"gp needs a GP prior, got {type(prior).__name__}; pass prior=GP(…), or leave it out")
        if not isinstance(prior, GP):
            return
        check_lengths(prior, problem)
        if self.kernel not in (None, prior.kernel):
            raise InvalidOption(f"gp has kernel={self.kernel!r}, and its prior {prior.kernel!r}; name it in the prior")
        if self.linear:
            raise InvalidOption("gp: linear=True has a scale to learn, and a GP prior is taken as it is; drop either")

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
        x, y = _flat(data)
        _check_rows(len(x))
        found = self._hyper(problem, x, y, draw_seed(rng), report)
        state = {
            X: x,
            Y: y,
            LENGTHSCALES: torch.stack([h.lengthscales for h in found]),
            SCALE: torch.stack([h.scale for h in found]),
            LINEAR: torch.stack([h.linear for h in found]),
        }
        likelihood = _gaussian(problem)
        if likelihood.learns:
            noise = torch.stack([h.noise for h in found]) - _floor(likelihood).to(x)
            state[LOG_NOISE] = (0.5 * noise.log())[None].to(problem.dtype)
        return self._with_evidence(problem, state)

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
        """All rows, old and new, under the hyper-parameters that the old ones gave."""
        x, y = _flat(data)
        _check_rows(len(state[X]) + len(x))
        report(1, 1, "conditioning", dict)
        joined = {**state, X: torch.cat([state[X], x]), Y: torch.cat([state[Y], y])}
        return self._with_evidence(problem, joined)

    def sample(
        self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator, centred: bool = False
    ) -> Ensemble:
        """n functions; rows, lengthscales and frequencies are shared.

        `centred`: their mean is that of the posterior, not only on average over seeds, and their variances are as
        before; so few of them predict as well as many, and they are no longer independent. One alone is that mean.
        """
        x, n_targets = state[X], state[Y].shape[1]
        n_rows, n_inputs = x.shape
        n_groups, n_frequencies = (0, 0) if self.kernel == "linear" else (n_targets, self.frequencies)
        n_near, n_waves = n_groups * n_rows, 2 * n_frequencies
        coefficients = x.new_zeros(n, n_targets, n_near + n_targets * n_waves)
        linear, bias = x.new_zeros(n, n_targets, n_inputs), x.new_zeros(n, n_targets)
        scales, waves = 1 / state[LENGTHSCALES], []

        def noise(*shape: int) -> Tensor:
            drawn = torch.randn(shape, generator=rng, dtype=torch.float64).to(x)
            return (drawn - drawn.mean(0)) * (n / max(n - 1, 1)) ** 0.5 if centred else drawn

        phases = x.new_zeros(n_waves)
        phases[n_frequencies:] = -0.5 * math.pi  # sines
        for t, known in enumerate(self._regressions(problem, state)):
            hyper = known.hyper
            own = _frequencies(hyper.kernel, n_frequencies, n_inputs, draw_seed(rng)).to(x) * scales[t]
            waves.append(own.repeat(2, 1))
            heights = hyper.scale * max(n_frequencies, 1) ** -0.5 * noise(n, n_waves)
            slopes, offsets = hyper.linear * noise(n, n_inputs), hyper.linear * noise(n)
            drawn = heights @ (x @ waves[t].mT + phases).cos().mT + slopes @ x.mT + offsets[:, None]  # [n, N]
            residuals = known.y - known.mean - drawn - hyper.of_a_row.sqrt() * noise(n, n_rows)
            pulls = known.solve(residuals.mT).mT  # [n, N]
            if n_groups:
                coefficients[:, t, t * n_rows : (t + 1) * n_rows] = hyper.scale.square() * pulls
            coefficients[:, t, n_near + t * n_waves : n_near + (t + 1) * n_waves] = heights
            linear[:, t] = slopes + hyper.linear.square() * pulls @ x
            bias[:, t] = known.mean + offsets + hyper.linear.square() * pulls.sum(1)
        model = Kernel(
            input_shape=problem.model.input_shape,
            n_outputs=n_targets,
            kernel=self._kernel(problem),
            n_groups=n_groups,
            n_centres=n_rows,
            n_frequencies=n_targets * n_waves,
        )
        shared = {
            "centres": (x * scales[:, None])[:n_groups],
            "scales": scales[:n_groups],
            "frequencies": torch.cat(waves),
            "phases": phases.repeat(n_targets),
            **{k: v[0] for k, v in state.items() if k == LOG_NOISE},
        }
        stacked = {"coefficients": coefficients, "linear": linear, "bias": bias}
        return Ensemble(problem=replace(problem, model=model), stacked=stacked, shared=shared)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        n_targets, n_inputs = problem.likelihood.n_outputs, math.prod(problem.model.input_shape)
        n_rows = len(state[X]) if X in state else 0
        shapes: Shapes = {X: (n_rows, n_inputs), Y: (n_rows, n_targets), LENGTHSCALES: (n_targets, n_inputs)}
        shapes |= {SCALE: (n_targets,), LINEAR: (n_targets,), EVIDENCE: (1,)}
        return shapes | ({LOG_NOISE: (1, n_targets)} if _gaussian(problem).learns else {})

    def cost(self, n_parameters: int) -> int:
        """Of factorisations, as weights whose training would take as long: a row of N costs N²/6 in each."""
        return (self.starts * self.steps * self.evidence_rows**2 + LARGEST**2) // 6

    def log_evidence(self, problem: Problem, state: Tensors) -> float:
        """Of the targets in their own units, given the hyper-parameters."""
        return float(state[EVIDENCE][0])

    def function_covariance(self, problem: Problem, state: Tensors, x: Tensor) -> Tensor:
        """Posterior covariance of f at standardised rows in the units of y, targets independent: [N, T, T]."""
        _, variances = self._moments(problem, state, x)
        scale = variances.new_tensor(_gaussian(problem).scale)
        return torch.diag_embed(variances * scale.square()).to(problem.dtype)

    def analytic(self, problem: Problem, state: Tensors, x: Rows) -> GaussianPredictive:
        """The exact predictive of y, as one member: [1, N]."""
        rows = as_rows(x, problem, state[X].device)
        means, variances = self._moments(problem, state, rows if problem.scaling is None else problem.scaling(rows))
        likelihood = _gaussian(problem)
        variances = variances + _noise(problem, state)
        shift, scale = means.new_tensor(likelihood.mean), means.new_tensor(likelihood.scale)
        found = ((means * scale + shift)[None], (variances * scale.square())[None])
        means, variances = (f.squeeze(-1) if f.shape[-1] == 1 else f for f in found)
        return GaussianPredictive(means=means.to(problem.dtype), variances=variances.to(problem.dtype))

    def _moments(self, problem: Problem, state: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at standardised rows, in standardised units: [N, ...] -> [N, T], [N, T]."""
        rows = x.flatten(1).to(torch.float64)
        blocks = torch.split(rows, _BLOCK)
        found = [
            [torch.cat(parts) for parts in zip(*(known.moments(block) for block in blocks), strict=True)]
            for known in self._regressions(problem, state)
        ]
        return torch.stack([mean for mean, _ in found], 1), torch.stack([variance for _, variance in found], 1)

    def left_out(self, problem: Problem, state: Tensors) -> tuple[Tensor, Tensor]:
        """Mean and variance of every standardised target, given all rows but its own: [N, T], [N, T].

        With C = K + σ² I and r = y − mean they are y_i − (C⁻¹r)_i / (C⁻¹)_ii and 1 / (C⁻¹)_ii (Rasmussen & Williams
        2006, section 5.4.2), under the hyper-parameters that all rows gave.
        """
        means, variances = [], []
        for known in self._regressions(problem, state):
            variance = 1 / torch.cholesky_inverse(known.factor).diagonal()
            pull = known.solve((known.y - known.mean)[:, None])[:, 0]
            means.append(known.y - pull * variance)
            variances.append(variance)
        return torch.stack(means, 1), torch.stack(variances, 1)

    def _with_evidence(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        total = torch.stack([known.log_evidence() for known in self._regressions(problem, state)]).sum()
        return {**state, EVIDENCE: (total + in_units(problem, len(state[X])))[None]}

    def _regressions(self, problem: Problem, state: Tensors) -> Iterator[Regression]:
        """Of every target, under the hyper-parameters of a state."""
        x, y, means = state[X], state[Y], self._means(problem, state[X])
        noise = _noise(problem, state)
        for t in range(y.shape[1]):
            hyper = Hyper(
                kernel=self._kernel(problem),
                lengthscales=state[LENGTHSCALES][t],
                scale=state[SCALE][t],
                linear=state[LINEAR][t],
                noise=noise[t],
            )
            yield Regression.of(hyper, x, y[:, t], means[t])

    def _kernel(self, problem: Problem) -> KernelName:
        """Of the stationary part, which a linear kernel has with s = 0."""
        if isinstance(problem.prior, GP):
            return problem.prior.kernel
        return "rbf" if self.kernel is None or self.kernel == "linear" else self.kernel

    def _means(self, problem: Problem, like: Tensor) -> Tensor:
        """Prior mean of each standardised target: a GP prior has 0 in the units of y, else it is 0 here: [T]."""
        likelihood = _gaussian(problem)
        shift, scale = like.new_tensor(likelihood.mean), like.new_tensor(likelihood.scale)
        return -shift / scale if isinstance(problem.prior, GP) else torch.zeros_like(shift)

    def _hyper(self, problem: Problem, x: Tensor, y: Tensor, seed: int, report: Report) -> list[Hyper]:
        """As the prior gives them, and the others by log evidence; of each target."""
        likelihood, means = _gaussian(problem), self._means(problem, x)
        if len(x) > self.evidence_rows:
            chosen = permutation(len(x), seed, _ROWS)[: self.evidence_rows].sort().values.to(x.device)
            x, y = x[chosen], y[chosen]
        evaluations, total = 0, self.starts * self.steps * y.shape[1]
        found = []

        def tick() -> None:
            nonlocal evaluations
            evaluations = min(evaluations + 1, total)  # the last line search may look once or twice more
            report(evaluations, total, f"log evidence {evaluations}", dict)

        for t in range(y.shape[1]):
            family = _Family.of(self, problem, x, t)
            rng = generator(seed, _STARTS, t)
            first = family.start(likelihood)
            more = torch.randn(self.starts - 1, len(first), generator=rng, dtype=torch.float64)
            phi = first.to(x)
            if len(first):
                starts = torch.cat([first[None], first + more]).to(x)
                phi = maximise(
                    family.hyper,
                    starts,
                    x,
                    y[:, t],
                    means[t],
                    hyperprior=None if problem.prior is None else family.hyperprior(len(first), x),
                    steps=self.steps,
                    tick=tick,
                )
            found.append(family.hyper(phi))
        report(total, total, "conditioning", dict)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Family:
    """The hyper-parameters of one target as a function of φ, the logarithms of those that are learnt, in units of the
    spread of its inputs and of y: [lengthscales, scale, linear, noise]."""

    kernel: KernelName
    lengthscales: Tensor  # [D] those given, or the spread of the inputs times √D
    scale: Tensor  # [] that given, or the spread of y
    noise: Tensor | None  # [] the variance, where it is known
    spread: Tensor  # [] of y
    n_lengthscales: int  # learnt: 0, 1 or D
    linear: bool

    @classmethod
    def of(cls, options: GaussianProcess, problem: Problem, x: Tensor, t: int) -> "_Family":
        likelihood, prior, n_inputs = _gaussian(problem), problem.prior, x.shape[1]
        spread = x.new_tensor(likelihood.spread[t])
        noise = None if likelihood.learns else likelihood.variance({}, x)[t]
        common: dict[str, Any] = {"kernel": options._kernel(problem), "noise": noise, "spread": spread}
        if isinstance(prior, GP):
            lengths = prior.lengths(n_inputs).to(x)
            if problem.scaling is not None:
                lengths = lengths / problem.scaling.scale.to(x).expand(problem.model.input_shape).flatten()
            scale = x.new_tensor(prior.scale / likelihood.scale[t])
            return cls(lengthscales=lengths, scale=scale, n_lengthscales=0, linear=False, **common)
        sd = x.std(0, correction=0)
        sd = torch.where(sd > 0, sd, torch.ones_like(sd))
        if n_inputs > LARGEST_ARD:
            sd = sd.square().mean().sqrt().expand(n_inputs)
        learnt = n_inputs if options.ard and n_inputs <= LARGEST_ARD else 1
        typical = sd * n_inputs**0.5  # as distances grow: at one sd rows of many inputs have nothing in common
        if options.kernel == "linear":
            return cls(lengthscales=typical, scale=torch.zeros_like(spread), n_lengthscales=0, linear=True, **common)
        return cls(lengthscales=typical, scale=spread, n_lengthscales=learnt, linear=options.linear, **common)

    def hyperprior(self, n: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and sd of every φ a priori: 0 and 1, of lengthscales beside a linear part 1 and 1.5: [Q], [Q]."""
        mean, sd = like.new_zeros(n), like.new_ones(n)
        if self.linear:
            mean[: self.n_lengthscales], sd[: self.n_lengthscales] = _LONG
        return mean, sd

    def start(self, likelihood: Gaussian) -> Tensor:
        """Its mean a priori, and for the noise what the caller gave, else a third of the spread of y: [Q]."""
        quiet = _QUIET
        if likelihood.noise is not None and self.noise is None:
            told = float(likelihood.start(dtype=torch.float64)[LOG_NOISE][0])
            quiet = told - math.log(float(self.spread))
        sizes = self.n_lengthscales + (self.n_lengthscales > 0) + self.linear
        found = torch.tensor([0.0] * sizes + [quiet] * (self.noise is None), dtype=torch.float64)
        if self.linear:
            found[: self.n_lengthscales] = _LONG[0]
        return found

    def hyper(self, phi: Tensor) -> Hyper:
        values, at = phi.exp(), self.n_lengthscales
        lengthscales, scale, linear = self.lengthscales, self.scale, torch.zeros_like(self.scale)
        if at:
            lengthscales, scale, at = lengthscales * values[:at], scale * values[at], at + 1
        if self.linear:
            linear, at = self.spread * values[at] / len(lengthscales) ** 0.5, at + 1
        noise = self.spread.square() * (values[at].square() + FLOOR) if self.noise is None else self.noise
        return Hyper(kernel=self.kernel, lengthscales=lengthscales, scale=scale, linear=linear, noise=noise)


def check_lengths(prior: GP, problem: Problem) -> None:
    """Refuse a prior with lengthscales of other inputs."""
    n_inputs = math.prod(problem.model.input_shape)
    if isinstance(prior.lengthscale, tuple) and len(prior.lengthscale) != n_inputs:
        raise InvalidOption(
            f"the GP prior has {len(prior.lengthscale)} lengthscales, and rows have {n_inputs} inputs; pass one for "
            "each, or one number for all"
        )


def _frequencies(kernel: KernelName, n: int, n_inputs: int, seed: int) -> Tensor:
    """n draws of the spectral density at unit lengthscale, evenly spread: [n, D]."""
    if not n:
        return torch.empty(0, n_inputs, dtype=torch.float64)
    if n_inputs > _SOBOL:
        u = torch.rand(n, n_inputs + 1, generator=generator(seed), dtype=torch.float64)
    else:
        engine: Any = torch.quasirandom.SobolEngine
        u = engine(n_inputs + 1, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return spectral_draws(kernel, u.clamp(2.0**-31, 1 - 2.0**-31))  # a sequence of 30 bits may hold a 0


def _flat(data: Data) -> tuple[Tensor, Tensor]:
    return data.x.flatten(1).to(torch.float64), data.y.to(torch.float64)


def _check_rows(n: int) -> None:
    if n > LARGEST:
        raise InvalidData(
            f"gp is for at most {LARGEST:,} rows, these are {n:,}: their covariance has as many entries squared; take "
            "a part of the rows, or laplace, swag or deep_ensemble, whose work grows with the rows alone"
        )
    if not n:
        raise InvalidData("gp needs at least one row to condition on, and here are none")


def _gaussian(problem: Problem) -> Gaussian:
    assert isinstance(problem.likelihood, Gaussian)
    return problem.likelihood


def _noise(problem: Problem, state: Tensors) -> Tensor:
    """Noise variance of each standardised target: [T]."""
    extra = {k: v[0].to(torch.float64) for k, v in state.items() if k == LOG_NOISE}
    return _gaussian(problem).variance(extra, state[X]).reshape(-1)


def _floor(likelihood: Gaussian) -> Tensor:
    """Least noise variance of each standardised target that can be learnt: [T]."""
    return FLOOR * torch.tensor(likelihood.spread, dtype=torch.float64).square()
