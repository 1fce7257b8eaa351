"""What there is to choose from."""

from typing import Any

from fastapi import APIRouter

from app.methods.schemas import method_schemas
from app.web.dependencies import CanRead, EdgeRoute

router = APIRouter(prefix="/v1", tags=["methods"], route_class=EdgeRoute)


@router.get("/methods", operation_id="list_methods", summary="List models, posteriors, acquisitions and selections")
def get_methods(context: CanRead[None]) -> dict[str, dict[str, Any]]:
    """Each with the JSON schema of its options, ready to drive a form."""
    return method_schemas()
