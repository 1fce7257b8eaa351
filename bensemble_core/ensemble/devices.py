"""The one place where a device that a caller names is looked for."""

import torch

from bensemble_core.errors import InvalidOption


def usable_device(device: torch.device | str) -> torch.device:
    """The device, tried with one number; InvalidOption with advice where this machine or this torch has none such."""
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except Exception as reason:  # a build without CUDA raises AssertionError, a missing driver RuntimeError
        said = " ".join(str(reason).split(". ")[0].split())[:120]
        raise InvalidOption(
            f"device {str(device)!r} cannot be used here ({said}); use {' or '.join(_there_are())}"
        ) from reason
    if found.type == "meta":
        raise InvalidOption(f"device 'meta' holds no numbers to compute with; use {' or '.join(_there_are())}")
    return found


def _there_are() -> list[str]:
    others = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *others, *(["mps"] if torch.backends.mps.is_available() else [])]
