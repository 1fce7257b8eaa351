"""Columns of a file that mean nothing are named: a misspelt one is not an error, but it is lost."""

import io
import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from app.db.engine import Database
from app.storage.readers import BadData, Columns, Kind, open_reader
from tests.app.conftest import Service
from tests.app.hammering import classification, empty_pool


@pytest.fixture
def service(sqlite_database: Database, make_service: Callable[..., Service]) -> Service:
    return make_service(sqlite_database)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "ndjson"])
def test_a_reader_names_the_columns_that_it_did_not_use(kind: Kind) -> None:
    flat = pa.table({"a": [1.0, 2.0], "when": ["x", "y"], "b": [3.0, 4.0], "lable": ["red", "blue"], "key": ["1", "2"]})
    listed = pa.table({"x": [[1.0, 3.0], [2.0, 4.0]], "weight": [1.0, 2.0], "label": ["red", "blue"]})
    for table, unused in ((flat, ["when", "lable"]), (listed, ["weight"])):
        if kind == "csv" and table is listed:
            continue
        reader = open_reader(kind, io.BytesIO(written(kind, table)), width=2)
        assert sum(map(len, reader)) == 2
        assert reader.unused == unused


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "ndjson"])
def test_columns_that_are_to_be_ignored_are_neither_features_nor_what_their_names_say(kind: Kind) -> None:
    names = ("label", "key", "payload")
    table = pa.table({"a": [1.0, 2.0], "year": [1999, 2001], **{name: ["red", "blue"] for name in names}})
    columns = Columns(ignored=("year", *names))
    reader = open_reader(kind, io.BytesIO(written(kind, table)), width=1, columns=columns)
    (batch,) = reader
    assert batch.features.tolist() == [[1.0], [2.0]]
    assert (batch.labels or [None] * 2, batch.keys, batch.payloads or [None] * 2) == ([None] * 2, None, [None] * 2)
    assert reader.unused == ["year", *names]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "ndjson"])
def test_what_is_ignored_is_there_and_not_used_as_well(kind: Kind) -> None:
    file = written(kind, pa.table({"a": [1.0], "b": ["red"]}))
    for columns, said in (
        (Columns(ignored=("c",)), "no column 'c' to ignore; the columns are: a, b"),
        (Columns(label="b", ignored=("b",)), "'b' is both used and ignored"),
    ):
        with pytest.raises(BadData, match=said):
            open_reader(kind, io.BytesIO(file), width=1, columns=columns)


def test_an_upload_leaves_columns_out_that_it_is_told_to_ignore(service: Service) -> None:
    pool_id = empty_pool(service, classification(service))
    given = service.client.put(
        f"/v1/pools/{pool_id}/data",
        params={"label": "colour", "ignore": ["year", "key"]},
        content="key,a,b,year,colour\nx,1,3,1999,red\nx,2,4,2001,blue\n",
        headers={"Content-Type": "text/csv"},
    )
    assert given.status_code == 202, given.text
    service.run_jobs()
    items = service.get(f"/pools/{pool_id}/items", features=True)["items"]
    found = [(item["key"], item["x"], item["label"]) for item in items]
    assert found == [("0", [1.0, 3.0], "red"), ("1", [2.0, 4.0], "blue")]


def written(kind: Kind, table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, buffer)
    elif kind == "arrow":
        with pa.ipc.new_file(buffer, table.schema) as writer:
            writer.write_table(table)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, buffer)
    else:
        return "\n".join(map(json.dumps, table.to_pylist())).encode()
    return buffer.getvalue()


def test_a_name_in_a_later_line_of_ndjson_is_seen_too() -> None:
    lines = [{"x": [1.0]}, {"x": [2.0], "label": "red", "lable": "red"}, {"x": [3.0], "lable": "red", "payload": 1}]
    reader = open_reader("ndjson", io.BytesIO("\n".join(map(json.dumps, lines)).encode()), width=1)
    assert sum(map(len, reader)) == 3
    assert reader.unused == ["lable"]
    wide = [{"x": [0.0], **{f"n{i}-{j}": 0 for j in range(30)}} for i in range(100)]
    reader = open_reader("ndjson", io.BytesIO("\n".join(map(json.dumps, wide)).encode()), width=1)
    assert sum(map(len, reader)) == 100
    assert len(reader.unused) == 1000


def test_an_upload_names_the_columns_that_were_not_used(service: Service) -> None:
    project = classification(service)
    for text, said in (
        (b"a,b,colour\n1,2,red\n", "1 column was not used: colour. Features are"),
        (
            b"a,b,lab\0el," + b"c" * 5000 + b"\n1,2,red,x\n",
            f"2 columns were not used: label, {'c' * 64}…. Features are",
        ),
        (b"a,b,label\n1,2,red\n", None),
    ):
        pool_id = empty_pool(service, project)
        sent = service.client.put(f"/v1/pools/{pool_id}/data", content=text, headers={"Content-Type": "text/csv"})
        assert sent.status_code == 202, sent.text
        service.run_jobs()
        notes = service.get(f"/jobs/{sent.json()['job']['id']}")["result"]["notes"]
        assert len(notes) == (said is not None)
        assert said is None or notes[0].startswith(said)
