"""What is said of a file before it is sent: its columns, a guess at their meaning, and what would be refused."""

import io
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.errors import Malformed, Problem, Unsupported
from app.pools.file_schemas import FileOut
from app.pools.inspect import inspect_file
from app.storage.inspection import look_into
from app.storage.inspection.lines import whole_lines
from tests.app.conftest import Service
from tests.app.hammering import refused, stored
from tests.app.pools.test_uploads import FORMATS, LABELS, N, as_arrow, as_parquet, npy, table
from tests.app.working import on_sqlite

MIB = 2**20


def look(content: bytes | str, name: str = "rows.csv", *, is_part: bool = False) -> FileOut:
    data = content.encode() if isinstance(content, str) else content
    found = inspect_file(data, content_type=None, name=name, is_part=is_part)
    assert len(found.model_dump_json()) < 2 * MIB  # and it can be said in JSON
    return found


def csv(**columns: list[Any]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"


def guess(found: FileOut) -> dict[str, Any]:
    return found.suggested.model_dump()


def kinds(found: FileOut) -> dict[str, str]:
    return {column.name: column.kind for column in found.columns}


ROLES = {"key": "key", "label": "label", "payload": "payload"}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_counted_alike(name: str) -> None:
    content, content_type = FORMATS[name]
    found = inspect_file(content, content_type=content_type, name=None, is_part=False)
    assert found.n_rows == N
    assert found.content_type == content_type.partition(";")[0].replace("octet-stream", "vnd.apache.parquet")
    suggested = guess(found)
    assert {role: suggested[role] for role in ROLES} == ROLES
    assert suggested["features"] in (["a", "b"], ["x"])
    assert suggested["shape"] == [2]
    assert suggested["task"] == {"kind": "classification", "classes": ["blue", "red"]}
    by_name = {column.name: column for column in found.columns}
    assert by_name["key"].n_distinct == N
    assert by_name["label"].n_distinct == len(set(LABELS))
    assert by_name["label"].n_missing == 0
    assert len(found.preview) == 10
    assert found.preview[0]["key"] == "row 0"
    assert found.notes == []


def test_what_is_suggested_is_what_the_upload_does(service: Service) -> None:
    content = csv(
        item_id=[f"i{n}" for n in range(40)],
        height=[n / 7 for n in range(40)],
        colour=["red", "green"] * 20,
        width=[n % 5 for n in range(40)],
        quality=["good", "bad", "bad", "good"] * 10,
    )
    sent = service.client.post(
        "/v1/files/inspect?name=rows.csv", content=content.encode(), headers={"Content-Type": "text/csv"}
    )
    assert sent.status_code == 200, sent.text
    found = sent.json()
    suggested = found["suggested"]
    assert suggested["task"] == {"kind": "classification", "classes": ["bad", "good"]}
    assert (suggested["key"], suggested["label"], suggested["features"]) == ("item_id", "quality", ["height", "width"])
    assert any("text is no feature: colour" in note for note in found["notes"])
    project = service.post(
        "/projects", {"name": "p", "task": suggested["task"], "input": {"shape": suggested["shape"]}}
    )
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "p"})
    named = {role: suggested[role] for role in ROLES if suggested[role]}
    service.client.put(
        f"/v1/pools/{pool['id']}/data",
        params=named,
        content=content.encode(),
        headers={"Content-Type": found["content_type"]},
    ).raise_for_status()
    service.run_jobs()
    ready = service.get(f"/pools/{pool['id']}")
    assert (ready["status"], ready["n_rows"], ready["n_labelled"]) == ("ready", 40, 40)
    items = service.get(f"/pools/{pool['id']}/items", features=True, limit=2)["items"]
    assert [item["key"] for item in items] == ["i0", "i1"]
    assert items[1]["x"] == pytest.approx([1 / 7, 1])


