"""tune(): hyper-parameters by held-out rows or by the evidence, searched with Optuna (the extra `tune`).

A setting is named by where it lives: an option of the method (`lr`), or `prior.scale`, `likelihood.noise`,
`model.hidden`. A range is ("log", low, high), ("linear", low, high) or ("choice", [a, b, …]).
"""

import hashlib
import math
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from bensemble_core import io, options
from bensemble_core.display import Described
from bensemble_core.errors import InvalidOption, InvalidSnapshot, NotFinite
from bensemble_core.fitting import Fitted, fit
from bensemble_core.likelihoods import likelihood_named
from bensemble_core.models import MODELS
from bensemble_core.posteriors import named_posterior
from bensemble_core.predictive import metrics
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.problem import AnyData, AnyModel, as_data, with_classes
from bensemble_core.randomness import count_held_out, derive, permutation
from bensemble_core.training.descent import Descent
from bensemble_core.types import (
    Analytic,
    Bounds,
    Data,
    Evidence,
    Family,
    Likelihood,
    Posterior,
    Prior,
    Report,
    Snapshot,
    Tensors,
    over,
    silent,
)

if TYPE_CHECKING:
    import optuna

Metric: TypeAlias = Literal["nll", "crps", "rmse", "brier", "ece", "accuracy", "log_evidence", "bound"]

