"""A bounded folder of downloaded objects, shared by the processes of one machine."""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class DiskCache:
    """Least recently used files go first.

    A file handed out within `grace_seconds` is kept, so that the receiver has time to open it; once it is open or
    memory-mapped, its removal does no harm. The folder may therefore be over `max_bytes` for that long.
    """

    folder: Path
    max_bytes: int
    grace_seconds: float = 10.0

    def path(self, name: str, download: Callable[[], Iterable[bytes | memoryview]]) -> Path:
        """The file of that name, downloaded if it is not there. Objects never change, so a name is never stale."""
        target = self._target(name)
        try:
            os.utime(target)  # access times are not kept on most mounts
            return target
        except FileNotFoundError:
            pass
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part-{secrets.token_hex(8)}")
        try:
            with part.open("wb") as file:
                for chunk in download():
                    file.write(chunk)
            part.replace(target)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
        self._evict(keep=target)
        return target

    def has(self, name: str) -> bool:
        return self._target(name).exists()

    def forget(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._target(name).unlink()

    def _target(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self.folder / digest[:2] / digest

    def _evict(self, *, keep: Path) -> None:
        now = time.time()
        files = []
        for path in self.folder.glob("*/*"):
            with suppress(FileNotFoundError):
                stat = path.stat()
                if ".part-" in path.name:
                    if now - stat.st_mtime > ABANDONED_SECONDS:
                        path.unlink()
                    continue
                files.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in files)
        for used, size, path in sorted(files):
            if total <= self.max_bytes or now - used < self.grace_seconds:
                break
            if path != keep:
                with suppress(FileNotFoundError):
                    path.unlink()
                total -= size
