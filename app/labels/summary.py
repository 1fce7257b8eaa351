"""What a project's labels add up to: classes or numbers, and who gave them."""

from datetime import datetime
from typing import Any

from pydantic import Field
from sqlalchemy.orm import Session

from app.db import label_summary
from app.db.tables import Project
from app.web.fields import Out


class ClassCount(Out):
    value: str
    n: int = Field(description="Rows that are agreed to be of this class.")


class NumberSummary(Out):
    """Of the rows' agreed numbers, the mean of each row's annotators."""

    n: int
    mean: float
    sd: float | None = Field(description="Divided by n − 1; null of a single row.")
    min: float
    max: float


class AnnotatorCount(Out):
    annotator: str
    n_labels: int = Field(description="Rows of which their newest word is a label.")
    n_skips: int
    last_at: datetime = Field(description="When the newest of these was said.")
    median_lead_time: float | None = Field(description="Seconds an answer; null where none came with its time.")


class SummaryOut(Out):
    n_labelled: int = Field(description="Rows with an agreed label.")
    n_skipped: int
    n_open: int = Field(description="Rows of which annotators say different things, without a majority.")
    by_class: list[ClassCount] | None = Field(description="Every class of the task, in its order; null of numbers.")
    numbers: NumberSummary | None = Field(
        description="Where one number is labelled; null of classes, several, or none yet."
    )
    by_annotator: list[AnnotatorCount] = Field(description="Who labelled most first; at most 1,000.")


def summarise_labels(session: Session, project: Project) -> SummaryOut:
    """Of candidate pools: what trainings learn from."""
    task: dict[str, Any] = project.task
    pool_ids = label_summary.candidate_pools(session, project.id)
    standing = label_summary.count_standing(session, project.id, pool_ids, kind=task["kind"])
    by_class = numbers = None
    if task["kind"] == "classification":
        by_class = [ClassCount(value=name, n=standing.by_class.get(name, 0)) for name in task["classes"]]
    elif task["outputs"] == 1:
        numbers = label_summary.summarise_numbers(session, project.id, pool_ids)
    return SummaryOut.of(
        standing,
        by_class=by_class,
        numbers=None if numbers is None else NumberSummary.of(numbers),
        by_annotator=[
            AnnotatorCount.of(found) for found in label_summary.summarise_annotators(session, project.id, pool_ids)
        ],
    )
