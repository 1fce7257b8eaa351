"""API keys and the tokens of sessions: random, shown once, stored as a SHA-256 digest (a 256-bit random secret needs no
slow hash)."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.db.tables import ApiKey, Base, DesignSession, Job, Project
from app.db.types import database_time, new_id
from app.errors import Forbidden, Malformed, Unauthorised

Scope = Literal["read", "label", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)  # each includes those before it
DEFAULT_SCOPE: Scope = "admin"  # of a new key that names none, by command and by request


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks, what they may do and see, and until when. `project_ids` of None sees every project, and the
    experiments, which belong to none. A `session_id` sees that session of an experiment and nothing else."""

    key_id: str
    name: str
    scopes: tuple[Scope, ...]
    project_ids: frozenset[str] | None
    expires_at: datetime | None = None
    session_id: str | None = None

    def may(self, scope: Scope) -> bool:
        return any(SCOPES.index(held) >= SCOPES.index(scope) for held in self.scopes)

    def sees(self, project_id: str | None) -> bool:
        return self.project_ids is None or project_id in self.project_ids

    def sees_row(self, row: Base) -> bool:
        if self.session_id is not None:
            return session_of(row) == self.session_id
        return self.sees(row.id if isinstance(row, Project) else getattr(row, "project_id", None))

    def demand(self, scope: Scope) -> None:
        if not self.may(scope) and self.session_id is not None:
            raise Forbidden(
                "a session's token can propose, abandon, observe, take its last outcome back and read in its own "
                f"session, and nothing else; use an API key with scope '{scope}' here"
            )
        if not self.may(scope):
            held = ", ".join(self.scopes) or "none"
            raise Forbidden(f"this needs a key with scope '{scope}'; yours has: {held}. Ask an admin for a wider key.")

    def refuse_wider(
        self, scopes: Sequence[Scope], project_ids: Sequence[str] | None, expires_at: datetime | None
    ) -> None:
        """A key never makes one that can do, see or outlast more than itself."""
        for scope in scopes:
            self.demand(scope)
        if self.project_ids is not None and (project_ids is None or not self.project_ids.issuperset(project_ids)):
            raise Forbidden(
                "a key that is bound to projects can only make keys for these projects; give `project_ids`, and none "
                "but its own"
            )
        if self.expires_at is not None and (expires_at is None or expires_at > self.expires_at):
            asked = "without an end" if expires_at is None else f"that ends at {expires_at.isoformat()}"
            raise Forbidden(
                f"this key ends at {self.expires_at.isoformat()} and can't make one {asked}; give an `expires_at` that "
                "is not later than its own, or use a key that lasts longer"
            )


def session_of(row: Base) -> str | None:
    """The session of an experiment that a row is a part of, if it is of any."""
    if isinstance(row, DesignSession):
        return row.id
    if isinstance(row, Job):
        found: str | None = row.payload.get("session_id")
        return found
    return getattr(row, "session_id", None)


EVERYBODY = Caller(key_id="", name="anonymous", scopes=("admin",), project_ids=None)


KEY_PREFIX = "bk_"
TOKEN_PREFIX = "bs_"
_BY_DIGEST = select(ApiKey).where(ApiKey.digest == bindparam("digest"))  # built once: every request asks it
_BY_TOKEN = select(DesignSession.id, DesignSession.name).where(DesignSession.token_digest == bindparam("digest"))


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def new_token() -> str:
    """A secret for one session of an experiment, to be given to a participant's browser."""
    return f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}"


def create_key(
    session: Session,
    *,
    name: str,
    scopes: Sequence[Scope],
    project_ids: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """The key's row and its secret; the secret can't be had again."""
    if project_ids is not None and not project_ids:
        raise Malformed(
            "a key for no project would see nothing; name one, or leave `project_ids` out for a key that sees all",
            pointer="/project_ids",
        )
    known = set(session.scalars(select(Project.id).where(Project.id.in_(project_ids or ()))))
    if unknown := [project_id for project_id in project_ids or () if project_id not in known]:
        raise Malformed(
            f"there is no project {unknown[0]!r}; a key that names it would see nothing", pointer="/project_ids"
        )
    secret = f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"
    key = ApiKey(
        id=new_id(),
        name=name,
        digest=digest(secret),
        scopes=list(dict.fromkeys(scopes)),
        project_ids=list(dict.fromkeys(project_ids)) if project_ids is not None else None,
        expires_at=expires_at,
    )
    session.add(key)
    session.flush()
    return key, secret


def authenticate(session: Session, secret: str | None) -> Caller:
    if not secret:
        raise Unauthorised("send your API key as 'Authorization: Bearer <key>'; `bensemble key create` makes one")
    if secret.startswith(TOKEN_PREFIX):
        return _participant(session, secret)
    key = session.execute(_BY_DIGEST, {"digest": digest(secret)}).scalar_one_or_none()
    if key is None or key.revoked_at is not None:
        raise Unauthorised("this API key is unknown or was revoked; `bensemble key create` makes a new one")
    if key.expires_at is not None and key.expires_at <= database_time(session):
        raise Unauthorised(f"this API key expired at {key.expires_at.isoformat()}; ask for a new one")
    return Caller(
        key_id=key.id,
        name=key.name,
        scopes=tuple(key.scopes),
        project_ids=frozenset(key.project_ids) if key.project_ids is not None else None,
        expires_at=key.expires_at,
    )


def _participant(session: Session, token: str) -> Caller:
    found = session.execute(_BY_TOKEN, {"digest": digest(token)}).one_or_none()
    if found is None:
        raise Unauthorised(
            "this session token is unknown: it was revoked or replaced, or its session was deleted; have a new one "
            "made with POST /v1/sessions/{id}/token, or open a new session"
        )
    session_id, name = found
    return Caller(key_id=session_id, name=name, scopes=("label",), project_ids=frozenset(), session_id=session_id)
