"""fit(): the single entry point; Fitted: what it gives back; load(): either from its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bensemble_core import io, options
from bensemble_core.ensemble import Ensemble, Rows, as_rows
from bensemble_core.errors import InvalidData, InvalidFile, InvalidModel, InvalidOption
from bensemble_core.likelihoods import likelihood_named
from bensemble_core.models import MLP, Conv, ModuleSpec, Residual, adopt, named_model
from bensemble_core.models.spec import has_embedding
from bensemble_core.posteriors import POSTERIORS
from bensemble_core.priors import Normal
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Likelihood, Model, Posterior, Prior, Problem, Report, Scaling, Tensors, silent

AnyModel: TypeAlias = Mapping[str, Any] | MLP | Conv | Residual | nn.Module
AnyData: TypeAlias = Data | tuple[Any, Any]
DEFAULT_PRIOR: Final = Normal(scale=1.0)
_FIT, _SAMPLE = 1, 2  # branches of a seed


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A posterior fitted to data: draw ensembles from it, save it, or go on from it with more rows."""

    posterior: Posterior
    problem: Problem
    state: Tensors
    seed: int
    data: Data | None = None  # the rows it was fitted to, as handed in; not saved

    def sample(self, n: int = 20, *, seed: int = 0) -> Ensemble:
        """Exactly n draws of a density; min(n, S) evenly thinned of a method that keeps S members."""
        if n < 1:
            raise InvalidOption(f"sample draws at least 1 member, got {n}")
        return self.posterior.sample(self.problem, self.state, n, rng=generator(seed, _SAMPLE))

    def update(
        self, data: AnyData, *, keep: bool = True, seed: int | None = None, report: Report = silent, **changes: Any
    ) -> "Fitted":
        """Fit again from where this one ended, to its own rows and the new ones (`keep=False`: to these rows alone).

        The standardisation of the first fit is kept. A Fitted read from a file has no rows of its own: pass all of them
        with keep=False. `changes` are options of the posterior, such as fewer epochs.
        """
        new = _as_data(data)
        if keep:
            if self.data is None:
                raise InvalidData(
                    "this Fitted was read from a file, which does not hold the rows it was fitted to; pass all rows, "
                    "old and new, with keep=False"
                )
            new = _joined(self.data, new)
        posterior = options.make(type(self.posterior), {**options.to_json(self.posterior), **changes})
        seed = self.seed if seed is None else seed
        return _fit(posterior, self.problem, new, seed=seed, warm=self.state, resume=None, report=report)

    def save(self, path: str | Path) -> None:
        """Write safetensors with a JSON header; `bensemble_core.load` reads it."""
        header = {
            "kind": "fitted",
            "posterior": options.to_json(self.posterior),
            "problem": io.problem_header(self.problem),
            "seed": self.seed,
        }
        io.write(path, header, {**io.problem_tensors(self.problem), **io.above("state/", self.state)})


def fit(
    method: str | Posterior,
    model: AnyModel,
    data: AnyData,
    *,
    likelihood: str | Likelihood,
    prior: Prior | None = DEFAULT_PRIOR,
    seed: int = 0,
    standardise: bool | None = None,
    warm: "Fitted | Tensors | None" = None,
    resume: Tensors | None = None,
    report: Report = silent,
    device: str | torch.device = "cpu",
    input_shape: Sequence[int] | None = None,
    **options_: Any,
) -> Fitted:
    """Fit a posterior over the weights of a network.

    method: a name in POSTERIORS with its options as keywords, or an instance. model: `{"name": "mlp", "hidden": [64]}`
    or any nn.Module. data: (x [N, ...], y [N] classes or [N(, T)] targets), tensors or arrays; float64 rows make
    everything float64. prior: on every weight, Normal(scale=1.0) unless given; None is maximum likelihood.
    standardise: inputs and real targets to mean 0 and sd 1 inside the ensemble, on by default except where the weights
    of a module are taken as they are (epochs=0). warm: start from another Fitted (its standardisation is kept) or
    state. resume: a snapshot, to go on bit for bit. input_shape: of one row, where rows are stored flat.
    """
    posterior = _posterior(method, options_)
    rows = _as_data(data)
    if standardise is None:
        standardise = not (isinstance(model, nn.Module) and _takes_weights_as_they_are(posterior))
    problem = _problem(model, rows, likelihood_named(likelihood), prior, standardise, input_shape, warm)
    state = warm.state if isinstance(warm, Fitted) else warm
    return _fit(posterior, problem.to(device), rows, seed=seed, warm=state, resume=resume, report=report, device=device)


