"""Labels of a training that predictions contradict: the worst of them, as they are kept with its result."""

from typing import Any

import numpy as np

import bensemble_core as bc
from app.db.tables import Project
from app.ensembles.collect_labels import Snapshot, gather, take
from app.projects.targets import to_targets
from app.queue.context import JobContext
from app.services import Services

KEPT = 200
IN_SAMPLE_ROWS = 20_000  # at most, spread evenly, where training rows have to be predicted for this
ONE_SD_BELOW = 0.15865525  # the share of a Gaussian below it
ROWS_AT_ONCE = 4096

Floats = np.ndarray[Any, np.dtype[np.float64]]


def doubt_labels(
    job: JobContext,
    services: Services,
    project: Project,
    labels: Snapshot,
    fitted: "bc.Fitted",
    members: "bc.Ensemble",
) -> dict[str, Any]:
    """By predictions of rows while they were held out, where the method keeps them. Else by the ensemble's own of the
    rows that it learnt from (`in_sample`): these contradict a label only where the training did not follow it."""
    kept = fitted.held_out()
    if kept is not None:
        places = np.flatnonzero(kept[1].cpu().numpy()[: labels.n_train])
        mean, variance = (moment[places] for moment in _moments(kept[0]))
    else:
        n_rows = min(labels.n_train, IN_SAMPLE_ROWS)
        places = np.unique(np.linspace(0, labels.n_train - 1, n_rows).astype(np.int64))
        mean, variance = _predict(job, services, project, labels, members, places)
    parts = take(labels.train, places)
    where = [(part.data.pool_id, int(row)) for part in parts for row in part.rows]
    said = [value for part in parts for value in part.values]
    targets = to_targets(project.task, said)
    is_classes = project.task["kind"] == "classification"
    found = bc.advice.doubt_labels(mean, targets) if is_classes else bc.advice.doubt_numbers(targets, mean, variance)
    items = []
    for i, row in enumerate(found.rows[:KEPT].tolist()):
        item = {"pool_id": where[row][0], "row": where[row][1], "is_strong": bool(found.is_strong[i])}
        if is_classes:
            number = int(found.predicted[i])
            item |= {"label": said[row], "predicted": project.task["classes"][number]}
            item |= {"probability": mean[row, number].item(), "label_probability": mean[row, targets[row]].item()}
        else:
            item |= {"label": np.asarray(said[row], dtype=float).tolist(), "predicted": found.predicted[i].tolist()}
            item |= {"distance": float(found.score[i])}
        items.append(item)
    other = np.flatnonzero(mean.argmax(1) != targets) if is_classes else found.rows
    counted = {
        "n_rows": np.arange(len(places)),
        "n": found.rows,
        "n_strong": found.rows[found.is_strong],
        "n_sure": found.sure,
        "n_other": other,
    }
    pools = np.array([pool_id for pool_id, _ in where])
    return {
        "in_sample": kept is None,
        **{name: len(rows) for name, rows in counted.items()},
        "expected": found.expected,
        "by_pool": {  # a pool may be deleted before anybody reads this
            pool_id: {name: int((pools[rows] == pool_id).sum()) for name, rows in counted.items()}
            for pool_id in dict.fromkeys(pools.tolist())
        },
        "items": items,
    }


def _predict(
    job: JobContext, services: Services, project: Project, labels: Snapshot, members: "bc.Ensemble", places: Any
) -> tuple[Floats, Floats]:
    found = []
    for start in range(0, len(places), ROWS_AT_ONCE):
        job.progress(start, len(places), "looking for labels in doubt")
        x, _ = gather(services, project, take(labels.train, places[start : start + ROWS_AT_ONCE]))
        found.append(_moments(members.predict(x)))
    mean, variance = (np.concatenate(column) for column in zip(*found, strict=True))
    return mean, variance


def _moments(predictive: "bc.Predictive") -> tuple[Floats, Floats]:
    """Class probabilities [N, C], or means and variances of y [N] or [N, T], these by the quantiles that a Gaussian has
    one sd away: a broad member of small weight, which expects far labels, is not to excuse them."""
    mean = predictive.mean().cpu().double().numpy()
    if isinstance(predictive, bc.GaussianPredictive):
        low, high = predictive.quantile((ONE_SD_BELOW, 1 - ONE_SD_BELOW)).cpu().double().numpy()
        return mean, np.square((high - low) / 2)
    return mean, mean * (1 - mean)