def test_nothing_of_it_is_kept(service: Service) -> None:
    before = stored(service)
    for size in (10, 20_000):  # in memory, and in a file of its own
        content = csv(a=list(range(size)), b=[1.5] * size)
        sent = service.client.post("/v1/files/inspect?name=a.csv", content=content.encode())
        assert sent.json()["n_rows"] == size
    assert stored(service) == before


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["b", "a"] * 10, {"kind": "classification", "classes": ["a", "b"]}),
        ([10, 9, 2, 1] * 5, {"kind": "classification", "classes": ["1", "2", "9", "10"]}),
        (["item 10", "item 9"] * 10, {"kind": "classification", "classes": ["item 9", "item 10"]}),
        (["true", "false"] * 10, {"kind": "classification", "classes": ["false", "true"]}),
        ([n / 3 for n in range(20)], {"kind": "regression", "outputs": 1}),
        ([n * 17 for n in range(100)], {"kind": "regression", "outputs": 1}),
        ([0.5, 1.5] * 10, {"kind": "regression", "outputs": 1}),
        (["", ""] * 10, None),
        (["a", ""] * 10, None),
        ([f"a story {n}" for n in range(40)], None),
    ],
)
@pytest.mark.parametrize("name", ["label", "Target", "y"])
def test_a_column_named_as_labels_says_what_the_task_is(name: str, values: list[Any], task: Any) -> None:
    found = look(csv(a=[n / 3 for n in range(len(values))], **{name: values}))
    assert (found.suggested.label, guess(found)["task"]) == (name, task)
    assert found.suggested.features == ["a"]


def test_whole_numbers_are_classes_in_every_format() -> None:
    data = pa.table({"a": [n / 3 for n in range(20)], "y": [2.0, 10.0] * 9 + [None, 2.0]})
    found = look(as_parquet(data), "rows.parquet")
    assert guess(found)["task"] == {"kind": "classification", "classes": ["2", "10"]}
    lines = "\n".join(json.dumps({"a": n / 3, "label": [2, 10][n % 2]}) for n in range(20))
    assert guess(look(lines, "rows.ndjson"))["task"] == {"kind": "classification", "classes": ["2", "10"]}
    several = "\n".join(json.dumps({"x": [1.0, n], "label": [0.5, n]}) for n in range(20))
    assert guess(look(several, "rows.jsonl"))["task"] == {"kind": "regression", "outputs": 2}


def test_an_unnamed_label_is_a_last_column_of_few_values_unlike_the_others() -> None:
    rows = 60
    pixels = {f"pixel_{i}": [(n * i) % 4 for n in range(rows)] for i in range(4)}
    assert look(csv(**pixels)).suggested.label is None
    assert look(csv(**pixels, digit=[n % 3 for n in range(rows)])).suggested.label == "digit"
    assert look(csv(kind=["u", "v", "w"] * 20, **pixels)).suggested.label == "kind"
    assert look(csv(**pixels, digit=list(range(rows)))).suggested.label is None


