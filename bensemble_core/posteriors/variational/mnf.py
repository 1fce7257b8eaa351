"""Multiplicative normalising flows: Gaussian weights whose means share random factors."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import gather
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.io import below
from bensemble_core.models.spec import outline
from bensemble_core.models.transforms import join
from bensemble_core.posteriors.gaussian import (
    LOG_SD,
    PRIOR_MEAN,
    PRIOR_SD,
    Factorised,
    bayesian_names,
    check_rows,
    descend_after_map,
    expected_gaussian,
    fixed_prior,
    in_units,
    kl_divergence,
    log_prior_of_points,
    noise,
    normal_prior,
    of_rows,
    one_group,
    prior_in,
    reparameterised,
    split_points,
    start_gaussian,
)
from bensemble_core.posteriors.own_nets import OwnNet
from bensemble_core.posteriors.start import check_memory
from bensemble_core.posteriors.variational.elbo import Elbo
from bensemble_core.posteriors.variational.flows import Flow
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.randomness import borrowed, derive, draw_seed, generator
from bensemble_core.training.descent import Descent, Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Problem, Report, Shapes, Tensors, silent

FLOW = "flow/"
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SPREAD = 0.3  # sd of the factors before the flow, at the start
_ROWS = 1024  # a forward pass of `bound`


@dataclass(frozen=True, kw_only=True)
class MNF(Descent):
    """Gaussian weights whose means are multiplied by factors from a normalising flow (Louizos & Welling 2017).

    Of a weight W_ij from input i, with a factor z_i for each input of a linear layer (each filter of a convolution),

        W_ij = z_i μ_ij + σ_ij ε_ij,    z = flow(z⁰),    z⁰_i ~ N(m_i, s_i²),    ε ~ N(0, 1),

    so that weights depend on one another through z: within an input by its factor, between inputs by the flow (masked
    RealNVP, see flows.py). log q(W) has no closed form; with an auxiliary r(z | W) the bound is

        L = E [ Σ_n log p(y_n | x_n, W) − KL(q(W | z) ‖ p) + log r(z | W) − log q(z) ],

    which is below the evidence lower bound of q(W) by E KL(q(z | W) ‖ r(z | W)). r is a second flow from a Gaussian
    with mean a + b t + g u and log-sd a' + b' t + v, of these statistics of W (a, b, g, a', b', c are learnt; s⁰ is s_i
    at the start):

        t = mean_j tanh(Σ_i c_i W_ij),    u_i = Σ_j μ_ij (W_ij − μ_ij)/σ_ij² / (1/s⁰² + k_i),    k_i = Σ_j μ_ij²/σ_ij²,
        v_i = −½ log(1 + s⁰² k_i).

    With flow_steps=0 z is Gaussian with independent entries, and r starts as exactly q(z | W). Of two weights with
    posterior correlation .9 the best Gaussian with independent weights stays .830 nats below the evidence, as does
    flow_steps=0 there, where each factor is one weight's own; with the flow it comes to .1 or less. It may not from a
    start far off, where factors change their sign: `map_epochs` let μ start at the peak.

    Members are draws: z once for each member, then the weights. Biases and all other weights with a distribution are
    Gaussian as in `mfvi`; points are MAP estimates, and the noise of a likelihood a point with a flat prior.

    Departures. A step has one z for all rows of a batch, where the paper draws one for each; given z, noise is on the
    outputs of layers as in mfvi (local.py). Masks alternate (flows.py). The moments of r are b t and b' t in the paper;
    from t alone it cannot tell the factors, which then lose their spread before the flow has learnt anything.
    `max_norm` limits μ, not z μ. Rows that arrive later are fitted together with the old ones: this q is no prior in
    closed form.
    """

    name: Literal["mnf"] = "mnf"
    flow_steps: int = field(
        default=2, metadata={"ge": 0, "le": 100, "description": "steps of each flow, that of z and that of r(z | W)"}
    )
    flow_hidden: int = field(
        default=50, metadata={"ge": 1, "le": 10_000, "description": "hidden units in each step of a flow"}
    )
    samples: int = field(default=1, metadata={"ge": 1, "le": 10_000, "description": "draws a step"})
    local_reparameterisation: bool = field(
        default=True, metadata=MFVI.__dataclass_fields__["local_reparameterisation"].metadata
    )
    init_sigma: float = field(default=0.02, metadata=Factorised.__dataclass_fields__["init_sigma"].metadata)
    map_epochs: int = field(default=0, metadata=Factorised.__dataclass_fields__["map_epochs"].metadata)
    bayesian_biases: bool = field(default=True, metadata=Factorised.__dataclass_fields__["bayesian_biases"].metadata)
    bayesian_norms: bool = field(default=False, metadata=Factorised.__dataclass_fields__["bayesian_norms"].metadata)
    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        normal_prior(problem, self.name)
        factors = self._factors(problem)
        own = [math.prod(shape) for f in factors for shape in (f.q.shapes() | f.r.shapes()).values()]
        weights = sum(p.numel() for p in outline(problem.model).parameters())
        advice = "take fewer samples, or smaller flows (flow_steps, flow_hidden)"
        check_memory(self.name, "its draws and flows", self.samples * weights + 4 * sum(own), advice)
        if self.patience is not None:
            raise InvalidOption(
                "mnf: patience judges the network of the means μ, which is no member here (weights are z μ); leave it "
                "out and set epochs, or use mfvi"
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
        """State: as that of a factorised Gaussian (gaussian.py), and the flows' own tensors under `flow/…`.

        A warm start takes means and sds from any method, and flows of the same sizes from its own.
        """
        seed = derive(draw_seed(rng), 0)
        theta, fixed = start_gaussian(problem, self._gaussian, seed, warm=warm, device=data.x.device)
        for i, factor in enumerate(self._factors(problem)):
            for j, net in enumerate((factor.q, factor.r)):
                fresh = net.start(derive(seed, 1, i, j), dtype=problem.dtype, device=data.x.device)
                old = {k: v.to(fresh[k]) for k, v in (warm or {}).items() if k in fresh and v.shape == fresh[k].shape}
                theta |= old if len(old) == len(fresh) else fresh
        prior = fixed_prior(theta, normal_prior(problem, self.name).scale)
        run = self._run(problem, data, theta, fixed, prior, seed)
        trained = descend_after_map(run, self.map_epochs, resume=resume, report=report)
        return {**trained.theta, **trained.fixed, **prior, **of_rows(data)}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of factors and weights; points and buffers are shared."""
        with torch.no_grad():
            means, _ = draw_means(self._factors(problem), state, n, rng=rng)
            stacked = reparameterised({**state, **means}, noise(state, n, rng=rng), {})
        network, extra = split_extra(state)
        shared = {k: v[0] for k, v in network.items() if "/" not in k and k not in stacked}
        return Ensemble(problem=problem, stacked=stacked, shared={**shared, **{k: v[0] for k, v in extra.items()}})

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """The network at the factors that the mean of z⁰ is mapped to, and ε = 0."""
        plain = {k: v for part in split_points(state) for k, v in part.items() if not k.startswith(LOG_SD)}
        with torch.no_grad():
            return plain | draw_means(self._factors(problem), state, 1, rng=None)[0]

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """L on all rows, in nats and the units of y, given the points: an estimate from `samples` draws."""
        check_rows(state, data)
        seed = draw_seed(rng)
        moving, points = split_points(state)
        theta = {**moving, **{k: v for k, v in state.items() if k.startswith(FLOW)}}
        run = self._run(problem, data, theta, points, prior_in(state), seed)
        assert isinstance(run.objective, _Bound)
        members = gather(problem, {**moving, **points}, {}, transform=run.transform, mode=run.mode)
        shared = {k: v[0] for k, v in points.items()}
        forward = lambda weights, x: members(weights, shared, x)  # noqa: E731
        total = 0.0
        with torch.no_grad(), borrowed(derive(seed, 0), data.x.device):
            for s in range(samples):
                own = derive(seed, 1, s)
                given_z, excess = run.objective.draw(theta, 1, own)
                total -= float(excess) / samples
                for row in range(0, data.n_rows, _ROWS):
                    x, y = data.x[row : row + _ROWS], data.y[row : row + _ROWS]
                    each = run.objective.elbo.log_likelihood(problem, forward, given_z, x, y, 1, own)
                    total += float(each.sum(dtype=torch.float64)) / samples
        return total + in_units(problem, data.n_rows)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        shapes = expected_gaussian(problem, state)
        for factor in self._factors(problem):
            shapes |= factor.q.shapes() | factor.r.shapes()
        return shapes

    def cost(self, n_parameters: int) -> int:
        return n_parameters * (self.samples * self.epochs + self.map_epochs)

    @property
    def _gaussian(self) -> Factorised:
        """The options of q(W | z)."""
        return Factorised(
            init_sigma=self.init_sigma, bayesian_biases=self.bayesian_biases, bayesian_norms=self.bayesian_norms
        )

    def _run(self, problem: Problem, data: Data, theta: Tensors, fixed: Tensors, prior: Tensors, seed: int) -> Run:
        start = Run(problem=problem, data=data, theta=theta, fixed=fixed, options=self, seeds=[seed])
        given_z = MFVI(local_reparameterisation=self.local_reparameterisation).run(
            start, prior
        )  # the bound given z, with its noise on outputs
        assert isinstance(given_z.objective, Elbo)
        own = _Bound(elbo=given_z.objective, factors=self._factors(problem), samples=self.samples)
        return replace(given_z, objective=own)

    def _factors(self, problem: Problem) -> "tuple[Factor, ...]":
        """Of every weight of a linear or convolution layer that has a distribution; a refusal if there is none."""
        wanted = set(bayesian_names(problem, self._gaussian))
        found = []
        for layer, part in outline(problem.model).named_modules():
            name = join(layer, "weight")
            if isinstance(part, _LAYERS) and name in wanted:
                linear = isinstance(part, nn.Linear)
                size = int(part.weight.shape[1 if linear else 0])
                found.append(Factor.of(name, 1 if linear else 0, size, steps=self.flow_steps, hidden=self.flow_hidden))
        if not found:
            raise InvalidModel(
                "mnf multiplies the weights of linear and convolution layers, and here none of them has a "
                "distribution; unfreeze some, or use mfvi"
            )
        return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Factor:
    """The factors z of one weight: which axis of it they belong to, and the networks of q(z) and r(z | W)."""

    name: str
    axis: int  # of a weight without the axis of draws
    size: int
    q: OwnNet
    r: OwnNet

    @classmethod
    def of(cls, name: str, axis: int, size: int, *, steps: int, hidden: int) -> "Factor":
        q = OwnNet(f"{FLOW}q/{name}/", lambda: _Factors(size, steps=steps, hidden=hidden))
        r = OwnNet(f"{FLOW}r/{name}/", lambda: _Auxiliary(size, steps=steps, hidden=hidden))
        return cls(name=name, axis=axis, size=size, q=q, r=r)

    def times(self, z: Tensor, mean: Tensor) -> Tensor:
        """z [S, D] times a weight [1, ...]: [S, ...]."""
        return mean * z.view(len(z), *(self.size if i == self.axis else 1 for i in range(mean.ndim - 1)))

    def log_r(self, theta: Tensors, z: Tensor, weight: Tensor) -> Tensor:
        """log r(z | W) of draws: [S]."""
        mean, log_sd = theta[self.name], theta[LOG_SD + self.name]
        found: Tensor = self.r(theta, z, *(v.movedim(1 + self.axis, 1).flatten(2) for v in (weight, mean, log_sd)))
        return found


