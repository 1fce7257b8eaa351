"""`bensemble backtest`: a file of labelled rows in; a table, a recommendation and a picture out, with no service."""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bensemble_core as bc
from app.projects.targets import LARGEST
from app.rankings.rank_files import BAD_USAGE, file_kind
from app.storage.readers import BadData, Columns, find_width, kept_apart, open_reader, unused_note
from bensemble_core.backtesting.curves import LabelsSaved, StrategyCurve
from bensemble_core.backtesting.labels_needed import ROUNDS, check_labels

COUNTED = "the first row of data is 1, a header is not counted"
MOST_CLASSES = 20  # whole numbers of more kinds than this are taken for numbers, not classes


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Those that have a label, and what a reader should know of the others."""

    x: npt.NDArray[np.float32]  # [N, D]
    labels: list[Any]
    numbers: list[int]  # of these rows in the file, the first is 1
    notes: list[str]


def backtest_files(arguments: argparse.Namespace) -> int:
    try:
        print(_backtest(arguments))
    except BadData as error:
        where = "" if error.row is None else f" Rows count from 0 there: it is row {error.row + 1:,} if {COUNTED}."
        return _refuse(f"{error}{where}")
    except (bc.BensembleError, ImportError) as error:
        return _refuse(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _refuse(f"{error.filename or 'file'}: {error.strerror or error}")
    return 0


def _refuse(reason: str) -> int:
    print(f"bensemble backtest: {' '.join(reason.split())}", file=sys.stderr)
    return BAD_USAGE


def _backtest(arguments: argparse.Namespace) -> str:
    strategies = None if arguments.strategies is None else [_strategy(text) for text in arguments.strategies]
    if not arguments.plot.absolute().parent.is_dir():
        raise bc.InvalidOption(f"there is no folder {arguments.plot.parent} to write {arguments.plot.name} to")
    rows = read_rows(arguments.data, arguments.label)
    _refuse_bad_numbers(rows, arguments.task)
    task = arguments.task or guess_task(rows.labels)
    y, likelihood, told = _targets(rows.labels, task)
    if task == "classification":
        _check_classes(rows.labels, arguments.k)
    said = "" if arguments.task else "; guessed, --task says otherwise"
    for note in [f"{len(y):,} labelled rows of {rows.x.shape[1]:,} features, {task} ({told}){said}", *rows.notes]:
        print(note, file=sys.stderr)
    with _progress() as (report, on_round):
        found = bc.backtest(
            rows.x,
            y,
            likelihood=likelihood,
            strategies=strategies,
            rounds=arguments.rounds,
            k=arguments.k,
            seeds=arguments.seeds,
            report=report,
            on_round=on_round,
        )
    if arguments.rounds is None and found.rounds < ROUNDS:
        print(f"{found.rounds} rounds, not {ROUNDS}: there are no more labels to ask for", file=sys.stderr)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    bc.plots.learning_curves(found.curves, found.metric).savefig(arguments.plot, dpi=120)
    body = json.dumps(found.chosen.choice())
    return (
        f"{table(found)}\n\nTake {found.choice.strategy}. {found.choice.reason}\n"
        f"In a project of the service: PATCH /v1/projects/{{id}} {body}\nThe curves are in {arguments.plot}."
    )


def read_rows(path: Path, label: str) -> Rows:
    """All rows of a file that have a label; of an npy file the labels are in another one."""
    with path.open("rb") as source:
        kind = file_kind(path, source.read(8))
        columns = Columns() if kind == "npy" else Columns(label=label)
        reader = open_reader(kind, source, width=find_width(kind, source, columns=columns), columns=columns)
        batches = list(kept_apart(reader))
    x = np.concatenate([batch.features for batch in batches])
    labels = _npy_labels(Path(label), len(x)) if kind == "npy" else [y for batch in batches for y in batch.labels or ()]
    kept = [i for i, value in enumerate(labels) if value is not None]
    notes = [unused_note(reader.unused)] if reader.unused else []
    if len(kept) < len(x):
        notes.append(f"{len(x) - len(kept):,} rows have no label and are left out")
    return Rows(x=x[kept], labels=[labels[i] for i in kept], numbers=[i + 1 for i in kept], notes=notes)


def _npy_labels(path: Path, n_rows: int) -> list[Any]:
    if path.suffix != ".npy":
        raise bc.InvalidOption(f"an npy file has no columns: give --label an npy file of {n_rows:,} labels, not {path}")
    try:
        found = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise BadData(f"{path}: not an npy file of labels ({error}); save text with dtype str, not object") from error
    if found.shape != (n_rows,):
        raise BadData(f"{path}: expected {n_rows:,} labels, one a row, got an array of shape {found.shape}")
    return list(found.tolist())


def _refuse_bad_numbers(rows: Rows, task: str | None) -> None:
    """A regression takes finite numbers alone; with no task named, labels that are all numbers are finite, too."""
    found = [_number(label) for label in rows.labels]
    if task == "classification" or (task is None and None in found):
        return
    for label, number, row in zip(rows.labels, found, rows.numbers, strict=True):
        if number is None or not abs(number) <= LARGEST:
            mended = "correct it, or leave the cell empty, and the row is left out"
            raise bc.InvalidData(
                f"the label of row {row:,} ({COUNTED}) is {label!r:.40}; labels of a regression are finite numbers: "
                f"{mended if number is not None else 'take --task classification'}"
            )


def _number(label: Any) -> float | None:
    try:
        return float(label)
    except (TypeError, ValueError):
        return None


def _check_classes(labels: Sequence[Any], k: int) -> None:
    """As the library would, with the classes' names."""
    check_labels(len(labels), None, k=k)
    try:
        check_labels(len(labels), Counter(map(str, labels)), k=k)
    except bc.InvalidData as error:
        if any(_number(label) is None for label in labels):
            raise
        raise bc.InvalidData(f"{error} If the labels are measured numbers, take --task regression.") from error


