"""One member that represents an ensemble where members cannot be averaged, whatever their order."""

import torch
from torch import Tensor

from bensemble_core.types import Tensors

_COLUMNS = 4096  # numbers of each member that are compared at once


def representative(stacked: Tensors, log_weights: Tensor | None = None) -> int:
    """Where the heaviest member is; of equally heavy ones, the one whose numbers, read in order, are the largest.

    Tensors are read by name, each from its first number on, up to the first in which members differ; what is left after
    the last has the same numbers, so that it makes no difference which is taken.
    """
    n_members = next(iter(stacked.values())).shape[0]
    if log_weights is None:
        left = torch.arange(n_members)
    else:
        left = (log_weights == log_weights.max()).nonzero()[:, 0].cpu()
    for name in sorted(stacked):
        for part in torch.split(stacked[name].reshape(n_members, -1), _COLUMNS, 1):
            while left.numel() > 1:
                values = part[left.to(part.device)].double().nan_to_num().cpu()
                differ = (values != values[0]).any(0).nonzero()[:, 0]
                if not differ.numel():
                    break
                column = values[:, differ[0]]
                left = left[column == column.max()]
    return int(left[0])
