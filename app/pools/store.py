"""Turn rows into an immutable pool, and publish it together with the labels that came with them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.db.tables import Pool, PoolData, Project
from app.errors import Malformed
from app.events import PoolStored, publish
from app.projects.targets import parse_label, row_width
from app.services import Services
from app.storage.pools import PoolWriter
from app.storage.readers import BadData, Batch, kept_apart


@dataclass(frozen=True, kw_only=True)
class StoredPool:
    prefix: str
    n_rows: int
    n_bytes: int
    labels: list[tuple[int, Any]]  # (row, value), at most one a row


def write_pool(
    services: Services,
    prefix: str,
    project: Project,
    purpose: str,
    batches: Iterable[Batch],
    *,
    report: Callable[[int], None] = lambda n_rows: None,
) -> StoredPool:
    """Nothing stays under the prefix if a row turns out to be wrong."""
    labels: list[tuple[int, Any]] = []
    width, shard_bytes = row_width(project.input), services.settings.shard_bytes
    with PoolWriter(services.objects, prefix, width=width, shard_bytes=shard_bytes) as writer:
        n_rows = 0
        # rows to be measured on are scaled as the others are, and may lie closer together
        for batch in batches if purpose == "evaluation" else kept_apart(batches):
            writer.add(batch)
            labels += given_labels(project.task, batch, n_rows)
            n_rows += len(batch)
            report(n_rows)
        if purpose != "candidates" and not labels:
            raise BadData(
                f"{called(purpose).capitalize()} comes with labels, and these rows have none; send `labels`, or name "
                "their column.",
                column="label",
            )
        manifest = writer.finish()
    return StoredPool(prefix=prefix, n_rows=manifest["n_rows"], n_bytes=manifest["bytes"], labels=labels)


def called(purpose: str) -> str:
    """A pool that comes with labels, in the words of a refusal."""
    return "an evaluation pool" if purpose == "evaluation" else f"a {purpose} pool"


def given_labels(task: dict[str, Any], batch: Batch, first_row: int) -> list[tuple[int, Any]]:
    given = []
    for i, value in enumerate(batch.labels or ()):
        if value is None or value == "":
            continue
        try:
            given.append((first_row + i, parse_label(task, value)))
        except Malformed as problem:
            raise BadData(f"Row {first_row + i}: {problem.detail}.", row=first_row + i, column="label") from problem
    return given


def publish_pool(
    services: Services,
    session: Session,
    project: Project,
    pool: Pool,
    stored: StoredPool,
    *,
    annotator: str,
    key_id: str | None,
) -> list[str]:
    """Rows and labels appear together; returns the jobs set off."""
    session.add(
        PoolData(
            pool_id=pool.id,
            prefix=stored.prefix,
            n_rows=stored.n_rows,
            n_bytes=stored.n_bytes,
            n_given_labels=len(stored.labels),
        )
    )
    session.flush()
    return publish(
        session,
        PoolStored(
            settings=services.settings,
            project=project,
            pool=pool,
            labels=stored.labels,
            annotator=annotator,
            key_id=key_id,
        ),
    )
