"""Simulations of experiments."""

from fastapi import APIRouter
from sqlalchemy import select

from app.db.tables import Experiment, Simulation
from app.simulations.schemas import SimulationIn, SimulationJobOut, SimulationOut
from app.simulations.simulate import check_simulation, request_simulation
from app.simulations.views import simulation_job_view, simulation_view
from app.web.dependencies import CanRead, CanWrite, EdgeRoute, computes
from app.web.paging import Page, Paged, page_by_id
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["experiments"], route_class=EdgeRoute)


@router.post(
    "/experiments/{experiment_id}/simulations",
    status_code=202,
    operation_id="create_simulation",
    summary="Simulate an experiment",
)
@waits(simulation_job_view, simulation=Simulation)
@computes
def post_simulation(experiment_id: str, context: CanWrite[Experiment], wanted: SimulationIn) -> SimulationJobOut:
    """How much will be known after how many trials, and what adaptive designs gain over random, fixed or staircase
    ones: truths × trials × policies on simulated participants. All policies get the same truths and the same luck."""
    check_simulation(context.services, context.resource, wanted)
    simulation = request_simulation(context.session, experiment_id, wanted)
    return simulation_job_view(context.services, context.session, simulation=simulation)


@router.get("/experiments/{experiment_id}/simulations", summary="List an experiment's simulations")
def list_simulations(experiment_id: str, context: CanRead[Experiment], paging: Paged) -> Page[SimulationOut]:
    query = select(Simulation).where(Simulation.experiment_id == experiment_id)
    return page_by_id(context.session, query, paging, lambda row: simulation_view(context.session, row))


@router.get("/simulations/{simulation_id}", summary="Get a simulation")
def get_simulation(simulation_id: str, context: CanRead[Simulation]) -> SimulationOut:
    """Its curves, once its job has succeeded."""
    return simulation_view(context.session, context.resource)
