"""Backtests as the API shows them, and runs as they are stored."""

import math
from typing import Any

from sqlalchemy.orm import Session

import bensemble_core as bc
from app.backtests.schemas import BacktestJobOut, BacktestOut, RunOut
from app.db.tables import Backtest, BacktestResult, Job
from app.services import Services
from app.web.job_view import job_state, view_of_job
from bensemble_core.backtesting.curves import CurvePoint


def run_to_json(run: bc.BacktestRun) -> dict[str, Any]:
    points = [{"n": point.n, "metrics": dict(point.metrics)} for point in run.points]
    named = {"strategy": run.strategy, "seed": run.seed, "points": points, "seconds": run.seconds}
    seldom = {"rows": list(run.rows), "notes": list(run.notes)}
    return {**named, **{name: values for name, values in seldom.items() if values}}


def run_of(stored: dict[str, Any]) -> bc.BacktestRun:
    """What was not finite is stored as null."""
    points = tuple(
        CurvePoint(
            n=point["n"],
            metrics={name: math.nan if value is None else value for name, value in point["metrics"].items()},
        )
        for point in stored["points"]
    )
    return bc.BacktestRun(
        strategy=stored["strategy"],
        seed=stored["seed"],
        points=points,
        rows=tuple(stored.get("rows", ())),
        notes=tuple(stored.get("notes", ())),
        seconds=stored["seconds"],
    )


def backtest_view(session: Session, row: Backtest, *, with_runs: bool = True) -> BacktestOut:
    result = session.get(BacktestResult, row.id)
    status, error = job_state(session, row.job_id, result is not None)
    asked = {name: row.request[name] for name in ("strategies", "rounds", "k", "seeds")}
    runs = [_run_view(run) for run in _runs(session, row, result)] if with_runs else None
    notes = result.notes if result else []
    return BacktestOut.of(row, result, status=status, error=error, runs=runs, notes=notes, **asked)


def _runs(session: Session, row: Backtest, result: BacktestResult | None) -> list[Any]:
    """While the job is under way those that it has kept, as far as they have come."""
    if result is not None:
        return result.runs
    job = session.get(Job, row.job_id)
    return (job.checkpoint or {}).get("runs", []) if job is not None else []


def _run_view(stored: dict[str, Any]) -> RunOut:
    """A point of no labels knows the main metric alone."""
    points = stored["points"]
    names = points[-1]["metrics"]
    return RunOut.of(
        strategy=stored["strategy"],
        seed=stored["seed"],
        n=[point["n"] for point in points],
        metrics={name: [point["metrics"].get(name) for point in points] for name in names},
        seconds=stored["seconds"],
    )


def backtest_job_view(services: Services, session: Session, *, backtest: Backtest) -> BacktestJobOut:
    return BacktestJobOut(job=view_of_job(session, backtest.job_id), backtest=backtest_view(session, backtest))
