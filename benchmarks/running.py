"""Servers as processes of their own, and clients that cost little beside them."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
SEND_BYTES = 2**20


@contextmanager
def process(arguments: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m …`, stopped at the end of the block; what it writes goes to `log`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BENSEMBLE_")}
    with log.open("ab") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextmanager
def server(arguments: Sequence[str], port: int, log: Path, **environment: str) -> Iterator[None]:
    """The same, once it answers on that port."""
    with process(arguments, log, **environment) as started:
        give_up = time.monotonic() + START_SECONDS
        while not _is_ready(port):
            if started.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{' '.join(arguments)} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _is_ready(port: int) -> bool:
    with closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False


class Client:
    """JSON, over a connection a request: a kept one would be closed by the server between two slow turns."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._authorization = {"Authorization": f"Bearer {key}"}

    def get(self, path: str) -> Any:
        return self._send("GET", path, None, {})

    def post(self, path: str, body: Any) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._send("POST", path, data, {"Content-Type": "application/json"})

    def put(self, path: str, body: BinaryIO, content_type: str) -> Any:
        size = os.fstat(body.fileno()).st_size
        return self._send("PUT", path, body, {"Content-Type": content_type, "Content-Length": str(size)})

    def _send(self, method: str, path: str, body: bytes | BinaryIO | None, headers: dict[str, str]) -> Any:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=120, blocksize=SEND_BYTES)
        with closing(connection):
            connection.request(method, path, body=body, headers={**self._authorization, **headers})
            answer = connection.getresponse()
            text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {text[:500].decode()}")
        return json.loads(text)


def requests_per_second(port: int, request: Callable[[int], bytes], *, n_clients: int, seconds: float) -> float:
    """Clients that each send their next request as soon as the last is answered, over a connection of their own.
    Plain sockets and whole requests as bytes, so that the load takes little from the server under test."""
    counts, problems = [0] * n_clients, []
    start = threading.Barrier(n_clients + 1)

    def send_on(client: int) -> None:
        with socket.create_connection((HOST, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            start.wait()
            end = time.perf_counter() + seconds
            try:
                while time.perf_counter() < end:
                    connection.sendall(request(counts[client] * n_clients + client))
                    _read_created(connection)
                    counts[client] += 1
            except Exception as problem:
                problems.append(problem)

    threads = [threading.Thread(target=send_on, args=(client,), daemon=True) for client in range(n_clients)]
    for thread in threads:
        thread.start()
    start.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return sum(counts) / (time.perf_counter() - started)


def post_bytes(path: str, body: Any, **headers: str) -> bytes:
    text = json.dumps(body, separators=(",", ":"))
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", text]).encode()


def _read_created(connection: socket.socket) -> None:
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += _some_bytes(connection)
    head = answer[:end].lower()
    if not head.startswith(b"http/1.1 201"):
        raise RuntimeError(f"expected 201, was answered {answer[:500].decode()}")
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    missing = length - (len(answer) - end - 4)
    while missing > 0:
        missing -= len(_some_bytes(connection))


def _some_bytes(connection: socket.socket) -> bytes:
    if not (data := connection.recv(65_536)):
        raise ConnectionError("the server closed the connection in the middle of an answer")
    return data
