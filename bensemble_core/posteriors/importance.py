"""Importance sampling: draws of a Student-t around a fitted Gaussian, weighted to be of the posterior itself.

State: S draws of the uncertain parameters under their own names, [S, ...], and the rest of the network and of the
likelihood, [1, ...]; `importance/log_weights` [S], smoothed and normalised; `importance/centre/…` [1, ...], where the
Gaussian has its mean; `importance/log_evidence` [1]; and `diagnostics/…` [1].
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize, special
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.resampling import resample
from bensemble_core.errors import InvalidModel, InvalidOption, NotFinite
from bensemble_core.io import above, below
from bensemble_core.models.spec import outline
from bensemble_core.models.transforms import join
from bensemble_core.posteriors.gaussian import (
    LARGEST_DRAW,
    LOG_SD,
    bayesian_names,
    in_units,
    noise,
    normal_prior,
    reparameterised,
)
from bensemble_core.posteriors.head import find_head, head_alone
from bensemble_core.posteriors.laplace.laplace import Laplace
from bensemble_core.posteriors.laplace.state import from_state
from bensemble_core.posteriors.log_posterior import Layout, LogPosterior
from bensemble_core.posteriors.start import member_shapes
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.predictive.mixtures import effective_size
from bensemble_core.randomness import draw_seed, generator
from bensemble_core.training.descent import Descent
from bensemble_core.types import Aim, Data, Diagnostics, Problem, Progress, Report, Shapes, Snapshot, Tensors, silent

LARGEST_ALL = 1_000  # weights of subset="all"; in more dimensions one draw has all the weight
LARGEST_FULL = 2_000  # weights with a covariance in full; [P, P] in float64 is 32 MB
LARGEST_KHAT, LEAST_SIZE = 0.7, 100  # Vehtari et al. 2024, section 3; what makes a Monte Carlo average
_PREFIX, _DIAGNOSTICS = "importance/", "diagnostics/"
LOG_WEIGHTS, EVIDENCE, CENTRE = _PREFIX + "log_weights", _PREFIX + "log_evidence", _PREFIX + "centre/"
_VALUES = ("khat", "ess", "ess_share")
_NO_WEIGHT = -1e30  # stands for −inf in a state: files hold finite numbers alone
_WORST = 10.0  # of |k̂|, and where there is no tail to fit because one draw has all the weight
_FIT, _DRAW = 0, 1  # branches of the seed
_CLIMB = 50  # steps to the peak, of which most need a few
_AT_ONCE = 50  # draws in a step


@dataclass(frozen=True, kw_only=True)
class Importance(Descent):
    """Draws around a fitted Gaussian, with weights that make them draws of the posterior itself (Vehtari et al. 2024).

        θ_s ~ t_ν(μ, Σ),   log w_s = log p(D | θ_s) + log p(θ_s) − log t_ν(θ_s),   s = 1 … S,

    μ and Σ the mean and covariance of `laplace` or `mfvi`, t_ν the multivariate Student-t with Σ as its scale matrix:
    its tails are heavier than any posterior's under a Normal prior, so that no weight is unbounded. The largest
    weights are replaced by quantiles of a Pareto distribution fitted to them (Pareto-smoothed importance sampling,
    Vehtari et al. 2024), and `sample` takes different draws by their weights (see ensemble/resampling.py).

    `log_evidence` is log (1/S) Σ w_s of the weights as they were, given what is not drawn. `diagnostics`: `khat`, the
    tail index of the weights: above .7 so few of them decide an average that it is not to be trusted, and neither is
    its error; `ess` = 1 / Σ w² of the normalised weights, and `ess_share` = ess / S. k̂ is found from the draws, so it
    cannot see a mode of the posterior that no draw visits: it says how well the neighbourhood of the Gaussian is
    covered, not that there is no other place.

    `subset="last_layer"`: the posterior of the last linear layer to run given the rest of the network at μ, which is
    computed once for all draws; "all" is for up to 1,000 weights, since the share of draws that count falls with every
    dimension. `laplace` gives a full covariance up to 2,000 weights, else Kronecker factors, at the peak itself, to
    which the end of the descent is moved (but for `epochs=0`); `mfvi` the factors of those weights, whose distribution
    took that of the others into account. Learnt noise is a point estimate, as are
    the weights of normalisation layers with `mfvi`. Departures: a Student-t where the paper leaves the proposal open;
    one threshold of k̂ for every S. Needs arviz-stats.
    """

    name: Literal["importance"] = "importance"
    proposal: Literal["laplace", "mfvi"] = field(
        default="laplace", metadata={"description": "the Gaussian that the draws are made around"}
    )
    subset: Literal["all", "last_layer"] = field(
        default="last_layer", metadata={"description": "which parameters are uncertain"}
    )
    samples: int = field(
        default=2000, metadata={"ge": 100, "le": 1_000_000, "description": "draws to weigh, of which members are taken"}
    )
    df: float = field(
        default=5.0,
        metadata={"ge": 1, "le": 1000, "description": "degrees of freedom of the Student-t; fewer are heavier tails"},
    )
    aims: ClassVar[Aim] = "exact"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        if find_spec("arviz_stats") is None:
            raise InvalidOption(
                "importance smooths its weights by arviz-stats, which is not installed: pip install arviz-stats"
            )
        normal_prior(problem, self.name)
        size = _count(problem, self.names(problem))
        if self.subset == "all" and size > LARGEST_ALL:
            raise InvalidOption(
                f'importance: subset="all" is for at most {LARGEST_ALL:,} weights, these are {size:,}: in so many '
                'dimensions one draw has all the weight; use subset="last_layer", or laplace or mfvi as they are'
            )
        if self.samples * size > LARGEST_DRAW:
            raise InvalidOption(
                f"importance keeps all its draws: {self.samples:,} samples of {size:,} weights are more than "
                f"{LARGEST_DRAW:,} numbers; pass fewer samples, at most {LARGEST_DRAW // size:,}, or use laplace, "
                "which keeps none"
            )
        self._gaussian(problem).check(problem)

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
        """State: as this file's docstring has it. Only the fit of the Gaussian goes on from a snapshot."""
        seed, noted = draw_seed(rng), _Noted(report)
        if warm is not None and below(CENTRE, warm):
            warm = self.unfold(problem, warm)
        gaussian_of = self._gaussian(problem)
        state = gaussian_of.fit(
            problem, data, rng=generator(seed, _FIT), warm=warm, resume=resume or None, report=noted
        )
        names = self.names(problem)
        target = posterior_of(problem, _plain(state), names, data, noted.progress)
        if isinstance(gaussian_of, Laplace) and self.epochs and data.n_rows:
            peak = find_peak(problem, state, target, noted.progress)
            state = replace(gaussian_of, epochs=0).fit(
                problem, data, rng=generator(seed, _FIT), warm=peak, report=noted.afterwards
            )
        gaussian = _of_laplace(problem, state) if self.proposal == "laplace" else _of_mfvi(state, names)
        drawn, log_proposal = gaussian.draw(self.samples, self.df, generator(seed, _DRAW))
        log_joint = log_joints(target, drawn, noted.progress)
        if bool(log_joint.isnan().any()):
            raise NotFinite(
                f"the network gives no number for {int(log_joint.isnan().sum())} of {self.samples} draws; raise df "
                f"(now {self.df:g}) for lighter tails, or use a tighter prior"
            )
        raw = log_joint - log_proposal
        if not bool((raw > -math.inf).any()):
            raise NotFinite("no draw has any probability under the posterior; train for longer, or use a wider prior")
        log_weights, khat = smooth(raw)
        size = effective_size(log_weights, self.samples)
        values = {"khat": khat, "ess": size, "ess_share": size / self.samples}
        one = {k: v[None] for k, v in gaussian.centre.items()}
        return {
            **{k: v for k, v in one.items() if k not in drawn},
            **drawn,
            **above(CENTRE, {k: one[k] for k in names}),
            LOG_WEIGHTS: log_weights.clamp(min=_NO_WEIGHT),
            EVIDENCE: (log_mean(raw) + in_units(problem, data.n_rows))[None],
            **{_DIAGNOSTICS + k: raw.new_tensor([v]) for k, v in values.items()},
        }

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """min(n, S) different draws with weights of the right expectation; what is not drawn is shared."""
        rows, log_weights = resample(state[LOG_WEIGHTS], n, rng)
        names = self.names(problem)
        shared = {k: v[0] for k, v in self.unfold(problem, state).items() if k not in names}
        stacked = {k: state[k][rows] for k in names}
        return Ensemble(problem=problem, stacked=stacked, shared=shared, log_weights=log_weights)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        shapes, names = member_shapes(problem, 1), self.names(problem)
        drawn = {name: (self.samples, *shapes[name][1:]) for name in names}
        kept: Shapes = {LOG_WEIGHTS: (self.samples,), EVIDENCE: (1,)}
        kept |= {CENTRE + name: shapes[name] for name in names} | {_DIAGNOSTICS + name: (1,) for name in _VALUES}
        return shapes | drawn | kept

    def cost(self, n_parameters: int) -> int:
        """Of the Gaussian and its peak, and a pass for every draw; a last layer alone takes less."""
        return n_parameters * (self.epochs + 2 + _CLIMB + self.samples)

    def log_evidence(self, problem: Problem, state: Tensors) -> float:
        """Of the labels in their own units, given what is not drawn."""
        return float(state[EVIDENCE][0])

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        values = {name: float(state[_DIAGNOSTICS + name][0]) for name in _VALUES}
        return Diagnostics(values=values, warnings=_warnings(values["khat"], values["ess"], self.samples))

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """The network at the mean of the Gaussian, [1, ...]."""
        kept = {k: v for k, v in state.items() if "/" not in k or k.startswith("likelihood/")}
        return {**kept, **below(CENTRE, state)}

    def names(self, problem: Problem) -> tuple[str, ...]:
        """The uncertain parameters, in the model's order."""
        if self.proposal == "laplace":
            return Laplace(subset=self.subset).names(problem)
        names = bayesian_names(problem, MFVI())
        if self.subset == "last_layer":
            head = find_head(problem)
            names = [name for name in names if name in (join(head, "weight"), join(head, "bias"))]
        if not names:
            raise InvalidModel("importance: no parameter of the last layer requires a gradient; unfreeze some")
        return tuple(names)

    def _gaussian(self, problem: Problem) -> Laplace | MFVI:
        """What is fitted first, with the options of the descent as they are here."""
        options = {f.name: getattr(self, f.name) for f in fields(Descent)}
        if self.proposal == "mfvi":
            return MFVI(**options)
        full = _count(problem, self.names(problem)) <= LARGEST_FULL
        return Laplace(structure="full" if full else "kron", subset=self.subset, predictive="sampled", **options)


