"""`Prefer: wait=SECONDS` (RFC 7240): a request that makes a job is answered when that has ended, with what came of it.

An endpoint says with `@waits` which jobs its answer names and how to build that answer again from fresh rows. The rest
is done by `EdgeRoute`, after the commit: no thread is held and no transaction is open while the job runs. The answer
that was stored for an Idempotency-Key names the jobs as well, so a repeated request waits like the first one."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from sqlalchemy import exists, select
from sqlalchemy.orm import Session
from starlette.requests import ClientDisconnect

from app.db.jobs import ENDED
from app.db.tables import Base, Job
from app.services import Services

MAX_WAIT_SECONDS = 60
MAX_HEADER = 1000  # characters
First = dict[str, Any]
"""The answer as it was when the job had just been made."""
F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """`jobs` are the ids of those that an answer names; `build` makes the answer again, as a model or a response."""

    jobs: Callable[[First], list[str]]
    build: Callable[[Services, Session, First], BaseModel | Response]
    model: type[BaseModel] | None


def its_job(first: First) -> list[str]:
    return [first["job"]["id"]] if first.get("job") else []


def waits(answer: Callable[..., BaseModel], **tables: type[Base]) -> Callable[[F], F]:
    """For an answer of a job and what it makes: `answer(services, session, job=…, ensemble=…)` gets each part's row, by
    the `id` that the part has in the first answer."""

    def build(services: Services, session: Session, first: First) -> BaseModel:
        rows = {name: session.get_one(table, first[name]["id"]) for name, table in tables.items()}
        return answer(services, session, **rows)

    return waits_for(its_job, build, model=get_type_hints(answer)["return"])


def waits_for(
    jobs: Callable[[First], list[str]],
    build: Callable[[Services, Session, First], BaseModel | Response],
    *,
    model: type[BaseModel] | None = None,
) -> Callable[[F], F]:
    """For any other answer. `model` is that of a 200 in place of a 202, where the route does not document it itself."""

    def mark(endpoint: F) -> F:
        vars(endpoint)["waiting"] = Waiting(jobs=jobs, build=build, model=model)
        return endpoint

    return mark


def patient(endpoint: Callable[..., Any], answer: Handler) -> Handler:
    """The handler of a route, which waits if the endpoint can and the request asks for it."""
    waiting: Waiting | None = getattr(endpoint, "waiting", None)
    if waiting is None:
        return answer

    async def answer_when_ended(request: Request) -> Response:
        response = await answer(request)
        seconds = preferred_wait(request.headers.getlist("prefer"))
        if seconds is None or response.status_code >= 300:
            return response
        first = await run_in_threadpool(json.loads, bytes(response.body))
        if job_ids := waiting.jobs(first):
            await _unless_gone(request, [request.app.state.watcher.wait(job_id, seconds) for job_id in job_ids])
            response = await run_in_threadpool(_filled, request.app.state.services, waiting, response, first, job_ids)
        response.headers["Preference-Applied"] = f"wait={seconds}"
        return response

    return answer_when_ended


_ITEM = re.compile(r"""(?: [^,"] | "(?:[^"\\]|\\.)*" )+""", re.VERBOSE)
_WAIT = re.compile(r"""\s* wait \s*=\s* ("?) ([0-9]+) \1 \s* (?:;.*)?""", re.VERBOSE | re.IGNORECASE | re.DOTALL)


def preferred_wait(headers: list[str]) -> int | None:
    """Seconds, cut to `MAX_WAIT_SECONDS`. Of several only the first counts; what is malformed is ignored, as the RFC
    has it."""
    given = ",".join(headers)
    for item in _ITEM.findall(given) if len(given) <= MAX_HEADER else ():
        if re.split(r"[=;\s]", item.strip(), maxsplit=1)[0].lower() == "wait":
            found = _WAIT.fullmatch(item)
            digits = found[2].lstrip("0") if found else ""
            seconds = int(digits or 0) if len(digits) <= 3 else MAX_WAIT_SECONDS
            return min(seconds, MAX_WAIT_SECONDS) if found else None
    return None


async def _unless_gone(request: Request, waits: list[Awaitable[None]]) -> None:
    """Nobody waits any longer for a client that has closed its connection."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass  # of a body that nobody has read

    ended = asyncio.ensure_future(asyncio.gather(*waits))
    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait((ended, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            raise ClientDisconnect
    finally:
        ended.cancel()
        leaving.cancel()
        await asyncio.gather(ended, leaving, return_exceptions=True)


def _filled(services: Services, waiting: Waiting, response: Response, first: First, job_ids: list[str]) -> Response:
    """The answer built again; 200 in place of a 202 where the jobs have ended. What was asked for is committed: if it
    can't be read back now, the first answer stands, for a problem would say that nothing was done."""
    try:
        with services.database.read() as session:
            left = select(exists().where(Job.id.in_(job_ids), Job.status.not_in(ENDED)))
            is_ended = not session.execute(left).scalar_one()
            answer = waiting.build(services, session, first)
    except Exception:
        logger.exception("an answer could not be read again after its job", extra={"job_ids": job_ids})
        return response
    if not isinstance(answer, Response):
        status = 200 if response.status_code == 202 and is_ended else response.status_code
        answer = Response(answer.model_dump_json(by_alias=True), status, media_type="application/json")
    kept = [(name, value) for name, value in response.headers.raw if name not in (b"content-length", b"content-type")]
    answer.headers.raw.extend(kept)
    return answer


_APPLIED = {
    "Preference-Applied": {
        "description": "`wait=N`, the seconds that this answer was held back for at most, if `Prefer` said so.",
        "schema": {"type": "string"},
    }
}
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": f"`wait=SECONDS` (RFC 7240): answer when the job has ended, with what came of it, or as it stands "
    f"after so many seconds; at most {MAX_WAIT_SECONDS}, more is cut to that.",
    "schema": {"type": "string"},
}
_ENDED_ANSWER = "With `Prefer: wait`: the job has ended, and this is what came of it; `job` says if and why it failed."


def document_waiting(endpoint: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """A route's options with the header and the further answer in them; those of other routes as they are."""
    waiting: Waiting | None = getattr(endpoint, "waiting", None)
    if waiting is None:
        return options
    responses = dict(options.get("responses") or {})
    if waiting.model is not None and options.get("status_code") == 202:
        responses[200] = {"model": waiting.model, "description": _ENDED_ANSWER}
    for status in {options.get("status_code") or 200, *(code for code in responses if int(code) < 300)}:
        responses[status] = {**responses.get(status, {}), "headers": _APPLIED}
    extra = {**(options.get("openapi_extra") or {}), "parameters": [_PREFER]}
    return {**options, "responses": responses, "openapi_extra": extra}
