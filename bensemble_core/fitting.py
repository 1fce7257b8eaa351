"""fit(): the single entry point; Fitted: what it gives back; load(): either from its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

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
from bensemble_core.predictive import Predictive
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.randomness import generator
from bensemble_core.training import Descent
from bensemble_core.types import (
    Analytic,
    Augment,
    Bounds,
    Data,
    Evidence,
    FitsSplits,
    FunctionSpace,
    Likelihood,
    Model,
    Posterior,
    Prior,
    Problem,
    Report,
    Scaling,
    Snapshot,
    Tensors,
    Updates,
    silent,
)

AnyModel: TypeAlias = Mapping[str, Any] | MLP | Conv | Residual | nn.Module
AnyData: TypeAlias = Data | tuple[Any, Any]
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

    def predict(self, x: Rows) -> Predictive:
        """The method's own predictive in closed form, as a single member; any other is sample(n).predict(x)."""
        if not isinstance(self.posterior, Analytic):
            raise InvalidOption(
                f"{self.posterior.name} has no predictive in closed form; draw members, sample(n).predict(x)"
            )
        return self.posterior.analytic(self.problem, self.state, x)

    def update(
        self,
        data: AnyData,
        *,
        keep: bool | None = None,
        seed: int | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
        **changes: Any,
    ) -> "Fitted":
        """Go on from where this one ended, with new rows.

        A method with an update of its own takes its posterior as the prior of the new rows, and needs the old ones no
        more. Any other, and every one with keep=True, is fitted again to its own rows and the new ones, starting from
        its state; with keep=False to these rows alone. The standardisation of the first fit is kept. A Fitted read from
        a file has no rows of its own: to refit it, pass all of them with keep=False. `changes` are options of the
        posterior, such as fewer epochs.
        """
        new = _as_data(data)
        posterior = options.make(type(self.posterior), {**options.to_json(self.posterior), **changes})
        seed = self.seed if seed is None else seed
        if keep is None and isinstance(posterior, Updates):
            if self.data is not None and new.augment is None:
                new = replace(new, augment=self.data.augment)
            state = posterior.update(
                self.problem,
                self.state,
                _encoded(posterior, self.problem, new, _device(self.state)),
                rng=generator(seed, _FIT),
                resume=resume,
                report=report,
            )
            seen = None if self.data is None else _joined(self.data, new)
            return Fitted(posterior=posterior, problem=self.problem, state=state, seed=seed, data=seen)
        if keep or keep is None:
            if self.data is None:
                raise InvalidData(
                    "this Fitted was read from a file, which does not hold the rows it was fitted to; pass all rows, "
                    "old and new, with keep=False"
                )
            new = _joined(self.data, new)
        elif self.data is not None and new.augment is None:
            new = replace(new, augment=self.data.augment)
        return _fit(posterior, self.problem, new, seed=seed, warm=self.state, resume=resume, report=report)

    def bound(self, data: AnyData | None = None, *, samples: int = 100, seed: int = 0) -> float:
        """The method's bound on log p(D) (the ELBO of mfvi), in nats and the units of y, from `samples` draws.

        `data` are the rows it was fitted to, where this Fitted does not hold them. Where a noise or a prior scale was
        learnt, it bounds the evidence given those.
        """
        if not isinstance(self.posterior, Bounds):
            raise InvalidOption(f"{self.posterior.name} has no bound on the evidence; mfvi and renyi have")
        if samples < 1:
            raise InvalidOption(f"bound needs at least 1 draw, got {samples}")
        rows = self.data if data is None else _as_data(data)
        if rows is None:
            raise InvalidData("this Fitted was read from a file, which does not hold its rows; pass data=(x, y)")
        encoded = _encoded(self.posterior, self.problem, rows, _device(self.state))
        rng = generator(seed, _SAMPLE)
        return self.posterior.bound(self.problem, self.state, encoded, samples=samples, rng=rng)

    @property
    def log_evidence(self) -> float:
        """log p(D) in nats and the units of y, as the method has it (laplace): what models are compared by."""
        if not isinstance(self.posterior, Evidence):
            raise InvalidOption(f"{self.posterior.name} has no log evidence; laplace has")
        return self.posterior.log_evidence(self.problem, self.state)

    def function_variance(self, x: Rows, *, joint: bool = False) -> Tensor:
        """Posterior variance of the logits, or of the means in the units of y (squared), in closed form: [N, T].

        No draws are made. `joint` gives the covariance of a row's outputs: [N, T, T].
        """
        if not isinstance(self.posterior, FunctionSpace):
            raise InvalidOption(f"{self.posterior.name} has no variance in closed form; laplace has, others sample")
        rows = as_rows(x, self.problem, _device(self.state))
        if self.problem.scaling is not None:
            rows = self.problem.scaling(rows)
        covariance = self.posterior.function_covariance(self.problem, self.state, rows)
        return covariance if joint else covariance.diagonal(dim1=-2, dim2=-1)

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
    augment: Augment | None = None,
    **options_: Any,
) -> Fitted:
    """Fit a posterior over the weights of a network.

    method: a name in POSTERIORS with its options as keywords, or an instance. model: `{"name": "mlp", "hidden": [64]}`
    or any nn.Module. data: (x [N, ...], y [N] classes or [N(, T)] targets), tensors or arrays; float64 rows make
    everything float64. prior: on every weight, Normal(scale=1.0) unless given; None is maximum likelihood.
    standardise: inputs and real targets to mean 0 and sd 1 inside the ensemble, on by default except where the weights
    of a module are taken as they are (epochs=0). warm: start from another Fitted (its standardisation is kept) or
    state. resume: a snapshot, to go on bit for bit. input_shape: of one row, where rows are stored flat. augment: a
    function (x [B, ...], rng) -> x of the same shape, applied to every training batch in the units handed in, each
    member's with a generator of its own; resuming needs the same function. It is no option of the method, since it is
    code: it cannot be told in JSON, and is not saved.
    """
    posterior = _posterior(method, options_)
    rows = _as_data(data)
    if augment is not None:
        rows = replace(rows, augment=augment)
    if standardise is None:
        standardise = not (isinstance(model, nn.Module) and _takes_weights_as_they_are(posterior))
    problem = _problem(model, rows, likelihood_named(likelihood), prior, standardise, input_shape, warm)
    state = warm.state if isinstance(warm, Fitted) else warm
    return _fit(posterior, problem.to(device), rows, seed=seed, warm=state, resume=resume, report=report, device=device)


