"""Numbers from few labels: two Gaussian processes, one with a lengthscale for each input, one with one for all.

State: those of the processes under `ard/` and `iso/` (above 50 inputs, where both would be the same, `iso/` alone), and
what `auto` keeps of every way.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.io import above, below
from bensemble_core.likelihoods import LOG_NOISE
from bensemble_core.models.derived import Kernel
from bensemble_core.posteriors.auto.folds import crowding, log_normal, stacking_weights, stretch
from bensemble_core.posteriors.auto.kept import (
    CALIBRATION,
    DIAGNOSTICS,
    FOLDS,
    HELD_OUT_MEANS,
    HELD_OUT_VARIANCES,
    LOG_WEIGHTS,
    figures,
)
from bensemble_core.posteriors.function_space.gp import LARGEST_ARD, GaussianProcess
from bensemble_core.predictive.calibration import Calibration
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Problem, Report, Shapes, Snapshot, Tensors

CLIP = 3.0  # sd: no input is further out than this, beyond which a linear part of few rows says anything
FEW = 80  # rows below which the processes weigh the same
_FREQUENCIES = 256  # of each: a ranking wants the spread of functions, and pays for every wave


def processes(problem: Problem) -> dict[str, GaussianProcess]:
    """By the prefix of their state."""
    common: dict[str, Any] = {"linear": True, "frequencies": _FREQUENCIES, "starts": 2}
    found = {"iso/": GaussianProcess(ard=False, **common)}
    return ({"ard/": GaussianProcess(**common)} if math.prod(problem.model.input_shape) <= LARGEST_ARD else {}) | found


def fit(problem: Problem, data: Data, *, seed: int, report: Report) -> dict[str, Tensor]:
    """Hyper-parameters by evidence; weights and the stretch by rows left out one at a time, which is in closed form."""
    state: dict[str, Tensor] = {}
    parts = processes(problem)
    data = replace(data, x=data.x.clamp(-CLIP, CLIP))
    means, variances = [], []
    for i, (prefix, process) in enumerate(parts.items()):

        def part(done: int, total: int, message: str, snapshot: Snapshot, i: int = i) -> None:
            report(i * total + done, len(parts) * total, message, dict)

        own = process.fit(problem, data, rng=generator(seed, i), report=part)
        state |= above(prefix, own)
        mean, variance = process.left_out(problem, own)
        means.append(mean)
        variances.append(variance)
    left_out, spread, y = torch.stack(means), torch.stack(variances), data.y.to(means[0])  # [F, N, T]
    pool = None if data.unlabelled is None else data.unlabelled.flatten(1).double().clamp(-CLIP, CLIP)
    weighed = crowding(data.x.flatten(1).double(), pool)
    log_p = log_normal(y, left_out, spread)  # [F, N]
    shares = left_out.new_full((len(parts),), 1 / len(parts))
    if data.n_rows >= FEW and len(parts) > 1:
        shares = stacking_weights(log_p, weighed)
    s = stretch(left_out, spread, shares.log(), y, weighed) if data.n_rows > 1 else 1.0
    of = shares[:, None, None]
    mean = (of * left_out).sum(0)
    variance = s**2 * (of * (spread + (left_out - mean).square())).sum(0)
    told = {f"{prefix[:-1]}_share": float(share) for prefix, share in zip(parts, shares, strict=True)}
    told |= {f"{prefix[:-1]}_nll": float(-log.mean()) for prefix, log in zip(parts, log_p, strict=True)}
    told |= {"stretch": s, "held_out_nll": float(-log_normal(y, mean, variance).mean())}
    return {
        **state,
        LOG_WEIGHTS: shares.log(),
        CALIBRATION: mean.new_tensor([s]),
        FOLDS: torch.arange(data.n_rows, device=mean.device),
        HELD_OUT_MEANS: mean,
        HELD_OUT_VARIANCES: variance,
        **figures(told, mean),
    }


def sample(problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
    """n functions, of each process as many as its weight says, at least one where there are two of them."""
    parts = processes(problem)
    log_weights = state[LOG_WEIGHTS]
    counts = [n]
    if len(parts) == 2:
        first = min(max(round(n * float(log_weights[0].exp())), 1), n - 1) if n > 1 else int(log_weights.argmax() == 0)
        counts = [first, n - first]
    drawn, weights = [], []
    for (prefix, process), count, log_weight in zip(parts.items(), counts, log_weights, strict=True):
        if count:
            drawn.append(process.sample(problem, below(prefix, state), count, rng=rng))
            weights.append(log_weight.expand(count) - math.log(count))
    joined = drawn[0] if len(drawn) == 1 else _beside(problem, drawn)
    model = joined.problem.model
    assert isinstance(model, Kernel)
    return replace(
        joined,
        problem=replace(joined.problem, model=replace(model, clip=CLIP)),
        log_weights=None if len(drawn) == 1 else torch.cat(weights).to(problem.dtype),
        calibration=Calibration(family="gaussian", scale=state[CALIBRATION][0].to(problem.dtype)),
        notes=(_chosen(state, parts),),
    )


def expected(problem: Problem, state: Tensors) -> Shapes:
    parts = processes(problem)
    shapes: Shapes = {}
    for prefix, process in parts.items():
        shapes |= {prefix + name: shape for name, shape in process.expected(problem, below(prefix, state)).items()}
    n, t = len(state.get(FOLDS, ())), problem.likelihood.n_outputs
    shapes |= {LOG_WEIGHTS: (len(parts),), CALIBRATION: (1,), FOLDS: (n,)}
    names = [prefix[:-1] + what for what in ("_share", "_nll") for prefix in parts] + ["stretch", "held_out_nll"]
    shapes |= {DIAGNOSTICS + name: (1,) for name in names}
    return shapes | {HELD_OUT_MEANS: (n, t), HELD_OUT_VARIANCES: (n, t)}


def _beside(problem: Problem, drawn: list[Ensemble]) -> Ensemble:
    """One ensemble of the members of several, each with 0 for what only the others have."""
    models = [ensemble.problem.model for ensemble in drawn]
    kernels = [model for model in models if isinstance(model, Kernel)]
    near = [k.n_groups * k.n_centres for k in kernels]
    waves = [k.n_frequencies for k in kernels]
    parts = []
    for i, ensemble in enumerate(drawn):
        own = ensemble.stacked["coefficients"]
        wide = own.new_zeros(*own.shape[:2], sum(near) + sum(waves))
        at = sum(near[:i])
        wide[..., at : at + near[i]] = own[..., : near[i]]
        at = sum(near) + sum(waves[:i])
        wide[..., at : at + waves[i]] = own[..., near[i] :]
        parts.append(wide)
    stacked = {name: torch.cat([e.stacked[name] for e in drawn]) for name in ("linear", "bias")}
    if LOG_NOISE in drawn[0].shared:
        stacked[LOG_NOISE] = torch.cat([e.shared[LOG_NOISE].expand(e.n_members, -1) for e in drawn])
    common = ("centres", "scales", "frequencies", "phases")
    model = replace(kernels[0], n_groups=sum(k.n_groups for k in kernels), n_frequencies=sum(waves))
    return Ensemble(
        problem=replace(problem, model=model),
        stacked={"coefficients": torch.cat(parts), **stacked},
        shared={name: torch.cat([e.shared[name] for e in drawn]) for name in common},
    )


def _chosen(state: Tensors, parts: dict[str, GaussianProcess]) -> str:
    shares = state[LOG_WEIGHTS].exp().tolist()
    names = {"ard/": "with a lengthscale for each input", "iso/": "with one lengthscale"}
    what = " and ".join(f"{names[prefix]} ({share:.0%})" for prefix, share in zip(parts, shares, strict=True))
    return f"auto: Gaussian processes {what}, their spread times {float(state[CALIBRATION][0]):.3g} by left-out rows"
