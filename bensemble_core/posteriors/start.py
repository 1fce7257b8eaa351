"""Where members start and how they are kept: shared by every method trained by descent."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from bensemble_core.ensemble.members import zero_rows
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.io import model_shapes
from bensemble_core.models.spec import checked_state, outline, tensors_of, trainable_names
from bensemble_core.models.transforms import Linearised
from bensemble_core.randomness import borrowed
from bensemble_core.types import Problem, Shapes, Tensors

LARGEST_HELD = 1 << 28  # numbers: a gigabyte in float32, and as much again for their gradient


def start_members(
    problem: Problem, seeds: Sequence[int], *, warm: Tensors | None, from_weights: bool, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """θ and fixed tensors (buffers, frozen parameters) of each member, [M, ...].

    Member m continues from member m of the `warm` state where there is one; else it starts from the weights handed in
    with the module if the method wants them, else from its own seed. A noise that the warm one did not learn starts
    afresh.
    """
    members = []
    for m, seed in enumerate(seeds):
        given = problem.model.given(dtype=problem.dtype) if from_weights else None
        fresh = problem.model.initialise(seed, dtype=problem.dtype) if given is None else given
        fresh |= problem.likelihood.start(dtype=problem.dtype)
        if warm is not None and m < min((len(warm[k]) for k in fresh if k in warm), default=1):
            own = {k: v for k, v in fresh.items() if k in warm or not k.startswith("likelihood/")}
            old = {k: v[m] for k, v in warm.items() if k in fresh}  # a method may keep more than the model's tensors
            checked_state(own, old, "warm start")
            fresh |= {k: old[k].to(problem.dtype) if fresh[k].is_floating_point() else old[k] for k in own}
        members.append(fresh)
    stacked = {k: torch.stack([member[k].to(device) for member in members]) for k in members[0]}
    trained = set(trainable_names(problem.model.skeleton())) | set(split_extra(stacked)[1])
    theta = {k: v for k, v in stacked.items() if k in trained}
    return theta, {k: v for k, v in stacked.items() if k not in trained}


def check_trainable(method: str, problem: Problem, *, as_they_are: bool = False) -> None:
    """Refuse a network with nothing to train, unless its weights are taken as they are."""
    if not as_they_are and not trainable_names(outline(problem.model)):
        raise InvalidModel(
            f"{method}: every parameter of the module is frozen, so there is nothing to train; unfreeze some with "
            "requires_grad_(True), or take the weights as they are with map and epochs=0"
        )


def check_linearises(method: str, problem: Problem, names: Sequence[str], advice: str) -> None:
    """Refuse a network that has no forward derivative in these parameters; on the meta device."""
    module = outline(problem.model).to(problem.dtype).eval()
    tensors = tensors_of(module)
    row = zero_rows(problem, 1, tensors[names[0]].device)
    try:
        with borrowed(0), torch.no_grad():
            Linearised().forward(
                lambda own, x: functional_call(module, dict(own), (x,)), {n: tensors[n] for n in names}, tensors, row
            )
    except (RuntimeError, NotImplementedError) as reason:
        raise InvalidModel(
            f"{method}: this module has an operation without a forward derivative ({str(reason).splitlines()[0]}); "
            f"{advice}"
        ) from reason


def check_memory(method: str, what: str, numbers: int, advice: str) -> None:
    """Refuse a step that would hold more numbers at one time than a memory has; `what` says of what they are."""
    if numbers > LARGEST_HELD:
        raise InvalidOption(
            f"{method} holds {what} at one time: {numbers:,} numbers, at most {LARGEST_HELD:,} are taken; {advice}"
        )


def member_shapes(problem: Problem, n: int) -> Shapes:
    """Of n plain networks: every tensor of the model and of the likelihood under its own name, [n, ...]."""
    return {name: (n, *shape) for name, shape in model_shapes(problem).items()}


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
