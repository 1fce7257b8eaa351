"""`bensemble rank`: files in, CSV out."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bensemble_core as bc
from app.cli import main
from app.db.engine import Database
from app.db.migrate import migrate
from tests.app.conftest import Service

N_ROWS = 3000  # more than two of the chunks in which rows are scored, and not a multiple


@pytest.fixture(scope="module")
def rows() -> Any:
    return np.random.default_rng(3).normal(size=(N_ROWS, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def fitted() -> bc.Fitted:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    model = {"name": "mlp", "hidden": [8]}
    return bc.fit("deep_ensemble", model, (x, y), likelihood="categorical", seed=1, members=4, epochs=10)


@pytest.fixture(scope="module")
def ensemble_file(fitted: bc.Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ensemble") / "ensemble.safetensors"
    fitted.sample(4, seed=0).save(path)
    return path


def write(kind: str, folder: Path, rows: Any) -> Path:
    path = folder / f"pool.{kind}"
    keys = [f"item-{i}" for i in range(len(rows))]
    table = pa.table({"key": keys, **{f"f{j}": rows[:, j] for j in range(rows.shape[1])}})
    if kind == "npy":
        np.save(path, rows)
    elif kind == "parquet":
        pq.write_table(table, path, row_group_size=700)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=700)
    elif kind == "csv":
        lines = [",".join([key, *(repr(float(v)) for v in row)]) for key, row in zip(keys, rows, strict=True)]
        path.write_text("\n".join(["key,a,b,c,d", *lines]) + "\n")
    else:
        lines = [json.dumps({"key": key, "x": row.tolist()}) for key, row in zip(keys, rows, strict=True)]
        path.write_text("\n".join(lines) + "\n")
    return path


def ranked(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str]]:
    assert main(["rank", *arguments]) == 0, capsys.readouterr().err
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


@pytest.mark.parametrize("kind", ["npy", "parquet", "arrow", "csv", "ndjson"])
def test_every_format_gives_the_ranking_of_the_library(
    kind: str,
    rows: Any,
    fitted: bc.Fitted,
    ensemble_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool = write(kind, tmp_path, rows)
    power = '{"name": "power", "beta": 2.0}'
    found = ranked(
        capsys, "--ensemble", str(ensemble_file), "--pool", str(pool), "--selection", power, "--k", "30", "--seed", "5"
    )
    expected = bc.rank(fitted.sample(4, seed=0), rows, selection={"name": "power", "beta": 2.0}, k=30, seed=5)
    assert [int(line["rank"]) for line in found] == list(range(1, 31))
    assert [int(line["row"]) for line in found] == expected.rows.tolist()
    assert [float(line["score"]) for line in found] == expected.scores.tolist()  # to the last bit
    name = "{}" if kind == "npy" else "item-{}"
    assert [line["key"] for line in found] == [name.format(line["row"]) for line in found]


@pytest.mark.parametrize("kind", ["npy", "csv"])
@pytest.mark.parametrize("selection", ["batchbald", "badge", "kcenter", "typiclust"])
def test_a_set_is_chosen_from_a_file_as_from_an_array(
    selection: str, kind: str, rows: Any, ensemble_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(kind, tmp_path, rows)
    arguments = ["--acquisition", "bald", "--selection", selection, "--k", "5", "--seed", "2"]
    assert main(["rank", "--ensemble", str(ensemble_file), "--pool", str(path), *arguments]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    ensemble = bc.load(ensemble_file)
    assert isinstance(ensemble, bc.Ensemble)
    expected = bc.rank(ensemble, rows, acquisition="bald", selection=selection, k=5, seed=2)
    assert [int(line["row"]) for line in lines] == expected.rows.tolist()


def test_epig_takes_its_target_from_a_file(
    rows: Any, ensemble_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, target = write("npy", tmp_path, rows), tmp_path / "target.npy"
    np.save(target, rows[:7])
    arguments = ["rank", "--ensemble", str(ensemble_file), "--pool", str(pool), "--acquisition", "epig", "--k", "5"]
    assert main(arguments) == 2
    assert "epig needs a target set; pass --target, a file" in capsys.readouterr().err
    assert main([*arguments, "--target", str(target)]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    ensemble = bc.load(ensemble_file)
    assert isinstance(ensemble, bc.Ensemble)
    expected = bc.rank(ensemble, rows, acquisition="epig", k=5, target=rows[:7])
    assert [int(line["row"]) for line in lines] == expected.rows.tolist()


@contextmanager
def trained(make_service: Any, digits: Any, folder: Path, n_rows: int) -> Iterator[tuple[Service, str, str]]:
    """A service with digits of which 30 are labelled, its project and pool; ensemble and pool are files, too."""
    database = Database.connect(f"sqlite:///{folder / 'bensemble.db'}")
    migrate(database)
    service: Service = make_service(database)
    x, y = digits
    project = service.project()
    body = {"name": "train", "rows": x[:n_rows].tolist(), "labels": [*y[:30], *[None] * (n_rows - 30)]}
    pool = service.post(f"/projects/{project['id']}/pools", body, 201)
    asked = service.post(f"/projects/{project['id']}/ensembles", {}, 202)
    service.run_jobs()
    file = service.client.get(f"/v1/ensembles/{asked['ensemble']['id']}/file")
    (folder / "downloaded.safetensors").write_bytes(file.content)
    np.save(folder / "pool.npy", x[:n_rows])
    yield service, project["id"], pool["id"]
    database.dispose()


def test_a_large_target_is_drawn_by_the_seed_as_the_service_draws_it(
    make_service: Any, digits: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = digits[0]
    with trained(make_service, digits, tmp_path, 50) as (service, project_id, pool_id):
        target = service.post(f"/projects/{project_id}/pools", {"name": "target", "rows": x[50:1300].tolist()}, 201)
        wanted = {"k": 20, "seed": 2, "acquisition": {"name": "epig"}, "target": {"pool_id": target["id"]}}
        asked = service.post(f"/pools/{pool_id}/rankings", wanted, 202)
        service.run_jobs()
        over_rest = service.get(f"/rankings/{asked['ranking']['id']}")
    np.save(tmp_path / "target.npy", x[50:1300])
    names = {"ensemble": "downloaded.safetensors", "pool": "pool.npy", "target": "target.npy"}
    files = [word for option, name in names.items() for word in (f"--{option}", str(tmp_path / name))]
    assert main(["rank", *files, "--acquisition", "epig", "--k", "50", "--seed", "2"]) == 0
    shown = capsys.readouterr()
    lines = [line for line in csv.DictReader(io.StringIO(shown.out)) if int(line["row"]) >= 30]
    assert [(int(line["row"]), float(line["score"])) for line in lines] == [
        (item["row"], item["score"]) for item in over_rest["items"]
    ]
    assert "1,250 rows; 1,000 drawn by the seed" in shown.err
    assert any("1,250 rows; 1,000 drawn by the seed" in note for note in over_rest["notes"])


def test_a_fitted_posterior_ranks_as_well(
    rows: Any, fitted: bc.Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted.save(tmp_path / "fitted.safetensors")
    pool, output = write("npy", tmp_path, rows), tmp_path / "ranking.csv"
    files = ["--ensemble", str(tmp_path / "fitted.safetensors"), "--pool", str(pool), "--output", str(output)]
    assert main(["rank", *files]) == 0
    assert capsys.readouterr().out == ""
    expected = bc.rank(fitted.sample(20, seed=0), rows, k=20)
    lines = list(csv.DictReader(io.StringIO(output.read_text())))
    assert [int(line["row"]) for line in lines] == expected.rows.tolist()


def test_files_are_ranked_as_the_service_ranks_them(
    make_service: Any, digits: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = digits[0]
    with trained(make_service, digits, tmp_path, len(x)) as (service, _, pool_id):
        asked = service.post(
            f"/pools/{pool_id}/rankings", {"k": 1500, "seed": 2, "acquisition": {"name": "margin"}}, 202
        )
        service.run_jobs()
        over_rest = service.get(f"/rankings/{asked['ranking']['id']}")["items"]
    files = ["--ensemble", str(tmp_path / "downloaded.safetensors"), "--pool", str(tmp_path / "pool.npy")]
    lines = ranked(capsys, *files, "--k", str(len(x)), "--seed", "2", "--acquisition", "margin")
    unlabelled = [line for line in lines if int(line["row"]) >= 30]
    assert [(int(line["row"]), float(line["score"])) for line in unlabelled[:1500]] == [
        (item["row"], item["score"]) for item in over_rest
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"--pool": "missing.npy"}, "missing.npy: No such file"),
        ({"--ensemble": "missing.safetensors"}, "missing.safetensors: No such file"),
        ({"--ensemble": "pool.npy"}, "not a safetensors file"),
        ({"--ensemble": "tensors.safetensors"}, "expected a fitted posterior or an ensemble"),
        ({"--pool": "wide.npy"}, "Expected an array [rows, 4]"),
        ({"--pool": "cut.npy"}, "cut off"),
        ({"--pool": "nan.csv"}, "Row 1"),
        ({"--pool": "pool.xls"}, "does not say what the rows are"),
        ({"--pool": "."}, "Is a directory"),
        ({"--acquisition": "guess"}, "known names: bald"),
        ({"--acquisition": '{"name": "bald", "depth": 3}'}, "'depth'"),
        ({"--acquisition": '{"name"'}, "not JSON"),
        ({"--selection": "dice"}, "known names: top_k"),
        ({"--selection": f'{{"name": "power", "beta": {10**400}}}'}, "has to be a finite number"),
        ({"--target": "pool.npy"}, "margin knows no target set; leave --target out"),
        ({"--acquisition": "epig", "--target": "wide.npy"}, "--target wide.npy: "),
        ({"--acquisition": "epig", "--target": "nan.csv"}, "--target nan.csv: "),
        ({"--acquisition": "epig", "--target": "pool.xls"}, "--target pool.xls: the name does not say"),
        ({"--acquisition": "epig", "--target": "none.npy"}, "--target none.npy: "),
        ({"--acquisition": "epig", "--target": "nowhere.npy"}, "nowhere.npy: No such file"),
        ({"--k": "51"}, "k = 51"),
        ({"--k": "0"}, "k is at least 1"),
        ({"--seed": "-1"}, "seed"),
        ({"--output": "nowhere/ranking.csv"}, "no folder nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    changes: dict[str, str],
    complaint: str,
    rows: Any,
    ensemble_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("pool.npy", rows[:50])
    np.save("wide.npy", np.zeros((50, 5), dtype=np.float32))
    Path("cut.npy").write_bytes(Path("pool.npy").read_bytes()[:-10])
    Path("nan.csv").write_text("a,b,c,d\n1,2,3,4\n1,2,nan,4\n")
    Path("pool.xls").write_bytes(b"rows")
    np.save("none.npy", rows[:0])
    bc.save_tensors({}, "tensors.safetensors")
    chosen = {"--ensemble": str(ensemble_file), "--pool": "pool.npy", **changes}
    assert main(["rank", *[word for option in chosen.items() for word in option]]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("bensemble rank: ")
    assert shown.err.count("\n") == 1
    assert complaint in shown.err


def test_k_beyond_a_file_of_unknown_length_is_refused_too(
    rows: Any, ensemble_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = write("csv", tmp_path, rows[:50])
    assert main(["rank", "--ensemble", str(ensemble_file), "--pool", str(pool), "--k", "51"]) == 2
    assert "k = 51 rows were asked for and there are 50" in capsys.readouterr().err


def test_a_reader_that_has_had_enough_is_no_error_of_ours(rows: Any, ensemble_file: Path, tmp_path: Path) -> None:
    pool = write("npy", tmp_path, rows)
    command = [sys.executable, "-m", "app.cli", "rank", "--ensemble", str(ensemble_file), "--pool", str(pool)]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [*command, "--k", "2980"], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    finally:
        os.close(writing)
    assert run.returncode == 1
    assert "rror" not in run.stderr
    assert "BENSEMBLE" not in run.stderr
