"""The process that runs handlers, one job at a time, kept warm between jobs: `python -m app.queue.child FD PARENT_PID`.

    worker -> child   start (settings, handlers, preload), run (job), cancel
    child -> worker   ready, progress, log, and once a job: done, waits, failed, cancelled, lost

A handler has the main thread; a second thread listens, and ends the process when the worker is gone."""

import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pkgutil import resolve_name

from app.db.engine import Database
from app.queue.channel import Channel, Message
from app.queue.context import JobContext, perform
from app.queue.handlers import LISTENERS
from app.settings import Settings
from app.supervisor import die_with_parent

RECORD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime"}

logger = logging.getLogger(__name__)


class Child:
    def __init__(self, channel: Channel, settings: Settings, handlers: Mapping[str, str]) -> None:
        self._channel = channel
        self._settings = settings
        self._handlers = handlers
        self._database = Database.connect(settings.database_url, pool_size=2)
        self._inbox: queue.SimpleQueue[JobContext] = queue.SimpleQueue()
        self._current: JobContext | None = None

    def listen(self, first_messages: list[Message]) -> None:
        for message in first_messages:
            self._take(message)
        threading.Thread(target=self._listen, name="listen", daemon=True).start()

    def serve(self) -> None:
        while True:
            context = self._inbox.get()
            outcome = perform(self._handle, context)
            self._current = None
            context.send(outcome)

    def _handle(self, context: JobContext) -> None:
        import_module(LISTENERS)  # jobs publish events
        resolve_name(self._handlers[context.kind])(context)

    def _listen(self) -> None:
        try:
            while True:
                for message in self._channel.receive():
                    self._take(message)
        finally:
            os._exit(0)  # the worker is gone, and whatever the handler does now it does for nobody

    def _take(self, message: Message) -> None:
        if message["do"] == "run":
            job = message["job"]
            send = partial(self._send, {"job_id": job["job_id"], "token": job["token"]})
            self._current = JobContext(**job, database=self._database, settings=self._settings, send=send)
            self._inbox.put(self._current)
        elif message["do"] == "cancel":
            current = self._current  # may have ended meanwhile, and the next one is not meant
            if current is not None and (current.job_id, current.token) == (message["job_id"], message["token"]):
                current.is_cancelled = True

    def _send(self, address: Message, message: Message) -> None:
        self._channel.send({**message, **address})


class ChannelHandler(logging.Handler):
    """Log records go to the worker, so that one process decides how they are written."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: value for name, value in vars(record).items() if name not in RECORD_FIELDS}
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        line = {"level": record.levelno, "logger": record.name, "text": record.getMessage(), "fields": fields}
        try:
            self._channel.send({"say": "log", **line})
        except OSError:
            self.handleError(record)


def warm_up(settings: Settings, preload: list[str]) -> None:
    if settings.threads:
        import torch

        torch.set_num_threads(settings.threads)
    for path in preload:
        module, _, function = path.partition(":")
        try:
            found = import_module(module)
            if function:
                getattr(found, function)(settings)
        except Exception:
            logger.exception("could not preload %s", path)


def main(arguments: list[str]) -> None:
    end, parent = int(arguments[0]), int(arguments[1])
    die_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker decides when a job ends
    os.set_inheritable(end, False)  # a handler's own processes must not keep the channel open
    channel = Channel(socket.socket(fileno=end))
    start, *rest = channel.receive() or [{}]
    while not start:  # the first message may come in pieces
        start, *rest = channel.receive() or [{}]
    settings = Settings.model_validate(start["settings"])
    logging.basicConfig(level=settings.log_level.upper(), handlers=[ChannelHandler(channel)], force=True)
    child = Child(channel, settings, start["handlers"])
    child.listen(rest)
    channel.send({"say": "ready"})
    warm_up(settings, start["preload"])
    child.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
