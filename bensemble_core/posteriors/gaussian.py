"""The factorised Gaussian q(θ) = Π N(θ_i | μ_i, σ_i²): its start, its draws, its divergence from the prior.

State, all with a leading axis of 1: μ under the parameters' own names, `log_sd/…` for the weights that have a
distribution, `prior_mean/…` and `prior_sd/…` (which broadcast against them) for the prior it was fitted under, and
after pruning `pruned/…` (true where a weight is exactly 0); `fitted/n_rows` counts the rows met under that prior and
those met before it, which are 0 but for an update (an earlier version kept the first number alone). A weight without
`log_sd/…` is a point.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidData, InvalidFile, InvalidModel, InvalidOption
from bensemble_core.io import above, below
from bensemble_core.likelihoods import LOG_NOISE
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.posteriors.noise_belief import NoiseBelief
from bensemble_core.posteriors.start import member_shapes, start_members
from bensemble_core.priors import Normal
from bensemble_core.randomness import derive, draw_seed
from bensemble_core.training.descent import Descent, Run, Trained, descend
from bensemble_core.types import Data, Problem, Report, Shapes, Snapshot, Tensors, silent

LOG_SD, PRIOR_MEAN, PRIOR_SD, PRUNED = "log_sd/", "prior_mean/", "prior_sd/", "pruned/"
N_ROWS = "fitted/n_rows"
LARGEST_DRAW = 1 << 28  # numbers in all draws of a step: a gigabyte in float32, and as much again for their gradient
_MAP_PHASE = "map_phase"
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@runtime_checkable
class Bound(Protocol):
    """The objective of a factorised Gaussian, under a prior that it may learn."""

    def prior_of(self, theta: Tensors) -> dict[str, Tensor]:
        """The prior that goes with θ, under its names in a state."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Earlier:
    """What rows before an update left, beside the q that is now the prior."""

    pruned: Tensors = field(default_factory=dict)  # true where a weight is 0 and stays so
    belief: NoiseBelief | None = None  # of a learnt noise


