"""How objects that hold tensors show themselves: one line for a terminal, a small table for a notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from torch import Tensor

from bensemble_core.options import default_of

_SHOWN = 10  # most entries of a list to show


class Described:
    """`repr` in one line and `_repr_html_` as a table, both made from `_facts`; entries that are None are left out."""

    def _facts(self) -> Mapping[str, object]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._texts().items())})"

    def _repr_html_(self) -> str:
        cell = '<tr><th style="text-align: left">{}</th><td style="text-align: left">{}</td></tr>'
        rows = "".join(cell.format(escape(name), escape(text)) for name, text in self._texts().items())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    def _texts(self) -> dict[str, str]:
        return {name: " ".join(str(value).split()) for name, value in self._facts().items() if value is not None}


def kind(tensor: Tensor) -> dict[str, str]:
    """Its dtype and device."""
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "device": str(tensor.device)}


def entry(options: Any) -> str:
    """A method or a network by its name and the options that are not its defaults: `mlp(hidden=[64, 64])`."""
    name = str(getattr(options, "name", type(options).__name__))
    changed = []
    for field in fields(options) if is_dataclass(options) else ():
        value = getattr(options, field.name)
        if field.name != "name" and value != default_of(field):
            changed.append(f"{field.name}={list(value) if isinstance(value, tuple) else value}")
    return f"{name}({', '.join(changed)})" if changed else name


def network(model: Any) -> str:
    """A network by name, the class of the caller's module, or what a derived model is called."""
    if hasattr(model, "network"):
        return entry(model.network)
    spec = model.to_json()
    return str(spec.get("module") or spec.get("derived"))


def likelihood(given: Any) -> str:
    """Its name, and its classes or its noise."""
    spec = given.to_json()
    if spec.get("classes") is not None:
        return f"{spec['name']}({', '.join(_few(spec['classes'], len(spec['classes'])))})"
    if spec.get("n_classes") is not None:
        return f"{spec['name']}({spec['n_classes']} classes)"
    return f"{spec['name']}(noise={spec['noise']})" if spec.get("noise") is not None else str(spec["name"])


def numbers(values: Tensor) -> str:
    """The first entries of [N]."""
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values[:_SHOWN].tolist()]
    return f"[{', '.join(_few(shown, len(values)))}]"


def _few(shown: Sequence[str], n: int) -> list[str]:
    return [*shown[:_SHOWN], *([f"… {n - _SHOWN} more"] if n > _SHOWN else [])]
