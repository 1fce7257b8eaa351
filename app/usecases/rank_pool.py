"""The job that scores a pool and chooses what to label; a big one is split into jobs that score some shards each."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy import insert, select

import bensemble_core as bc
from app.db import consensus
from app.db.tables import EnsembleResult, Pool, PoolData, Project, Ranking, RankingItem, RankingResult
from app.jobs.context import JobContext
from app.services import Services, job_services
from app.storage.errors import AlreadyStored
from app.storage.pools import Pool as PoolFiles
from app.usecases.explain_picks import explain_picks
from app.usecases.given_rows import as_npy
from app.usecases.load_ensemble import load_ensemble
from app.usecases.open_round import hand_out
from app.usecases.request_ranking import TARGET_ROWS, family_of, target_key, waiting_rows
from app.usecases.score_shards import ShardScores, ranking_failed, run_tasks, score_missing


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A stored request and what it speaks of."""

    ranking: Ranking
    project: Project
    pool: Pool
    files: PoolFiles
    result: EnsembleResult | None
    scores: ShardScores | None  # None where the acquisition needs no ensemble


def rank_pool(job: JobContext) -> None:
    started = time.monotonic()
    services = job_services(job)
    asked = _asked(job, services)
    ranking, project, files = asked.ranking, asked.project, asked.files
    notes: tuple[str, ...] = ()
    if ranking.target is not None:
        notes = _store_target(job, services, asked)
    if asked.scores is not None:
        score_missing(job, asked.scores)
    excluded, labelled = _known_rows(job, services, asked)
    ensemble = load_ensemble(services.objects, asked.result.file_key, job.device) if asked.result else None
    shape = tuple(project.input["shape"])
    job.progress(files.n_rows, files.n_rows, "choosing rows")
    try:
        chosen = bc.conclude(
            ensemble,
            asked.scores.read() if asked.scores is not None else _without_ensemble(ranking, files.n_rows),
            acquisition=ranking.acquisition,
            selection=ranking.selection,
            k=ranking.k,
            seed=ranking.seed,
            exclude=excluded,
            gather=lambda rows: files.rows(rows.numpy()).reshape(-1, *shape),
            labelled=labelled,
        )
    except bc.BensembleError as error:  # trying again would end the same way
        raise ranking_failed(str(error)) from error
    rows = chosen.rows.numpy()
    predictive = ensemble.predict(files.rows(rows).reshape(-1, *shape)) if ensemble is not None else None
    explanations = explain_picks(project.task, predictive) if predictive is not None else [None] * len(rows)
    items: list[dict[str, Any]] = [
        {
            "ranking_id": ranking.id,
            "rank": i + 1,
            "row": int(row),
            "key": key,
            "score": float(score),
            "value": float(value),
            "explanation": explanation,
        }
        for i, (row, key, score, value, explanation) in enumerate(
            zip(rows, files.keys(rows), chosen.scores, chosen.values, explanations, strict=True)
        )
    ]
    seconds = time.monotonic() - started
    with job.finish({"ranking_id": ranking.id, "n_scored": chosen.n_scored}) as session:
        session.add(
            RankingResult(
                ranking_id=ranking.id,
                n_scored=chosen.n_scored,
                seconds=seconds,
                notes=[*notes, *chosen.notes],
                measure=chosen.measure,
            )
        )
        session.execute(insert(RankingItem), items)
        if ranking.round_id is not None:
            hand_out(session, ranking, [(item["rank"], item["row"]) for item in items])
    services.objects.delete_prefix(f"rankings/{ranking.id}/")


def score_part(job: JobContext) -> None:
    """The job of a child: some shards of its parent's ranking."""
    asked = _asked(job, job_services(job))
    if asked.scores is None:
        raise RuntimeError("a ranking that needs no ensemble is never split")
    shards: list[int] = job.payload["shards"]
    missing = set(asked.scores.missing())
    n_rows = sum(map(asked.files.shard_rows, shards))
    run_tasks(job, asked.scores.tasks([shard for shard in shards if shard in missing]), n_rows)
    with job.finish({"ranking_id": asked.ranking.id, "n_rows": n_rows}):
        pass


