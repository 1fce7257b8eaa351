"""Rankings."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from sqlalchemy import select

from app.db.tables import Pool, Project, Ranking
from app.db.types import new_id
from app.errors import Conflict
from app.methods.schemas import as_json_or_none
from app.rankings.figures import MAX_SAMPLE
from app.rankings.replay import replay_ranking
from app.rankings.request import request_ranking, store_target
from app.rankings.schemas import RankingIn, RankingJobOut, RankingOut, SampleOut, ScoresOut
from app.rankings.views import ranking_csv, ranking_job_view, ranking_view, sample_view, scores_view
from app.web.dependencies import CanLabel, CanRead, EdgeRoute
from app.web.paging import Page, Paged, page_by_id
from app.web.problems import problems
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["rankings"], route_class=EdgeRoute)


@router.post("/pools/{pool_id}/rankings", status_code=202, operation_id="create_ranking", summary="Rank a pool")
@waits(ranking_job_view, ranking=Ranking)
def post_ranking(pool_id: str, context: CanLabel[Pool], wanted: RankingIn) -> RankingJobOut:
    """Which k rows to label next. `acquisition` scores every row that is neither labelled nor skipped, `selection`
    takes k of them. Name neither, or `"auto"`, and the project's own choice is taken; if it has none, classes are
    ranked by `margin` with `cluster_margin`, numbers by `power` on the members' spread (`predictive_variance`,
    epistemic); the ranking shows what was taken, and its `notes` say why. The same pool, ensemble, labels, options and
    seed give the same order. Before there is an ensemble, `{"selection": {"name": "typiclust"}}`, `kcenter` and
    `{"acquisition": {"name": "random"}}` work, and a request that names neither is answered with typiclust and random
    rows, half and half, for numbers with random rows alone. Scores are kept: in the job's `result`, `n_forward` is how
    many rows had to go through the ensemble to be scored, 0 if all had been before."""
    with context.services.database.read() as session:
        project = session.get_one(Project, context.resource.project_id)
    ranking_id = new_id()
    name = wanted.acquisition.name if wanted.acquisition is not None else None
    target = store_target(context.services, project, ranking_id, name, wanted.target)
    ranking = request_ranking(
        context.session,
        project,
        context.resource,
        context.services.settings,
        acquisition=as_json_or_none(wanted.acquisition),
        selection=as_json_or_none(wanted.selection),
        k=wanted.k,
        seed=wanted.seed,
        ensemble_id=wanted.ensemble_id,
        target=target,
        ranking_id=ranking_id,
    )
    return ranking_job_view(context.services, context.session, ranking=ranking)


@router.post(
    "/rankings/{ranking_id}/replay", status_code=202, operation_id="replay_ranking", summary="Make a ranking again"
)
@waits(ranking_job_view, ranking=Ranking)
def post_replay(ranking_id: str, context: CanLabel[Ranking]) -> RankingJobOut:
    """Runs the stored request once more: the same ensemble (or none, if there was none), options, seed and target,
    and the labels as they stood at its `watermark`. A new ranking with the identical items comes of it, whatever has
    been labelled or trained since; `replay_of` says whose. Answered with 409 if something it needs was deleted: the
    ensemble, the target pool, or another pool whose labelled rows the selection kept away from."""
    ranking = replay_ranking(context.services, context.session, context.resource)
    return ranking_job_view(context.services, context.session, ranking=ranking)


@router.get("/pools/{pool_id}/rankings", summary="List a pool's rankings")
def list_rankings(pool_id: str, context: CanRead[Pool], paging: Paged) -> Page[RankingOut]:
    """Without their items; get one for these."""
    query = select(Ranking).where(Ranking.pool_id == pool_id)
    view = partial(ranking_view, context.services, context.session, with_items=False)
    return page_by_id(context.session, query, paging, view)


@router.get(
    "/rankings/{ranking_id}",
    responses={
        **problems(409),
        200: {
            "content": {"text/csv": {"schema": {"type": "string"}}},
            "description": "The ranking, or its items as CSV: rank, row, key, score, payload, value and measure "
            "(what the value is), with explain=true also explanation, as JSON. A key or payload that a spreadsheet "
            "would run as a formula (`=…`) gets a leading apostrophe; `row` names the row as it is.",
        },
    },
    response_model=RankingOut,
    summary="Get a ranking",
)
def get_ranking(
    ranking_id: str,
    context: CanRead[Ranking],
    format: Literal["json", "csv"] = "json",
    explain: Annotated[bool, Query(description="Say of each item why it was chosen.")] = False,
) -> Any:
    view = ranking_view(context.services, context.session, context.resource, with_items=True, explain=explain)
    if format == "json":
        return view
    if view.items is None:
        raise Conflict(f"this ranking is {view.status}; there are no items to give as CSV")
    return Response(ranking_csv(view, view.items, explain=explain), media_type="text/csv")


@router.get("/rankings/{ranking_id}/scores", responses=problems(409), summary="Get how a ranking's scores spread")
def get_scores(ranking_id: str, context: CanRead[Ranking]) -> ScoresOut:
    """A histogram of the scores of all rows that could be chosen, and where the picks lie in it."""
    return scores_view(context.services, context.session, context.resource)


@router.get("/rankings/{ranking_id}/sample", responses=problems(409), summary="Get some rows of a ranking")
def get_sample(
    ranking_id: str,
    context: CanRead[Ranking],
    n: Annotated[int, Query(ge=1, le=MAX_SAMPLE, description="At most so many rows, a half of them picks.")] = (
        MAX_SAMPLE
    ),
) -> SampleOut:
    """The picks, and beside them a fair sample of the other rows that could be chosen, drawn by the ranking's seed:
    each with its score, and its uncertainty split into noise and disagreement."""
    return sample_view(context.services, context.session, context.resource, n=n)
