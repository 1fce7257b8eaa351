"""A worker's handle on its child process."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.db.tables import Job
from app.queue import queue
from app.queue.channel import Channel, Message
from app.settings import Settings

SEND_SECONDS = 30.0
DEATH_SECONDS = 10.0
LAST_BREATH_SECONDS = 1.0
# Without these glibc hands the megabytes of every layer back to the system and asks for them anew: measured, an eighth
# of the time of scoring went into pages. Other C libraries do not know the names.
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(16 << 20)}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChildProcess:
    process: subprocess.Popen[bytes]
    channel: Channel

    @classmethod
    def spawn(cls, settings: Settings, handlers: Mapping[str, str], preload: Sequence[str]) -> "ChildProcess":
        ours, theirs = socket.socketpair()
        ours.settimeout(SEND_SECONDS)  # a stopped child must not stop us
        environment = {**KEEP_FREED_MEMORY, **os.environ}
        if settings.threads:
            environment |= {name: str(settings.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.queue.child", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the worker, and a kill reaches the child's own processes too
            )
        child = cls(process=process, channel=Channel(ours))
        child.channel.send(
            {
                "do": "start",
                "settings": settings.model_dump(mode="json"),
                "handlers": dict(handlers),
                "preload": list(preload),
            }
        )
        return child

    def run(self, job: Job) -> None:
        self.channel.send({"do": "run", "job": queue.description(job)})

    def cancel(self, job: Job) -> None:
        self.channel.send({"do": "cancel", "job_id": job.id, "token": job.token})

    def receive(self, timeout: float) -> list[Message]:
        """What the child said, its log lines already passed on; EOFError once it is dead."""
        messages = self.channel.receive(timeout)
        if not messages and self.process.poll() is not None:
            raise EOFError("the child is dead")
        for message in messages:
            if message["say"] == "log":
                logging.getLogger(message["logger"]).log(message["level"], message["text"], extra=message["fields"])
        return [message for message in messages if message["say"] != "log"]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.wait(DEATH_SECONDS)
        except subprocess.TimeoutExpired:  # stuck in a driver: its writes are fenced, so we go on without it
            logger.error("child %d did not die of SIGKILL", self.process.pid)
        self.channel.close()

    def epitaph(self) -> str:
        """How it died; asked before `kill`, or that would be the answer."""
        try:
            code = self.process.wait(LAST_BREATH_SECONDS)
        except subprocess.TimeoutExpired:
            return "its process stopped answering."
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}."
        return f"its process ended with exit code {code}."
