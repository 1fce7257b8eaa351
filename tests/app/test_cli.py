"""The commands, as real processes."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest

from app.cli import WORKERS, _parser, main
from app.demo import STRATEGIES, Point, _judge, _text_plot, area
from app.queue.handlers import QUEUES
from app.settings import get_settings
from tests.app.upping import Up, clean_environment, service_up
from tests.app.working import is_gone, wait_for


def run(*arguments: str, env: dict[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "app.cli", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_key_create_prints_the_key_alone_and_it_opens_the_door(tmp_path: Path) -> None:
    made = run("key", "create", "--name", "ada", "--scope", "read", env=clean_environment(tmp_path), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"bk_[\w-]{43}\n", made.stdout)
    from app.db.engine import Database
    from app.web.auth import authenticate

    database = Database.connect(f"sqlite:///{tmp_path / 'bensemble.db'}")
    with database.read() as session:
        caller = authenticate(session, made.stdout.strip())
    database.dispose()
    assert (caller.name, caller.scopes) == ("ada", ("read",))


def test_up_starts_on_nothing_and_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with service_up(tmp_path) as up:
        assert httpx.get(f"{up.url}/readyz").status_code == 200
        assert up.said.count("bk_") == 2  # by itself, and in the address that signs a browser in
        assert f"Open the page:    {up.url}/#key={up.key}\n" in up.said
        assert "key create" not in up.said
        assert f"{up.url}/docs" in up.said
        headers = {"Authorization": f"Bearer {up.key}"}
        assert httpx.get(f"{up.url}/v1/projects", headers=headers).json() == {"items": [], "next_cursor": None}
        wait_for(lambda: len(up.pids()) >= 4)  # itself, the API, two workers; then their children
        assert up.stop(signal.SIGINT) == 0
        assert all(is_gone(pid) for pid in up.pids())


def test_a_second_start_prints_no_key_but_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in clean_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", [".venv/bin/bensemble", "up"])
    monkeypatch.setattr("app.web.serving.logs.configure_logs", lambda *_: None)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: nullcontext())  # the service answers at once

    def run_nothing(_supervisor: object) -> int:
        for thread in threading.enumerate():
            if "_greet" in thread.name:
                thread.join()
        return 0

    monkeypatch.setattr("app.cli.Supervisor.run", run_nothing)
    get_settings.cache_clear()
    try:
        assert main(["up"]) == 0
        first = capfd.readouterr().out
        assert main(["up"]) == 0
        second = capfd.readouterr().out
        monkeypatch.setenv("BENSEMBLE_AUTH", "false")
        get_settings.cache_clear()
        assert main(["up"]) == 0
    finally:
        get_settings.cache_clear()
    assert first.count("bk_") == 2
    assert re.search(r"Open the page:    (http://\S+/)#key=bk_\S+\n", first)
    assert "key create" not in first
    assert "bk_" not in second
    assert re.search(r"Open the page:    http://\S+:\d+/\n", second)
    assert "the one shown at the first start; for another:  .venv/bin/bensemble key create --name NAME\n" in second
    assert "key" not in capfd.readouterr().out, "none is asked for"


def test_up_killed_outright_takes_its_processes_along(tmp_path: Path) -> None:
    with service_up(tmp_path) as up:
        assert up.url
        pids = up.pids()
        os.kill(up.process.pid, signal.SIGKILL)
        up.process.wait(60)
        wait_for(lambda: all(is_gone(pid) for pid in pids))


@pytest.mark.parametrize("command", ["up", "api"])
def test_a_busy_port_is_a_configuration_error_that_says_what_to_do(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        env = clean_environment(tmp_path, BENSEMBLE_PORT=str(taken.getsockname()[1]))
        refused = run(command, env=env, cwd=tmp_path)
    assert refused.returncode == 78
    assert "BENSEMBLE_PORT" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_workers_share_all_queues_and_no_proposal_waits_for_a_simulation() -> None:
    shares = [queues.split(",") for queues in WORKERS.values()]
    assert sorted(name for share in shares for name in share) == sorted(QUEUES)
    assert not any({"design", "simulate"} <= set(share) for share in shares)
    assert set(_parser().parse_args(["worker"]).queues.split(",")) == set(QUEUES)


def test_a_worker_for_an_unknown_queue_is_refused(tmp_path: Path) -> None:
    refused = run("worker", "--queues", "train,cook", env=clean_environment(tmp_path), cwd=tmp_path)
    assert refused.returncode == 78
    assert "'cook'" in refused.stderr


def test_the_demo_needs_a_service_at_the_url_it_was_given(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main(["demo", "--url", url]) == 2
    assert url in capfd.readouterr().err


def test_the_demo_runs_through_a_service_and_draws(tmp_path: Path) -> None:
    with service_up(tmp_path) as up:
        env = clean_environment(tmp_path / "data", BENSEMBLE_PORT=up.url.rsplit(":", 1)[1])
        ran = run("demo", "--rounds", "1", "--plot", "curves.png", env=env, cwd=tmp_path)  # makes a key by itself
        assert ran.returncode in (0, 1), ran.stderr  # one round proves nothing about who wins
        assert f"Using the service at {up.url}" in ran.stdout
        assert re.search(r"^│ +40 │", ran.stdout, re.MULTILINE)
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "curves.png").stat().st_size < 100_000
        assert up.process.poll() is None


def test_ctrl_c_ends_the_demo_and_the_service_it_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])  # where nothing answers
    demo = Up(tmp_path, clean_environment(tmp_path, BENSEMBLE_PORT=port, TMPDIR=str(tmp_path)), "demo")
    wait_for(lambda: "Started http" in demo.said or demo.process.poll() is not None, 60)
    pids = demo.pids()
    assert len(pids) >= 5
    assert demo.stop(signal.SIGINT, 15) == 130
    wait_for(lambda: all(is_gone(pid) for pid in pids))
    assert "Traceback" not in demo.log.read_text()
    assert not list(tmp_path.glob("bensemble-demo-*"))


def curve(*accuracies: float) -> list[Point]:
    return [Point(n_labels=20 * (i + 1), accuracy=a, nll=1.0) for i, a in enumerate(accuracies)]


def test_the_demo_is_judged_by_the_last_point_and_the_area() -> None:
    from rich.console import Console

    console = Console(quiet=True)
    assert list(STRATEGIES) == ["active", "random"]
    assert area(curve(0.0, 1.0, 0.0)) == pytest.approx(0.5)
    assert _judge({"active": curve(0.5, 0.8, 0.9), "random": curve(0.5, 0.7, 0.8)}, console) == 0
    assert _judge({"active": curve(0.5, 0.8, 0.8), "random": curve(0.5, 0.7, 0.8)}, console) == 1
    assert _judge({"active": curve(0.5, 0.5, 0.9), "random": curve(0.5, 0.8, 0.8)}, console) == 1


def test_without_matplotlib_the_curves_are_drawn_as_text() -> None:
    lines = _text_plot({"active": curve(0.5, 0.9), "random": curve(0.5, 0.7)}, height=5).splitlines()
    assert lines[0] == " 0.900 |         a"
    assert lines[2] == " 0.700 |         r"
    assert lines[4] == " 0.500 |    *     "
    assert lines[6].split() == ["20", "40"]


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("BENSEMBLE_PORT", "abc", "BENSEMBLE_PORT is 'abc'"),
        ("BENSEMBLE_DATABASE_URL", "mysql://x/y", "sqlite:///… or postgresql://…, not mysql"),
        ("BENSEMBLE_DATABASE_URL", "nonsense", "check BENSEMBLE_DATABASE_URL"),
        ("BENSEMBLE_STORAGE_URL", "ftp://x", "file:///absolute/folder or s3://bucket/prefix"),
        ("BENSEMBLE_DATA_DIR", "/proc/nope", "check BENSEMBLE_DATA_DIR"),
    ],
)
def test_a_setting_that_cannot_work_is_told_in_one_line(tmp_path: Path, variable: str, value: str, says: str) -> None:
    env = {**os.environ, "BENSEMBLE_DATA_DIR": str(tmp_path), "BENSEMBLE_PORT": "0", variable: value}
    run = subprocess.run([sys.executable, "-m", "app.cli", "up"], env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 78
    assert says in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("command", ["worker", "up"])
def test_ray_without_an_address_is_told_in_one_line(tmp_path: Path, command: str) -> None:
    refused = run(command, env=clean_environment(tmp_path, BENSEMBLE_EXECUTOR="ray"), cwd=tmp_path)
    assert refused.returncode == 78
    assert refused.stderr.splitlines() == [
        "bensemble: the executor ray connects to a cluster of yours; set BENSEMBLE_RAY_ADDRESS, e.g. to auto"
    ]


def test_a_worker_that_cannot_use_its_device_takes_no_jobs(tmp_path: Path) -> None:
    env = {**os.environ, "BENSEMBLE_DATA_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "app.cli", "worker", "--device", "nonsense:0"]
    run = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 78
    assert "BENSEMBLE_DEVICE: device 'nonsense:0' cannot be used here" in run.stderr


def test_a_command_does_its_work_where_nothing_can_be_printed(tmp_path: Path) -> None:
    env = {**os.environ, "BENSEMBLE_DATA_DIR": str(tmp_path)}
    closed = f"{shlex.quote(sys.executable)} -m app.cli migrate >&-"
    run = subprocess.run(["sh", "-c", closed], env=env, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
