"""`bensemble`: the service's commands, and ranking and backtests of files without a service."""

import argparse
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from app.supervisor import EX_CONFIG, Command, Supervisor

if TYPE_CHECKING:
    from app.db.engine import Database
    from app.settings import Settings

WORKERS = {"trainer": "train,simulate", "scorer": "ingest,score,design"}
"""Of `up`, with their queues: a simulation takes long, and no participant's proposal is to wait for it."""
SWEEP_SECONDS = 600.0
"""How often a worker asks whether the storage wants sweeping."""

logger = logging.getLogger(__name__)


class Unusable(Exception):
    """A command can't do what it was asked for; the text is for the operator."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments) or 0)
        if sys.stdout is not None:  # as it is where it was closed
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read what we print has had enough; nothing is left to be written at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if (reason := _explain(error)) is None:
            raise
        print(f"bensemble: {reason}", file=sys.stderr)
        return EX_CONFIG


def _explain(error: Exception) -> str | None:
    """One line for what the operator can mend; None for what is our own fault."""
    from pydantic import ValidationError
    from sqlalchemy.exc import ArgumentError, OperationalError

    from app.errors import Problem
    from app.storage.errors import StorageError

    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, ValidationError) and error.title == "Settings":
        first = error.errors()[0]
        if not first["loc"]:  # of settings that don't go together; the text names them
            return first["msg"].removeprefix("Value error, ")
        return f"BENSEMBLE_{str(first['loc'][0]).upper()} is {first['input']!r}: {first['msg']}"
    if isinstance(error, OperationalError):
        reason = str(error.orig).strip().splitlines()[0]
        return f"the database does not answer ({reason}); check BENSEMBLE_DATABASE_URL"
    if isinstance(error, ArgumentError) or (type(error) is ValueError and "database" in str(error)):
        return f"{error}; check BENSEMBLE_DATABASE_URL"
    if isinstance(error, (OSError, StorageError)):
        return f"{error}; check BENSEMBLE_DATA_DIR and BENSEMBLE_STORAGE_URL"
    return error.detail if isinstance(error, Problem) else None


class _Version(argparse.Action):
    """Of what is installed, read when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"bensemble {version('bensemble-service')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bensemble",
        description="What should we label or measure next? Settings are BENSEMBLE_… environment variables.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(required=True, metavar="command")

    up = commands.add_parser("up", help="migrate, then run the API and two workers until Ctrl-C")
    up.set_defaults(run=_up)

    api = commands.add_parser("api", help="run the API alone")
    api.set_defaults(run=_api)

    worker = commands.add_parser("worker", help="run one worker; any number, on any number of machines")
    worker.add_argument("--queues", default="ingest,score,train,design,simulate", help="comma-separated (default: all)")
    worker.add_argument("--device", help="auto, cpu, cuda or cuda:N (default: BENSEMBLE_DEVICE)")
    worker.set_defaults(run=_worker)

    migrate = commands.add_parser("migrate", help="bring the database to the newest schema")
    migrate.set_defaults(run=_migrate)

    openapi = commands.add_parser("openapi", help="print the OpenAPI document of the API")
    openapi.set_defaults(run=_openapi)

    demo = commands.add_parser("demo", help="active learning on handwritten digits through a running service")
    demo.add_argument("--url", help="of the service (default: from BENSEMBLE_HOST and BENSEMBLE_PORT)")
    demo.add_argument("--key", help="API key (default: BENSEMBLE_API_KEY, or a new one if the database is at hand)")
    demo.add_argument("--rounds", type=int, default=8)
    demo.add_argument("--plot", type=Path, default=Path("demo.png"), help="where the picture goes")
    demo.set_defaults(run=_demo)

    key = commands.add_parser("key", help="API keys").add_subparsers(required=True, metavar="action")
    create = key.add_parser("create", help="make a key and print it alone on standard output")
    create.add_argument("--name", required=True)
    create.add_argument(
        "--scope",
        action="append",
        choices=["read", "label", "write", "admin"],
        help="each includes the lesser (default: admin, as over REST; name a lesser one for a key that you hand on)",
    )
    create.add_argument("--project", action="append", metavar="ID", help="a project it can see (default: all)")
    create.set_defaults(run=_create_key)

    rank = commands.add_parser("rank", help="rank a file of rows with an ensemble file; no service needed")
    rank.add_argument("--ensemble", type=Path, required=True, help="as GET /v1/ensembles/{id}/file gives it")
    rank.add_argument("--pool", type=Path, required=True, help="npy, Parquet, Arrow, CSV or NDJSON")
    choice = "name, or JSON with options (default: what the service would take; see docs/methods.md)"
    rank.add_argument("--acquisition", help=choice)
    rank.add_argument("--selection", help=choice)
    rank.add_argument("--target", type=Path, help="for epig: a file with the rows that are to be predicted well")
    rank.add_argument("--k", type=int, default=20)
    rank.add_argument("--seed", type=int, default=0)
    rank.add_argument("--output", type=Path, help="CSV file (default: standard output)")
    rank.set_defaults(run=_rank)
    backtest = commands.add_parser(
        "backtest", help="would active learning have saved labels on a file of labelled rows? no service needed"
    )
    backtest.add_argument("--data", type=Path, required=True, help="Parquet, Arrow, CSV or NDJSON; or npy, see --label")
    backtest.add_argument(
        "--label", required=True, help="the column of labels; for npy rows, an npy file of as many labels"
    )
    backtest.add_argument(
        "--task", choices=["classification", "regression"], help="default: guessed from the labels, and said"
    )
    backtest.add_argument("--k", type=int, default=20, help="labels a round (default: 20)")
    backtest.add_argument("--rounds", type=int, help="default: 10, or as many as the labels allow")
    backtest.add_argument("--seeds", type=int, default=3, help="how often all is played (default: 3)")
    backtest.add_argument(
        "--strategies",
        nargs="*",
        metavar="STRATEGY",
        help='names, such as margin, entropy, bald, power_bald, variance or kcenter, or JSON: {"name": "mine", '
        '"acquisition": …, "selection": …, "posterior": …, "model": …} (default and random are always played)',
    )
    backtest.add_argument("--plot", type=Path, default=Path("backtest.png"), help="where the picture goes")
    backtest.set_defaults(run=_backtest)
    return parser


