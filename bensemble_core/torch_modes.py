"""The modes of torch that a caller may have set around us, and which would change what we compute."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_KINDS = ("cpu", "cuda")  # of devices that may cast by themselves


@contextmanager
def own_modes() -> Iterator[None]:
    """The default modes: with gradients, no inference mode, no autocast. Also a decorator.

    Under `torch.no_grad()` no descent has a gradient, and under `torch.autocast` the same seed gives other bits.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for kind in _KINDS:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.enable_grad())
        yield
