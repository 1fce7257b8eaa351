"""Where members start and how they are kept: shared by every method trained by descent."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bensemble_core.models.spec import checked_state, trainable_names
from bensemble_core.training import split_extra
from bensemble_core.types import Problem, Tensors


def start_members(
    problem: Problem, seeds: Sequence[int], *, warm: Tensors | None, from_weights: bool, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """θ and fixed tensors (buffers, frozen parameters) of each member, [M, ...].

    Member m continues from member m of the `warm` state where there is one; else it starts from the weights handed in
    with the module if the method wants them, else from its own seed.
    """
    members = []
    for m, seed in enumerate(seeds):
        given = problem.model.given(dtype=problem.dtype) if from_weights else None
        fresh = problem.model.initialise(seed, dtype=problem.dtype) if given is None else given
        fresh |= problem.likelihood.start(dtype=problem.dtype)
        if warm is not None and m < min((len(warm[k]) for k in fresh if k in warm), default=1):
            old = {k: v[m] for k, v in warm.items() if k in fresh}  # a method may keep more than the model's tensors
            checked_state(fresh, old, "warm start")
            fresh = {k: old[k].to(problem.dtype) if fresh[k].is_floating_point() else old[k] for k in fresh}
        members.append(fresh)
    stacked = {k: torch.stack([member[k].to(device) for member in members]) for k in members[0]}
    trained = set(trainable_names(problem.model.skeleton())) | set(split_extra(stacked)[1])
    theta = {k: v for k, v in stacked.items() if k in trained}
    return theta, {k: v for k, v in stacked.items() if k not in trained}


def thinned(state: Tensors, n: int) -> dict[str, Tensor]:
    """min(n, S) of S kept members, evenly spread, the first always among them."""
    kept = next(iter(state.values())).shape[0]
    n = min(n, kept)
    chosen = torch.arange(n) * kept // n
    return {k: v[chosen.to(v.device)] for k, v in state.items()}


def split_shared(problem: Problem, members: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stacked and shared: what is not trained and agrees bit for bit between members is kept once."""
    trained = set(trainable_names(problem.model.skeleton()))
    count = next(iter(members.values())).shape[0]
    shared = {
        k: v[0]
        for k, v in members.items()
        if count > 1 and k not in trained and "/" not in k and bool((v == v[:1]).all())
    }
    return {k: v for k, v in members.items() if k not in shared}, shared