def _up(arguments: argparse.Namespace) -> int:
    from app.services import open_objects

    settings = _settings_with_logs()
    with _listen(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
    open_objects(settings).ping()
    database = _migrated(settings.database_url)
    first_key = _first_key(database)
    database.dispose()
    url = f"http://{_reachable(settings.host)}:{port}"
    key_hint = None if first_key or not settings.auth else _key_hint()
    threading.Thread(target=_greet, args=(url, first_key, key_hint), daemon=True).start()
    me = [sys.executable, "-m", "app.cli"]
    return Supervisor(
        {
            "api": Command(argv=[*me, "api"], env={"BENSEMBLE_PORT": str(port)}),
            **{name: Command(argv=[*me, "worker", "--queues", queues]) for name, queues in WORKERS.items()},
        }
    ).run()


def _settings_with_logs() -> "Settings":
    from app.settings import get_settings, warn_of_unknown
    from app.web.serving.logs import configure_logs

    settings = get_settings()
    configure_logs(settings.log_level, settings.log_format)
    warn_of_unknown(os.environ)
    return settings


def _first_key(database: "Database") -> str | None:
    """A key for whoever starts the service on an empty database."""
    from sqlalchemy import select

    from app.db.tables import ApiKey
    from app.web.auth import create_key

    with database.write() as session:
        if session.execute(select(ApiKey.id).limit(1)).first() is not None:
            return None
        return create_key(session, name="first", scopes=["admin"])[1]


def _key_hint() -> str:
    """For who has lost the key of the first start; only its hash is kept."""
    command = sys.argv[0] if Path(sys.argv[0]).name == "bensemble" else "bensemble"
    return f"the one shown at the first start; for another:  {command} key create --name NAME"


def _greet(url: str, first_key: str | None, key_hint: str | None) -> None:
    """Printed once the service answers; the key is printed whatever happens, since it can't be had again."""
    if first_key:
        print(f"\n  API key (shown once, keep it):  {first_key}\n", flush=True)
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2):
                break
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    else:
        return
    key = f"  API key:          {key_hint}\n" if key_hint else ""
    sign_in = f"#key={first_key}" if first_key else ""  # after a #: it is sent to nobody
    page = f"  Open the page:    {url}/{sign_in}\n"
    print(f"  Bensemble is up:  {url}\n{page}  Documentation:    {url}/docs\n{key}  Stop with Ctrl-C.\n", flush=True)


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = f"cannot listen on {host}:{port} ({error.strerror}); set BENSEMBLE_PORT to a free port"
        raise Unusable(reason) from error
    return listener


