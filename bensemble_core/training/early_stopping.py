"""Early stopping: every member has rows of its own held out, and keeps its best epoch by their loss.

What is remembered travels in snapshots: `loss` and `waited` [M], and the tensors of the best epoch [M, ...].
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bensemble_core.randomness import count_held_out, permutation
from bensemble_core.types import Tensors

_HOLD_OUT = 3  # branch of a member's seed


def hold_out(rows: Tensor, share: float, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Each member's rows [M, N], in an order of its own, as those held out [M, H] and those to train on."""
    n = int(rows.shape[1])
    held = count_held_out(n, share, "early stopping", "; drop patience=…")
    orders = torch.stack([permutation(n, s, _HOLD_OUT) for s in seeds]).to(rows.device)
    chosen = rows.gather(1, orders)
    return chosen[:, :held], chosen[:, held:].contiguous()


def remember(best: dict[str, Tensor], loss: Tensor, now: Tensors, patience: int) -> None:
    """Take the tensors of members whose loss [M] is the least so far, unless they had stopped; changes `best`."""
    if not best:
        best |= {"loss": loss, "waited": torch.zeros(len(loss), dtype=torch.int64)}
        best |= {k: v.clone() for k, v in now.items()}
        return
    running = best["waited"] < patience
    better = running & (loss < best["loss"]).cpu()
    best["waited"] = torch.where(better, 0, best["waited"] + running.to(torch.int64))
    for name, tensor in {"loss": loss, **now}.items():
        best[name][better] = tensor[better]


def have_stopped(best: Tensors, patience: int) -> bool:
    """Whether every member has waited for `patience` epochs."""
    return bool(best) and bool((best["waited"] >= patience).all())
