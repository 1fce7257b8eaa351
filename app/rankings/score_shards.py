"""Scores of a pool under an ensemble, shard by shard, in storage: what one worker has scored, no other scores again.

The cheap acquisitions share one pass over the rows and are kept for the next ranking of the same pool and ensemble;
any other belongs to its ranking. A shard's scores depend on nothing but the ensemble, the shard and the options, so it
does not matter who writes them first."""

import io
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import bensemble_core as bc
from app.db.tables import EnsembleResult, Job, Ranking
from app.db.types import database_time
from app.ensembles.load import load_ensemble
from app.pools.given_rows import as_npy
from app.queue import queue
from app.queue.context import JobContext, JobFailed
from app.queue.executors import RowsDone, Task, TaskFailed, executor_of
from app.queue.executors.inline import Inline
from app.rankings.request import target_key
from app.services import Services, open_objects
from app.settings import Settings
from app.storage.errors import AlreadyStored
from app.storage.objects import Objects
from app.storage.pools import Pool
from bensemble_core.acquisition import resolve_acquisition
from bensemble_core.acquisition.fused import kernels
from bensemble_core.ranking.kept import column_of, digest, kept_scores

logger = logging.getLogger(__name__)

FUNCTION = "app.rankings.score_shards:score_shard"


@dataclass(frozen=True, kw_only=True)
class ShardScores:
    """Where the scores of each shard are, or will be: `columns` are acquisitions, one row of the file each."""

    services: Services
    pool: Pool
    prefix: str
    columns: tuple[dict[str, Any], ...]
    column: int  # the one that is asked for
    task: Task  # what all shards have in common

    @classmethod
    def of(
        cls,
        services: Services,
        ranking: Ranking,
        *,
        pool: Pool,
        pool_prefix: str,
        result: EnsembleResult,
        family: bc.Family,
        input_shape: Sequence[int],
        device: str,
    ) -> "ShardScores":
        column = column_of(resolve_acquisition(ranking.acquisition), family)
        kept = tuple(asdict(options) for options in kept_scores(family))
        columns = kept if column is not None else (ranking.acquisition,)
        shared = f"scores/{ranking.pool_id}/{ranking.ensemble_id}/{digest(family)}"
        return cls(
            services=services,
            pool=pool,
            prefix=f"rankings/{ranking.id}/scores" if column is None else shared,
            columns=columns,
            column=column or 0,
            task={
                "settings": services.settings.model_dump_json(include={"storage_url", "data_dir", "cache_bytes"}),
                "device": device,
                "ensemble_key": result.file_key,
                "pool_prefix": pool_prefix,
                "input_shape": list(input_shape),
                "columns": list(columns),
                "seed": ranking.seed,
                "target_key": target_key(ranking.id) if ranking.target is not None else None,
            },
        )

    def key(self, shard: int) -> str:
        return f"{self.prefix}/{shard:06d}.npy"

    @property
    def is_shared(self) -> bool:
        """Whether these are the cheap scores, all of which are kept."""
        return len(self.columns) > 1

    def missing(self) -> list[int]:
        there = {stored.key for stored in self.services.objects.list(self.prefix)}
        return [shard for shard in range(self.pool.n_shards) if self.key(shard) not in there]

    def tasks(self, shards: Sequence[int]) -> list[Task]:
        return [
            {**self.task, "shard": shard, "key": self.key(shard), "n_rows": self.pool.shard_rows(shard)}
            for shard in shards
        ]

    def read(self) -> torch.Tensor:
        """Of every row [N], once no shard is missing."""
        scores = np.empty(self.pool.n_rows, dtype=np.float32)
        for shard in range(self.pool.n_shards):
            first = shard * self.pool.manifest["shard_rows"]
            stored = np.load(self.services.objects.local_path(self.key(shard)), mmap_mode="r", allow_pickle=False)
            scores[first : first + stored.shape[1]] = stored[self.column]
        return torch.from_numpy(scores)

    def read_rows(self, rows: NDArray[np.int64], column: int) -> torch.Tensor:
        """Of some rows, by another of the columns: [S]."""
        found = np.empty(len(rows), dtype=np.float32)
        shard_of = rows // self.pool.manifest["shard_rows"]
        for shard in np.unique(shard_of).tolist():
            stored = np.load(self.services.objects.local_path(self.key(shard)), mmap_mode="r", allow_pickle=False)
            inside = shard_of == shard
            found[inside] = stored[column, rows[inside] - shard * self.pool.manifest["shard_rows"]]
        return torch.from_numpy(found)


