"""What a version predicts of a fixed sample of the pools' rows, so that successive versions can be compared."""

import logging
from typing import Any

import numpy as np
import torch

import bensemble_core as bc
from app.db.tables import PoolData, Project
from app.ensembles.collect_labels import hash_rows
from app.queue.context import JobContext
from app.services import Services
from app.storage.errors import MissingObject

SAMPLED = 2_000
FEWEST = 20  # rows in common
HASHED_AT_ONCE = 2**20
ROWS_AT_ONCE = 1024

logger = logging.getLogger(__name__)


def sample_key(prefix: str) -> str:
    return f"{prefix}/sample.safetensors"


def sample_rows(candidates: list[PoolData]) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    """The 2,000 rows of all pools with the lowest hashes: while pools come and go, most of them stay the same."""
    hashes, pools, rows = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64)
    for i, data in enumerate(candidates):
        for start in range(0, data.n_rows, HASHED_AT_ONCE):
            some = np.arange(start, min(start + HASHED_AT_ONCE, data.n_rows), dtype=np.int64)
            hashes = np.concatenate([hashes, hash_rows(f"sample of {data.pool_id}", some)])
            pools, rows = np.concatenate([pools, np.full(len(some), i)]), np.concatenate([rows, some])
            lowest = np.argsort(hashes, kind="stable")[:SAMPLED]
            hashes, pools, rows = hashes[lowest], pools[lowest], rows[lowest]
    return {data.pool_id: np.sort(rows[pools == i]) for i, data in enumerate(candidates) if (pools == i).any()}


def predict_sample(
    job: JobContext, services: Services, project: Project, candidates: list[PoolData], ensemble: "bc.Ensemble"
) -> dict[str, torch.Tensor]:
    """`rows/POOL` [n] and `predicted/POOL`, classes [n] or means [n] or [n, T], of each pool."""
    data_of = {data.pool_id: data for data in candidates}
    tensors: dict[str, torch.Tensor] = {}
    for pool_id, rows in sample_rows(candidates).items():
        found = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            job.progress(start, len(rows), "comparing with the version before")
            x = services.pool(data_of[pool_id]).rows(rows[start : start + ROWS_AT_ONCE])
            mean = ensemble.predict(x.reshape(len(x), *project.input["shape"])).mean().cpu()
            found.append(mean.argmax(-1) if project.task["kind"] == "classification" else mean.double())
        tensors |= {f"rows/{pool_id}": torch.from_numpy(rows), f"predicted/{pool_id}": torch.cat(found)}
    return tensors


def compare(
    services: Services, project: Project, file_key: str, newer: dict[str, torch.Tensor]
) -> dict[str, Any] | None:
    """Agreement with the version that has this file, on the rows that both predicted; None where there are few."""
    key = sample_key(file_key.rpartition("/")[0])
    try:
        older = bc.load_tensors(services.objects.get(key))
    except MissingObject:  # it was trained before samples were kept
        logger.info("the version before has no sample to compare with", extra={"key": key})
        return None
    pairs = []
    for name in newer:
        kind, _, pool_id = name.partition("/")
        if kind == "rows" and name in older:
            _, at, was_at = np.intersect1d(newer[name].numpy(), older[name].numpy(), return_indices=True)
            predicted = f"predicted/{pool_id}"
            pairs.append((older[predicted].numpy()[was_at], newer[predicted].numpy()[at]))
    n_rows = sum(len(before) for before, _ in pairs)
    if n_rows < FEWEST:
        return None
    before, after = (np.concatenate(column) for column in zip(*pairs, strict=True))
    if project.task["kind"] == "classification":
        told = {"measure": "kappa", "value": bc.advice.kappa(before, after)}
        return {**told, "changed": float((before != after).mean()), "n_rows": n_rows}
    told = {"measure": "concordance", "value": bc.advice.concordance(before, after)}
    return {**told, "changed": bc.advice.relative_change(before, after), "n_rows": n_rows}
