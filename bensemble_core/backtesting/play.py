"""One run of a backtest: rounds of choosing, fitting and measuring, with the labels at hand."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bensemble_core.acquisition import first_pair
from bensemble_core.backtesting.curves import DEFAULT, BacktestRun, CurvePoint
from bensemble_core.backtesting.labels_needed import POOL, n_test
from bensemble_core.backtesting.strategies import ALL_LABELS, PRESETS, AnyPosterior, Strategy, check_choice
from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import BensembleError, InvalidOption, InvalidSnapshot
from bensemble_core.fitting import check, fit
from bensemble_core.posteriors import named_posterior
from bensemble_core.predictive import metrics
from bensemble_core.problem import AnyModel
from bensemble_core.ranking import rank
from bensemble_core.types import Data, Family, Likelihood, Posterior, Prior, Progress

SMALL_RMSE = 1e-3  # of the labels' spread: differences below it are not worth a word
WHOLE_NUMBERS = 1_000  # rows that stand for all labels of numbers: a Gaussian process on more takes minutes
METRIC: dict[Family, str] = {"categorical": "accuracy", "gaussian": "rmse"}


@dataclass(kw_only=True)
class PlayProgress:
    """Rounds that are done, of all runs."""

    report: Progress | None
    total: int
    done: int = 0

    def __call__(self, ahead: int, message: str) -> None:
        if self.report is not None:
            self.report(self.done + ahead, self.total, message)


@dataclass(frozen=True, kw_only=True, eq=False)
class Play:
    """What the runs of a backtest have in common, and how one is made."""

    data: Data
    likelihood: Likelihood
    rounds: int
    k: int
    posterior: AnyPosterior
    model: AnyModel
    prior: Prior | None
    n_members: int
    device: str | torch.device

    @property
    def family(self) -> Family:
        return self.likelihood.family

    @cached_property
    def targets(self) -> Tensor:
        """Class numbers, or numbers in their own units."""
        y = self.data.y
        return self.likelihood.encode(y, dtype=self.data.x.dtype) if self.family == "categorical" else y

    @cached_property
    def smallest_difference(self) -> float:
        """Of the metric, that counts: one test row, or 0.1 % of the labels' spread, which is the RMSE without labels.
        None does where all numbers are the same: what is left of the RMSE then is rounding."""
        if self.family == "categorical":
            return 1 / n_test(self.data.n_rows)
        y = self.data.y.double()
        spread = float((y - y.mean(0)).square().mean().sqrt())
        is_rounding = spread <= torch.finfo(torch.float32).eps * float(y.abs().max())
        return math.inf if is_rounding else SMALL_RMSE * spread

    def refuse_unsuitable(self, strategy: Strategy) -> None:
        try:
            check_choice(strategy.acquisition, strategy.selection, self.family)
            first_pair(strategy.acquisition, strategy.selection, self.family)
            y = self.data.y
            check(
                self._posterior(strategy),
                self._model(strategy),
                likelihood=self.likelihood,
                prior=self.prior,
                input_shape=self.data.x.shape[1:],
                n_targets=1 if y.ndim == 1 else y.shape[1],
            )
        except InvalidOption as error:
            raise InvalidOption(f"strategy {strategy.name!r}: {error}") from error

    def refuse_foreign(self, run: BacktestRun) -> None:
        """One that was kept has the rounds of this call."""
        if run.strategy == ALL_LABELS or not run.points:
            return
        n = [point.n for point in run.points]
        is_whole = len(n) == self.rounds or len(run.rows) == n[-1] + self.k
        if n != [self.k * (i + 1) for i in range(len(n))] or len(n) > self.rounds or not is_whole:
            raise InvalidSnapshot(
                f"the run of {run.strategy!r} with seed {run.seed} is of another backtest (other k or rounds); "
                "pass the runs of the same call, or none"
            )

    def split(self, seed: int) -> tuple[Tensor, Tensor]:
        """Rows of the pool, and to measure on."""
        order = torch.from_numpy(np.random.default_rng(seed).permutation(self.data.n_rows))
        n = n_test(len(order))
        return order[n : n + POOL], order[:n]

    def run(
        self,
        strategy: Strategy,
        before: BacktestRun,
        progress: PlayProgress,
        on_round: Callable[[BacktestRun], None] | None,
    ) -> BacktestRun:
        """A round after another, with the answers at hand. The next rows are chosen before a round is told of, so that
        a run that goes on need not fit the last one again."""
        seed, points, notes = before.seed, list(before.points), before.notes
        pool, test = self.split(seed)
        x = self.data.x[pool]
        chosen = torch.tensor(before.rows, dtype=torch.int64) if points else self._first(strategy, x, seed)
        started = time.monotonic() - (before.seconds or 0.0)
        run = before
        while len(points) < self.rounds:
            told = f"{strategy.name}, seed {seed}: {len(chosen)} labels"

            def say(*_: object, ahead: int = len(points), told: str = told) -> None:
                progress(ahead, told)

            ensemble = self._learn(strategy, pool, chosen, seed, say)
            points.append(CurvePoint(n=len(chosen), metrics=self._measure(ensemble, test)))
            is_last = len(points) == self.rounds
            if not is_last:
                ranking = rank(
                    ensemble,
                    x,
                    acquisition=strategy.acquisition,
                    selection=strategy.selection,
                    k=self.k,
                    seed=seed + len(chosen),
                    exclude=chosen,
                    labelled=x[chosen],
                    report=say,
                )
                chosen = torch.cat([chosen, ranking.rows])
                notes = ranking.notes if len(points) == 1 else notes
            run = replace(
                before,
                points=tuple(points),
                rows=() if is_last else tuple(chosen.tolist()),
                notes=notes,
                seconds=time.monotonic() - started,
            )
            if on_round is not None:
                on_round(run)
        return run

    def learn_from_all(
        self, before: BacktestRun, progress: PlayProgress, on_round: Callable[[BacktestRun], None] | None
    ) -> BacktestRun:
        """Two points: what is known without any label, the commonest class or the mean, and with all of them."""
        if before.points:
            return before
        pool, test = self.split(before.seed)
        n = len(pool) if self.family == "categorical" else min(len(pool), max(WHOLE_NUMBERS, self.k * self.rounds))
        started = time.monotonic()
        told = f"{ALL_LABELS}, seed {before.seed}: {n} labels"
        ensemble = self._learn(PRESETS[DEFAULT], pool, torch.arange(n), before.seed, lambda *_: progress(0, told))
        whole = CurvePoint(n=n, metrics=self._measure(ensemble, test))
        none = CurvePoint(n=0, metrics={METRIC[self.family]: self._without_labels(pool, test)})
        run = replace(before, points=(none, whole), seconds=time.monotonic() - started)
        if on_round is not None:
            on_round(run)
        return run

    def _first(self, strategy: Strategy, x: Tensor, seed: int) -> Tensor:
        if strategy.first is not None:
            return rank(None, x, k=self.k, seed=seed, **strategy.first).rows
        acquisition, selection, _ = first_pair(strategy.acquisition, strategy.selection, self.family)
        return rank(None, x, acquisition=acquisition, selection=selection, k=self.k, seed=seed).rows

    def _learn(self, strategy: Strategy, pool: Tensor, chosen: Tensor, seed: int, say: Callable[..., None]) -> Ensemble:
        posterior = self._posterior(strategy)
        rows = self.data.take(pool[chosen])
        unlabelled = self.data.x[pool] if getattr(posterior, "uses_unlabelled", False) else None
        try:
            fitted = fit(
                posterior,
                self._model(strategy),
                rows,
                likelihood=self.likelihood,
                prior=self.prior,
                seed=seed,
                device=self.device,
                report=say,
                unlabelled=unlabelled,
            )
        except BensembleError as error:
            where = f"strategy {strategy.name!r} failed with {len(chosen)} labels of seed {seed}"
            raise type(error)(f"{where}: {error}") from error
        return fitted.sample(self.n_members, seed=seed, at_most=True)

    def _measure(self, ensemble: Ensemble, test: Tensor) -> dict[str, float]:
        found = metrics.evaluate(ensemble.predict(self.data.x[test]), self.targets[test].to(self.device))
        return {name: float(value) for name, value in found.items() if name != "n"}

    def _without_labels(self, pool: Tensor, test: Tensor) -> float:
        known, wanted = self.targets[pool], self.targets[test]
        if self.family == "categorical":
            return float((wanted == known.bincount().argmax()).double().mean())
        return float((wanted.double() - known.double().mean(0)).square().mean().sqrt())

    def _posterior(self, strategy: Strategy) -> Posterior:
        given = self.posterior if strategy.posterior is None else strategy.posterior
        if isinstance(given, Mapping):
            return named_posterior(
                given.get("name", ""), {name: value for name, value in given.items() if name != "name"}
            )
        return named_posterior(given, {})

    def _model(self, strategy: Strategy) -> AnyModel:
        return self.model if strategy.model is None else strategy.model
