"""How many rows one answer has room for, where each comes with its numbers: 2 MB, however wide rows are."""

import math

from app.db.tables import Project

FEATURES_AT_ONCE = 100_000  # numbers in one answer, at up to 20 characters each


def rows_at_once(project: Project, count: int, *, features: bool) -> int:
    """At most `count`; always one."""
    return min(count, max(1, FEATURES_AT_ONCE // math.prod(project.input["shape"]))) if features else count