PRIOR_SCALE: Final = ("log", 0.03, 30.0)  # range of a Normal prior's sd
_HELD_OUT: dict[Family, tuple[str, ...]] = {
    "categorical": ("nll", "brier", "ece", "accuracy"),
    "gaussian": ("nll", "crps", "rmse"),
}
_TRAINED_ON = ("log_evidence", "bound")  # measured on the rows of the fit: none are held out
_HIGHER_IS_BETTER = ("accuracy", *_TRAINED_ON)
_SPLIT, _SAMPLER = 31, 32  # branches of the seed
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A setting that `tune` tried, and its value of the metric."""

    settings: Mapping[str, Any]
    value: float | None  # None: training left the finite numbers
    seconds: float | None = field(default=None, compare=False)  # it took, where it was not interrupted


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tuned(Described):
    """What `tune` found: the best setting, its fit to all rows, and all trials."""

    posterior: Posterior  # the method with its chosen options
    fitted: Fitted
    settings: Mapping[str, Any]
    value: float  # of the metric, in the search
    metric: str
    trials: tuple[Trial, ...]  # in the order tried

    def _facts(self) -> dict[str, object]:
        found = {"metric": self.metric, "value": f"{self.value:.5g}", "settings": dict(self.settings)}
        return {**found, "trials": len(self.trials), "fitted": self.fitted}


def tune(
    method: str | Posterior,
    model: AnyModel,
    data: AnyData,
    *,
    likelihood: str | Likelihood,
    prior: Prior | None = DEFAULT_PRIOR,
    trials: int = 20,
    search: Mapping[str, Sequence[Any]] | None = None,
    metric: Metric = "nll",
    validation: float | AnyData = 0.2,
    n_members: int = 20,
    seed: int = 0,
    warm: Fitted | Tensors | None = None,
    resume: Tensors | None = None,
    done: Sequence[Trial] = (),
    on_trial: Callable[[Trial], None] | None = None,
    report: Report = silent,
    fit_options: Mapping[str, Any] | None = None,
    **options_: Any,
) -> Tuned:
    """Try settings of a method, keep the one with the best metric, and fit it to all rows. Needs Optuna.

    method, model, data, likelihood, prior: as in `fit`; options of the method go beside, too.
    trials: settings to try; default 20. The first is the setting handed in, where it lies within the ranges, so that
        the answer is no worse; later ones come from the TPE sampler (Bergstra et al. 2011). A setting whose training
        diverges counts as the worst.
    search: {setting: range}. Default: every option of the method that declares a range, and the scale of the
        prior, `prior.scale`.
    metric: "nll" (the default) or any other that `metrics.evaluate` gives, of `n_members` draws (or of the method's own
        closed form) on held-out rows; or measured on the fit itself where the method has it, with no row held out:
        "log_evidence" (laplace, importance, gp, vip), "bound" (the ELBO of mfvi and its kin).
    validation: share of rows to hold out, default 0.2, drawn once from the seed; or (x, y) of your own, which the last
        fit does not see either.
    n_members: draws to measure with; default 20.
    seed: the same seed gives the same answer; default 0.
    warm: as in `fit`, for the last fit alone: the trials start from the seed, since what was fitted before may have
        seen the rows that they hold out.
    resume: a snapshot that `report` was given: goes on with the trials that are missing.
    done: the first trials of the same call, from an earlier run: they are not run again, and the answer is the same.
    on_trial: called with each new trial when it has ended, for a caller who keeps them for `done`.
    report: as in `fit`; trials and the last fit count as equal parts of the total.
    fit_options: further arguments of `fit`, such as `standardise` or `input_shape`.
    """
    base = named_posterior(method, options_)
    rows = as_data(data)
    bound_to = with_classes(likelihood_named(likelihood), rows.y, model)
    start = _Setting(posterior=base, model=model, likelihood=bound_to, prior=prior)
    ranges = _ranges(start, search)
    _check(base, bound_to.family, metric, trials, n_members)
    train, held_out = (rows, None) if metric in _TRAINED_ON else _split(rows, validation, seed)
    mark = _fingerprint(start, ranges, metric, trials, n_members, seed, train)
    earlier, unfinished = _resumed(resume, mark)
    if len(done) > len(earlier):
        earlier, unfinished = [_Outcome.of(trial) for trial in done[:trials]], None
    replay = _Progress(report=report, n_trials=trials, tried=[each.with_settings({}) for each in earlier], mark=mark)
    common: dict[str, Any] = {"seed": seed, **(fit_options or {})}
    study, asked = _study(metric, seed, trials), _distributions(ranges, start)
    study.enqueue_trial(_current(start, asked, ranges))

    tried: list[Trial] = []
    for i in range(trials):
        trial = study.ask(asked)
        settings: Mapping[str, Any] = {name: _plain(trial.params[name], ranges[name]) for name in ranges}
        if i < len(done) and dict(done[i].settings) != settings:
            raise InvalidSnapshot(
                f"trial {i + 1} of this search has {settings}, the one that was done has {dict(done[i].settings)}; "
                "pass the trials of the same call, or none"
            )
        if i < len(earlier):
            outcome = earlier[i]
            replay.say(f"{len(earlier)} of {trials} trials were done before", unfinished or {})
        else:
            began = time.monotonic()
            progress = _Progress(report=report, n_trials=trials, tried=tried, mark=mark)
            value = _value(start.changed(settings), train, held_out, metric, n_members, unfinished, progress, common)
            outcome = _Outcome(value=value, seconds=None if unfinished is not None else time.monotonic() - began)
            unfinished = None
        tried = [*tried, outcome.with_settings(settings)]
        if tried[-1].value is None:
            study.tell(trial, state=_optuna().trial.TrialState.PRUNED)  # which the sampler ranks below all others
        else:
            study.tell(trial, tried[-1].value)
        if i >= len(earlier):
            if on_trial is not None:
                on_trial(tried[-1])
            ended = _Progress(report=report, n_trials=trials, tried=tried, mark=mark)
            ended.say(f"trial {i + 1} of {trials}: {metric} {outcome.value:.5g}", {})

    value, settings = _best(tried, metric)
    chosen = start.changed(settings)
    progress = _Progress(report=report, n_trials=trials, tried=tried, mark=mark)
    if warm is not None:
        common["warm"] = warm
    fitted = chosen.fit(rows, resume=chosen.goes_on(unfinished), report=progress, **common)
    return Tuned(
        posterior=chosen.posterior, fitted=fitted, settings=settings, value=value, metric=metric, trials=tuple(tried)
    )


def search_space(posterior: Posterior, prior: Prior | None) -> dict[str, Sequence[Any]]:
    """The ranges that `tune` searches where it is given none: {setting: range}, which may be empty."""
    found = _declared(posterior)
    if prior is not None and over(prior) == over(posterior) == "weights" and hasattr(prior, "scale"):
        found["prior.scale"] = PRIOR_SCALE
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Setting:
    """All that a name in the search may point into."""

    posterior: Posterior
    model: AnyModel
    likelihood: Likelihood
    prior: Prior | None

    def owner(self, name: str) -> tuple[Any, str]:
        """What a dotted name belongs to, and the name of the option there."""
        part, _, option = name.rpartition(".")
        owners = {"": self.posterior, "prior": self.prior, "likelihood": self.likelihood, "model": self.model}
        if part not in owners:
            raise InvalidOption(f"{name!r}: a setting is an option of the method, or prior.…, likelihood.…, model.…")
        owner = owners[part]
        if part == "model" and isinstance(owner, Mapping):
            owner = options.make(MODELS[owner["name"]], owner) if owner.get("name") in MODELS else owner
        if not is_dataclass(owner) or isinstance(owner, type):
            raise InvalidOption(f"{name!r} cannot be searched: the {part} is {type(owner).__name__}")
        known = [f.name for f in fields(owner) if f.name != "name"]
        if option not in known:
            raise InvalidOption(f"there is no {name!r} to search; {part or self.posterior.name} has {', '.join(known)}")
        return owner, option

    def changed(self, settings: Mapping[str, Any]) -> "_Setting":
        new = self
        for name, value in settings.items():
            owner, option = new.owner(name)
            made = options.make(type(owner), {**options.to_json(owner), option: value})
            if made != owner:  # a default is known by its identity
                new = replace(new, **{name.rpartition(".")[0] or "posterior": made})
        return new

    def goes_on(self, snapshot: Tensors | None) -> Tensors | None:
        """A snapshot, if the method can use it; otherwise it starts again from its seed."""
        return snapshot if self.posterior.resumes else None

    def fit(self, rows: Data, **common: Any) -> Fitted:
        return fit(self.posterior, self.model, rows, likelihood=self.likelihood, prior=self.prior, **common)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """What came of a trial, as a snapshot keeps it."""

    value: float  # NaN: training left the finite numbers
    seconds: float | None

    @classmethod
    def of(cls, trial: Trial) -> "_Outcome":
        return cls(value=math.nan if trial.value is None else trial.value, seconds=trial.seconds)

    def with_settings(self, settings: Mapping[str, Any]) -> Trial:
        return Trial(settings=settings, value=self.value if math.isfinite(self.value) else None, seconds=self.seconds)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Progress:
    """The report of one fit, passed on as a part of all trials and the last fit."""

    report: Report
    n_trials: int
    tried: Sequence[Trial]
    mark: int

    def __call__(self, done: int, total: int, message: str, snapshot: Snapshot) -> None:
        n, whole = len(self.tried), max(total, 1)
        where = "all rows" if n == self.n_trials else f"trial {n + 1} of {self.n_trials}"
        at, of = n * whole + done, (self.n_trials + 1) * whole
        self.report(at, of, f"{where}: {message}", lambda: self._kept(snapshot()))

    def say(self, message: str, unfinished: Tensors) -> None:
        self.report(len(self.tried), self.n_trials + 1, message, lambda: self._kept(unfinished))

    def _kept(self, unfinished: Tensors) -> dict[str, Tensor]:
        kept = [_Outcome.of(trial) for trial in self.tried]
        return {
            "values": torch.tensor([each.value for each in kept], dtype=torch.float64),
            "seconds": torch.tensor([each.seconds or math.nan for each in kept], dtype=torch.float64),
            "fingerprint": torch.tensor(self.mark),
            **io.above("trial/", unfinished),
        }


def _value(
    setting: _Setting,
    train: Data,
    held_out: Data | None,
    metric: str,
    n_members: int,
    unfinished: Tensors | None,
    progress: Report,
    common: Mapping[str, Any],
) -> float:
    """The metric of a setting; NaN where training left the finite numbers."""
    latest: Snapshot = dict

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        nonlocal latest
        latest = snapshot
        progress(done, total, message, snapshot)

    try:
        fitted = setting.fit(train, resume=setting.goes_on(unfinished), report=report, **common)
    except NotFinite:
        return math.nan
    if held_out is None:
        return float(fitted.log_evidence if metric == "log_evidence" else fitted.bound())
    known = fitted.problem.likelihood
    y = known.encode(held_out.y, dtype=held_out.x.dtype) if known.family == "categorical" else held_out.y
    predict = fitted.predict
    if not isinstance(fitted.posterior, Analytic):
        predict = fitted.sample(n_members, seed=fitted.seed).predict
    evaluation = metrics.Evaluation()
    for start in range(0, held_out.n_rows, _ROWS_AT_ONCE):
        progress(1, 1, "measuring", latest)
        piece = slice(start, start + _ROWS_AT_ONCE)
        evaluation.add(predict(held_out.x[piece]), y[piece])
    return evaluation.result()[metric]


def _best(done: Sequence[Trial], metric: str) -> tuple[float, Mapping[str, Any]]:
    """Value and settings of the best trial, the first of equals."""
    found = [(t.value, t.settings) for t in done if t.value is not None]
    if not found:
        raise NotFinite(f"all {len(done)} trials left the finite numbers; search smaller steps: search={{'lr': …}}")
    sign = -1 if metric in _HIGHER_IS_BETTER else 1
    return min(found, key=lambda pair: sign * pair[0])


def _ranges(start: _Setting, search: Mapping[str, Sequence[Any]] | None) -> dict[str, tuple[Any, ...]]:
    """The search space, every end of which has been tried against the bounds of its option."""
    if search is None:
        search = search_space(start.posterior, start.prior)
    if not search:
        raise InvalidOption(
            f"{start.posterior.name} declares nothing to search; pass search={{'lr': ('log', 1e-4, 1e-1)}}"
        )
    ranges = {name: tuple(given) for name, given in search.items()}
    for name, given in ranges.items():
        start.owner(name)
        kind = given[0] if given else None
        if kind == "choice" and len(given) == 2 and len(given[1]):
            ends = list(given[1])
        elif kind in ("log", "linear") and len(given) == 3 and given[1] < given[2] and (kind != "log" or given[1] > 0):
            ends = [given[1], given[2]]
        else:
            raise InvalidOption(
                f"{name}: a range is ('log', low, high) with 0 < low < high, ('linear', low, high) or "
                f"('choice', [a, b, …]), got {given!r}"
            )
        for end in ends:
            start.changed({name: end})
    return ranges


def _declared(posterior: Posterior) -> dict[str, Sequence[Any]]:
    """Options whose field says where to search; those of a descent that is not made are left out."""
    of_descent = {f.name for f in fields(Descent)} if getattr(posterior, "epochs", 1) == 0 else set()
    own = fields(posterior)  # type: ignore[arg-type]
    return {f.name: f.metadata["search"] for f in own if "search" in f.metadata and f.name not in of_descent}


def _check(posterior: Posterior, family: Family, metric: str, trials: int, n_members: int) -> None:
    if trials < 1 or n_members < 1:
        raise InvalidOption(f"tune needs at least 1 trial and 1 member, got trials={trials}, n_members={n_members}")
    if metric not in (*_HELD_OUT[family], *_TRAINED_ON):
        allowed = ", ".join((*_HELD_OUT[family], *_TRAINED_ON))
        raise InvalidOption(f"unknown metric {metric!r} for a {family} likelihood; there are {allowed}")
    if metric == "log_evidence" and not isinstance(posterior, Evidence):
        raise InvalidOption(f"{posterior.name} has no log evidence; use metric='nll'")
    if metric == "bound" and not isinstance(posterior, Bounds):
        raise InvalidOption(f"{posterior.name} has no bound on the evidence; use metric='nll'")


def _split(rows: Data, validation: float | AnyData, seed: int) -> tuple[Data, Data]:
    if not isinstance(validation, (int, float)):
        return rows, as_data(validation)
    if not 0 < validation < 1:
        raise InvalidOption(f"validation is a share strictly between 0 and 1, or (x, y), got {validation}")
    every = torch.arange(rows.n_rows, device=rows.x.device)
    is_own = torch.ones_like(every, dtype=torch.bool) if rows.task is None else rows.task.to(every.device) == 0
    own = every[is_own]  # task 0 is the one that is predicted: the others are all learnt from
    held = count_held_out(len(own), validation, "tuning", "; pass validation=(x, y)")
    order = own[permutation(len(own), seed, _SPLIT).to(own.device)]
    return rows.take(torch.cat([order[held:], every[~is_own]])), rows.take(order[:held])


def _study(metric: str, seed: int, trials: int) -> "optuna.Study":
    library = _optuna()
    sampler = library.samplers.TPESampler(seed=derive(seed, _SAMPLER) % 2**32, n_startup_trials=max(3, trials // 3))
    before = library.logging.get_verbosity()
    library.logging.set_verbosity(library.logging.WARNING)  # it announces every study
    try:
        direction = "maximize" if metric in _HIGHER_IS_BETTER else "minimize"
        made: optuna.Study = library.create_study(direction=direction, sampler=sampler)
        return made
    finally:
        library.logging.set_verbosity(before)


def _distributions(ranges: Mapping[str, tuple[Any, ...]], start: _Setting) -> dict[str, Any]:
    """Ranges in Optuna's words; choices by their place in the list, since it knows no lists as values."""
    kinds = _optuna().distributions
    made: dict[str, Any] = {}
    for name, given in ranges.items():
        if given[0] == "choice":
            made[name] = kinds.CategoricalDistribution(list(range(len(given[1]))))
            continue
        owner, option = start.owner(name)
        kind = kinds.IntDistribution if _is_whole(get_type_hints(type(owner))[option]) else kinds.FloatDistribution
        made[name] = kind(given[1], given[2], log=given[0] == "log")
    return made


