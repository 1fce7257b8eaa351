"""The service under kill -9: nothing is lost, nothing is done twice, and the bits are the same."""

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sqlalchemy import func, select

from app.db.tables import EnsembleResult, Job, Pool, Project, RankingItem, RankingResult
from tests.app.working import is_gone, on_sqlite, wait_for
from tests.crash.running import Running, running

LEASE, POLL, SLACK = 2.0, 0.05, 50.0  # slack: what a busy machine may add to anything


def prepare(service: Running, *, epochs: int, n_rows: int = 200, members: int = 3) -> tuple[str, str]:
    """A project with a pool of which forty rows are labelled."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 16)).astype(np.float32)
    project = service.post(
        "/projects",
        {
            "name": "crash",
            "task": {"kind": "classification", "classes": ["a", "b"]},
            "input": {"shape": [16]},
            "model": {"name": "mlp", "hidden": [128, 128]},
            "posterior": {"name": "deep_ensemble", "members": members, "epochs": epochs, "batch_size": 8},
        },
    )
    pool_id = service.upload(project["id"], x)
    labels = [{"pool_id": pool_id, "row": i, "value": "ab"[int(x[i, 0] > 0)]} for i in range(40)]
    service.post(f"/projects/{project['id']}/labels", {"labels": labels})
    return project["id"], pool_id


def count(service: Running, table: Any) -> int:
    with service.database.read() as session:
        return session.execute(select(func.count()).select_from(table)).scalar_one()


def file_of(service: Running, ensemble_id: str) -> bytes:
    return service.client.get(f"/v1/ensembles/{ensemble_id}/file").content


def has_snapshot(job: Job) -> bool:
    return "snapshot" in (job.checkpoint or {})


def test_a_training_killed_half_way_is_finished_by_another_worker_with_the_same_bits(
    database_url: str, tmp_path: Path
) -> None:
    with running(database_url, tmp_path) as service:
        service.start_api()
        service.start("worker")
        service.start("worker")
        project_id, _ = prepare(service, epochs=400)
        whole = service.post(f"/projects/{project_id}/ensembles", {})
        service.wait(whole["job"]["id"])
        cut = service.post(f"/projects/{project_id}/ensembles", {})
        job = service.until(cut["job"]["id"], has_snapshot)
        victim, started_at = service.holder(job), job.started_at
        children = victim.children(recursive=True)
        victim.kill()
        killed = time.monotonic()
        taken = service.until(job.id, lambda now: now.token > job.token)
        assert time.monotonic() - killed < LEASE + POLL + SLACK
        assert taken.started_at is not None
        assert started_at is not None
        assert taken.worker != job.worker
        wait_for(lambda: all(is_gone(child.pid) for child in children))
        done = service.wait(job.id)
        assert (done.attempts, done.crashes) == (2, 1)
        assert file_of(service, cut["ensemble"]["id"]) == file_of(service, whole["ensemble"]["id"])
        assert count(service, EnsembleResult) == 2


@on_sqlite
def test_chains_killed_half_way_go_on_with_the_same_bits(database_url: str, tmp_path: Path) -> None:
    posterior = {"name": "hmc", "samples": 40, "warmup": 40, "trajectory": 1000.0, "chains": 2}
    with running(database_url, tmp_path) as service:
        service.start_api()
        service.start("worker")
        project_id, _ = prepare(service, epochs=1)
        whole = service.post(f"/projects/{project_id}/ensembles", {"posterior": posterior})
        service.wait(whole["job"]["id"])
        service.start("worker")
        cut = service.post(f"/projects/{project_id}/ensembles", {"posterior": posterior})
        job = service.until(cut["job"]["id"], has_snapshot)
        service.holder(job).kill()
        done = service.wait(job.id)
        assert (done.attempts, done.crashes) == (2, 1)
        assert file_of(service, cut["ensemble"]["id"]) == file_of(service, whole["ensemble"]["id"])
        shown = service.get(f"/ensembles/{cut['ensemble']['id']}")["diagnostics"]
        assert shown == service.get(f"/ensembles/{whole['ensemble']['id']}")["diagnostics"]
        assert "rhat" in shown["values"]


@on_sqlite
def test_a_tuning_killed_half_way_keeps_its_trials_and_ends_the_same_and_a_cancel_ends_it_at_once(
    database_url: str, tmp_path: Path
) -> None:
    """Trials are kept with the seconds that they took: one that was run again, or went on, has others or none."""

    def is_in_second_trial(job: Job) -> bool:
        return bool((job.checkpoint or {}).get("trials")) and has_snapshot(job)

    with running(database_url, tmp_path, checkpoint_seconds=0.05) as service:
        service.start("worker", "--queues", "train")
        service.start("worker", "--queues", "train,ingest")
        service.start_api()
        project_id, _ = prepare(service, epochs=100)
        wanted = {"tune": {"trials": 3}}
        whole = service.post(f"/projects/{project_id}/ensembles", wanted)
        service.wait(whole["job"]["id"])
        cut = service.post(f"/projects/{project_id}/ensembles", wanted)
        victim = service.holder(service.until(cut["job"]["id"], is_in_second_trial))
        children = victim.children(recursive=True)
        victim.kill()
        wait_for(lambda: all(is_gone(child.pid) for child in children))
        kept = service.job(cut["job"]["id"]).checkpoint or {}
        done = service.wait(cut["job"]["id"])
        assert (done.attempts, done.crashes) == (2, 1)
        first, second = (service.get(f"/ensembles/{each['ensemble']['id']}") for each in (whole, cut))
        trials = second["tuning"]["trials"]
        assert trials[: len(kept["trials"])] == kept["trials"]
        assert [trial["seconds"] is None for trial in trials].count(True) <= 1
        for tuning in (first["tuning"], second["tuning"]):
            tuning["trials"] = [{**trial, "seconds": None} for trial in tuning["trials"]]
        assert second["tuning"] == first["tuning"]
        assert file_of(service, second["id"]) == file_of(service, first["id"])
        assert not list((tmp_path / "storage" / "snapshots").rglob("*.safetensors"))
        long = service.post(f"/projects/{project_id}/ensembles", {"tune": {"trials": 100}})
        service.until(long["job"]["id"], lambda job: (job.checkpoint or {}).get("trials"))
        service.post(f"/jobs/{long['job']['id']}/cancel")
        asked = time.monotonic()
        service.until(long["job"]["id"], lambda job: job.status == "cancelled")
        assert time.monotonic() - asked < 1 + SLACK


@on_sqlite
def test_a_backtest_killed_half_way_makes_no_run_twice_and_ends_the_same(database_url: str, tmp_path: Path) -> None:
    """Runs are kept with the seconds that they took: one that was made again would have others."""

    def is_in_second_run(job: Job) -> bool:
        kept = (job.checkpoint or {}).get("runs", [])
        return any("rows" not in run for run in kept) and any("rows" in run for run in kept)

    with running(database_url, tmp_path, checkpoint_seconds=0.01) as service:
        service.start("worker", "--queues", "simulate")
        service.start("worker", "--queues", "simulate,ingest")
        service.start_api()
        project_id, pool_id = prepare(service, epochs=40)
        wanted = {"pool_id": pool_id, "k": 5, "rounds": 4, "seeds": 2, "strategies": []}
        whole = service.post(f"/projects/{project_id}/backtests", wanted)
        service.wait(whole["job"]["id"])
        cut = service.post(f"/projects/{project_id}/backtests", wanted)
        service.holder(service.until(cut["job"]["id"], is_in_second_run)).kill()
        kept = (service.job(cut["job"]["id"]).checkpoint or {})["runs"]
        done = service.wait(cut["job"]["id"])
        assert (done.attempts, done.crashes) == (2, 1)
        first, second = (service.get(f"/backtests/{each['backtest']['id']}") for each in (whole, cut))
        seconds = {(run["strategy"], run["seed"]): run["seconds"] for run in second["runs"]}
        ended = [run for run in kept if "rows" not in run]
        assert [seconds[run["strategy"], run["seed"]] for run in ended] == [run["seconds"] for run in ended]
        assert second["curves"] == first["curves"]
        assert second["recommendation"] == first["recommendation"]
        long = service.post(f"/projects/{project_id}/backtests", {**wanted, "seeds": 20})
        service.until(long["job"]["id"], lambda job: (job.checkpoint or {}).get("runs"))
        service.post(f"/jobs/{long['job']['id']}/cancel")
        service.until(long["job"]["id"], lambda job: job.status == "cancelled")


def test_a_worker_that_was_stopped_cannot_write_after_it_lost_its_lease(database_url: str, tmp_path: Path) -> None:
    with running(database_url, tmp_path) as service:
        service.start_api()
        service.start("worker")
        project_id, _ = prepare(service, epochs=400)
        asked = service.post(f"/projects/{project_id}/ensembles", {})
        job = service.until(asked["job"]["id"], has_snapshot)
        stopped = service.holder(job)
        family = [stopped, *stopped.children(recursive=True)]
        for process in family:
            process.suspend()
        service.start("worker")
        done = service.wait(job.id)
        with service.database.read() as session:
            before = session.get_one(EnsembleResult, asked["ensemble"]["id"])
        for process in family:
            if process.is_running():
                process.resume()
        wait_for(lambda: all(is_gone(process.pid) for process in family[1:]))  # its child was killed
        with service.database.read() as session:
            after = session.get_one(EnsembleResult, asked["ensemble"]["id"])
        assert (after.file_key, after.created_at) == (before.file_key, before.created_at)
        assert f"/{done.token}/" in after.file_key
        assert service.job(job.id).status == "succeeded"
        assert count(service, EnsembleResult) == 1


@pytest.mark.parametrize(
    ("database_url", "split_shards"), [("sqlite", 0), ("postgresql", 4)], indirect=["database_url"]
)
def test_a_scoring_killed_half_way_goes_on_with_the_next_shard(
    database_url: str, tmp_path: Path, split_shards: int
) -> None:
    """As one job, and as a family of jobs that two workers share."""
    with running(database_url, tmp_path, shard_bytes=1, split_shards=split_shards) as service:
        service.start_api()
        service.start("worker")
        service.start("worker")
        project_id, pool_id = prepare(service, epochs=5, n_rows=20 * 8192, members=20)
        service.wait(service.post(f"/projects/{project_id}/ensembles", {})["job"]["id"])
        request = {"acquisition": {"name": "bald"}, "selection": {"name": "power"}, "k": 25, "seed": 3}
        cut = service.post(f"/pools/{pool_id}/rankings", request)
        folder = tmp_path / "storage" / "scores"
        wait_for(lambda: len(list(folder.rglob("*.npy"))) >= 3, 60)
        with service.database.read() as session:
            kinds = ["rank_pool", "score_shards"]
            query = select(Job).where(Job.status == "running", Job.kind.in_(kinds)).order_by(Job.id)
            running_jobs = list(session.scalars(query))
        assert {job.kind for job in running_jobs} == {kinds[bool(split_shards)]}
        killed = running_jobs[0]
        service.holder(killed).kill()
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}
        service.wait(cut["job"]["id"])
        assert service.job(killed.id).attempts == 2
        stored = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}
        assert len(before) < len(stored) == 20
        assert {path: stored[path] for path in before} == before, "shards that were there were scored again"
        shutil.rmtree(folder)
        whole = service.post(f"/pools/{pool_id}/rankings", request)
        service.wait(whole["job"]["id"])
        first, second = (service.get(f"/rankings/{r['ranking']['id']}") for r in (whole, cut))
        assert first["items"] == second["items"]
        assert len(first["items"]) == 25
        assert (count(service, RankingResult), count(service, RankingItem)) == (2, 50)


CRASH_AFTER_COMMIT = """
import os, signal
from app.web import dependencies
from app.cli import main
commit = dependencies._commit
def commit_and_die(session, request, *rest):
    answer = commit(session, request, *rest)
    if request.headers.get("x-die"):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
