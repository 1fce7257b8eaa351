"""The pool format: what is written is found again, by row and by key, and a failed write leaves nothing."""

import json
import subprocess
import sys
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage import BadData, MissingObject, Objects, Pool, PoolWriter
from app.storage.key_index import hash64
from app.storage.pools import shard_rows
from app.storage.readers import Batch, open_reader


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(f"file://{tmp_path}/objects")


def files(objects: Objects) -> list[Path]:
    assert objects.root is not None
    return [path for path in objects.root.rglob("*") if path.is_file()]


def write(objects: Objects, batches: Sequence[Batch], prefix: str = "p", **options: Any) -> Pool:
    with PoolWriter(objects, prefix, width=batches[0].features.shape[1], **options) as writer:
        for batch in batches:
            writer.add(batch)
        writer.finish()
    return Pool.open(objects, prefix, hash_key=options.get("hash_key", hash64))


def features(n: int, width: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, width), dtype=np.float32)


def test_shards_hold_a_multiple_of_8192_rows() -> None:
    assert shard_rows(64, 64 * 2**20) == 262_144
    assert shard_rows(1, 64 * 2**20) == 2**24
    assert shard_rows(784, 64 * 2**20) == 16_384
    assert shard_rows(150_528, 64 * 2**20) == 8192
    assert all(shard_rows(width, 2**26) % 8192 == 0 for width in range(1, 3000))


@pytest.mark.parametrize("n", [1, 8191, 8192, 8193, 40_000])
def test_shards_are_the_rows_in_order_whatever_the_batches(objects: Objects, n: int) -> None:
    x = features(n)
    cuts = [0, n // 7, n // 7, n // 2, n]
    pool = write(objects, [Batch(features=x[a:b]) for a, b in pairwise(cuts)], shard_bytes=1)
    shards = list(pool.shards())
    assert [first for first, _ in shards] == list(range(0, n, 8192))
    np.testing.assert_array_equal(np.concatenate([shard for _, shard in shards]), x)
    assert all(isinstance(shard, np.memmap) and not shard.flags.writeable for _, shard in shards)
    assert (pool.n_rows, pool.width, pool.n_shards) == (n, 3, len(shards))


def test_a_gather_equals_fancy_indexing(objects: Objects) -> None:
    x = features(30_000)
    pool = write(objects, [Batch(features=x)], shard_bytes=1)
    rng = np.random.default_rng(1)
    for rows in (rng.integers(0, 30_000, 1000), rng.permutation(30_000), [29_999, 0, 0, 8192, 8191], []):
        np.testing.assert_array_equal(pool.rows(rows), x[np.asarray(rows, dtype=int)])
    for row in (-1, 30_000):
        with pytest.raises(IndexError, match="not in this pool of 30000 rows"):
            pool.rows([0, row])


def test_without_keys_a_row_is_its_number(objects: Objects) -> None:
    pool = write(objects, [Batch(features=features(12))])
    assert pool.keys([0, 11]) == ["0", "11"]
    asked = ["0", "11", "12", "-1", "01", "+1", " 1", "1.0", "", "٣", "9" * 50]
    assert pool.row_of(asked).tolist() == [0, 11] + [-1] * 9
    assert pool.payloads([3]) == [None]


def test_keys_and_payloads_are_found_again(objects: Objects) -> None:
    n = 9000
    keys = [f"ключ/{i}" if i % 2 else f"{i}" * 3 + "x" for i in range(n)]
    payloads = [json.dumps({"i": i, "ü": "✓"}).encode() if i >= 5000 and i % 3 else None for i in range(n)]
    batches = [
        Batch(features=features(n)[a : a + 1000], keys=keys[a : a + 1000], payloads=payloads[a : a + 1000])
        for a in range(0, n, 1000)
    ]
    pool = write(objects, batches)  # the first payload comes in row 5000
    rows = np.random.default_rng(0).permutation(n)
    assert pool.keys(rows) == [keys[i] for i in rows]
    np.testing.assert_array_equal(pool.row_of([keys[i] for i in rows]), rows)
    assert pool.row_of(["nobody", "0", ""]).tolist() == [-1, -1, -1]
    assert pool.payloads(rows) == [json.loads(payloads[i]) if payloads[i] else None for i in rows]  # type: ignore[arg-type]


def test_trailing_batches_without_payloads(objects: Objects) -> None:
    x = features(6)
    pool = write(objects, [Batch(features=x[:3], payloads=[b"1", None, b"[]"]), Batch(features=x[3:])])
    assert pool.payloads(range(6)) == [1, None, [], None, None, None]
    assert not write(objects, [Batch(features=x, payloads=[None] * 6)], "q").has_payloads


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), min_size=1, unique=True),
    n_hashes=st.sampled_from([1, 2, 5]),
    others=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=5),
)
def test_keys_that_share_a_hash_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], n_hashes: int, others: list[str]
) -> None:
    objects = Objects(f"file://{tmp_path_factory.mktemp('pool')}")

    def collide(key: bytes) -> int:
        return (2**64 - 1) // n_hashes * (sum(key) % n_hashes)

    pool = write(objects, [Batch(features=features(len(keys)), keys=keys)], hash_key=collide)
    assert pool.row_of(keys).tolist() == list(range(len(keys)))
    assert pool.row_of(others).tolist() == [keys.index(key) if key in keys else -1 for key in others]