def first_start(job: JobContext) -> datetime:
    """Of this attempt or, of a job that was split and waited for its parts, of the one that split it."""
    if children := job.children():
        first = children[0]
        return datetime.fromisoformat(first.payload.get("started_at", first.created_at.isoformat()))
    with job.database.read() as session:
        return database_time(session)


def score_missing(job: JobContext, scores: ShardScores, started_at: datetime) -> int:
    """All that is missing: here, or by children that the workers of the queue share. How many rows these were."""
    missing = scores.missing()
    children = job.children()
    _check_children(job, children)
    n_missing = sum(map(scores.pool.shard_rows, missing))
    part = job.settings.split_shards
    if part and len(missing) > part and not children:
        parts = [missing[i : i + part] for i in range(0, len(missing), part)]
        payloads = [{**job.payload, "shards": shards, "started_at": started_at.isoformat()} for shards in parts]
        n_rows = scores.pool.n_rows
        message = f"scoring rows in {len(parts)} parts"
        job.wait_for("score_shards", payloads, done=n_rows - n_missing, total=n_rows, message=message)
    run_tasks(job, scores.tasks(missing), scores.pool.n_rows)
    return n_missing + sum(int((child.result or {}).get("n_forward", 0)) for child in children)


def run_tasks(job: JobContext, tasks: Sequence[Task], n_rows: int) -> None:
    """One shard is not worth a second process; the bits are the same."""
    before = n_rows - sum(task["n_rows"] for task in tasks)
    executor = executor_of(job.settings) if len(tasks) > 1 else Inline()
    job.progress(before, n_rows, "scoring rows")
    if not tasks:
        return
    try:
        executor.run(FUNCTION, tasks, lambda done: job.progress(before + done, n_rows, "scoring rows"))
    except (TaskFailed, bc.BensembleError) as error:
        if isinstance(error, TaskFailed) and not error.is_final:
            raise
        raise ranking_failed(str(error)) from error


def ranking_failed(detail: str) -> JobFailed:
    return JobFailed("The ranking failed", detail)


def _check_children(job: JobContext, children: Sequence[Job]) -> None:
    ended_badly = [child for child in children if child.status in ("failed", "cancelled")]
    if not ended_badly:
        return
    with job.database.write() as session:
        for child in children:
            queue.request_cancel(session, child.id)
    first = ended_badly[0]
    raise JobFailed(**(first.error or {"title": "A part was cancelled", "detail": f"its job {first.id} was cancelled"}))


def score_shard(task: Task, tell: RowsDone) -> None:
    """In whatever process: read the shard, predict, score, store."""
    objects = _objects(task["settings"])
    ensemble = load_ensemble(objects, task["ensemble_key"], task["device"])
    pool = _pool(task["settings"], task["pool_prefix"])
    pool.expect(task["shard"])
    first_row, shard = pool.shard(task["shard"])
    scores = bc.score_columns(
        ensemble,
        shard.reshape(len(shard), *task["input_shape"]),
        task["columns"],
        seed=task["seed"],
        first_row=first_row,
        target=_target(task["settings"], task["target_key"], ensemble) if task["target_key"] else None,
        report=lambda done, _total, _message: tell(done),
        finite=False,  # who may be chosen is not known here, and rows that may not need no score
    )
    with suppress(AlreadyStored):  # by a worker that was given up too early; it wrote the same
        objects.put(task["key"], as_npy(scores.numpy().astype(np.float32, copy=False)))


def prepare(settings: Settings) -> None:
    """Ahead of a worker's first job: the processes that will score, each with all that it takes imported and ready."""
    if (reason := kernels.absence()) is not None:
        advice = "scoring on a CPU is about 40 times slower without it; to mend that: pip install 'numba>=0.62'"
        logger.warning("numba can't be used (%s): %s", reason, advice)
    executor_of(settings).prepare("app.rankings.score_shards:warm_up")


def warm_up(_task: Task, _tell: RowsDone) -> None:
    kernels.warm_up()


@lru_cache(maxsize=2)
def _objects(settings: str) -> Objects:
    return open_objects(Settings.model_validate_json(settings))


@lru_cache(maxsize=4)
def _pool(settings: str, prefix: str) -> Pool:
    return Pool.open(_objects(settings), prefix)


@lru_cache(maxsize=1)
def _target(settings: str, key: str, ensemble: bc.Ensemble) -> bc.Predictive:
    rows = np.load(io.BytesIO(_objects(settings).get(key)), allow_pickle=False)
    return ensemble.predict(rows)
