"""What random rows would have given: the project's posterior, trained on labels that are a fair sample of the pool.

Fair are labels that came with a pool, and those of rows that a random ranking picked. Rows that a score picked are not,
nor those that somebody labelled of their own choice."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import consensus
from app.db.tables import Ensemble, PoolData, Project, Ranking, RankingItem
from app.ensembles.collect_labels import Part, Snapshot, digest_of, gather, sample_unlabelled, take
from app.methods.schemas import as_json
from app.projects.create import likelihood_of, prior_of
from app.queue.context import JobContext
from app.services import Services
from bensemble_core.types import Snapshot as State

FEWEST, MOST = 40, 300  # fair labels: fewer say nothing, more take long
MOST_MEASURED = 20_000  # rows
SHARES = (4, 4, 2, 2, 1)  # a quarter twice, from either end of a random order, and so on

Measure = Callable[["bc.Ensemble"], dict[str, Any]]


def random_control(
    job: JobContext,
    services: Services,
    project: Project,
    ensemble: Ensemble,
    labels: Snapshot,
    fitted: "bc.Fitted",
    candidates: list[PoolData],
    measure: Measure,
    known: dict[str, Any] | None,
) -> dict[str, Any]:
    """{points, reason, …}: metrics by number of fair labels, measured on the rows that the ensemble is measured on; no
    points and a reason where that cannot be known. `known` is the version before's: nothing is trained again where the
    fair labels are the same."""
    with job.database.read() as session:
        fair = [
            Part(data=part.data, rows=part.rows[kept], values=[part.values[i] for i in kept])
            for part in labels.train
            for kept in [np.flatnonzero(np.isin(part.rows, fair_rows(session, part.data.pool_id)))]
        ]
    n_fair = sum(len(part.rows) for part in fair)
    if (reason := _refusal(labels, fitted, n_fair)) is not None:
        return {"points": [], "n_fair": n_fair, "reason": reason}
    order = np.random.default_rng(0).permutation(n_fair)[:MOST]
    digest = _digest(project, ensemble, labels, fitted, fair, candidates)
    if known is not None and known.get("digest") == digest:
        return known
    common: dict[str, Any] = {
        "likelihood": likelihood_of(project.task),
        "prior": prior_of(project.task),
        "seed": ensemble.seed,
        "unlabelled": sample_unlabelled(services, project, candidates, seed=ensemble.seed),
        "device": job.device,
    }
    found: dict[int, list[dict[str, Any]]] = {}
    for i, share in enumerate(SHARES):

        def report(done: int, total: int, message: str, snapshot: State, i: int = i) -> None:
            job.progress(i + done / max(total, 1), len(SHARES), "training on random rows, for comparison")

        size = len(order) // share
        chosen = order[:size] if i % 2 == 0 else order[-size:]
        rows = gather(services, project, take(fair, np.sort(chosen)))
        try:
            fit = bc.fit(fitted.posterior, project.model, rows, report=report, **common)
            drawn = fit.sample(ensemble.n_members, seed=ensemble.seed, at_most=True)
        except bc.BensembleError as error:  # the training itself has ended well
            return {"points": [], "n_fair": n_fair, "reason": f"Training on random rows alone failed: {error}"}
        found.setdefault(size, []).append(measure(drawn.to(job.device)))
    points = [{"n_labels": size, **_mean(several)} for size, several in sorted(found.items())]
    return {"points": points, "n_fair": n_fair, "reason": None, "digest": digest}


def fair_rows(session: Session, pool_id: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows of a pool whose labels are a fair sample of it, where they have any."""
    rankings = session.execute(
        select(Ranking.id, Ranking.acquisition, Ranking.selection).where(Ranking.pool_id == pool_id)
    )
    random = [i for i, how, which in rankings if (how["name"], which["name"]) == ("random", "top_k")]
    picked = list(session.scalars(select(RankingItem.row).where(RankingItem.ranking_id.in_(random)))) if random else []
    return np.union1d(consensus.given_rows(session, pool_id), np.array(picked, dtype=np.int64))


def _refusal(labels: Snapshot, fitted: "bc.Fitted", n_fair: int) -> str | None:
    if not 0 < labels.n_measure <= MOST_MEASURED:
        many = f"there are more than {MOST_MEASURED:,} rows to measure on, which would take long"
        return f"Nothing was compared: {many if labels.n_measure else 'there are no rows to measure on'}."
    if not isinstance(fitted.posterior, bc.Auto) or not fitted.posterior.is_small(fitted.state):
        return "Only the posterior auto, while it trains no networks, is quick enough to be trained again for this."
    if n_fair < FEWEST:
        return (
            f"Only {n_fair} of {labels.n_train} labels are of random rows (labels that came with a pool, or rows that "
            f"a random ranking picked with top_k); {FEWEST} are needed to say what random rows give."
        )
    if n_fair == labels.n_train:
        return "All labels are of random rows: there is nothing to compare them with."
    return None


def _digest(
    project: Project,
    ensemble: Ensemble,
    labels: Snapshot,
    fitted: "bc.Fitted",
    fair: list[Part],
    candidates: list[PoolData],
) -> str:
    options = {"posterior": as_json(fitted.posterior), "n_members": ensemble.n_members, "seed": ensemble.seed}
    pools = [data.pool_id for data in candidates]
    parts = [json.dumps([options, pools], sort_keys=True), digest_of(project, fair), digest_of(project, labels.measure)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _mean(several: list[dict[str, Any]]) -> dict[str, Any]:
    """Of numbers by name; `n` is the same of all. Standard errors do not shrink: all are measured on the same rows."""
    numbers = {name for name, value in several[0].items() if isinstance(value, int | float) and name != "n"}
    return {"n": several[0]["n"]} | {
        name: float(np.mean([each[name] for each in several])) for name in sorted(numbers) if name in several[-1]
    }