def load(source: str | Path | bytes, *, model: nn.Module | None = None, device: str | torch.device = "cpu") -> Any:
    """A Fitted or an Ensemble, as the file says; `model` where the network was an nn.Module."""
    header, tensors = io.read(source)
    tensors = {k: v.to(device) for k, v in tensors.items()}
    if header.get("kind") == "ensemble":
        ensemble = Ensemble.from_tensors(header, tensors, model=model)
        io.check_module(ensemble.problem, ensemble.stacked, ensemble.shared)
        return ensemble
    if header.get("kind") != "fitted":
        raise InvalidFile(f"expected a fitted posterior or an ensemble, got a file of kind {header.get('kind')!r}")
    name = header["posterior"]["name"]
    if name not in POSTERIORS:
        raise InvalidFile(f"the file holds a {name!r} posterior, which this version does not have; upgrade")
    return Fitted(
        posterior=options.make(POSTERIORS[name], header["posterior"]),
        problem=io.problem_from(header["problem"], tensors, model=model),
        state=io.below("state/", tensors),
        seed=header["seed"],
    )


def _fit(
    posterior: Posterior,
    problem: Problem,
    rows: Data,
    *,
    seed: int,
    warm: Tensors | None,
    resume: Tensors | None,
    report: Report,
    device: str | torch.device | None = None,
) -> Fitted:
    if device is None:
        device = "cpu" if warm is None else next(iter(warm.values())).device
    x = as_rows(rows.x, problem, device)
    if x.is_floating_point() and not bool(x.isfinite().all()):
        row = int((~x.flatten(1).isfinite()).any(1).nonzero()[0])
        raise InvalidData(f"features have to be finite, row {row} has a NaN or an infinity; drop or impute it")
    if problem.scaling is not None:
        x = problem.scaling(x)
    y = problem.likelihood.encode(rows.y, dtype=problem.dtype).to(device)
    if len(x) != len(y):
        raise InvalidData(f"expected as many labels as rows, got {len(y)} and {len(x)}")
    state = posterior.fit(
        problem, Data(x=x, y=y, task=rows.task), rng=generator(seed, _FIT), warm=warm, resume=resume, report=report
    )
    return Fitted(posterior=posterior, problem=problem, state=state, seed=seed, data=rows)


def _posterior(method: str | Posterior, given: Mapping[str, Any]) -> Posterior:
    if not isinstance(method, str):
        if given:
            raise InvalidOption(
                f"options go to the instance itself, {type(method).__name__}({', '.join(f'{k}=…' for k in given)}), "
                "or as keywords beside a name"
            )
        options.check(method)
        return method
    if method not in POSTERIORS:
        raise InvalidOption(f"unknown posterior {method!r}; there are {', '.join(POSTERIORS)}")
    made: Posterior = options.make(POSTERIORS[method], given)
    return made


def _takes_weights_as_they_are(posterior: Posterior) -> bool:
    return posterior.starts_from_weights and getattr(posterior, "epochs", None) == 0


def _as_data(data: AnyData) -> Data:
    if isinstance(data, Data):
        return data
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InvalidData(f"expected data=(x, y), got {type(data).__name__}")
    x, y = (v if isinstance(v, Tensor) else _tensor(v) for v in data)
    if x.ndim < 2:
        raise InvalidData(f"expected x [rows, …], got shape {tuple(x.shape)}; one feature is x[:, None]")
    return Data(x=x, y=y)


