"""backtest(): would active learning have saved labels on this data? Strategies are played on rows whose labels exist.

A play hides the labels, asks for k of them a round as a strategy chooses, fits and measures after each round on rows
that are never asked for. Random rows are always played beside, and strategies are compared with them seed by seed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bensemble_core import options
from bensemble_core.backtesting.curves import BacktestRun, Choice, Comparison, StrategyCurve
from bensemble_core.backtesting.labels_needed import check_labels, check_rounds, n_pool, n_test
from bensemble_core.backtesting.play import METRIC, Play, PlayProgress
from bensemble_core.backtesting.strategies import ALL_LABELS, AnyPosterior, AnyStrategy, Strategy, resolve_strategies
from bensemble_core.display import Described
from bensemble_core.errors import InvalidOption
from bensemble_core.likelihoods import Categorical, likelihood_named
from bensemble_core.posteriors import DEFAULT_POSTERIOR
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.problem import AnyModel, as_data
from bensemble_core.types import Likelihood, Prior, Progress

K, SEEDS = 20, 3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Backtest(Described):
    """What `backtest` found: curves, labels saved beside random rows, and the strategy to take."""

    metric: str  # accuracy, or rmse: what areas and savings are of
    k: int
    rounds: int
    seeds: tuple[int, ...]
    n_pool: int  # rows that could be asked for
    n_test: int  # rows measured on
    strategies: tuple[Strategy, ...]
    curves: tuple[StrategyCurve, ...]  # of each strategy, in their order
    choice: Choice
    runs: tuple[BacktestRun, ...]
    notes: tuple[str, ...] = ()  # what the first ranking of each strategy says, with the strategies' names

    @property
    def chosen(self) -> Strategy:
        return next(each for each in self.strategies if each.name == self.choice.strategy)

    def _facts(self) -> dict[str, object]:
        gains = ", ".join(f"{each.strategy} {each.gain.mean:+.4g} ± {each.gain.se:.2g}" for each in self.curves)
        found = {"metric": self.metric, "seeds": len(self.seeds), "gains": gains, "choice": self.choice.strategy}
        return {**found, "notes": "; ".join(self.notes) or None}


def backtest(
    x: Any,
    y: Any,
    *,
    likelihood: str | Likelihood,
    strategies: Sequence[AnyStrategy] | None = None,
    rounds: int | None = None,
    k: int = K,
    seeds: int | Sequence[int] = SEEDS,
    posterior: AnyPosterior = DEFAULT_POSTERIOR,
    model: AnyModel = None,
    prior: Prior | None = DEFAULT_PRIOR,
    n_members: int = 20,
    with_all: bool = True,
    device: str | torch.device = "cpu",
    done: Sequence[BacktestRun] = (),
    on_round: Callable[[BacktestRun], None] | None = None,
    report: Progress | None = None,
) -> Backtest:
    """Play strategies on labelled rows, beside random rows, and say which would have saved labels.

    Each seed splits the rows anew: a quarter (at most 1,000) to measure on, at most 4,000 of the others to choose from.

    x, y: labelled rows [N, ...] and their labels, as `fit` takes them.
    likelihood, prior: as in `fit`.
    strategies: names ("margin"), dicts {name, acquisition?, selection?, posterior?, model?} or `Strategy`; what a
        strategy leaves out is the default. "default", which leaves everything out, and "random" are always played.
        Default: these, and `margin` and `power_bald` for classes, `variance` and `kcenter` for numbers.
    rounds: batches of k labels, the first one included; default 10, or as many as the labels allow.
    k: labels a round; default 20.
    seeds: how many, 0, 1, …, or which ones; at least two; default 3. The same seeds give the same curves.
    posterior, model: of the strategies that name none; default as in the service.
    n_members: draws that choose and predict; default 20.
    with_all: also learn from the whole pool, for the labels that 95 % of that takes; default true.
    done: runs of the same call that `on_round` was given: those that ended are not run again, others go on.
    on_round: called after each round with its run as far as it has come, for a caller who keeps the last of each.
    report: `report(done, total, message)`, called often; raise in it to stop.
    """
    play = _prepare(x, y, likelihood, rounds, k, posterior, model, prior, n_members, device)
    played = resolve_strategies(strategies, play.family)
    for each in played:
        play.refuse_unsuitable(each)
    chosen_seeds = _seeds(seeds)
    earlier = {(run.strategy, run.seed): run for run in done}
    names = [each.name for each in played] + [ALL_LABELS] * with_all
    total = len(chosen_seeds) * (len(played) * play.rounds + with_all)
    progress = PlayProgress(report=report, total=total)
    runs: dict[tuple[str, int], BacktestRun] = {}
    for seed in chosen_seeds:
        for name in names:
            before = earlier.get((name, seed)) or BacktestRun(strategy=name, seed=seed, points=())
            play.refuse_foreign(before)
            run = (
                play.learn_from_all(before, progress, on_round)
                if name == ALL_LABELS
                else play.run(next(each for each in played if each.name == name), before, progress, on_round)
            )
            runs[name, seed] = run
            progress.done += 1 if name == ALL_LABELS else play.rounds
    metric = METRIC[play.family]
    comparison = Comparison(
        metric=metric,
        n=tuple(play.k * (i + 1) for i in range(play.rounds)),
        runs={each.name: [runs[each.name, seed] for seed in chosen_seeds] for each in played},
        limits=[_limits(runs[ALL_LABELS, seed], metric) for seed in chosen_seeds] if with_all else None,
        smallest=play.smallest_difference,
    )
    return Backtest(
        metric=metric,
        k=play.k,
        rounds=play.rounds,
        seeds=chosen_seeds,
        n_pool=n_pool(play.data.n_rows),
        n_test=n_test(play.data.n_rows),
        strategies=played,
        curves=comparison.curves(),
        choice=comparison.choice(),
        runs=tuple(runs.values()),
        notes=_notes([runs[each.name, chosen_seeds[0]] for each in played]),
    )


def _prepare(
    x: Any,
    y: Any,
    likelihood: str | Likelihood,
    rounds: int | None,
    k: int,
    posterior: AnyPosterior,
    model: AnyModel,
    prior: Prior | None,
    n_members: int,
    device: str | torch.device,
) -> Play:
    data = as_data((x, y))
    named = likelihood_named(likelihood)
    if isinstance(named, Categorical):
        named = named.bind(data.y, n_outputs=None, standardise=False)
    k = options.whole(k, "k")
    wanted = None if rounds is None else options.whole(rounds, "rounds")
    if k < 1 or (wanted is not None and wanted < 1):
        raise InvalidOption(f"a backtest needs at least 1 round and k of at least 1, got rounds={rounds}, k={k}")
    counts = Counter(data.y.reshape(-1).tolist()) if named.family == "categorical" else None
    check_labels(data.n_rows, counts, k=k)
    return Play(
        data=data,
        likelihood=named,
        rounds=check_rounds(data.n_rows, wanted, k),
        k=k,
        posterior=posterior,
        model=model,
        prior=prior,
        n_members=n_members,
        device=device,
    )


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    wanted = given if isinstance(given, Sequence) else range(options.whole(given, "the number of seeds"))
    found = tuple(options.seed_of(seed) for seed in wanted)
    if len(found) < 2 or len(set(found)) < len(found):
        raise InvalidOption(f"a backtest needs at least 2 different seeds, for its intervals; got {given!r}")
    return found


def _notes(runs: Sequence[BacktestRun]) -> tuple[str, ...]:
    """Each once, with the strategies that it is of."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            names.setdefault(note, []).append(run.strategy)
    return tuple(f"{', '.join(of)}: {note}" for note, of in names.items())


def _limits(run: BacktestRun, metric: str) -> tuple[float, float]:
    none, whole = (point.metrics[metric] for point in run.points)
    return none, whole