def _api(arguments: argparse.Namespace) -> int:
    # requests compute on a thread each: libraries that start their own for a small product wait longer than they work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    settings = _settings_with_logs()
    _look_at_schema(settings.database_url)
    listener = _listen(settings.host, settings.port)
    import uvicorn  # after the port is known to be free: the application takes seconds to import

    from app.main import create_app
    from app.web.memory import freeze_memory
    from app.web.serving.server import Server

    config = uvicorn.Config(
        create_app(settings), log_config=None, access_log=False, timeout_graceful_shutdown=5, server_header=False
    )
    freeze_memory()
    Server(config).run(sockets=[listener])
    return 0


def _look_at_schema(database_url: str) -> None:
    """A newer schema than the code's raises. Anything else may be mended while the API runs: it only says so."""
    from sqlalchemy.exc import SQLAlchemyError

    from app.db.engine import Database
    from app.db.migrate import NewerSchema, schema_problem

    database = Database.connect(database_url)
    try:
        problem = schema_problem(database)
    except SQLAlchemyError:
        return  # /readyz says what is wrong with it
    finally:
        database.dispose()
    if isinstance(problem, NewerSchema):
        raise problem
    if problem is not None:
        logger.warning("%s; every call is answered 503 until then", problem.detail)


def _worker(arguments: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads sleep: other workers want the cores too

    from app.housekeeping.sweep import queue_sweep
    from app.queue.handlers import HANDLERS, QUEUES
    from app.queue.worker import Worker
    from app.schedules.fire import tick
    from app.settings import get_settings

    queues = [name.strip() for name in arguments.queues.split(",") if name.strip()]
    unknown = [name for name in queues if name not in QUEUES]
    if unknown or not queues:
        raise Unusable(f"no queue {', '.join(map(repr, unknown))}; there are {', '.join(QUEUES)}")
    if arguments.device:
        os.environ["BENSEMBLE_DEVICE"] = arguments.device
        get_settings.cache_clear()
    settings = _settings_with_logs()
    _check_device(settings.device)
    swept_at = -SWEEP_SECONDS

    def now_and_then(database: "Database") -> None:
        nonlocal swept_at
        tick(database, settings)
        if time.monotonic() - swept_at >= SWEEP_SECONDS:
            queue_sweep(database)
            swept_at = time.monotonic()

    preload = [module for name in queues for module in QUEUES[name]]
    Worker(settings, queues, handlers=HANDLERS, tick=now_and_then, preload=preload).run_until_signal()
    return 0


_TRY_DEVICE = """
import sys
from bensemble_core.ensemble.devices import usable_device
from bensemble_core.errors import BensembleError
try:
    usable_device(sys.argv[1])
except BensembleError as error:
    sys.exit(str(error))
"""


def _check_device(device: str) -> None:
    """Tried in a process of its own: this one stays free of torch. A worker that can't compute must not take jobs."""
    if device not in ("auto", "cpu"):
        trial = subprocess.run([sys.executable, "-c", _TRY_DEVICE, device], capture_output=True, text=True)
        if trial.returncode != 0:
            raise Unusable(f"BENSEMBLE_DEVICE: {trial.stderr.strip().splitlines()[-1]}, or auto")


def _migrated(database_url: str) -> "Database":
    from app.db.engine import Database
    from app.db.migrate import migrate

    database = Database.connect(database_url)
    migrate(database)
    return database


def _migrate(arguments: argparse.Namespace) -> int:
    from app.settings import get_settings

    _migrated(get_settings().database_url).dispose()
    return 0


def _openapi(arguments: argparse.Namespace) -> int:
    from app.main import create_app

    print(json.dumps(create_app().openapi(), indent=1))
    return 0


def _create_key(arguments: argparse.Namespace) -> int:
    from app.settings import get_settings
    from app.web.auth import DEFAULT_SCOPE, create_key

    with _migrated(get_settings().database_url).write() as session:
        _, secret = create_key(
            session, name=arguments.name, scopes=arguments.scope or [DEFAULT_SCOPE], project_ids=arguments.project
        )
    print(secret)
    return 0


def _rank(arguments: argparse.Namespace) -> int:
    from app.rankings.rank_files import rank_files

    return rank_files(arguments)


def _backtest(arguments: argparse.Namespace) -> int:
    from app.backtests.backtest_files import backtest_files

    return backtest_files(arguments)


def _demo(arguments: argparse.Namespace) -> int:
    from app.demo import run_demo

    return run_demo(arguments)


if __name__ == "__main__":
    sys.exit(main())