def posterior_of(
    problem: Problem, centre: Tensors, names: Sequence[str], data: Data, progress: Progress
) -> LogPosterior:
    """log p(D | θ) + log p(θ) of the named weights in float64, side by side in that order; the rest is at the centre.

    Of the last layer alone what comes before it is computed once, and the layer runs in float64.
    """
    every = {k: v.double() if k in names or k.startswith("likelihood/") else v for k, v in centre.items()}
    whole = _given(problem, every, names, data)
    if not data.n_rows or not _is_of_head(problem, names):
        return whole
    head, rows, renamed = head_alone(problem, centre, data, progress)
    if tuple(rows.x.shape[1:]) != head.model.input_shape or not set(renamed.values()) <= set(centre):
        return whole  # a layer of several places in a row, or with a weight that is computed from others
    alone = _given(
        replace(head, dtype=torch.float64),
        {new: every[old].double() for new, old in renamed.items()},
        [new for name in names for new, old in renamed.items() if old == name],
        replace(rows, x=rows.x.double()),
    )
    # elsewhere than at the centre: there a weight that is tied to the trunk's would not show
    theta = whole.layout.join({k: v[None] for k, v in every.items()}) + 0.1
    expected, found = whole.outputs(theta, 0, data.x[:8]), alone.outputs(theta, 0, alone.data.x[:8])
    close = 1e-4 * max(1.0, float(expected.abs().max()))
    same = found.shape == expected.shape and float((found - expected).abs().max()) <= close
    return alone if same else whole