def _current(start: _Setting, asked: Mapping[str, Any], ranges: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The setting handed in, as far as it lies within the ranges."""
    found: dict[str, Any] = {}
    for name, distribution in asked.items():
        owner, option = start.owner(name)
        value = getattr(owner, option)
        if ranges[name][0] == "choice":
            same = [i for i, choice in enumerate(ranges[name][1]) if _listed(choice) == _listed(value)]
            found |= {name: same[0]} if same else {}
        elif isinstance(value, (int, float)) and distribution.low <= value <= distribution.high:
            found[name] = value
    return found


def _plain(value: Any, given: tuple[Any, ...]) -> Any:
    return given[1][value] if given[0] == "choice" else value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _is_whole(hint: Any) -> bool:
    """int, or int or nothing."""
    options_ = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return int in options_ and float not in options_


def _fingerprint(
    start: _Setting, ranges: Mapping[str, Any], metric: str, trials: int, n_members: int, seed: int, train: Data
) -> int:
    told = (start.posterior, str(start.model), start.likelihood, start.prior, sorted(ranges.items()))
    settings = (*told, metric, trials, n_members, seed, list(train.x.shape))
    return int.from_bytes(hashlib.sha256(repr(settings).encode()).digest()[:8], "big") >> 1


def _resumed(resume: Tensors | None, mark: int) -> tuple[list[_Outcome], Tensors | None]:
    """What came of the trials that were done, and the snapshot of the fit that was not."""
    if resume is None:
        return [], None
    if "values" not in resume or int(resume["fingerprint"]) != mark:
        raise InvalidSnapshot(
            "this snapshot is of another search (other method, ranges, seed or rows); resume with the call that made it"
        )
    values = resume["values"].tolist()
    seconds = resume["seconds"].tolist() if "seconds" in resume else [math.nan] * len(values)
    known = [None if math.isnan(each) else each for each in seconds]
    outcomes = [_Outcome(value=v, seconds=s) for v, s in zip(values, known, strict=True)]
    return outcomes, io.below("trial/", resume) or None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as reason:
        raise ImportError("tune needs Optuna, which is not installed: pip install 'optuna>=3.6'") from reason
    return optuna
