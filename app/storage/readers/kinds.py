"""Content types to formats."""

from app.storage.errors import BadData
from app.storage.readers.batch import Kind

CONTENT_TYPES: dict[str, Kind] = {
    "application/x-npy": "npy",
    "application/npy": "npy",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
    "application/parquet": "parquet",
    "application/vnd.apache.arrow.file": "arrow",
    "application/vnd.apache.arrow.stream": "arrow",
    "text/csv": "csv",
    "application/csv": "csv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/jsonlines": "ndjson",
}
SUFFIXES: dict[str, Kind] = {
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
MAGICS: dict[bytes, Kind] = {b"\x93NUMPY": "npy", b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
UNSPECIFIC = ("", "application/octet-stream", "binary/octet-stream", "application/x-www-form-urlencoded")


def kind_of(content_type: str | None, filename: str | None = None, head: bytes = b"") -> Kind:
    """By the content type; where that says nothing (curl's default too), by the file's first bytes, then its name."""
    essence = (content_type or "").split(";", 1)[0].strip().lower()
    if essence in CONTENT_TYPES:
        return CONTENT_TYPES[essence]
    if essence in UNSPECIFIC:
        for magic, kind in MAGICS.items():
            if head.startswith(magic):
                return kind
        for suffix, kind in SUFFIXES.items():
            if filename and filename.lower().endswith(suffix):
                return kind
    accepted = ", ".join(CONTENT_TYPES)
    raise BadData(f"Content-Type {essence or 'missing'!r} does not say what the rows are; accepted: {accepted}.")
