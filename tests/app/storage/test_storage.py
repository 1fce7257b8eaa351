"""The local folder and the cache of downloads."""

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.storage import AlreadyStored, DiskCache, Objects
from app.storage.local import PARTS


def touch(path: Path, age: float) -> None:
    os.utime(path, (time.time() - age, time.time() - age))


def test_the_least_recently_used_file_is_evicted_first(tmp_path: Path) -> None:
    cache = DiskCache(folder=tmp_path, max_bytes=250, grace_seconds=1.0)
    a, b = (cache.path(name, lambda: [bytes(100)]) for name in "ab")
    touch(a, 100)
    touch(b, 50)
    cache.path("a", lambda: pytest.fail("it is there"))
    touch(a, 20)  # still used after b
    c = cache.path("c", lambda: [bytes(60), bytes(40)])
    assert a.exists()
    assert not b.exists()
    assert c.read_bytes() == bytes(100)


def test_a_file_just_handed_out_is_kept_even_over_the_limit(tmp_path: Path) -> None:
    cache = DiskCache(folder=tmp_path, max_bytes=10, grace_seconds=60.0)
    paths = [cache.path(name, lambda: [bytes(100)]) for name in "abc"]
    assert all(path.exists() for path in paths)
    tight = DiskCache(folder=tmp_path, max_bytes=10, grace_seconds=0.0)
    for path in paths:
        touch(path, 5)
    kept = tight.path("d", lambda: [bytes(100)])
    assert [path.exists() for path in (*paths, kept)] == [False, False, False, True]


def test_a_failed_download_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    def fails() -> Iterator[bytes]:
        yield b"some"
        raise ConnectionError("gone")

    cache = DiskCache(folder=tmp_path, max_bytes=1000)
    with pytest.raises(ConnectionError):
        cache.path("a", fails)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert cache.path("a", lambda: [b"whole"]).read_bytes() == b"whole"


def test_abandoned_downloads_are_removed(tmp_path: Path) -> None:
    cache = DiskCache(folder=tmp_path, max_bytes=1000)
    target = cache.path("a", lambda: [b"x"])
    old, young = target.with_name("x.part-1"), target.with_name("x.part-2")
    for path in (old, young):
        path.write_bytes(b"half")
    touch(old, 7200)
    cache.path("b", lambda: [b"y"])
    assert not old.exists()
    assert young.exists()


def _hammer(folder: Path, failures: "multiprocessing.Queue[str]") -> None:
    cache = DiskCache(folder=folder, max_bytes=3_000, grace_seconds=5.0)
    for i in range(150):
        name = str(i % 7)
        with cache.path(name, lambda name=name: [name.encode() * 1000]).open("rb") as file:
            if file.read() != name.encode() * 1000:
                failures.put(name)


def test_several_processes_share_a_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork" if threading.active_count() == 1 else "spawn")
    failures = context.Queue()
    workers = [context.Process(target=_hammer, args=(tmp_path, failures)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert failures.empty()


def test_one_of_many_writers_of_a_key_wins(tmp_path: Path) -> None:
    objects = Objects(f"file://{tmp_path}")
    outcomes: list[int | None] = []

    def write(i: int) -> None:
        try:
            objects.put("a/b/c", b"%d" % i * 1000)
            outcomes.append(i)
        except AlreadyStored:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [i for i in outcomes if i is not None]
    assert objects.get("a/b/c") == b"%d" % winner * 1000


def test_writing_and_deleting_in_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    objects = Objects(f"file://{tmp_path}")

    def churn(name: str) -> None:
        for i in range(60):
            objects.put(f"deep/er/{name}{i}", b"x")
            objects.delete([f"deep/er/{name}{i}"])

    errors: list[BaseException] = []

    def run(name: str) -> None:
        try:
            churn(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(objects.list()) == []


def test_half_written_files_are_not_listed_and_can_be_swept(tmp_path: Path) -> None:
    objects = Objects(f"file://{tmp_path}")
    with objects.scratch() as folder:
        (folder / "shard.npy").write_bytes(b"half")
        assert list(objects.list()) == []
    assert not folder.exists()
    (tmp_path / PARTS / "left-by-a-kill").write_bytes(b"half")
    touch(tmp_path / PARTS / "left-by-a-kill", 100)
    assert objects.sweep(older_than=1000) == 0
    assert objects.sweep(older_than=50) == 1
    assert list((tmp_path / PARTS).iterdir()) == []


def test_a_stored_stream_does_not_wait_in_memory(tmp_path: Path) -> None:
    objects = Objects(f"file://{tmp_path}")
    unwritten = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal unwritten
        for i in range(64):
            on_disk = sum(path.stat().st_size for path in (tmp_path / PARTS).iterdir())
            unwritten = max(unwritten, i * 2**20 - on_disk)
            yield bytes(2**20)

    assert asyncio.run(objects.put_stream("k", body())) == 64 * 2**20
    assert unwritten <= 2 * 2**20
    assert objects.size("k") == 64 * 2**20