def log_joints(target: LogPosterior, drawn: Tensors, progress: Progress) -> Tensor:
    """log p(D | θ_s) + log p(θ_s) of every draw: named [S, ...] -> [S]."""
    n_draws = len(next(iter(drawn.values())))
    step = 1 if target.members.mode == "loop" else _AT_ONCE
    found = []
    for start in range(0, n_draws, step):
        done = min(n_draws, start + step)
        target.tick = partial(progress, done, n_draws, f"weighed {done} of {n_draws} draws")
        found.append(target.log_density(torch.cat([v[start:done].double().flatten(1) for v in drawn.values()], 1)))
    return torch.cat(found)


def find_peak(problem: Problem, state: Tensors, target: LogPosterior, progress: Progress) -> dict[str, Tensor]:
    """The network of a state of `laplace`, [1, ...], its uncertain weights moved to the peak of their posterior.

    A descent ends near the peak; half a standard deviation off in each of d directions costs a factor e^(d/4) of the
    draws that count. L-BFGS (Liu & Nocedal 1989) in z with θ = θ* + P^(−½) z, where the curvature is nearly 1 in every
    direction, so that a few steps do: of a linear layer with Gaussian noise, one.
    """
    names, blocks, deltas = from_state(problem, state, factored=False)
    one = {k: v[None] for k, v in _plain(state).items()}
    layout = Layout.of({name: one[name] for name in names})
    start = layout.join(one).double()
    shapes = [block.noise(1, generator(0)).shape for block in blocks]
    sizes = [shape.numel() for shape in shapes]

    def place(z: Tensor) -> Tensor:
        parts = zip(blocks, torch.split(z, sizes), shapes, strict=True)
        offsets = {k: v for block, part, shape in parts for k, v in block.offsets(deltas, part.reshape(shape)).items()}
        return start + layout.join(offsets)

    steps = count(1)

    def value_and_slope(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        done = min(_CLIMB, next(steps))
        target.tick = partial(progress, done, _CLIMB, f"step {done} to the peak")
        z = torch.from_numpy(values.copy()).to(start.device).requires_grad_()
        with torch.enable_grad():
            theta = place(z)
            value, slope = target(theta)
        (slope,) = torch.autograd.grad(theta, z, slope)
        return -float(value), -slope.cpu().numpy()

    found = optimize.minimize(
        value_and_slope, np.zeros(start.shape[1]), jac=True, method="L-BFGS-B", options={"maxfun": _CLIMB}
    )
    if not np.isfinite(found.fun):
        return one
    with torch.no_grad():
        peak = layout.split(place(torch.from_numpy(found.x).to(start.device)))
    return {**one, **{name: peak[name].to(one[name].dtype) for name in names}}


def smooth(log_weights: Tensor) -> tuple[Tensor, float]:
    """Normalised log-weights with their upper tail smoothed, and its index k̂ (Vehtari et al. 2024): [S] -> [S], k̂.

    The ⌊3√S⌋ largest (a fifth, up to 225) become the quantiles of a generalised Pareto distribution fitted to them, and
    none is raised above the largest. k̂ is cut at ±10, and is 10 where nearly all weights are 0 beside the largest, so
    that there is nothing to fit; where the largest are all the same there is no tail, and it is −10.
    """
    normalised = log_weights.double().log_softmax(0)
    values = normalised.cpu().numpy()
    if np.ptp(np.sort(values)[-_tail(len(values)) :]) == 0:
        return normalised, -_WORST
    library: Any = import_module("arviz_stats.base")  # half a second, and the only place that needs it
    with np.errstate(all="ignore"):
        smoothed, found = library.array_stats.psislw(-values)  # it takes minus the logarithms
    if np.isnan(smoothed).any() or not np.isfinite(found):  # it then has a k̂ near 0, of a tail that rounds to 0
        return normalised, _WORST
    return torch.from_numpy(np.asarray(smoothed)).to(normalised), min(max(float(found), -_WORST), _WORST)


def log_mean(log_weights: Tensor) -> Tensor:
    """log (1/S) Σ w_s, the log evidence of weights p(D, θ_s)/q(θ_s): [S] -> []."""
    return log_weights.logsumexp(0) - math.log(len(log_weights))


def student_t_log_density(squares: Tensor, n_weights: int, df: float, log_det: float) -> Tensor:
    """log t_ν(θ | μ, P⁻¹) with squares = (θ − μ)ᵀ P (θ − μ), log_det = log |P|, θ of `n_weights` entries: [S]."""
    half = 0.5 * (df + n_weights)
    constant = math.lgamma(half) - math.lgamma(0.5 * df) - 0.5 * n_weights * math.log(math.pi * df) + 0.5 * log_det
    return constant - half * torch.log1p(squares / df)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Gaussian:
    """N(μ, P⁻¹) as it was fitted."""

    centre: dict[str, Tensor]  # the network at μ and the likelihood's own, without a leading axis
    log_det: float  # log |P|
    offsets: Callable[[int, torch.Generator], tuple[dict[str, Tensor], Tensor]]  # n of θ − μ, and of its zᵀz: [n]

    def draw(self, n: int, df: float, rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        """n draws of the Student-t, θ = μ + (θ_Gauss − μ) √(ν/χ²) with one χ²_ν a draw, and their log-density [n].

        χ² by its quantiles: torch's own draws of it know no generator.
        """
        offsets, squares = self.offsets(n, rng)
        u = torch.rand(n, generator=rng, dtype=torch.float64)
        chi2 = torch.from_numpy(np.asarray(2 * special.gammaincinv(0.5 * df, 1 - u.numpy()))).to(squares)
        factor = (df / chi2).sqrt()
        n_weights = sum(v[0].numel() for v in offsets.values())
        drawn = {}
        for name, offset in offsets.items():
            mean = self.centre[name]
            drawn[name] = (mean.double() + factor.reshape(-1, *[1] * mean.ndim) * offset).to(mean.dtype)
        return drawn, student_t_log_density(squares * factor.square(), n_weights, df, self.log_det)


def _of_laplace(problem: Problem, state: Tensors) -> _Gaussian:
    names, blocks, deltas = from_state(problem, state, factored=False)

    def offsets(n: int, rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        found: dict[str, Tensor] = {}
        squares = torch.zeros(n, dtype=torch.float64)
        for block in blocks:
            z = block.noise(n, rng)
            squares = squares + z.flatten(1).square().sum(1)
            found |= block.offsets(deltas, z)
        return {name: found[name] for name in names}, squares.to(found[names[0]].device)

    log_det = float(torch.stack([block.log_det(deltas) for block in blocks]).sum())
    return _Gaussian(centre=_plain(state), log_det=log_det, offsets=offsets)


def _of_mfvi(state: Tensors, names: tuple[str, ...]) -> _Gaussian:
    own = {LOG_SD + name: state[LOG_SD + name].double() for name in names}
    own |= {name: torch.zeros_like(own[LOG_SD + name]) for name in names}

    def offsets(n: int, rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        z = noise(own, n, rng=rng)
        found = reparameterised(own, z, {})
        squares = torch.stack([values.flatten(1).square().sum(1) for values in z.values()]).sum(0)
        return {name: found[name] for name in names}, squares

    log_det = -2 * sum(float(own[LOG_SD + name].sum()) for name in names)
    return _Gaussian(centre=_plain(state), log_det=log_det, offsets=offsets)


def _given(problem: Problem, centre: Tensors, names: Sequence[str], data: Data) -> LogPosterior:
    """The log posterior of several draws of the named weights, given all else at the centre."""
    theta = {k: centre[k].expand(_AT_ONCE, *centre[k].shape) for k in names}
    return LogPosterior(problem, data, theta, {}, {k: v for k, v in centre.items() if k not in names})


def _is_of_head(problem: Problem, names: Sequence[str]) -> bool:
    try:
        head = find_head(problem)
    except InvalidModel:
        return False
    return set(names) <= {join(head, "weight"), join(head, "bias")}


def _plain(state: Tensors) -> dict[str, Tensor]:
    return {k: v[0] for k, v in state.items() if "/" not in k or k.startswith("likelihood/")}


def _count(problem: Problem, names: tuple[str, ...]) -> int:
    return sum(p.numel() for name, p in outline(problem.model).named_parameters() if name in names)


def _tail(n_draws: int) -> int:
    return math.floor(3 * math.sqrt(n_draws)) if n_draws > 225 else n_draws // 5


def _warnings(khat: float, size: float, n_draws: int) -> tuple[str, ...]:
    found = []
    if khat > LARGEST_KHAT:
        found.append(
            f"importance weights have a tail index k̂ of {khat:.2f}, above {LARGEST_KHAT}: the Gaussian does not cover "
            "the posterior, and averages are not to be trusted; train for longer, take fewer weights "
            '(subset="last_layer") or another method'
        )
    if round(size) < LEAST_SIZE:
        found.append(
            f"{n_draws} weighted draws count as {size:.1f}, fewer than {LEAST_SIZE}: averages are rough; take more "
            "samples, or fewer weights"
        )
    return tuple(found)


class _Noted:
    """Passes reports on, and keeps the last snapshot for the weighing that follows the fit."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.snapshot: Snapshot = dict

    def __call__(self, done: int, total: int, message: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.report(done, total, message, snapshot)

    def afterwards(self, done: int, total: int, message: str, snapshot: Snapshot) -> None:
        """Of a fit whose own snapshots are not to go on from."""
        self.progress(done, total, message)

    def progress(self, done: int, total: int, message: str) -> None:
        self.report(done, total, message, self.snapshot)
