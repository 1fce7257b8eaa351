"""An entry of the catalogue: a spec as plain JSON, with what it is for and where it is from."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    title: str
    summary: str
    reference: str
    spec: dict[str, Any]


def normal(loc: float, scale: float) -> dict[str, Any]:
    return {"dist": "normal", "loc": loc, "scale": scale}


def lognormal(loc: float, scale: float) -> dict[str, Any]:
    return {"dist": "lognormal", "loc": loc, "scale": scale}


def uniform(low: float, high: float) -> dict[str, Any]:
    return {"dist": "uniform", "low": low, "high": high}


def beta(a: float, b: float) -> dict[str, Any]:
    return {"dist": "beta", "a": a, "b": b}


def integer(low: int, high: int, step: int = 1) -> dict[str, Any]:
    return {"type": "integer", "low": low, "high": high, "step": step}


def real(low: float, high: float, scale: str = "linear") -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high, "scale": scale}


def listed(*values: float) -> dict[str, Any]:
    return {"type": "list", "values": list(values)}


def bernoulli(prob: str) -> dict[str, Any]:
    return {"y": {"family": "bernoulli", "prob": prob}}


def answer(logit: str) -> dict[str, Any]:
    return {"y": {"family": "bernoulli", "logit": logit}}


def gaussian(mean: str, sd: str | float) -> dict[str, Any]:
    return {"y": {"family": "normal", "mean": mean, "sd": sd}}
