"""fit_calibrated(): a fit to all rows, calibrated by fits that each lack a fold of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bensemble_core import io
from bensemble_core.display import Described
from bensemble_core.errors import InvalidOption, InvalidSnapshot
from bensemble_core.fitting import Fitted, fit
from bensemble_core.likelihoods import likelihood_named
from bensemble_core.options import whole
from bensemble_core.posteriors import named_posterior
from bensemble_core.posteriors.auto.folds import stratified
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.predictive.calibration import Calibration, learn_from_few
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.problem import AnyData, AnyModel, as_data, with_classes
from bensemble_core.randomness import derive
from bensemble_core.types import Data, Likelihood, Posterior, Prior, Report, Snapshot, Tensors, silent

_FOLDS = 51  # branch of the seed
_FINISHED, _UNFINISHED = "fold/", "fit/"  # parts of a snapshot


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Calibrated(Described):
    """What `fit_calibrated` found: `fitted`, and the calibration that its ensembles are to have."""

    fitted: Fitted
    calibration: Calibration
    n_rows: int  # that were held out in turn, and so determined it
    nll: float  # mean over these rows without the calibration
    calibrated_nll: float  # and with it

    def _facts(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("fitted", "calibration", "n_rows", "nll", "calibrated_nll")}


def fit_calibrated(
    method: str | Posterior,
    model: AnyModel,
    data: AnyData,
    *,
    likelihood: str | Likelihood,
    prior: Prior | None = DEFAULT_PRIOR,
    folds: int = 5,
    n_members: int = 20,
    seed: int = 0,
    warm: "Fitted | Tensors | None" = None,
    resume: Tensors | None = None,
    report: Report = silent,
    **more: Any,
) -> Calibrated:
    """Fit a posterior to all rows, and learn from fits that each lack a fold how sure its forecasts may be.

    It takes as long as `folds` + 1 fits. Every row is predicted once, by members that did not see it; one scale that
    fits these predictions, makes none surer and clearly helps (else 1) is the calibration:
    `replace(fitted.sample(20), calibration=…)`.

    method, model, data, likelihood, prior, seed, report: as in `fit`, and so are options of the method and further
        arguments.
    folds: parts of the rows, held out in turn; default 5. With fewer than two rows a fold there is nothing to learn
        from, and the calibration changes nothing.
    n_members: draws that predict a fold; default 20.
    warm: as in `fit`, for the fit to all rows alone: what was fitted before may have seen the rows held out.
    resume: a snapshot that `report` was given: goes on with the fold that was not finished.
    """
    posterior = named_posterior(method, {name: more.pop(name) for name in list(more) if name not in _OF_FIT})
    if whole(folds, "folds") < 2 or whole(n_members, "n_members") < 1:
        raise InvalidOption(f"expected at least 2 folds and 1 member, got folds={folds}, n_members={n_members}")
    rows = as_data(data)
    bound = with_classes(likelihood_named(likelihood), rows.y, model)
    common: dict[str, Any] = {"likelihood": bound, "prior": prior, "seed": seed, **more}
    finished, unfinished = _resumed(resume)
    parts = _parts(rows, bound.family == "categorical", folds, seed)
    held_out: list[tuple[Predictive, Tensor]] = []
    for f, held in enumerate(parts):
        progress = _Progress(report=report, finished=[p for p, _ in held_out], part=f, n_parts=len(parts) + 1)
        answers = rows.y[held]
        if f < len(finished):
            held_out.append((_from_tensors(finished[f]), answers))
            continue
        apart = torch.ones(rows.n_rows, dtype=torch.bool, device=rows.x.device)
        apart[held] = False
        own = fit(
            posterior,
            model,
            rows.take(apart.nonzero()[:, 0]),
            resume=unfinished if posterior.resumes else None,
            report=progress,
            **common,
        )
        unfinished = None
        ensemble = own.sample(n_members, seed=seed, at_most=True)
        if ensemble.calibration is not None:
            raise InvalidOption(f"{posterior.name} calibrates itself; use fit")
        held_out.append((ensemble.predict(rows.x[held]), answers.to(ensemble.device)))
    progress = _Progress(report=report, finished=[p for p, _ in held_out], part=len(parts), n_parts=len(parts) + 1)
    fitted = fit(
        posterior,
        model,
        rows,
        warm=warm,
        resume=unfinished if posterior.resumes else None,
        report=progress,
        **common,
    )
    known = fitted.problem.likelihood
    if known.family == "categorical":
        held_out = [(p, known.encode(y, dtype=fitted.problem.dtype)) for p, y in held_out]
    none = Calibration(family=known.family, scale=torch.ones((), dtype=torch.float64, device=rows.x.device))
    calibration = learn_from_few(held_out) if held_out else none
    n_rows = sum(len(y) for _, y in held_out)

    def nll(with_: Calibration) -> float:
        return -sum(float(with_(p).log_prob(y).double().sum()) for p, y in held_out) / max(1, n_rows)

    return Calibrated(
        fitted=fitted, calibration=calibration, n_rows=n_rows, nll=nll(none), calibrated_nll=nll(calibration)
    )


_OF_FIT = ("standardise", "device", "input_shape", "augment", "unlabelled")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Progress:
    """The report of one fit, passed on as a part of all folds and the fit to all rows."""

    report: Report
    finished: Sequence[Predictive]
    part: int
    n_parts: int

    def __call__(self, done: int, total: int, message: str, snapshot: Snapshot) -> None:
        whole_part = max(total, 1)
        where = "all rows" if self.part == self.n_parts - 1 else f"fold {self.part + 1} of {self.n_parts - 1}"
        at, of = self.part * whole_part + done, self.n_parts * whole_part
        self.report(at, of, f"{where}: {message}", lambda: self._kept(snapshot()))

    def _kept(self, unfinished: Tensors) -> dict[str, Tensor]:
        kept = io.above(_UNFINISHED, unfinished)
        for f, predictive in enumerate(self.finished):
            kept |= io.above(f"{_FINISHED}{f}/", _to_tensors(predictive))
        return kept


def _resumed(resume: Tensors | None) -> tuple[list[dict[str, Tensor]], Tensors | None]:
    """The folds that were finished, and the snapshot of the fit that was not."""
    finished: list[dict[str, Tensor]] = []
    if resume is None:
        return finished, None
    if not all(name.startswith((_FINISHED, _UNFINISHED)) for name in resume):
        raise InvalidSnapshot("this snapshot is of a fit without folds; resume with the call that made it")
    while found := io.below(f"{_FINISHED}{len(finished)}/", resume):
        finished.append(found)
    return finished, io.below(_UNFINISHED, resume) or None


def _parts(rows: Data, by_class: bool, n_folds: int, seed: int) -> list[Tensor]:
    """Rows held out in turn, of task 0 where there are tasks; none where a fold would have fewer than two."""
    every = torch.arange(rows.n_rows, device=rows.x.device)
    own = every if rows.task is None else every[rows.task.to(every.device) == 0]
    if len(own) < 2 * n_folds:
        return []
    strata = rows.y[own].reshape(len(own)) if by_class else torch.zeros_like(own)
    index = stratified(strata, n_folds, derive(seed, _FOLDS))
    return [own[index == f] for f in range(n_folds)]


def _to_tensors(predictive: Predictive) -> dict[str, Tensor]:
    names = ("logits",) if isinstance(predictive, CategoricalPredictive) else ("means", "variances")
    kept = {name: getattr(predictive, name) for name in names}
    return kept if predictive.log_weights is None else {**kept, "log_weights": predictive.log_weights}


def _from_tensors(kept: Tensors) -> Predictive:
    if "logits" in kept:
        return CategoricalPredictive(logits=kept["logits"], log_weights=kept.get("log_weights"))
    return GaussianPredictive(**kept)
