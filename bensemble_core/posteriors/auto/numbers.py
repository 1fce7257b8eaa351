"""Numbers from few labels: three Gaussian processes, of a lengthscale for each input, of one for all, and linear.

State: those of the processes under `ard/`, `iso/` and `lin/` (above 50 inputs, where the first two would be the same,
without `ard/`), and what `auto` keeps of every way; weights of the processes, and last of the broad member where the
noise is learnt. States of earlier versions have no `lin/`.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.io import above, below
from bensemble_core.likelihoods import LOG_NOISE, Gaussian
from bensemble_core.models.derived import Kernel
from bensemble_core.posteriors.auto.folds import crowding, log_normal, stacking_weights
from bensemble_core.posteriors.auto.kept import (
    CALIBRATION,
    DIAGNOSTICS,
    FOLDS,
    HELD_OUT_BROAD,
    HELD_OUT_MEANS,
    HELD_OUT_VARIANCES,
    LOG_WEIGHTS,
    figures,
)
from bensemble_core.posteriors.function_space.gp import LARGEST_ARD, GaussianProcess, Y
from bensemble_core.predictive import GaussianPredictive
from bensemble_core.predictive.calibration import Calibration, learn_from_few
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Problem, Report, Shapes, Snapshot, Tensors

CLIP = 3.0  # sd: no input is further out than this, beyond which a linear part of few rows says anything
EQUAL = 10.0  # rows that speak for equal weights of the processes: few left-out rows tell them badly apart
BROAD = 2.0  # sds of the labels: the noise of the member that expects what no label has shown
_LINEAR = "lin/"
_FREQUENCIES = 256  # of each: a ranking wants the spread of functions, and pays for every wave


def processes(problem: Problem, state: Tensors | None = None) -> dict[str, GaussianProcess]:
    """By the prefix of their state; of a state that was fitted before, those it has."""
    common: dict[str, Any] = {"linear": True, "frequencies": _FREQUENCIES, "starts": 2}
    found = {"ard/": GaussianProcess(**common)} if math.prod(problem.model.input_shape) <= LARGEST_ARD else {}
    found["iso/"] = GaussianProcess(ard=False, **common)
    if state is None or _LINEAR + Y in state:
        found[_LINEAR] = GaussianProcess(kernel="linear", starts=2)
    return found


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
    shares = stacking_weights(log_p, weighed, EQUAL)
    told = {f"{prefix[:-1]}_nll": float(-log.mean()) for prefix, log in zip(parts, log_p, strict=True)}
    if _learns_noise(problem):
        about = (shares[:, None, None] * left_out).sum(0)
        wide = BROAD**2 * _without_each(y).expand_as(about)
        mixed = torch.logsumexp(shares.log()[:, None] + log_p, 0)
        of_all = stacking_weights(torch.stack([mixed, log_normal(y, about, wide)]), weighed)
        shares = torch.cat([of_all[0] * shares, of_all[1:]])
        left_out, spread = torch.cat([left_out, about[None]]), torch.cat([spread, wide[None]])
    s = 1.0
    if data.n_rows > 1:
        mixture = GaussianPredictive(means=left_out, variances=spread, log_weights=shares.log())
        s = float(learn_from_few([(mixture, y)], row_weights=[weighed]).scale)
    of = (shares[: len(parts)] / shares[: len(parts)].sum())[:, None, None]
    mean = (of * left_out[: len(parts)]).sum(0)
    variance = s**2 * (of * (spread + (left_out - mean).square())[: len(parts)]).sum(0)
    kept = {HELD_OUT_MEANS: mean, HELD_OUT_VARIANCES: variance}
    log_p = log_normal(y, mean, variance)
    if len(shares) > len(parts):
        kept[HELD_OUT_BROAD] = s**2 * spread[-1]
        log_p = torch.logaddexp(
            (1 - shares[-1]).log() + log_p, shares[-1].log() + log_normal(y, mean, kept[HELD_OUT_BROAD])
        )
    told |= {f"{name}_share": float(share) for name, share in zip(_families(problem, parts), shares, strict=True)}
    told |= {"stretch": s, "held_out_nll": float(-log_p.mean())}
    return {
        **state,
        LOG_WEIGHTS: shares.log(),
        CALIBRATION: mean.new_tensor([s]),
        FOLDS: torch.arange(data.n_rows, device=mean.device),
        **kept,
        **figures(told, mean),
    }


def sample(problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
    """n functions, of each process as many as its weight says, at least two where n is enough for that.

    Where there are more members than processes the last is the broad one: the mean of the others, with noise as wide
    as all labels.
    """
    parts = processes(problem, state)
    log_weights = state[LOG_WEIGHTS]
    is_broad = n > len(parts) and len(log_weights) > len(parts)
    of_parts = log_weights[: len(parts)]
    drawn, weights = [], []
    for (prefix, process), count, log_weight in zip(
        parts.items(), _counts(of_parts.softmax(0).tolist(), n - is_broad), of_parts, strict=True
    ):
        if count:
            drawn.append(process.sample(problem, below(prefix, state), count, rng=rng, centred=True))
            weights.append(log_weight.expand(count) - math.log(count))
    joined, own = _beside(problem, drawn), torch.cat(weights)
    if is_broad:
        noise = BROAD * _spread(below(next(iter(parts)), state)[Y])
        joined = _with_broad(joined, own, noise.log())
        own = torch.cat([own, log_weights[-1:]])
    model = joined.problem.model
    assert isinstance(model, Kernel)
    return replace(
        joined,
        problem=replace(joined.problem, model=replace(model, clip=CLIP)),
        log_weights=own.log_softmax(0).to(problem.dtype),
        calibration=Calibration(family="gaussian", scale=state[CALIBRATION][0].to(problem.dtype)),
        notes=(_chosen(state, _families(problem, parts)),),
    )


def expected(problem: Problem, state: Tensors) -> Shapes:
    parts = processes(problem, state)
    shapes: Shapes = {}
    for prefix, process in parts.items():
        shapes |= {prefix + name: shape for name, shape in process.expected(problem, below(prefix, state)).items()}
    n, t = len(state.get(FOLDS, ())), problem.likelihood.n_outputs
    families = _families(problem, parts)
    shapes |= {LOG_WEIGHTS: (len(families),), CALIBRATION: (1,), FOLDS: (n,)}
    names = [f"{prefix[:-1]}_nll" for prefix in parts] + [f"{name}_share" for name in families]
    names += ["stretch", "held_out_nll"]
    shapes |= {DIAGNOSTICS + name: (1,) for name in names}
    names = [HELD_OUT_MEANS, HELD_OUT_VARIANCES] + [HELD_OUT_BROAD] * (len(families) > len(parts))
    return shapes | dict.fromkeys(names, (n, t))


def _counts(shares: list[float], n: int) -> list[int]:
    """n members among families: two of each, or one, as n allows, the others by share: [F] -> [F]."""
    least = min(2, n // len(shares))
    counts = [least] * len(shares)
    for _ in range(n - sum(counts)):
        lacking = [share * n - count for share, count in zip(shares, counts, strict=True)]
        counts[lacking.index(max(lacking))] += 1
    return counts


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


def _with_broad(ensemble: Ensemble, log_weights: Tensor, log_noise: Tensor) -> Ensemble:
    """And a member more: the mean of the others, with this noise. Its mean changes neither theirs nor their spread."""
    weights = log_weights.softmax(0)
    stacked = {}
    for name, tensor in ensemble.stacked.items():
        more = log_noise if name == LOG_NOISE else torch.tensordot(weights.to(tensor), tensor, 1)
        stacked[name] = torch.cat([tensor, more.to(tensor)[None]])
    return replace(ensemble, stacked=stacked)


def _families(problem: Problem, parts: Iterable[str]) -> list[str]:
    return [prefix[:-1] for prefix in parts] + (["broad"] if _learns_noise(problem) else [])


def _learns_noise(problem: Problem) -> bool:
    return isinstance(problem.likelihood, Gaussian) and problem.likelihood.learns


def _spread(y: Tensor) -> Tensor:
    """Standard deviation of the labels, with one more label a standardised unit away: [N, T] -> [T]."""
    return (((y - y.mean(0)).square().sum(0) + 1) / len(y)).sqrt()


def _without_each(y: Tensor) -> Tensor:
    """`_spread` squared of all labels but one, for each: [N, T] -> [N, T]."""
    n = len(y)
    if n == 1:
        return torch.ones_like(y)
    apart = (y - y.mean(0)).square()
    return (apart.sum(0) - n / (n - 1) * apart + 1) / (n - 1)


def _chosen(state: Tensors, families: list[str]) -> str:
    shares = state[LOG_WEIGHTS].exp().tolist()
    names = {
        "ard": "with a lengthscale for each input",
        "iso": "with one lengthscale",
        "lin": "linear",
        "broad": "with broad noise",
    }
    what = ", ".join(f"{names[family]} ({share:.0%})" for family, share in zip(families, shares, strict=True))
    return f"auto: Gaussian processes {what}; their spread times {float(state[CALIBRATION][0]):.3g} by left-out rows"
