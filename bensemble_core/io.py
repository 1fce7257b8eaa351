"""Files: safetensors with a JSON header in the metadata. No pickle, so a file can hold numbers and nothing else.

`save_tensors` / `load_tensors` keep any flat dict of tensors (a training snapshot), on a path or as bytes.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from bensemble_core.errors import InvalidFile, InvalidModel
from bensemble_core.likelihoods import likelihood_from_json
from bensemble_core.models import adopt, named_model
from bensemble_core.models.spec import checked_state, tensors_of
from bensemble_core.priors import prior_from_json
from bensemble_core.types import Problem, Scaling, Tensors

FORMAT = 1
_KEY = "bensemble"


def write(path: str | Path, header: Mapping[str, Any], tensors: Tensors) -> None:
    """All or nothing: the bytes go to a file beside it, which then takes its name."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(to_bytes(header, tensors))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's own mode would hide the file from other users
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def to_bytes(header: Mapping[str, Any], tensors: Tensors) -> bytes:
    """Same header and tensors, same bytes."""
    text = json.dumps({**header, "format": FORMAT}, sort_keys=True, allow_nan=False)
    return save({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, metadata={_KEY: text})


def read(source: str | Path | bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file or of its bytes."""
    try:
        if isinstance(source, bytes):
            size = int.from_bytes(source[:8], "little")
            metadata = json.loads(source[8 : 8 + size]).get("__metadata__") if 8 + size <= len(source) else None
            tensors = load(source)
        else:
            with safe_open(os.fspath(source), framework="pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, ValueError, AttributeError) as reason:
        raise InvalidFile(f"{_called(source)} is not a safetensors file, or was cut short ({reason})") from reason
    if not metadata or _KEY not in metadata:
        raise InvalidFile(f"{_called(source)} is a safetensors file, but not one of ours: it has no {_KEY} header")
    header: dict[str, Any] = json.loads(metadata[_KEY])
    if header.get("format") != FORMAT:
        raise InvalidFile(f"{_called(source)} has format {header.get('format')}, this version reads {FORMAT}; upgrade")
    return header, tensors


def save_tensors(tensors: Tensors, path: str | Path | None = None) -> bytes:
    """A flat dict of tensors (0-d ones too, dtypes kept) as bytes, and at a path if one is given."""
    header = {"kind": "tensors"}
    if path is not None:
        write(path, header, tensors)
    return to_bytes(header, tensors)


def load_tensors(source: str | Path | bytes) -> dict[str, Tensor]:
    """The inverse of `save_tensors`."""
    return read(source)[1]


def above(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {prefix + k: v for k, v in tensors.items()}


def below(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}


def problem_header(problem: Problem) -> dict[str, Any]:
    return {
        "model": problem.model.to_json(),
        "likelihood": problem.likelihood.to_json(),
        "prior": None if problem.prior is None else problem.prior.to_json(),
        "dtype": str(problem.dtype).removeprefix("torch."),
    }


def problem_tensors(problem: Problem) -> dict[str, Tensor]:
    if problem.scaling is None:
        return {}
    return {"scaling/mean": problem.scaling.mean, "scaling/scale": problem.scaling.scale}


def problem_from(header: Mapping[str, Any], tensors: Tensors, *, model: nn.Module | None) -> Problem:
    """The problem of a file; a network that was an nn.Module has to be handed in again."""
    dtype: torch.dtype = getattr(torch, header["dtype"])
    spec = header["model"]
    shape = tuple(spec["input_shape"])
    scaling = below("scaling/", tensors)
    common: dict[str, Any] = {
        "likelihood": likelihood_from_json(header["likelihood"]),
        "prior": prior_from_json(header["prior"]),
        "scaling": Scaling(mean=scaling["mean"], scale=scaling["scale"]) if scaling else None,
        "dtype": dtype,
    }
    if spec["spec"] is not None:
        return Problem(model=named_model(spec["spec"], shape, spec["n_outputs"]), **common)
    if model is None:
        raise InvalidModel(
            f"the file holds the tensors of a {spec['module']}, not its code; pass the module: load(path, model=net)"
        )
    adopted = adopt(model, shape, dtype=dtype, integers=spec["integers"])
    if adopted.n_outputs != spec["n_outputs"]:
        raise InvalidModel(f"expected a module with {spec['n_outputs']} outputs, got {adopted.n_outputs}")
    return Problem(model=adopted, **common)


def check_module(problem: Problem, stacked: Tensors, shared: Tensors) -> None:
    """Raise unless the loaded tensors are those of the problem's network."""
    expected = tensors_of(problem.model.skeleton())
    found = {**shared, **{k: v[0] for k, v in stacked.items()}}
    checked_state(expected, found, "the tensors of the file do not fit the model")


def _called(source: str | Path | bytes) -> str:
    return f"this ({len(source)} bytes)" if isinstance(source, bytes) else str(source)
