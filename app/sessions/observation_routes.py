"""Observations, and what follows from them: the posterior, the EIG of designs, the stopping rules."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import TypeAdapter, ValidationError

from app.db.tables import DesignSession
from app.errors import Malformed
from app.experiments.schemas import Design
from app.services import Services
from app.sessions.read_posterior import Form, read_eig, read_posterior, read_stop
from app.sessions.read_trials import read_columns, read_trials
from app.sessions.record import record_observation
from app.sessions.schemas import EigOut, ObservationIn, ObservationOut, PosteriorOut, StandingOut, TrialOut
from app.sessions.undo import undo_observation
from app.sessions.views import followed_view, observation_view, trial_view, trials_csv
from app.web.dependencies import CanLabel, CanRead, EdgeRoute, computes
from app.web.paging import Page, Paged, encode_cursor
from app.web.problems import problems
from app.web.waiting import First, waits_for

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["sessions"], route_class=EdgeRoute)
_DESIGNS = TypeAdapter(list[Design])
MAX_ASKED = 1000


def _next_job(first: First) -> list[str]:
    return [first["next_job"]["id"]] if first["next_job"] else []


@router.post("/observations", status_code=201, operation_id="record_observation", summary="Record an outcome")
@waits_for(_next_job, followed_view)
@computes
def post_observation(
    session_id: str,
    context: CanLabel[DesignSession],
    given: ObservationIn,
    next: Annotated[bool, Query(description="Propose the next design in the same answer.")] = False,
) -> ObservationOut:
    """What was run and what came out. The design may differ from the proposed one, and a proposal may be stale or
    abandoned: what was run is what counts. Without `proposal_id` the outcome answers the oldest pending proposal of
    that design, if there is one. The same outcome of a proposal can be sent again; another one is refused."""
    cap = context.services.settings.max_design_work
    recorded = record_observation(context.services, context.session, session_id, given, proposes=next, cap=cap)
    return observation_view(context.session, recorded)


@router.delete(
    "/observations/{n}",
    status_code=204,
    responses=problems(409),
    operation_id="undo_observation",
    summary="Take an outcome back",
)
def remove_observation(
    session_id: str,
    n: Annotated[int, Path(ge=1, le=2**31, description="The observation's number.")],
    context: CanLabel[DesignSession],
) -> None:
    """The posterior is then that of the others: their order does not matter. A session's token, and a key with scope
    `label`, take back the last one only; a key with scope `write` any."""
    undo_observation(context.session, session_id, n, only_last=not context.caller.may("write"))


@router.get("/posterior", responses=problems(409), summary="Get the posterior")
@computes
def get_posterior(
    session_id: str,
    context: CanRead[DesignSession],
    form: Annotated[Form, Query(description="What to send beside the summary.")] = "summary",
    n: Annotated[int, Query(ge=2, le=10_000, description="How many samples, or points of a marginal.")] = 200,
    seed: Annotated[int, Query(ge=0, lt=2**63, description="Of the samples.")] = 0,
    mass: Annotated[float, Query(gt=0, lt=1, description="Inside the shortest interval (HDI) of a marginal.")] = 0.95,
    after: Annotated[
        int | None,
        Query(ge=0, le=10_000, description="Of the first so many trials only; 0: before any. Default: of all."),
    ] = None,
) -> PosteriorOut:
    """Means, standard deviations, quantiles and covariance; as points with weights, draws or marginal densities too."""
    return read_posterior(context.services, session_id, form, n=n, seed=seed, mass=mass, after=after)


@router.get("/eig", responses=problems(409), summary="Get the information that designs promise")
@computes
def get_eig(
    session_id: str,
    context: CanRead[DesignSession],
    designs: Annotated[
        str | None, Query(max_length=4000, description='A JSON list, as `[{"xi": 6}]`. Default: every design.')
    ] = None,
    points: Annotated[
        int | None,
        Query(
            ge=2,
            le=400,
            description="At most so many designs, spread evenly, in place of `designs`: of a list evenly many, of one "
            "variable values from end to end, of two a grid, of more than two a Latin hypercube of 20.",
        ),
    ] = None,
) -> EigOut:
    """The expected information gain of each design, in nats, each on its own: what is pending is left out. Of every
    design, and of `points`, the answer is kept until the session's observations change."""
    if designs is not None and points is not None:
        raise Malformed("name designs, or ask for a number of points, not both", pointer="/query/points")
    return read_eig(context.services, session_id, None if designs is None else _asked(designs), points)


def _asked(text: str) -> list[dict[str, Any]]:
    try:
        found = _DESIGNS.validate_json(text)
    except ValidationError as error:
        raise Malformed(
            'designs is a JSON list of objects, as [{"xi": 6}, {"xi": 7}]', pointer="/query/designs"
        ) from error
    if not 1 <= len(found) <= MAX_ASKED:
        raise Malformed(f"expected 1 to {MAX_ASKED:,} designs, got {len(found):,}", pointer="/query/designs")
    return list(found)


@router.get("/stop", responses=problems(409), summary="Ask whether to stop")
@computes
def get_stop(session_id: str, context: CanRead[DesignSession]) -> StandingOut:
    """What the spec's stopping rules say, and why."""
    return read_stop(context.services, session_id)


_LISTED: dict[str, Any] = {
    "responses": {
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "A page, or all of them as CSV."},
    },
    "response_model": Page[TrialOut],
    "summary": "List what was observed",
}


@router.get("/trials", **_LISTED)
@router.get("/rounds", **_LISTED, operation_id="list_trials_by_their_old_name", deprecated=True)
@computes
def list_trials(
    session_id: str, context: CanRead[DesignSession], paging: Paged, format: Literal["json", "csv"] = "json"
) -> Any:
    """In order, each with what it taught given those before it. An outcome taken back is not among them, and what
    later ones taught is computed anew when they are read; what took too long for that has nulls and `is_stale`. CSV has
    all of them, and no pages."""
    if format == "csv":
        columns = read_columns(context.services, session_id)
        every = _trials(context.services, session_id, is_descending=paging.is_descending)
        return Response(trials_csv(every, columns), media_type="text/csv")
    after, limit = paging.after(int), paging.limit
    found = _trials(
        context.services,
        session_id,
        after=after[0] if after is not None else None,
        limit=limit + 1,
        is_descending=paging.is_descending,
    )
    following = encode_cursor(found[limit - 1].n) if len(found) > limit else None
    return Page[TrialOut](items=found[:limit], next_cursor=following)


def _trials(services: Services, session_id: str, **page: Any) -> list[TrialOut]:
    return [trial_view(row, proposal) for row, proposal in read_trials(services, session_id, **page)]
