"""BatchEnsemble: members that share every weight matrix but for a rank-one factor. Its helpers serve `rank1.py` too."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import InvalidModel
from bensemble_core.likelihoods import LOG_2PI
from bensemble_core.members import gather, zero_rows
from bensemble_core.models.transforms import FACTOR_IN, FACTOR_OUT, RankOne, join, layers_in_order, widths
from bensemble_core.posteriors.start import start_members, thinned
from bensemble_core.randomness import borrowed, derive, draw_seed, generator, permutation
from bensemble_core.training import Batch, Descent, Forward, descend, split_extra
from bensemble_core.types import Aim, Data, Problem, Report, Tensors, silent

Draw: TypeAlias = Callable[[tuple[int, ...], torch.Generator], Tensor]  # how a factor of a shape starts, on the CPU
_FACTORS, _DEAL = 11, 12  # branches of a seed


@dataclass(frozen=True, kw_only=True)
class BatchEnsemble(Descent):
    """Member m has W_m = W ∘ (s_m r_mᵀ) in every linear and convolution layer, and biases b_m (Wen, Tran & Ba 2020).

    W and all other tensors (normalisation, embeddings, buffers, noise) are shared, so that a member costs D + 2 O
    numbers a layer. The point that is found maximises the average of the members' log joints, with the data counted
    once against log p(W):

        log p(W) + 1/M Σ_m [ N/(B/M) Σ_{rows of m} log p(y | x, W, r_m, s_m, b_m) + log p(r_m, s_m, b_m) ].

    A batch is dealt to the members, B/M rows each, as in the paper; with `split=False` every member sees all of it. The
    problem's prior is on W, b and the other parameters. The paper has no prior on r and s, and then none on W ∘ (s rᵀ)
    either, since W may shrink as r grows; here they have N(1, factor_scale²), after `init="signs"` ½ N(1, ·) +
    ½ N(−1, ·), unless `factor_scale` is None. Without a prior on the weights there is none on the factors. Weights
    inside nn.LSTM or nn.MultiheadAttention, which are not called as layers, have no factors. The weights of a module
    handed in are not used, and early stopping asks one member for each held-out row.
    """

    name: Literal["batch_ensemble"] = "batch_ensemble"
    members: int = field(default=4, metadata={"ge": 1, "le": 1000, "description": "rank-one members"})
    init: Literal["signs", "normal"] = field(
        default="signs", metadata={"description": "r and s start as random signs, or as N(1, init_scale²)"}
    )
    init_scale: float = field(default=0.5, metadata={"ge": 0, "le": 10, "description": "spread of a normal start"})
    factor_scale: float | None = field(
        default=0.5, metadata={"gt": 0, "le": 100, "description": "sd of the prior on r and s; null is none"}
    )
    split: bool = field(default=True, metadata={"description": "deal a batch to the members, or show each all of it"})
    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = False

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
        """State: factors and biases [1, members, ...], every other tensor of the model [1, ...]."""
        seed = derive(draw_seed(rng), 0)
        theta, fixed, layers = start_factors(
            self.name, problem, seed, self.members, warm=warm, device=data.x.device, draw=self._draw
        )
        trained = descend(
            problem,
            data,
            theta=theta,
            fixed=fixed,
            options=self,
            seeds=[seed],
            objective=self.objective,
            transform=RankOne(layers=layers),
            resume=resume,
            report=report,
            mode="loop",
        )
        return {**trained.theta, **trained.fixed}

    def objective(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        """−1/N of the sum in the docstring above: [1]."""
        weights, extra = split_extra(theta)
        x, y = deal(problem, batch, self.members, split=self.split)
        loss = -problem.likelihood.log_prob(forward(weights, x[None]), y[None], extra).mean(-1)
        if problem.prior is None:
            return loss
        factors, biases, rest = sort_tensors(weights)
        log_prior = loss.new_zeros(1)
        if rest:
            log_prior = log_prior + problem.prior.log_prob(rest)
        if biases:
            log_prior = log_prior + problem.prior.log_prob({k: v[0] for k, v in biases.items()}).mean()
        if self.factor_scale is not None:
            each = torch.cat(list(factors.values()), 2)  # [1, M, …]
            log_prior = log_prior + self._log_prior(each, self.factor_scale).sum((1, 2)) / self.members
        return loss - log_prior / batch.n_rows

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """min(n, members), evenly thinned: r, s and biases stacked, W shared."""
        factors, biases, rest = sort_tensors(state)
        stacked = thinned({k: v[0] for k, v in {**factors, **biases}.items()}, n)
        shared = {k: v[0] for k, v in rest.items()}
        return Ensemble(
            problem=problem, stacked=stacked, shared=shared, transform=RankOne(layers=factored_layers(state))
        )

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.epochs * (1 if self.split else self.members)

    def _draw(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        if self.init == "signs":
            return 2.0 * torch.randint(2, shape, generator=rng) - 1
        return 1 + self.init_scale * torch.randn(shape, generator=rng)

    def _log_prior(self, factor: Tensor, scale: float) -> Tensor:
        constant = -math.log(scale) - 0.5 * LOG_2PI
        above = -0.5 * ((factor - 1) / scale).square()
        if self.init == "normal":
            return above + constant
        below = -0.5 * ((factor + 1) / scale).square()
        return torch.logaddexp(above, below) - math.log(2) + constant


def start_factors(
    method: str,
    problem: Problem,
    seed: int,
    members: int,
    *,
    warm: Tensors | None,
    device: torch.device,
    draw: Draw,
    factors: tuple[str, ...] = (FACTOR_IN, FACTOR_OUT),
) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[str, ...]]:
    """θ, fixed tensors and the layers with factors, the leading axis of 1 being the one descent of all members.

    From a `warm` state come the shared tensors, and the factors and biases of as many members as it has.
    """
    first = None if warm is None else _as_one(warm)
    theta, fixed = start_members(problem, [seed], warm=first, from_weights=False, device=device)
    layers = _find_layers(method, problem, {**theta, **fixed})
    module = problem.model.skeleton()
    rng = generator(seed, _FACTORS)
    for layer in layers:
        for factor, width in zip((FACTOR_IN, FACTOR_OUT), widths(module.get_submodule(layer)), strict=True):
            if factor in factors:
                drawn = draw((members, width), rng)
                theta[join(layer, factor)] = drawn.to(device=device, dtype=problem.dtype)[None]
        bias = join(layer, "bias")
        if bias in theta:
            theta[bias] = theta[bias][:, None].repeat(1, members, 1)
    for name, old in (warm or {}).items():
        if name in theta and _is_per_member(name, warm or {}):
            n = min(old.shape[1], members)
            theta[name][:, :n] = old[:1, :n].to(theta[name])
    return theta, fixed, layers


def deal(problem: Problem, batch: Batch, n_groups: int, *, split: bool) -> tuple[Tensor, Tensor]:
    """A batch's rows in `n_groups` equal runs: x [G·b, ...], y [G·b(, T)].

    Split, b is B/G rounded up, for which a few rows are dealt twice (never twice to one group): each group has b of the
    rows at random, and its mean is that of the batch in expectation. A batch of all rows, whose order is always the
    same, is shuffled first. Not split, every run is the batch.
    """
    all_rows = batch.x.ndim == len(problem.model.input_shape) + 1
    x, y = batch.x if all_rows else batch.x[0], batch.y[0]
    n = x.shape[0]
    if n_groups == 1:
        return x, y
    if not split:
        rows = torch.arange(n).repeat(n_groups)
    else:
        rows = torch.arange(-(-n // n_groups) * n_groups) % n
        if all_rows:
            rows = permutation(n, batch.seeds[0], _DEAL)[rows]
        elif len(rows) == n:
            return x, y
    rows = rows.to(x.device)
    return x[rows], y[rows]


def sort_tensors(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Factors, biases of the members, and what they share."""
    own = {k: v for k, v in tensors.items() if _is_per_member(k, tensors)}
    factors = {k: v for k, v in own.items() if _is_factor(k)}
    biases = {k: v for k, v in own.items() if k not in factors}
    return factors, biases, {k: v for k, v in tensors.items() if k not in own}


