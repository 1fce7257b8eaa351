"""Backtests."""

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.backtests.request import request_backtest
from app.backtests.schemas import BacktestIn, BacktestJobOut, BacktestOut
from app.backtests.views import backtest_job_view, backtest_view
from app.db.tables import Backtest, Project
from app.web.dependencies import CanRead, CanWrite, EdgeRoute
from app.web.paging import Page, Paged, page_by_id
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["backtests"], route_class=EdgeRoute)


@router.post(
    "/projects/{project_id}/backtests", status_code=202, operation_id="create_backtest", summary="Backtest strategies"
)
@waits(backtest_job_view, backtest=Backtest)
def post_backtest(project_id: str, context: CanWrite[Project], wanted: BacktestIn) -> BacktestJobOut:
    """Would active learning have saved labels on this data? A job hides the labels of a pool, asks for k of them a
    round as each strategy chooses, trains and measures, with every seed anew; random rows are played beside. The answer
    has the curves, how many labels each strategy saved, with intervals, and in `recommendation.body` what to send to
    `PATCH /v1/projects/{id}`. Answered with 409 where labels are too few: at least 3 k + 20, and no class seen once
    only. The labels are those that are there now. The job goes on where it was if its worker dies; cancel it with
    `POST /v1/jobs/{id}/cancel`."""
    backtest = request_backtest(context.session, context.resource, wanted, context.services.settings)
    return backtest_job_view(context.services, context.session, backtest=backtest)


@router.get("/projects/{project_id}/backtests", summary="List a project's backtests")
def list_backtests(project_id: str, context: CanRead[Project], paging: Paged) -> Page[BacktestOut]:
    """Without their runs; get one for these."""
    query = select(Backtest).where(Backtest.project_id == project_id)
    session: Session = context.session
    return page_by_id(session, query, paging, lambda row: backtest_view(session, row, with_runs=False))


@router.get("/backtests/{backtest_id}", summary="Get a backtest")
def get_backtest(backtest_id: str, context: CanRead[Backtest]) -> BacktestOut:
    """Curves, labels saved and the recommendation, once its job has succeeded."""
    return backtest_view(context.session, context.resource)
