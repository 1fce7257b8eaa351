"""Rank-one factors of the layers of any network: where they start, how a batch is dealt to them, how they are trained.

Shared by `batch_ensemble` and `rank1_bnn`. In a state, factors and the biases of their layers are [1, members, ...],
every other tensor of the model [1, ...].
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.members import gather, layers_called, zero_rows
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.models.transforms import FACTOR_IN, FACTOR_OUT, RankOne, join, widths
from bensemble_core.posteriors.networks import Networks
from bensemble_core.randomness import borrowed, generator, permutation
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Data, Problem, Shapes, Tensors

_FACTORS, _DEAL = 11, 12  # branches of a seed
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True, kw_only=True)
class Factored(Networks):
    """What methods with rank-one factors share: one descent of all members, each with its own run of a batch's rows.

    A method says how a factor starts (`draw`), which there are (`factor_names`, `n_sets` of each), what is minimised.
    """

    starts_from_weights: ClassVar[bool] = False

    @property
    def n_sets(self) -> int:
        """Sets of factors in the state."""
        raise NotImplementedError

    @property
    def factor_names(self) -> tuple[str, ...]:
        return FACTOR_IN, FACTOR_OUT

    @property
    def n_passes(self) -> int:
        """How often a row is passed through the network in an epoch."""
        raise NotImplementedError

    def draw(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        """Where a factor of a shape starts, on the CPU."""
        raise NotImplementedError

    def objective(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        """What is minimised: [1]."""
        raise NotImplementedError

    def check(self, problem: Problem) -> None:
        """Refuse a network that cannot have factors; whether a module of the caller's keeps its rows apart is tried."""
        layers = _factored(self.name, problem)
        if problem.model.given(dtype=problem.dtype) is not None:
            _check_runs(self.name, problem, problem.model.initialise(0, dtype=problem.dtype), layers)

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        """From a `warm` state come the shared tensors, and the factors and biases of as many members as it has."""
        first = None if warm is None else _as_one(warm)
        run, device = super().run(problem, data, seeds=seeds, warm=first), data.x.device
        theta, rng = dict(run.theta), generator(seeds[0], _FACTORS)
        layers, module = _factored(self.name, problem), outline(problem.model)
        for layer in layers:
            for factor, width in self._widths(module.get_submodule(layer)):
                drawn = self.draw((self.n_sets, width), rng)
                theta[join(layer, factor)] = drawn.to(device=device, dtype=problem.dtype)[None]
            bias = join(layer, "bias")
            if bias in theta:
                theta[bias] = theta[bias][:, None].repeat(1, self.n_sets, 1)
        for name, old in (warm or {}).items():
            if name in theta and _is_per_member(name, warm or {}):
                n = min(old.shape[1], self.n_sets)
                theta[name][:, :n] = old[:1, :n].to(theta[name])
        factors = RankOne(layers=layers)
        return replace(run, theta=theta, objective=self.objective, transform=factors, mode="loop")

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """The members as plain networks, W ∘ (s rᵀ) for each: every tensor of the model, [members, ...]."""
        factors, biases, rest = sort_tensors(state)
        n_members = next(iter(factors.values())).shape[1]
        members = {k: v.expand(n_members, *v.shape[1:]) for k, v in rest.items()} | {k: v[0] for k, v in biases.items()}
        module = outline(problem.model)
        for layer in factored_layers(state):
            weight = join(layer, "weight")
            if weight not in members:
                raise InvalidOption(
                    f"{layer} shares its weight with another layer, each under its own factors, so no plain network is "
                    "the same; start afresh without warm"
                )
            own = (factors[name][0] if (name := join(layer, f)) in factors else None for f in (FACTOR_IN, FACTOR_OUT))
            members[weight] = _folded(module.get_submodule(layer), members[weight], *own)
        return {k: v.clone() for k, v in members.items()}

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        shapes, module = super().expected(problem, state), outline(problem.model)
        trained = set(trainable_names(module))
        for layer in _factored(self.name, problem):
            for factor, width in self._widths(module.get_submodule(layer)):
                shapes[join(layer, factor)] = (1, self.n_sets, width)
            bias = join(layer, "bias")
            if bias in trained:
                shapes[bias] = (1, self.n_sets, *shapes[bias][1:])
        return shapes

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.epochs * self.n_passes

    def _widths(self, layer: nn.Module) -> list[tuple[str, int]]:
        named = zip((FACTOR_IN, FACTOR_OUT), widths(layer), strict=True)
        return [(factor, width) for factor, width in named if factor in self.factor_names]


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
    factors = {k: v for k, v in own.items() if is_factor(k)}
    biases = {k: v for k, v in own.items() if k not in factors}
    return factors, biases, {k: v for k, v in tensors.items() if k not in own}


