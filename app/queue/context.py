"""What a handler sees of its job, in the child process that runs it."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, TypeVar

from sqlalchemy.orm import Session

from app.db import projects
from app.db.engine import Database
from app.db.tables import Base, Job
from app.errors import NotFound
from app.queue import queue
from app.queue.queue import LeaseLost
from app.settings import Settings

PROGRESS_SECONDS = 0.1
MAX_DETAIL = 2000

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Base)

Handler = Callable[["JobContext"], None]
Send = Callable[[dict[str, Any]], None]


class Cancelled(BaseException):
    """Somebody asked for the job's end. Not an Exception, so that a handler's broad `except` lets it through."""


class Waiting(BaseException):
    """The job has put itself back in the queue, until its children have ended or behind others."""


class JobFailed(Exception):
    """Trying again would not help; `problem` is what the user is told."""

    def __init__(self, title: str, detail: str, *, status: int = 409, **extra: Any) -> None:
        super().__init__(detail)
        self.problem = {"title": title, "detail": detail, "status": status, **extra}


@dataclass(kw_only=True)
class JobContext:
    job_id: str
    token: int
    kind: str
    payload: dict[str, Any]
    project_id: str | None
    attempt: int
    checkpoint: dict[str, Any] | None
    database: Database
    settings: Settings
    send: Send
    is_cancelled: bool = field(default=False, init=False)
    is_lost: bool = field(default=False, init=False)
    is_finished: bool = field(default=False, init=False)
    _progress: dict[str, Any] | None = field(default=None, init=False)
    _next_send: float = field(default=0.0, init=False)
    _saved_at: float = field(default_factory=time.monotonic, init=False)

    @cached_property
    def device(self) -> str:
        if self.settings.device != "auto":
            return self.settings.device
        import torch  # only a handler that computes pays for it

        return "cuda" if torch.cuda.is_available() else "cpu"

    def progress(self, done: float, total: float, message: str = "", *, at_once: bool = False) -> None:
        """Call it as often as you like: it is also where a cancel is obeyed. Ahead of a long silence say it `at_once`,
        for what follows too closely on the last report is not sent."""
        if self.is_cancelled:
            raise Cancelled
        if self.is_lost:
            raise LeaseLost(f"job {self.job_id} is no longer running under token {self.token}")
        self._progress = {"done": done, "total": total, "message": message}
        now = time.monotonic()
        if at_once or now >= self._next_send:
            self._next_send = now + PROGRESS_SECONDS
            self.send({"say": "progress", "progress": storable(self._progress)})

    def is_checkpoint_due(self) -> bool:
        return time.monotonic() >= self._saved_at + self.settings.checkpoint_seconds

    def save_checkpoint(self, data: dict[str, Any]) -> None:
        with self._fenced(), self.database.write() as session:
            queue.checkpoint(session, self.job_id, self.token, data)
        self.checkpoint, self._saved_at = data, time.monotonic()

    def children(self) -> list[Job]:
        with self.database.read() as session:
            return queue.children(session, self.job_id)

    def wait_for(
        self, kind: str, payloads: list[dict[str, Any]], *, done: float, total: float, message: str
    ) -> NoReturn:
        """Split the job: a child for each payload, shared by all workers of the queue. The handler is called again,
        from its start, when the last of them has ended; meanwhile it keeps no worker busy. What a child has done
        counts as done here, and the totals of all are what is left."""
        progress = {"done": done, "total": total, "message": message}
        with self._holding_project() as session:
            queue.wait(session, self.job_id, self.token, payloads, kind=kind, progress=progress)
        raise Waiting

    def give_way(self, *queues: str) -> None:
        """If a job is due in one of these queues, let it go first: for a long job that has just saved a checkpoint. It
        goes back into its own queue, and its handler is called again, from its start."""
        with self.database.read() as session:
            if not queue.due(session, queues):
                return
        with self._fenced(), self.database.write() as session:
            queue.give_way(session, self.job_id, self.token, progress=storable(self._progress))
        raise Waiting

    @contextmanager
    def finish(self, result: dict[str, Any]) -> Iterator[Session]:
        """A transaction for the job's result rows that commits only if the job is still ours, and marks it succeeded.
        Keep it short: it holds the project's lock, and on SQLite the only write lock there is."""
        if self.is_finished:
            raise RuntimeError("finish() was called twice")
        with self._holding_project() as session:
            # refuse a late worker before its rows collide with the newer ones, and one whose pool was just deleted
            if queue.look(session, self.job_id, self.token):
                raise Cancelled
            yield session
            queue.finish(session, self.job_id, self.token, result, progress=storable(self._progress))
        self.is_finished = True

    @contextmanager
    def _holding_project(self) -> Iterator[Session]:
        """A transaction that begins with the lock of the job's project, if it has one (see `app.db.projects`)."""
        with self._fenced(), self.database.write() as session:
            if self.project_id is not None:
                try:
                    projects.lock(session, self.project_id)
                except NotFound as gone:
                    raise LeaseLost(f"job {self.job_id} was deleted with its project") from gone
            yield session

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self.is_lost = True
            raise


def still_there(session: Session, table: type[T], key: Any, otherwise: str) -> T:
    """The row that a job speaks of; if it was deleted since, the job fails once and for all, and says so."""
    if (found := session.get(table, key)) is None:
        raise JobFailed("Deleted meanwhile", otherwise)
    return found


def perform(handler: Handler, context: JobContext) -> dict[str, Any]:
    """Run the handler to its end and put in a message how it went."""
    try:
        handler(context)
        if not context.is_finished:
            with context.finish({}):
                pass
    except Cancelled:
        return {"say": "cancelled"}
    except Waiting:
        return {"say": "waits"}
    except LeaseLost:
        return {"say": "lost"}
    except JobFailed as failure:
        return {"say": "failed", "error": storable(failure.problem), "is_final": True}
    except (Exception, SystemExit) as failure:
        logger.exception("handler of %s failed", context.kind, extra={"job_id": context.job_id, "kind": context.kind})
        if not context.is_finished:  # once committed, the job has succeeded whatever came after
            return {"say": "failed", "error": problem_of(failure), "is_final": False}
    return {"say": "done"}


def problem_of(failure: BaseException) -> dict[str, Any]:
    detail = str(failure)[:MAX_DETAIL] or "The error carries no message."
    return {"type": type(failure).__name__, "title": "Unforeseen error", "detail": storable(detail)}


def storable(value: Any) -> Any:
    """The same without what PostgreSQL's JSON refuses: a report that cannot be stored would cost the job its lease."""
    if isinstance(value, dict):
        return {storable(str(name)): storable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    if isinstance(value, str):
        return value.replace("\x00", "").encode(errors="replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
