"""The labels a training sees: fixed by a watermark, hashed, split into what is learnt from and what is measured on."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from app.db import consensus, pools
from app.db.tables import PoolData, Project
from app.projects.targets import to_targets
from app.services import Services
from bensemble_core.randomness import GAMMA, mix

FEW = 30
UNLABELLED = 4_000  # rows of the pools that a training may look at without their labels


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows of one pool with their labels."""

    data: PoolData
    rows: np.ndarray[Any, np.dtype[np.int64]]
    values: list[Any]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    train: list[Part]
    measure: list[Part]
    measured_on: str  # evaluation | holdout | none
    tasks: list[Part] = field(default_factory=list)  # one for each other task, where they were asked for
    digest: str = field(repr=False)

    @property
    def n_train(self) -> int:
        return sum(len(part.rows) for part in self.train)

    @property
    def n_measure(self) -> int:
        return sum(len(part.rows) for part in self.measure)


def is_held_out(pool_id: str, rows: np.ndarray[Any, np.dtype[np.int64]], share: float) -> np.ndarray[Any, Any]:
    """A fixed pseudo-random share of a pool's rows, by a hash of pool and row: the same in every training."""
    return (hash_rows(pool_id, rows) >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share


def hash_rows(name: str, rows: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """64 mixed bits of each row of what has this name."""
    salt = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    with np.errstate(over="ignore"):
        return mix((rows.astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA) ^ salt)


def collect_labels(session: Session, project: Project, watermark: int, *, with_tasks: bool = False) -> Snapshot:
    """With an evaluation pool everything else is learnt from. Without one a share of the labels that *came with* a
    pool is held out, unless nothing would be left; rows that a ranking picked never are: they are no fair sample.
    Pools of other tasks are read for a method that learns over several; for any other they are not there."""
    kind = project.task["kind"]
    evaluation = []
    for pool, data in pools.pools_with_data(session, project.id, "evaluation"):
        rows, values = consensus.labelled_rows(session, pool.id, kind=kind, watermark=watermark)
        evaluation.append(Part(data=data, rows=rows, values=values))
    has_evaluation = any(len(part.rows) for part in evaluation)
    train: list[Part] = []
    held_out: list[Part] = []
    for pool, data in pools.pools_with_data(session, project.id, "candidates"):
        rows, values = consensus.labelled_rows(session, pool.id, kind=kind, watermark=watermark)
        apart = np.zeros(len(rows), dtype=bool)
        if not has_evaluation and project.holdout > 0:
            given = consensus.given_rows(session, pool.id, watermark=watermark)
            apart = np.isin(rows, given) & is_held_out(pool.id, rows, project.holdout)
        for part, chosen in ((train, ~apart), (held_out, apart)):
            kept = np.flatnonzero(chosen)
            part.append(Part(data=data, rows=rows[kept], values=[values[i] for i in kept]))
    if not any(len(part.rows) for part in train):  # the few labels that there are teach more than they measure
        train, held_out = held_out, []
    measure = evaluation if has_evaluation else held_out
    measured_on = "evaluation" if has_evaluation else "holdout" if any(len(p.rows) for p in held_out) else "none"
    tasks = []
    for pool, data in pools.pools_with_data(session, project.id, "task") if with_tasks else []:
        rows, values = consensus.labelled_rows(session, pool.id, kind=kind, watermark=watermark)
        if len(rows):
            tasks.append(Part(data=data, rows=rows, values=values))
    digest = digest_of(project, [*train, *tasks])
    return Snapshot(train=train, measure=measure, measured_on=measured_on, tasks=tasks, digest=digest)


def sample_unlabelled(
    services: Services, project: Project, candidates: list[PoolData], *, seed: int
) -> np.ndarray[Any, Any] | None:
    """Features of some rows of the candidate pools, labelled or not, every row as likely: [U, *shape]."""
    sizes = [data.n_rows for data in candidates]
    total = sum(sizes)
    if not total:
        return None
    chosen = np.random.default_rng(seed).choice(total, size=min(total, UNLABELLED), replace=False)
    chosen.sort()
    parts, start = [], 0
    for data, size in zip(candidates, sizes, strict=True):
        own = chosen[(chosen >= start) & (chosen < start + size)] - start
        if len(own):
            parts.append(services.pool(data).rows(own))
        start += size
    rows = np.concatenate(parts)
    return rows.reshape(len(rows), *project.input["shape"])


def digest_of(project: Project, parts: list[Part]) -> str:
    """SHA-256 over pools, rows and labels: equal digests of what is learnt from mean equal training data."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part.data.pool_id.encode())
        sha.update(np.ascontiguousarray(part.rows).tobytes())
        sha.update(np.ascontiguousarray(to_targets(project.task, part.values)).tobytes())
    return sha.hexdigest()


def take(parts: list[Part], places: np.ndarray[Any, np.dtype[np.int64]]) -> list[Part]:
    """Some of the rows of all parts, by their places in these, which are rising."""
    taken, start = [], 0
    for part in parts:
        own = places[(places >= start) & (places < start + len(part.rows))] - start
        start += len(part.rows)
        if len(own):
            taken.append(Part(data=part.data, rows=part.rows[own], values=[part.values[i] for i in own]))
    return taken


def gather(
    services: Services, project: Project, parts: list[Part]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features [N, *shape] and targets of some parts."""
    filled = [part for part in parts if len(part.rows)]
    x = np.concatenate([services.pool(part.data).rows(part.rows) for part in filled])
    y = np.concatenate([to_targets(project.task, part.values) for part in filled])
    return x.reshape(len(x), *project.input["shape"]), y
