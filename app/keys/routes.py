"""API keys."""

from fastapi import APIRouter
from sqlalchemy import select

import bensemble_core as bc
from app.db.tables import ApiKey
from app.db.types import database_time
from app.errors import Forbidden, Malformed, NotFound
from app.keys.schemas import KeyIn, KeyOut, MeOut, NewKeyOut
from app.web.auth import Caller, create_key
from app.web.dependencies import CanAdminister, CanRead, EdgeRoute, SecretRoute, is_id
from app.web.paging import Page, Paged, page_by_id

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=SecretRoute)
of_caller = APIRouter(prefix="/v1/me", tags=["keys"], route_class=EdgeRoute)


@of_caller.get("", summary="Who am I?")
def get_me(context: CanRead[Caller]) -> MeOut:
    """What the credential of this request may do and see: an API key's, or a session's token's. Without keys
    (`BENSEMBLE_AUTH=false`) everybody is `anonymous`, with scope admin."""
    caller = context.resource
    seen = None if caller.project_ids is None else sorted(caller.project_ids)
    return MeOut.of(caller, scopes=list(caller.scopes), project_ids=seen, version=bc.__version__)


@router.post("", status_code=201, operation_id="create_key", summary="Create an API key")
def post_key(context: CanAdminister[None], wanted: KeyIn) -> NewKeyOut:
    """It can do, see and outlast no more than the key that makes it: one that is bound to projects or has an end has
    to be given `project_ids` or `expires_at` within its own. The secret is shown in this answer only. An
    Idempotency-Key is ignored here, since the answer is not stored."""
    context.caller.refuse_wider(wanted.scopes, wanted.project_ids, wanted.expires_at)
    if wanted.expires_at is not None and wanted.expires_at <= database_time(context.session):
        raise Malformed("`expires_at` is in the past", pointer="/expires_at")
    key, secret = create_key(
        context.session,
        name=wanted.name,
        scopes=wanted.scopes,
        project_ids=wanted.project_ids,
        expires_at=wanted.expires_at,
    )
    return NewKeyOut(**KeyOut.model_validate(key).model_dump(), key=secret)


@router.get("", summary="List API keys")
def list_keys(context: CanAdminister[None], paging: Paged) -> Page[KeyOut]:
    if context.caller.project_ids is not None:
        raise Forbidden("a key that is bound to projects can't list all keys")
    return page_by_id(context.session, select(ApiKey), paging, KeyOut.model_validate)


@router.delete("/{key_id}", status_code=204, operation_id="revoke_key", summary="Revoke an API key")
def delete_key(key_id: str, context: CanAdminister[None]) -> None:
    """At once and for good; the key stays listed, with the time of its end."""
    key = context.session.get(ApiKey, key_id) if is_id(key_id) else None
    own = context.caller.project_ids
    if key is None or (own is not None and (key.project_ids is None or not own.issuperset(key.project_ids))):
        raise NotFound(f"there is no key {key_id[:64]!r} that this key can see")
    if key.revoked_at is None:
        key.revoked_at = database_time(context.session)
