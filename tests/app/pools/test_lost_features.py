"""Columns that float32 cannot keep are refused by name: a timestamp of 1.7e9 seconds is rounded to 128 of them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from app.backtests.backtest_files import read_rows
from app.db.engine import Database
from app.storage.errors import BadData
from app.storage.readers import Batch, Kind, inline_batch, kept_apart, open_reader
from app.storage.readers.values import as_features
from tests.app.conftest import Service
from tests.app.hammering import classification, empty_pool, refused
from tests.app.pools.test_unused_columns import written

OFFSET = 1_700_000_000.0
MINUTE = OFFSET + np.arange(60.0)  # one value, or two, in float32
YEAR = OFFSET + np.linspace(0, 31_536_000, 60)


@pytest.fixture
def service(sqlite_database: Database, make_service: Callable[..., Service]) -> Service:
    return make_service(sqlite_database)


def batches(*blocks: npt.NDArray[Any]) -> list[Batch]:
    return [as_features(block, 0, ["time"]) for block in blocks]


def refuses(*blocks: npt.NDArray[Any]) -> bool:
    try:
        return not list(kept_apart(batches(*(block.reshape(-1, 1) for block in blocks))))
    except BadData as error:
        return error.column == "time"


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "ndjson"])
def test_every_format_names_the_column_that_float32_does_not_keep(kind: Kind) -> None:
    table = pa.table({"a": np.arange(60.0), "time": MINUTE})
    reader = open_reader(kind, io.BytesIO(written(kind, table)), width=2)
    with pytest.raises(BadData, match=r"Feature 'time' runs from 1700000000 to 1700000059\..*Subtract its mean"):
        list(kept_apart(reader))


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_file_names_it_by_its_number(order: Literal["C", "F"]) -> None:
    file = io.BytesIO()
    np.save(file, np.asarray(np.column_stack([np.arange(60.0), MINUTE]), order=order))
    with pytest.raises(BadData, match="Feature '1' runs"):
        list(kept_apart(open_reader("npy", file, width=2)))


def test_only_a_column_that_is_lost_is_refused() -> None:
    assert refuses(MINUTE)
    assert refuses(MINUTE.astype(np.int64))
    assert refuses(1e9 * MINUTE)
    assert refuses(-MINUTE)
    assert not refuses(MINUTE - OFFSET)
    assert not refuses(YEAR)
    assert not refuses(np.full(60, OFFSET + 1))  # a constant says nothing, rounded or not
    assert not refuses(2.0**24 + 2 * np.arange(60.0))  # float32 holds all of them
    assert not refuses(MINUTE.astype(np.float32))  # was lost before it came
    assert not refuses(MINUTE[:10])  # too few to say what the column spans
    assert not refuses(np.random.default_rng(0).normal(size=60) * 1e-30)


def test_blocks_are_judged_together() -> None:
    assert refuses(*MINUTE.reshape(60, 1))
    assert refuses(np.full(30, OFFSET + 1), np.full(30, OFFSET + 3))
    apart = [OFFSET + 86_400 * day + np.arange(30.0) for day in range(3)]
    assert all(refuses(block) for block in apart)
    assert not refuses(*apart)


def test_the_service_refuses_such_a_pool_but_not_one_to_be_measured_on(service: Service) -> None:
    project = classification(service)
    rows = np.column_stack([np.arange(60.0), MINUTE]).tolist()
    body = {"name": "events", "rows": rows, "labels": ["red", "blue"] * 30}
    said = "Feature '1' runs from 1700000000 to 1700000059"
    problem = refused(service, "POST", f"/projects/{project}/pools", 422, said, json=body)
    assert problem["errors"][0]["pointer"] == "/rows"
    measured_on = service.client.post(f"/v1/projects/{project}/pools", json={**body, "purpose": "evaluation"})
    assert measured_on.status_code == 201, measured_on.text
    pool_id = empty_pool(service, project)
    text = "a,time\n" + "\n".join(f"{a},{time}" for a, time in rows)
    headers = {"Content-Type": "text/csv"}
    assert service.client.put(f"/v1/pools/{pool_id}/data", content=text, headers=headers).status_code == 202
    service.run_jobs()
    pool = service.get(f"/pools/{pool_id}")
    assert pool["status"] == "failed"
    assert "Feature 'time' runs from" in pool["error"]["detail"]


def test_a_backtest_of_a_file_refuses_it_too(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("time,label\n" + "\n".join(f"{time},red" for time in MINUTE))
    with pytest.raises(BadData, match="'time'"):
        read_rows(path, "label")


def test_rows_in_a_request_are_rounded_by_column() -> None:
    batch = inline_batch([[1, OFFSET], [2, OFFSET + 1]], width=2)
    assert batch.rounding is not None
    assert batch.rounding.moved.tolist() == [0.0, 1.0]
