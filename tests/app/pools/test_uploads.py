"""Files for pools over HTTP: every format, cut connections, mistakes far down, and memory."""

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from app.db.engine import Database
from app.db.migrate import migrate
from app.pools.receive_file import limits_of
from app.settings import Settings
from app.web.auth import create_key
from tests.app.conftest import Service
from tests.app.hammering import classification, empty_pool, files, refused, regression, stored
from tests.app.working import wait_for

N = 300
X = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
KEYS = [f"row {i}" for i in range(N)]
LABELS = ["red" if x[0] > 0 else "blue" for x in X.tolist()]
PAYLOADS = [{"n": i, "text": "ü" * (i % 3)} for i in range(N)]
MIB = 2**20


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def table(names: tuple[str, str, str] = ("key", "label", "payload")) -> pa.Table:
    columns = {"a": X[:, 0], "b": X[:, 1]}
    texts = (KEYS, LABELS, [json.dumps(payload) for payload in PAYLOADS])
    return pa.table({**columns, **dict(zip(names, texts, strict=True))})


def as_parquet(given: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(given, file, row_group_size=64)
    return file.getvalue()


def as_arrow(given: pa.Table, *, stream: bool) -> bytes:
    file = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(file, given.schema) as writer:
        writer.write_table(given, max_chunksize=64)
    return file.getvalue()


def as_csv(names: tuple[str, str, str] = ("key", "label", "payload")) -> bytes:
    lines = [",".join(("a", *names, "b"))]
    for x, key, label, payload in zip(X.tolist(), KEYS, LABELS, PAYLOADS, strict=True):
        quoted = json.dumps(payload, ensure_ascii=False).replace('"', '""')
        lines.append(f'{x[0]!r},{key},{label},"{quoted}",{x[1]!r}')
    return "\n".join(lines).encode() + b"\n"


def as_ndjson() -> bytes:
    rows = zip(X.tolist(), KEYS, LABELS, PAYLOADS, strict=True)
    lines = [json.dumps({"x": x, "key": key, "label": label, "payload": payload}) for x, key, label, payload in rows]
    return "\n".join(lines).encode()


FORMATS: dict[str, tuple[bytes, str]] = {
    "parquet": (as_parquet(table()), "application/vnd.apache.parquet"),
    "arrow file": (as_arrow(table(), stream=False), "application/vnd.apache.arrow.file"),
    "arrow stream": (as_arrow(table(), stream=True), "application/vnd.apache.arrow.stream"),
    "csv": (as_csv(), "text/csv; charset=utf-8"),
    "ndjson": (as_ndjson(), "application/x-ndjson"),
    "parquet by its first bytes": (as_parquet(table()), "application/octet-stream"),
}


def put(service: Service, pool_id: str, content: Any, kind: str, **params: str) -> dict[str, Any]:
    response = service.client.put(
        f"/v1/pools/{pool_id}/data", content=content, headers={"Content-Type": kind}, params=params
    )
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/v1/jobs/{response.json()['job']['id']}"
    return dict(response.json())


def items(service: Service, pool_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = service.get(f"/pools/{pool_id}/items", limit=128, features=True, **cursor)
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def check_items(service: Service, pool_id: str) -> None:
    found = items(service, pool_id)
    assert [item["row"] for item in found] == list(range(N))
    assert [item["key"] for item in found] == KEYS
    assert [item["label"] for item in found] == LABELS
    assert [item["payload"] for item in found] == PAYLOADS
    assert np.array_equal(np.array([item["x"] for item in found], dtype=np.float32), X)


def test_every_format_arrives_as_it_was_sent(service: Service) -> None:
    project_id = classification(service)
    for name, (content, kind) in FORMATS.items():
        pool_id = empty_pool(service, project_id)
        asked = put(service, pool_id, content, kind)
        assert (asked["pool"]["status"], asked["job"]["status"]) == ("ingesting", "queued"), name
        service.run_jobs()
        found = service.get(f"/pools/{pool_id}")
        assert (found["status"], found["n_rows"], found["n_labelled"], found["error"]) == ("ready", N, N, None), name
        check_items(service, pool_id)
    assert not [name for name in files(service) if name.startswith("uploads/")]


def test_an_npy_file_arrives_as_it_was_sent(service: Service) -> None:
    for array in (X, X.astype(np.float64), np.asfortranarray(X), X.astype(">f4")):
        pool_id = empty_pool(service, classification(service))
        put(service, pool_id, npy(array), "application/x-npy")
        service.run_jobs()
        found = items(service, pool_id)
        assert np.array_equal(np.array([item["x"] for item in found], dtype=np.float32), X)
        assert [item["key"] for item in found] == [str(i) for i in range(N)]
        assert {(item["payload"], item["label"], item["status"]) for item in found} == {(None, None, "unlabelled")}


def test_columns_go_by_the_names_in_the_query(service: Service) -> None:
    names = ("id", "colour", "note")
    chosen = {"key": "id", "label": "colour", "payload": "note"}
    for content, kind in [(as_parquet(table(names)), "application/parquet"), (as_csv(names), "text/csv")]:
        pool_id = empty_pool(service, classification(service))
        put(service, pool_id, content, kind, **chosen)
        service.run_jobs()
        check_items(service, pool_id)


def test_numbers_as_labels_of_an_evaluation_pool_arrive(service: Service) -> None:
    project_id = regression(service)
    pool_id = empty_pool(service, project_id, purpose="evaluation")
    put(service, pool_id, b"a,b,y\n1,2,0.5\n3,4,-1e3\n5,6,\n", "text/csv", label="y")
    service.run_jobs()
    assert [item["label"] for item in items(service, pool_id)] == [0.5, -1000.0, None]


def test_an_evaluation_file_without_labels_fails_and_says_so(service: Service) -> None:
    project_id = classification(service)
    pool_id = empty_pool(service, project_id, purpose="evaluation")
    put(service, pool_id, b"a,b,label\n1,2,\n", "text/csv")
    service.run_jobs()
    failed = service.get(f"/pools/{pool_id}")
    assert (failed["status"], failed["n_rows"]) == ("failed", 0)
    assert "comes with labels" in failed["error"]["detail"]
    assert files(service) == []


def far_mistakes() -> dict[str, tuple[bytes, str, str]]:
    """Files whose first ten thousand rows are right, and what must be said of a later one."""
    n, wrong = 60_000, 50_000
    x = np.zeros((n, 2), dtype=np.float32)
    x[wrong, 1] = np.nan
    right = np.zeros(n)
    keys = [str(i) for i in range(n)]
    keys[wrong] = "7"
    labels = ["red"] * n
    labels[wrong] = "green"
    ragged = b'{"x": [1, 2]}\n' * wrong + b'{"x": [1]}\n'
    parquet = "application/parquet"
    return {
        "a NaN in npy": (npy(x), "application/x-npy", f"Row {wrong}"),
        "a NaN in parquet": (as_parquet(pa.table({"a": x[:, 0], "b": x[:, 1]})), parquet, f"Row {wrong}"),
        "a key twice": (as_parquet(pa.table({"a": right, "b": right, "key": keys})), parquet, "the same key '7'"),
        "an unknown class": (
            as_parquet(pa.table({"a": right, "b": right, "label": labels})),
            parquet,
            f"Row {wrong}: unknown class 'green'",
        ),
        "a short row": (ragged, "application/x-ndjson", f"Row {wrong}"),
    }


def test_a_mistake_far_down_fails_the_job_and_the_next_file_succeeds(service: Service) -> None:
    project_id = classification(service)
    for name, (content, kind, says) in far_mistakes().items():
        pool_id = empty_pool(service, project_id)
        before = stored(service)
        asked = put(service, pool_id, content, kind)
        service.run_jobs()
        job = service.get(f"/jobs/{asked['job']['id']}")
        assert (job["status"], job["error"]["status"], job["result"]) == ("failed", 422, None), name
        assert says in job["error"]["detail"], name
        failed = service.get(f"/pools/{pool_id}")
        assert (failed["status"], failed["n_rows"], failed["error"]) == ("failed", 0, job["error"]), name
        after = stored(service)
        assert after[1] == before[1]
        assert {table for table in after[0] if after[0][table] != before[0][table]} == {"job"}
        refused(service, "GET", f"/pools/{pool_id}/items", 409, "has no rows yet")
        put(service, pool_id, npy(X), "application/x-npy")
        assert service.get(f"/pools/{pool_id}")["status"] == "ingesting"
        service.run_jobs()
        ready = service.get(f"/pools/{pool_id}")
        assert (ready["status"], ready["n_rows"], ready["error"]) == ("ready", N, None), name


def test_trying_a_failed_ingest_again_says_that_the_file_is_gone(service: Service) -> None:
    pool_id = empty_pool(service, classification(service))
    content, kind, _ = far_mistakes()["a NaN in npy"]
    job_id = put(service, pool_id, content, kind)["job"]["id"]
    service.run_jobs()
    service.post(f"/jobs/{job_id}/retry", status=200)
    service.run_jobs()
    job = service.get(f"/jobs/{job_id}")
    assert job["status"] == "failed"
    assert "send it again" in job["error"]["detail"]
    assert service.get(f"/pools/{pool_id}")["status"] == "failed"


def test_a_cancelled_ingest_can_be_followed_by_another_file(service: Service) -> None:
    pool_id = empty_pool(service, classification(service))
    job_id = put(service, pool_id, npy(X), "application/x-npy")["job"]["id"]
    service.post(f"/jobs/{job_id}/cancel", status=200)
    assert service.get(f"/pools/{pool_id}")["status"] == "failed"
    put(service, pool_id, npy(X[:5]), "application/x-npy")
    service.run_jobs()
    assert service.get(f"/pools/{pool_id}")["n_rows"] == 5


def cut(service: Service, path: str, kind: str, body: bytes, *, announced: int | None) -> None:
    """Send the head of a request and half of its body, then hang up."""
    url = service.client.base_url
    length = f"Content-Length: {announced}" if announced is not None else "Transfer-Encoding: chunked"
    head = (
        f"PUT {path} HTTP/1.1\r\nHost: test\r\nAuthorization: {service.client.headers['Authorization']}\r\n"
        f"Content-Type: {kind}\r\n{length}\r\n\r\n"
    )
    with socket.create_connection((url.host, url.port or 80), timeout=20) as connection:
        connection.sendall(head.encode())
        if announced is not None:
            connection.sendall(body)
        else:
            for start in range(0, len(body), 10_000):
                piece = body[start : start + 10_000]
                connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        time.sleep(0.2)  # so that some of it is on its way to the storage


def test_a_cut_connection_leaves_nothing_and_the_pool_usable(service: Service) -> None:
    pool_id = empty_pool(service, classification(service))
    path = f"/v1/pools/{pool_id}/data"
    large = npy(np.zeros((400_000, 2), dtype=np.float32))
    before = stored(service)
    csv = b"a,b\n" + b"1,2\n" * 500_000
    for kind, body, announced in [
        ("application/x-npy", large[: len(large) // 2], len(large)),
        ("application/x-npy", large[:100], len(large)),
        ("application/x-npy", b"", len(large)),
        ("text/csv", csv, len(csv) + 1),
        ("text/csv", csv, None),  # a whole file, but the last chunk never came
    ]:
        cut(service, path, kind, body, announced=announced)
        wait_for(lambda: stored(service) == before)
        assert service.get(f"/pools/{pool_id}")["status"] == "empty"
    time.sleep(0.3)
    assert stored(service) == before
    put(service, pool_id, npy(X), "application/x-npy")
    service.run_jobs()
    assert service.get(f"/pools/{pool_id}")["n_rows"] == N


def test_of_two_files_at_once_one_is_taken(service: Service) -> None:
    pool_id = empty_pool(service, classification(service))

    def slowly() -> Iterator[bytes]:
        content = npy(X)
        yield content[:200]
        put(service, pool_id, npy(X[:7]), "application/x-npy")
        yield content[200:]

    headers = {"Content-Type": "application/x-npy"}
    late = service.client.put(f"/v1/pools/{pool_id}/data", content=slowly(), headers=headers)
    assert (late.status_code, late.json()["title"]) == (409, "Not possible in the present state")
    assert len([name for name in files(service) if name.startswith("uploads/")]) == 1
    service.run_jobs()
    assert service.get(f"/pools/{pool_id}")["n_rows"] == 7


def test_a_pool_deleted_while_its_file_comes_in_stays_deleted(service: Service) -> None:
    pool_id = empty_pool(service, classification(service))

    def slowly() -> Iterator[bytes]:
        content = npy(X)
        yield content[:200]
        service.client.delete(f"/v1/pools/{pool_id}").raise_for_status()
        yield content[200:]

    headers = {"Content-Type": "application/x-npy"}
    late = service.client.put(f"/v1/pools/{pool_id}/data", content=slowly(), headers=headers)
    assert late.status_code == 404, late.text
    service.run_jobs()
    assert files(service) == []


def test_a_payload_that_could_not_be_shown_again_stays_text_or_is_refused(service: Service) -> None:
    """JSON can spell half of a surrogate pair and numbers past all floats, and nest deeper than an answer can."""
    deep = "[" * 101 + "]" * 101
    texts = [r'{"a": "\ud800"}', deep, "[1e999]", "[NaN]", '"quoted"', "{broken", r"\ud800"]
    parsed = {"[" * 100 + "]" * 100: json.loads("[" * 100 + "]" * 100), '{"b": [{}]}': {"b": [{}]}}
    given = [*texts, *parsed]
    zeros = np.zeros(len(given))
    pool_id = empty_pool(service, classification(service))
    content = as_parquet(pa.table({"a": zeros, "b": zeros, "payload": given}))
    put(service, pool_id, content, "application/parquet")
    service.run_jobs()
    assert [item["payload"] for item in items(service, pool_id)] == [*texts, *parsed.values()]
    pool_id = empty_pool(service, classification(service))
    lines = {
        "content": b'{"x": [1, 2], "payload": %s}\n' % deep.encode(),
        "headers": {"Content-Type": "application/x-ndjson"},
    }
    refused(service, "PUT", f"/pools/{pool_id}/data", 422, "nested deeper than 100 levels", **lines)


@contextmanager
def api_process(folder: Path) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    """The API alone in a process of its own, on SQLite."""
    settings = Settings(data_dir=folder)
    database = Database.connect(settings.database_url)
    migrate(database)
    with database.write() as session:
        _, secret = create_key(session, name="tester", scopes=["admin"])
    database.dispose()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {"BENSEMBLE_DATA_DIR": str(folder), "BENSEMBLE_PORT": str(port), "BENSEMBLE_LOG_LEVEL": "warning"}
    process = subprocess.Popen([sys.executable, "-m", "app.cli", "api"], env={**os.environ, **environment})
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client:
            wait_for(lambda: _is_ready(client), 60)
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def growth_of(folder: Path, n_rows: int) -> float:
    """MiB by which the API grows at most while it takes that many rows of 64 float32."""
    width = 64
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (n_rows, width)})
    block = np.random.default_rng(0).normal(size=(8000, width)).astype("<f4").tobytes()
    with api_process(folder) as (client, api):
        shape = {"input": {"shape": [width]}, "model": {"name": "mlp", "hidden": [8]}}
        body = {"name": "p", "task": {"kind": "regression"}, **shape}
        project_id = client.post("/v1/projects", json=body).json()["id"]
        path = f"/v1/projects/{project_id}/pools"
        headers = {"Content-Type": "application/x-npy"}
        warm = client.post(path, json={"name": "warm"}).json()["id"]
        small = npy(np.zeros((10, width), dtype=np.float32))
        assert client.put(f"/v1/pools/{warm}/data", content=small, headers=headers).status_code == 202
        start = api.memory_info().rss
        most = start

        def body_of() -> Iterator[bytes]:
            nonlocal most
            yield head.getvalue()
            for _ in range(n_rows // 8000):
                yield block
                most = max(most, api.memory_info().rss)

        pool_id = client.post(path, json={"name": "large"}).json()["id"]
        response = client.put(f"/v1/pools/{pool_id}/data", content=body_of(), headers=headers)
        assert response.status_code == 202, response.text
        most = max(most, api.memory_info().rss)
        storage = folder / "storage" / "uploads" / pool_id
        assert sum(file.stat().st_size for file in storage.iterdir()) == len(head.getvalue()) + n_rows * width * 4
        assert client.get(f"/v1/pools/{pool_id}").json()["status"] == "ingesting"
        return (most - start) / MIB


def test_a_million_rows_pass_through_little_memory(tmp_path: Path) -> None:
    assert growth_of(tmp_path, 1_000_000) < 150


def test_a_small_file_may_not_unpack_without_end() -> None:
    settings = Settings()
    assert limits_of(settings, 2**20).max_bytes == 2**30
    assert limits_of(settings, 2**27).max_bytes == 100 * 2**27
    assert limits_of(settings, 2**32).max_bytes == settings.max_pool_bytes


def test_mistakes_of_labels_and_keys_in_the_first_rows_are_answered_at_once(service: Service) -> None:
    project = service.project(input={"shape": [1]})
    for purpose, kind, content, says in (
        ("candidates", "text/csv", "a,label\n1,nine\n", "unknown class"),
        ("candidates", "text/csv", "a,key\n1,same\n2,same\n", "Rows 0 and 1 have the same key 'same'"),
        ("evaluation", "application/x-npy", _npy(np.zeros((2, 1), dtype=np.float32)), "npy has no place for"),
    ):
        pool = service.post(f"/projects/{project['id']}/pools", {"name": "p", "purpose": purpose})
        headers = {"Content-Type": kind}
        answer = service.client.put(f"/v1/pools/{pool['id']}/data", content=content, headers=headers)
        assert answer.status_code == 422
        assert says in answer.json()["detail"]
        assert service.get(f"/pools/{pool['id']}")["status"] == "empty"
    assert list(service.services.objects.list("uploads/")) == []


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
