"""Whether a snapshot is of this training: of its settings, of its rows, and with all of its tensors.

Three marks travel in a snapshot. `fingerprint` is a hash of the settings and `contents` of the names and shapes that
follow, so that a tensor that was lost or cut is noticed. `rows` are projections of the data, which another machine may
sum in another order: these are compared as numbers.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from bensemble_core.errors import InvalidSnapshot
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Problem, Tensors

_FINGERPRINT, _ROWS, _CONTENTS = "fingerprint", "rows", "contents"
_MARKS = (_FINGERPRINT, _ROWS, _CONTENTS)
_PROJECTED = 1 << 20  # most numbers of a tensor that are compared, evenly spread over it
_TOLERANCE = 1e-5  # largest difference of two projections, as a share of the tensor's norm


def stamp(tensors: Tensors, settings: object, data: Sequence[Tensor]) -> dict[str, Tensor]:
    """A snapshot of our own: copies of the tensors, and the marks."""
    own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    marks = (torch.tensor(_hash(settings)), _projections(data)[:, 0], torch.tensor(_hash(_outline(own))))
    return own | dict(zip(_MARKS, marks, strict=True))


def restore(snapshot: Tensors, settings: object, data: Sequence[Tensor], device: torch.device) -> dict[str, Tensor]:
    """Its tensors, as copies on the device; InvalidSnapshot unless it is a whole snapshot of this training."""
    own = {name: tensor.detach().clone() for name, tensor in snapshot.items() if name not in _MARKS}
    if any(mark not in snapshot for mark in _MARKS) or int(snapshot[_CONTENTS]) != _hash(_outline(own)):
        raise InvalidSnapshot("this snapshot lacks tensors, or some were cut; start afresh without resume")
    value, size = _projections(data).unbind(1)
    rows = snapshot[_ROWS].cpu()
    same = rows.shape == value.shape and bool(((rows - value).abs() <= _TOLERANCE * size).all())
    if int(snapshot[_FINGERPRINT]) != _hash(settings) or not same:
        raise InvalidSnapshot(
            "this snapshot is of another training (other model, prior, likelihood, options, seed or rows); resume with "
            "the call that made it, or start afresh without resume"
        )
    return {name: tensor.to(device) for name, tensor in own.items()}


def numbers_of(problem: Problem, data: Data) -> tuple[Tensor, ...]:
    """The rows of a training, and how they were standardised."""
    moments = [torch.tensor(getattr(problem.likelihood, name, ()), dtype=torch.float64) for name in ("mean", "scale")]
    of_rows = () if problem.scaling is None else (problem.scaling.mean, problem.scaling.scale)
    return data.x, data.y, *moments, *of_rows


def words_of(problem: Problem) -> tuple[object, tuple[object, ...]]:
    """The prior and the likelihood that were asked for."""
    likelihood = problem.likelihood
    asked = (type(likelihood).__name__, *(getattr(likelihood, name, None) for name in ("noise", "learn_noise")))
    return None if problem.prior is None else problem.prior.to_json(), asked


def _projections(data: Sequence[Tensor]) -> Tensor:
    """Each tensor's product with random numbers, and its norm: [len(data), 2]."""
    found = []
    for tensor in data:
        flat = tensor.detach().reshape(-1)
        flat = flat[:: -(-flat.numel() // _PROJECTED) or 1].to("cpu", torch.float64)
        along = torch.randn(flat.shape, generator=generator(0), dtype=torch.float64)
        found.append(torch.stack([flat @ along, flat.norm()]))
    return torch.stack(found)


def _outline(tensors: Tensors) -> list[tuple[str, tuple[int, ...], str]]:
    return sorted((name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items())


def _hash(settings: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(settings).encode()).digest()[:8], "big") >> 1
