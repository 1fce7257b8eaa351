"""Tasks on processes of this machine, one thread each: small models gain more from that than from threads in a matmul.

The processes are started ahead of the first job (`prepare`) or at first use, and kept warm. They die with this one,
however it goes."""

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from app.queue.channel import Channel
from app.queue.executors import RowsDone, Task, TaskFailed

LOOK_SECONDS = 0.25


@dataclass(kw_only=True)
class Hand:
    """One process and what it is doing."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    channel: Channel
    task: Task | None = None
    n_done: int = 0

    @classmethod
    def start(cls) -> "Hand":
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.queue.executors.worker_process", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
            )
        return cls(process=process, socket=ours, channel=Channel(ours))

    def give(self, function: str, task: Task) -> None:
        self.task, self.n_done = task, 0
        self.channel.send({"function": function, "task": task})

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.channel.close()


class Processes:
    def __init__(self, n_processes: int = 0) -> None:
        self._n = n_processes or len(os.sched_getaffinity(0))
        self._hands: list[Hand] = []

    def prepare(self, function: str) -> None:
        for hand in self._started(self._n):
            if hand.task is None:
                hand.give(function, {"n_rows": 0})

    def run(self, function: str, tasks: Sequence[Task], report: RowsDone) -> None:
        waiting, done = deque(tasks), 0
        self._started(min(self._n, len(tasks)))
        try:
            while True:
                for hand in self._hands:
                    if hand.task is None and waiting:
                        hand.give(function, waiting.popleft())
                busy = [hand for hand in self._hands if hand.task is not None]
                if not busy:
                    report(done)
                    return
                ready = wait([hand.socket for hand in busy], LOOK_SECONDS)
                for hand in busy:
                    if hand.socket in ready:
                        done += self._listen(hand)
                report(done + sum(hand.n_done for hand in busy if hand.task is not None))
        except BaseException:  # a task in the middle can't be taken back in any other way
            self.close()
            raise

    def _started(self, n: int) -> list[Hand]:
        while len(self._hands) < n:
            self._hands.append(Hand.start())
        return self._hands

    def close(self) -> None:
        for hand in self._hands:
            hand.stop()
        self._hands.clear()

    @staticmethod
    def _listen(hand: Hand) -> int:
        """Rows of the task that has just ended, if one has."""
        try:
            messages = hand.channel.receive(0)
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                hand.process.wait(1)
            raise TaskFailed(f"a scoring process died with exit code {hand.process.returncode}") from None
        finished = 0
        for message in messages:
            finished += _taken(hand, message)
        return finished


def _taken(hand: Hand, message: dict[str, Any]) -> int:
    if "error" in message:
        raise TaskFailed(message["error"], is_final=message["is_final"])
    hand.n_done = message["n_rows"]
    if not message["is_done"] or hand.task is None:
        return 0
    n_rows: int = hand.task["n_rows"]
    hand.task = None
    return n_rows