@pytest.mark.parametrize(
    ("name", "values", "key"),
    [
        ("id", [f"a{n}" for n in range(30)], "id"),
        ("patient_id", [n * 3 for n in range(30)], "patient_id"),
        ("filename", [f"{n}.png" for n in range(30)], "filename"),
        ("id", [n // 2 for n in range(30)], None),
        ("id", [n / 2 for n in range(30)], None),
        ("weight", [n * 3 for n in range(30)], None),
        ("anything", list(range(1, 31)), "anything"),  # counts the rows
    ],
)
def test_a_key_is_a_name_that_all_rows_have_and_no_two_share(name: str, values: list[Any], key: str | None) -> None:
    found = look(csv(**{name: values}, a=[n / 3 for n in range(30)]))
    assert found.suggested.key == key
    assert found.suggested.features == [column for column in (name, "a") if column != key]


def test_a_payload_is_what_people_can_look_at() -> None:
    plain = {"id": [f"r{n}" for n in range(30)], "a": [n / 3 for n in range(30)]}
    links = [f"https://example.org/{n}.png" for n in range(30)]
    long = [f"the story number {n} is about a cat that sat on a mat" for n in range(30)]
    short = [f"w{n}" for n in range(30)]
    assert look(csv(**plain, note=long)).suggested.payload == "note"
    assert look(csv(**plain, note=long, where=links)).suggested.payload == "where"
    assert look(csv(**plain, text=short)).suggested.payload == "text"
    assert look(csv(**plain, word=short)).suggested.payload is None
    assert look(csv(id=links, a=plain["a"])).suggested.payload == "id"


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (csv(text=["a b", "c d"] * 15), "No column holds numbers"),
        (csv(a=["1", "", "3"], b=[1.5, 2, 3]), "Values are missing in a (1)"),
        (csv(a=["1", "", "3"], b=[1.5, 2, 3]), "As it is, the file would be refused: Row 1, feature 'a': it is blank"),
        (csv(a=[1, "unknown", 3], b=[1.5, 2, 3]), "'a' holds numbers, but 'unknown' too"),
        (csv(b=[n / 2 for n in range(30)], n=list(range(30))), "The column 'n' only counts the rows"),
        (csv(a=[1, 2, 3], ok=["true", "false", "true"]), "write 1 and 0"),
        (csv(id=[1, 1, 2], a=[1, 2, 3]), "'id' is no key: its 3 rows have 2 different values"),
        (csv(key=[1, 1, 2], a=[1, 2, 3]), "The key 'key' has to be there and different in every row"),
        (csv(a=[1, 2, 3]), "numbered from 0"),
        (csv(a=[1e39, 2, 3]), "too large for float32"),
    ],
)
def test_notes_say_what_is_not_used_or_would_be_refused(content: str, note: str) -> None:
    assert any(note in said for said in look(content).notes), look(content).notes


def test_features_in_lists_are_told_of() -> None:
    def lines(*rows: dict[str, Any]) -> str:
        return "\n".join(map(json.dumps, rows))

    renamed = look(lines(*({"embedding": [n, 1.0]} for n in range(3))), "a.ndjson")
    assert (renamed.suggested.features, renamed.suggested.shape) == ([], [])
    assert any("rename it to 'x'" in note for note in renamed.notes)
    ragged = look(lines({"x": [1, 2]}, {"x": [1]}), "a.ndjson")
    assert (ragged.columns[0].width, ragged.suggested.shape) == (None, [])
    assert any("differ in length" in note for note in ragged.notes)
    nested = look(as_parquet(pa.table({"x": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]})), "a.parquet")
    assert (nested.columns[0].width, nested.columns[0].n_distinct, nested.suggested.shape) == (4, 2, [4])


def test_arrays_keep_their_shape() -> None:
    images = np.arange(5 * 3 * 4 * 4, dtype=np.float32).reshape(5, 3, 4, 4)
    whole = look(npy(images), "a.npy")
    assert (whole.n_rows, whole.suggested.shape, whole.columns[0].width) == (5, [3, 4, 4], 48)
    part = look(npy(images)[: 128 + 2 * 48 * 4 + 7], "a.npy", is_part=True)
    assert (part.n_rows, part.columns[0].n_distinct, len(part.preview)) == (5, 2, 2)
    assert look(npy(np.asfortranarray(images)), "a.npy").columns[0].n_distinct == 5


@pytest.mark.parametrize("cut", range(1, 37))
def test_a_part_of_a_file_ends_with_its_last_whole_line(cut: int) -> None:
    whole = 'a,note\n1,"x, ""y""\nz"\n2,"multi\nline"\n3,end\n'
    kept = whole_lines(whole.encode()[:-cut], has_quotes=True).decode() if cut < len(whole) - 7 else "a,note\n"
    assert whole.startswith(kept)
    assert kept.count('"') % 2 == 0
    ends = [len("a,note\n"), len('a,note\n1,"x, ""y""\nz"\n'), len('a,note\n1,"x, ""y""\nz"\n2,"multi\nline"\n')]
    assert len(kept) == max(end for end in ends if end <= len(whole) - cut)
    if len(kept) > ends[0]:
        found = look(whole[:-cut], is_part=True)
        assert (found.n_rows, len(found.preview)) == (None, kept.count(",") - 1 - kept.count(", "))


