"""Running statistics of batch normalisation for weights that were never trained with: averages and draws."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bensemble_core.ensemble.members import gather
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.models.transforms import join
from bensemble_core.randomness import borrowed
from bensemble_core.types import Problem, Tensors

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def has_batch_norm(problem: Problem) -> bool:
    """Whether the network normalises by running statistics."""
    return bool(_layers(problem.model.skeleton()))


def renormalised(problem: Problem, stacked: Tensors, shared: Tensors, blocks: Sequence[Tensor]) -> dict[str, Tensor]:
    """Batch norm buffers [M, ...] of each member: the average over blocks of rows of their means and variances.

    Only the normalising layers run as in training: dropout is off, as it will be at prediction.
    """
    members = gather(problem, stacked, shared, mode="loop")
    layers = _layers(members.module)
    for layer in layers.values():
        layer.train()
        layer.momentum = None  # torch's way to say: a plain average over the blocks
    names = [join(name, k) for name in layers for k in _BUFFERS]
    device = next(iter(stacked.values())).device
    found = []
    for m in range(next(iter(stacked.values())).shape[0]):
        tensors = split_extra({**shared, **{k: v[m] for k, v in stacked.items()}})[0]
        buffers = {k: torch.zeros_like(tensors[k]) for k in names}
        with torch.no_grad(), borrowed(0, device):
            for block in blocks:
                members.one({**tensors, **buffers}, {}, block.clone())  # writes to the buffers
        found.append(buffers)
    return {k: torch.stack([buffers[k] for buffers in found]) for k in names}


def _layers(module: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    kind = nn.modules.batchnorm._BatchNorm
    return {k: part for k, part in module.named_modules() if isinstance(part, kind) and part.track_running_stats}
