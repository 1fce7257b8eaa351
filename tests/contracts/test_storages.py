"""A local folder and an S3 bucket behave alike."""

import asyncio
import io
import json
import os
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from app.storage import (
    AlreadyStored,
    BadData,
    BadKey,
    DiskCache,
    MissingObject,
    Objects,
    Pool,
    PoolWriter,
    StorageDown,
    StorageError,
)
from app.storage.readers import Batch, Kind, check_head, open_reader

MB = 2**20
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    yield endpoint
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    """A client and an empty bucket."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    bucket = f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    yield client, bucket
    client.close()


@pytest.fixture(params=["file", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "file":
        return Objects(f"file://{tmp_path}/some%20folder")
    _, bucket = request.getfixturevalue("s3")
    return Objects(f"s3://{bucket}/some/prefix", cache=DiskCache(folder=tmp_path / "cache", max_bytes=64 * MB))


@pytest.fixture
def leftovers(objects: Objects, request: pytest.FixtureRequest) -> Callable[[], list[str]]:
    """All that is in the folder or the bucket, whatever its name, with uploads that were begun."""

    def find() -> list[str]:
        if objects.root is not None:
            return sorted(str(p.relative_to(objects.root)) for p in objects.root.rglob("*") if p.is_file())
        client, bucket = request.getfixturevalue("s3")
        listed = [item["Key"] for item in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
        begun = [item["Key"] + "#part" for item in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]
        return sorted(listed + begun)

    return find


async def chunks(*items: bytes, then: BaseException | None = None) -> AsyncIterator[bytes]:
    for item in items:
        yield item
        await asyncio.sleep(0)
    if then is not None:
        raise then


def test_what_was_put_is_read_back(objects: Objects) -> None:
    data = np.random.default_rng(0).bytes(300_000)
    objects.put("a/b.bin", data)
    assert objects.get("a/b.bin") == data
    assert objects.size("a/b.bin") == 300_000
    assert objects.get_range("a/b.bin", 10, 5) == data[10:15]
    assert objects.get_range("a/b.bin", 299_998, 50) == data[-2:]
    assert objects.get_range("a/b.bin", 300_000, 50) == objects.get_range("a/b.bin", 7, 0) == b""
    assert objects.get_ranges("a/b.bin", [5, 100_000, 0], [2, 3, 0]) == [data[5:7], data[100_000:100_003], b""]
    assert b"".join(objects.stream("a/b.bin", 1000)) == data
    assert objects.local_path("a/b.bin").read_bytes() == data
    with objects.open("a/b.bin") as file:
        assert file.seek(-4, 2) == 299_996
        assert file.read() == data[-4:]
        file.seek(1000)
        assert file.read(10) == data[1000:1010]
        assert file.tell() == 1010

    async def download() -> bytes:
        return b"".join([chunk async for chunk in objects.stream_async("a/b.bin", 1000)])

    assert asyncio.run(download()) == data
    objects.ping()


def test_an_empty_object_is_an_object(objects: Objects) -> None:
    objects.put("empty", b"")
    assert objects.get("empty") == b""
    assert objects.exists("empty")
    assert objects.local_path("empty").read_bytes() == b""


def test_a_key_is_written_once(objects: Objects, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"other")
    objects.put("k", b"first")
    with pytest.raises(AlreadyStored, match="k is already stored"):
        objects.put("k", b"second")
    with pytest.raises(AlreadyStored):
        objects.put_file("k", path)
    with pytest.raises(AlreadyStored):
        objects.put_file("k", path, consume=True)
    with pytest.raises(AlreadyStored):
        asyncio.run(objects.put_stream("k", chunks(b"third")))
    with pytest.raises(AlreadyStored):
        asyncio.run(objects.put_stream("k", chunks(*[bytes(MB)] * 20)))
    assert objects.get("k") == b"first"
    assert path.read_bytes() == b"other"


@pytest.mark.parametrize("size", [10, 20 * MB])
def test_a_file_is_stored_and_kept_unless_consumed(objects: Objects, tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(1).bytes(size)
    path = tmp_path / "file"
    path.write_bytes(data)
    objects.put_file("kept", path)
    with path.open("r+b") as file:
        file.write(b"changed")
    assert objects.get("kept") == data
    path.write_bytes(data)
    objects.put_file("taken", path, consume=True)
    assert not path.exists()
    assert objects.get("taken") == data


@pytest.mark.parametrize("n", [0, 1, 20])
def test_a_stream_is_stored_whole(objects: Objects, n: int, leftovers: Callable[[], list[str]]) -> None:
    data = np.random.default_rng(2).bytes(n * MB)
    pieces = [data[i : i + 700_001] for i in range(0, len(data), 700_001)]
    assert asyncio.run(objects.put_stream("up/load", chunks(*pieces))) == len(data)
    assert objects.get("up/load") == data
    assert len(leftovers()) == 1


@pytest.mark.parametrize("n", [0, 1, 20])
def test_a_cut_stream_leaves_nothing(objects: Objects, n: int, leftovers: Callable[[], list[str]]) -> None:
    with pytest.raises(ConnectionError, match="gone"):
        asyncio.run(objects.put_stream("up/load", chunks(*[bytes(MB)] * n, then=ConnectionError("gone"))))
    assert not objects.exists("up/load")
    assert leftovers() == []


@pytest.mark.parametrize("n", [1, 20])
def test_a_cancelled_stream_leaves_nothing(objects: Objects, n: int, leftovers: Callable[[], list[str]]) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        for _ in range(n):
            yield bytes(MB)
        reached.set()
        await asyncio.sleep(60)

    async def run() -> None:
        task = asyncio.ensure_future(objects.put_stream("up/load", stalls()))
        await reached.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    reached = asyncio.Event()
    asyncio.run(run())
    assert leftovers() == []


def test_what_is_not_there_is_missing(objects: Objects) -> None:
    objects.put("folder/file", b"x")
    for read in (objects.get, objects.size, objects.open, objects.local_path, lambda k: list(objects.stream(k))):
        with pytest.raises(MissingObject, match="nothing is stored under no/such"):
            read("no/such")
        with pytest.raises(MissingObject):
            read("folder")
    with pytest.raises(MissingObject):
        objects.get_range("no/such", 0, 1)
    assert not objects.exists("no/such")


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../up", "a/../b", "a//b", "a/", ".parts/x", "a/.hidden", "a b", "ä", "a\nb", "a" * 1000]
)
def test_a_key_that_is_no_plain_path_is_refused(objects: Objects, key: str) -> None:
    for use in (objects.get, objects.local_path, lambda k: objects.put(k, b""), lambda k: objects.delete([k])):
        with pytest.raises(BadKey, match="is not a key"):
            use(key)


def test_listing_and_deleting_go_by_whole_segments(objects: Objects) -> None:
    for key in ("p/1", "p/sub/2", "pq/3", "z"):
        objects.put(key, key.encode())
    found = {stored.key: stored.size for stored in objects.list("p")}
    assert found == {"p/1": 3, "p/sub/2": 7}
    assert {stored.key for stored in objects.list()} == {"p/1", "p/sub/2", "pq/3", "z"}
    assert all(stored.modified.tzinfo is not None for stored in objects.list())
    assert list(objects.list("nothing/here")) == []
    assert objects.delete_prefix("p/") == 2
    objects.delete(["z", "not-there", "z"])
    assert [stored.key for stored in objects.list()] == ["pq/3"]
    objects.put("p/1", b"a new life")
    assert objects.get("p/1") == b"a new life"
    assert objects.local_path("p/1").read_bytes() == b"a new life"


def test_a_deleted_object_is_not_served_from_the_cache(objects: Objects) -> None:
    objects.put("k", b"1")
    objects.local_path("k")
    objects.delete(["k"])
    with pytest.raises(MissingObject):
        objects.local_path("k")


def test_a_pool_is_the_same_wherever_it_lies(objects: Objects, leftovers: Callable[[], list[str]]) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((20_000, 5), dtype=np.float32)
    payloads = [None if i % 3 else b'{"n":%d}' % i for i in range(len(x))]
    with PoolWriter(objects, "pools/1/7", width=5, shard_bytes=1) as writer:
        for a in range(0, len(x), 6_000):
            b = min(a + 6_000, len(x))
            keys = [f"row {i}" for i in range(a, b)]
            writer.add(Batch(features=x[a:b], keys=keys, payloads=payloads[a:b]))
        manifest = writer.finish()
    assert [shard["n_rows"] for shard in manifest["shards"]] == [8192, 8192, 3616]
    assert manifest["bytes"] == sum(s.size for s in objects.list("pools/1/7") if not s.key.endswith("manifest.json"))
    pool = Pool.open(objects, "pools/1/7")
    rows = rng.integers(0, len(x), 50)
    np.testing.assert_array_equal(pool.rows(rows), x[rows])  # remote: by ranges
    for first, shard in pool.shards():
        np.testing.assert_array_equal(shard, x[first : first + len(shard)])
    np.testing.assert_array_equal(pool.rows(rows), x[rows])  # now from the cache
    assert pool.keys([19_999, 0]) == ["row 19999", "row 0"]
    assert pool.payloads([0, 1, 3]) == [{"n": 0}, None, {"n": 3}]
    assert pool.row_of(["row 19999", "no such", "row 0"]).tolist() == [19_999, -1, 0]
    again = PoolWriter(objects, "pools/1/7", width=5)
    again.add(Batch(features=x[:3]))
    with pytest.raises(AlreadyStored):
        again.finish()
    assert Pool.open(objects, "pools/1/7").n_rows == len(x)
    before = leftovers()
    twice = PoolWriter(objects, "pools/2", width=5, shard_bytes=1)
    twice.add(Batch(features=x[:9000], keys=["k"] * 9000))
    with pytest.raises(BadData, match="Rows 0 and 1 have the same key 'k'"):
        twice.finish()
    assert leftovers() == before


@pytest.mark.parametrize("kind", ["npy", "parquet", "arrow", "csv", "ndjson"])
def test_an_upload_is_read_where_it_lies(objects: Objects, kind: Kind) -> None:
    x = np.random.default_rng(4).integers(0, 9, (3000, 3)).astype(np.float32)
    buffer = io.BytesIO()
    table = pa.table({name: x[:, i] for i, name in enumerate("abc")})
    if kind == "npy":
        np.save(buffer, x)
    elif kind == "parquet":
        pq.write_table(table, buffer)
    elif kind == "arrow":
        with pa.ipc.new_file(buffer, table.schema) as writer:
            writer.write_table(table)
    elif kind == "csv":
        pa.csv.write_csv(table, buffer)
    else:
        buffer.write(b"".join(json.dumps({"x": row}).encode() + b"\n" for row in x.tolist()))
    objects.put("upload", buffer.getvalue())
    with objects.open("upload") as source:
        assert check_head(kind, source, width=3) in (None, 3000)
        found = np.concatenate([batch.features for batch in open_reader(kind, source, width=3)])
    np.testing.assert_array_equal(found, x)


def test_a_file_error_of_the_sender_is_not_taken_for_ours(objects: Objects) -> None:
    with pytest.raises(FileNotFoundError, match="theirs"):
        asyncio.run(objects.put_stream("k", chunks(b"x", then=FileNotFoundError("theirs"))))


def test_large_remote_payloads_are_read_by_ranges(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.storage.texts.MAPPED_BYTES", 10)
    with PoolWriter(objects, "p", width=1) as writer:
        features = np.zeros((4, 1), np.float32)
        writer.add(Batch(features=features, payloads=[b'"first one"', None, b"[2]", b"3"]))
        writer.finish()
    assert Pool.open(objects, "p").payloads([3, 1, 0]) == [3, None, "first one"]


def test_readiness_fails_when_the_storage_is_gone(s3: tuple[Any, str], tmp_path: Path) -> None:
    with pytest.raises(StorageDown, match="does not answer"):
        Objects("s3://no-such-bucket-here/x").ping()
    with pytest.raises(StorageError, match="file:///absolute/folder or s3"):
        Objects("ftp://somewhere/x")
    with pytest.raises(StorageError, match="cache"):
        Objects(f"s3://{s3[1]}").local_path("k")
    (tmp_path / "file").write_bytes(b"")
    folder = Objects(f"file://{tmp_path}/folder")
    assert folder.root is not None
    folder.root.rmdir()
    folder.root.write_bytes(b"a file where the folder was")
    with pytest.raises(StorageDown):
        folder.ping()
