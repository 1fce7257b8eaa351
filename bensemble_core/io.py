"""Files: safetensors with a JSON header in the metadata. No pickle, so a file can hold numbers and nothing else.

`save_tensors` / `load_tensors` keep any flat dict of tensors (a training snapshot), on a path or as bytes.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from bensemble_core.errors import BensembleError, InvalidFile, InvalidModel
from bensemble_core.likelihoods import likelihood_from_json
from bensemble_core.models import ModuleSpec, adopt, named_model
from bensemble_core.models.derived import derived_from_json
from bensemble_core.models.spec import LARGEST_ROW, outline
from bensemble_core.options import whole
from bensemble_core.priors import prior_from_json
from bensemble_core.types import Model, Problem, Scaling, Shapes, Tensors

FORMAT = 1  # version of the files
_KEY = "bensemble"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}  # of a problem


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
    """Header and tensors of a file or of its bytes.

    A file is read in one go: another may take its name at any moment, and safetensors would open it twice, for the
    header and for the numbers.
    """
    try:
        given = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as reason:
        raise InvalidFile(
            f"{_called(source)} cannot be read ({reason.strerror or reason}); expected a file of ours"
        ) from reason
    try:
        size = int.from_bytes(given[:8], "little")
        metadata = json.loads(given[8 : 8 + size]).get("__metadata__") if 8 + size <= len(given) else None
        tensors = load(given)
    except (SafetensorError, ValueError, AttributeError, RuntimeError) as reason:
        raise InvalidFile(f"{_called(source)} is not a safetensors file, or was cut short ({reason})") from reason
    if not metadata or _KEY not in metadata:
        raise InvalidFile(f"{_called(source)} is a safetensors file, but not one of ours: it has no {_KEY} header")
    with header_read(f"the header of {_called(source)}"):
        header = json.loads(metadata[_KEY])
    if not isinstance(header, dict):
        raise InvalidFile(f"the header of {_called(source)} has to be an object, got {type(header).__name__}")
    if header.get("format") != FORMAT:
        raise InvalidFile(f"{_called(source)} has format {header.get('format')}, this version reads {FORMAT}; upgrade")
    return header, tensors


@contextmanager
def header_read(what: str = "the header of the file") -> Iterator[None]:
    """Whatever stops the reading of a header is the file's fault: it becomes an InvalidFile."""
    try:
        yield
    except InvalidFile:
        raise
    except KeyError as missing:
        raise InvalidFile(f"{what} lacks {missing}; it was changed or damaged, write the file anew") from missing
    except (BensembleError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as reason:
        raise InvalidFile(f"{what} cannot be read: {str(reason).splitlines()[0]}") from reason


def save_tensors(tensors: Tensors, path: str | Path | None = None) -> bytes:
    """Write a flat dict of tensors (0-d ones too, dtypes kept) as bytes, and to a path if one is given."""
    header = {"kind": "tensors"}
    if path is not None:
        write(path, header, tensors)
    return to_bytes(header, tensors)


def load_tensors(source: str | Path | bytes) -> dict[str, Tensor]:
    """Read what `save_tensors` wrote, from a path or bytes."""
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
    """The problem of a file; a network that was an nn.Module has to be handed in again. No tensor is allocated."""
    with header_read():
        if header["dtype"] not in _DTYPES:
            raise InvalidFile(f"expected a file in {' or '.join(_DTYPES)}, got {header['dtype']!r}")
        dtype = _DTYPES[header["dtype"]]
        spec = header["model"]
        shape = tuple(whole(n, "an entry of input_shape") for n in spec["input_shape"])
        n_outputs = whole(spec["n_outputs"], "n_outputs")
        if not shape or min(shape) < 1 or math.prod(shape) > LARGEST_ROW:
            raise InvalidFile(f"expected rows of 1 to {LARGEST_ROW:,} numbers, the header says {list(shape)}")
        common: dict[str, Any] = {
            "likelihood": likelihood_from_json(header["likelihood"]),
            "prior": prior_from_json(header["prior"]),
            "scaling": _scaling_from(below("scaling/", tensors), shape, dtype),
            "dtype": dtype,
        }
        if common["likelihood"].n_outputs != n_outputs:
            raise InvalidFile(
                f"the header is at odds with itself: {n_outputs} network outputs, and a likelihood of "
                f"{common['likelihood'].n_outputs}"
            )
    return Problem(model=_model_from(spec, dtype=dtype, module=model), **common)


def _model_from(spec: Mapping[str, Any], *, dtype: torch.dtype, module: nn.Module | None) -> Model:
    """The model of a file's header: by name, around the module handed in, or derived from such a one."""
    with header_read():
        nested = spec.get("inner") if "derived" in spec else None
    inner = None if nested is None else _model_from(nested, dtype=dtype, module=module)  # which may ask for its module
    with header_read():
        shape = tuple(whole(n, "an entry of input_shape") for n in spec["input_shape"])
        n_outputs = whole(spec["n_outputs"], "n_outputs")
        if "derived" in spec:
            return derived_from_json(spec, inner)
        if spec["spec"] is not None:
            return named_model(spec["spec"], shape, n_outputs)
        integers, name = bool(spec["integers"]), str(spec["module"])
    if module is None:
        raise InvalidModel(
            f"the file holds the tensors of a {name}, not its code; pass the module: load(path, model=net)"
        )
    adopted = adopt(module, shape, dtype=dtype, integers=integers)
    if adopted.n_outputs != n_outputs:
        raise InvalidModel(f"expected a module with {n_outputs} outputs, got {adopted.n_outputs}")
    return adopted


def _scaling_from(found: Tensors, shape: tuple[int, ...], dtype: torch.dtype) -> Scaling | None:
    if not found:
        return None
    scaling = Scaling(mean=found["mean"], scale=found["scale"])
    for name, tensor in (("mean", scaling.mean), ("scale", scaling.scale)):
        own = tuple(tensor.shape)
        fits = len(own) <= len(shape) and all(a in (1, b) for a, b in zip(own[::-1], shape[::-1], strict=False))
        fits = fits and (own == shape or len(shape) > 1)  # a flat row has a scale for every feature
        if not fits or tensor.dtype != dtype or not bool(tensor.isfinite().all()):
            raise InvalidFile(f"scaling/{name} has to be finite, {dtype} and of a row {list(shape)}, got {list(own)}")
    if not bool((scaling.scale > 0).all()):
        raise InvalidFile("scaling/scale has to be above 0; the file was changed or damaged")
    return scaling


def model_shapes(problem: Problem) -> Shapes:
    """Names and shapes of the network's tensors and of the likelihood's own, of one member; nothing is allocated."""
    module = outline(problem.model)
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    extra = problem.likelihood.start(dtype=problem.dtype)
    return {name: tuple(t.shape) for name, t in {**named, **extra}.items()}


def check_tensors(problem: Problem, expected: Shapes, found: Tensors) -> None:
    """Raise unless the tensors of a file are exactly those expected, and finite wherever they are no buffer's.

    (A buffer is the module's own business: a mask may well hold infinities.)
    """
    for name in sorted({*expected, *found}):
        if name in found and name in expected and tuple(found[name].shape) == expected[name]:
            continue
        wanted = f"{name} of shape {list(expected[name])}" if name in expected else f"no {name}"
        came = list(found[name].shape) if name in found else "nothing"
        text = f"the tensors of the file do not fit the model: expected {wanted}, got {came}"
        if isinstance(problem.model, ModuleSpec):
            raise InvalidModel(f"{text}; is it of this module?")
        raise InvalidFile(f"{text}; it was changed or damaged, write it anew")
    module = outline(problem.model)
    buffers, parameters = ({name for name, _ in named()} for named in (module.named_buffers, module.named_parameters))
    for name, tensor in found.items():
        own = name.removeprefix("stacked/").removeprefix("shared/")
        if own in parameters and tensor.dtype not in (problem.dtype, torch.float64):
            raise InvalidFile(f"expected {name} in {problem.dtype}, got {tensor.dtype}; write the file anew")
        if own not in buffers and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InvalidFile(f"{name} holds a NaN or an infinity; the file was changed or damaged, write it anew")


def _called(source: str | Path | bytes) -> str:
    return f"this ({len(source)} bytes)" if isinstance(source, bytes) else str(source)
