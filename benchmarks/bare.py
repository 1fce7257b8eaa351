"""The reference for label posts: FastAPI and SQLAlchemy, one insert and one commit a request, and nothing else.

`python -m benchmarks.bare DATABASE_URL PORT`. Columns, engine settings and server settings are the service's own.
"""

import sys
from datetime import UTC, datetime

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.db.engine import Database


class Base(DeclarativeBase):
    pass


class Event(Base):
    __tablename__ = "event"

    seq: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str]
    pool_id: Mapped[str]
    row: Mapped[int]
    annotator: Mapped[str]
    action: Mapped[str]
    value: Mapped[str]
    source: Mapped[str]
    lead_time: Mapped[float | None]
    created_at: Mapped[datetime]


class EventIn(BaseModel):
    project_id: str
    pool_id: str
    row: int
    annotator: str
    action: str
    value: str
    source: str
    lead_time: float | None = None


class EventOut(EventIn):
    seq: int
    created_at: datetime


def create_app(database_url: str) -> FastAPI:
    database = Database.connect(database_url)
    Base.metadata.create_all(database.engine)
    app = FastAPI()

    @app.post("/events", status_code=201)
    def post_event(wanted: EventIn) -> EventOut:
        with database.write() as session:
            event = Event(**wanted.model_dump(), created_at=datetime.now(UTC))
            session.add(event)
        return EventOut.model_validate(event, from_attributes=True)

    @app.get("/readyz")
    def get_ready() -> None: ...

    return app


if __name__ == "__main__":
    uvicorn.run(
        create_app(sys.argv[1]),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        log_config=None,
        access_log=False,
        server_header=False,
    )
