"""The job that scores a pool and chooses what to label; a big one is split into jobs that score some shards each."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy import insert
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import consensus, pools
from app.db.tables import EnsembleResult, Pool, PoolData, Project, Ranking, RankingItem, RankingResult
from app.db.types import database_time
from app.ensembles.load import load_ensemble
from app.events import RankingReady, publish
from app.pools.given_rows import as_npy
from app.projects.choice import family_of
from app.queue.context import JobContext, still_there
from app.rankings.draw_figures import draw_figures
from app.rankings.explain import explain_picks
from app.rankings.figures import figures_key, store_figures
from app.rankings.replay import kept_context
from app.rankings.request import target_key, waiting_rows
from app.rankings.score_shards import ShardScores, first_start, ranking_failed, run_tasks, score_missing
from app.rankings.target_sets import drawn_rows
from app.services import Services, job_services
from app.storage.errors import AlreadyStored
from app.storage.pools import Pool as PoolFiles
from bensemble_core.acquisition import resolve_pair
from bensemble_core.ranking.scoring import refuse_student


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
    started_at = first_start(job)
    services = job_services(job)
    asked = _asked(job, services)
    ranking, project, files = asked.ranking, asked.project, asked.files
    notes: list[str] = job.payload.get("notes", [])
    if ranking.target is not None:
        notes = [*notes, *_store_target(job, services, asked)]
    ensemble = load_ensemble(services.objects, asked.result.file_key, job.device) if asked.result else None
    _refuse_student(ensemble, ranking)
    n_forward = score_missing(job, asked.scores, started_at) if asked.scores is not None else 0
    known = _known_rows(job, services, asked)
    shape = tuple(project.input["shape"])
    job.progress(files.n_rows, files.n_rows, "choosing rows", at_once=True)
    scores = asked.scores.read() if asked.scores is not None else _without_ensemble(ranking, files.n_rows)
    try:
        chosen = bc.conclude(
            ensemble,
            scores,
            acquisition=ranking.acquisition,
            selection=ranking.selection,
            k=ranking.k,
            seed=ranking.seed,
            exclude=known.excluded,
            gather=lambda rows: files.rows(rows.numpy()).reshape(-1, *shape),
            labelled=known.inputs,
            report=lambda _done, _total, message: job.progress(files.n_rows, files.n_rows, message),
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
    figures = draw_figures(
        scores,
        chosen.rows,
        excluded=known.excluded,
        seed=ranking.seed,
        kept=asked.scores,
        ensemble=ensemble,
        gather=lambda some: files.rows(some).reshape(-1, *shape),
        tick=lambda: job.progress(files.n_rows, files.n_rows, "drawing figures"),
    )
    store_figures(services, key := figures_key(ranking.id, job.token), figures)
    job.progress(files.n_rows, files.n_rows, f"chose {len(rows):,} of {chosen.n_scored:,} rows")
    result = {"ranking_id": ranking.id, "n_scored": chosen.n_scored, "n_forward": n_forward}
    with job.finish(result) as session:
        session.add(
            RankingResult(
                ranking_id=ranking.id,
                n_scored=chosen.n_scored,
                seconds=(database_time(session) - started_at).total_seconds(),
                notes=[*notes, *_note_of_none(asked), *chosen.notes],
                measure=chosen.measure,
                ceiling=chosen.ceiling,
                context=known.context,
                figures_key=key,
            )
        )
        session.execute(insert(RankingItem), items)
        publish(session, RankingReady(ranking=ranking, items=[(item["rank"], item["row"]) for item in items]))
    is_kept = "n_rows" in (ranking.target or {})  # the rows of a request are nowhere else, and a replay needs them
    services.objects.delete_prefix(f"rankings/{ranking.id}/{'scores/' if is_kept else ''}")


def score_part(job: JobContext) -> None:
    """The job of a child: some shards of its parent's ranking."""
    asked = _asked(job, job_services(job))
    if asked.scores is None:
        raise RuntimeError("a ranking that needs no ensemble is never split")
    shards: list[int] = job.payload["shards"]
    still_missing = set(asked.scores.missing())
    missing = [shard for shard in shards if shard in still_missing]
    n_rows, n_forward = (sum(map(asked.files.shard_rows, some)) for some in (shards, missing))
    run_tasks(job, asked.scores.tasks(missing), n_rows)
    job.progress(n_rows, n_rows, f"scored {n_rows:,} rows")
    with job.finish({"ranking_id": asked.ranking.id, "n_rows": n_rows, "n_forward": n_forward}):
        pass


