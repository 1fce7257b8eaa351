"""Examples."""

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app.db.tables import Job, Project
from app.errors import Forbidden
from app.examples.make import make_digits
from app.examples.schemas import ExampleIn, ExampleOut
from app.projects.views import project_view
from app.services import Services
from app.web.dependencies import CanWrite, EdgeRoute
from app.web.job_view import job_view
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["projects"], route_class=EdgeRoute)


def example_view(services: Services, session: Session, *, job: Job, project: Project) -> ExampleOut:
    return ExampleOut(job=job_view(session, job), project=project_view(session, project))


@router.post("/examples", status_code=202, operation_id="make_example", summary="Make an example project")
@waits(example_view, job=Job, project=Project)
def post_example(context: CanWrite[None], wanted: ExampleIn) -> ExampleOut:
    """A project to try things on: handwritten digits, of which 20 are labelled, at least one of each class. The job
    trains its first ensemble; then a round of 20 opens by itself, and so does another whenever one is complete and the
    training that follows has succeeded. It is a project like any other: a schedule opens the rounds, DELETE removes
    all of it."""
    if context.caller.project_ids is not None:
        raise Forbidden("a key that is bound to projects can't create one; use a key without projects")
    made = make_digits(context.services, context.session, key_id=context.caller.key_id or None)
    return example_view(context.services, context.session, job=made.job, project=made.project)
