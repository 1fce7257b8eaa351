"""`bensemble backtest`: a file of labelled rows in; a table, a recommendation and a picture out."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bensemble_core as bc
from app.backtests.backtest_files import guess_task, read_rows
from app.cli import main

ROWS = np.random.default_rng(0).normal(size=(60, 2)).round(3).astype(np.float32)
COLOURS = ["red" if a > b else "blue" for a, b in ROWS]
QUICK = '{"name": "quick", "acquisition": "margin", "posterior": {"name": "map", "epochs": 5}}'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """With a column that is no feature, and a row without a label."""
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["a", "b", "colour", "remark"])
        out.writerows([*row, colour, "x"] for row, colour in zip(ROWS.tolist(), COLOURS, strict=True))
        out.writerow([0.0, 0.0, "", "x"])
    return path


def test_a_table_a_recommendation_and_a_picture_come_of_a_csv_file(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "curves.png"
    short = ["--k", "4", "--rounds", "2", "--seeds", "2", "--strategies", QUICK, "--plot", str(picture)]
    assert main(["backtest", "--data", str(table), "--label", "colour", *short]) == 0
    shown = capsys.readouterr()
    assert "60 labelled rows of 2 features, classification (2 classes: blue, red); guessed" in shown.err
    assert "1 rows have no label and are left out" in shown.err
    assert "not used: remark" in shown.err
    assert "all labels, seed 1:" in shown.err
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["default", "random", "quick"]
    y = np.array([["blue", "red"].index(colour) for colour in COLOURS])
    found = bc.backtest(ROWS, y, likelihood="categorical", k=4, rounds=2, seeds=2, strategies=[])
    assert lines[2].split()[1:3] == [f"{found.curves[0].mean['accuracy'][-1]:.4f}", f"{found.curves[0].area.mean:.4f}"]
    assert "PATCH /v1/projects/{id} {" in shown.out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_rows_of_every_kind_of_file_are_the_same(table: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    np.save(tmp_path / "y.npy", np.array(COLOURS))
    columns = {"a": ROWS[:, 0], "b": ROWS[:, 1], "colour": COLOURS}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"x": ROWS.tolist(), "colour": COLOURS}), tmp_path / "lists.parquet")
    (tmp_path / "rows.ndjson").write_text(
        "".join(f'{{"x": {row}, "colour": "{colour}"}}\n' for row, colour in zip(ROWS.tolist(), COLOURS, strict=True))
    )
    places = [(table, "colour"), (tmp_path / "x.npy", str(tmp_path / "y.npy"))]
    places += [(tmp_path / name, "colour") for name in ("rows.parquet", "lists.parquet", "rows.ndjson")]
    for path, label in places:
        found = read_rows(path, label)
        np.testing.assert_allclose(found.x, ROWS, rtol=1e-6)
        assert found.labels == COLOURS


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (["red", "1"], "classification"),
        (["0", "1", "1.0"], "classification"),
        ([1.5, 2.0], "regression"),
        ([str(i) for i in range(21)], "regression"),
    ],
)
def test_the_task_is_guessed_from_the_labels(labels: list[Any], task: str) -> None:
    assert guess_task(labels) == task


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--label", "color"], "There is no column 'color' for the label; the columns are: a, b, colour, remark"),
        (["--label", "colour", "--k", "20"], "needs at least 80 labelled rows (3 k + 20)"),
        (["--label", "colour", "--k", "4", "--strategies", "{"], "a strategy is a name or JSON"),
        (["--label", "colour", "--k", "4", "--strategies", "marginal"], "there is no strategy 'marginal'"),
        (["--label", "colour", "--task", "regression"], "take --task classification"),
        (["--label", "colour", "--plot", "nowhere/b.png"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], said: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", "--data", str(table), *arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err.splitlines()[-1]
    assert shown.out == ""


def test_a_refusal_right_after_a_file_was_read_ends_the_process_in_order(table: Path) -> None:
    """Threads that read ahead may be at work still when the interpreter ends: it was aborted, most of the times."""
    command = [sys.executable, "-m", "app.cli", "backtest", "--data", str(table), "--label", "color"]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2, ended.stderr
        assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            ["0.5", "", "1.5", "2.5", "nan", *["1.5"] * 60],
            "the label of row 5 (the first row of data is 1, a header is",
        ),
        (
            ["1", "", "inf", *["2"] * 60],
            "the label of row 3 (the first row of data is 1, a header is not counted) is 'inf'",
        ),
        (
            ["7", *["1", "2"] * 30],
            "1 of 3 classes were: 7. Label at least 1 more row of each, or leave these rows out. If",
        ),
        (
            ["one", *["1", "2"] * 30],
            "1 of 3 classes were: one. Label at least 1 more row of each, or leave these rows out.",
        ),
        (["1"] * 60, "all labels are '1'; a backtest of classes needs at least two"),
    ],
)
def test_a_label_that_cannot_be_used_is_named_before_anything_else_is_said(
    labels: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("a,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    assert main(["backtest", "--data", str(path), "--label", "y", "--k", "4"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert ("--task regression" in line) == (labels[0] == "7")


def test_a_row_that_cannot_be_read_is_counted_as_people_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [0.0] * 40, "y": [0.5] * 4 + [float("nan")] + [0.5] * 35}), path)
    assert main(["backtest", "--data", str(path), "--label", "y"]) == 2
    assert "Rows count from 0 there: it is row 5 if the first row of data is 1" in capsys.readouterr().err
