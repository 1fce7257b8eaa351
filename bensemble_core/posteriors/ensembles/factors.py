"""Rank-one factors of the layers of any network: where they start, how a batch is dealt to them, how they are trained.

Shared by `batch_ensemble` and `rank1_bnn`. In a state, factors and the biases of their layers are [1, members, ...],
every other tensor of the model [1, ...].
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.members import gather, layers_called, zero_rows
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.models.transforms import FACTOR_IN, FACTOR_OUT, RankOne, join, widths
from bensemble_core.posteriors.start import member_shapes, start_members
from bensemble_core.randomness import borrowed, generator, permutation
from bensemble_core.training.descent import Descent, Run, descend
from bensemble_core.training.objectives import Batch, Objective
from bensemble_core.types import Data, Problem, Report, Shapes, Tensors

Draw: TypeAlias = Callable[[tuple[int, ...], torch.Generator], Tensor]  # how a factor of a shape starts, on the CPU
Start: TypeAlias = tuple[dict[str, Tensor], dict[str, Tensor], tuple[str, ...]]
_FACTORS, _DEAL = 11, 12  # branches of a seed
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


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
) -> Start:
    """θ, fixed tensors and the layers with factors, the leading axis of 1 being the one descent of all members.

    From a `warm` state come the shared tensors, and the factors and biases of as many members as it has.
    """
    first = None if warm is None else _as_one(warm)
    theta, fixed = start_members(problem, [seed], warm=first, from_weights=False, device=device)
    layers, module = _factored(method, problem), outline(problem.model)
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


def train_factors(
    problem: Problem,
    data: Data,
    start: Start,
    options: Descent,
    seed: int,
    objective: Objective,
    *,
    resume: Tensors | None,
    report: Report,
) -> dict[str, Tensor]:
    """Descend from a start, all members in one run; what was trained and what was not."""
    theta, fixed, layers = start
    trained = descend(
        Run(
            problem=problem,
            data=data,
            theta=theta,
            fixed=fixed,
            options=options,
            seeds=[seed],
            objective=objective,
            transform=RankOne(layers=layers),
            mode="loop",
        ),
        resume=resume,
        report=report,
    )
    return {**trained.theta, **trained.fixed}


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


def expected_factors(method: str, problem: Problem, members: int, factors: tuple[str, ...]) -> tuple[Shapes, Shapes]:
    """Names and shapes of a state: its factors, and every tensor of the model."""
    shapes, module = member_shapes(problem, 1), outline(problem.model)
    trained = set(trainable_names(module))
    own: Shapes = {}
    for layer in _factored(method, problem):
        for factor, width in zip((FACTOR_IN, FACTOR_OUT), widths(module.get_submodule(layer)), strict=True):
            if factor in factors:
                own[join(layer, factor)] = (1, members, width)
        bias = join(layer, "bias")
        if bias in trained:
            shapes[bias] = (1, members, *shapes[bias][1:])
    return own, shapes


def unfolded(problem: Problem, state: Tensors) -> dict[str, Tensor]:
    """The members as plain networks, W ∘ (s rᵀ) for each: every tensor of the model, [members, ...]."""
    factors, biases, rest = sort_tensors(state)
    n_members = next(iter(factors.values())).shape[1]
    members = {k: v.expand(n_members, *v.shape[1:]) for k, v in rest.items()} | {k: v[0] for k, v in biases.items()}
    module = outline(problem.model)
    for layer in factored_layers(state):
        weight = join(layer, "weight")
        if weight not in members:
            raise InvalidOption(
                f"{layer} shares its weight with another layer, each under its own factors, so no plain network is the "
                "same; start afresh without warm"
            )
        members[weight] = _folded(
            module.get_submodule(layer),
            members[weight],
            *(factors[name][0] if (name := join(layer, f)) in factors else None for f in (FACTOR_IN, FACTOR_OUT)),
        )
    return {k: v.clone() for k, v in members.items()}


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


def check_factors(method: str, problem: Problem) -> None:
    """Refuse a network that cannot have factors; whether a module of the caller's keeps its rows apart is tried."""
    layers = _factored(method, problem)
    if problem.model.given(dtype=problem.dtype) is not None:
        _check_runs(method, problem, problem.model.initialise(0, dtype=problem.dtype), layers)


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
    """Refuse a network in which a run of rows would not meet its own factors alone; `one` are tensors to try it at."""
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