def _asked(job: JobContext, services: Services) -> Asked:
    with job.database.read() as session:
        ranking = still_there(session, Ranking, job.payload["ranking_id"], "the ranking was deleted")
        pool = still_there(session, Pool, ranking.pool_id, "the pool was deleted; rank another")
        project = still_there(session, Project, ranking.project_id, "the project was deleted")
        data = still_there(session, PoolData, pool.id, "the pool was deleted; rank another")
        result = None
        if ranking.ensemble_id is not None:
            gone = "the ensemble was deleted; ask again with another"
            result = still_there(session, EnsembleResult, ranking.ensemble_id, gone)
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


def _refuse_student(ensemble: bc.Ensemble | None, ranking: Ranking) -> None:
    """Before the pool is scored; only the ensemble's file says that it is one."""
    try:
        refuse_student(ensemble, *resolve_pair(ranking.acquisition, ranking.selection, None))
    except bc.InvalidOption as error:
        raise ranking_failed(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Known:
    """Rows that can't be chosen; for a selection that keeps away from them the inputs of all labelled ones [L, ...];
    and of these what no replay could read off the labels."""

    excluded: NDArray[np.int64]
    inputs: NDArray[Any] | None
    context: dict[str, Any]


def _known_rows(job: JobContext, services: Services, asked: Asked) -> Known:
    ranking, kind = asked.ranking, asked.project.task["kind"]
    inputs: dict[str, NDArray[Any]] = {}
    with job.database.read() as session:
        labelled, _ = consensus.labelled_rows(session, asked.pool.id, kind=kind, watermark=ranking.watermark)
        skipped = consensus.skipped_rows(session, asked.pool.id, watermark=ranking.watermark)
        waiting = _waiting(session, ranking)
        selection = bc.SELECTIONS[ranking.selection["name"]]
        if "features" in selection.needs and selection.uses_labelled:
            for pool, data in pools.pools_with_data(session, asked.project.id, "candidates"):
                rows, _ = consensus.labelled_rows(session, pool.id, kind=kind, watermark=ranking.watermark)
                if len(rows):
                    inputs[pool.id] = services.pool(data).rows(rows)
    shape = asked.project.input["shape"]
    return Known(
        excluded=np.concatenate([labelled, skipped, np.array(waiting, dtype=np.int64)]),
        inputs=np.concatenate(list(inputs.values())).reshape(-1, *shape) if inputs else None,
        context={"waiting": waiting, "labelled": list(inputs)},
    )


def _waiting(session: Session, ranking: Ranking) -> list[int]:
    """Nobody is asked twice for a row that another round hands out."""
    if ranking.replay_of is not None:
        replayed = kept_context(session, ranking.replay_of)
        return list(replayed["waiting"]) if replayed is not None else []
    return waiting_rows(session, ranking.pool_id) if ranking.round_id is not None else []


def _note_of_none(asked: Asked) -> tuple[str, ...]:
    """The library says it of the selections that compare rows by their features."""
    if asked.result is not None or "features" in bc.SELECTIONS[asked.ranking.selection["name"]].needs:
        return ()
    return ("there is no ensemble yet: the rows are drawn at random",)


def _store_target(job: JobContext, services: Services, asked: Asked) -> tuple[str, ...]:
    """The rows of a target pool, beside the ranking's scores; those of a request are there already."""
    target = asked.ranking.target or {}
    if "pool_id" not in target:
        return ()
    with job.database.read() as session:
        gone = "the target pool was deleted; ask again with another target"
        files = services.pool(still_there(session, PoolData, target["pool_id"], gone))
    rows, note = drawn_rows(files.n_rows, asked.ranking.seed)
    with suppress(AlreadyStored):  # by an earlier attempt
        services.objects.put(target_key(asked.ranking.id), as_npy(files.rows(rows)))
    return (note,) if note is not None else ()