def _tensor(values: Rows) -> Tensor:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InvalidData(f"expected numbers, got {array.dtype}; turn labels into class indices 0, 1, …")
    wide = {"f": np.float64 if array.dtype.itemsize > 4 else np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}
    return torch.from_numpy(np.array(array, dtype=wide[array.dtype.kind]))  # a copy: the caller's array stays as it is


def _joined(old: Data, new: Data) -> Data:
    if old.x.shape[1:] != new.x.shape[1:]:
        raise InvalidData(f"expected rows of shape {list(old.x.shape[1:])}, got {list(new.x.shape[1:])}")
    y = [d.y.reshape(d.y.shape[0], -1) for d in (old, new)]
    if y[0].shape[1] != y[1].shape[1]:
        raise InvalidData(f"expected {y[0].shape[1]} target(s) a row, got {y[1].shape[1]}")
    joined = torch.cat([y[0], y[1].to(y[0].device)])
    return replace(old, x=torch.cat([old.x, new.x.to(old.x)]), y=joined[:, 0] if joined.shape[1] == 1 else joined)


def _problem(
    model: AnyModel,
    data: Data,
    likelihood: Likelihood,
    prior: Prior | None,
    standardise: bool,
    input_shape: Sequence[int] | None,
    warm: Fitted | Tensors | None,
) -> Problem:
    like = warm.problem if isinstance(warm, Fitted) else None
    likelihood = likelihood if like is None else like.likelihood
    shape = tuple(int(n) for n in (input_shape or data.x.shape[1:]))
    dtype = data.x.dtype if data.x.dtype in (torch.float32, torch.float64) else torch.float32
    network: Model
    if isinstance(model, nn.Module):
        for p in model.parameters():
            dtype = torch.promote_types(dtype, p.dtype) if p.is_floating_point() else dtype
        integers = not data.x.is_floating_point() and has_embedding(model)
        network = adopt(model, shape, dtype=dtype, integers=integers)
        likelihood = likelihood.bind(data.y, n_outputs=network.n_outputs, standardise=standardise)
        if likelihood.n_outputs != network.n_outputs:
            raise InvalidModel(
                f"{type(likelihood).__name__} needs {likelihood.n_outputs} network outputs, "
                f"{type(model).__name__} has {network.n_outputs}"
            )
    else:
        likelihood = likelihood.bind(data.y, n_outputs=None, standardise=standardise)
        network = named_model(model, shape, likelihood.n_outputs)
    scaling = None
    if like is not None:
        scaling = like.scaling
    elif standardise and not (isinstance(network, ModuleSpec) and network.integers):
        scaling = _scaling(data.x.reshape(len(data.x), *shape), dtype)
    return Problem(model=network, likelihood=likelihood, prior=prior, scaling=scaling, dtype=dtype)


def _scaling(x: Tensor, dtype: torch.dtype) -> Scaling:
    """Mean and sd of each feature of flat rows, of each channel of images, of all entries of a [S, F] row.

    (A row of two axes may be time × feature or channel × time: one scale serves both.) A constant feature keeps its
    own scale.
    """
    axes = {2: (0,), 4: (0, 2, 3)}.get(x.ndim, tuple(range(x.ndim)))
    wide = x.to(torch.float64)
    mean = wide.mean(axes, keepdim=True)[0]
    sd = wide.std(axes, correction=0, keepdim=True)[0]
    small = 1e-7 if dtype == torch.float32 else 1e-12  # a constant column has an sd of rounding size, not 0
    sd = torch.where(sd > small * mean.abs(), sd, torch.ones_like(sd))
    sd = torch.where(sd > 0, sd, torch.ones_like(sd))
    return Scaling(mean=mean.to(dtype), scale=sd.to(dtype))