def factored_layers(tensors: Tensors) -> tuple[str, ...]:
    """Names of the layers that have factors in a state, in its order."""
    found = [k.rpartition(".")[0] for k in tensors if is_factor(k)]
    return tuple(dict.fromkeys(found))


def _folded(layer: nn.Module, weight: Tensor, r: Tensor | None, s: Tensor | None) -> Tensor:
    """W ∘ (s rᵀ) [M, ...]; a transposed convolution has its inputs first, one in groups sees only its group's."""
    first, second = (r, s) if isinstance(layer, _TRANSPOSED) else (s, r)
    groups: int = getattr(layer, "groups", 1)
    gaps = [1] * (weight.ndim - 3)
    if first is not None:
        weight = weight * first.reshape(*first.shape, 1, *gaps)
    if second is not None:
        each = second.reshape(len(second), groups, -1).repeat_interleave(weight.shape[1] // groups, 1)  # [M, O, I]
        weight = weight * each.reshape(*each.shape, *gaps)
    return weight


def is_factor(name: str) -> bool:
    """Whether a tensor of a state is a factor, or the mean of one."""
    return "/" not in name and name.rpartition(".")[2] in (FACTOR_IN, FACTOR_OUT)


def _is_per_member(name: str, tensors: Tensors) -> bool:
    """A factor, or the bias of a layer with factors that is not frozen (which has no axis of members)."""
    layer, _, last = name.rpartition(".")
    return is_factor(name) or (
        last == "bias" and tensors[name].ndim == 3 and any(join(layer, f) in tensors for f in (FACTOR_IN, FACTOR_OUT))
    )


def _as_one(state: Tensors) -> dict[str, Tensor]:
    """A state as that of a plain network: the first member's biases, and no factors."""
    factors, biases, rest = sort_tensors(state)
    return {**rest, **{k: v[:, 0] for k, v in biases.items()}} if factors else dict(rest)


def _factored(method: str, problem: Problem) -> tuple[str, ...]:
    """The layers with factors, in the order in which the network calls them."""
    layers, module = layers_called(problem), outline(problem.model)
    if not layers:
        raise InvalidModel(
            f"{method} puts factors on linear and convolution layers, and this module calls none; use another posterior"
        )
    named = dict(module.named_parameters())
    for layer in layers:
        if module.get_submodule(layer).bias is not None and join(layer, "bias") not in named:
            raise InvalidModel(f"{method}: {layer} shares its bias with another layer; give each a bias of its own")
    return layers


def _check_runs(method: str, problem: Problem, one: Tensors, layers: tuple[str, ...]) -> None:
    """Refuse a network in which a run of rows would see other factors than its own; `one` are tensors to try it at."""
    device = next(iter(one.values())).device
    factored = gather(problem, {k: v[None] for k, v in one.items()}, {}, transform=RankOne(layers=layers), mode="loop")
    rng = generator(0)
    factors = {}
    for layer in layers:
        for factor, width in zip((FACTOR_IN, FACTOR_OUT), widths(factored.module.get_submodule(layer)), strict=True):
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
