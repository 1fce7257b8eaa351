"""Weights mixed over a hidden z: w = μ + A h(z) + σ ε, z ~ N(0, I), ε ~ N(0, I); and what is fitted by it.

State, all with a leading axis of 1: μ under the parameters' own names, beside the rest of the network;
`mixing/matrix` A [1, P, R] and `mixing/log_sd` log σ [1, P] for the P weights that have a distribution, side by side in
the order of the module; `mixing/net/…` where h is a network; `fitted/n_rows` as in gaussian.py. S counts draws of w, R
is the rank, the size of z.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidOption
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.posteriors.gaussian import N_ROWS, check_rows, in_units, of_rows, one_group, with_points
from bensemble_core.posteriors.head import head_names
from bensemble_core.posteriors.log_posterior import log_likelihoods
from bensemble_core.posteriors.own_nets import OwnNet
from bensemble_core.posteriors.start import check_memory, check_trainable, member_shapes, start_members
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.randomness import derive, draw_seed, generator
from bensemble_core.training.descent import Descent, Run, descend
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Problem, Report, Shapes, Tensors, silent

LARGEST = 20_000  # weights with a distribution
MATRIX, LOG_SD, NET = "mixing/matrix", "mixing/log_sd", "mixing/net/"
_NET, _MATRIX, _ENTROPY = 1, 2, 3  # branches of a seed


@dataclass(frozen=True, kw_only=True)
class Mixed(Descent):
    """Weights mixed over a hidden z, found by descent: all of a method but the entropy of q.

    A method adds its name and options, and says by `entropy` what stands for E −log q(w) in the bound

        L = E_q log p(D, w) + H(q),

    of which log p(D | w) is (N/B) Σ_batch on batches.
    """

    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    rank: int = field(default=5, metadata={"ge": 1, "le": 1000, "description": "size of the hidden z"})
    hidden: int = field(
        default=20,
        metadata={"ge": 0, "le": 1000, "description": "units of the network h that bends z; 0 is the identity"},
    )
    samples: int = field(default=10, metadata={"ge": 1, "le": 10_000, "description": "draws of the weights a step"})
    init_sigma: float = field(
        default=0.02,
        metadata={
            "gt": 0,
            "le": 100,
            "search": ("log", 1e-3, 0.3),
            "description": "standard deviation of every weight at the start, by A h(z) and by σ ε each",
        },
    )
    subset: Literal["all", "last_layer"] = field(
        default="all",
        metadata={"description": "which weights have a distribution; the others are MAP estimates, trained with them"},
    )

    @property
    def name(self) -> str:
        raise NotImplementedError  # a method's own field

    def entropy(self, q: "Mixture", draws: "Draws", seed: int) -> Tensor:
        """What is maximised for the entropy of q, or something with its gradient: []."""
        raise NotImplementedError

    def entropy_bound(self, q: "Mixture", draws: "Draws", seed: int) -> float:
        """An estimate of the entropy of q, or of a bound on it from below: what `bound` counts."""
        raise NotImplementedError

    def start_more(self, q: "Mixture") -> dict[str, Tensor]:
        """Further tensors of a method's own, where they start."""
        return {}

    def more_shapes(self, size: int) -> Shapes:
        """Of those, in a state with so many weights."""
        return {}

    def check(self, problem: Problem) -> None:
        """Refuse a network with nothing to train, no prior, or too many weights."""
        check_trainable(self.name, problem)
        if problem.prior is None:
            raise InvalidOption(
                f"{self.name} weighs the likelihood against a prior, and there is none; pass prior=Normal(scale=…), or "
                "use map for maximum likelihood"
            )
        size = _size(self._shapes(problem))
        others = max(getattr(self, "mixing", 0), getattr(self, "draws", 0)) * (self.rank + self.hidden)
        what = f"{self.samples:,} draws of the weights and of z"
        check_memory(self.name, what, self.samples * max(size, others), "take fewer samples, mixing or draws")
        if size > LARGEST:
            smaller = "a smaller network" if self.subset == "last_layer" else 'subset="last_layer"'
            raise InvalidOption(
                f"{self.name} is for up to {LARGEST:,} weights with a distribution, and here are {size:,}; use "
                f"{smaller}, or mfvi"
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
        """State: as the docstring of mixing.py has it. A warm start takes what has the same shape."""
        seed = derive(draw_seed(rng), 0)
        theta, fixed = start_members(problem, [seed], warm=warm, from_weights=True, device=data.x.device)
        theta |= self._start(problem, theta, seed, {} if warm is None else warm)
        run = Run(
            problem=problem,
            data=data,
            theta=theta,
            fixed=fixed,
            options=self,
            seeds=[seed],
            objective=_Objective(method=self, shapes=self._shapes(problem)),
        )
        trained = descend(run, resume=resume, report=report)
        return {**trained.theta, **trained.fixed, **of_rows(data)}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of the weights, each with a z of its own."""
        q = self.mixture(problem, state)
        with torch.no_grad():
            stacked = q.split(q.draw(n, rng).weights)
        network, extra = split_extra(state)
        shared = {k: v[0] for k, v in network.items() if "/" not in k and k not in stacked}
        return Ensemble(problem=problem, stacked=stacked, shared={**shared, **{k: v[0] for k, v in extra.items()}})

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        size = _size(self._shapes(problem))
        own = {MATRIX: (1, size, self.rank), LOG_SD: (1, size), N_ROWS: (1, 2)}
        bent = {} if self.net is None else self.net.shapes()
        return member_shapes(problem, 1) | own | bent | self.more_shapes(size)

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.samples * self.epochs

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """L on all rows, in nats and the units of y, given what is a point: from `samples` draws."""
        q, draws, gained, seed = self._gained(problem, state, data, samples, rng)
        return gained + self.entropy_bound(q, draws, seed)

    def mixture(self, problem: Problem, tensors: Tensors) -> "Mixture":
        """q with the tensors of a state."""
        return Mixture(shapes=self._shapes(problem), net=self.net, tensors=tensors)

    @property
    def net(self) -> OwnNet | None:
        """h, or None where it is the identity."""
        rank, hidden = self.rank, self.hidden
        return OwnNet(NET, lambda: Bend(rank, hidden)) if hidden else None

    def _gained(
        self, problem: Problem, state: Tensors, data: Data, samples: int, rng: torch.Generator
    ) -> tuple["Mixture", "Draws", float, int]:
        """q, draws of it, E log p(D, w) over them in the units of y, and a seed for what else is drawn."""
        check_rows(state, data)
        q = self.mixture(problem, {k: v.double() if v.is_floating_point() else v for k, v in state.items()})
        seed = draw_seed(rng)
        network, extra = split_extra(state)
        centre = {k: v[0] for k, v in {**network, **extra}.items() if "/" not in k or k in extra}
        assert problem.prior is not None
        with torch.no_grad():
            draws = q.draw(samples, rng)
            drawn = q.split(draws.weights)
            value = log_likelihoods(problem, centre, drawn, data) + problem.prior.log_prob(drawn)
        return q, draws, float(value.mean()) + in_units(problem, data.n_rows), seed

    def _shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Of the parameters that have a distribution."""
        module = outline(problem.model)
        names = head_names(self.name, problem) if self.subset == "last_layer" else trainable_names(module)
        parameters = dict(module.named_parameters())
        return {name: tuple(parameters[name].shape) for name in names}

    def _start(self, problem: Problem, theta: Tensors, seed: int, warm: Tensors) -> dict[str, Tensor]:
        shapes = self._shapes(problem)
        like = next(iter(theta.values()))
        matrix = torch.randn(1, _size(shapes), self.rank, generator=generator(seed, _MATRIX), dtype=problem.dtype)
        own = {
            MATRIX: (matrix * (self.init_sigma / math.sqrt(self.rank))).to(like.device),
            LOG_SD: like.new_full((1, _size(shapes)), math.log(self.init_sigma)),
        }
        if self.net is not None:
            own |= self.net.start(derive(seed, _NET), dtype=problem.dtype, device=like.device)
        own |= _fitting(own, warm)
        more = self.start_more(Mixture(shapes=shapes, net=self.net, tensors={**theta, **own}))
        return own | more | _fitting(more, warm)


class Bend(nn.Module):
    """h(z) = z + W₂ tanh(W₁ z + b₁) + b₂: [..., R] -> [..., R].

    It starts bent: where it starts as the identity, q may end as a Gaussian at which bends gain nothing.
    """

    def __init__(self, rank: int, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(rank, hidden)
        self.outer = nn.Linear(hidden, rank)
        nn.init.normal_(self.inner.weight)
        nn.init.normal_(self.inner.bias)
        nn.init.normal_(self.outer.weight, std=1 / math.sqrt(hidden))

    def forward(self, z: Tensor) -> Tensor:
        bent: Tensor = z + self.outer(self.inner(z).tanh())
        return bent


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Draws of q, with the chance they were made of; gradients go through all but z and ε."""

    z: Tensor  # [S, R]
    h: Tensor  # [S, R]
    epsilon: Tensor  # [S, P]
    weights: Tensor  # [S, P]

    def detach(self) -> "Draws":
        """The same draws, with no gradient through them."""
        return Draws(z=self.z, h=self.h.detach(), epsilon=self.epsilon, weights=self.weights.detach())

    def take(self, part: slice) -> "Draws":
        """Some of them."""
        return Draws(z=self.z[part], h=self.h[part], epsilon=self.epsilon[part], weights=self.weights[part])


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """q(w) = ∫ N(w | μ + A h(z), σ²) N(z | 0, I) dz."""

    shapes: Mapping[str, tuple[int, ...]]  # of the weights that have a distribution
    net: OwnNet | None
    tensors: Tensors

    @property
    def mean(self) -> Tensor:
        """μ: [P]."""
        return torch.cat([self.tensors[name].flatten() for name in self.shapes])

    @property
    def matrix(self) -> Tensor:
        """A: [P, R]."""
        return self.tensors[MATRIX][0]

    @property
    def log_sd(self) -> Tensor:
        """log σ: [P]."""
        return self.tensors[LOG_SD][0]

    @cached_property
    def scaled(self) -> Tensor:
        """A / σ: [P, R]."""
        return self.matrix * (-self.log_sd).exp()[:, None]

    @cached_property
    def gram(self) -> Tensor:
        """G = (A/σ)ᵀ (A/σ): [R, R]."""
        return self.scaled.mT @ self.scaled

    def detach(self) -> "Mixture":
        """The same q, with no gradient through its tensors."""
        return Mixture(shapes=self.shapes, net=self.net, tensors={k: v.detach() for k, v in self.tensors.items()})

    def bend(self, z: Tensor) -> Tensor:
        """h(z): [..., R]."""
        return z if self.net is None else self.net(self.tensors, z)

    def draw_z(self, *shape: int, rng: torch.Generator) -> Tensor:
        """z ~ N(0, I): [*shape, R]."""
        z = torch.randn(*shape, self.matrix.shape[1], generator=rng, dtype=self.log_sd.dtype, device=rng.device)
        return z.to(self.log_sd.device)

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        """n draws of w."""
        z = self.draw_z(n, rng=rng)
        epsilon = torch.randn(n, len(self.log_sd), generator=rng, dtype=z.dtype, device=rng.device).to(z.device)
        h = self.bend(z)
        weights = self.mean + h @ self.matrix.mT + self.log_sd.exp() * epsilon
        return Draws(z=z, h=h, epsilon=epsilon, weights=weights)

    def split(self, weights: Tensor) -> dict[str, Tensor]:
        """[S, P] -> named [S, ...]."""
        parts = torch.split(weights, [math.prod(shape) for shape in self.shapes.values()], 1)
        return {k: v.reshape(len(weights), *shape) for (k, shape), v in zip(self.shapes.items(), parts, strict=True)}

    def conditional_entropy(self, draws: Draws) -> Tensor:
        """E −log q(w | z) = Σ log σ + (P/2) log 2π + ½ E |ε|² over the draws: [].

        E |ε|² is P; the draws' own makes a bound that is tight exact, as then nothing under its mean varies.
        """
        size = len(self.log_sd)
        return self.log_sd.sum() + 0.5 * (size * LOG_2PI + draws.epsilon.square().sum(-1).mean())

    def log_ratios(self, draws: Draws, others: Tensor) -> Tensor:
        """log q(w | z_k) − log q(w | z) for draws w with their z, and z_k by h(z_k) [S or 1, K, R]: [S, K].

        With Δ = h(z) − h(z_k) it is −½ Δᵀ G Δ − Δᵀ (A/σ)ᵀ ε: in R numbers for each pair, and nothing large cancels.
        """
        apart = draws.h[:, None] - others  # [S, K, R]
        along = draws.epsilon @ self.scaled  # [S, R]
        return -0.5 * ((apart @ self.gram) * apart).sum(-1) - (apart * along[:, None]).sum(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Objective:
    """−(L + log p(points)) / N as an objective of the descent, for one member."""

    method: Mixed
    shapes: Mapping[str, tuple[int, ...]]

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        x, y, seed, n = one_group(problem, batch.x), batch.y[0], batch.seeds[0], self.method.samples
        q = Mixture(shapes=self.shapes, net=self.method.net, tensors=theta)
        draws = q.draw(n, generator(seed))
        drawn = q.split(draws.weights)
        outputs = forward(with_points(theta, drawn, n), x)
        each = problem.likelihood.log_prob(outputs, y.expand(n, *y.shape), split_extra(theta)[1])  # [S, B]
        assert problem.prior is not None
        gained = each.mean() * batch.n_rows + problem.prior.log_prob(drawn).mean()
        points = {k: v for k, v in theta.items() if "/" not in k and k not in drawn}
        if points:
            gained = gained + problem.prior.log_prob(points)[0]
        return (-(gained + self.method.entropy(q, draws, derive(seed, _ENTROPY))) / batch.n_rows)[None]


def _size(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _fitting(own: Tensors, warm: Tensors) -> dict[str, Tensor]:
    """Of an earlier state, what has the name and shape of one of our tensors."""
    return {k: warm[k].to(v) for k, v in own.items() if k in warm and warm[k].shape == v.shape}
