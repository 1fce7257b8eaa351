"""Runs the service's processes as one: restarts what dies, stops all together, and leaves none behind.

Standard library only, for `python -m app.supervisor` is also the wrapper that every process starts through."""

import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

EX_CONFIG = 78
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Command:
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the supervisor's own environment."""


@dataclass(kw_only=True)
class Running:
    name: str
    command: Command
    first_pause: float
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    started_at: float = 0.0
    pause: float = 0.0

    def start(self) -> None:
        wrapper = [sys.executable, "-m", "app.supervisor", "--die-with-parent", str(os.getpid())]
        self.process = subprocess.Popen(
            [*wrapper, *self.command.argv],
            env={**os.environ, **self.command.env},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the supervisor, which then asks the others in turn
        )
        self.started_at = time.monotonic()
        logger.info("%s started", self.name, extra={"command": self.name, "pid": self.process.pid})

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Supervisor:
    def __init__(
        self,
        commands: Mapping[str, Command],
        *,
        stop_seconds: float = 8.0,
        first_pause: float = 0.5,
        longest_pause: float = 30.0,
        steady_seconds: float = 30.0,
    ) -> None:
        self._running = [Running(name=name, command=commands[name], first_pause=first_pause) for name in commands]
        self._stop_seconds = stop_seconds
        self._longest_pause = longest_pause
        self._steady_seconds = steady_seconds

    def run(self) -> int:
        """Until SIGTERM, SIGINT or SIGHUP, or a configuration error (exit code 78) of one of the processes, which is
        then the answer: restarting would not mend it. Call it in the main thread."""
        wake, bell = os.pipe()
        os.set_blocking(bell, False)
        watched = (*STOP_SIGNALS, signal.SIGCHLD)
        before = {number: signal.signal(number, lambda *_: None) for number in watched}
        bell_before = signal.set_wakeup_fd(bell, warn_on_full_buffer=False)  # each signal arrives in the pipe as a byte
        try:
            return self._supervise(wake)
        finally:
            self._stop_all(wake)
            signal.set_wakeup_fd(bell_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake)
            os.close(bell)

    def _supervise(self, wake: int) -> int:
        while True:
            now = time.monotonic()
            for one in self._running:
                code = one.process.poll() if one.process is not None else None
                if code == EX_CONFIG:
                    logger.error("%s has a configuration error; stopping", one.name, extra={"command": one.name})
                    return EX_CONFIG
                if code is not None:
                    self._bury(one, code, now)
                if one.process is None and now >= one.start_at:
                    one.start()
            pauses = [one.start_at - now for one in self._running if one.process is None]
            if _heard(wake, max(0.0, min([*pauses, self._longest_pause]))) & set(STOP_SIGNALS):
                return 0

    def _bury(self, one: Running, code: int, now: float) -> None:
        is_steady = now - one.started_at >= self._steady_seconds
        one.pause = one.first_pause if is_steady or not one.pause else min(2 * one.pause, self._longest_pause)
        one.process, one.start_at = None, now + one.pause
        fields = {"command": one.name, "exit_code": code}
        logger.warning("%s ended with code %d; again in %.1f s", one.name, code, one.pause, extra=fields)

    def _stop_all(self, wake: int) -> None:
        for one in self._running:
            one.signal(signal.SIGTERM)
        kill_at = time.monotonic() + self._stop_seconds
        while (left := kill_at - time.monotonic()) > 0 and self._alive():
            if _heard(wake, min(left, 0.5)) & set(STOP_SIGNALS):
                break  # asked twice: now
        for one in self._alive():
            logger.warning("%s did not stop in time; killing it", one.name, extra={"command": one.name})
            one.signal(signal.SIGKILL)
        for one in self._running:
            if one.process is not None:
                one.process.wait()

    def _alive(self) -> list[Running]:
        return [one for one in self._running if one.process is not None and one.process.poll() is None]


def _heard(wake: int, timeout: float) -> set[int]:
    """The signals that came, as soon as one comes."""
    return set(os.read(wake, 4096)) if select.select([wake], [], [], timeout)[0] else set()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the one that started it is gone, however it goes; survives exec.
    Where there is no prctl (macOS), only a closed channel tells, and the supervisor's own stop."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel was told
        os._exit(1)


def main(arguments: Sequence[str]) -> None:
    option, parent, *argv = arguments
    if option != "--die-with-parent" or not argv:
        raise SystemExit("usage: python -m app.supervisor --die-with-parent PID COMMAND…")
    die_with_parent(int(parent))
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
