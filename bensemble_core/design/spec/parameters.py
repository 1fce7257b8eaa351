"""The `parameters` of a spec, read into blocks of the prior."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import torch

from bensemble_core.design.spec.blocks import Listed, MultivariateNormal, Scalar
from bensemble_core.design.spec.priors import PRIORS
from bensemble_core.design.spec.reading import (
    below,
    items,
    kind,
    matrix,
    members,
    name,
    number,
    numbers,
    probabilities,
    text,
)
from bensemble_core.errors import InvalidSpec

MAX_PARAMETERS = 16
MAX_VALUES = 1000  # of a categorical or a grid
MAX_SAMPLES = 20_000

Block = Scalar | MultivariateNormal | Listed
LISTED = ("categorical", "grid", "samples")
DISTS = (*PRIORS, *LISTED, "multivariate_normal")


def read_parameters(value: object, pointer: str, taken: set[str]) -> list[Block]:
    """One block an entry; the names they bring are added to `taken`."""
    blocks: list[Block] = []
    for label, stated in members(value, pointer).items():
        at = below(pointer, label)
        given = members(stated, at, required=["dist"])
        dist = text(given["dist"], below(at, "dist"), choices=DISTS)
        if dist in PRIORS:
            blocks.append(_scalar(name(label, at, taken), PRIORS[dist], given, at))
        elif dist == "multivariate_normal":
            blocks.append(_multivariate(given, at, taken))
        else:
            blocks.append(_listed(dist, label, given, at, taken))
        taken.update(blocks[-1].names)
    n = sum(len(block.names) for block in blocks)
    if not 1 <= n <= MAX_PARAMETERS:
        raise InvalidSpec(f"expected 1 to {MAX_PARAMETERS} parameters, got {n}", pointer=pointer)
    return blocks


def _scalar(label: str, prior: type[Any], given: Mapping[str, Any], at: str) -> Scalar:
    known = {field.name: field for field in fields(prior)}
    required = [field.name for field in known.values() if field.default is MISSING]
    members(given, at, known=["dist", *known], required=required)
    options = {
        key: number(value, below(at, key), **known[key].metadata)
        for key, value in given.items()
        if key != "dist" and value is not None
    }
    made = prior(**options)
    if (fault := made.fault()) is not None:
        raise InvalidSpec(fault[1], pointer=below(at, fault[0]))
    return Scalar(name=label, prior=made)


def _names(value: object, at: str, taken: set[str]) -> tuple[str, ...]:
    found: list[str] = []
    for i, entry in enumerate(items(value, at, least=1, most=MAX_PARAMETERS)):
        found.append(name(text(entry, below(at, i)), below(at, i), {*taken, *found}))
    return tuple(found)


def _multivariate(given: Mapping[str, Any], at: str, taken: set[str]) -> MultivariateNormal:
    wanted = ["dist", "names", "mean", "covariance"]
    members(given, at, known=wanted, required=wanted)
    names = _names(given["names"], below(at, "names"), taken)
    n = len(names)
    mean = numbers(given["mean"], below(at, "mean"), least=n, most=n)
    covariance = torch.tensor(
        matrix(given["covariance"], below(at, "covariance"), rows=n, columns=n), dtype=torch.float64
    )
    factor, failed = torch.linalg.cholesky_ex((covariance + covariance.mT) / 2)
    if bool(failed) or not torch.allclose(covariance, covariance.mT):
        raise InvalidSpec("expected a symmetric positive definite matrix", pointer=below(at, "covariance"))
    return MultivariateNormal(names=names, mean=torch.tensor(mean, dtype=torch.float64), factor=factor)


def _listed(dist: str, label: str, given: Mapping[str, Any], at: str, taken: set[str]) -> Listed:
    weights = "weights" if dist == "samples" else "probs"
    required = ["values", weights] if dist == "categorical" else ["values"]
    members(given, at, known=["dist", "values", weights, *(["names"] if dist == "samples" else [])], required=required)
    names = _names(given["names"], below(at, "names"), taken) if "names" in given else (name(label, at, taken),)
    rows = items(given["values"], below(at, "values"), least=1, most=MAX_SAMPLES if dist == "samples" else MAX_VALUES)
    if "names" in given:
        values = matrix(rows, below(at, "values"), rows=len(rows), columns=len(names))
    else:
        values = [[x] for x in numbers(rows, below(at, "values"), most=len(rows))]
    table = torch.tensor(values, dtype=torch.float64)
    if dist != "samples" and len(table.unique()) != len(table):  # type: ignore[no-untyped-call]
        raise InvalidSpec("expected different values", pointer=below(at, "values"))
    return Listed(names=names, values=table, log_weights=log_weights(given.get(weights), len(rows), below(at, weights)))


def log_weights(value: object, n: int, at: str) -> torch.Tensor:
    """Logarithms of n probabilities; equal ones where none are given."""
    if value is None:
        return torch.full((n,), -math.log(n), dtype=torch.float64)
    if not isinstance(value, (list, tuple)):
        raise InvalidSpec(f"expected a list, got {kind(value)}", pointer=at)
    return torch.tensor(probabilities(value, at, n), dtype=torch.float64).log()
