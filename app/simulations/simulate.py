"""Run a whole experiment on simulated participants, before anyone is recruited: asked for here, run by a worker."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from app.db.tables import Experiment, Simulation, SimulationResult
from app.db.types import new_id
from app.errors import Conflict, Malformed
from app.experiments.refusals import refusals
from app.queue import queue
from app.queue.context import JobContext, JobFailed, still_there, storable
from app.services import Services, job_services
from app.simulations.schemas import PolicyIn, SimulationIn
from bensemble_core import design
from bensemble_core.design import Policy, simulate
from bensemble_core.design.simulate import check_truth
from bensemble_core.design.spec.spaces import Variable
from bensemble_core.errors import BensembleError

N_DRAWS = 20  # truths, where none are given


def check_simulation(services: Services, row: Experiment, wanted: SimulationIn) -> None:
    experiment = services.compute.experiment(row.spec_hash, None, lambda: row.spec)
    for i, truth in enumerate(wanted.truths or ()):
        with refusals(f"/truths/{i}"):
            check_truth(experiment, truth)
    space = experiment.spec.model.space
    for i, policy in enumerate(_policies(wanted)):
        with refusals(f"/policies/{i}/designs"):
            for each in policy.designs:
                space.encode(each)
        if policy.name == "staircase" and (len(space.names) > 1 or space.variables[0].labels):
            raise Malformed(
                f"a staircase climbs one ordered design variable; this experiment has {', '.join(space.names)}",
                pointer=f"/policies/{i}",
            )
        if policy.name == "staircase" and policy.start is not None:
            _check_start(space.variables[0], policy.start, pointer=f"/policies/{i}/start")
    n_trials = len(wanted.truths or range(wanted.n_draws or N_DRAWS)) * wanted.trials * len(wanted.policies)
    cap = services.settings.max_simulated_trials
    if n_trials > cap:
        raise Malformed(
            f"truths × trials × policies is {n_trials:,}, over the cap of {cap:,} (BENSEMBLE_MAX_SIMULATED_TRIALS); "
            "simulate fewer of them, or several times with different seeds",
            pointer="/trials",
        )


def _check_start(variable: Variable, start: float, *, pointer: str) -> None:
    low, high = min(variable.values or (variable.low,)), max(variable.values or (variable.high,))
    if not low <= start <= high:
        raise Malformed(
            f"a staircase starts within the designs: expected {variable.name} from {low:g} to {high:g}, got {start:g}",
            pointer=pointer,
        )
    with refusals(pointer):
        variable.encode(start)


def request_simulation(session: Session, experiment_id: str, wanted: SimulationIn) -> Simulation:
    row = session.get_one(Experiment, experiment_id)
    simulation_id = new_id()
    payload = {"simulation_id": simulation_id}
    job = queue.enqueue(session, kind="simulate", queue="simulate", payload=payload).job
    simulation = Simulation(
        id=simulation_id,
        experiment_id=experiment_id,
        request=wanted.model_dump(mode="json"),
        spec_hash=row.spec_hash,
        job_id=job.id,
    )
    session.add(simulation)
    session.flush()
    return simulation


def _policies(wanted: SimulationIn) -> list[PolicyIn]:
    return [PolicyIn(name=each) if isinstance(each, str) else each for each in wanted.policies]


def simulate_experiment(job: JobContext) -> None:
    before = dict(job.checkpoint or {"seconds": 0.0, "standing": None})  # of the attempts that were cut short
    started = time.monotonic() - before["seconds"]
    with job.database.read() as session:
        simulation = still_there(session, Simulation, job.payload["simulation_id"], "the simulation was deleted")
        row = still_there(session, Experiment, simulation.experiment_id, "the experiment was deleted")
    if row.spec_hash != simulation.spec_hash:
        raise JobFailed(Conflict.title, "the spec was changed meanwhile; ask again")
    wanted = SimulationIn.model_validate(simulation.request)
    experiment = job_services(job).compute.experiment(row.spec_hash, None, lambda: row.spec)

    def keep(standing: Callable[[], dict[str, Any]]) -> None:
        if job.is_checkpoint_due():
            job.save_checkpoint({"seconds": time.monotonic() - started, "standing": standing()})

    try:
        curves = simulate(
            experiment,
            rounds=wanted.trials,
            policies=[_policy(experiment, each) for each in _policies(wanted)],
            truths=wanted.truths if wanted.truths is not None else wanted.n_draws or N_DRAWS,
            seed=wanted.seed,
            report=job.progress,
            keep=keep,
            resume=before["standing"],
        )
    except (BensembleError, OverflowError) as error:
        raise JobFailed(Malformed.title, str(error), status=422) from error
    stored: list[dict[str, Any]] = storable([asdict(curve) for curve in curves])
    seconds = time.monotonic() - started
    with job.finish({"simulation_id": simulation.id}) as session:
        session.add(SimulationResult(simulation_id=simulation.id, curves=stored, seconds=seconds))


def _policy(experiment: design.Experiment, wanted: PolicyIn) -> Policy:
    designs = tuple(wanted.designs)
    if wanted.name == "fixed" and not designs:
        designs = (experiment.propose()[0].design,)
    variable = experiment.spec.model.space.names[0] if wanted.name == "staircase" else ""
    return Policy(designs=designs, variable=variable, **wanted.model_dump(exclude={"designs"}))
