"""Take a data file for an empty pool: stream it to storage, look at its first rows, queue its ingest."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Job, Pool, PoolData, Project
from app.db.types import new_id
from app.errors import Conflict, Malformed, Problem, Unsupported
from app.pools.store import called, given_labels
from app.projects.targets import row_width
from app.queue import queue
from app.services import Services
from app.settings import GIB, Settings
from app.storage.readers import BadData, Batch, Columns, Kind, Limits, check_head, kind_of

UNPACKED_BYTES, UNPACKED_RATIO = GIB, 100
ACTIVE = ("queued", "running")


@dataclass(frozen=True, kw_only=True)
class Upload:
    key: str
    kind: Kind
    columns: Columns


async def receive_file(
    services: Services,
    project: Project,
    pool: Pool,
    chunks: AsyncIterator[bytes],
    *,
    content_type: str | None,
    columns: Columns,
) -> Upload:
    """No transaction is open while the body comes in; a cut connection leaves nothing behind."""
    first = await anext(chunks, b"")
    while first == b"":  # an ASGI server may open with an empty message
        following = await anext(chunks, None)
        if following is None:
            raise Malformed("the body is empty; send the rows as npy, Parquet, Arrow, CSV or NDJSON")
        first = following
    try:
        kind = kind_of(content_type, head=first)
    except BadData as error:
        raise Unsupported(error.message) from error
    upload = Upload(key=f"uploads/{pool.id}/{new_id()}", kind=kind, columns=columns)
    await services.objects.put_stream(upload.key, _again(first, chunks))
    try:
        await run_in_threadpool(_check, services, project, pool, upload)
    except BaseException:
        await run_in_threadpool(services.objects.delete, [upload.key])
        raise
    return upload


async def _again(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def limits_of(settings: Settings, upload_bytes: int) -> Limits:
    """Rows of a small file may compress well, but not without end: a bomb is stopped long before the pool's own cap."""
    unpacked = max(UNPACKED_BYTES, UNPACKED_RATIO * upload_bytes)
    return Limits(max_rows=settings.max_pool_rows, max_bytes=min(settings.max_pool_bytes, unpacked))


def _check(services: Services, project: Project, pool: Pool, upload: Upload) -> None:
    """Most mistakes show in the first rows, and are answered at once; the rest is found by the ingest."""
    if pool.purpose != "candidates" and upload.kind == "npy":
        raise Malformed(
            f"{called(pool.purpose)} comes with labels, which npy has no place for; send Parquet, CSV or NDJSON"
        )
    rows_of: dict[str, int] = {}
    n_rows = 0

    def look(batch: Batch) -> None:
        nonlocal n_rows
        given_labels(project.task, batch, n_rows)
        for row, key in enumerate(batch.keys or (), start=n_rows):
            if rows_of.setdefault(key, row) != row:
                raise BadData(
                    f"Rows {rows_of[key]} and {row} have the same key {key!r:.100}; keys must differ.", row=row
                )
        n_rows += len(batch)

    try:
        with services.objects.open(upload.key) as source:
            check_head(
                upload.kind,
                source,
                width=row_width(project.input),
                columns=upload.columns,
                limits=limits_of(services.settings, services.objects.size(upload.key)),
                look=look,
            )
    except BadData as error:
        raise Malformed(error.message) from error


def queue_ingest(
    services: Services, session: Session, pool: Pool, upload: Upload, *, annotator: str, key_id: str | None
) -> Job:
    try:
        projects.lock(session, pool.project_id)
        pool = session.get_one(Pool, pool.id, populate_existing=True)
        refuse_second_file(session, pool)
    except (Problem, NoResultFound):
        services.objects.delete([upload.key])
        raise
    job = queue.enqueue(
        session,
        kind="ingest_pool",
        queue="ingest",
        project_id=pool.project_id,
        payload={
            "pool_id": pool.id,
            "upload_key": upload.key,
            "file_kind": upload.kind,
            "columns": asdict(upload.columns),
            "annotator": annotator,
            "key_id": key_id,
        },
    ).job
    pool.ingest_job_id = job.id
    session.flush()
    return job


def refuse_second_file(session: Session, pool: Pool) -> None:
    if session.get(PoolData, pool.id) is not None:
        raise Conflict("this pool has its rows already, and pools never change; create another pool")
    job = session.get(Job, pool.ingest_job_id) if pool.ingest_job_id else None
    if job is not None and job.status in ACTIVE:
        raise Conflict(f"a file for this pool is being ingested by job {job.id}; wait for it, or cancel it")