def guess_task(labels: Sequence[Any]) -> str:
    """Regression, if all labels are numbers and some are not whole or there are many different ones."""
    numbers = {_number(label) for label in labels}
    if None in numbers:
        return "classification"
    is_whole = all(number.is_integer() for number in numbers if number is not None)
    return "classification" if is_whole and len(numbers) <= MOST_CLASSES else "regression"


def _targets(labels: Sequence[Any], task: str) -> tuple[npt.NDArray[Any], Any, str]:
    """As the library takes them, and in words."""
    if task == "classification":
        classes = sorted({str(value) for value in labels})
        if len(classes) < 2:
            raise bc.InvalidData(f"all labels are {classes[0]!r}; a backtest of classes needs at least two")
        number = {name: i for i, name in enumerate(classes)}
        y = np.array([number[str(value)] for value in labels], dtype=np.int64)
        shown = ", ".join(classes[:5]) + (", …" if len(classes) > 5 else "")
        return y, bc.Categorical(classes=tuple(classes)), f"{len(classes)} classes: {shown}"
    numbers = np.array([float(value) for value in labels], dtype=np.float32)
    return numbers, "gaussian", f"from {numbers.min():g} to {numbers.max():g}"


def _strategy(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise bc.InvalidOption(f"a strategy is a name or JSON, and this is not JSON ({error}): {text}") from error


def table(found: bc.Backtest) -> str:
    """By strategy: the metric at the end, its mean over all rounds, the gain over random rows, and labels saved."""
    what = "RMSE" if found.metric == "rmse" else found.metric
    head = [
        "strategy",
        f"{what} at the end",
        f"mean {what}",
        "gain over random",
        "labels saved",
        "to 95 % of all labels",
    ]
    rows = [head, *(_cells(curve, found) for curve in found.curves)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    seeds = f"{len(found.seeds)} seeds, {found.rounds} rounds of {found.k} labels, measured on {found.n_test:,} rows"
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], f"({seeds}; gains ± se, labels with 95 % intervals)"])


def _cells(curve: StrategyCurve, found: bc.Backtest) -> list[str]:
    measured = [curve.strategy, f"{curve.mean[found.metric][-1]:.4f}", f"{curve.area.mean:.4f}"]
    if curve.strategy == "random":
        return [*measured, "", "", ""]
    gain = f"{curve.gain.mean:+.4f} ± {curve.gain.se:.4f}"
    return [*measured, gain, *(_saved(each, len(found.seeds)) for each in (curve.saved, curve.saved_near_all))]


def _saved(found: LabelsSaved | None, n_seeds: int) -> str:
    if found is None:
        return "random rows do not get there"
    if found.n_arrived == 0:
        return "does not get there"
    labels = f"{found.labels.mean:+.0f} of {found.of_random:.0f}"
    if found.n_arrived < found.n_seeds:
        return f"at most {labels}: gets there in {found.n_arrived} of {found.n_seeds} seeds"
    interval = "" if math.isnan(found.labels.low) else f" [{found.labels.low:+.0f}, {found.labels.high:+.0f}]"
    seeds = f", {found.n_seeds} of {n_seeds} seeds" if found.n_seeds < n_seeds else ""
    return f"{labels}{interval}{seeds}"


@contextmanager
def _progress() -> Iterator[tuple[Callable[[int, int, str], None], Callable[[bc.BacktestRun], None]]]:
    """A bar on standard error, if that is a terminal; else a line for each run that has ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None)

        def on_round(run: bc.BacktestRun) -> None:
            if not run.rows and not console.is_terminal:
                print(f"{run.strategy}, seed {run.seed}: {run.seconds or 0.0:.1f} s", file=sys.stderr, flush=True)

        yield lambda done, total, told: bars.update(task, completed=done, total=total, description=told), on_round
