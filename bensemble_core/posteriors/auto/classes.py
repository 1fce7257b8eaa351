"""Classes from few labels: two kernel regressions, stacked, each as the committee of its folds.

State: `kernel/centres` [P, D] in units of the chosen length, `kernel/length` [1], `kernel/coefficients` [M, C, P],
`kernel/linear` [M, C, D], `kernel/bias` [M, C], of M members, the folds of the linear family first; and what `auto`
keeps of every way (`folds/…`, `stack/log_weights`, `calibration/scale`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.resampling import resample
from bensemble_core.kernels import squared_distances
from bensemble_core.models.derived import Kernel
from bensemble_core.posteriors.auto.folds import crowding, stacking_weights, stratified
from bensemble_core.posteriors.auto.kept import CALIBRATION, DIAGNOSTICS, FOLDS, HELD_OUT, LOG_WEIGHTS, figures
from bensemble_core.posteriors.auto.kernel_softmax import Features, Fits, fit_path
from bensemble_core.predictive import CategoricalPredictive
from bensemble_core.predictive.calibration import Calibration, learn_from_few
from bensemble_core.randomness import derive, permutation
from bensemble_core.types import Data, Problem, Report, Shapes, Tensors

CLIP = 10.0  # sd: no input is further out than this
LENGTHS = (0.35, 0.7, 1.4)  # of the median distance between rows
VARIANCES = (0.1, 0.5, 2.0, 8.0, 32.0, 128.0, 512.0, 2048.0)  # of the prior of weights
MOST_CENTRES = 512
_PREFIX = "kernel/"
CENTRES, LENGTH, COEFFICIENTS = _PREFIX + "centres", _PREFIX + "length", _PREFIX + "coefficients"
LINEAR, BIAS = _PREFIX + "linear", _PREFIX + "bias"
_COMPARED = 500  # rows, each with each, for the median distance
_WORSE = 2  # prior variances in a row without a gain, after which larger ones are not tried
TOLD = (
    *("linear_nll", "linear_share", "rbf_nll", "rbf_share"),
    *("linear_variance", "rbf_variance", "rbf_length", "temperature", "held_out_nll"),
)
_FOLDS, _CENTRES = 0, 1  # branches of the seed


@dataclass(frozen=True, kw_only=True, eq=False)
class _Family:
    """The best setting of a family by its held-out rows."""

    nll: float  # mean, weighted
    fits: Fits
    features: Features
    length: float
    logits: Tensor  # [N, C] of every row when it was held out


def fit(problem: Problem, data: Data, *, n_folds: int, seed: int, report: Report) -> dict[str, Tensor]:
    """Two MAP regressions, linear and RBF, whose settings, weights and temperature held-out rows choose."""
    x = data.x.flatten(1).double().clamp(-CLIP, CLIP)
    pool = None if data.unlabelled is None else data.unlabelled.flatten(1).double().clamp(-CLIP, CLIP)
    y, n_classes, n = data.y, problem.likelihood.n_outputs, data.n_rows
    is_telling = bool((y != y[0]).any())  # rows of one class say nothing of where the others begin
    n_folds = min(n_folds, n)
    folds = stratified(y, n_folds, derive(seed, _FOLDS)) if n > 1 else y.new_full((n,), -1)
    weighed = crowding(x, pool)
    outside = torch.stack([weighed * (folds != f) for f in range(n_folds)])  # [S, N]
    length = median_distance(x if pool is None else pool)
    centres = x
    if n > MOST_CENTRES:
        centres = x[permutation(n, seed, _CENTRES)[:MOST_CENTRES].sort().values.to(x.device)]
    total, done = (1 + len(LENGTHS)) * len(VARIANCES), 0

    def best(build: Callable[[float], Features], lengths: tuple[float, ...]) -> _Family:
        nonlocal done
        found: _Family | None = None
        for relative in lengths:
            features = build(relative * length)
            least, n_worse = math.inf, 0
            for i, fits in enumerate(fit_path(features, y, outside, n_classes, VARIANCES)):
                report(done + i + 1, total, f"kernel regression {done + i + 1}", dict)
                logits = fits.logits(features.rows)
                held = logits[folds, torch.arange(n, device=x.device)] if n > 1 else logits[0]
                nll = float((weighed * _nll(held, y)).mean())
                if found is None or nll < found.nll:
                    found = _Family(nll=nll, fits=fits, features=features, length=relative * length, logits=held)
                n_worse = 0 if nll < least else n_worse + 1
                least = min(least, nll)
                if n_worse == _WORSE or not is_telling:
                    break
            done += len(VARIANCES)
        assert found is not None
        return found

    families = [
        best(lambda _: Features.linear(x), (1.0,)),
        best(lambda size: Features.rbf(x, centres, size**2), LENGTHS),
    ]
    logits = torch.stack([family.logits for family in families])  # [F, N, C]
    shares, t = x.new_full((2,), 0.5), 1.0
    if is_telling:
        shares = stacking_weights(-torch.stack([_nll(family.logits, y) for family in families]), weighed)
        mixture = CategoricalPredictive(logits=logits, log_weights=shares.log())
        t = learn_from_few([(mixture, y)], row_weights=[weighed]).temperature
    mixed = torch.logsumexp(shares.log()[:, None, None] + (logits / t).log_softmax(-1), 0)
    linear, near = families
    nothing = x.new_zeros
    members = {
        COEFFICIENTS: torch.cat([nothing(n_folds, n_classes, len(centres)), _coefficients(near)]),
        LINEAR: torch.cat([_coefficients(linear), nothing(n_folds, n_classes, x.shape[1])]),
        BIAS: torch.cat([linear.fits.bias, near.fits.bias]),
        CENTRES: centres / near.length,
    }
    together = float((weighed * _nll(mixed, y)).mean())
    own = [value for of, share in zip(families, shares, strict=True) for value in (of.nll, float(share))]
    told = dict(zip(TOLD, (*own, linear.fits.variance, near.fits.variance, near.length, t, together), strict=True))
    return {
        **{name: tensor.to(problem.dtype) for name, tensor in members.items()},
        LENGTH: x.new_tensor([near.length]),
        LOG_WEIGHTS: (shares / n_folds).log().repeat_interleave(n_folds),
        CALIBRATION: x.new_tensor([1 / t]),
        FOLDS: folds,
        HELD_OUT: mixed,
        **figures(told, x),
    }


def sample(problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
    """All members with their weights, or n of them, resampled."""
    rows, log_weights = resample(state[LOG_WEIGHTS], n, rng)
    centres = state[CENTRES]
    model = Kernel(
        input_shape=problem.model.input_shape,
        n_outputs=problem.likelihood.n_outputs,
        kernel="rbf",
        n_groups=1,
        n_centres=len(centres),
        n_frequencies=0,
        clip=CLIP,
    )
    shared = {
        "centres": centres[None],
        "scales": (1 / state[LENGTH]).to(centres).expand(1, centres.shape[1]).contiguous(),
        "frequencies": centres.new_zeros(0, centres.shape[1]),
        "phases": centres.new_zeros(0),
    }
    names = {"coefficients": COEFFICIENTS, "linear": LINEAR, "bias": BIAS}
    return Ensemble(
        problem=replace(problem, model=model),
        stacked={name: state[key][rows] for name, key in names.items()},
        shared=shared,
        log_weights=log_weights.to(problem.dtype),
        calibration=Calibration(family="categorical", scale=state[CALIBRATION][0].to(problem.dtype)),
        notes=(_chosen(state),),
    )


def expected(problem: Problem, state: Tensors) -> Shapes:
    n, d, c = len(state.get(FOLDS, ())), math.prod(problem.model.input_shape), problem.likelihood.n_outputs
    m, p = len(state.get(LOG_WEIGHTS, ())), len(state.get(CENTRES, ()))
    shapes: Shapes = {CENTRES: (p, d), LENGTH: (1,), COEFFICIENTS: (m, c, p), LINEAR: (m, c, d), BIAS: (m, c)}
    shapes |= {LOG_WEIGHTS: (m,), CALIBRATION: (1,), FOLDS: (n,), HELD_OUT: (n, c)}
    return shapes | {DIAGNOSTICS + name: (1,) for name in TOLD}


def median_distance(rows: Tensor) -> float:
    """The median distance between some of the rows, or 1 where all are the same."""
    some = rows[:: -(-len(rows) // _COMPARED)]
    found = float(squared_distances(some, some).median().sqrt())
    if found == 0:
        found = float(squared_distances(some, some).mean().sqrt())
    return found or 1.0


def _nll(logits: Tensor, y: Tensor) -> Tensor:
    """[N, C], [N] -> [N]."""
    return -logits.log_softmax(-1).gather(1, y[:, None])[:, 0]


def _coefficients(family: _Family) -> Tensor:
    """Of the centres, or of the inputs: [S, C, P]."""
    return (family.features.back @ family.fits.weights).mT


def _chosen(state: Tensors) -> str:
    def value(name: str) -> float:
        return float(state[DIAGNOSTICS + name][0])

    return (
        f"auto: a linear and an RBF kernel regression, {value('linear_share'):.0%} and {value('rbf_share'):.0%} by the "
        f"likelihood of held-out rows ({value('linear_nll'):.3g} and {value('rbf_nll'):.3g} nats a row, together "
        f"{value('held_out_nll'):.3g}), temperature {value('temperature'):.3g}"
    )
