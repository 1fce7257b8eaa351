"""A process that runs tasks: `python -m app.queue.executors.worker_process FD PARENT_PID`.

One message asks for a task; the answers say how many of its rows are done, and lastly that it is, or what went wrong.
"""

import os
import signal
import socket
import sys
import time
from pkgutil import resolve_name

from app.queue.channel import Channel
from app.queue.executors import describe, is_final
from app.supervisor import die_with_parent

TELL_SECONDS = 0.1


class Teller:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._next = 0.0

    def __call__(self, n_rows: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + TELL_SECONDS
            self._channel.send({"n_rows": n_rows, "is_done": False})


def main(arguments: list[str]) -> None:
    end, parent = int(arguments[0]), int(arguments[1])
    die_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(end, False)
    channel = Channel(socket.socket(fileno=end))
    while True:
        try:
            messages = channel.receive()
        except (EOFError, OSError):
            return
        for message in messages:
            try:
                resolve_name(message["function"])(message["task"], Teller(channel))
            except Exception as error:
                channel.send({"error": describe(error), "is_final": is_final(error)})
            else:
                channel.send({"n_rows": message["task"]["n_rows"], "is_done": True})


if __name__ == "__main__":
    main(sys.argv[1:])
