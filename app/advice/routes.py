"""What to do next while labelling."""

from fastapi import APIRouter

from app.advice.advise import advise
from app.advice.schemas import AdviceOut
from app.db.tables import Project
from app.web.dependencies import CanRead, EdgeRoute

router = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=EdgeRoute)


@router.get("/{project_id}/advice", summary="Go on, relabel, train or stop?")
def get_advice(project_id: str, context: CanRead[Project]) -> AdviceOut:
    """One sentence and the facts behind it: what 100 more labels would bring by the learning curve, whether
    predictions still change from version to version, how many labels were saved against labelling random rows, which
    labels the ensemble contradicts, and on which rows annotators disagree. It is made of the newest training and the
    labels as they stand; nothing is trained for it."""
    return advise(context.services, context.session, context.resource)
