"""The job that scores a pool and chooses what to label: shard by shard, each finished one checkpointed."""

import io
import time
from typing import Any

import numpy as np
import torch
from sqlalchemy import insert

import bensemble_core as bc
from app.db import consensus
from app.db.tables import EnsembleResult, Pool, PoolData, Project, Ranking, RankingItem, RankingResult
from app.jobs.context import JobContext, JobFailed
from app.services import Services, job_services
from app.storage.pools import Pool as PoolFiles
from app.usecases.load_ensemble import load_ensemble
from app.usecases.open_round import hand_out
from app.usecases.request_ranking import waiting_rows


def rank_pool(job: JobContext) -> None:
    started = time.monotonic()
    services = job_services(job)
    with job.database.read() as session:
        ranking = session.get_one(Ranking, job.payload["ranking_id"])
        pool = session.get_one(Pool, ranking.pool_id)
        project = session.get_one(Project, ranking.project_id)
        files = services.pool(session.get_one(PoolData, pool.id))
        result = session.get_one(EnsembleResult, ranking.ensemble_id) if ranking.ensemble_id else None
        kind, watermark = project.task["kind"], ranking.watermark
        labelled, _ = consensus.labelled_rows(session, pool.id, kind=kind, watermark=watermark)
        excluded = [labelled, consensus.skipped_rows(session, pool.id, watermark=watermark)]
        if ranking.round_id is not None:  # nobody is asked twice for a row that another round hands out
            excluded.append(np.array(waiting_rows(session, pool.id), dtype=np.int64))
    ensemble = load_ensemble(services, result, job.device) if result is not None else None
    try:
        chosen = bc.conclude(
            ensemble,
            _scores(job, services, ranking, project, files, ensemble),
            acquisition=ranking.acquisition,
            selection=ranking.selection,
            k=ranking.k,
            seed=ranking.seed,
            exclude=np.concatenate(excluded),
        )
    except bc.BensembleError as error:  # trying again would end the same way
        raise JobFailed({"title": "The ranking failed", "detail": str(error), "status": 409}) from error
    rows = chosen.rows.numpy()
    keys = files.keys(rows)
    items = [
        RankingItem(ranking_id=ranking.id, rank=i + 1, row=int(row), key=key, score=float(score))
        for i, (row, key, score) in enumerate(zip(rows, keys, chosen.scores.tolist(), strict=True))
    ]
    seconds = time.monotonic() - started
    with job.finish({"ranking_id": ranking.id, "n_scored": chosen.n_scored}) as session:
        session.add(
            RankingResult(ranking_id=ranking.id, n_scored=chosen.n_scored, seconds=seconds, notes=list(chosen.notes))
        )
        session.execute(
            insert(RankingItem),
            [{"ranking_id": i.ranking_id, "rank": i.rank, "row": i.row, "key": i.key, "score": i.score} for i in items],
        )
        if ranking.round_id is not None:
            hand_out(session, ranking, items)
    services.objects.delete_prefix(f"rankings/{ranking.id}/")


def _scores(
    job: JobContext, services: Services, ranking: Ranking, project: Project, files: PoolFiles, ensemble: Any
) -> torch.Tensor:
    """Scores of all rows [N]; those of shards finished by an earlier attempt are read back."""
    done: dict[str, str] = dict((job.checkpoint or {}).get("shards", {}))
    parts = []
    for number, (first_row, shard) in enumerate(files.shards()):
        if str(number) in done:
            parts.append(
                torch.from_numpy(np.load(io.BytesIO(services.objects.get(done[str(number)])), allow_pickle=False))
            )
            continue

        def report(n_rows: int, _total: int, _message: str, first_row: int = first_row) -> None:
            job.progress(first_row + n_rows, files.n_rows, "scoring rows")

        x = shard.reshape(len(shard), *project.input["shape"])
        part = bc.score(ensemble, x, ranking.acquisition, seed=ranking.seed, first_row=first_row, report=report)
        parts.append(part)
        if first_row + len(shard) < files.n_rows:
            key = f"rankings/{ranking.id}/{job.token}/{number}.npy"
            file = io.BytesIO()
            np.save(file, part.numpy(), allow_pickle=False)
            services.objects.put(key, file.getvalue())
            done[str(number)] = key
            job.save_checkpoint({"shards": done})
    return torch.cat(parts)
