"""What a training says of the labels it saw, computed while its ensemble is at hand and kept with its result.

    agreement    with the version before, on rows of the pools that both predicted
    doubts       labels that predictions contradict
    control      what as many random rows would have given

Advice (`app.advice`) is made of these."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db.tables import Ensemble, EnsembleResult, PoolData, Project
from app.ensembles.collect_labels import Snapshot
from app.ensembles.control import random_control
from app.ensembles.label_doubts import doubt_labels
from app.ensembles.pool_sample import compare, predict_sample, sample_key
from app.queue.context import JobContext, storable
from app.services import Services


def look_back(
    job: JobContext,
    services: Services,
    project: Project,
    ensemble: Ensemble,
    labels: Snapshot,
    fitted: "bc.Fitted",
    sampled: "bc.Ensemble",
    candidates: list[PoolData],
    prefix: str,
    measure: Callable[["bc.Ensemble"], dict[str, Any]],
) -> dict[str, Any]:
    """Stores the predictions of the sample under `prefix`, for the next version to compare itself with."""
    members = sampled.to(job.device)
    predicted = predict_sample(job, services, project, candidates, members)
    services.objects.put(sample_key(prefix), bc.save_tensors(predicted))
    with job.database.read() as session:
        earlier = _version_before(session, ensemble)
    agreement = None
    if earlier is not None:
        before, result, _ = earlier
        agreement = compare(services, project, result.file_key, predicted)
        if agreement is not None:
            agreement |= {"with_version": before.version, "n_labels_before": result.n_labels}
    doubts = doubt_labels(job, services, project, labels, fitted, members)
    known = (earlier[2] or {}).get("control") if earlier is not None else None
    control = random_control(job, services, project, ensemble, labels, fitted, candidates, measure, known)
    job.progress(1, 1, "compared")
    found: dict[str, Any] = storable({"agreement": agreement, "doubts": doubts, "control": control})
    return found


def _version_before(
    session: Session, ensemble: Ensemble
) -> tuple[Ensemble, EnsembleResult, dict[str, Any] | None] | None:
    """With what it said of the labels."""
    query = (
        select(Ensemble, EnsembleResult, EnsembleResult.retrospect)
        .join(EnsembleResult, EnsembleResult.ensemble_id == Ensemble.id)
        .where(Ensemble.project_id == ensemble.project_id, Ensemble.version < ensemble.version)
        .order_by(Ensemble.version.desc())
        .limit(1)
    )
    found = session.execute(query).one_or_none()
    return None if found is None else (found[0], found[1], found[2])
