"""Models that a fitted posterior runs instead of the one that was handed in, made of it: an ensemble of functions.

A derived model has JSON of its own, `{"derived": its name in DERIVED, "inner": the model it is made of or None, …}`, so
that files of its ensembles are read without the posterior; it is no choice of a user's, and so not in MODELS.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bensemble_core.errors import InvalidFile
from bensemble_core.kernels import KernelName, correlation, squared_distances
from bensemble_core.models.conditioned import Conditioned
from bensemble_core.models.spec import tensors_of
from bensemble_core.options import is_number, whole
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

    x a flattened row, with every entry cut to ±`clip` where that is given, z `centres` [G, P, D], already multiplied by
    their group's `scales` s [G, D] (one over the lengthscales), ω `frequencies` [F, D], φ `phases` [F], c
    `coefficients` [O, G·P + F], l `linear` [O, D], b `bias` [O]. The members of an ensemble have the first four in
    common, and differ in the last three: the distances of a row to the centres serve them all. Whatever the dtype of
    the rows, it computes in that of its tensors, which for a Gaussian process is float64: coefficients of opposite sign
    cancel.
    """

    input_shape: tuple[int, ...]
    n_outputs: int
    kernel: KernelName
    n_groups: int
    n_centres: int  # in each group
    n_frequencies: int
    clip: float | None = None
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
        clip = spec.get("clip")  # files of earlier versions have none
        if clip is not None and not (is_number(clip) and clip > 0):
            raise InvalidFile(f"a kernel model cuts its rows to a number above 0, the header says {clip!r:.80}")
        return cls(input_shape=tuple(spec["input_shape"]), kernel=spec["kernel"], clip=clip, **sizes)


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
        self.kernel, self.clip = spec.kernel, spec.clip
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
        rows = rows if self.clip is None else rows.clamp(-self.clip, self.clip)
        squares = squared_distances(rows * self.scales.unsqueeze(1), self.centres)  # [G, N, P]
        near = correlation(self.kernel, squares).transpose(0, 1).flatten(1)  # [N, G·P]
        waves = (rows @ self.frequencies.mT + self.phases).cos()  # [N, F]
        outputs = torch.cat([near, waves], 1) @ self.coefficients.mT + rows @ self.linear.mT + self.bias
        return outputs.to(x.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis:
    """A combination of S networks of the inner model, around their mean:

        f(x) = f̄(x) + Σ_s a_s (f_s(x) − f̄(x)) / √S,   f̄ = (1/S) Σ_s f_s.

    The networks' tensors are `functions.…` [S, …], in common to the members of an ensemble, which differ in `a` [S].
    """

    inner: Model
    n_functions: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.inner.input_shape

    @property
    def n_outputs(self) -> int:
        return self.inner.n_outputs

    @property
    def integers(self) -> bool:
        return self.inner.integers

    def skeleton(self) -> nn.Module:
        return _BasisModule(self.inner.skeleton(), self.n_functions)

    def initialise(self, seed: int, *, dtype: torch.dtype) -> dict[str, Tensor]:
        """The function that is 0 everywhere, as of `Kernel`."""
        return tensors_of(self.skeleton().to(dtype))

    def given(self, *, dtype: torch.dtype) -> dict[str, Tensor] | None:
        return None

    def to_json(self) -> dict[str, Any]:
        return {
            "derived": "basis",
            "inner": self.inner.to_json(),
            "input_shape": list(self.input_shape),
            "n_outputs": self.n_outputs,
            "n_functions": self.n_functions,
        }

    @classmethod
    def from_json(cls, spec: Mapping[str, Any], inner: Model | None) -> "Basis":
        n_functions = whole(spec["n_functions"], "n_functions")
        if inner is None or n_functions < 1:
            raise InvalidFile(f"a basis has an inner model and at least 1 function, the header says {n_functions}")
        if (list(inner.input_shape), inner.n_outputs) != (list(spec["input_shape"]), spec["n_outputs"]):
            raise InvalidFile("the header is at odds with itself: a basis has the rows and outputs of its inner model")
        return cls(inner=inner, n_functions=n_functions)


class _BasisModule(nn.Module):
    """What `Basis` runs: one network after another, which any network stands; vmap does it once for all members."""

    a: nn.Parameter

    def __init__(self, inner: nn.Module, n_functions: int) -> None:
        super().__init__()
        self.n_functions = n_functions
        self.inner = (inner.eval(),)  # in a tuple, so that its own tensors, which are never read, are none of ours
        self.a = nn.Parameter(torch.zeros(n_functions), requires_grad=False)
        self.functions = nn.Module()
        for name, p in inner.named_parameters():
            copies = nn.Parameter(torch.zeros(n_functions, *p.shape, dtype=p.dtype), requires_grad=False)
            _holder(self.functions, name).register_parameter(name.rpartition(".")[2], copies)
        for name, buffer in inner.named_buffers():
            own = torch.zeros(n_functions, *buffer.shape, dtype=buffer.dtype)
            _holder(self.functions, name).register_buffer(name.rpartition(".")[2], own)

    def forward(self, x: Tensor) -> Tensor:
        """[N, ...] -> [N, O]."""
        tensors = {**dict(self.functions.named_parameters()), **dict(self.functions.named_buffers())}
        found = []
        for s in range(self.n_functions):
            outputs: Tensor = functional_call(self.inner[0], {k: v[s] for k, v in tensors.items()}, (x.clone(),))
            found.append(outputs.unsqueeze(-1) if outputs.ndim == 1 else outputs)
        values = torch.stack(found)  # [S, N, O]
        mean = values.mean(0)
        apart = (values - mean) * self.n_functions**-0.5
        combined: Tensor = (self.a @ apart.flatten(1)).reshape(mean.shape)
        return mean + combined


def _holder(root: nn.Module, name: str) -> nn.Module:
    """The module under `root` that a tensor of this name belongs to, made where there is none."""
    for part in name.split(".")[:-1]:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root.get_submodule(part)
    return root


DERIVED: dict[str, type[Any]] = {"basis": Basis, "conditioned": Conditioned, "kernel": Kernel}


def derived_from_json(spec: Mapping[str, Any], inner: Model | None) -> Model:
    """The derived model of a file's header, made of the inner one."""
    if spec["derived"] not in DERIVED:
        raise InvalidFile(f"the file has a {spec['derived']!r} model, which this version does not know; upgrade")
    made: Model = DERIVED[spec["derived"]].from_json(spec, inner)
    return made
