"""Specs that several tests use."""

from typing import Any

DIGIT_SPAN: dict[str, Any] = {
    "name": "digit span",
    "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
    "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
    "let": {"z": "theta - xi"},
    "outcome": {"y": {"family": "bernoulli", "logit": "z"}},
    "targets": ["theta"],
    "constraints": [],
    "cost": "1",
    "stop": {"any": [{"sd": {"theta": 0.6}}, {"max_eig_below": 0.02}, {"max_trials": 30}]},
    "select": {"rule": "argmax", "tie_tol": 1e-6, "seed": 1},
}

LINEAR: dict[str, Any] = {
    "parameters": {"w": {"dist": "normal", "loc": 0, "scale": 1}},
    "designs": {"x": {"type": "list", "values": [0.5, 1, 2]}},
    "outcome": {"y": {"family": "normal", "mean": "w * x", "sd": 1}},
}


def changed(spec: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The spec with some of its keys replaced."""
    return {**spec, **parts}