@dataclass(frozen=True, kw_only=True)
class Factorised(Descent):
    """A factorised Gaussian found by descent: its options, and all of a method but the bound that it maximises.

    A method adds its name, `samples` (draws a step) and options, and says by `run` what the descent is given.

    `update` takes q as the prior of new rows, of which alone N counts; points stay as they are, as does what was
    pruned. A learnt noise moves on with the new rows, all rows before having their say in it (see noise_belief.py).
    Where the weights are independent in each part's likelihood (a linear model with a diagonal XᵀX), updates end where
    one fit to all rows does, given the noise. Elsewhere each update forgets how the weights hang together: on a linear
    model the variances are still those of one fit to all rows, the means are not. Of 25 rows of a parabola in order,
    five at a time, they end up to 2.8 posterior sds away; `laplace` with structure="full" forgets nothing there.
    """

    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    init_sigma: float = field(
        default=0.02,
        metadata={
            "gt": 0,
            "le": 100,
            "search": ("log", 1e-3, 0.3),
            "description": "standard deviation of every weight at the start",
        },
    )
    map_epochs: int = field(
        default=0,
        metadata={"ge": 0, "le": 1_000_000, "description": "epochs of MAP training first, for the means to start from"},
    )
    bayesian_biases: bool = field(
        default=True, metadata={"description": "biases have a distribution; otherwise they are MAP estimates"}
    )
    bayesian_norms: bool = field(
        default=False,
        metadata={"description": "so have the weights of normalisation layers; otherwise they are MAP estimates"},
    )

    @property
    def name(self) -> str:
        raise NotImplementedError  # a method's own field

    @property
    def samples(self) -> int:
        raise NotImplementedError  # a method's own field

    def run(self, start: Run, prior: Tensors, earlier: Earlier | None = None) -> Run:
        """`start` with the objective, which is a `Bound`, and what goes with it; `earlier` is of an update."""
        raise NotImplementedError

    def check(self, problem: Problem) -> None:
        check_gaussian(problem, self, self.name, self.samples)

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
        """State: as this file's docstring has it. A warm start takes means and sds, and un-prunes."""
        seed = derive(draw_seed(rng), 0)
        theta, fixed = start_gaussian(problem, self, seed, warm=warm, device=data.x.device)
        prior = fixed_prior(theta, normal_prior(problem, self.name).scale)
        start = Run(problem=problem, data=data, theta=theta, fixed=fixed, options=self, seeds=[seed])
        run = self.run(start, prior)
        trained = descend_after_map(run, self.map_epochs, resume=resume, report=report)
        assert isinstance(run.objective, Bound)
        return {**trained.theta, **trained.fixed, **run.objective.prior_of(trained.theta), **of_rows(data)}

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
        """The state after new rows, with the old q as their prior."""
        if not below(LOG_SD, state):
            raise InvalidModel(f"{self.name} updates a state of its own; fit one first")
        seed = derive(draw_seed(rng), 0)
        prior, pruned = as_prior(state), below(PRUNED, state)
        moving, points = split_points(state)
        before = count_rows(state)
        belief = NoiseBelief.of(problem, state, before)
        if belief is not None:
            moving[LOG_NOISE] = points.pop(LOG_NOISE)
        start = Run(problem=problem, data=data, theta=moving, fixed=points, options=self, seeds=[seed])
        run = self.run(start, prior, Earlier(pruned=pruned, belief=belief))
        trained = descend(run, resume=resume, report=report)
        return {**trained.theta, **trained.fixed, **prior, **above(PRUNED, pruned), **of_rows(data, before)}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of the weights, one for each member and the whole pool."""
        return sample_gaussian(problem, state, n, rng=rng)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        return expected_gaussian(problem, state)

    def cost(self, n_parameters: int) -> int:
        return n_parameters * (self.samples * self.epochs + self.map_epochs)


def check_gaussian(problem: Problem, options: Factorised, method: str, samples: int) -> None:
    """Refuse a problem without a Normal prior, with no weight that may have a distribution, or with too many draws."""
    normal_prior(problem, method)
    names = set(bayesian_names(problem, options))
    size = sum(p.numel() for name, p in outline(problem.model).named_parameters() if name in names)
    if samples > 1 and samples * size > LARGEST_DRAW:  # one draw is no larger than the network itself
        raise InvalidOption(
            f"{method} holds the draws of a step at one time: {samples:,} samples of {size:,} weights are more than "
            f"{LARGEST_DRAW:,} numbers; pass samples={max(1, LARGEST_DRAW // size):,} or fewer, or a smaller network"
        )


def normal_prior(problem: Problem, method: str) -> Normal:
    """The prior of a problem, or a refusal: a divergence needs one."""
    if problem.prior is None:
        raise InvalidOption(
            f"{method} weighs the likelihood against a prior, and there is none; pass prior=Normal(scale=…), or use "
            "map for maximum likelihood"
        )
    if not isinstance(problem.prior, Normal):
        raise InvalidOption(
            f"{method} needs a Normal prior, got {type(problem.prior).__name__}; pass prior=Normal(scale=…), or use "
            "map or an ensemble"
        )
    return problem.prior


def start_gaussian(
    problem: Problem, options: Factorised, seed: int, *, warm: Tensors | None, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Means, points and `log_sd/…`, and the fixed tensors: from `warm` (any method's state), else from the weights."""
    theta, fixed = start_members(problem, [seed], warm=warm, from_weights=True, device=device)
    for name in bayesian_names(problem, options):
        start = torch.full_like(theta[name], math.log(options.init_sigma))
        old = None if warm is None else warm.get(LOG_SD + name)
        theta[LOG_SD + name] = start if old is None or old.shape != start.shape else old.to(start)
    return theta, fixed


def bayesian_names(problem: Problem, options: Factorised) -> list[str]:
    """The parameters that have a distribution; a refusal if there are none."""
    module = outline(problem.model)
    wanted = []
    for name in trainable_names(module):
        layer, _, own = name.rpartition(".")
        if isinstance(module.get_submodule(layer), _NORMS):
            chosen = options.bayesian_norms
        else:
            chosen = options.bayesian_biases or "bias" not in own
        if chosen:
            wanted.append(name)
    if not wanted:
        raise InvalidModel("no weight is left to have a distribution; unfreeze some, or set bayesian_biases=True")
    return wanted


