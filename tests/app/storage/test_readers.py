"""Uploaded files to rows: every format gives the same rows, and what is wrong is named."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.errors import BadData
from app.storage.readers import Batch, Columns, Kind, Limits, check_head, inline_batch, kind_of, open_reader
from app.storage.readers.plan import ColumnType, plan_columns

WIDTH = 4
ROWS = np.random.default_rng(0).standard_normal((300, WIDTH)).astype(np.float32)
KEYS = [f"k{i}" for i in range(300)]
LABELS: list[str | None] = [None if i % 3 == 0 else f"c{i % 5}" for i in range(300)]
PAYLOADS: list[Any] = [{"url": f"img/{i}", "ü": [1, 2]} if i % 2 else None for i in range(300)]


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), version=version, allow_pickle=True)
    return buffer.getvalue()


def table(x: Any = ROWS, **columns: Any) -> pa.Table:
    return pa.table({"x": pa.array(list(x), pa.list_(pa.float32())), **columns})


def flat_table(x: Any = ROWS, **columns: Any) -> pa.Table:
    return pa.table({**{f"f{i}": x[:, i] for i in range(x.shape[1])}, **columns})


def parquet(data: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(data, buffer, **options)
    return buffer.getvalue()


def arrow_file(data: pa.Table, compression: str | None = None, chunk: int | None = None) -> bytes:
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(buffer, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=chunk)
    return buffer.getvalue()


def arrow_stream(data: pa.Table, compression: str | None = None, chunk: int | None = None) -> bytes:
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(buffer, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=chunk)
    return buffer.getvalue()


def csv_text(header: list[str], rows: list[list[Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue().encode()


def ndjson(objects: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


def named(payload_of: Callable[[Any], Any] = lambda p: None if p is None else json.dumps(p)) -> dict[str, Any]:
    return {
        "key": pa.array(KEYS),
        "label": pa.array(LABELS),
        "payload": pa.array([payload_of(p) for p in PAYLOADS]),
        "note": pa.array(["not a feature"] * len(KEYS)),
    }


def read(kind: Kind, data: bytes | Any, width: int = WIDTH, **options: Any) -> Batch:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    batches = list(open_reader(kind, source, width=width, **options))

    def joined(name: str) -> Any:
        parts = [getattr(batch, name) for batch in batches]
        return None if parts[0] is None else [value for part in parts for value in part]

    return Batch(
        features=np.concatenate([batch.features for batch in batches]),
        keys=joined("keys"),
        labels=joined("labels"),
        payloads=joined("payloads"),
    )


FULL: dict[str, tuple[Kind, Callable[[], bytes]]] = {
    "parquet list": ("parquet", lambda: parquet(table(**named()), row_group_size=77)),
    "parquet flat": ("parquet", lambda: parquet(flat_table(**named()), compression="zstd")),
    "parquet dictionary": (
        "parquet",
        lambda: parquet(table(**{k: v.dictionary_encode() for k, v in named().items()}), store_schema=True),
    ),
    "parquet struct payload": ("parquet", lambda: parquet(table(**named(lambda p: p)))),
    "arrow file": ("arrow", lambda: arrow_file(table(**named()), chunk=50)),
    "arrow file lz4": ("arrow", lambda: arrow_file(flat_table(**named()), compression="lz4")),
    "arrow stream": ("arrow", lambda: arrow_stream(table(**named()), chunk=50)),
    "arrow stream zstd": ("arrow", lambda: arrow_stream(table(**named()), compression="zstd")),
    "arrow dictionary": (
        "arrow",
        lambda: arrow_file(flat_table(**{k: v.dictionary_encode() for k, v in named().items()}), chunk=100),
    ),
    "csv": (
        "csv",
        lambda: csv_text(
            ["key", "f0", "f1", "note", "f2", "f3", "label", "payload"],
            [
                [
                    KEYS[i],
                    r[0],
                    r[1],
                    "a,b",
                    r[2],
                    r[3],
                    LABELS[i] or "",
                    json.dumps(PAYLOADS[i]) if PAYLOADS[i] else "",
                ]
                for i, r in enumerate(ROWS.tolist())
            ],
        ),
    ),
    "ndjson": (
        "ndjson",
        lambda: ndjson(
            [{"x": r, "key": KEYS[i], "label": LABELS[i], "payload": PAYLOADS[i]} for i, r in enumerate(ROWS.tolist())]
        ),
    ),
}


@pytest.mark.parametrize("name", FULL)
def test_every_format_gives_the_same_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.storage.readers.batch.BLOCK_BYTES", 4 * WIDTH * 64)  # several batches
    kind, make = FULL[name]
    found = read(kind, make())
    np.testing.assert_array_equal(found.features, ROWS)
    assert found.features.dtype == np.float32
    assert found.keys == KEYS
    assert found.labels == LABELS
    assert found.payloads is not None
    assert [None if p is None else json.loads(p) for p in found.payloads] == PAYLOADS


@pytest.mark.parametrize("name", FULL)
def test_the_head_of_a_good_file_passes(name: str) -> None:
    kind, make = FULL[name]
    assert check_head(kind, io.BytesIO(make()), width=WIDTH, max_rows=10) in (None, 300)


@pytest.mark.parametrize("name", FULL)
def test_columns_are_found_by_other_names(name: str) -> None:
    kind, make = FULL[name]
    data = make()
    found = read(kind, data, columns=Columns(label="key", key="key", payload="key"))
    assert found.labels == found.keys == KEYS
    assert found.payloads == [json.dumps(key).encode() for key in KEYS]
    for role in ("key", "label", "payload"):
        with pytest.raises(BadData, match=r"no column 'species' .*columns are: .*label.*payload"):
            read(kind, data, columns=Columns(**{role: "species"}))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", "<i8", ">i4", "u1", "i2", "<u8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_real_type_and_order(dtype: str, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.storage.readers.batch.BLOCK_BYTES", 4 * 12 * 7)
    array = np.arange(30 * 12).reshape(30, 3, 2, 2).astype(dtype)
    found = read("npy", npy(np.asarray(array, order=order)), width=12)
    np.testing.assert_array_equal(found.features, array.reshape(30, 12).astype(np.float32))
    assert found.keys is found.labels is found.payloads is None


def test_npy_versions_and_one_axis() -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        np.testing.assert_array_equal(read("npy", npy(ROWS, version)).features, ROWS)
    np.testing.assert_array_equal(read("npy", npy(np.arange(5.0)), width=1).features[:, 0], np.arange(5))


class Evil:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[Evil()]], dtype=object), "float16, float32, float64, integers or booleans"),
        (np.zeros(3, dtype=[("a", "f4"), ("b", "f4")]), "integers or booleans"),
        (np.array([["a"]]), "integers or booleans"),
        (np.zeros((3, 4), dtype=complex), "integers or booleans"),
        (np.zeros((3, 5)), r"\[rows, 4\].*\(3, 5\)"),
        (np.zeros(12), r"\[rows, 4\].*\(12,\)"),
        (np.array(1.0), "shape"),
        (np.zeros((0, 4)), "no rows"),
    ],
)
def test_npy_that_is_no_table_of_numbers_is_refused(array: Any, message: str) -> None:
    with pytest.raises(BadData, match=message):
        read("npy", npy(array))


def test_broken_npy_headers_are_refused() -> None:
    good = npy(ROWS)
    for data in (
        b"hello world, no magic",
        good[:6] + b"\x09\x00" + good[8:],
        good.replace(b"(300, 4)", b"(300, 5)"),
        good.replace(b"(300, 4)", b"(-30, 4)"),
        good.replace(b"(300, 4)", b"(3**9,4)"),
        good.replace(b"False", b"'no' "),
        good.replace(b"'shape'", b"'shpae'"),
        good + b"x",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01\x00\x04\x00((((",
    ):
        with pytest.raises(BadData):
            read("npy", data)


def with_value(row: int, column: int, value: float, dtype: Any = np.float32) -> Any:
    array = ROWS.astype(dtype)
    array[row, column] = value
    return array


def spoilt(kind: str, value: float) -> tuple[Kind, bytes]:
    array = with_value(201, 2, value, np.float64)
    return {
        "npy": lambda: ("npy", npy(array)),
        "list": lambda: ("parquet", parquet(pa.table({"x": list(array)}))),
        "flat": lambda: ("arrow", arrow_file(flat_table(array))),
        "csv": lambda: ("csv", csv_text(["f0", "f1", "f2", "f3"], array.tolist())),
    }[kind]()  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["npy", "list", "flat", "csv"])
@pytest.mark.parametrize(("value", "message"), [(np.nan, "nan"), (-np.inf, "inf"), (1e39, "too large for float32")])
def test_a_value_that_is_not_finite_is_named(
    kind: str, value: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.readers.batch.BLOCK_BYTES", 4 * WIDTH * 64)
    with pytest.raises(BadData, match=rf"Row 201, feature '(f?2)'.*{message}") as caught:
        read(*spoilt(kind, value))
    assert caught.value.row == 201
    assert caught.value.column in ("2", "f2")


BAD: dict[str, tuple[Kind, Callable[[], bytes], str, int | None]] = {
    "ragged list": ("parquet", lambda: parquet(table([[1, 2, 3, 4], [1, 2, 3]])), "Row 1: expected 4", 1),
    "ragged but even": ("arrow", lambda: arrow_file(table([[1, 2, 3], [1, 2, 3, 4, 5]])), "Row 0: .*4 .*has 3", 0),
    "even total": ("parquet", lambda: parquet(table([[1, 2, 3], [1, 2, 3, 4, 5]])), "Row 0: .*4 .*has 3", 0),
    "null list": ("arrow", lambda: arrow_file(table([[1, 2, 3, 4], None])), "Row 1: 'x' is null", 1),
    "null in list": ("arrow", lambda: arrow_file(table([[1, 2, 3, 4], [1, 2, None, 4]])), r"Row 1.*'x'\[2\].*null", 1),
    "null in flat": (
        "parquet",
        lambda: parquet(pa.table({"a": [1.0, 2.0], "b": [1, 2], "c": [1, 2], "d": [1.0, None]})),
        "Row 1, feature 'd'.*null",
        1,
    ),
    "fixed lists too long": (
        "arrow",
        lambda: arrow_file(pa.table({"x": pa.array([[1.0] * 5], pa.list_(pa.float32(), 5))})),
        "Expected 4 features.*have 5",
        None,
    ),
    "too few columns": (
        "parquet",
        lambda: parquet(pa.table({"a": [1.0], "b": [2.0], "text": ["z"], "embedding": [[1.0]]})),
        "4 numeric columns.*2 numeric columns: a, b; not numeric: text, embedding.*rename it to 'x'",
        None,
    ),
    "list of text": ("arrow", lambda: arrow_file(pa.table({"x": [["a"]]})), "not numeric: x", None),
    "same name": (
        "arrow",
        lambda: arrow_file(pa.Table.from_arrays([pa.array([1.0])] * 4, names=["a", "b", "a", "c"])),
        "'a' is there twice",
        None,
    ),
    "list label": ("arrow", lambda: arrow_file(table([[1, 2, 3, 4]], label=[["a"]])), "label.*a list of numbers or", 0),
    "nan label": ("arrow", lambda: arrow_file(table([[1, 2, 3, 4]], label=[np.nan])), "label.*nan.*null", 0),
    "null key": ("arrow", lambda: arrow_file(table([[1, 2, 3, 4]] * 2, key=["a", None])), "Row 1: the key", 1),
    "blank key": ("csv", lambda: b"a,b,c,d,key\n1,2,3,4,k\n1,2,3,4,\n", "Row 1: the key.*blank", 1),
    "long key": ("arrow", lambda: arrow_file(table([[1, 2, 3, 4]], key=["k" * 2000])), "2000 bytes, at most", 0),
    "no rows": ("arrow", lambda: arrow_file(table([])), "no rows", None),
    "no rows in parquet": ("parquet", lambda: parquet(table([])), "no rows", None),
    "no batches": ("arrow", lambda: arrow_stream(table([])), "no rows", None),
    "empty": ("csv", lambda: b"", "empty", None),
    "blank csv": ("csv", lambda: b"\n\n", "empty|cannot be read|numbers|no rows|Expected 4", None),
    "header only": ("csv", lambda: b"a,b,c,d\n", "header but no rows", None),
    "no header": ("csv", lambda: b"1,2,3,4\n5,6,7,8\n", "names its columns", None),
    "short line": ("csv", lambda: b"a,b,c,d\n1,2,3,4\n5,6,7\n", "Row 1: expected 4 cells.*are 3", 1),
    "text in a number": ("csv", lambda: b"a,b,c,d\n1,2,3,4\n5,six,7,8\n", "Row 1, feature 'b'.*'six', a number", 1),
    "blank number": ("csv", lambda: b"a,b,c,d\n1,2,3,4\n5,6,,8\n", "Row 1, feature 'c'.*blank", 1),
    "text column": ("csv", lambda: b"a,b,c,d\nx,2,3,4\n", "3 numeric columns: b, c, d; not numeric: a", None),
    "lists in csv": ("csv", lambda: b'x,key\n"[1,2,3,4]",a\n', "not numeric: x", None),
    "not utf-8": ("csv", lambda: b"a,b,c,d,key\n1,2,3,4,\xff\n", "UTF-8|UTF8", None),
    "long csv line": ("csv", lambda: b"a,b,c,d,note\n1,2,3,4," + b"n" * 5000 + b"\n", "longer than 1,000", None),
    "bad json": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n{"x":[1,2,3,4}\n', r"Line 2 \(row 1\) is not JSON", 1),
    "nan token": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n\n{"x":[1,2,3,NaN]}\n', r"Line 3 \(row 1\).*NaN", 1),
    "infinity": ("ndjson", lambda: b'{"x":[1,2,3,-Infinity]}', "Infinity is not JSON", 0),
    "too large": ("ndjson", lambda: b'{"x":[1,2,3,1e400]}', "Row 0, feature '3'.*inf", 0),
    "huge integer": ("ndjson", lambda: b'{"x":[1,2,3,%s]}' % (b"9" * 400), "integer is too large", 0),
    "endless integer": ("ndjson", lambda: b'{"x":[1,2,3],"k":%s}' % (b"9" * 5000), "longer|not JSON", 0),
    "deep": ("ndjson", lambda: b'{"x":' + b"[" * 400 + b"]" * 400 + b"}", "not JSON|expected 4|a number", 0),
    "not an object": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n[1,2,3,4]\n', "row 1.*is list; an object", 1),
    "no x": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n{"y":[1,2,3,4]}\n', "Row 1: expected a list.*missing", 1),
    "text in x": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n{"x":[1,2,"3",4]}\n', "Row 1, feature '2'.*str '3'", 1),
    "null in x": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n{"x":[1,2,null,4]}\n', "Row 1, feature '2'.*missing", 1),
    "short x": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n{"x":[1,2,3]}\n', "Row 1: expected 4 features.*3", 1),
    "key here and there": ("ndjson", lambda: b'{"x":[1,2,3,4]}\n{"x":[1,2,3,4],"key":"a"}\n', "Row 1 has a key", 1),
    "key missing": ("ndjson", lambda: b'{"x":[1,2,3,4],"key":"a"}\n{"x":[1,2,3,4]}\n', "Row 1: the key.*missing", 1),
    "object label": ("ndjson", lambda: b'{"x":[1,2,3,4],"label":{}}', "Row 0: a label.*dict", 0),
    "long line": ("ndjson", lambda: b'{"x":[1,2,3,4],"k":"' + b"n" * 5000 + b'"}', "Line 1 is longer than 1,000", 0),
    "long payload": ("ndjson", lambda: b'{"x":[1,2,3,4],"payload":"' + b"n" * 700 + b'"}', "payload.*at most 500", 0),
    "lone surrogate": ("ndjson", lambda: b'{"x":[1,2,3,4],"key":"\\ud800"}', "key.*not valid Unicode", 0),
    "surrogate payload": ("ndjson", lambda: b'{"x":[1,2,3,4],"payload":"\\ud800"}', "payload.*JSON", 0),
    "not parquet": ("parquet", lambda: b"PAR1 but then nothing of the kind PAR1", "Parquet file cannot be read", None),
    "not arrow": ("arrow", lambda: b"neither file nor stream at all", "Arrow", None),
    "feather 1": ("arrow", lambda: b"FEA1" + bytes(100), "version 2", None),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_reader_and_head_and_names_the_row(name: str) -> None:
    kind, make, message, row = BAD[name]
    limits = Limits(max_line_bytes=1000, max_payload_bytes=500)
    with pytest.raises(BadData, match=message) as caught:
        read(kind, make(), limits=limits)
    assert caught.value.row == row
    with pytest.raises(BadData, match=message):
        check_head(kind, io.BytesIO(make()), width=WIDTH, limits=limits)


def test_limits_hold_before_anything_is_decoded() -> None:
    zeros = pa.table({"x": pa.array([[0.0] * 4] * 20_000, pa.list_(pa.float32(), 4))})
    for kind, data in (
        ("parquet", parquet(zeros)),
        ("arrow", arrow_file(zeros, "zstd")),
        ("npy", npy(np.zeros((20_000, 4)))),
    ):
        for limits in (Limits(max_rows=19_999), Limits(max_bytes=200_000)):
            with pytest.raises(BadData, match=r"[Aa]t most"):
                open_reader(kind, io.BytesIO(data), width=WIDTH, limits=limits)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="max_chunksize"):
        read("arrow", arrow_file(zeros, "zstd"), limits=Limits(max_batch_bytes=100_000))
    lines = b'{"x":[1,2,3,4]}\n' * 50
    with pytest.raises(BadData, match="At most 49 rows"):
        read("ndjson", lines, limits=Limits(max_rows=49))


def test_far_too_many_columns_are_refused_before_anything_is_made_of_them() -> None:
    names = [f"c{i}" for i in range(20_000)]
    line = ",".join(names)
    for kind, data in (
        ("csv", f"{line}\n{','.join('1' * len(names))}\n".encode()),
        ("ndjson", json.dumps(dict.fromkeys(names, 1)).encode()),
        ("arrow", arrow_stream(pa.schema([(name, pa.int8()) for name in names]).empty_table())),
    ):
        with pytest.raises(BadData, match=r"Expected 2 features per row.* has 20,000 columns"):
            check_head(kind, io.BytesIO(data), width=2)  # type: ignore[arg-type]
    quoted = b'"' + line.encode() + b'",f0,f1\na,1,2\n'  # one name with many commas in it
    assert check_head("csv", io.BytesIO(quoted), width=2) is None


def test_columns_that_do_not_fit_are_compared_once_and_not_each_with_each() -> None:
    n_compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal n_compared
            n_compared += 1
            return str.__eq__(self, other)

    types: dict[str, ColumnType] = {Name(f"c{i}"): "number" if i % 2 else "other" for i in range(2000)}
    with pytest.raises(BadData, match=r"1000 numeric columns: c1, c3.*not numeric: c0, c2"):
        plan_columns(types, Columns(), width=4)
    assert n_compared < 20_000


def test_a_dictionary_bomb_is_measured_before_it_is_spelt_out() -> None:
    n = 60_000
    bomb = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array(["y" * 100_000]))
    data = pa.table({"x": pa.array([[0.0] * 4] * n, pa.list_(pa.float32(), 4)), "payload": bomb})
    for kind, file in (("parquet", parquet(data)), ("arrow", arrow_file(data))):
        assert len(file) < 3 * 2**20
        with pytest.raises(BadData, match="'payload' holds 6,000,000,000 bytes"):
            read(kind, file)  # type: ignore[arg-type]


def test_a_list_bomb_is_refused_by_the_footer() -> None:
    data = parquet(pa.table({"x": pa.array([np.zeros(1_500_000, np.float32)])}))
    assert len(data) < 2**20
    with pytest.raises(BadData, match="1,500,000 numbers in 'x' for 1 rows; expected 4"):
        open_reader("parquet", io.BytesIO(data), width=WIDTH)


def test_a_broken_parquet_footer_does_not_end_the_process() -> None:
    """pyarrow aborts when it is asked for a column's metadata and the level histogram has a wrong size."""
    program = """
import io, random, sys
from app.storage.errors import BadData
from app.storage.readers import open_reader
whole = sys.stdin.buffer.read()
for seed in range(300):
    spoilt, rng = bytearray(whole), random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        spoilt[-rng.randrange(1, 1500)] = rng.choice([0, 1, 127, 128, 255])
    try:
        list(open_reader("parquet", io.BytesIO(spoilt), width=4))
    except BadData:
        pass
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=CUT["parquet"][1], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]


def test_nested_fixed_and_extension_lists_are_flattened() -> None:
    x = np.arange(24, dtype=np.float64).reshape(6, 2, 2)
    nested = pa.array(x.tolist(), pa.list_(pa.list_(pa.int16())))
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(x)
    for column in (nested, nested.cast(pa.large_list(pa.list_(pa.float64(), 2))), tensors):
        for kind, data in (
            ("arrow", arrow_file(pa.table({"x": column}))),
            ("parquet", parquet(pa.table({"x": column}))),
        ):
            np.testing.assert_array_equal(read(kind, data).features, x.reshape(6, 4))  # type: ignore[arg-type]
    np.testing.assert_array_equal(read("ndjson", ndjson([{"x": row} for row in x.tolist()])).features, x.reshape(6, 4))


def test_sliced_arrow_batches_read_right() -> None:
    np.testing.assert_array_equal(read("arrow", arrow_stream(table().slice(17, 100))).features, ROWS[17:117])


def test_labels_mean_the_same_in_every_format() -> None:
    x = {"a": [1.0] * 3, "b": [1] * 3, "c": [True] * 3, "d": pa.array([1] * 3, pa.decimal128(5, 2))}
    for label, expected in (([3, None, 10], ["3", None, "10"]), ([True, False, None], ["true", "false", None])):
        assert read("parquet", parquet(pa.table({**x, "label": label}))).labels == expected
        rows = [{"a": 1, "b": 1, "c": 1, "d": 1, "label": value} for value in label]
        assert read("ndjson", ndjson(rows)).labels == expected
    assert read("arrow", arrow_file(pa.table({**x, "label": [0.5, None, 3.0]}))).labels == [0.5, None, 3.0]
    found = read("csv", b"a,b,label,c,d\n1,2,3,3,4\n 1, 2,,3,4\n1,2,0.50,3,4\n")
    assert found.labels == ["3", None, "0.50"]
    np.testing.assert_array_equal(found.features, [[1, 2, 3, 4]] * 3)


def test_a_text_payload_is_the_json_it_spells_or_a_string() -> None:
    texts = ['{"a": 1}', "[1, 2]", "plain", "3", "[broken", '{"a": NaN}', ""]
    found = read("parquet", parquet(table([[1, 2, 3, 4]] * 7, payload=texts)))
    assert found.payloads == [b'{"a": 1}', b"[1, 2]", b'"plain"', b'"3"', b'"[broken"', b'"{\\"a\\": NaN}"', None]
    lines = [{"x": [1, 2, 3, 4], "payload": value} for value in ('{"a": 1}', 3, [None], False, None)]
    assert read("ndjson", ndjson(lines)).payloads == [b'"{\\"a\\": 1}"', b"3", b"[null]", b"false", None]


def test_csv_with_a_byte_order_mark_and_quoted_newlines() -> None:
    data = b'\xef\xbb\xbfa,b,c,d,key\r\n1,2,3,4,"two\nlines"\r\n+5,6e0,.7,-8.,k\r\n'
    found = read("csv", data)
    assert found.keys == ["two\nlines", "k"]
    np.testing.assert_array_equal(found.features, np.array([[1, 2, 3, 4], [5, 6, 0.7, -8]], np.float32))


def test_a_ragged_csv_row_is_named_in_a_later_block() -> None:
    lines = [b"a,b,c,d"] + [b"1,2,3,4"] * 5000
    lines[4001] = b"1,2,3,4,5"
    with pytest.raises(BadData, match="Row 4000: expected 4 cells as in the header, there are 5") as caught:
        read("csv", b"\n".join(lines), limits=Limits(max_line_bytes=1000))
    assert caught.value.row == 4000


def test_inline_rows_get_the_same_checks() -> None:
    batch = inline_batch([[1, 2.5], [True, 4]], width=2, keys=["a", 7], labels=["x", 3], payloads=[{"u": 1}, None])
    np.testing.assert_array_equal(batch.features, np.array([[1, 2.5], [1, 4]], np.float32))
    assert (batch.keys, batch.labels, batch.payloads) == (["a", "7"], ["x", "3"], [b'{"u":1}', None])
    for rows, more, message in (
        ([[1, 2], [1]], {}, "Row 1: expected 2"),
        ([[1, 2], 5], {}, "Row 1: expected a list"),
        ([[1, "2"]], {}, "Row 0, feature '1'"),
        ([[1, 2]], {"keys": []}, "1 rows but 0 keys"),
    ):
        with pytest.raises(BadData, match=message):
            inline_batch(rows, width=2, **more)


SMALL = pa.table({"x": list(ROWS[:40]), "key": KEYS[:40], "payload": ["pay"] * 40})
CUT: dict[str, tuple[Kind, bytes]] = {
    "npy": ("npy", npy(ROWS[:40])),
    "parquet": ("parquet", parquet(SMALL, row_group_size=20)),
    "arrow file": ("arrow", arrow_file(SMALL, chunk=20)),
    "arrow file zstd": ("arrow", arrow_file(SMALL, "zstd")),
    "arrow stream": ("arrow", arrow_stream(SMALL, chunk=20)),
}
TEXT: dict[str, tuple[Kind, bytes]] = {
    "csv": ("csv", csv_text(["a", "b", "c", "d", "key"], [[*r, f"k{i}"] for i, r in enumerate(ROWS[:40].tolist())])),
    "ndjson": ("ndjson", ndjson([{"x": row, "key": f"k{i}"} for i, row in enumerate(ROWS[:40].tolist())])),
}


@pytest.mark.parametrize("name", CUT)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_binary_file_cut_anywhere_is_refused(name: str, data: st.DataObject) -> None:
    kind, whole = CUT[name]
    with pytest.raises(BadData):
        read(kind, whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("name", TEXT)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_text_file_cut_anywhere_gives_a_prefix_or_is_refused(name: str, data: st.DataObject) -> None:
    kind, whole = TEXT[name]
    try:
        found = read(kind, whole[: data.draw(st.integers(0, len(whole) - 1))])
    except BadData:
        return
    n = len(found)
    np.testing.assert_array_equal(found.features, ROWS[:n])
    assert found.keys is not None
    assert found.keys[: n - 1] == KEYS[: n - 1]


@pytest.mark.parametrize("name", [*CUT, *TEXT])
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_file_with_wrong_bytes_never_fails_otherwise(name: str, data: st.DataObject) -> None:
    kind, whole = (CUT | TEXT)[name]
    spoilt = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(kind, bytes(spoilt))
    except BadData:
        return
    assert np.isfinite(found.features).all()
    assert found.features.shape[1] == WIDTH


def test_heads_of_files_that_decode_at_once_are_checked_by_schema_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = with_value(0, 0, np.nan)
    assert check_head("arrow", io.BytesIO(arrow_file(table(bad), "lz4")), width=WIDTH) == 300
    monkeypatch.setattr("app.storage.readers.parquet.HEAD_BYTES", 10)
    assert check_head("parquet", io.BytesIO(parquet(table(bad))), width=WIDTH) == 300
    with pytest.raises(BadData, match="no column"):
        check_head("parquet", io.BytesIO(parquet(table(bad))), width=WIDTH, columns=Columns(key="id"))


def test_the_head_stops_early() -> None:
    lines = b'{"x":[1,2,3,4]}\n' * 40_000
    late = lines + b"broken\n"
    assert check_head("ndjson", io.BytesIO(late), width=WIDTH, max_rows=10_000) is None
    with pytest.raises(BadData, match="row 40000"):
        read("ndjson", late)


@pytest.mark.parametrize(
    ("content_type", "filename", "head", "kind"),
    [
        ("application/x-npy", None, b"", "npy"),
        ("application/octet-stream", None, b"\x93NUMPY\x01\x00", "npy"),
        (None, None, b"PAR1....", "parquet"),
        ("application/octet-stream", "rows.CSV", b"a,b", "csv"),
        ("application/vnd.apache.parquet", None, b"", "parquet"),
        ("application/vnd.apache.arrow.file", None, b"", "arrow"),
        ("application/vnd.apache.arrow.stream", None, b"", "arrow"),
        ("Text/CSV; charset=utf-8; header=present", None, b"", "csv"),
        ("application/x-ndjson", None, b"", "ndjson"),
    ],
)
def test_content_types(content_type: str | None, filename: str | None, head: bytes, kind: str) -> None:
    assert kind_of(content_type, filename, head) == kind


@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "image/png", "application/json"])
def test_an_unknown_content_type_lists_those_accepted(content_type: str | None) -> None:
    with pytest.raises(BadData, match=r"accepted: application/x-npy.*text/csv.*application/x-ndjson"):
        kind_of(content_type, "rows.xyz", b"????")


def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    """256 MB of npy and 128 MB of Arrow in one record batch, from disk; peak of the process above its start."""
    path = tmp_path / "rows.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1_000_000, 64)})
        file.truncate(file.tell() + 256_000_000)
    arrow = tmp_path / "rows.arrow"
    flat = pa.array(np.zeros(32_000_000, np.float32))
    arrow.write_bytes(arrow_file(pa.table({"x": pa.FixedSizeListArray.from_arrays(flat, 64)})))
    program = """
import sys, psutil
from app.storage.readers import open_reader
private = lambda: (m := psutil.Process().memory_info()).rss - m.shared
n, start, peak = 0, private(), 0
for batch in open_reader(sys.argv[2], open(sys.argv[1], "rb"), width=64):
    n += len(batch)
    peak = max(peak, private() - start)
print(n, peak)
"""
    for file, kind, n_rows in ((path, "npy", 1_000_000), (arrow, "arrow", 500_000)):
        done = subprocess.run(
            [sys.executable, "-c", program, str(file), kind], capture_output=True, text=True, check=True, timeout=60
        )
        n, peak = map(int, done.stdout.split())
        assert n == n_rows
        assert peak < 48 * 2**20, f"{kind}: {peak:,} bytes"
