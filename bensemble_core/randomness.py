"""Seeds from seeds: every member, epoch and step has a generator of its own, so order and grouping do not matter."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bensemble_core.options import whole

_MASK = (1 << 64) - 1


def derive(seed: int, *path: int) -> int:
    """A seed in [0, 2⁶³) for a place in the tree below `seed`: SplitMix64 (Steele et al. 2014) along the path."""
    state = _mix(whole(seed, "seed") & _MASK)
    for step in path:
        state = _mix(state ^ _mix((step + 1) & _MASK))
    return state >> 1


def draw_seed(rng: torch.Generator) -> int:
    """A fresh seed from a generator."""
    return int(torch.randint(2**63 - 1, (1,), generator=rng, device=rng.device))


def generator(seed: int, *path: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for a place in the tree below `seed`."""
    return torch.Generator(device).manual_seed(derive(seed, *path))


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


def _mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
