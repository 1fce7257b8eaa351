"""Files, before they are sent for a pool."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from app.pools.file_schemas import FILE_BODY, FileOut
from app.pools.inspect import inspect_file
from app.web.bodies.receive import Received
from app.web.dependencies import CanWrite, EdgeRoute

router = APIRouter(prefix="/v1/files", tags=["pools"], route_class=EdgeRoute)
FileName = Annotated[str | None, Query(alias="name", max_length=500, description="The file's name, where it has one.")]
IsPart = Annotated[bool, Query(alias="partial", description="The body is the first part of a longer file.")]


@router.post("/inspect", openapi_extra=FILE_BODY, operation_id="inspect_file", summary="Look into a file")
async def post_file(
    context: CanWrite[None], request: Received, name: FileName = None, is_part: IsPart = False
) -> FileOut:
    """Which columns a file has, what they may mean, and what would be refused: to be asked before a project is made
    for it. The body is the file itself, at most 16 MB, in a format that `PUT /v1/pools/{id}/data` takes; of a longer
    CSV, NDJSON or npy file its first part, with `partial=true`. Nothing of it is kept."""
    content_type = request.headers.get("content-type")
    look = partial(inspect_file, request.content(), content_type=content_type, name=name, is_part=is_part)
    return await context.services.compute.run(look)