def fit_splits(
    method: str | Posterior,
    model: AnyModel,
    splits: Sequence[AnyData],
    *,
    likelihood: str | Likelihood,
    prior: Prior | None = DEFAULT_PRIOR,
    seed: int = 0,
    standardise: bool | None = None,
    report: Report = silent,
    device: str | torch.device = "cpu",
    **options_: Any,
) -> list[Fitted]:
    """Fit the same model to several data sets, split i as `fit` would with seed + i: train/test splits, say.

    All at once where the method can (pbp), else one after another.
    """
    posterior = _posterior(method, options_)
    if not isinstance(posterior, FitsSplits):
        fitted = []
        for i, data in enumerate(splits):

            def part(done: int, total: int, message: str, snapshot: Snapshot, i: int = i) -> None:
                report(i * total + done, len(splits) * total, f"split {i + 1}: {message}", snapshot)

            one = fit(
                posterior,
                model,
                data,
                likelihood=likelihood,
                prior=prior,
                seed=seed + i,
                standardise=standardise,
                report=part,
                device=device,
            )
            fitted.append(one)
        return fitted
    rows = [_as_data(data) for data in splits]
    bound = likelihood_named(likelihood)
    standardise = True if standardise is None else standardise
    problems = [_problem(model, r, bound, prior, standardise, None, None).to(device) for r in rows]
    encoded = [_encoded(posterior, p, r, device) for p, r in zip(problems, rows, strict=True)]
    rngs = [generator(seed + i, _FIT) for i in range(len(rows))]
    states = posterior.fit_splits(problems, encoded, rngs=rngs, report=report)
    return [
        Fitted(posterior=posterior, problem=p, state=s, seed=seed + i, data=r)
        for i, (p, s, r) in enumerate(zip(problems, states, rows, strict=True))
    ]


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
        device = "cpu" if warm is None else _device(warm)
    encoded = _encoded(posterior, problem, rows, device)
    state = posterior.fit(problem, encoded, rng=generator(seed, _FIT), warm=warm, resume=resume, report=report)
    return Fitted(posterior=posterior, problem=problem, state=state, seed=seed, data=rows)


def _encoded(posterior: object, problem: Problem, rows: Data, device: str | torch.device) -> Data:
    """Rows as a posterior is given them: checked, standardised, on the device."""
    if rows.augment is not None and not isinstance(posterior, Descent):
        name = getattr(posterior, "name", type(posterior).__name__)
        raise InvalidOption(f"{name} is not trained in batches, so it has no use for augment; drop it")
    x = as_rows(rows.x, problem, device)
    if x.is_floating_point() and not bool(x.isfinite().all()):
        row = int((~x.flatten(1).isfinite()).any(1).nonzero()[0])
        raise InvalidData(f"features have to be finite, row {row} has a NaN or an infinity; drop or impute it")
    if problem.scaling is not None:
        x = problem.scaling(x)
    y = problem.likelihood.encode(rows.y, dtype=problem.dtype).to(device)
    if len(x) != len(y):
        raise InvalidData(f"expected as many labels as rows, got {len(y)} and {len(x)}")
    augment = None if rows.augment is None else _in_units(rows.augment, problem.scaling)
    return Data(x=x, y=y, task=rows.task, augment=augment)


def _device(state: Tensors) -> torch.device:
    return next(iter(state.values())).device


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


def _in_units(augment: Augment, scaling: Scaling | None) -> Augment:
    """`augment` for standardised rows: it is shown them in the units handed in, and what it gives back is checked."""

    def apply(x: Tensor, rng: torch.Generator) -> Tensor:
        rows = x if scaling is None else x * scaling.scale + scaling.mean
        new = augment(rows, rng)
        if not isinstance(new, Tensor) or new.shape != rows.shape or new.dtype != rows.dtype:
            came = f"{new.dtype} {list(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
            raise InvalidData(
                f"augment has to give back rows as it got them, {rows.dtype} {list(rows.shape)}, got {came}"
            )
        return new if scaling is None else scaling(new)

    return apply


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
