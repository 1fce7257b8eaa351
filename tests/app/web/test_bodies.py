"""Bodies: the key comes first, then the caps, and what is large is parsed piece by piece, off the event loop."""

import json
import platform
import select
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import from_json

from app.db.engine import Database
from app.errors import Malformed, TooLarge
from app.labels.schemas import LabelsIn
from app.pools.schemas import PoolIn
from app.settings import MIB, Settings
from app.web.bodies import json_pieces, long
from app.web.bodies import receive as bodies
from app.web.bodies.json_pieces import NotJson
from app.web.bodies.long import Document, in_pieces, whole
from app.web.memory import release_memory
from app.web.serving.limits import cap_of
from tests.app.conftest import Service
from tests.app.designing import DIGIT_SPAN
from tests.app.hammering import build_world, classification, pointers, refused, routes
from tests.app.web import test_bad_input
from tests.app.working import on_sqlite

UNKNOWN = "0190a000-0000-7000-8000-000000000000"
JSON = {"Content-Type": "application/json"}


@contextmanager
def announced(service: Service, method: str, path: str, n_bytes: int, **headers: str) -> Iterator[socket.socket]:
    """A connection on which the headers of a request were sent, and nothing of its body."""
    url = service.client.base_url
    lines = {"Host": "test", "Content-Length": str(n_bytes), **JSON, **headers}
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())])
    with socket.create_connection((url.host, url.port or 80), timeout=20) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode())
        yield connection


def answer(service: Service, method: str, path: str, n_bytes: int = 900_000, **headers: str) -> bytes:
    with announced(service, method, path, n_bytes, **headers) as connection:
        return connection.recv(65536)


@on_sqlite
def test_the_key_is_checked_before_the_body_is_read_on_every_route(service: Service) -> None:
    """No body ever comes: whoever waits for it first would not answer."""
    taking = sorted((method, path) for method, path in routes() if method in ("POST", "PATCH", "PUT"))
    assert ("PUT", "/v1/pools/{pool_id}/data") in taking
    assert len(taking) > 20
    for method, path in taking:
        for headers in ({}, {"Idempotency-Key": "again", "Authorization": "Bearer bk_unknown"}):
            said = answer(service, method, path, **headers)
            assert said.startswith(b"HTTP/1.1 401 "), (method, path, said)
            assert b"connection: close" in said.lower()  # else the server would read the body to its end


@on_sqlite
def test_what_the_headers_show_is_refused_before_the_body_is_read(database: Database, make_service: Any) -> None:
    service = make_service(database, rate_limit=1e-3, rate_burst=3)
    reader = {"Authorization": f"Bearer {service.key('read')}"}
    writer = {"Authorization": f"Bearer {service.key('write')}"}
    path = f"/v1/projects/{UNKNOWN}/labels"
    for status, headers in (
        (403, {**reader, "Idempotency-Key": "again"}),
        (404, writer),
        (404, {**writer, "Idempotency-Key": "again"}),
    ):
        assert answer(service, "POST", path, **headers).startswith(b"HTTP/1.1 %d " % status), (status, headers)
    packed = {**writer, "Content-Encoding": "gzip"}
    assert answer(service, "POST", "/v1/projects", **packed).startswith(b"HTTP/1.1 415 ")
    assert answer(service, "POST", "/v1/projects", **writer).startswith(b"HTTP/1.1 429 ")


