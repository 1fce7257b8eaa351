"""JSON messages, one a line, over the socket between a worker and its child."""

import json
import socket
import threading
from multiprocessing.connection import wait
from typing import Any

Message = dict[str, Any]

READ_BYTES = 1 << 16


class Channel:
    """Several threads may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._unread = b""

    def send(self, message: Message) -> None:
        line = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        with self._sending:
            self._socket.sendall(line)

    def receive(self, timeout: float | None = None) -> list[Message]:
        """The complete messages that have come, none after `timeout` seconds; EOFError once the other side is gone."""
        if not wait([self._socket], timeout):  # select() takes no file whose number is above 1,023
            return []
        try:
            data = self._socket.recv(READ_BYTES)
        except ConnectionError:  # the peer died with something of ours unread
            data = b""
        if not data:
            raise EOFError("the other side of the channel is gone")
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._socket.close()