def draw_means(
    factors: tuple[Factor, ...], theta: Tensors, n: int, *, rng: torch.Generator | None
) -> tuple[dict[str, Tensor], dict[str, tuple[Tensor, Tensor]]]:
    """z μ of n draws for each weight with factors, [n, ...]; and z [n, D] with log q(z) [n]. No rng: z⁰ at its mean."""
    means, drawn = {}, {}
    for factor in sorted(factors, key=lambda factor: factor.name):
        mean = theta[factor.name]
        e = mean.new_zeros(n, factor.size)
        if rng is not None:
            e = torch.randn(n, factor.size, generator=rng, dtype=mean.dtype, device=rng.device).to(mean.device)
        drawn[factor.name] = z, _ = factor.q(theta, e)
        means[factor.name] = factor.times(z, mean)
    return means, drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bound:
    """−(L + log p(points))/N as an objective of the descent, for one member; `elbo` has the likelihood given z."""

    elbo: Elbo
    factors: tuple[Factor, ...]
    samples: int

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        x, y, seed = one_group(problem, batch.x), batch.y[0], batch.seeds[0]
        given_z, excess = self.draw(theta, self.samples, seed)
        each = self.elbo.log_likelihood(problem, forward, given_z, x, y, self.samples, seed)
        loss = excess / batch.n_rows - each.mean()
        return (loss - log_prior_of_points(problem, theta) / batch.n_rows)[None]

    def draw(self, theta: Tensors, n: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        """θ with n draws of z μ in place of μ, and the mean KL(q(W | z) ‖ p) − log r(z | W) + log q(z) of them."""
        rng = generator(seed, 1)
        means, drawn = draw_means(self.factors, theta, n, rng=rng)
        given_z = {**theta, **means}
        parts = []
        for name, log_sd in below(LOG_SD, theta).items():
            prior = (self.elbo.prior[prefix + name] for prefix in (PRIOR_MEAN, PRIOR_SD))
            each = kl_divergence(given_z[name], log_sd, *prior)  # [n, ...], or [1, ...] without factors
            parts.append(each.sum() / len(each))
        weights = reparameterised(given_z, noise(theta, n, rng=rng), {})
        for factor in self.factors:
            z, log_q = drawn[factor.name]
            parts.append((log_q - factor.log_r(theta, z, weights[factor.name])).mean())
        return given_z, torch.stack(parts).sum()


class _Factors(nn.Module):
    """q(z): a Gaussian with independent entries around 1, through a flow."""

    def __init__(self, n_entries: int, *, steps: int, hidden: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.ones(n_entries))
        self.log_sd = nn.Parameter(torch.full((n_entries,), math.log(_SPREAD)))
        self.flow = Flow(n_entries, steps=steps, hidden=hidden)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """z [S, D] from e ~ N(0, 1), and log q(z) [S]."""
        z, log_det = self.flow(self.mean + self.log_sd.exp() * e)
        return z, (_log_normal(e) - self.log_sd).sum(-1) - log_det


class _Auxiliary(nn.Module):
    """r(z | W): a Gaussian whose moments come from W, through a flow; it starts as q(z | W) without the flows."""

    def __init__(self, n_entries: int, *, steps: int, hidden: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(n_entries) / math.sqrt(n_entries))
        self.mean = nn.Parameter(torch.ones(n_entries))
        self.mean_slope = nn.Parameter(torch.zeros(n_entries))
        self.gain = nn.Parameter(torch.ones(n_entries))
        self.log_sd = nn.Parameter(torch.full((n_entries,), math.log(_SPREAD)))
        self.log_sd_slope = nn.Parameter(torch.zeros(n_entries))
        self.flow = Flow(n_entries, steps=steps, hidden=hidden)

    def forward(self, z: Tensor, weight: Tensor, mean: Tensor, log_sd: Tensor) -> Tensor:
        """log r(z | W) [S] of z [S, D] and weights [S, D, R] with μ and log σ [1, D, R]."""
        t = torch.einsum("d,sdr->sr", self.direction, weight).tanh().mean(-1, keepdim=True)  # [S, 1]
        slopes = mean * (-2 * log_sd).exp()
        known = (slopes * mean).sum(-1)  # Σ μ²/σ²: [1, D]
        u = (slopes * (weight - mean)).sum(-1) / (_SPREAD**-2 + known)
        mean = self.mean + self.mean_slope * t + self.gain * u
        log_sd = self.log_sd + self.log_sd_slope * t - 0.5 * torch.log1p(known * _SPREAD**2)
        before, log_det = self.flow.inverse(z)
        return (_log_normal((before - mean) * (-log_sd).exp()) - log_sd).sum(-1) + log_det


def _log_normal(z: Tensor) -> Tensor:
    return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)