def factored_layers(tensors: Tensors) -> tuple[str, ...]:
    """Names of the layers that have factors in a state, in its order."""
    found = [k.rpartition(".")[0] for k in tensors if _is_factor(k)]
    return tuple(dict.fromkeys(found))


def _is_factor(name: str) -> bool:
    return "/" not in name and name.rpartition(".")[2] in (FACTOR_IN, FACTOR_OUT)


def _is_per_member(name: str, tensors: Tensors) -> bool:
    """A factor, or the bias of a layer with factors that is not frozen (which has no axis of members)."""
    layer, _, last = name.rpartition(".")
    return _is_factor(name) or (
        last == "bias" and tensors[name].ndim == 3 and any(join(layer, f) in tensors for f in (FACTOR_IN, FACTOR_OUT))
    )


def _as_one(state: Tensors) -> dict[str, Tensor]:
    """A state as that of a plain network: the first member's biases, and no factors."""
    factors, biases, rest = sort_tensors(state)
    return {**rest, **{k: v[:, 0] for k, v in biases.items()}} if factors else dict(rest)


def _find_layers(method: str, problem: Problem, state: Tensors) -> tuple[str, ...]:
    """In the order in which the network calls them; refused if a run of rows would not meet its own factors alone."""
    device = next(iter(state.values())).device
    one = {k: v[0] for k, v in state.items()}
    members = gather(problem, state, {}, mode="loop")
    with borrowed(0), torch.no_grad():
        layers = tuple(layers_in_order(members.module, lambda: members.one(one, {}, zero_rows(problem, 1, device))))
    if not layers:
        raise InvalidModel(
            f"{method} puts factors on linear and convolution layers, and this module calls none; use another posterior"
        )
    named = dict(members.module.named_parameters())
    for layer in layers:
        if members.module.get_submodule(layer).bias is not None and join(layer, "bias") not in named:
            raise InvalidModel(f"{method}: {layer} shares its bias with another layer; give each a bias of its own")
    factored = gather(problem, state, {}, transform=RankOne(layers=layers), mode="loop")
    rng = generator(0)
    factors = {}
    for layer in layers:
        for factor, width in zip((FACTOR_IN, FACTOR_OUT), widths(members.module.get_submodule(layer)), strict=True):
            factors[join(layer, factor)] = (1 + 0.5 * torch.randn(2, width, generator=rng)).to(device, problem.dtype)
    x = zero_rows(problem, 4, device)
    if x.is_floating_point():
        x = torch.randn(x.shape, generator=rng).to(x)
    with borrowed(0), torch.no_grad():
        apart = [factored.one({**one, **{k: v[g] for k, v in factors.items()}}, {}, x[2 * g :][:2]) for g in (0, 1)]
        try:
            together = factored.one({**one, **factors}, {}, x)
        except RuntimeError:
            together = torch.full_like(torch.cat(apart), math.nan)
    expected = torch.cat(apart)
    if not bool(((together - expected).abs() <= 1e-3 * expected.abs().max()).all()):
        raise InvalidModel(
            f"{method} runs the rows of all members side by side, and this module does not keep rows on the first axis "
            "of every linear and convolution layer (batch_first=True?), or mixes them; use deep_ensemble"
        )
    return layers
