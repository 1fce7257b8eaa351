"""What happens in one noun and concerns those above it.

Calls go down; only what would point up is an event. `publish` calls the listeners at once, in the order in which
`app.listeners` names them, in the caller's transaction, and lets their errors through.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, TypeAlias

from sqlalchemy.orm import Session

from app.db.tables import Pool, Project, Ranking
from app.settings import Settings


@dataclass(frozen=True, kw_only=True)
class PoolStored:
    """A pool has its rows. `labels` came with them: (row, value), at most one a row."""

    settings: Settings
    project: Project
    pool: Pool
    labels: Sequence[tuple[int, Any]]
    annotator: str
    key_id: str | None


@dataclass(frozen=True, kw_only=True)
class RankingReady:
    """A ranking has its items: (rank, row)."""

    ranking: Ranking
    items: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class EnsembleTrained:
    """A training has ended well; `schedule_ids` are the schedules that asked for it."""

    settings: Settings
    project: Project
    schedule_ids: Sequence[str]


Event: TypeAlias = PoolStored | RankingReady | EnsembleTrained

_listeners: dict[type[Event], tuple[str, ...]] = {}


def subscribe(listeners: Mapping[type[Event], Sequence[str]]) -> None:
    """Who hears of what, as paths of functions, "app.rounds.open:hand_out", which take the session and the event."""
    _listeners.update({event: tuple(paths) for event, paths in listeners.items()})


def publish(session: Session, event: Event) -> list[str]:
    """Tell the listeners; the ids of the jobs that they set off."""
    if type(event) not in _listeners:
        raise RuntimeError(f"nobody would hear of {type(event).__name__}: this process has not imported app.listeners")
    return [job_id for path in _listeners[type(event)] for job_id in resolve_name(path)(session, event)]
