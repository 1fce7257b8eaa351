"""The job that turns an uploaded file into a pool."""

from app.db.tables import Pool, PoolData, Project
from app.pools.receive_file import limits_of
from app.pools.store import publish_pool, write_pool
from app.projects.targets import row_width
from app.queue.context import JobContext, JobFailed, still_there, storable
from app.services import job_services
from app.storage.errors import MissingObject
from app.storage.readers import BadData, Columns, open_reader, unused_note


def ingest_pool(job: JobContext) -> None:
    services = job_services(job)
    payload = job.payload
    with job.database.read() as session:
        gone = "the pool was deleted; make another and send the file there"
        pool = still_there(session, Pool, payload["pool_id"], gone)
        project = still_there(session, Project, pool.project_id, "the project was deleted")
    prefix = f"pools/{pool.id}/{job.token}"
    services.objects.delete_prefix(prefix + "/")  # of this very attempt, were it ever begun twice
    try:
        with services.objects.open(payload["upload_key"]) as source:
            reader = open_reader(
                payload["file_kind"],
                source,
                width=row_width(project.input),
                columns=Columns(**payload["columns"]),
                limits=limits_of(job.settings, services.objects.size(payload["upload_key"])),
            )
            total = reader.n_rows or 0
            stored = write_pool(
                services,
                prefix,
                project,
                pool.purpose,
                reader,
                report=lambda n_rows: job.progress(n_rows, max(total, n_rows), f"{n_rows:,} rows read"),
            )
    except MissingObject as error:  # deleted when an earlier attempt found a mistake in it
        detail = f"the file is no longer there; send it again with PUT /v1/pools/{pool.id}/data"
        raise JobFailed("The file is gone", detail) from error
    except BadData as error:
        services.objects.delete([payload["upload_key"]])
        raise JobFailed("The file can't be used", error.message, status=422) from error
    triggered: list[str] = []
    result = {
        "pool_id": pool.id,
        "n_rows": stored.n_rows,
        "n_labels": len(stored.labels),
        "triggered": triggered,
        "notes": storable([unused_note(reader.unused)] if reader.unused else []),
    }
    with job.finish(result) as session:
        if session.get(PoolData, pool.id) is None:
            triggered += publish_pool(
                services,
                session,
                project,
                pool,
                stored,
                annotator=payload["annotator"],
                key_id=payload.get("key_id"),  # a job of an older version has none
            )
    services.objects.delete([payload["upload_key"]])
