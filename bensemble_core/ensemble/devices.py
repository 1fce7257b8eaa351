"""Checks a device that a caller names."""

import torch

from bensemble_core.errors import InvalidOption


def usable_device(device: torch.device | str) -> torch.device:
    """The device, tried with one number; InvalidOption with advice where this machine or this torch has none such."""
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except Exception as reason:  # a build without CUDA raises AssertionError, a missing driver RuntimeError
        cause = " ".join(str(reason).split(". ")[0].split())[:120]
        raise InvalidOption(
            f"device {str(device)!r} cannot be used here ({cause}); use {' or '.join(_devices())}"
        ) from reason
    if found.type == "meta":
        raise InvalidOption(f"device 'meta' holds no numbers to compute with; use {' or '.join(_devices())}")
    return found


def _devices() -> list[str]:
    others = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *others, *(["mps"] if torch.backends.mps.is_available() else [])]
