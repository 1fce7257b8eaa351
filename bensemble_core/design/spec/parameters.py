"""The `parameters` of a spec, read into blocks of the prior."""

from dataclasses import MISSING, fields

import torch
from torch import Tensor

from bensemble_core.design.spec.blocks import Listed, MultivariateNormal, Scalar
from bensemble_core.design.spec.priors import PRIORS
from bensemble_core.design.spec.reading import Json

MAX_PARAMETERS = 16
MAX_VALUES = 1000  # of a categorical or a grid
MAX_SAMPLES = 20_000

Block = Scalar | MultivariateNormal | Listed
LISTED = ("categorical", "grid", "samples")
DISTS = (*PRIORS, *LISTED, "multivariate_normal")


def read_parameters(stated: Json, taken: set[str]) -> list[Block]:
    """One block for each entry; the names they bring are added to `taken`."""
    blocks: list[Block] = []
    for label, given in stated.members().items():
        dist = given.choice("dist", DISTS)
        if dist in PRIORS:
            blocks.append(_scalar(label, dist, given, taken))
        elif dist in LISTED:
            blocks.append(_listed(label, dist, given, taken))
        else:
            blocks.append(_multivariate_normal(given, taken))
    n = sum(len(block.names) for block in blocks)
    if not 1 <= n <= MAX_PARAMETERS:
        raise stated.refuse(f"expected 1 to {MAX_PARAMETERS} parameters, got {n}")
    return blocks


def _scalar(label: str, dist: str, stated: Json, taken: set[str]) -> Scalar:
    """A prior's fields are its numbers; their metadata are bounds."""
    known = fields(PRIORS[dist])
    required = [field.name for field in known if field.default is MISSING]
    given = stated.fields("dist", *required, **{f.name: None for f in known if f.name not in required})
    numbers = {
        field.name: given[field.name].number(**field.metadata)
        for field in known
        if field.name in required or given[field.name].value is not None
    }
    prior = PRIORS[dist](**numbers)
    if (fault := prior.fault()) is not None:
        raise given[fault[0]].refuse(fault[1])
    return Scalar(name=stated.add_name(label, taken), prior=prior)


def _multivariate_normal(stated: Json, taken: set[str]) -> MultivariateNormal:
    given = stated.fields("dist", "names", "mean", "covariance")
    names = _names(given["names"], taken)
    n = len(names)
    mean = _tensor(given["mean"].numbers(least=n, most=n))
    covariance = _tensor(given["covariance"].matrix(rows=n, columns=n))
    factor, failed = torch.linalg.cholesky_ex((covariance + covariance.mT) / 2)
    if bool(failed) or not torch.allclose(covariance, covariance.mT):
        raise given["covariance"].refuse("expected a symmetric positive definite matrix")
    return MultivariateNormal(names=names, mean=mean, factor=factor)


def _listed(label: str, dist: str, stated: Json, taken: set[str]) -> Listed:
    probs = "weights" if dist == "samples" else "probs"
    optional = {"samples": (probs, "names"), "grid": (probs,), "categorical": ()}[dist]
    required = ("values", probs) if dist == "categorical" else ("values",)
    given = stated.fields("dist", *required, **dict.fromkeys(optional))
    n = len(given["values"].entries(most=MAX_SAMPLES if dist == "samples" else MAX_VALUES))
    if "names" in stated.value:
        names = _names(given["names"], taken)
        values = given["values"].matrix(rows=n, columns=len(names))
    else:
        names = (stated.add_name(label, taken),)
        values = [[x] for x in given["values"].numbers(most=n)]
        if dist != "samples" and len({x for (x,) in values}) < n:
            raise given["values"].refuse("expected different values")
    return Listed(names=names, values=_tensor(values), log_weights=_tensor(given[probs].probabilities(n)).log())


def _names(stated: Json, taken: set[str]) -> tuple[str, ...]:
    return tuple(entry.add_name(entry.text(), taken) for entry in stated.items(most=MAX_PARAMETERS))


def _tensor(values: list[float] | list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