def descend_after_map(run: Run, map_epochs: int, *, resume: Tensors | None, report: Report) -> Trained:
    """`descend`, after `map_epochs` epochs of MAP training of the means alone; one run to report and resume."""
    first, then = map_epochs, run.options.epochs
    if first and (resume is None or _MAP_PHASE in resume):

        def report_first(done: int, total: int, message: str, snapshot: Snapshot) -> None:
            marked = lambda: {**snapshot(), _MAP_PHASE: torch.tensor(True)}  # noqa: E731
            report(done, total * (first + then) // first, f"MAP: {message}", marked)

        means = Run(
            problem=run.problem,
            data=run.data,
            theta={k: v for k, v in run.theta.items() if "/" not in k or k in split_extra(run.theta)[1]},
            fixed=run.fixed,
            options=replace(run.options, epochs=first),
            seeds=run.seeds,
        )
        own = None if resume is None else {k: v for k, v in resume.items() if k != _MAP_PHASE}
        trained = descend(means, resume=own, report=report_first)
        run, resume = replace(run, theta={**run.theta, **trained.theta}, fixed=trained.fixed), None

    def report_then(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        report(done + total * first // then, total * (first + then) // then, message, snapshot)

    return descend(run, resume=resume, report=report_then)


def noise(theta: Tensors, n: int, *, rng: torch.Generator, but: frozenset[str] = frozenset()) -> dict[str, Tensor]:
    """ε ~ N(0, 1) for every weight with a distribution, n of each: [n, ...]."""
    drawn = {}
    for name, log_sd in sorted(below(LOG_SD, theta).items()):  # a file has an order of its own
        if name not in but:
            epsilon = torch.randn(n, *log_sd.shape[1:], generator=rng, dtype=log_sd.dtype, device=rng.device)
            drawn[name] = epsilon.to(log_sd.device)
    return drawn


def reparameterised(theta: Tensors, epsilon: Tensors, pruned: Tensors) -> dict[str, Tensor]:
    """θ = μ + σ ε, and 0 where pruned: [n, ...] for each name of ε."""
    drawn = {k: theta[k] + theta[LOG_SD + k].exp() * e for k, e in epsilon.items()}
    return {k: v.masked_fill(pruned[k], 0.0) if k in pruned else v for k, v in drawn.items()}


def kl_divergence(mean: Tensor, log_sd: Tensor, prior_mean: Tensor, prior_sd: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(m, s²)) = ½ [(σ² + (μ − m)²)/s² − 1] − log σ + log s, weight by weight."""
    ratio = ((2 * log_sd).exp() + (mean - prior_mean).square()) / prior_sd.square()
    return 0.5 * (ratio - 1) - log_sd + prior_sd.log()


def total_kl(theta: Tensors, prior: Tensors, pruned: Tensors) -> Tensor:
    """KL(q ‖ p) in nats; a pruned weight is 0 under both and adds nothing. []."""
    parts = []
    for name, log_sd in below(LOG_SD, theta).items():
        each = kl_divergence(theta[name], log_sd, prior[PRIOR_MEAN + name], prior[PRIOR_SD + name])
        if name in pruned:
            each = each.masked_fill(pruned[name], 0.0)
        parts.append(each.sum())
    return torch.stack(parts).sum()


def fixed_prior(theta: Tensors, scale: float) -> dict[str, Tensor]:
    """N(0, scale²) for every weight with a distribution."""
    prior = {}
    for name, log_sd in below(LOG_SD, theta).items():
        shape = [1] * log_sd.ndim
        prior[PRIOR_MEAN + name] = log_sd.new_zeros(shape)
        prior[PRIOR_SD + name] = log_sd.new_full(shape, scale)
    return prior


def as_prior(state: Tensors) -> dict[str, Tensor]:
    """q as the prior of what comes next."""
    sds = below(LOG_SD, state)
    return {
        **above(PRIOR_MEAN, {k: state[k].clone() for k in sds}),
        **above(PRIOR_SD, {k: v.exp() for k, v in sds.items()}),
    }


def prior_in(state: Tensors) -> dict[str, Tensor]:
    """The prior that a state was fitted under."""
    return {k: v for k, v in state.items() if k.startswith((PRIOR_MEAN, PRIOR_SD))}


def with_points(theta: Tensors, drawn: Tensors, n: int) -> dict[str, Tensor]:
    """n draws, and the rest of the network's tensors repeated for each: [n, ...]."""
    return {**{k: v.expand(n, *v.shape[1:]) for k, v in theta.items() if "/" not in k}, **drawn}


def log_prior_of_points(problem: Problem, theta: Tensors) -> Tensor | float:
    """log p of the trained weights without a distribution."""
    points = {k: v for k, v in theta.items() if "/" not in k and LOG_SD + k not in theta}
    return problem.prior.log_prob(points)[0] if points and problem.prior is not None else 0.0


def split_points(state: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """μ and `log_sd/…` of what has a distribution; and points, buffers and the likelihood's own."""
    moving = {k: v for k, v in state.items() if k.startswith(LOG_SD) or LOG_SD + k in state}
    rest = {k: v for k, v in state.items() if k not in moving}
    return moving, {k: v for k, v in rest.items() if "/" not in k or k.startswith("likelihood/")}


def sample_gaussian(problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
    """n draws; points and buffers are shared."""
    stacked = reparameterised(state, noise(state, n, rng=rng), below(PRUNED, state))
    network, extra = split_extra(state)
    shared = {k: v[0] for k, v in network.items() if "/" not in k and k not in stacked}
    return Ensemble(problem=problem, stacked=stacked, shared={**shared, **{k: v[0] for k, v in extra.items()}})


def expected_gaussian(problem: Problem, state: Tensors) -> Shapes:
    """Names and shapes of a state; which weights have a distribution, and what was pruned, the state says."""
    shapes = member_shapes(problem, 1)
    names = [n for n in trainable_names(outline(problem.model)) if LOG_SD + n in state]
    if not names:
        raise InvalidFile("a factorised Gaussian keeps a standard deviation of some weight, and here is none")
    found: Shapes = {LOG_SD + n: shapes[n] for n in names}
    for prefix in (PRIOR_MEAN, PRIOR_SD):
        for name in names:
            came = tuple(state[prefix + name].shape) if prefix + name in state else ()
            fits = len(came) == len(shapes[name]) and all(a in (1, b) for a, b in zip(came, shapes[name], strict=True))
            found[prefix + name] = came if fits else shapes[name]
    found |= {PRUNED + n: shapes[n] for n in names if PRUNED + n in state}
    alone = N_ROWS in state and state[N_ROWS].ndim == 1
    return shapes | found | {N_ROWS: (1,) if alone else (1, 2)}


def of_rows(data: Data, n_before: int = 0) -> dict[str, Tensor]:
    """How many rows a state has met, under its prior and before that."""
    return {N_ROWS: torch.tensor([[data.n_rows, n_before]], device=data.x.device)}


def count_rows(state: Tensors) -> int:
    """All rows a state has met; of one that an earlier version updated, the rows of that update alone."""
    return int(state[N_ROWS].sum())


def check_rows(state: Tensors, data: Data) -> None:
    """Raise unless these are as many rows as were fitted under the prior in the state."""
    expected = int(state[N_ROWS].flatten()[0])
    if data.n_rows != expected:
        raise InvalidData(
            f"the bound is on the evidence of the {expected} rows fitted under this prior, got {data.n_rows}; pass "
            "those as data=(x, y): after an update, the new rows alone"
        )


def one_group(problem: Problem, x: Tensor) -> Tensor:
    """The rows of a batch for one member, [B, ...], whether or not they came with an axis for it."""
    return x[0] if x.ndim > 1 + len(problem.model.input_shape) else x


def in_units(problem: Problem, n_rows: int) -> float:
    """What the log-density of n standardised targets gains when they are put in their own units."""
    scale: tuple[float, ...] = getattr(problem.likelihood, "scale", ())
    return -n_rows * sum(math.log(s) for s in scale)
