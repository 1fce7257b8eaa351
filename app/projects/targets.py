"""What a label may be in a project, and how labels become numbers to train on."""

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.errors import Malformed

LARGEST = float(np.finfo(np.float32).max)  # standardised labels are trained on as float32


def row_width(project_input: dict[str, Any]) -> int:
    return math.prod(project_input["shape"])


def parse_label(task: dict[str, Any], value: Any, *, pointer: str | None = None) -> Any:
    """A class name, or a number (or list of them) as it is stored; anything else is refused."""
    if task["kind"] == "classification":
        return _class_name(task["classes"], value, pointer)
    if isinstance(value, str) and value.lstrip().startswith("["):  # a list in a cell of a CSV file
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) != task["outputs"]:
        raise Malformed(f"expected {task['outputs']} number(s), got {len(numbers)}", pointer=pointer)
    if any(isinstance(number, bool) for number in numbers):  # which Python counts among the numbers
        came = json.dumps(value)[:100]
        raise Malformed(f"expected numbers, got {came}; send 1 or 0 where that is meant", pointer=pointer)
    try:
        floats = [float(number) for number in numbers]
    except (TypeError, ValueError, OverflowError):
        floats = [math.nan]
    if not all(abs(number) <= LARGEST for number in floats):
        raise Malformed(f"expected finite numbers up to {LARGEST:.2g}, got {value!r:.100}", pointer=pointer)
    return floats if task["outputs"] > 1 else floats[0]


def _class_name(classes: list[str], value: Any, pointer: str | None) -> str:
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float) and value.is_integer():
        text = str(int(value))  # a column of whole numbers with gaps arrives as floats
    else:
        text = str(value)
    if text not in classes:
        known = ", ".join(repr(name) for name in classes[:20]) + (", …" if len(classes) > 20 else "")
        raise Malformed(f"unknown class {text!r:.100}; this project has {known}", pointer=pointer)
    return text


def to_targets(task: dict[str, Any], values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Class numbers [N] int64, or values [N] or [N, T] float64, so that a large offset does not swallow them."""
    if task["kind"] == "classification":
        number = {name: i for i, name in enumerate(task["classes"])}
        return np.array([number[value] for value in values], dtype=np.int64)
    return np.asarray(values, dtype=np.float64).reshape(
        len(values), *([task["outputs"]] if task["outputs"] > 1 else [])
    )
