"""Whether chains have arrived: R-hat and effective sample sizes of what they predict (Vehtari et al. 2021).

They are computed on outputs of the network at rows and on the log joint, which warn, and on weights, which do not:
hidden units can be exchanged, and chains that agree in every prediction may differ in all weights.
"""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.posteriors.log_posterior import LogPosterior
from bensemble_core.posteriors.sampling.chains import Chains
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Diagnostics, Shapes, Tensors

PREFIX = "diagnostics/"
_ROWS = 128  # rows at which outputs are compared
_SERIES = 256  # outputs and weights compared at most
_AT_ONCE = 64  # draws in one pass
_DRAWS = 1000  # draws of a chain that are looked at
_WORST_RHAT, _LEAST_ESS = 1.05, 100.0
_LEAST_DRAWS = 4  # of half a chain, without which nothing can be said
_LARGEST = 1e9  # stands for infinity, which a file does not keep


def compare(chains: Chains, target: LogPosterior, seed: int) -> dict[str, float]:
    """Numbers by name: R-hat, bulk and tail ESS of outputs, of the log joint and of weights."""
    values: dict[str, float] = {}
    if chains.acceptance is not None:
        values["acceptance"] = chains.acceptance
        values["divergences"] = float(chains.divergences)
    if "step_size" in chains.last:
        values["step_size"] = float(chains.last["step_size"].mean())
    n_draws = chains.draws.shape[1]
    if n_draws < 2 * _LEAST_DRAWS:
        return values
    kept = torch.linspace(0, n_draws - 1, min(n_draws, _DRAWS)).round().long()
    draws = chains.draws[:, kept]
    outputs = _outputs(draws, target, seed)
    values |= _named("", outputs)
    if chains.log_joint is not None:
        log_joint = chains.log_joint[:, kept]
    else:
        parts = [[target.log_density(part, c) for part in own.split(_AT_ONCE)] for c, own in enumerate(draws)]
        log_joint = torch.stack([torch.cat(own) for own in parts])
    values |= _named("_log_joint", log_joint[None])
    some = torch.linspace(0, draws.shape[2] - 1, min(draws.shape[2], _SERIES)).round().long()
    values |= _named("_weights", draws[:, :, some].permute(2, 0, 1))
    return values


def to_state(values: Mapping[str, float], device: torch.device) -> dict[str, Tensor]:
    """One tensor [1] a number, as a file keeps it."""
    return {PREFIX + k: torch.tensor([v], dtype=torch.float64, device=device) for k, v in values.items()}


def expected(state: Tensors, measures: Sequence[str]) -> Shapes:
    """What a file has to hold: of each kind of series all numbers or, where there were too few draws, none."""
    names = list(measures)
    for suffix in ("", "_log_joint", "_weights"):
        group = [number + suffix for number in ("rhat", "ess_bulk", "ess_tail")]
        names += group if any(PREFIX + name in state for name in group) else []
    return {PREFIX + name: (1,) for name in names}


def from_state(state: Tensors, *, steps: str) -> Diagnostics:
    """The numbers, and what they warn of; `steps` says what to do about too few draws."""
    values = {k.removeprefix(PREFIX): float(v[0]) for k, v in state.items() if k.startswith(PREFIX)}
    warnings = []
    if "rhat" not in values:
        why = "these are too few draws" if find_spec("arviz_stats") else "arviz-stats is not installed, which it takes"
        warnings.append(f"{why} to tell whether the chains have arrived")
    for suffix, what in (("", "predictions"), ("_log_joint", "their log posterior")):
        rhat, ess = values.get("rhat" + suffix, 1.0), values.get("ess_bulk" + suffix, math.inf)
        ess = min(ess, values.get("ess_tail" + suffix, math.inf))
        if rhat > _WORST_RHAT:
            warnings.append(
                f"the chains disagree in {what} (R-hat {rhat:.3g}, should be below {_WORST_RHAT}): they have not "
                f"arrived, or sit in different modes; {steps}, or read them as an ensemble and not as the posterior"
            )
        if ess < _LEAST_ESS:
            warnings.append(
                f"the draws are worth {ess:.0f} independent ones by {what}, should be {_LEAST_ESS:.0f}; {steps}"
            )
    divergences = values.get("divergences", 0.0)
    if divergences:
        warnings.append(
            f"{divergences:.0f} trajectories diverged: a region that is too sharp for the step size was cut off; "
            "raise acceptance (0.95), or lengthen the warm-up"
        )
    return Diagnostics(values=values, warnings=tuple(warnings))


def probe_rows(data: Data, seed: int) -> Tensor:
    """Rows to compare predictions at: half of them training rows, half with each feature drawn from its own column."""
    rng = generator(seed)
    n = data.n_rows
    known = data.x[torch.randperm(n, generator=rng)[: _ROWS // 2].to(data.x.device)]
    if data.x.ndim != 2:  # images and sequences: a pixel alone says nothing of an image
        return known
    chosen = torch.randint(n, (_ROWS // 2, data.x.shape[1]), generator=rng).to(data.x.device)
    return torch.cat([known, data.x.gather(0, chosen)])


def _outputs(draws: Tensor, target: LogPosterior, seed: int) -> Tensor:
    """Outputs at the probe rows, of classes as log-probabilities: [R·O, C, S]."""
    x = probe_rows(target.data, seed)
    n_outputs = target.problem.model.n_outputs
    x = x[:: max(1, -(-len(x) * n_outputs // _SERIES))]
    chains = []
    for c, own in enumerate(draws):
        parts = [target.outputs(part, c, x) for part in own.split(_AT_ONCE)]
        outputs = torch.cat(parts)  # [S, R, O]
        if target.problem.likelihood.family == "categorical":
            outputs = outputs.log_softmax(-1)
        chains.append(outputs.flatten(1))
        target.tick()
    return torch.stack(chains).permute(2, 0, 1)


def _named(suffix: str, series: Tensor) -> dict[str, float]:
    """The worst of the series [K, C, S]; those that never move say nothing, unless chains differ in them."""
    try:
        stats: Any = import_module("arviz_stats.base").array_stats  # untyped
    except ImportError:
        return {}
    array: npt.NDArray[np.float64] = series.to("cpu", torch.float64).numpy()
    half = array.shape[2] // 2
    if array.shape[1] == 1:  # split R-hat of one chain compares its halves
        array = np.concatenate([array[:, :, :half], array[:, :, -half:]], 1)
    moves = array.std((1, 2)) > 1e-12 * (1 + np.abs(array).max((1, 2)))
    if not moves.any():
        return {}
    array = array[moves]
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.nan_to_num(stats.rhat(array, chain_axis=1, draw_axis=2), nan=_LARGEST, posinf=_LARGEST)
        bulk = np.nan_to_num(stats.ess(array, chain_axis=1, draw_axis=2, method="bulk"), nan=1.0)
        tail = np.nan_to_num(stats.ess(array, chain_axis=1, draw_axis=2, method="tail", prob=(0.05, 0.95)), nan=1.0)
    return {
        "rhat" + suffix: float(np.max(rhat)),
        "ess_bulk" + suffix: float(np.min(bulk)),
        "ess_tail" + suffix: float(np.min(tail)),
    }
