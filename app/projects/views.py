"""Projects as the API shows them."""

from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Project
from app.projects.schemas import ProjectOut


def project_view(session: Session, project: Project) -> ProjectOut:
    current = projects.current_ensemble_id(session, project)
    return ProjectOut.of(project, current_ensemble_id=current, is_pinned=project.pinned_ensemble_id is not None)
