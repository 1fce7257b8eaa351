"""Functional variational inference: a network's weights under a prior over functions.

State, with a leading axis of 1: μ under the parameters' own names and `log_sd/…` of each; and, where the prior was
found by log evidence, `fbnn/lengthscales` [1, T, D] and `fbnn/scale` [1, T] of each target, in standardised units; and
`diagnostics/steps` [1].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import Members, gather
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel, InvalidOption, NotFinite
from bensemble_core.kernels import correlation, squared_distances
from bensemble_core.likelihoods import LOG_NOISE, Categorical, Gaussian
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.models.transforms import Linearised
from bensemble_core.posteriors.function_space import gp
from bensemble_core.posteriors.gaussian import LOG_SD, noise, one_group, reparameterised
from bensemble_core.posteriors.start import (
    check_linearises,
    check_memory,
    check_trainable,
    member_shapes,
    start_members,
)
from bensemble_core.priors import GP, FunctionSamples
from bensemble_core.randomness import borrowed, derive, draw_seed, generator, permutation
from bensemble_core.training.descent import COUNTED_ROWS, Descent, Run, count_steps, descend
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import (
    Aim,
    Data,
    Diagnostics,
    FunctionPrior,
    Over,
    Problem,
    Report,
    Shapes,
    Snapshot,
    Tensors,
    over,
    silent,
)

LENGTHSCALES, SCALE, STEPS = "fbnn/lengthscales", "fbnn/scale", "diagnostics/steps"
_FEW_STEPS = 1_000
_SEARCHED = 1_000  # most rows by whose log evidence a prior is found
_SEARCH, _ROWS = 1, 2  # branches of the seed
_WEIGHTS, _MEASURED, _PRIOR = 0, 1, 2  # and of a step's
_BLOCK = 64  # rows whose Jacobian is held at one time, after the fit

Moments: TypeAlias = tuple[Tensor, Tensor]  # mean [O, R] and covariance [O, R, R] of each output, in float64
PriorMoments: TypeAlias = Callable[[Tensor, int], Moments]  # of standardised rows [R, ...]; the seed is of a step


@dataclass(frozen=True, kw_only=True)
class FBNN(Descent):
    """A network whose functions, not weights, are held to a prior, such as a Gaussian process (Sun et al. 2019).

    q(θ) = N(μ, diag σ²) over the weights, seen through the network linearised at μ, f(x) + J(x) (θ − μ), is Gaussian at
    any rows. It maximises

        L = Σ_n E_q log p(y_n | f(x_n)) − Σ_o KL( N(f(X; μ), J diag σ² Jᵀ + ε I)_o ‖ N(m(X), K(X, X) + ε I)_o ),

    on batches as (N/B) Σ_batch; X are `measurement` fresh rows and those of the batch, o runs over the outputs. A fresh
    row is one of the batch moved in each input by at most `widen` times the range of that input, evenly: the prior
    holds as far as that, and nothing is said beyond. The KL is exact, in float64. Of Gaussian noise the expectation is
    in closed form; of classes it is an average over `samples` draws. Members are linearised, so that predictions, the
    expectation and the KL are of the same q.

    ε is `jitter` times the average prior variance at X, and belongs to the answer: q has the rank of J, the prior of a
    smooth kernel almost none left at rows that lie close, and where the jitter falls or rows are added the KL grows
    without a limit (Burt et al. 2020). L is for that reason no bound on log p(D).

    prior=bc.GP(…) or any `FunctionPrior`, in the units of x and y handed in; of classes, of the logits.
    prior=bc.FunctionSamples(draw) is known by mean and covariance of fresh draws in each step. Without either, for
    numbers, the GP is found as `gp` finds its own, by log evidence of at most 1,000 rows, and a learnt noise starts at
    what was found with it: functions have no unit scale that a default could be, and the rows can tell. Classes have no
    such evidence, and there a prior has to be named.

    Departures. Sun et al. estimate the gradient of the KL between implicit distributions by a spectral Stein estimator;
    here the network is linearised (as in Rudner et al. 2022), which makes q Gaussian and the KL exact, and a prior of
    samples is taken for the Gaussian with its moments. Outputs count one by one, without what q makes them share.

    On six rows under an RBF prior two layers of 50 tanh units came within .04 of the exact mean and 4 % of its sd,
    between the rows and 1.3 beyond them, for each of six seeds, in 2,000 steps with lr=0.03, widen=0.75 and
    measurement=24: the factorised q is no limit there, for with 2,701 weights J diag σ² Jᵀ still takes many shapes. Far
    from the rows the mean comes last: with 16 fresh rows it was up to .17 off at 1.3 beyond them, and lr=0.1 went
    astray. With widen=1 and 16 fresh rows, the defaults, the mean was up to .11 off and the sd 3 % (six seeds); twice
    as many rows, spread evenly, had a largest error of .05 on average in place of .08, for a quarter more time, and no
    smaller one across the gap of benchmarks/gap.py. One layer of 50 is too stiff, its sd between the rows up to 26 %
    too small. Take a smooth activation for a smooth kernel: functions with kinks cost so much that a ReLU network gives
    up its spread (across the gap of benchmarks/gap.py an sd of .06 to .09 in place of .30, where tanh has .29 to .32,
    three seeds). There jitter=1e-3 brings .11 to .25, and 32 fresh rows nothing. Where noise is 1 % of the prior's
    scale sds between rows are too small with tanh, too: .015 in place of .040, and .007 with jitter=1e-3.

    Few rows make few steps an epoch, hence more epochs and a larger lr by default than of other methods: on 70 rows of
    sin 2x with two inputs the error of 100 epochs with lr=0.01 was .20, with lr=0.03 .16, of 500 such epochs .15 and of
    1,000 .14. `diagnostics` warns below 1,000 steps.

    Normalisation layers use the statistics that they start with, and dropout is off. A step holds a number for every
    row, output and weight, and costs as much.
    """

    name: Literal["fbnn"] = "fbnn"
    epochs: int = field(default=1_000, metadata={"ge": 0, "le": 1_000_000, "description": "passes over the rows"})
    lr: float = field(
        default=0.03,
        metadata={"gt": 0, "le": 100, "search": ("log", 1e-3, 1e-1), "description": "learning rate at the start"},
    )
    measurement: int = field(
        default=16, metadata={"ge": 0, "le": 10_000, "description": "fresh rows a step, at which q meets the prior"}
    )
    widen: float = field(
        default=1.0,
        metadata={"ge": 0, "le": 100, "description": "how far from a row they lie at most, in ranges of each input"},
    )
    jitter: float = field(
        default=1e-4,
        metadata={
            "gt": 0,
            "le": 1,
            "description": "variance added to prior and q at every row, as a share of the prior's",
        },
    )
    samples: int = field(default=8, metadata={"ge": 1, "le": 10_000, "description": "draws a step, of classes"})
    init_sigma: float = field(
        default=0.02,
        metadata={
            "gt": 0,
            "le": 100,
            "search": ("log", 1e-3, 0.3),
            "description": "standard deviation of every weight at the start",
        },
    )
    aims: ClassVar[Aim] = "none"  # on a linear model the mean field, but not under a prior over weights
    over: ClassVar[Over] = "functions"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        likelihood = problem.likelihood
        prior: object = problem.prior
        if not isinstance(likelihood, (Gaussian, Categorical)):
            raise InvalidOption(
                f"fbnn is for classes, or numbers with noise of one level, got {type(likelihood).__name__}: its second "
                'output is a variance, of which no prior over functions speaks; pass likelihood="gaussian"'
            )
        if problem.model.integers:
            raise InvalidModel("fbnn moves rows about, and these are indices into an embedding; pass the embedded rows")
        if isinstance(prior, FunctionSamples):
            if prior.is_lost:
                raise InvalidOption(
                    "fbnn: the prior was a function that draws functions, and a file does not hold it; pass it again, "
                    "fit(…, warm=fitted, prior=FunctionSamples(draw))"
                )
        elif over(prior) == "functions":
            if not isinstance(prior, FunctionPrior):
                raise InvalidOption(f"fbnn needs mean and gram of a prior over functions, got {type(prior).__name__}")
            if isinstance(prior, GP):
                gp.check_lengths(prior, problem)
        elif not isinstance(likelihood, Gaussian):
            raise InvalidOption(
                "fbnn of classes needs a prior over the logits, which have no evidence in closed form to find one by; "
                "pass prior=GP(lengthscale=…, scale=…) or FunctionSamples(draw)"
            )
        check_trainable(self.name, problem)
        names = trainable_names(outline(problem.model))
        check_linearises(self.name, problem, names, "use mfvi, or gp, which needs no network")
        size = sum(p.numel() for p in outline(problem.model).parameters() if p.requires_grad)
        rows = self.measurement + 1  # at the least: a batch of more than all rows is all of them
        advice = "pass a smaller measurement or network"
        check_memory(self.name, "a slope for every row, output and weight", rows * likelihood.n_outputs * size, advice)
        check_memory(self.name, "covariances of its rows", 2 * likelihood.n_outputs * rows**2, advice)
        if isinstance(prior, FunctionSamples):
            held = prior.draws * rows * likelihood.n_outputs
            check_memory(self.name, "draws of the prior", held, "draw fewer, or a smaller measurement")
        if isinstance(likelihood, Categorical):
            check_memory(self.name, "draws of the weights", self.samples * size, "pass fewer samples")

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
        """State: as this file's docstring has it. A warm start takes means and sds; a prior is found again."""
        self._check_batch(problem, data.n_rows)
        seed = derive(draw_seed(rng), 0)
        theta, fixed = start_members(problem, [seed], warm=warm, from_weights=True, device=data.x.device)
        for name in [name for name in theta if "/" not in name]:
            start = torch.full_like(theta[name], math.log(self.init_sigma))
            old = None if warm is None else warm.get(LOG_SD + name)
            theta[LOG_SD + name] = start if old is None or old.shape != start.shape else old.to(start)
        found, n_before = {}, 0
        if over(problem.prior) == "weights":
            n_before = _SEARCH_COST.starts * _SEARCH_COST.steps * problem.likelihood.n_outputs
            if resume:
                found = {k: resume[f"fixed/{k}"].to(data.x.device) for k in _FOUND if f"fixed/{k}" in resume}
            if len(found) < len(_FOUND):
                total = n_before + self.epochs
                searched = _find_prior(problem, data, seed, lambda d, m: report(min(d, n_before), total, m, dict))
                found = {k: searched[k] for k in _FOUND}
                if LOG_NOISE in theta and not (warm is not None and LOG_NOISE in warm):
                    theta[LOG_NOISE] = searched[LOG_NOISE].to(theta[LOG_NOISE])

        def report_after(done: int, total: int, message: str, snapshot: Snapshot) -> None:
            report(n_before + done, n_before + total, message, snapshot)

        run = Run(
            problem=problem,
            data=data,
            theta=theta,
            fixed={**fixed, **found},
            options=self,
            seeds=[seed],
            objective=self.objective(problem, data.x, {**theta, **fixed, **found}),
        )
        trained = descend(run, resume=resume or None, report=report_after)  # {} is a search that was stopped
        steps = float(self.epochs * count_steps(data.n_rows, self.batch_size))
        before = torch.zeros(1, dtype=torch.float64) if warm is None or STEPS not in warm else warm[STEPS]
        return {**trained.theta, **trained.fixed, STEPS: before.to(data.x.device) + steps}

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        """`steps` of the descent, those of a warm start among them, if `patience` ended none early."""
        steps = float(state[STEPS][0])
        if steps >= _FEW_STEPS:
            return Diagnostics(values={"steps": steps})
        warning = (
            f"fbnn was trained for {steps:,.0f} steps and takes some thousand until its functions are those of the "
            "rows and the prior: raise epochs, or take smaller batches (batch_size)."
        )
        return Diagnostics(values={"steps": steps}, warnings=(warning,))

    def objective(self, problem: Problem, x: Tensor, state: Tensors) -> "FunctionalElbo":
        """What is maximised, with fresh rows around those of x [N, ...]; `state` has at least the fixed tensors."""
        reach = x.amax(0) - x.amin(0) if len(x) else torch.zeros_like(x.sum(0))
        return FunctionalElbo(
            network=_Network.of(problem, state),
            prior=_prior_moments(problem, state),
            reach=self.widen * reach,
            measurement=self.measurement,
            jitter=self.jitter,
            samples=self.samples,
        )

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of the weights, each a function that is linear in them around μ, which is shared."""
        stacked = reparameterised(state, noise(state, n, rng=rng), {})
        own = {k: v[0] for k, v in state.items() if not k.startswith((LOG_SD, "fbnn/", "diagnostics/"))}
        return Ensemble(problem=problem, stacked=stacked, shared=own, transform=Linearised())

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        shapes = member_shapes(problem, 1)
        shapes |= {LOG_SD + name: shapes[name] for name in trainable_names(outline(problem.model))} | {STEPS: (1,)}
        if over(problem.prior) == "functions":
            return shapes
        n_targets, n_inputs = problem.likelihood.n_outputs, math.prod(problem.model.input_shape)
        return shapes | {LENGTHSCALES: (1, n_targets, n_inputs), SCALE: (1, n_targets)}

    def cost(self, n_parameters: int) -> int:
        """As weights whose training would take as long, 6 products a row and epoch.

        A step has R rows, b of a batch (64 at the most, for there may be few) and `measurement` fresh ones: slopes of
        each, 3 R P; their covariance and its slope, R² P; factors of it and of the prior's, R³; and draws, b S P.
        """
        batch = min(self.batch_size, COUNTED_ROWS)
        rows = batch + self.measurement
        step = (3 * rows + rows**2 + batch * self.samples) * n_parameters + rows**3
        return self.epochs * step // batch + _SEARCH_COST.cost(n_parameters)

    def function_covariance(self, problem: Problem, state: Tensors, x: Tensor) -> Tensor:
        """Covariance of the linearised outputs of standardised rows: logits [N, C, C] or means [N, T, T]."""
        network = _Network.of(problem, state)
        found = []
        for block in torch.split(x, _BLOCK):
            with torch.enable_grad():
                slopes = network.look(state, block)[1].detach()  # [O, R, P]
            found.append(torch.einsum("orp,qrp->roq", slopes, slopes))
        covariance = torch.cat(found)
        if isinstance(problem.likelihood, Gaussian):
            scale = covariance.new_tensor(problem.likelihood.scale)
            covariance = covariance * scale[:, None] * scale
        return covariance

    def _check_batch(self, problem: Problem, n_rows: int) -> None:
        """`check` with the rows of a batch, which are known now."""
        size = sum(p.numel() for p in outline(problem.model).parameters() if p.requires_grad)
        rows = self.measurement + min(self.batch_size, n_rows)
        held, advice = rows * problem.likelihood.n_outputs, "pass a smaller batch_size, measurement or network"
        check_memory(self.name, "a slope for every row, output and weight", held * size, advice)
        check_memory(self.name, "covariances of its rows", 2 * held * rows, advice)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionalElbo:
    """−L/N as an objective of the descent, for one member."""

    network: "_Network"
    prior: PriorMoments
    reach: Tensor  # [...] how far a fresh row is moved at most in each input
    measurement: int
    jitter: float
    samples: int

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        x, seed = one_group(problem, batch.x), batch.seeds[0]
        rows = torch.cat([x, self.fresh_rows(x, seed)])
        mean, slopes = self.network.look(theta, rows)  # [O, R], [O, R, P]
        n = len(x)
        gained = self.log_likelihood(problem, theta, mean[:, :n], slopes[:, :n], batch.y[0], seed).mean()
        return (self.divergence(rows, mean, slopes, seed) / batch.n_rows - gained)[None]

    def fresh_rows(self, x: Tensor, seed: int) -> Tensor:
        """Rows of the batch, drawn with replacement and moved: [measurement, ...]."""
        rng = generator(seed, _MEASURED)
        chosen = torch.randint(len(x), (self.measurement,), generator=rng).to(x.device)
        u = torch.rand(self.measurement, *x.shape[1:], generator=rng, dtype=x.dtype).to(x.device)
        return x[chosen] + (2 * u - 1) * self.reach

    def log_likelihood(
        self, problem: Problem, theta: Tensors, mean: Tensor, slopes: Tensor, y: Tensor, seed: int
    ) -> Tensor:
        """E_q log p(y | f), of classes an average over draws: [O, B], [O, B, P] -> [..., B]."""
        extra = {k: v[0] for k, v in split_extra(theta)[1].items()}
        if isinstance(problem.likelihood, Gaussian):
            return problem.likelihood.expected_log_prob(mean.mT, slopes.square().sum(-1).mT, y, extra)
        epsilon = noise(theta, self.samples, rng=generator(seed, _WEIGHTS))
        flat = torch.cat([epsilon[k].flatten(1) for k in self.network.names], 1)  # [S, P]
        drawn = mean.mT + torch.einsum("obp,sp->sbo", slopes, flat)
        return problem.likelihood.log_prob(drawn, y.expand(self.samples, *y.shape), extra)

    def divergence(self, rows: Tensor, mean: Tensor, slopes: Tensor, seed: int = 0) -> Tensor:
        """Σ_o KL(q_o ‖ p_o) at standardised rows, in nats: [O, R], [O, R, P] -> []."""
        prior_mean, prior_covariance = self.prior(rows, derive(seed, _PRIOR))
        wide = slopes.to(torch.float64)
        covariance = wide @ wide.mT  # [O, R, R]
        jitter = self.jitter * prior_covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
        extra = jitter * torch.eye(len(rows), dtype=torch.float64, device=rows.device)
        return gaussian_kl(mean.to(torch.float64), covariance + extra, prior_mean, prior_covariance + extra).sum()


def gaussian_kl(mean: Tensor, covariance: Tensor, prior_mean: Tensor, prior_covariance: Tensor) -> Tensor:
    """KL(N(μ, S) ‖ N(m, K)) = ½ [tr K⁻¹S + (μ − m)ᵀK⁻¹(μ − m) − R + log |K| − log |S|]: [O, R], [O, R, R] -> [O]."""
    ours, theirs = _factor(covariance, "q"), _factor(prior_covariance, "the prior")
    spread = torch.linalg.solve_triangular(theirs, ours, upper=False).square().sum((-2, -1))
    apart = torch.linalg.solve_triangular(theirs, (mean - prior_mean)[..., None], upper=False).square().sum((-2, -1))
    logs = [factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) for factor in (ours, theirs)]
    found: Tensor = 0.5 * (spread + apart - mean.shape[-1]) + logs[1] - logs[0]
    return found


def _factor(covariance: Tensor, whose: str) -> Tensor:
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed.any()) or not bool(factor.isfinite().all()):
        raise NotFinite(
            f"fbnn: the covariance of {whose} at {covariance.shape[-1]} rows has no Cholesky factor; raise jitter, or "
            "lower lr"
        )
    return factor


@dataclass(frozen=True, kw_only=True, eq=False)
class _Network:
    """The network in eval mode, to be looked at one row at a time."""

    members: Members
    names: tuple[str, ...]  # that have a distribution, in the order of a row of slopes
    fixed: dict[str, Tensor]  # [1, ...] buffers and frozen parameters

    @classmethod
    def of(cls, problem: Problem, state: Tensors) -> "_Network":
        names = tuple(sorted(trainable_names(outline(problem.model))))
        network = {k: v.detach() for k, v in state.items() if "/" not in k}
        fixed = {k: v for k, v in network.items() if k not in names}
        return cls(members=gather(problem, network, {}), names=names, fixed=fixed)

    def look(self, theta: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs at μ, and their slopes in units of σ: [R, ...] -> [O, R], [O, R, P].

        Each row gets a network of its own with the same weights, so that one slope of a sum has a row's Jacobian for
        every row, by the products that members run by.
        """
        own = {k: theta[k].expand(len(x), *theta[k].shape[1:]).clone() for k in self.names}  # [R, ...]
        for value in own.values():
            if not value.requires_grad:
                value.requires_grad_()
        fixed = {k: v.expand(len(x), *v.shape[1:]) for k, v in self.fixed.items()}
        outputs = self.members({**own, **fixed}, {}, x[:, None], own_rows=True)[:, 0]  # [R, O]
        sds = torch.cat([theta[LOG_SD + k].exp().flatten() for k in self.names])  # [P]
        rows = []
        for o in range(outputs.shape[1]):
            slopes = torch.autograd.grad(
                outputs[:, o].sum(), list(own.values()), create_graph=True, materialize_grads=True
            )
            rows.append(torch.cat([slope.flatten(1) for slope in slopes], 1))
        return outputs.mT, torch.stack(rows) * sds


