"""Predictions of an ensemble, for given rows or a whole pool: asked for here, computed by a worker."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from app.db import pools, projects
from app.db.tables import Ensemble, EnsembleResult, PoolData, Prediction, PredictionResult, Project
from app.db.types import new_id
from app.ensembles.load import load_ensemble
from app.ensembles.queries import finished_ensemble
from app.ensembles.schemas import PredictionIn
from app.pools.given_rows import as_npy, checked_rows
from app.queue import queue
from app.queue.context import JobContext, still_there
from app.services import Services, job_services

ROWS_AT_ONCE = 4096


def request_prediction(
    services: Services, session: Session, project: Project, ensemble: Ensemble, wanted: PredictionIn
) -> Prediction:
    """Rows go to storage before the transaction begins, so that writing them holds no lock."""
    prediction_id = new_id()
    rows_key = None
    with services.database.read() as before:
        finished_ensemble(before, project.id, ensemble.id)
        if wanted.pool_id is not None:
            pools.data_of(before, pools.pool_of(before, project.id, wanted.pool_id))
    if wanted.rows is not None:
        rows_key = f"predictions/{prediction_id}/rows.npy"
        services.objects.put(
            rows_key, as_npy(checked_rows(project, wanted.rows, cap=services.settings.max_predictions, pointer="/rows"))
        )
    projects.lock(session, project.id)
    job = queue.enqueue(
        session, kind="predict", queue="score", payload={"prediction_id": prediction_id}, project_id=project.id
    ).job
    prediction = Prediction(
        id=prediction_id,
        project_id=project.id,
        ensemble_id=ensemble.id,
        pool_id=wanted.pool_id,
        rows_key=rows_key,
        job_id=job.id,
    )
    session.add(prediction)
    session.flush()
    return prediction


def predict(job: JobContext) -> None:
    """Results are lines of JSON, so that a page of a large pool can be read without the rest."""
    services = job_services(job)
    with job.database.read() as session:
        gone = "the {} was deleted; ask for other predictions"
        prediction = still_there(session, Prediction, job.payload["prediction_id"], gone.format("request"))
        project = still_there(session, Project, prediction.project_id, gone.format("project"))
        result = still_there(session, EnsembleResult, prediction.ensemble_id, gone.format("ensemble"))
        data = still_there(session, PoolData, prediction.pool_id, gone.format("pool")) if prediction.pool_id else None
    ensemble = load_ensemble(services.objects, result.file_key, job.device)
    if data is not None:
        files = services.pool(data)
        blocks: list[np.ndarray[Any, Any]] = [shard for _, shard in files.shards()]
    else:
        blocks = [np.load(io.BytesIO(services.objects.get(str(prediction.rows_key))), allow_pickle=False)]
    total, done = sum(map(len, blocks)), 0
    prefix = f"predictions/{prediction.id}/{job.token}"
    for block in blocks:
        for start in range(0, len(block), ROWS_AT_ONCE):
            x = block[start : start + ROWS_AT_ONCE]
            predictive = ensemble.predict(x.reshape(len(x), *project.input["shape"]))
            lines = "".join(json.dumps(line) + "\n" for line in _describe(project.task, predictive, done))
            services.objects.put(f"{prefix}/{done // ROWS_AT_ONCE:08d}.ndjson", lines.encode())
            done += len(x)
            job.progress(done, total, "predicting")
    with job.finish({"prediction_id": prediction.id, "n_rows": total}) as session:
        session.add(PredictionResult(prediction_id=prediction.id, file_key=prefix, n_rows=total))


def _describe(task: dict[str, Any], predictive: Any, first_row: int) -> Iterator[dict[str, Any]]:
    information = predictive.mutual_information().tolist()
    entropy = predictive.entropy().tolist()
    mean = predictive.mean().tolist()
    if task["kind"] == "classification":
        classes = task["classes"]
        spread = predictive.probability_variance().sqrt().tolist()
        for i, probabilities in enumerate(mean):
            best = max(range(len(classes)), key=probabilities.__getitem__)
            yield {
                "row": first_row + i,
                "label": classes[best],
                "probabilities": dict(zip(classes, probabilities, strict=True)),
                "probability_sd": dict(zip(classes, spread[i], strict=True)),
                "entropy": entropy[i],
                "mutual_information": information[i],
            }
        return
    sd, epistemic = predictive.variance().sqrt().tolist(), predictive.epistemic_variance().sqrt().tolist()
    for i, value in enumerate(mean):
        yield {
            "row": first_row + i,
            "mean": value,
            "sd": sd[i],
            "epistemic_sd": epistemic[i],
            "entropy": entropy[i],
            "mutual_information": information[i],
        }


def read_predictions(services: Services, result: PredictionResult, *, start: int, limit: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    stop = min(start + limit, result.n_rows)
    for number in range(start // ROWS_AT_ONCE, -(-stop // ROWS_AT_ONCE)):
        lines = services.objects.get(f"{result.file_key}/{number:08d}.ndjson").splitlines()
        first = number * ROWS_AT_ONCE
        items += [json.loads(line) for line in lines[max(0, start - first) : stop - first]]
    return items
