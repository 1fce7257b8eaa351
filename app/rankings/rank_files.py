"""`bensemble rank`: an ensemble file and a file of rows in, CSV out; the scores that REST gives, with no service."""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bensemble_core as bc
from app.rankings.target_sets import drawn_rows
from app.settings import get_settings
from app.storage.objects import Objects
from app.storage.readers import BadData, Batch, Features, Kind, Reader, kind_of, open_reader, unused_note
from app.storage.texts import Texts, TextWriter
from app.web.csv import lines
from bensemble_core.acquisition import default_notes, resolve_pair
from bensemble_core.options import seed_of
from bensemble_core.ranking.scoring import CHUNK_ROWS

BAD_USAGE = 2  # exit code


def rank_files(arguments: argparse.Namespace) -> int:
    try:
        lines = _rank(arguments)
        if arguments.output is None:
            sys.stdout.write(lines)
        else:
            arguments.output.write_text(lines, encoding="utf-8")
    except (bc.BensembleError, BadData) as error:
        return _refuse(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _refuse(f"{error.filename or 'file'}: {error.strerror or error}")
    return 0


def _refuse(reason: str) -> int:
    print(f"bensemble rank: {' '.join(reason.split())}", file=sys.stderr)
    return BAD_USAGE


def _rank(arguments: argparse.Namespace) -> str:
    named = _named("acquisition", arguments.acquisition), _named("selection", arguments.selection)
    resolve_pair(*named, "categorical")  # a slip in a name is told before a large file is read
    if arguments.k < 1:
        raise bc.InvalidOption(f"k is at least 1, got {arguments.k}")
    seed_of(arguments.seed)
    if arguments.output is not None and not arguments.output.absolute().parent.is_dir():
        raise bc.InvalidOption(f"there is no folder {arguments.output.parent} to write {arguments.output.name} to")
    ensemble = _load(arguments.ensemble, arguments.seed)
    acquisition, selection = resolve_pair(*named, ensemble.family)
    _check_target(acquisition.name, arguments.target)
    shape = ensemble.problem.model.input_shape
    with (
        arguments.pool.open("rb") as source,
        tempfile.TemporaryDirectory(prefix="bensemble-rank-") as folder,
        _Keys(Path(folder)) as keys,
    ):
        kind = file_kind(arguments.pool, source.read(8))
        reader = open_reader(kind, source, width=math.prod(shape))
        if reader.n_rows is not None and arguments.k > reader.n_rows:
            raise bc.InvalidOption(f"k = {arguments.k} rows were asked for and {arguments.pool} has {reader.n_rows}")
        target = _target(arguments.target, ensemble, arguments.seed)
        parts = []
        with _progress(reader) as show:
            for first_row, x in _chunks(keys.noting(reader)):
                rows = x.reshape(len(x), *shape)
                part = bc.score(ensemble, rows, acquisition, seed=arguments.seed, first_row=first_row, target=target)
                parts.append(part)
                show(first_row + len(x))

        def gather(rows: torch.Tensor) -> Features:
            source.seek(0)
            return _taken(open_reader(kind, source, width=math.prod(shape)), rows.numpy()).reshape(-1, *shape)

        chosen = bc.conclude(
            ensemble,
            torch.cat(parts),
            acquisition=acquisition,
            selection=selection,
            k=arguments.k,
            seed=arguments.seed,
            gather=gather,
        )
        by_default = default_notes(*named, ensemble.family)
        for note in [*([unused_note(reader.unused)] if reader.unused else []), *by_default, *chosen.notes]:
            print(f"note: {note}", file=sys.stderr)
        found = zip(chosen.rows.tolist(), keys.of(chosen.rows.numpy()), chosen.scores.tolist(), strict=True)
        ranked = ([i, row, key, repr(score)] for i, (row, key, score) in enumerate(found, 1))
        return lines([["rank", "row", "key", "score"], *ranked])


def _named(kind: str, text: str | None) -> Any:
    """A bare name, a JSON object with a name and options, or None where the choice is left to us."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise bc.InvalidOption(f"--{kind} is a name or JSON, and this is not JSON ({error}): {text}") from error


def _load(path: Path, seed: int) -> "bc.Ensemble":
    with path.open("rb"):  # a missing or unreadable file is the system's own message
        pass
    found = bc.load(path, device=_device())
    if isinstance(found, bc.Fitted):
        found = found.sample(seed=seed)
    assert isinstance(found, bc.Ensemble)
    return found


def _check_target(name: str, path: Path | None) -> None:
    is_needed = "target" in bc.ACQUISITIONS[name].needs
    if is_needed and path is None:
        raise bc.InvalidOption(f"{name} needs a target set; pass --target, a file with the rows to be predicted well")
    if path is not None and not is_needed:
        raise bc.InvalidOption(f"{name} knows no target set; leave --target out")


def _target(path: Path | None, ensemble: "bc.Ensemble", seed: int) -> "bc.Predictive | None":
    if path is None:
        return None
    shape = ensemble.problem.model.input_shape
    try:
        with path.open("rb") as source:
            reader = open_reader(file_kind(path, source.read(8)), source, width=math.prod(shape))
            batches = [batch.features for batch in reader]
    except BadData as error:
        raise BadData(f"--target {path}: {str(error).removeprefix(f'{path.name}: ')}") from error
    if not sum(map(len, batches)):
        raise BadData(f"--target {path}: the file has no rows; epig is an average over at least one")
    rows = np.concatenate(batches)
    drawn, note = drawn_rows(len(rows), seed)
    if note is not None:
        print(f"note: {note}", file=sys.stderr)
    return ensemble.predict(rows[drawn].reshape(-1, *shape))


def _taken(batches: Iterable[Batch], rows: npt.NDArray[np.int64]) -> Features:
    """Some rows (ascending) of a file that is read once more: [n, width]."""
    found, first = list[Features](), 0
    for batch in batches:
        inside = rows[(rows >= first) & (rows < first + len(batch))] - first
        found.append(batch.features[inside])
        first += len(batch)
    return np.concatenate(found)


def _device() -> str:
    chosen = get_settings().device
    return chosen if chosen != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def file_kind(path: Path, head: bytes) -> Kind:
    try:
        return kind_of(None, path.name, head)
    except BadData:
        raise BadData(
            f"{path.name}: the name does not say what the rows are; end it in .npy, .parquet, .arrow, .csv or .ndjson"
        ) from None


def _chunks(batches: Iterable[Batch]) -> Iterator[tuple[int, Features]]:
    """The rows again, in the chunks in which pools are scored: a row's last bits depend on where its chunk starts."""
    first_row, waiting, n_waiting = 0, list[Features](), 0
    for batch in batches:
        waiting.append(batch.features)
        n_waiting += len(batch)
        if n_waiting < CHUNK_ROWS:
            continue
        rows = np.concatenate(waiting)
        n_full = n_waiting // CHUNK_ROWS * CHUNK_ROWS
        for start in range(0, n_full, CHUNK_ROWS):
            yield first_row + start, rows[start : start + CHUNK_ROWS]
        first_row, waiting, n_waiting = first_row + n_full, [rows[n_full:].copy()], n_waiting - n_full
    if n_waiting:
        yield first_row, np.concatenate(waiting)


class _Keys:
    """The rows' keys, on disk while the rows pass; a row of a file without keys is called by its number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: TextWriter | None = None

    def __enter__(self) -> "_Keys":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def noting(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if batch.keys is not None:
                self._writer = self._writer or TextWriter(self._folder, "keys")
                self._writer.add([key.encode() for key in batch.keys])
            yield batch

    def of(self, rows: Any) -> list[str]:
        if self._writer is None:
            return [str(row) for row in rows.tolist()]
        self._writer.close()
        objects = Objects(self._folder.absolute().as_uri())
        return [key.decode() for key in Texts(objects, "keys.bin", "keys.offsets.npy").take(rows)]


@contextmanager
def _progress(reader: Reader) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal; called with the rows that are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("scoring rows", total=reader.n_rows)
        yield lambda n_rows: bars.update(task, completed=n_rows)
