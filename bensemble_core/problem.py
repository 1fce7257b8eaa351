"""What a caller hands in, made into a Problem and Data: models by name or module, rows in any form, standardisation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bensemble_core.ensemble.rows import Rows, as_rows, as_tensor
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.likelihoods import Categorical, standardised_like
from bensemble_core.models import MLP, Conv, Default, ModuleSpec, Residual, adopt, named_model
from bensemble_core.models.spec import check_outputs, has_embedding
from bensemble_core.options import whole
from bensemble_core.priors import checked_prior
from bensemble_core.training.datasets import collect
from bensemble_core.types import Augment, Data, Likelihood, Model, Posterior, Prior, Problem, Scaling

AnyModel: TypeAlias = str | Mapping[str, Any] | MLP | Conv | Residual | Default | nn.Module | None
AnyData: TypeAlias = Data | tuple[Any, Any] | tuple[Any, Any, Any] | Dataset[Any] | DataLoader[Any]


def as_data(data: AnyData) -> Data:
    """(x, y) or (x, y, task) as tensors, arrays or lists, a Data, or the rows of a Dataset or DataLoader, read once."""
    augment = unlabelled = None
    if isinstance(data, Data):
        augment, unlabelled, data = data.augment, data.unlabelled, (data.x, data.y, data.task)
    elif isinstance(data, (Dataset, DataLoader)):
        data = collect(data)
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        raise InvalidData(
            f"expected data=(x, y), (x, y, task), or a Dataset or DataLoader of torch, got {type(data).__name__}"
        )
    x, y = as_tensor(data[0], "x"), as_tensor(data[1], "y", "; turn labels into class indices 0, 1, …")
    if x.ndim < 2:
        raise InvalidData(f"expected x [rows, …], got shape {tuple(x.shape)}; one feature is x[:, None]")
    task = None if len(data) == 2 or data[2] is None else as_tensor(data[2], "task")
    return Data(x=x, y=y, task=task, augment=augment, unlabelled=unlabelled)


def with_unlabelled(data: Data, unlabelled: object) -> Data:
    """The same labelled rows beside rows of the pool that have no label: checked."""
    rows = as_tensor(unlabelled, "unlabelled")
    if rows.ndim < 2 or rows[0].numel() != data.x[0].numel():
        raise InvalidData(f"unlabelled rows have shape {list(rows.shape[1:])}, the labelled {list(data.x.shape[1:])}")
    return replace(data, unlabelled=rows.reshape(-1, *data.x.shape[1:]))


def with_classes(likelihood: Likelihood, y: Tensor, model: AnyModel) -> Likelihood:
    """The likelihood with the number of classes in all labels, those that will be held out included."""
    if isinstance(likelihood, Categorical) and not isinstance(model, nn.Module):
        return likelihood.bind(y, n_outputs=None, standardise=False)
    return likelihood


def make_problem(
    model: AnyModel,
    data: Data,
    likelihood: Likelihood,
    prior: Prior | None,
    standardise: bool,
    input_shape: Sequence[int] | None = None,
    like: Problem | None = None,
) -> Problem:
    """The problem that these rows pose; with `like`, under the standardisation of another."""
    prior = checked_prior(prior)
    shape = tuple(whole(n, "an entry of input_shape") for n in (input_shape or data.x.shape[1:]))
    dtype = _float_type(data.x)
    if like is not None:
        likelihood = standardised_like(likelihood, like.likelihood)
        if math.prod(shape) != math.prod(like.model.input_shape):
            raise InvalidData(
                f"the warm start is of rows of shape {list(like.model.input_shape)}, got {list(shape)}; pass rows of "
                "that shape, or start afresh without warm"
            )
        shape = like.model.input_shape
    network: Model
    if isinstance(model, nn.Module):
        for p in model.parameters():
            dtype = torch.promote_types(dtype, p.dtype) if p.is_floating_point() else dtype
        integers = not data.x.is_floating_point() and has_embedding(model)
        network = adopted = adopt(model, shape, dtype=dtype, integers=integers)
        likelihood = likelihood.bind(data.y, n_outputs=network.n_outputs, standardise=standardise)
        check_outputs(likelihood, adopted)
    else:
        likelihood = likelihood.bind(data.y, n_outputs=None, standardise=standardise)
        network = named_model(model, shape, likelihood.n_outputs)
    scaling = None
    if like is not None:
        scaling = None if like.scaling is None else like.scaling.to(dtype)
    elif standardise and not (isinstance(network, ModuleSpec) and network.integers):
        known = data.x if data.unlabelled is None else torch.cat([data.x, data.unlabelled.to(data.x)])
        scaling = _scaling(known.reshape(len(known), *shape), dtype)
    return Problem(model=network, likelihood=likelihood, prior=prior, scaling=scaling, dtype=dtype)


def encoded(posterior: Posterior, problem: Problem, rows: Data, device: str | torch.device) -> Data:
    """Rows as a posterior is given them: checked, standardised, on the device."""
    if rows.augment is not None and not posterior.batches:
        raise InvalidOption(f"{posterior.name} is not trained in batches, so it has no use for augment; drop it")
    x = encoded_rows(problem, rows.x, device)
    y = problem.likelihood.encode(rows.y, dtype=problem.dtype).to(device)
    if len(x) != len(y):
        raise InvalidData(f"expected as many labels as rows, got {len(y)} and {len(x)}")
    augment = None if rows.augment is None else _in_units(rows.augment, problem.scaling)
    unlabelled = None if rows.unlabelled is None else encoded_rows(problem, rows.unlabelled, device)
    task = None if rows.task is None else rows.task.to(device)
    return Data(x=x, y=y, task=task, augment=augment, unlabelled=unlabelled)


def encoded_rows(problem: Problem, x: Rows, device: str | torch.device) -> Tensor:
    """Features alone: checked, standardised, on the device."""
    x = as_rows(x, problem, device)
    if x.is_floating_point() and not bool(x.isfinite().all()):
        row = int((~x.flatten(1).isfinite()).any(1).nonzero()[0])
        raise InvalidData(f"features have to be finite, row {row} has a NaN or an infinity; drop or impute it")
    return x if problem.scaling is None else problem.scaling(x)


def joined(old: Data, new: Data) -> Data:
    """Rows of both, the old ones first; where only one of them has tasks, the rows of the other are of task 0."""
    if old.x.shape[1:] != new.x.shape[1:]:
        raise InvalidData(f"expected rows of shape {list(old.x.shape[1:])}, got {list(new.x.shape[1:])}")
    y = [d.y.reshape(d.y.shape[0], math.prod(d.y.shape[1:])) for d in (old, new)]
    if y[0].shape[1] != y[1].shape[1]:
        raise InvalidData(f"expected {y[0].shape[1]} target(s) a row, got {y[1].shape[1]}")
    both = torch.cat([y[0], y[1].to(y[0].device)])
    whole_and_real = new.x.is_floating_point() and not old.x.is_floating_point()
    x = new.x.to(old.x.device) if whole_and_real else new.x.to(old.x)
    task = None
    if old.task is not None or new.task is not None:
        task = torch.cat([_tasks(old), _tasks(new).to(old.x.device)])
    return replace(old, x=torch.cat([old.x, x]), y=both[:, 0] if both.shape[1] == 1 else both, task=task)


def _tasks(data: Data) -> Tensor:
    none = torch.zeros(data.n_rows, dtype=torch.int64)
    return (none if data.task is None else data.task).to(data.x.device, torch.int64)


def _float_type(x: Tensor) -> torch.dtype:
    """Of the numbers to compute with: float32, where the rows are not float64 or whole numbers that it would round."""
    if not (x.is_floating_point() or x.dtype == torch.bool) and x.numel():
        lowest, highest = (int(bound) for bound in x.aminmax())
        return torch.float64 if max(-lowest, highest) > 2**24 else torch.float32
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


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
