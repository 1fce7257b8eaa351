"""Pools, their files and their items."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from app.db.tables import Job, Pool, Project
from app.pools.create import create_pool
from app.pools.draw_map import draw_map
from app.pools.file_schemas import FILE_BODY
from app.pools.find_items import Wanted, find_items
from app.pools.project_rows import MAX_SAMPLE
from app.pools.receive_file import queue_ingest, receive_file, refuse_second_file
from app.pools.schemas import IngestOut, ItemOut, MapOut, PoolIn, PoolOut
from app.pools.views import ingest_view, pool_view
from app.storage.readers import Columns
from app.web.bodies.receive import Received
from app.web.dependencies import CanRead, CanWrite, Context, EdgeRoute
from app.web.paging import Cursor, Limit, Page, Paged, decode_cursor, page_by_id
from app.web.problems import problems
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["pools"], route_class=EdgeRoute)
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PoolIn"}}},
    }
}


@router.post(
    "/projects/{project_id}/pools",
    status_code=201,
    openapi_extra=_BODY,
    operation_id="create_pool",
    summary="Create a pool",
)
async def post_pool(project_id: str, context: CanWrite[Project], request: Received, response: Response) -> PoolOut:
    """With `rows` the pool is ready at once: good for up to some 10,000 rows. For more, send only the name here and
    then the file with `PUT /v1/pools/{id}/data`: npy is ten times faster to send than JSON."""
    wanted = await request.parse_as(PoolIn)
    view = await run_in_threadpool(_create, context, wanted)
    response.headers["Location"] = f"/v1/pools/{view.id}"
    return view


def _create(context: Context[Project], wanted: PoolIn) -> PoolOut:
    caller = context.caller
    pool = create_pool(
        context.services,
        context.session,
        context.resource,
        wanted,
        annotator=caller.name,
        key_id=caller.key_id or None,
    )
    return pool_view(context.session, pool)


@router.get("/projects/{project_id}/pools", summary="List pools")
def list_pools(project_id: str, context: CanRead[Project], paging: Paged) -> Page[PoolOut]:
    query = select(Pool).where(Pool.project_id == project_id)
    return page_by_id(context.session, query, paging, lambda row: pool_view(context.session, row))


Column = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]+$")]


@router.put(
    "/pools/{pool_id}/data",
    status_code=202,
    openapi_extra=FILE_BODY,
    operation_id="upload_pool_data",
    summary="Send a pool's rows as a file",
)
@waits(ingest_view, job=Job, pool=Pool)
async def put_data(
    pool_id: str,
    context: CanWrite[Pool],
    request: Request,
    response: Response,
    key: Column = None,
    label: Column = None,
    payload: Column = None,
    ignore: Annotated[
        list[Annotated[str, Query(max_length=200, pattern=r"^[^\x00]+$")]] | None,
        Query(max_length=1000, description="Columns that are not to be used, whatever they are called or hold."),
    ] = None,
) -> IngestOut:
    """The body is the file itself, its format given by Content-Type: npy `[N, width]`, Parquet, Arrow, CSV with a
    header, or NDJSON. Features are the list column `x`, or all other numeric columns in order. `key`, `label` and
    `payload` name the columns of that meaning (by default those words, if there are such columns), and `ignore`, once a
    column, those that are not to be used. The first rows are
    checked before the answer; the rest by the job, and the pool is `ready` when it has succeeded. `notes` in the job's
    `result` name the columns that were not used. Features are kept as float32: a column whose values would no longer
    differ, such as timestamps of some minutes, is a mistake; subtract its mean. Nothing of a file with a mistake is
    kept."""
    project = await run_in_threadpool(_project_for_file, context)
    upload = await receive_file(
        context.services,
        project,
        context.resource,
        request.stream(),
        content_type=request.headers.get("content-type"),
        columns=Columns(key=key, label=label, payload=payload, ignored=tuple(ignore or ())),
    )
    answer = await run_in_threadpool(_queue, context, upload)
    response.headers["Location"] = f"/v1/jobs/{answer.job.id}"
    return answer


def _project_for_file(context: Context[Pool]) -> Project:
    with context.services.database.read() as session:
        refuse_second_file(session, context.resource)
        return session.get_one(Project, context.resource.project_id)


def _queue(context: Context[Pool], upload: Any) -> IngestOut:
    caller = context.caller
    job = queue_ingest(
        context.services,
        context.session,
        context.resource,
        upload,
        annotator=caller.name,
        key_id=caller.key_id or None,
    )
    pool = context.session.get_one(Pool, context.resource.id)
    return ingest_view(context.services, context.session, job=job, pool=pool)


@router.get("/pools/{pool_id}", summary="Get a pool")
def get_pool(pool_id: str, context: CanRead[Pool]) -> PoolOut:
    return pool_view(context.session, context.resource)


@router.get(
    "/pools/{pool_id}/items", responses=problems(409), operation_id="list_pool_items", summary="List a pool's rows"
)
def list_items(
    pool_id: str,
    context: CanRead[Pool],
    wanted: Annotated[Wanted, Depends()],
    cursor: Cursor = None,
    limit: Limit = 100,
    features: Annotated[
        bool, Query(description="Include the numbers of each row as `x`; a page of wide rows is shorter then.")
    ] = False,
) -> Page[ItemOut]:
    """In the order of rows; or those that `key`, `rows` or `status` names."""
    after = decode_cursor(cursor, int)
    return find_items(
        context.services,
        context.session,
        context.resource,
        wanted,
        after=after[0] if after else None,
        limit=limit,
        features=features,
    )


@router.get("/pools/{pool_id}/map", responses=problems(409), operation_id="draw_pool", summary="Get a map of a pool")
def get_map(
    pool_id: str,
    context: CanRead[Pool],
    n: Annotated[int, Query(ge=1, le=MAX_SAMPLE, description="Rows shown, a random sample of the pool.")] = 2000,
) -> MapOut:
    """Where rows lie beside each other, and what is said of them: two principal components of up to 5,000 rows. The
    first answer takes a second or two, the following ones are quick; labels are those of now."""
    return draw_map(context.services, context.session, context.resource, n=n)
