"""API keys as seen from outside: everything but the secret, which is shown once."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from app.web.auth import DEFAULT_SCOPE, Scope
from app.web.fields import In, Name, Out, Storable


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("is past the end of the calendar; leave it out for a key without an end") from None


class KeyIn(In):
    name: Name
    scopes: list[Scope] = Field(
        default=[DEFAULT_SCOPE],
        min_length=1,
        max_length=4,
        description="Each includes the lesser. Default: admin, as of `bensemble key create`; name a lesser one for a "
        "key that you hand on.",
    )
    project_ids: list[Annotated[Storable, Field(max_length=36)]] | None = Field(
        None, min_length=1, max_length=1000, description="What the key can see; null for everything."
    )
    expires_at: Annotated[AwareDatetime, AfterValidator(_in_utc)] | None = None


class KeyOut(Out):
    id: str
    name: str
    scopes: list[Scope]
    project_ids: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class MeOut(Out):
    """Whoever sends the credential of this request."""

    name: str = Field(description="Of the key, or of the session whose token it is; also the annotator of its labels.")
    scopes: list[Scope] = Field(description="As given to the key; each includes the lesser.")
    project_ids: list[str] | None = Field(description="What it sees; null for everything.")
    session_id: str | None = Field(description="Of a session's token, which sees that session and nothing else.")
    expires_at: datetime | None
    version: str = Field(description="Of the service that answers.")


class NewKeyOut(KeyOut):
    key: str = Field(description="The secret. It is not stored and can't be shown again.")
