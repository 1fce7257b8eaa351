"""The parent process: leases jobs, hands them to its child, keeps the leases, and kills the child where it must.

It imports no torch and runs no handler, so it always answers: a cancel, a lost lease or a shutdown is obeyed whatever
the child is doing."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.exc import DataError, SQLAlchemyError

from app.db.engine import Database
from app.db.migrate import NewerSchema, schema_problem
from app.db.tables import Job
from app.db.types import new_id
from app.errors import NotReady
from app.queue import queue
from app.queue.channel import Message
from app.queue.heartbeat import Heartbeat
from app.queue.outcome import write_end
from app.queue.process import ChildProcess
from app.settings import Settings

WATCH_SECONDS = 0.1
READY_SECONDS = 60.0
FAREWELL_SECONDS = 2.0
MAX_OUTAGE_PAUSE = 5.0  # seconds
REMIND_SECONDS = 60.0

logger = logging.getLogger(__name__)

Tick = Callable[[Database], None]


class Worker:
    def __init__(
        self,
        settings: Settings,
        queues: Sequence[str],
        *,
        handlers: Mapping[str, str],
        tick: Tick | None = None,
        tick_seconds: float = 1.0,
        preload: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{new_id()[-4:]}"
        self._settings = settings
        self._queues = tuple(queues)
        self._handlers = handlers
        self._tick = tick
        self._tick_seconds = tick_seconds
        self._preload = preload
        self._child: ChildProcess | None = None

    def run_until_signal(self) -> None:
        """Work until SIGTERM or SIGINT. Call it in the main thread."""
        stop = threading.Event()
        wake, bell = os.pipe()

        def wait_for_bell() -> None:
            os.read(wake, 1)
            stop.set()

        # an Event must not be set by a signal handler: the thread it interrupts may hold the event's lock
        threading.Thread(target=wait_for_bell, name="signals", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.write(bell, b"!"))
        self.run(stop)

    def run(self, stop: threading.Event) -> None:
        database = Database.connect(self._settings.database_url)
        ticker = threading.Thread(target=self._keep_ticking, args=(database, stop), name="tick", daemon=True)
        logger.info("worker started", extra={"worker": self.name, "queues": self._queues})
        try:
            self._await_schema(database, stop)
            ticker.start()
            self._work(database, stop)
        finally:
            if self._child is not None:
                self._child.kill()
            if ticker.is_alive():
                ticker.join(FAREWELL_SECONDS)
            database.dispose()
            logger.info("worker stopped", extra={"worker": self.name})

    def _await_schema(self, database: Database, stop: threading.Event) -> None:
        """Until somebody has migrated the database; a schema that is newer than the code raises."""
        say_at = time.monotonic()
        while not stop.is_set():
            try:
                problem = schema_problem(database)
            except SQLAlchemyError as reason:
                problem = NotReady(f"the database does not answer: {str(reason).splitlines()[0]}")
            if isinstance(problem, NewerSchema):
                raise problem
            if problem is None:
                return
            if (now := time.monotonic()) >= say_at:
                logger.warning("waiting: %s", problem.detail, extra={"worker": self.name})
                say_at = now + REMIND_SECONDS
            stop.wait(self._tick_seconds)

    def _work(self, database: Database, stop: threading.Event) -> None:
        pause = self._settings.poll_seconds
        is_busy = False  # after a job the next is claimed at once; an idle worker looks before it takes a lock
        while not stop.is_set():
            child = self._ready_child(stop)
            claimed_at = time.monotonic()
            try:
                job = self._claim(database) if child and (is_busy or self._is_due(database)) else None
                pause = self._settings.poll_seconds
            except SQLAlchemyError as reason:
                logger.warning("the database did not answer: %s", reason, extra={"worker": self.name})
                job, pause = None, min(2 * pause, MAX_OUTAGE_PAUSE)
            is_busy = job is not None
            if child and job:
                self._run(database, child, job, claimed_at, stop)
            else:
                stop.wait(pause)

    def _ready_child(self, stop: threading.Event) -> ChildProcess | None:
        """A child that answers, made if need be; none on shutdown, or when it does not come up (a job claimed then
        would pay for a broken installation with a crash)."""
        if self._child is not None:
            try:
                self._child.receive(0)
                return self._child
            except EOFError:
                self._drop_child()
        try:
            child = self._child = ChildProcess.spawn(self._settings, self._handlers, self._preload)
            deadline = time.monotonic() + READY_SECONDS
            while not stop.is_set() and time.monotonic() < deadline:
                if any(message["say"] == "ready" for message in child.receive(WATCH_SECONDS)):
                    return child
        except (EOFError, OSError) as reason:
            logger.error("the child did not start: %s", reason, extra={"worker": self.name})
            stop.wait(FAREWELL_SECONDS)
        self._drop_child()
        return None

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _is_due(self, database: Database) -> bool:
        with database.read() as session:
            return bool(queue.due(session, self._queues))

    def _claim(self, database: Database) -> Job | None:
        with database.write() as session:
            return queue.claim(
                session,
                queues=self._queues,
                worker=self.name,
                lease_seconds=self._settings.lease_seconds,
                max_crashes=self._settings.max_crashes,
                max_attempts=self._settings.max_attempts,
            )

    def _run(self, database: Database, child: ChildProcess, job: Job, claimed_at: float, stop: threading.Event) -> None:
        fields = {"job_id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempts, "worker": self.name}
        logger.info("job started", extra=fields)
        started = time.monotonic()
        if job.kind not in self._handlers:
            known = ", ".join(sorted(self._handlers)) or "none"
            detail = f"This worker has no handler for jobs of kind {job.kind!r}; it has: {known}."
            problem = {"type": "unknown-kind", "title": "Unknown kind of job", "detail": detail, "status": 500}
            outcome: Message = {"say": "failed", "error": problem, "is_final": True}
        else:
            with Heartbeat(database, job, lease_seconds=self._settings.lease_seconds, claimed_at=claimed_at) as heart:
                outcome = self._watch(child, job, heart, stop)
        self._settle(database, job, outcome, stop)
        seconds = round(time.monotonic() - started, 4)
        logger.info("job %s", outcome["say"], extra={**fields, "outcome": outcome["say"], "seconds": seconds})

    def _watch(self, child: ChildProcess, job: Job, heart: Heartbeat, stop: threading.Event) -> Message:
        """Until the child says how it ended, or must be killed."""
        kill_at: float | None = None
        try:
            child.run(job)
            while True:
                for message in child.receive(WATCH_SECONDS):
                    if (message.get("job_id"), message.get("token")) != (job.id, job.token):
                        continue
                    if message["say"] != "progress":
                        return message
                    heart.report(message["progress"])
                now = time.monotonic()
                if heart.is_lost or now >= heart.safe_until or stop.is_set() or (kill_at and now >= kill_at):
                    break
                if heart.cancel_requested and kill_at is None:
                    child.cancel(job)
                    kill_at = now + self._settings.cancel_grace_seconds
        except (EOFError, OSError):  # OSError: the channel broke, or a stopped child let it fill up
            detail = child.epitaph()
            self._drop_child()
            return {"say": "released"} if stop.is_set() else {"say": "crashed", "detail": detail}
        self._drop_child()
        if heart.is_lost:
            return {"say": "lost"}
        return {"say": "cancelled"} if kill_at is not None and not stop.is_set() else {"say": "released"}

    def _settle(self, database: Database, job: Job, outcome: Message, stop: threading.Event) -> None:
        """Write the end of an attempt; through an outage it tries until the database is back or the worker must go."""
        pause, give_up_at = self._settings.poll_seconds, float("inf")
        while time.monotonic() < give_up_at:
            try:
                with database.write() as session:
                    write_end(session, self._settings, job, outcome)
                return
            except queue.LeaseLost as reason:
                logger.warning("too late: %s", reason, extra={"job_id": job.id, "outcome": outcome["say"]})
                return
            except DataError:
                logger.exception("the end of a job cannot be stored; its lease will lapse", extra={"job_id": job.id})
                return
            except SQLAlchemyError as reason:
                logger.warning("the end of a job could not be written: %s", reason, extra={"job_id": job.id})
            if stop.is_set():
                give_up_at = min(give_up_at, time.monotonic() + FAREWELL_SECONDS)
                time.sleep(min(pause, WATCH_SECONDS))
            else:
                stop.wait(pause)
            pause = min(2 * pause, MAX_OUTAGE_PAUSE)

    def _keep_ticking(self, database: Database, stop: threading.Event) -> None:
        while self._tick is not None and not stop.wait(self._tick_seconds):
            try:
                self._tick(database)
            except Exception:
                logger.exception("a tick failed", extra={"worker": self.name})