@pytest.mark.parametrize("n_hashes", [1, 3, 2**63])
def test_a_repeated_key_is_named_with_both_rows_and_nothing_stays(objects: Objects, n_hashes: int) -> None:
    keys = [f"k{i}" for i in range(20_000)]
    keys[17_000] = "k123"
    writer = PoolWriter(objects, "p", width=3, shard_bytes=1, hash_key=lambda key: hash64(key) % n_hashes)
    for a in range(0, 20_000, 5000):
        writer.add(Batch(features=features(5000), keys=keys[a : a + 5000], payloads=[b"1"] * 5000))
    with pytest.raises(BadData, match="Rows 123 and 17000 have the same key 'k123'") as caught:
        writer.finish()
    assert caught.value.row == 17_000
    assert files(objects) == []


def test_the_index_is_the_same_in_many_buckets(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"k{i}" for i in range(30_000)]
    batch = Batch(features=features(30_000), keys=keys)
    write(objects, [batch], "one")
    monkeypatch.setattr("app.storage.key_index.BUCKET_KEYS", 500)
    monkeypatch.setattr("app.storage.key_index.CHUNK_KEYS", 7000)
    pool = write(objects, [batch], "many")
    for name in ("keys.hashes.npy", "keys.rows.npy"):
        assert objects.get(f"one/{name}") == objects.get(f"many/{name}")
    hashes = np.load(objects.local_path("many/keys.hashes.npy"), allow_pickle=False)
    assert (hashes[1:] > hashes[:-1]).all()
    assert pool.row_of(keys).tolist() == list(range(30_000))


def test_bad_rows_in_the_middle_of_a_file_leave_nothing(objects: Objects, tmp_path: Path) -> None:
    x = features(100_000, 8)
    x[90_000, 3] = np.nan
    np.save(tmp_path / "rows.npy", x)

    def ingest() -> None:
        with (
            (tmp_path / "rows.npy").open("rb") as source,
            PoolWriter(objects, "p", width=8, shard_bytes=1) as writer,
        ):
            for batch in open_reader("npy", source, width=8):
                writer.add(batch)
            writer.finish()

    with pytest.raises(BadData, match="Row 90000, feature '3'"):
        ingest()
    assert files(objects) == []


def test_a_writer_left_without_finish_leaves_nothing(objects: Objects) -> None:
    with PoolWriter(objects, "p", width=3, shard_bytes=1) as writer:
        writer.add(Batch(features=features(50_000), keys=[str(i) for i in range(50_000)]))
    assert files(objects) == []
    with pytest.raises(RuntimeError, match="open another"):
        writer.add(Batch(features=features(1)))
    with pytest.raises(MissingObject):
        Pool.open(objects, "p")


def test_what_does_not_fit_is_refused(objects: Objects) -> None:
    with PoolWriter(objects, "p", width=3) as writer, pytest.raises(BadData, match="rows of 3 features"):
        writer.add(Batch(features=features(5, 4)))
    with PoolWriter(objects, "p", width=3) as writer:
        writer.add(Batch(features=features(5), keys=list("abcde")))
        with pytest.raises(BadData, match=r"Rows from 5 on .* keys"):
            writer.add(Batch(features=features(5)))
    with PoolWriter(objects, "p", width=3) as writer, pytest.raises(BadData, match="at least one row"):
        writer.finish()
    assert files(objects) == []


def test_a_failing_store_is_reported_and_nothing_stays(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    real = objects.put_file
    calls: list[str] = []

    def fails_later(key: str, path: Path, *, consume: bool = False) -> None:
        calls.append(key)
        if len(calls) == 3:
            raise OSError("disk full")
        real(key, path, consume=consume)

    monkeypatch.setattr(objects, "put_file", fails_later)
    writer = PoolWriter(objects, "p", width=3, shard_bytes=1)

    def fill() -> None:
        with writer:
            for _ in range(20):
                writer.add(Batch(features=features(8192)))
            writer.finish()

    with pytest.raises(OSError, match="disk full"):
        fill()
    assert len(calls) >= 3
    assert files(objects) == []


def test_the_manifest_describes_the_files(objects: Objects) -> None:
    x = features(10_000)
    pool = write(objects, [Batch(features=x, keys=[str(i) for i in range(10_000)])], shard_bytes=1)
    manifest = pool.manifest
    assert manifest == json.loads(objects.get("p/manifest.json"))
    assert manifest["shard_rows"] == 8192
    assert [shard["n_rows"] for shard in manifest["shards"]] == [8192, 1808]
    for shard, (first, rows) in zip(manifest["shards"], pool.shards(), strict=True):
        assert int(shard["crc32"], 16) == zlib.crc32(x[first : first + len(rows)].tobytes())
    assert {stored.key for stored in objects.list("p")} == {
        "p/manifest.json",
        "p/features-00000.npy",
        "p/features-00001.npy",
        "p/keys.bin",
        "p/keys.offsets.npy",
        "p/keys.hashes.npy",
        "p/keys.rows.npy",
    }


def test_a_large_ingest_needs_little_memory(tmp_path: Path) -> None:
    """256 MB of rows, a third of a million keys; peak of the process above its start, mapped files aside."""
    program = """
import sys, threading, time
import numpy as np, psutil
from app.storage import Objects, PoolWriter
from app.storage.readers import Batch
private = lambda: (m := psutil.Process().memory_info()).rss - m.shared
objects = Objects(sys.argv[1])
rows = np.zeros((16_384, 200), np.float32)
start, peak = private(), 0
with PoolWriter(objects, "p", width=200) as writer:
    for i in range(20):
        writer.add(Batch(features=rows, keys=[f"{i}-{j}" for j in range(16_384)]))
        peak = max(peak, private() - start)
    writer.finish()
    peak = max(peak, private() - start)
print(writer.n_rows, peak)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, f"file://{tmp_path}/o"], capture_output=True, text=True, check=True, timeout=60
    )
    n_rows, peak = map(int, done.stdout.split())
    assert n_rows == 327_680
    assert peak < 64 * 2**20, f"{peak:,} bytes"
