"""Simulations as the API shows them."""

from sqlalchemy.orm import Session

from app.db.tables import Job, Simulation, SimulationResult
from app.services import Services
from app.simulations.schemas import SimulationJobOut, SimulationOut
from app.web.job_view import job_state, job_view


def simulation_view(session: Session, row: Simulation) -> SimulationOut:
    result = session.get(SimulationResult, row.id)
    status, error = job_state(session, row.job_id, result is not None)
    return SimulationOut(
        id=row.id,
        experiment_id=row.experiment_id,
        status=status,
        job_id=row.job_id,
        request=row.request,
        curves=result.curves if result is not None else None,
        seconds=result.seconds if result is not None else None,
        error=error,
        created_at=row.created_at,
    )


def simulation_job_view(services: Services, session: Session, *, job: Job, simulation: Simulation) -> SimulationJobOut:
    return SimulationJobOut(job=job_view(session, job), simulation=simulation_view(session, simulation))
