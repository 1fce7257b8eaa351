"""Models that a fitted posterior runs instead of the one that was handed in, made of it: an ensemble of functions.

A derived model has JSON of its own, `{"derived": its name in DERIVED, "inner": the model it is made of or None, …}`, so
that files of its ensembles are read without the posterior; it is no choice of a user's, and so not in MODELS.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, get_args

import torch
from torch import Tensor, nn

from bensemble_core.errors import InvalidFile
from bensemble_core.kernels import KernelName, correlation, squared_distances
from bensemble_core.models.spec import tensors_of
from bensemble_core.options import whole
from bensemble_core.types import Model


class Derived(Model, Protocol):
    """A model made of another, or of numbers alone."""

    @classmethod
    def from_json(cls, spec: Mapping[str, Any], inner: Model | None) -> "Derived":
        """The inverse of `to_json`, given the model that it was made of; checked, since a file may say anything."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A function by its values at centres and by random waves, as a draw of a Gaussian process is:

        f_o(x) = Σ_gp c_o,gp k(|s_g x − z_gp|) + Σ_f c_o,gp+f cos(ω_fᵀ x + φ_f) + l_oᵀ x + b_o,

    x a flattened row, z `centres` [G, P, D], already multiplied by their group's `scales` s [G, D] (one over the
    lengthscales), ω `frequencies` [F, D], φ `phases` [F], c `coefficients` [O, G·P + F], l `linear` [O, D], b `bias`
    [O]. The members of an ensemble have the first four in common, and differ in the last three: the distances of a row
    to the centres serve them all. Whatever the dtype of the rows, it computes in that of its tensors, which is float64:
    coefficients of opposite sign cancel.
    """

    input_shape: tuple[int, ...]
    n_outputs: int
    kernel: KernelName
    n_groups: int
    n_centres: int  # in each group
    n_frequencies: int
    integers: ClassVar[bool] = False

    def skeleton(self) -> nn.Module:
        return _KernelModule(self)

    def initialise(self, seed: int, *, dtype: torch.dtype) -> dict[str, Tensor]:
        """The function that is 0 everywhere: there is no start by chance, since nothing trains it."""
        return tensors_of(self.skeleton().to(dtype))

    def given(self, *, dtype: torch.dtype) -> dict[str, Tensor] | None:
        return None

    def to_json(self) -> dict[str, Any]:
        return {"derived": "kernel", "inner": None, **asdict(self), "input_shape": list(self.input_shape)}

    @classmethod
    def from_json(cls, spec: Mapping[str, Any], inner: Model | None) -> "Kernel":
        if spec["kernel"] not in get_args(KernelName):
            raise InvalidFile(f"the file has a kernel {spec['kernel']!r}, which this version does not know; upgrade")
        sizes = {name: whole(spec[name], name) for name in ("n_outputs", "n_groups", "n_centres", "n_frequencies")}
        if min(sizes.values()) < 0:
            raise InvalidFile(f"sizes of a kernel model are at least 0, the header says {sizes}")
        return cls(input_shape=tuple(spec["input_shape"]), kernel=spec["kernel"], **sizes)


class _KernelModule(nn.Module):
    """What `Kernel` runs."""

    centres: nn.Parameter
    scales: nn.Parameter
    frequencies: nn.Parameter
    phases: nn.Parameter
    coefficients: nn.Parameter
    linear: nn.Parameter
    bias: nn.Parameter

    def __init__(self, spec: Kernel) -> None:
        super().__init__()
        self.kernel = spec.kernel
        d, o = torch.Size(spec.input_shape).numel(), spec.n_outputs
        shapes = {
            "centres": (spec.n_groups, spec.n_centres, d),
            "scales": (spec.n_groups, d),
            "frequencies": (spec.n_frequencies, d),
            "phases": (spec.n_frequencies,),
            "coefficients": (o, spec.n_groups * spec.n_centres + spec.n_frequencies),
            "linear": (o, d),
            "bias": (o,),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        """[N, ...] -> [N, O]."""
        rows = x.flatten(1).to(self.centres.dtype)
        squares = squared_distances(rows * self.scales.unsqueeze(1), self.centres)  # [G, N, P]
        near = correlation(self.kernel, squares).transpose(0, 1).flatten(1)  # [N, G·P]
        waves = (rows @ self.frequencies.mT + self.phases).cos()  # [N, F]
        outputs = torch.cat([near, waves], 1) @ self.coefficients.mT + rows @ self.linear.mT + self.bias
        return outputs.to(x.dtype)


DERIVED: dict[str, type[Any]] = {
    "kernel": Kernel,
}


def derived_from_json(spec: Mapping[str, Any], build: Callable[[Mapping[str, Any]], Model]) -> Model:
    """The derived model of a file's header; `build` makes the inner one."""
    if spec["derived"] not in DERIVED:
        raise InvalidFile(f"the file has a {spec['derived']!r} model, which this version does not know; upgrade")
    inner = None if spec.get("inner") is None else build(spec["inner"])
    made: Model = DERIVED[spec["derived"]].from_json(spec, inner)
    return made