def _prior_moments(problem: Problem, state: Tensors) -> PriorMoments:
    """Mean and covariance under the prior that is named, or that was found."""
    prior: object = problem.prior
    likelihood, scaling = problem.likelihood, problem.scaling
    n_outputs = likelihood.n_outputs
    if over(prior) == "weights":
        lengthscales, scale = state[LENGTHSCALES][0], state[SCALE][0]

        def found(x: Tensor, seed: int) -> Moments:
            rows = x.flatten(1).to(torch.float64) / lengthscales[:, None]  # [T, R, D]
            gram = scale.square()[:, None, None] * correlation("rbf", squared_distances(rows, rows))
            return torch.zeros_like(gram[..., 0]), gram

        return found
    # A Gaussian likelihood has targets (y − shift) / spread, of which logits know nothing.
    shift, spread = (
        torch.tensor(getattr(likelihood, part, None) or (value,) * n_outputs, dtype=torch.float64)[:, None]
        for part, value in (("mean", 0.0), ("scale", 1.0))
    )

    def named(x: Tensor, seed: int) -> Moments:
        rows = x if scaling is None else x * scaling.scale + scaling.mean
        if isinstance(prior, FunctionSamples):
            with borrowed(seed, x.device):
                mean, gram = prior.moments(rows, n_outputs, generator(seed, device=x.device))
        else:
            assert isinstance(prior, FunctionPrior)
            mean, gram = prior.mean(rows).mT, prior.gram(rows, rows)[None]
        mean = (mean - shift.to(mean)) / spread.to(mean)
        return mean, gram / spread.to(gram).square()[..., None]

    return named


_FOUND = (LENGTHSCALES, SCALE)
_SEARCH_COST = gp.GaussianProcess(evidence_rows=_SEARCHED)


def _find_prior(problem: Problem, data: Data, seed: int, tick: Callable[[int, str], None]) -> dict[str, Tensor]:
    """Hyper-parameters of each target by log evidence, and the noise where it is learnt: [1, ...] each."""
    rows = permutation(data.n_rows, seed, _ROWS)[:_SEARCHED].sort().values

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        tick(done, message)

    state = _SEARCH_COST.fit(problem, data.take(rows), rng=generator(seed, _SEARCH), report=report)
    found = {LENGTHSCALES: state[gp.LENGTHSCALES][None], SCALE: state[gp.SCALE][None]}
    return found | {k: v for k, v in state.items() if k == LOG_NOISE}