def test_a_part_of_ndjson_ends_with_its_last_whole_line() -> None:
    found = look('{"a": 1, "label": "u"}\n{"a": 2, "label": "v"}\n{"a": 3, "lab', "a.ndjson", is_part=True)
    assert (found.n_rows, [row["a"] for row in found.preview]) == (None, [1, 2])
    assert any("add what comes later" in note for note in found.notes)


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"", "a.csv", "is empty"),
        (b"a,b\n", "a.csv", "a header but no rows"),
        (b"a,b\n1\n", "a.csv", "expected 2 cells as in the header, there are 1"),
        (b"a;b\n1;2\n", "a.csv", "semicolons and no comma"),
        (b"a;b\n1,5;2,5\n", "a.csv", "semicolons and no comma"),
        (b"a,a\n1,2\n", "a.csv", "is there twice"),
        (b"\xe4,b\n1,2\n", "a.csv", "UTF-8"),
        (b"x" * 9 * MIB, "a.csv", "a single line"),
        (b"x" * 9 * MIB + b"\n1\n", "a.csv", "The header has 9,437,184 bytes"),
        (b"x" * 300 + b"\n1\n", "a.csv", "at most 200 plain characters"),
        (b"," * 20_000 + b"\n1\n", "a.csv", "20,001 columns; at most 10,000"),
        (b"[1, 2]\n", "a.ndjson", "an object like"),
        (b'{"a": ' + b"[" * 100_000, "a.ndjson", "is not JSON"),
        (b'{"\\ud800": 1}', "a.ndjson", "plain characters"),
        (npy(np.zeros((3, 2)))[:-5], "a.npy", "cut off"),
        (npy(np.zeros((0, 2))), "a.npy", "no numbers in it"),
        (npy(np.zeros((2, 2))).replace(b"<f8", b"|O8"), "a.npy", "convert it with array.astype"),
        (as_parquet(table())[:-9], "a.parquet", "cut off"),
        (as_arrow(table(), stream=False)[:-9], "a.arrow", "cut off"),
        (b"PK\x03\x04 and so on", "a.xlsx", "save the sheet as CSV"),
        (b"\x1f\x8b and so on", "a.csv.gz", "unpack it first"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_what_to_do(content: bytes, name: str, words: str) -> None:
    with pytest.raises(Malformed, match=r"\w") as refusal:
        look(content, name)
    assert words in refusal.value.detail


def test_parts_that_tell_nothing_are_refused() -> None:
    for content, name in ((as_parquet(table()), "a.parquet"), (as_arrow(table(), stream=True), "a.arrow")):
        with pytest.raises(Malformed, match="send all of it"):
            look(content, name, is_part=True)
    with pytest.raises(Malformed, match="hold no whole line"):
        look(b"x" * 1000, is_part=True)
    with pytest.raises(Unsupported, match=r"'notes\.txt'"):
        look(b"hello", "notes.txt")


def test_a_browsers_wrong_guess_of_the_type_does_no_harm() -> None:
    content = csv(a=[1, 2], b=[3, 4]).encode()
    excel = inspect_file(content, content_type="application/vnd.ms-excel", name="ROWS.CSV", is_part=False)
    assert (excel.format, excel.content_type) == ("csv", "text/csv")
    parquet = inspect_file(as_parquet(table()), content_type="text/csv", name="a.csv", is_part=False)
    assert (parquet.format, parquet.content_type) == ("parquet", "application/vnd.apache.parquet")


def written(data: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(data, file)
    return file.getvalue()


def test_bombs_are_not_unpacked() -> None:
    """A text of 1 MB in 60,000 rows, a row of 10⁷ numbers, a row group of 10⁸ bytes, each in a small file."""
    n = 60_000
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array(["y" * MIB]))
    repeated = look(written(pa.table({"a": np.zeros(n), "payload": text})), "a.parquet")
    assert (repeated.n_rows, repeated.columns[1].n_distinct) == (n, 1)
    assert len(str(repeated.preview[0]["payload"])) < 300
    lists = look(written(pa.table({"x": pa.array([np.zeros(10_000_000, np.float32)])})), "a.parquet")
    assert (lists.n_rows, lists.preview, lists.columns[0].kind) == (1, [], "list")
    assert any("too much to be looked at" in note for note in lists.notes)
    texts = pa.table({"a": [1.0] * 100, "t": [f"{i:03}" + "y" * 1_000_000 for i in range(100)]})
    assert look(written(texts), "a.parquet").preview == []
    packed = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(packed, texts.schema, options=options) as writer:
        writer.write_table(texts)
    assert look(packed.getvalue(), "a.arrow").preview == []


def test_hostile_values_can_be_shown() -> None:
    rows = [
        {"a": 10**400, "b": "\ud800", "c": {"d": {"e": {"f": {"g": 1}}}}, "label": 1},
        {"a": -1, "b": "x" * 100_000, "c": [[[[[1]]]]], "label": "no"},
        {"a": True, "b": None, "c": None, "label": [1]},
    ]
    found = look("\n".join(map(json.dumps, rows)), "a.ndjson")
    assert kinds(found) == {"a": "mixed", "b": "mixed", "c": "mixed", "label": "mixed"}
    assert found.preview[0]["c"] == {"d": {"e": {"f": "…"}}}
    assert len(str(found.preview[1]["b"])) == 201
    infinite = look(
        written(pa.table({"a": [float("inf"), float("nan"), 1.0], "label": [float("inf"), 1.0, 2.5]})), "a.pq"
    )
    assert infinite.columns[0].n_missing == 1
    assert guess(infinite)["task"] == {"kind": "regression", "outputs": 1}


def test_types_that_are_no_features_are_named() -> None:
    data = pa.table(
        {
            "a": [1.0, 2.0],
            "when": pa.array([1, 2], pa.timestamp("s")),
            "raw": pa.array([b"1", b"2"], pa.binary()),
            "part": pa.array([{"u": 1}, {"u": 2}]),
            "name of": pa.array(["u", "v"]).dictionary_encode(),
            "half": np.array([1, 2], np.float16),
        }
    )
    found = look(as_arrow(data, stream=False), "a.arrow")
    assert kinds(found) == {
        "a": "number",
        "when": "text",
        "raw": "mixed",
        "part": "mixed",
        "name of": "text",
        "half": "number",
    }
    assert found.suggested.features == ["a", "half"]
    assert any("raw, part" in note for note in found.notes)


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_spoilt_file_is_counted_or_refused_and_nothing_else(name: str) -> None:
    whole, content_type = FORMATS[name]
    for seed in range(60):
        rng = random.Random(seed)
        spoilt = bytearray(whole)
        for _ in range(rng.randint(1, 5)):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        try:
            look_at = inspect_file(bytes(spoilt), content_type=content_type, name=None, is_part=False)
            look_at.model_dump_json()
        except Problem:
            pass


def test_more_rows_than_are_counted_are_said_to_be() -> None:
    n = 150_000
    found = look(written(pa.table({"a": np.arange(n) / 3, "label": ["u", "v"] * (n // 2)})), "a.parquet")
    assert found.n_rows == n
    assert any("Only the first 100,000 rows" in note for note in found.notes)
    lines = b'{"a": 1.5, "b": 2, "c": 3, "d": 4, "e": 5}\n' * n
    counted = look_into("ndjson", lines, is_part=False)
    assert (counted.n_rows, counted.n_looked) == (n, 100_001)


@on_sqlite
def test_a_file_over_the_cap_and_a_key_that_only_reads_are_refused(service: Service) -> None:
    large = b"a,b\n" + b"1,2\n" * (4 * MIB)
    refused(service, "POST", "/files/inspect?name=a.csv", 413, "16,777,216", content=large)
    reader = {"Authorization": f"Bearer {service.key('read')}"}
    refused(service, "POST", "/files/inspect?name=a.csv", 403, content=b"a\n1\n", headers=reader)
    refused(service, "POST", "/files/inspect?name=a.csv", 422, "no rows", content=b"a\n")
    refused(service, "POST", "/files/inspect", 415, content=b"a\n1\n")