@on_sqlite
def test_a_body_without_a_key_is_not_taken_in(service: Service) -> None:
    """Of eight bodies of 120 MB no more is taken than what fits into the buffers between client and service."""
    path, piece, size = f"/v1/projects/{UNKNOWN}/pools", b"[]," * 20_000, 120_000_000

    def flood() -> tuple[bytes, int]:
        with announced(service, "POST", path, size) as connection:
            connection.setblocking(False)
            waiting = select.poll()  # select() takes no file whose number is above 1,023
            waiting.register(connection, select.POLLIN | select.POLLOUT)
            n_sent = 0
            try:
                while not any(event & ~select.POLLOUT for _, event in waiting.poll(20_000)):
                    n_sent += connection.send(piece[: size - n_sent])
                return connection.recv(65536), n_sent
            except ConnectionResetError:  # sent on after the service had answered and hung up: the answer is lost
                return b"", n_sent

    answers: list[tuple[bytes, int]] = []
    threads = [threading.Thread(target=lambda: answers.append(flood())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(said.startswith(b"HTTP/1.1 401 ") for said, _ in answers if said)
    assert len(answers) == 8
    assert all(n_sent < size / 3 for _, n_sent in answers)


@on_sqlite
def test_a_small_body_that_nobody_reads_keeps_the_connection(service: Service) -> None:
    said = answer(service, "POST", "/v1/projects", n_bytes=100)
    assert said.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" not in said.lower()


def test_caps_go_by_what_an_address_takes() -> None:
    cap = cap_of(Settings())
    rows, documents, others = 128 * MIB, 16 * MIB, MIB
    for expected, method, path in (
        (4096 * MIB, "PUT", "/v1/pools/x/data"),
        (16 * MIB, "POST", "/v1/files/inspect"),
        (rows, "POST", "/v1/projects/x/pools"),
        (rows, "POST", "/v1/ensembles/x/predictions"),
        (rows, "POST", "/v1/pools/x/rankings"),
        (documents, "POST", "/v1/projects/x/labels"),
        (documents, "POST", "/v1/rounds/x/labels"),
        (documents, "POST", "/v1/models/validate"),
        (documents, "POST", "/v1/experiments"),
        (documents, "PATCH", "/v1/experiments/x"),
        (others, "POST", "/v1/projects"),
        (others, "POST", "/v1/keys"),
        (others, "POST", "/v1/experiments/x/sessions"),
        (others, "POST", "/v1/sessions/x/observations"),
        (others, "POST", "/v1/pools/x/data"),
    ):
        assert cap(method, path) == expected, path


def test_every_address_with_a_larger_cap_is_a_route() -> None:
    cap = cap_of(Settings())
    taking = {(method, path) for method, path in routes() if method in ("POST", "PUT", "PATCH")}
    assert len([path for method, path in taking if cap(method, path) > MIB]) == 10


@pytest.fixture
def in_pieces_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Treats every body as a large one, and parses so many bytes at once."""

    def set_size(n_bytes: int) -> None:
        monkeypatch.setattr(bodies, "LARGE_BYTES", 0)
        monkeypatch.setattr(json_pieces, "PIECE_BYTES", n_bytes)
        monkeypatch.setattr(long, "PIECE_BYTES", n_bytes)

    return set_size


@on_sqlite
def test_a_pool_read_in_pieces_is_the_pool_that_was_sent(
    service: Service, in_pieces_of: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    project_id = classification(service)
    rows = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    body = {
        "name": "many",
        "labels": [None if i % 3 else ("red", "blue")[i % 2] for i in range(300)],
        "rows": rows.tolist(),
        "payloads": [{"text": f'"[{i}\\', "deep": [[[i]]]} if i % 2 else None for i in range(300)],
        "keys": [f"k,{i}]" for i in range(300)],
    }
    in_pieces_of(500)
    monkeypatch.setattr(long, "MAX_ELEMENT_BYTES", 500)
    endless = {**body, "payloads": ["x", "x" * 600, *range(298)]}
    problem = refused(service, "POST", f"/projects/{project_id}/pools", 422, "at most 500 are taken", json=endless)
    assert pointers(problem) == ["/payloads/1"]
    pool = service.post(f"/projects/{project_id}/pools", body, 201)
    assert (pool["status"], pool["n_rows"], pool["n_labelled"]) == ("ready", 300, 100)
    items = service.get(f"/pools/{pool['id']}/items", features=True, limit=1000)["items"]
    assert [item["key"] for item in items] == body["keys"]
    assert [item["payload"] for item in items] == body["payloads"]
    assert [item["label"] for item in items] == body["labels"]
    assert np.array_equal(np.array([item["x"] for item in items], np.float32), rows)


@on_sqlite
def test_a_row_too_long_for_a_piece_is_read_in_parts(
    service: Service, in_pieces_of: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    project_id = classification(service, input={"shape": [50]})
    in_pieces_of(64)
    monkeypatch.setattr(long, "MAX_ELEMENT_BYTES", 64)
    rows = [[float(i + j) for j in range(50)] for i in range(3)]
    path = f"/projects/{project_id}/pools"
    pool = service.post(path, {"name": "wide", "rows": rows}, 201)
    assert [item["x"] for item in service.get(f"/pools/{pool['id']}/items", features=True)["items"]] == rows
    for wrong, says, pointer in (
        ([*rows[0], 1.0], "expected 50 features, there are 51", "/rows/1"),
        (rows[0][1:], "expected 50 features, there are 49", "/rows/1"),
        ([*rows[0][1:], "one"], "valid number", "/rows/1/49"),
        ([1e39, *rows[0][1:]], "too large for float32", "/rows/1"),
    ):
        problem = refused(service, "POST", path, 422, says, json={"name": "wide", "rows": [rows[0], wrong]})
        assert pointers(problem) == [pointer]


@on_sqlite
def test_mistakes_in_a_large_body_are_told_as_those_in_a_small_one(
    service: Service, in_pieces_of: Callable[[int], None]
) -> None:
    in_pieces_of(40)
    test_bad_input.test_an_inline_pool_with_a_mistake_is_refused_whole(service)
    test_bad_input.test_features_that_are_not_finite_are_refused(service)
    world = build_world(service)
    test_bad_input.test_a_label_that_fits_no_row_or_class_is_refused_with_all_others(service, world)
    test_bad_input.test_a_body_that_is_not_json_is_refused(service, world)


@on_sqlite
def test_predictions_labels_and_specs_are_read_in_pieces_too(
    service: Service, in_pieces_of: Callable[[int], None]
) -> None:
    world = build_world(service)
    in_pieces_of(30)
    asked = service.post(f"/ensembles/{world.ensemble_id}/predictions", {"rows": [[1.0, 2.0]] * 20}, 202)
    service.run_jobs()
    assert service.get(f"/predictions/{asked['prediction']['id']}")["n_rows"] == 20
    target = {"rows": [[0.5, i] for i in range(20)]}
    ranking = service.post(
        f"/pools/{world.pool_id}/rankings", {"k": 1, "acquisition": {"name": "epig"}, "target": target}, 202
    )["ranking"]
    assert ranking["target"]["n_rows"] == 20
    said = [{"pool_id": world.pool_id, "row": row, "value": "red"} for row in range(9)]
    assert service.post(f"/projects/{world.project_id}/labels", {"labels": said}, 201)["accepted"] == 9
    spec = {**DIGIT_SPAN, "designs": {"xi": {"type": "list", "values": list(range(1, 41))}}}
    made = service.post("/experiments", spec, 201)
    assert made["spec"] == spec
    in_pieces_of(1_000_000)
    assert service.post("/models/validate", spec)["spec_hash"] == made["spec_hash"]


@on_sqlite
def test_a_large_body_is_parsed_off_the_event_loop(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    read = Document.read

    def watched(document: Document) -> Any:
        threads.append(threading.current_thread())
        return read(document)

    monkeypatch.setattr(Document, "read", watched)
    project_id = classification(service)
    for n_rows, n_parsed in ((10, 0), (60_000, 1)):
        service.post(f"/projects/{project_id}/pools", {"name": "p", "rows": [[0.25, 1.0]] * n_rows}, 201)
        assert len(threads) == n_parsed
    assert "AnyIO worker" in threads[0].name


@on_sqlite
def test_a_repeated_large_body_is_replayed(service: Service) -> None:
    path, headers = f"/v1/projects/{classification(service)}/pools", {**JSON, "Idempotency-Key": "large"}
    text = json.dumps({"name": "p", "rows": [[0.25, 1.0]] * 60_000})
    first = service.client.post(path, content=text, headers=headers)
    again = service.client.post(path, content=text, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    other = service.client.post(path, content=text.replace("0.25", "0.75"), headers=headers)
    assert other.status_code == 409


@on_sqlite
def test_a_large_body_without_room_on_the_disk_is_sent_away(service: Service) -> None:
    service.services.settings.cache_dir.write_text("a file where the folder should be")
    body = {"name": "p", "rows": [[0.25, 1.0]] * 60_000}
    refused(service, "POST", f"/projects/{classification(service)}/pools", 503, "no room for a body", json=body)


def test_reading_a_long_body_takes_little_memory(in_pieces_of: Callable[[int], None]) -> None:
    """Where the whole would be 20 times its text."""
    in_pieces_of(8192)
    text = b'{"name": "p", "rows": [%s[1]], "payloads": [%s[]]}' % (b"[0]," * 30_000, b"[]," * 30_000)
    tracemalloc.start()
    wanted = PoolIn.model_validate(Document(text=text, max_bytes=MIB).read())
    assert wanted.rows is not None
    assert wanted.payloads is not None
    assert sum(map(len, in_pieces(wanted.rows))) == sum(map(len, in_pieces(wanted.payloads))) == 30_001
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep nothing")
def test_freed_memory_is_given_back() -> None:
    process = psutil.Process()
    held = [b"%4096d" % i for i in range(20_000)]
    del held[:-1]  # the last keeps the C library from giving back what lies before it
    before = process.memory_info().rss
    release_memory()
    assert process.memory_info().rss < before - 40 * MIB
    assert len(held) == 1


def test_what_is_large_outside_of_long_lists_is_refused() -> None:
    text = json.dumps({f"name {i}": "x" * 200 for i in range(2000)}).encode()
    assert len(Document(text=text, max_bytes=MIB).read()) == 2000
    with pytest.raises(TooLarge, match="outside of its long lists the body has more than 1,024 bytes"):
        Document(text=text, max_bytes=1024).read()
    with pytest.raises(Malformed, match="nested at most 16 deep"):
        whole(Document(text=b'{"a":' * 30 + b'"%s"' % (b"x" * 200_000) + b"}" * 30, max_bytes=MIB).read())


def test_what_would_be_long_in_telling_its_mistakes_is_refused_at_the_first() -> None:
    names = b"{" + b",".join(b'"k%d":1' % i for i in range(20_000)) + b"}"
    with pytest.raises(RequestValidationError, match="at most 10,000 names in an object"):
        Document(text=names, max_bytes=MIB).read()
    for deep in (b"[" * 300_000 + b"]" * 300_000, b'{"rows":' + b"[" * 300_000):
        with pytest.raises(RequestValidationError, match="at most 200 deep at byte 20"):
            Document(text=deep, max_bytes=MIB).read()
    one = b'{"labels":[%b]}' % names
    listed = TypeAdapter(LabelsIn).validate_python(Document(text=one, max_bytes=MIB).read()).labels
    with pytest.raises(Malformed, match="at most 65,536 are taken"):
        list(in_pieces(listed))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=30,
)


@settings(max_examples=60)
@given(value=values, size=st.integers(32, 300), indent=st.none() | st.integers(0, 2), is_ascii=st.booleans())
def test_json_read_in_pieces_is_what_it_says(value: Any, size: int, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "PIECE_BYTES", size)
        patch.setattr(long, "PIECE_BYTES", size)
        patch.setattr(long, "MAX_ELEMENT_BYTES", size)
        assert whole(Document(text=text, max_bytes=MIB).read()) == value


@settings(max_examples=60)
@given(data=st.data(), value=st.lists(values, min_size=3))
def test_broken_json_is_refused_wherever_it_is_broken(data: st.DataObject, value: Any) -> None:
    """As by a parser of the whole: never taken, and never an error of another kind."""
    text = bytearray(json.dumps(value).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 3))] = data.draw(
        st.sampled_from([b"", b",", b"]", b"}", b"[", b'"', b"\\", b":", b"\xff"])
    )
    try:
        expected = from_json(bytes(text))
    except ValueError:
        expected = NotJson
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "PIECE_BYTES", 64)
        patch.setattr(long, "PIECE_BYTES", 64)
        patch.setattr(long, "MAX_ELEMENT_BYTES", 64)
        try:
            found = whole(Document(text=bytes(text), max_bytes=MIB).read())
        except RequestValidationError:
            found = NotJson
    assert found == expected
