"""Simulations as the API shows them."""

from sqlalchemy.orm import Session

from app.db.tables import Simulation, SimulationResult
from app.services import Services
from app.simulations.schemas import SimulationJobOut, SimulationOut
from app.web.job_view import job_state, view_of_job


def simulation_view(session: Session, row: Simulation) -> SimulationOut:
    result = session.get(SimulationResult, row.id)
    status, error = job_state(session, row.job_id, result is not None)
    n_trials = row.request.get("trials", row.request.get("rounds"))
    request = {**row.request, "trials": n_trials, "rounds": n_trials}
    return SimulationOut.of(row, result, status=status, error=error, request=request)


def simulation_job_view(services: Services, session: Session, *, simulation: Simulation) -> SimulationJobOut:
    job = view_of_job(session, simulation.job_id)
    return SimulationJobOut(job=job, simulation=simulation_view(session, simulation))
