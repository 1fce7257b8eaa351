"""The last linear layer of a network: which it is, and whether what it gives is what the network gives."""

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.members import gather, layers_called, zero_rows
from bensemble_core.errors import InvalidModel
from bensemble_core.models.spec import outline
from bensemble_core.randomness import borrowed
from bensemble_core.types import Problem, Tensors


def find_head(problem: Problem) -> str:
    """Name of the last linear layer to run."""
    module = outline(problem.model)
    linear = [name for name in layers_called(problem) if isinstance(module.get_submodule(name), nn.Linear)]
    if not linear:
        raise InvalidModel('subset="last_layer" needs a linear layer, and this module calls none')
    return linear[-1]


def gives_the_outputs(problem: Problem, tensors: Tensors, head: str) -> bool:
    """Whether the named layer's output is the network's, unchanged; `tensors` are one member's."""
    members = gather(problem, {k: v[None] for k, v in tensors.items()}, {}, mode="loop")
    made: list[Tensor] = []
    hook = members.module.get_submodule(head).register_forward_hook(
        lambda _m, _a, out: made.extend((out, out.clone()))  # the copy: a module may work in place on its outputs
    )
    try:
        with borrowed(0), torch.no_grad():
            outputs = members.one(tensors, {}, zero_rows(problem, 1, next(iter(tensors.values())).device))
    finally:
        hook.remove()
    same = made[-2].data_ptr() == outputs.data_ptr() and made[-1].numel() == outputs.numel()
    return same and torch.equal(made[-1].flatten(), outputs.flatten())
