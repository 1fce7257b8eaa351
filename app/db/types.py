"""Column types and expressions that mean the same on SQLite and PostgreSQL."""

import os
import time
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, TypeDecorator, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
BigInt = BigInteger().with_variant(Integer(), "sqlite")


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in and out; SQLite would otherwise hand back naive datetimes."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a datetime must carry its time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class DatabaseClock(FunctionElement[datetime]):
    """The database's own time: the one clock that all workers share."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(DatabaseClock, "sqlite")
def _sqlite_clock(element: Any, compiler: Any, **_: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


@compiles(DatabaseClock, "postgresql")
def _postgres_clock(element: Any, compiler: Any, **_: Any) -> str:
    return "clock_timestamp()"


CLOCK: ColumnElement[datetime] = DatabaseClock()


def database_time(session: Session, clock: ColumnElement[datetime] = CLOCK) -> datetime:
    return session.execute(select(clock)).scalar_one()


def new_id() -> str:
    """A UUID of version 7: sorts by time of making, so an index grows at its end and a cursor can page by id."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (
        (milliseconds & (1 << 48) - 1) << 80
        | 0x7 << 76
        | (random >> 68 & 0xFFF) << 64
        | 0b10 << 62
        | random & (1 << 62) - 1
    )
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
