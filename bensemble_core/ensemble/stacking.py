"""Modules that were trained elsewhere, as the members of one ensemble."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.members import gather
from bensemble_core.errors import InvalidData, InvalidModel, InvalidOption
from bensemble_core.likelihoods import HeteroscedasticGaussian, likelihood_named
from bensemble_core.models import ModuleSpec, adopt
from bensemble_core.models.spec import check_outputs, has_embedding
from bensemble_core.options import whole
from bensemble_core.randomness import borrowed, generator
from bensemble_core.types import Likelihood, Problem, Tensors


def stack_modules(
    modules: Sequence[nn.Module], likelihood: str | Likelihood, input_shape: Sequence[int] | None
) -> tuple[Problem, dict[str, Tensor]]:
    """The problem that they all answer, without standardisation, and their tensors [M, ...], on the CPU."""
    if isinstance(modules, nn.Module):
        raise InvalidModel(f"expected a list of modules, got one {type(modules).__name__}; for one member pass [it]")
    modules = list(modules)
    for i, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise InvalidModel(f"expected a list of nn.Module, entry {i} is of type {type(module).__name__}")
    if not modules:
        raise InvalidData("an ensemble needs at least one member, and the list of modules is empty")
    dtype = torch.float32
    for p in (p for module in modules for p in module.parameters() if p.is_floating_point()):
        dtype = torch.promote_types(dtype, p.dtype)
    shape = tuple(whole(n, "an entry of input_shape") for n in input_shape or _input_shape(modules[0]))
    first = _first(modules[0], shape, dtype)
    networks = [first, *(adopt(module, shape, dtype=dtype, integers=first.integers) for module in modules[1:])]
    named = [network.given(dtype=dtype) or {} for network in networks]
    for i, tensors in enumerate(named[1:], 1):
        _check_names(named[0], tensors, i)
    stacked = {name: torch.stack([tensors[name] for tensors in named]) for name in named[0]}
    bound = _bound(likelihood_named(likelihood), first.n_outputs)
    check_outputs(bound, first)
    problem = Problem(model=first, likelihood=bound, prior=None, dtype=dtype)
    _check_outputs_agree(problem, stacked, networks)
    return problem, stacked


def _first(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> ModuleSpec:
    """Rows are indices where it has an embedding and does not run on real numbers."""
    if has_embedding(module):
        with suppress(InvalidModel):
            return adopt(module, shape, dtype=dtype)
        return adopt(module, shape, dtype=dtype, integers=True)
    return adopt(module, shape, dtype=dtype)


def _input_shape(module: nn.Module) -> tuple[int, ...]:
    """Of flat rows, where the first layer with weights is a linear one."""
    first = next((part for part in module.modules() if list(part.parameters(recurse=False))), None)
    if isinstance(first, nn.Linear):
        return (first.in_features,)
    raise InvalidOption(
        f"the shape of a row cannot be read from {type(module).__name__}; pass input_shape=…, such as [3, 32, 32]"
    )


def _bound(likelihood: Likelihood, n_outputs: int) -> Likelihood:
    """With targets in their own units; what is learnt with the weights is not to be had from the weights alone."""
    n_targets = max(1, n_outputs // 2 if isinstance(likelihood, HeteroscedasticGaussian) else n_outputs)
    y = torch.tensor([[-1.0], [1.0]]).expand(2, n_targets)  # of sd 1
    bound = likelihood.bind(y, n_outputs=n_outputs, standardise=False)
    if bound.start(dtype=torch.float32):
        raise InvalidOption(
            "modules do not hold the noise of y; pass likelihood=Gaussian(noise=…), its standard deviation, or "
            "HeteroscedasticGaussian() for modules with a mean and a raw variance of each target"
        )
    return bound


def _check_names(first: Tensors, other: Tensors, i: int) -> None:
    for name in [*first, *(name for name in other if name not in first)]:
        shapes = [list(tensors[name].shape) if name in tensors else "no such tensor" for tensors in (first, other)]
        if shapes[0] != shapes[1]:
            raise InvalidModel(
                f"members are of one architecture, and module {i} differs from module 0 in {name}: {shapes[1]} there, "
                f"{shapes[0]} in module 0"
            )


def _check_outputs_agree(problem: Problem, stacked: Tensors, networks: Sequence[ModuleSpec]) -> None:
    """Tensors of the same names and shapes may belong to other code (another activation): a few rows show it."""
    shape = (4, *problem.model.input_shape)
    x = torch.zeros(shape, dtype=torch.int64)
    if not problem.model.integers:
        x = torch.randn(shape, generator=generator(0), dtype=problem.dtype)
    with torch.no_grad(), borrowed(0):
        found = gather(problem, stacked, {})(stacked, {}, x)  # [M, 4, O]
        for i, network in enumerate(networks):
            expected: Any = network.skeleton().to(problem.dtype).eval()(x.clone())
            size = max(1.0, float(expected.abs().max()))
            gap = float((found[i] - expected.reshape(found[i].shape)).abs().max())
            if not gap <= 1e-4 * size and math.isfinite(size):
                raise InvalidModel(
                    f"module {i} gives other outputs than its tensors do in the code of module 0 (by up to {gap:.2g}): "
                    "members are of one architecture, and draw no random numbers in eval mode"
                )
