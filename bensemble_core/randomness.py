"""Seeds from seeds: every member, epoch and step has a generator of its own, so order and grouping do not matter."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.errors import InvalidData
from bensemble_core.options import whole

MASK = (1 << 64) - 1  # the lowest 64 bits
GAMMA = 0x9E3779B97F4A7C15  # the step of a SplitMix64 counter

Z = TypeVar("Z", int, npt.NDArray[np.uint64])


def derive(seed: int, *path: int) -> int:
    """A seed in [0, 2⁶³) for a place in the tree below `seed`: SplitMix64 (Steele et al. 2014) along the path."""
    state = _next(whole(seed, "seed") & MASK)
    for step in path:
        state = _next(state ^ _next((step + 1) & MASK))
    return state >> 1


def draw_seed(rng: torch.Generator) -> int:
    """A fresh seed from a generator."""
    return int(torch.randint(2**63 - 1, (1,), generator=rng, device=rng.device))


def generator(seed: int, *path: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for a place in the tree below `seed`."""
    return torch.Generator(device).manual_seed(derive(seed, *path))


def count_held_out(n: int, share: float, what: str, advice: str = "") -> int:
    """How many of n rows a share is, at least 1 and not all of them; InvalidData where n is too small for that."""
    if n < 2:
        raise InvalidData(f"{what} holds rows out and needs at least 2, got {n}{advice}")
    return min(max(1, round(share * n)), n - 1)


def permutation(n: int, seed: int, *path: int) -> Tensor:
    """A random order of n rows, drawn on the CPU so that it does not depend on the device: [n]."""
    return torch.randperm(n, generator=generator(seed, *path))


@contextmanager
def borrowed(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed the global generators for code that draws from them (initialisation, nn.Dropout), then restore them."""
    device = torch.device(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def mix(z: Z) -> Z:
    """The finaliser of SplitMix64: 64 bits in, 64 well mixed bits out, of a number or of an array of uint64."""
    x: Any = z
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    mixed: Z = x ^ (x >> 31)
    return mixed


def _next(state: int) -> int:
    return mix((state + GAMMA) & MASK)
