"""Ensembles by their ids."""

from sqlalchemy.orm import Session

from app.db.tables import Ensemble, EnsembleResult
from app.errors import Conflict, NotFound


def finished_ensemble(session: Session, project_id: str, ensemble_id: str) -> Ensemble:
    ensemble = session.get(Ensemble, ensemble_id)
    if ensemble is None or ensemble.project_id != project_id:
        raise NotFound(f"this project has no ensemble {ensemble_id!r}")
    if session.get(EnsembleResult, ensemble_id) is None:
        raise Conflict(f"ensemble version {ensemble.version} is not trained; look at its job {ensemble.job_id}")
    return ensemble