def _asked(job: JobContext, services: Services) -> Asked:
    with job.database.read() as session:
        ranking = session.get_one(Ranking, job.payload["ranking_id"])
        pool = session.get_one(Pool, ranking.pool_id)
        project = session.get_one(Project, ranking.project_id)
        data = session.get_one(PoolData, pool.id)
        result = session.get_one(EnsembleResult, ranking.ensemble_id) if ranking.ensemble_id else None
    files = services.pool(data)
    scores = None
    if result is not None and "ensemble" in bc.ACQUISITIONS[ranking.acquisition["name"]].needs:
        scores = ShardScores.of(
            services,
            ranking,
            pool=files,
            pool_prefix=data.prefix,
            result=result,
            family=family_of(project),
            input_shape=project.input["shape"],
            device=job.device,
        )
    return Asked(ranking=ranking, project=project, pool=pool, files=files, result=result, scores=scores)


def _without_ensemble(ranking: Ranking, n_rows: int) -> torch.Tensor:
    options = bc.acquisition.resolve_acquisition(ranking.acquisition)
    rows = bc.acquisition.Rows(seed=ranking.seed, first=0, count=n_rows)
    return bc.ACQUISITIONS[options.name].score(None, options, rows)


def _known_rows(job: JobContext, services: Services, asked: Asked) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """Rows that can't be chosen, and for a selection that keeps away from them the inputs of all labelled ones."""
    ranking, kind = asked.ranking, asked.project.task["kind"]
    inputs: list[NDArray[Any]] = []
    with job.database.read() as session:
        labelled, _ = consensus.labelled_rows(session, asked.pool.id, kind=kind, watermark=ranking.watermark)
        excluded = [labelled, consensus.skipped_rows(session, asked.pool.id, watermark=ranking.watermark)]
        if ranking.round_id is not None:  # nobody is asked twice for a row that another round hands out
            excluded.append(np.array(waiting_rows(session, asked.pool.id), dtype=np.int64))
        if "features" in bc.SELECTIONS[ranking.selection["name"]].needs:
            of_project = select(PoolData).join(Pool, Pool.id == PoolData.pool_id)
            for data in session.scalars(
                of_project.where(Pool.project_id == asked.project.id, Pool.purpose == "candidates").order_by(Pool.id)
            ):
                rows, _ = consensus.labelled_rows(session, data.pool_id, kind=kind, watermark=ranking.watermark)
                inputs.append(services.pool(data).rows(rows))
    if not inputs:
        return np.concatenate(excluded), None
    return np.concatenate(excluded), np.concatenate(inputs).reshape(-1, *asked.project.input["shape"])


def _store_target(job: JobContext, services: Services, asked: Asked) -> tuple[str, ...]:
    """The rows of a target pool, beside the ranking's scores; those of a request are there already."""
    target = asked.ranking.target or {}
    if "pool_id" not in target:
        return ()
    with job.database.read() as session:
        files = services.pool(session.get_one(PoolData, target["pool_id"]))
    rows = np.arange(files.n_rows)
    notes: tuple[str, ...] = ()
    if files.n_rows > TARGET_ROWS:
        order = bc.acquisition.random(asked.ranking.seed, 0, files.n_rows).numpy()
        rows = np.sort(np.argpartition(order, TARGET_ROWS)[:TARGET_ROWS])
        notes = (f"the target pool has {files.n_rows:,} rows; {TARGET_ROWS:,} drawn by the seed stand for it",)
    with suppress(AlreadyStored):  # by an earlier attempt
        services.objects.put(target_key(asked.ranking.id), as_npy(files.rows(rows)))
    return notes
