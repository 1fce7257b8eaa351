"""Named tensors of members, taken apart."""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")


def split_extra(tensors: Mapping[str, V]) -> tuple[dict[str, V], dict[str, V]]:
    """The network's tensors, and the likelihood's own."""
    extra = {k: v for k, v in tensors.items() if k.startswith("likelihood/")}
    return {k: v for k, v in tensors.items() if k not in extra}, extra
