"""The job that plays a backtest. Its checkpoint holds every run as far as it has come, so that one that was killed goes
on with the round that it was at."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import bensemble_core as bc
from app.backtests.request import strategy_of
from app.backtests.views import run_of, run_to_json
from app.db import consensus
from app.db.tables import Backtest, BacktestResult, PoolData, Project
from app.ensembles.collect_labels import Part, gather
from app.projects.create import likelihood_of, prior_of
from app.queue.context import JobContext, JobFailed, still_there, storable
from app.services import job_services

MOST_LABELS = 20_000  # that are read: all seeds draw their pool and test rows from these


class RunKeeper:
    """The runs of a job, in its checkpoint: ended ones at once, others as often as snapshots of trainings are. After a
    run that has ended, trainings that are due go first: annotators wait for those."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        kept = job.checkpoint or {"seconds": 0.0, "runs": []}
        self._started = time.monotonic() - float(kept["seconds"])  # of the attempts that were cut short, too
        self._runs: dict[tuple[str, int], dict[str, Any]] = {
            (run["strategy"], run["seed"]): run for run in kept["runs"]
        }

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def done(self) -> list[bc.BacktestRun]:
        return [run_of(run) for run in self._runs.values()]

    def keep(self, run: bc.BacktestRun) -> None:
        self._runs[run.strategy, run.seed] = storable(run_to_json(run))
        if not run.rows or self._job.is_checkpoint_due():
            self._job.save_checkpoint({"seconds": self.seconds, "runs": list(self._runs.values())})
        if not run.rows:
            self._job.give_way("train")


def run_backtest(job: JobContext) -> None:
    services = job_services(job)
    with job.database.read() as session:
        gone = "the backtest, its pool or its project was deleted"
        backtest = still_there(session, Backtest, job.payload["backtest_id"], gone)
        project = still_there(session, Project, backtest.project_id, gone)
        data = still_there(session, PoolData, backtest.pool_id, gone)
        kind = project.task["kind"]
        rows, values = consensus.labelled_rows(session, backtest.pool_id, kind=kind, watermark=backtest.watermark)
    rows, values, notes = _drawn(rows, values)
    x, y = gather(services, project, [Part(data=data, rows=rows, values=values)])
    keeper = RunKeeper(job)
    asked = backtest.request
    try:
        found = bc.backtest(
            x,
            y,
            likelihood=likelihood_of(project.task),
            prior=prior_of(project.task),
            strategies=[strategy_of(each) for each in asked["strategies"]],
            rounds=asked["rounds"],
            k=asked["k"],
            seeds=asked["seeds"],
            posterior=asked["posterior"],
            model=asked["model"],
            device=job.device,
            done=keeper.done(),
            on_round=keeper.keep,
            report=job.progress,
        )
    except (bc.BensembleError, ValueError) as error:  # trying again would end the same way
        raise JobFailed("The backtest failed", str(error)) from error
    recommendation = {**asdict(found.choice), "body": found.chosen.choice()}
    result = BacktestResult(
        backtest_id=backtest.id,
        metric=found.metric,
        n_pool=found.n_pool,
        n_test=found.n_test,
        curves=storable([asdict(curve) for curve in found.curves]),
        runs=storable([run_to_json(run) for run in found.runs]),
        recommendation=recommendation,
        notes=[*notes, *found.notes],
        seconds=keeper.seconds,
    )
    with job.finish({"backtest_id": backtest.id, "recommendation": recommendation}) as session:
        session.add(result)


def _drawn(rows: "np.ndarray[Any, np.dtype[np.int64]]", values: Sequence[Any]) -> tuple[Any, list[Any], list[str]]:
    """At most so many labelled rows, drawn once: more than the seeds can use would only fill memory."""
    if len(rows) <= MOST_LABELS:
        return rows, list(values), []
    kept = np.sort(np.random.default_rng(0).choice(len(rows), MOST_LABELS, replace=False))
    note = f"{MOST_LABELS:,} of the {len(rows):,} labelled rows were drawn for all seeds together"
    return rows[kept], [values[i] for i in kept], [note]
