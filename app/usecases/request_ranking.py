"""Ask which rows to label next. What the answer depends on is fixed here, so that it can be given again."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import consensus, pools, projects
from app.db.tables import Ensemble, EnsembleResult, Job, Pool, Project, Ranking, Round, RoundItem
from app.db.types import new_id
from app.errors import Conflict, Malformed, NotFound
from app.jobs import queue
from app.settings import Settings


@dataclass(frozen=True, kw_only=True)
class RankingRequest:
    job: Job
    ranking: Ranking


def request_ranking(
    session: Session,
    project: Project,
    pool: Pool,
    settings: Settings,
    *,
    acquisition: dict[str, Any],
    selection: dict[str, Any],
    k: int,
    seed: int = 0,
    ensemble_id: str | None = None,
    round_id: str | None = None,
) -> RankingRequest:
    project = projects.lock(session, project.id)
    if pool.purpose != "candidates":
        raise Conflict(f"pool {pool.name!r} is for evaluation; its rows are measured on, never ranked or trained on")
    n_left = rows_left(session, project, pool, for_round=round_id is not None)
    if k > settings.max_k:
        raise Malformed(f"k is {k:,}; the cap is {settings.max_k:,}", pointer="/k")
    if k > n_left:
        waiting = " nor waiting in a round" if round_id is not None else ""
        raise Conflict(
            f"k is {k:,}, but only {n_left:,} rows of pool {pool.name!r} are neither labelled nor skipped{waiting}"
        )
    entry = bc.ACQUISITIONS[acquisition["name"]]
    family = "categorical" if project.task["kind"] == "classification" else "gaussian"
    if family not in entry.families:
        fitting = ", ".join(name for name, other in bc.ACQUISITIONS.items() if family in other.families)
        raise Malformed(
            f"{acquisition['name']} is not defined for {project.task['kind']}; take one of {fitting}",
            pointer="/acquisition/name",
        )
    if acquisition.get("estimate") == "mixture" and project.task.get("outputs", 1) > 1:
        raise Malformed(
            'the mixture estimate is for one output; take "estimate": "moment_match"', pointer="/acquisition/estimate"
        )
    needs_ensemble = "ensemble" in entry.needs
    chosen = _ensemble_id(session, project, ensemble_id) if needs_ensemble or ensemble_id else None
    ranking_id = new_id()
    job = queue.enqueue(
        session, kind="rank_pool", queue="score", payload={"ranking_id": ranking_id}, project_id=project.id
    ).job
    ranking = Ranking(
        id=ranking_id,
        project_id=project.id,
        pool_id=pool.id,
        ensemble_id=chosen,
        acquisition=acquisition,
        selection=selection,
        k=k,
        seed=seed,
        watermark=project.last_seq,
        job_id=job.id,
        round_id=round_id,
    )
    session.add(ranking)
    session.flush()
    return RankingRequest(job=job, ranking=ranking)


def rows_left(session: Session, project: Project, pool: Pool, *, for_round: bool) -> int:
    """Rows neither labelled nor skipped; for a round also those that wait in no other round."""
    kind = project.task["kind"]
    n_labelled, n_skipped = consensus.count_rows(session, pool.id, kind=kind)
    n_left = pools.data_of(session, pool).n_rows - n_labelled - n_skipped
    if for_round and (waiting := waiting_rows(session, pool.id)):
        said = consensus.verdicts(session, pool.id, waiting, kind=kind)
        n_left -= sum(row not in said or said[row].status in ("open", "unlabelled") for row in waiting)
    return n_left


def waiting_rows(session: Session, pool_id: str) -> list[int]:
    """Rows that open rounds of the pool still ask for."""
    query = (
        select(RoundItem.row)
        .join(Round, Round.id == RoundItem.round_id)
        .where(Round.pool_id == pool_id, Round.status == "open", RoundItem.n_done < Round.overlap)
    )
    return sorted(set(session.scalars(query)))


def _ensemble_id(session: Session, project: Project, asked: str | None) -> str:
    if asked is None:
        current = projects.current_ensemble_id(session, project)
        if current is None:
            raise Conflict(
                "this project has no trained ensemble yet. Label some rows and train one with "
                f"POST /v1/projects/{project.id}/ensembles, or ask for a ranking that needs none: "
                '{"acquisition": {"name": "random"}}'
            )
        return current
    return finished_ensemble(session, project.id, asked).id


def finished_ensemble(session: Session, project_id: str, ensemble_id: str) -> Ensemble:
    ensemble = session.get(Ensemble, ensemble_id)
    if ensemble is None or ensemble.project_id != project_id:
        raise NotFound(f"this project has no ensemble {ensemble_id!r}")
    if session.get(EnsembleResult, ensemble_id) is None:
        raise Conflict(f"ensemble version {ensemble.version} is not trained; look at its job {ensemble.job_id}")
    return ensemble
