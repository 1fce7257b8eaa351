"""Networks, each stopped early by a fold of its own, and calibrated on what they predict of their folds.

State: the tensors of the networks, [M, ...], and what `auto` keeps of every way.
"""

from dataclasses import replace

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.posteriors.auto.folds import stratified
from bensemble_core.posteriors.auto.kept import (
    CALIBRATION,
    DIAGNOSTICS,
    FOLDS,
    HELD_OUT,
    HELD_OUT_MEANS,
    HELD_OUT_VARIANCES,
    figures,
)
from bensemble_core.posteriors.ensembles.deep import DeepEnsemble
from bensemble_core.posteriors.start import split_shared, thinned
from bensemble_core.predictive import CategoricalPredictive, Predictive
from bensemble_core.predictive.calibration import Calibration, learn_from_few
from bensemble_core.randomness import derive
from bensemble_core.training.descent import descend
from bensemble_core.types import Data, Problem, Report, Shapes, Tensors

PATIENCE = 10  # epochs
TOLD = ("temperature", "held_out_nll")
_FOLDS = 100  # branch of the seed; those below are the members'


def method(n_folds: int, epochs: int) -> DeepEnsemble:
    return DeepEnsemble(members=n_folds, epochs=epochs, patience=PATIENCE)


def fit(
    problem: Problem,
    data: Data,
    *,
    n_folds: int,
    epochs: int,
    seed: int,
    warm: Tensors | None,
    resume: Tensors | None,
    report: Report,
) -> dict[str, Tensor]:
    """Member m is trained on all rows but fold m. With fewer than two rows a fold there are none to hold out."""
    n, size = data.n_rows, data.n_rows // n_folds
    own = method(n_folds, epochs)
    seeds = [derive(seed, m) for m in range(n_folds)]
    folds = torch.full((n,), -1, dtype=torch.int64, device=data.x.device)
    if size < 2:
        run = replace(own, patience=None).run(problem, data, seeds=seeds, warm=warm)
    else:
        strata = data.y if problem.likelihood.family == "categorical" else torch.zeros_like(folds)
        folds = _of_equal_size(stratified(strata, n_folds, derive(seed, _FOLDS)), n_folds, size)
        held = torch.stack([(folds == f).nonzero()[:, 0] for f in range(n_folds)])
        rows = torch.stack([(folds != f).nonzero()[:, 0] for f in range(n_folds)])
        run = replace(own.run(problem, data, seeds=seeds, warm=warm), rows=rows, held_out=held)
    trained = descend(run, resume=resume, report=report)
    state = {**trained.theta, **trained.fixed}
    return {**state, **_calibrated(problem, data, state, folds, n_folds)}


def sample(problem: Problem, state: Tensors, n: int) -> Ensemble:
    """min(n, M) of the networks."""
    kept = (*_names(problem), DIAGNOSTICS)
    networks = {k: v for k, v in state.items() if not k.startswith(kept)}
    stacked, shared = split_shared(problem, thinned(networks, n))
    calibration = Calibration(family=problem.likelihood.family, scale=state[CALIBRATION][0].to(problem.dtype))
    factor, nll = (float(state[DIAGNOSTICS + name][0]) for name in TOLD)
    note = "auto: networks, with too few rows to hold any out"
    if bool((state[FOLDS] >= 0).any()):
        figures_of = f"temperature {factor:.3g}, {nll:.3g} nats a held-out row"
        note = f"auto: networks, each stopped by a fold of its own; {figures_of}"
    return Ensemble(problem=problem, stacked=stacked, shared=shared, calibration=calibration, notes=(note,))


def expected(problem: Problem, state: Tensors, n_folds: int, epochs: int) -> Shapes:
    n, c = len(state.get(FOLDS, ())), problem.likelihood.n_outputs
    shapes = method(n_folds, epochs).expected(problem, state) | {CALIBRATION: (1,), FOLDS: (n,)}
    shapes |= {DIAGNOSTICS + name: (1,) for name in TOLD}
    if problem.likelihood.family == "categorical":
        return shapes | {HELD_OUT: (n, c)}
    targets = len(getattr(problem.likelihood, "mean", ()))
    return shapes | {HELD_OUT_MEANS: (n, targets), HELD_OUT_VARIANCES: (n, targets)}


def _names(problem: Problem) -> tuple[str, ...]:
    return ("auto/", CALIBRATION, FOLDS, HELD_OUT, HELD_OUT_MEANS, HELD_OUT_VARIANCES)


def _of_equal_size(folds: Tensor, n_folds: int, size: int) -> Tensor:
    """The rows above `size` of every fold belong to none, and are always trained on."""
    found = folds.clone()
    for f in range(n_folds):
        found[(folds == f).nonzero()[size:, 0]] = -1
    return found


def _calibrated(problem: Problem, data: Data, state: Tensors, folds: Tensor, n_folds: int) -> dict[str, Tensor]:
    """What each network predicts of its own fold, and the calibration by it."""
    family = problem.likelihood.family
    raw = data.x if problem.scaling is None else data.x * problem.scaling.scale + problem.scaling.mean
    stacked, shared = split_shared(problem, dict(state))
    rows = [(folds == f).nonzero()[:, 0] for f in range(n_folds)]
    of_folds: list[tuple[Predictive, Tensor]] = []
    shift = unit = torch.ones(())
    y = data.y
    if family == "gaussian":
        shift, unit = (data.x.new_tensor(getattr(problem.likelihood, name)).double() for name in ("mean", "scale"))
        y = data.y.double() * unit + shift
    for f, held in enumerate(rows):
        one = Ensemble(problem=problem, stacked={k: v[f : f + 1] for k, v in stacked.items()}, shared=shared)
        of_folds.append((one.predict(raw[held]), y[held]))
    calibration = learn_from_few(of_folds)
    n_held, log_p = 0, 0.0
    held_out: dict[str, Tensor] = {}
    for held, (predictive, answers) in zip(rows, of_folds, strict=True):
        found = calibration(predictive)
        n_held, log_p = n_held + len(held), log_p + float(found.log_prob(answers).double().sum())
        if isinstance(found, CategoricalPredictive):
            own = {HELD_OUT: found.log_probs[0].double()}
        else:
            means, variances = (m[0].double().reshape(len(held), len(unit)) for m in (found.means, found.variances))
            own = {HELD_OUT_MEANS: (means - shift) / unit, HELD_OUT_VARIANCES: variances / unit.square()}
        for name, values in own.items():
            every = held_out.setdefault(name, values.new_zeros(data.n_rows, values.shape[1]))
            every[held] = values
    like = next(iter(held_out.values()))
    told = dict(zip(TOLD, (calibration.temperature, -log_p / max(1, n_held)), strict=True))
    return {CALIBRATION: like.new_tensor([float(calibration.scale)]), FOLDS: folds, **held_out, **figures(told, like)}
