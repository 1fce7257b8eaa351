"""News: how things stand, how they stood before, and who is to be told what of it."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from app.db.jobs import ENDED
from app.errors import NotReady

MAX_BACKLOG = 10_000  # news that wait for a listener who does not read; then its stream ends
View = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Told:
    """One event of a stream."""

    event: str
    data: View


News = Told | NotReady | None
"""Something as it is now; that this can't be read at present; None: there is no more to come."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Something as it stands. `mark` differs whenever `view` may; a view of None is not told."""

    event: str
    id: str
    project_id: str | None
    mark: Any
    view: Callable[[], View | None]
    is_part: bool = False  # of a job that was split, which tells of its parts


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What somebody listens to. `project_ids` of None is everything; what ended after `since` may not be told yet."""

    job_ids: frozenset[str]
    project_ids: frozenset[str] | None
    since: datetime

    def within(self, project_id: Any) -> tuple[ColumnElement[bool], ...]:
        """As conditions on a column of project ids."""
        return () if self.project_ids is None else (project_id.in_(self.project_ids),)


Source = Callable[[Session, Watched], Iterable[State]]


@dataclass(frozen=True, kw_only=True)
class Interest:
    """In one job; or in all that happens in projects, as long as the key is good."""

    job_id: str | None = None
    project_ids: frozenset[str] | None = frozenset()
    key_id: str = ""

    def includes(self, state: State) -> bool:
        if self.job_id is not None:
            return (state.event, state.id) == ("job", self.job_id)
        return not state.is_part and (self.project_ids is None or state.project_id in self.project_ids)


@dataclass(eq=False, kw_only=True)
class Listener:
    """`is_current`: it was told how things stand; not so one who has just come, or was told of an outage."""

    interest: Interest
    queue: "asyncio.Queue[News]" = field(default_factory=asyncio.Queue)
    has_begun: bool = False
    is_current: bool = False
    is_warned: bool = False

    def tell(self, news: Sequence[News]) -> None:
        for each in news if self.queue.qsize() < MAX_BACKLOG else (None,):
            self.queue.put_nowait(each)
        self.has_begun, self.is_current, self.is_warned = True, True, False

    def warn(self, problem: NotReady) -> None:
        if not self.is_warned:
            self.queue.put_nowait(problem)
        self.is_current, self.is_warned = False, True

    def end(self) -> None:
        self.queue.put_nowait(None)


READY = Told(event="ready", data={})
Key = tuple[str, str]
Known = dict[Key, tuple[Any, View | None]]
"""By event and id, the mark of what was read before, and its view if it was made."""


class Reading:
    """How things stand, and how they stood before. A view is made where somebody is told it, and once."""

    def __init__(self, states: dict[Key, State], before: Known) -> None:
        self._states = states
        self._before = before
        self._changed = [key for key, state in states.items() if key not in before or before[key][0] != state.mark]
        self._views: dict[Key, View | None] = {}

    def news_for(self, listener: Listener, good_keys: frozenset[str]) -> list[News]:
        interest = listener.interest
        if interest.job_id is not None and ("job", interest.job_id) not in self._states:
            return [None]
        if interest.key_id and interest.key_id not in good_keys:
            return [None]
        keys = list(self._changes(interest)) if listener.has_begun else []
        if listener.is_current:
            return self._told(keys)
        news = self._told(dict.fromkeys([*keys, *self._standing(interest)]))
        return news if interest.job_id is not None else [*news, READY]

    def known(self) -> Known:
        kept = {key: self._before[key][1] for key in self._states.keys() - self._changed if key in self._before}
        return {key: (state.mark, self._views.get(key, kept.get(key))) for key, state in self._states.items()}

    def _changes(self, interest: Interest) -> Iterator[Key]:
        for key in self._changed:
            if interest.includes(self._states[key]):
                view = self._view(key)
                if view is not None and view != self._before.get(key, (None, None))[1]:
                    yield key

    def _standing(self, interest: Interest) -> Iterator[Key]:
        """What is told of first: a job that is followed, or all that are under way."""
        for key, state in self._states.items():
            if state.event == "job" and interest.includes(state):
                view = self._view(key)
                if interest.job_id is not None or (view is not None and view["status"] not in ENDED):
                    yield key

    def _told(self, keys: Iterable[Key]) -> list[News]:
        return [Told(event=key[0], data=self._view(key) or {}) for key in keys]

    def _view(self, key: Key) -> View | None:
        if key not in self._views:
            self._views[key] = self._states[key].view()
        return self._views[key]
