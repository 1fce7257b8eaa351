"""One fused pass over logits, or log-probabilities, for every score that needs a row's own classes and no more.

The formulas of `scores/` are the reference, and what runs wherever this does not: on other devices and dtypes, where
gradients are asked for, without numba (extras `fast`, `app`), or with BENSEMBLE_KERNELS=off. The choice never looks at
the number of rows, and a row's bits depend on its own logits alone: not on the rows beside it, on how a pool is cut
into chunks, nor on the number of threads.
"""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from importlib import import_module
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor

from bensemble_core.errors import InvalidData
from bensemble_core.predictive import CategoricalPredictive, mixtures

COLUMNS: Final = (
    "entropy",
    "bald",
    "variation_ratio",
    "least_confidence",
    "margin",
    "total_variance",
    "epistemic_variance",
    "mean_std",
)
_WIDTHS = (1, 2, 6, 8)  # numbers of first columns that can be asked for: fewer are faster, with the same bits
SWITCH = "BENSEMBLE_KERNELS"
_PART = 1 << 18  # logits in the smallest piece of work: a quarter of a millisecond, far above what a thread costs
_BLOCK = 128  # rows that the compiled pass takes at once
_LONGEST = 1 << 24  # floats from one row to the next: the compiled pass has 32-bit offsets


class Formula(Protocol):
    def __call__(self, log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor: ...


def fused(column: str) -> Callable[[Formula], Formula]:
    """A formula [M, N, C] -> [N] of checked input, in single precision at least, by the fused pass where it applies."""
    index, n_columns = COLUMNS.index(column), width([column])

    def decorate(formula: Formula) -> Formula:
        @wraps(formula)
        def score(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
            log_probs = checked(log_probs, log_weights)
            found = statistics(log_probs, log_weights, n_columns=n_columns)
            # a copy: a view would keep all the columns
            return formula(log_probs, log_weights) if found is None else found[index].clone()

        return score

    return decorate


def checked(log_probs: Tensor, log_weights: Tensor | None) -> Tensor:
    """What every formula is given: [M, N, C] in single precision at least, with weights for the M members."""
    if log_probs.ndim != 3:
        raise InvalidData(
            f"expected log-probabilities [members, rows, classes], got shape {tuple(log_probs.shape)}; "
            "one member is log_probs[None]"
        )
    mixtures.check_weights(log_weights, log_probs.shape[0])
    return mixtures.at_least_single(log_probs)


def inputs(predictive: CategoricalPredictive) -> Tensor:
    """What to hand to a fused formula: logits where the pass will normalise them itself, else log-probabilities."""
    return predictive.logits if applies(predictive.logits, predictive.log_weights) else predictive.log_probs


def width(columns: Iterable[str]) -> int:
    """How many of the first columns hold all of these."""
    last = max(map(COLUMNS.index, columns))
    return next(n for n in _WIDTHS if n > last)


def statistics(logits: Tensor, log_weights: Tensor | None = None, *, n_columns: int = _WIDTHS[-1]) -> Tensor | None:
    """The first `n_columns` (a `width`) scores of `COLUMNS` at once, or None where the fused pass does not apply:
    [M, N, C] -> [n_columns, N] float32.

    Log-probabilities are logits, too: what is added to all of a row's classes makes no difference. The largest error
    against float64 is that of a few roundings to float32 (measured: 3.4e-7 nats up to 50 classes, 7e-7 with weights or
    with 3,000 classes). −inf is p = 0. A row with NaN, +inf or nothing but −inf gives NaN, as the formulas do.
    """
    if not applies(logits, log_weights):
        return None
    fill = _compiled()
    assert fill is not None
    n_members, n_rows, n_classes = logits.shape
    out = np.empty((n_columns, n_rows), np.float32)
    if log_weights is None:
        ballots = np.ones(n_members)
    else:
        like = torch.empty(0, dtype=torch.float64)
        ballots = mixtures.normalised(log_weights.detach(), n_members, like).exp().numpy()
    values = (logits if logits.stride(1) < _LONGEST else logits.contiguous()).detach().numpy()
    n_threads = torch.get_num_threads()
    # whole blocks, and pieces enough that no thread waits long for the last
    step = _BLOCK * max(1, _PART // (n_members * n_classes * _BLOCK), n_rows // (8 * n_threads * _BLOCK))

    def part(start: int) -> None:
        fill(values, ballots, start, min(start + step, n_rows), out)

    n_threads = min(n_threads, -(-n_rows // step))
    if n_threads > 1:
        with ThreadPoolExecutor(n_threads) as threads:  # the compiled pass lets go of the interpreter
            list(threads.map(part, range(0, n_rows, step)))
    elif n_rows:
        fill(values, ballots, 0, n_rows, out)
    if n_columns > (column := COLUMNS.index("bald")):
        most = np.float32(mixtures.weight_entropy(log_weights, n_members))
        np.minimum(out[column], most, out=out[column])  # of rounding, too
    return torch.from_numpy(out)


def applies(logits: Tensor, log_weights: Tensor | None = None) -> bool:
    """Whether the fused pass is for this input: float32 on the CPU, no gradient asked for, numba there, not switched
    off."""
    given = [logits] if log_weights is None else [logits, log_weights]
    return (
        logits.dtype == torch.float32
        and logits.ndim == 3
        and logits.shape[0] > 0
        and logits.shape[2] > 0
        and all(tensor.device.type == "cpu" and tensor.layout == torch.strided for tensor in given)
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given))
        and not any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in given)
        and not torch.compiler.is_compiling()
        and os.environ.get(SWITCH, "on") != "off"
        and _compiled() is not None
    )


def warm_up() -> float:
    """Seconds to make the fused pass ready: seconds to compile it, far less from the disk, 0 where there is no numba.

    The first score does it by itself; a worker may want it done before its first job.
    """
    start = time.perf_counter()
    return 0.0 if _compiled() is None else time.perf_counter() - start


def absence() -> str | None:
    """Why this installation has no fused pass, e.g. "No module named 'numba'"; None where it has one."""
    try:
        import_module("bensemble_core.acquisition.fused.lanes")  # looks at numba's version, compiles nothing
    except ImportError as reason:
        return str(reason)
    return None


@cache
def _compiled() -> Callable[..., Any] | None:
    try:
        import numba

        from bensemble_core.acquisition.fused.compiled import fill
    except ImportError:
        return None
    is_off = getattr(numba.config, "DISABLE_JIT", False)
    return None if is_off else fill  # what is not compiled would be far slower than the formulas
