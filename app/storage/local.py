"""Durable, create-only writes into a local folder.

A file is written under `.parts/`, synced, then hard-linked to its name: the link fails if the name is taken, so that
an object is either whole or not there, and never replaced. obstore's own local writes neither sync nor (for streams)
refuse to overwrite.
"""

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.storage.errors import AlreadyStored

PARTS = ".parts"


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def part_file(root: Path) -> Iterator[Path]:
    """A fresh path for a file that is being written; whatever is there at the end is removed."""
    folder = root / PARTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / secrets.token_hex(16)
    try:
        yield path
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def publish(root: Path, part: Path, key: str) -> None:
    """Give a finished part its name. The part keeps its own name too, until its owner removes it."""
    sync_file(part)
    target = root / key
    for _ in range(100):
        try:
            made = _make_folders(root, target.parent)
        except (FileExistsError, FileNotFoundError):
            if target.parent.is_file():
                raise
            continue  # a delete removed a folder while we made it
        try:
            os.link(part, target)
            break
        except FileExistsError:
            raise AlreadyStored(f"{key} is already stored; objects are written once, choose a new key") from None
        except FileNotFoundError:
            if not part.exists():
                raise
            continue  # a delete removed the empty folder between our two calls
    else:
        raise OSError(errno.EBUSY, f"the folder of {key} is removed as fast as it is made")
    for folder in {target.parent, *made}:
        with suppress(FileNotFoundError):
            sync_folder(folder)


def _make_folders(root: Path, folder: Path) -> list[Path]:
    """Make what is missing; the parents whose entries changed."""
    changed = []
    current = folder
    while current != root and not current.exists():
        changed.append(current.parent)
        current = current.parent
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def copy_into(root: Path, path: Path, key: str) -> None:
    with part_file(root) as part:
        shutil.copyfile(path, part)
        publish(root, part, key)


def link_into(root: Path, path: Path, key: str) -> None:
    """Like `copy_into`, but takes the file itself: no bytes move on one file system."""
    try:
        publish(root, path, key)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        copy_into(root, path, key)
    path.unlink()


def sweep_parts(root: Path, *, older_than: float) -> int:
    """Remove what killed processes left half written, untouched for that many seconds; how many files."""
    removed = 0
    before = time.time() - older_than
    for path in (root / PARTS).glob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            if path.stat().st_mtime < before:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
                removed += 1
    return removed