dependencies._commit = commit_and_die
raise SystemExit(main(["api"]))
"""


@on_sqlite
def test_a_post_whose_answer_was_lost_replays_after_the_api_came_back(database_url: str, tmp_path: Path) -> None:
    with running(database_url, tmp_path) as service:
        api = service.start_api("-c", CRASH_AFTER_COMMIT)
        project = {
            "name": "once",
            "task": {"kind": "classification", "classes": ["a", "b"]},
            "input": {"shape": [2]},
        }
        key = {"Idempotency-Key": "abc"}
        with pytest.raises(Exception, match=r"disconnected|reset"):
            service.client.post("/v1/projects", json=project, headers={**key, "X-Die": "1"})
        assert api.wait(60) == -signal.SIGKILL
        assert count(service, Project) == 1
        service.start_api()
        answer = service.client.post("/v1/projects", json=project, headers=key)
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
        with service.database.read() as session:
            assert session.scalars(select(Project.id)).all() == [answer.json()["id"]]


@on_sqlite
def test_an_ingest_killed_half_way_leaves_one_pool_and_no_stray_rows(database_url: str, tmp_path: Path) -> None:
    with running(database_url, tmp_path, shard_bytes=1) as service:
        service.start_api()
        worker = service.start("worker")
        project_id = service.post(
            "/projects",
            {"name": "p", "task": {"kind": "regression"}, "input": {"shape": [256]}},
        )["id"]
        pool_id = service.post(f"/projects/{project_id}/pools", {"name": "pool"})["id"]
        path = tmp_path / "rows.npy"
        np.save(path, np.random.default_rng(0).normal(size=(200_000, 256)).astype(np.float32))
        asked = service.client.put(
            f"/v1/pools/{pool_id}/data", content=path.read_bytes(), headers={"Content-Type": "application/x-npy"}
        ).json()
        service.until(asked["job"]["id"], lambda job: job.status == "running")
        psutil.Process(worker.pid).kill()
        service.start("worker")
        service.wait(asked["job"]["id"])
        pool = service.get(f"/pools/{pool_id}")
        assert (pool["status"], pool["n_rows"]) == ("ready", 200_000)
        assert count(service, Pool) == 1
