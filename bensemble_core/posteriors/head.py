"""The last linear layer of a network: which it is, and whether what it gives is what the network gives."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.members import gather, layers_called, zero_rows
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel
from bensemble_core.models.spec import ModuleSpec, outline, trainable_names
from bensemble_core.models.transforms import join
from bensemble_core.randomness import borrowed
from bensemble_core.types import Data, Problem, Progress, Tensors

_ROWS = 1024  # in one pass through the network below its head


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


def head_names(method: str, problem: Problem) -> list[str]:
    """The trainable parameters of the last linear layer."""
    head = find_head(problem)
    names = [n for n in trainable_names(outline(problem.model)) if n in (join(head, "weight"), join(head, "bias"))]
    if not names:
        raise InvalidModel(f"{method}: no parameter of the last layer requires a gradient; unfreeze some")
    return names


def head_alone(
    problem: Problem, tensors: Tensors, data: Data, progress: Progress = lambda done, total, message: None
) -> tuple[Problem, Data, dict[str, str]]:
    """The last linear layer as a problem of its own, on rows that have been through the rest of the network once.

    `tensors` are one member's. Also the names of its tensors, and the likelihood's, as the network calls them.
    """
    head = find_head(problem)
    own, extra = split_extra(tensors)
    members = gather(problem, {k: v[None] for k, v in own.items()}, {}, mode="loop")
    features = []
    for start in range(0, max(1, data.n_rows), _ROWS):
        features.append(members.inputs_of(head, own, {}, data.x[start : start + _ROWS].clone()).flatten(1))
        done = min(data.n_rows, start + _ROWS)
        progress(done, data.n_rows, f"features of {done} of {data.n_rows} rows")
    layer = members.module.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    with borrowed(0):  # building draws initial values
        alone = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None).to(problem.dtype)
    model = ModuleSpec(module=alone, input_shape=(layer.in_features,), n_outputs=layer.out_features)
    renamed = {name: join(head, name) for name, _ in alone.named_parameters()} | {k: k for k in extra}
    return replace(problem, model=model, scaling=None), Data(x=torch.cat(features).detach(), y=data.y), renamed
