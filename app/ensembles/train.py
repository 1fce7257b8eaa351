"""The job that trains an ensemble on the labels there are when it starts, measures it and publishes it."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

import bensemble_core as bc
from app.db import pools
from app.db.tables import Ensemble, EnsembleResult, PoolData, Project
from app.ensembles.calibrate import Calibrated, calibrate_ensemble
from app.ensembles.collect_labels import Snapshot, collect_labels, gather, sample_unlabelled
from app.ensembles.keep_progress import ProgressKeeper, trial_json
from app.ensembles.measure import measure, measure_rows
from app.ensembles.metrics_schema import without_long
from app.ensembles.retrospect import look_back
from app.ensembles.self_report import self_report
from app.errors import Malformed
from app.events import EnsembleTrained, publish
from app.methods.schemas import as_json, posterior_of
from app.projects.create import FOLDS, check_training, likelihood_of, needs_tasks, prior_of, takes_folds
from app.queue.context import JobContext, JobFailed, still_there
from app.services import Services, job_services

logger = logging.getLogger(__name__)
MEASURED_WITH = 20  # draws of a trial


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trained:
    fitted: "bc.Fitted"
    tuned: "bc.Tuned | None" = None
    by_folds: "bc.Calibrated | None" = None


def train_ensemble(job: JobContext) -> None:
    started = time.monotonic()
    services = job_services(job)
    with job.database.read() as session:
        gone = "the ensemble, or its project, was deleted before it was trained"
        ensemble = still_there(session, Ensemble, job.payload["ensemble_id"], gone)
        project = still_there(session, Project, ensemble.project_id, gone)
        watermark = (job.checkpoint or {}).get("watermark", project.last_seq)
        over_tasks = needs_tasks(posterior_of(ensemble.posterior))
        labels = collect_labels(session, project, watermark, with_tasks=over_tasks)
        parent = session.get(EnsembleResult, ensemble.parent_id) if ensemble.warm_start else None
        candidates = [data for _, data in pools.pools_with_data(session, project.id, "candidates")]
    if labels.n_train == 0:
        raise JobFailed("Nothing to train on", "No row of a candidate pool has an agreed label; label some rows.")
    if (job.checkpoint or {}).get("digest") != labels.digest:  # the first attempt, or a pool was deleted since
        pool_ids = [data.pool_id for data in candidates]
        calibrate = job.payload.get("calibrate")
        calibrate = project.calibrate if calibrate is None else calibrate
        fixed = {"watermark": watermark, "digest": labels.digest, "pool_ids": pool_ids, "calibrate": calibrate}
        job.save_checkpoint(fixed)
    seen = (job.checkpoint or {}).get("pool_ids", [])  # a pool that came later is not for this training
    candidates = [data for data in candidates if data.pool_id in seen]
    calibrate = (job.checkpoint or {}).get("calibrate", True)
    trained = _fit(job, services, project, ensemble, labels, parent, candidates, calibrate)
    fitted, tuned = trained.fitted, trained.tuned
    sampled = fitted.sample(ensemble.n_members, seed=ensemble.seed, at_most=True).to("cpu")
    sampled, compiled = _compiled(job, sampled)
    calibrated = calibrate_ensemble(
        services, project, labels, sampled.to(job.device), calibrate=calibrate, by_folds=trained.by_folds
    )
    metrics = measure(job, services, project, labels, calibrated, fitted=fitted, watermark=watermark)
    sampled = calibrated.ensemble.to("cpu")
    told = self_report(fitted)
    prefix = f"ensembles/{ensemble.id}/{job.token}"
    _store(services, f"{prefix}/ensemble.safetensors", sampled.save)
    _store(services, f"{prefix}/fitted.safetensors", fitted.save)

    def measured(other: "bc.Ensemble") -> dict[str, Any]:
        other = other if calibrate else replace(other, calibration=None)
        return measure_rows(job, services, project, labels, Calibrated(ensemble=other, way="own folds"))

    looked = look_back(job, services, project, ensemble, labels, fitted, sampled, candidates, prefix, measured)
    result = EnsembleResult(
        ensemble_id=ensemble.id,
        file_key=f"{prefix}/ensemble.safetensors",
        fitted_key=f"{prefix}/fitted.safetensors",
        n_bytes=services.objects.size(f"{prefix}/ensemble.safetensors"),
        watermark=watermark,
        snapshot_hash=labels.digest,
        n_labels=labels.n_train,
        n_members=sampled.n_members,
        metrics=metrics,
        diagnostics=told.diagnostics,
        log_evidence=told.log_evidence,
        bound=told.bound,
        tuning=_tuning_json(tuned) if tuned is not None else None,
        retrospect=looked,
        seconds=time.monotonic() - started,
    )
    outcome = {"ensemble_id": ensemble.id, "version": ensemble.version, "metrics": without_long(metrics), **compiled}
    if sampled.notes:
        outcome["notes"] = list(sampled.notes)
    with job.finish(outcome) as session:
        session.add(result)
        if tuned is not None:
            session.get_one(Ensemble, ensemble.id).posterior = as_json(tuned.posterior)
        session.flush()
        schedule_ids = job.payload.get("schedule_ids", [])
        publish(session, EnsembleTrained(settings=job.settings, project=project, schedule_ids=schedule_ids))
    services.objects.delete_prefix(f"snapshots/{ensemble.id}/")


def _fit(
    job: JobContext,
    services: Services,
    project: Project,
    ensemble: Ensemble,
    labels: Snapshot,
    parent: EnsembleResult | None,
    candidates: list[PoolData],
    calibrate: bool | str,
) -> _Trained:
    posterior = posterior_of(ensemble.posterior)
    trials = (job.payload.get("tune") or {}).get("trials", 0)
    if trials and labels.n_train < 2:
        detail = "Tuning compares settings on labelled rows that it holds out, and there is only one; label some more."
        raise JobFailed("Too few labels to tune on", detail)
    kept = ProgressKeeper(job=job, services=services, prefix=f"snapshots/{ensemble.id}")
    common: dict[str, Any] = {
        "likelihood": likelihood_of(project.task),
        "prior": prior_of(project.task),
        "seed": ensemble.seed,
        "warm": bc.load(services.objects.local_path(parent.fitted_key)) if parent is not None else None,
        "report": kept.report,
    }
    rows = _rows(services, project, labels) if needs_tasks(posterior) else gather(services, project, labels.train)
    if getattr(posterior, "uses_unlabelled", False) and not trials:
        common["unlabelled"] = sample_unlabelled(services, project, candidates, seed=ensemble.seed)

    by_folds = takes_folds(calibrate, posterior) and not trials

    def fit() -> _Trained:
        common["resume"] = kept.snapshot()
        if by_folds:
            n_members = min(ensemble.n_members, MEASURED_WITH)
            found = bc.fit_calibrated(
                posterior, project.model, rows, folds=FOLDS, n_members=n_members, device=job.device, **common
            )
            return _Trained(fitted=found.fitted, by_folds=found)
        if not trials:
            return _Trained(fitted=bc.fit(posterior, project.model, rows, device=job.device, **common))
        tuned = bc.tune(
            posterior,
            project.model,
            rows,
            trials=trials,
            n_members=min(ensemble.n_members, MEASURED_WITH),
            done=kept.trials(),
            on_trial=kept.keep_trial,
            fit_options={"device": job.device},
            **common,
        )
        return _Trained(fitted=tuned.fitted, tuned=tuned)

    try:
        check_training(project, posterior, job.settings, n_fits=trials + 1, calibrate=calibrate)
        try:
            return fit()
        except bc.InvalidSnapshot as error:  # of another version of the method: nothing is lost but time
            logger.warning("a training starts again from its seed", extra={"reason": str(error)})
            kept.forget()
            return fit()
    except (bc.BensembleError, ValueError, Malformed) as error:  # trying again would end the same way
        raise JobFailed("The training failed", str(error)) from error


def _rows(services: Services, project: Project, labels: Snapshot) -> "bc.Data":
    """The candidates' rows as task 0, and each task pool's as one of its own, from 1 on."""
    x, y = gather(services, project, [*labels.train, *labels.tasks])
    sizes = [labels.n_train, *(len(part.rows) for part in labels.tasks)]
    task = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return bc.Data(x=torch.from_numpy(x), y=torch.from_numpy(y), task=task)


def _tuning_json(tuned: "bc.Tuned") -> dict[str, Any]:
    trials = [trial_json(trial) for trial in tuned.trials]
    return {"metric": tuned.metric, "trials": trials, "chosen": dict(tuned.settings)}


def _compiled(job: JobContext, sampled: "bc.Ensemble") -> tuple["bc.Ensemble", dict[str, Any]]:
    """The ensemble as it will be scored, and for the job's result how long compiling took or why it was left."""
    if not job.settings.compile:
        return sampled, {}
    job.progress(0, 1, "compiling the network")
    started = time.monotonic()
    try:
        made = sampled.compile()
    except bc.InvalidModel as error:
        logger.warning("the network is not compiled", extra={"reason": str(error)})
        return sampled, {"compile_note": str(error)}
    if not made.plan.compiled:
        return made, {"compile_note": "networks of this kind run as batched products, where nothing is left to gain"}
    return made, {"compile_seconds": time.monotonic() - started}


def _store(services: Services, key: str, save: Callable[[Any], None]) -> None:
    with services.objects.scratch() as folder:
        path = folder / "file"
        save(path)
        services.objects.put_file(key, path, consume=True)
