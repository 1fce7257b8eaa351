"""Ask for a backtest. What the answer depends on is fixed here: labels by a watermark, methods as they are now."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

import bensemble_core as bc
from app.backtests.schemas import BacktestIn, StrategyIn
from app.db import consensus, label_counts, pools, projects
from app.db.tables import Backtest, Pool, Project
from app.db.types import new_id
from app.errors import Conflict, Malformed
from app.methods.schemas import as_json_or_none, posterior_of
from app.projects.choice import check_project_choice, family_of
from app.projects.create import check_training, needs_tasks
from app.queue import queue
from app.settings import Settings
from bensemble_core.backtesting.labels_needed import check_labels, check_rounds
from bensemble_core.backtesting.strategies import Strategy, resolve_strategies

METHODS = ("acquisition", "selection", "posterior", "model")
OWN = "project"  # the strategy of a project that has a choice of its own


def request_backtest(session: Session, project: Project, wanted: BacktestIn, settings: Settings) -> Backtest:
    """The methods are looked at before the project is locked: that takes longer than to count labels."""
    strategies = played(project, wanted)
    given = [each.name for each in wanted.strategies or ()]
    places = [f"/strategies/{given.index(each['name'])}" if each["name"] in given else "" for each in strategies]
    costs = [_cost(project, each, settings, within) for each, within in zip(strategies, places, strict=True)]
    project = projects.lock(session, project.id)
    pool = pools.pool_of(session, project.id, wanted.pool_id)
    rounds = _check_labels(session, project, pool, wanted)
    cost = wanted.seeds * (rounds * sum(costs) + costs[0])  # the whole pool is learnt from once a seed, by default
    if cost > settings.max_training_cost:
        raise Malformed(
            f"members × weights × epochs of all trainings of this backtest is {cost:.3g}; the cap is "
            f"{settings.max_training_cost:.3g}. Take fewer strategies, rounds or seeds, or posteriors that cost less.",
            pointer="/rounds",
        )
    backtest_id = new_id()
    payload = {"backtest_id": backtest_id}
    job = queue.enqueue(session, kind="backtest", queue="simulate", payload=payload, project_id=project.id).job
    backtest = Backtest(
        id=backtest_id,
        project_id=project.id,
        pool_id=pool.id,
        request={
            "strategies": strategies,
            "rounds": rounds,
            "k": wanted.k,
            "seeds": wanted.seeds,
            "posterior": project.posterior,
            "model": project.model,
        },
        watermark=project.last_seq,
        job_id=job.id,
    )
    session.add(backtest)
    session.flush()
    return backtest


def played(project: Project, wanted: BacktestIn) -> list[dict[str, Any]]:
    """Every strategy with all that it names, None where it names nothing."""
    family = family_of(project)
    given = None if wanted.strategies is None else [_named(each) for each in wanted.strategies]
    with _refusing("/strategies"):
        found = [_stored(each) for each in resolve_strategies(given, family)]
    if given is None and (project.acquisition or project.selection):
        own = {"name": OWN, "acquisition": project.acquisition, "selection": project.selection}
        found.append({**dict.fromkeys(METHODS), **own})
    return found


def strategy_of(stored: dict[str, Any]) -> Strategy:
    return Strategy(**stored)


def _named(wanted: StrategyIn) -> Strategy:
    return Strategy(name=wanted.name, **{name: as_json_or_none(getattr(wanted, name)) for name in METHODS})


def _stored(strategy: Strategy) -> dict[str, Any]:
    return {"name": strategy.name, **dict.fromkeys(METHODS), **strategy.choice()}


def _as_project(project: Project, strategy: dict[str, Any]) -> Project:
    """The project as it would be if the strategy were adopted."""
    named = {name: strategy[name] or getattr(project, name) for name in ("posterior", "model")}
    chosen = {name: strategy[name] for name in ("acquisition", "selection")}
    return Project(task=project.task, input=project.input, **named, **chosen)


def _cost(project: Project, strategy: dict[str, Any], settings: Settings, within: str) -> float:
    """Of one training; refused where the strategy could not be adopted."""
    adopted = _as_project(project, strategy)
    check_project_choice(adopted, within=within)
    posterior = posterior_of(adopted.posterior)
    if needs_tasks(posterior):
        raise Malformed(
            f"strategy {strategy['name']!r}: {posterior.name} learns over tasks, and a backtest plays the one of its "
            "pool; name another posterior, such as gp, which needs one task, in the strategy or, where it names none, "
            "in the project",
            pointer=within or "/strategies",
        )
    try:
        return check_training(adopted, posterior, settings)
    except Malformed as refusal:
        raise Malformed(
            f"strategy {strategy['name']!r}: {refusal.detail}", pointer=within or "/strategies"
        ) from refusal


def _check_labels(session: Session, project: Project, pool: Pool, wanted: BacktestIn) -> int:
    """The number of rounds; refused where labels are too few to say anything."""
    pools.data_of(session, pool)
    classes = consensus.class_counts(session, pool.id) if project.task["kind"] == "classification" else None
    n_labels = label_counts.read_counts(session, pool.id).n_labelled if classes is None else sum(classes.values())
    try:
        check_labels(n_labels, classes, k=wanted.k)
    except bc.InvalidData as error:
        raise Conflict(f"pool {pool.name!r}: {error}") from error
    with _refusing("/rounds"):
        return check_rounds(n_labels, wanted.rounds, wanted.k)


@contextmanager
def _refusing(pointer: str) -> Iterator[None]:
    try:
        yield
    except bc.InvalidOption as error:
        raise Malformed(str(error), pointer=pointer) from error
