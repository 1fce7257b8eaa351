"""What a session stands at: the posterior in several forms, the EIG of designs, the stopping rules."""

from typing import Any, Literal

from app.errors import Conflict, Malformed
from app.experiments.refusals import refusals
from app.services import Services
from app.sessions import state as sessions
from app.sessions.learn_outcome import PATIENCE, stop_state
from app.sessions.read_experiment import read_session
from app.sessions.schemas import EigOut, EstimateOut, GridOut, MarginalOut, PosteriorOut, StandingOut
from app.sessions.state import State
from bensemble_core import design
from bensemble_core.design.belief.belief import PointBelief

Form = Literal["summary", "grid", "samples", "marginals"]
MAX_POINTS = 200_000
LONGEST = 60  # times as long as a proposal may take: who asks for a posterior alone has time, but not for ever


def _read(services: Services, session_id: str) -> tuple[State, design.Experiment]:
    return sessions.settle(None, lambda: read_session(services, session_id))


def read_posterior(
    services: Services, session_id: str, form: Form, *, n: int, seed: int, mass: float, after: int | None
) -> PosteriorOut:
    try:
        with design.limited(LONGEST * services.settings.design_seconds):
            return _posterior(services, session_id, form, n=n, seed=seed, mass=mass, after=after)
    except design.TooMuchWork as error:
        raise Conflict(f"the posterior of this session: {error}") from error


def _posterior(
    services: Services, session_id: str, form: Form, *, n: int, seed: int, mass: float, after: int | None
) -> PosteriorOut:
    state, experiment = _read(services, session_id)
    observed = state.observed[:after]
    with refusals():
        belief = experiment.posterior([*state.prior, *observed])
        start = experiment.posterior(state.prior).log_evidence
        covariance = belief.covariance().tolist()
        rows = zip(belief.names, covariance, strict=True)
        extra: dict[str, Any] = {}
        if form == "grid":
            extra["grid"] = _grid(belief)
        elif form == "samples":
            extra["samples"] = {name: column.tolist() for name, column in belief.samples(n, seed).items()}
        elif form == "marginals":
            extra["marginals"] = _marginals(belief, n, mass)
        return PosteriorOut(
            session_id=session_id,
            n=len(observed),
            revision=state.revision,
            method=belief.method,
            posterior=design.summary(belief),
            covariance={name: dict(zip(belief.names, row, strict=True)) for name, row in rows},
            log_evidence=belief.log_evidence - start,
            entropy=belief.entropy,
            error=belief.error,
            ess=belief.ess,
            edge_mass=belief.edge_mass,
            **extra,
        )


def _grid(belief: design.Belief) -> GridOut:
    if not isinstance(belief, PointBelief):
        raise Malformed(
            "this posterior is a normal in closed form and has no points: its means and covariance are in the summary; "
            "or ask for form=samples",
            pointer="/query/form",
        )
    if belief.points.n > MAX_POINTS:
        raise Malformed(
            f"this posterior has {belief.points.n:,} points; at most {MAX_POINTS:,} are sent. Ask for form=samples",
            pointer="/query/form",
        )
    values = {name: belief.points.values[name].tolist() for name in belief.names}
    return GridOut(values=values, weights=belief.weights.tolist())


def _marginals(belief: design.Belief, n: int, mass: float) -> dict[str, MarginalOut]:
    intervals = belief.hdi(mass)
    found = {}
    for name in belief.names:
        values, densities = belief.marginal(name, n)
        found[name] = MarginalOut(values=values, densities=densities, hdi=intervals[name])
    return found


def read_eig(services: Services, session_id: str, asked: list[dict[str, Any]] | None, points: int | None) -> EigOut:
    """Of the designs asked for, of so many spread over the space, or of every one. The last two are kept for as long
    as the session has this revision: a page asks for the same curve again and again."""
    state, experiment = _read(services, session_id)
    if asked is not None:
        items = _estimates(services, state, experiment, asked, pointer="/query/designs")
    else:
        key = (session_id, state.revision, state.spec_hash, state.seed, points)
        items = services.compute.curves.get_or_make(key, lambda: _curve(services, state, experiment, points), len)
    return EigOut(session_id=session_id, n=len(state.observed), revision=state.revision, items=items)


def _curve(services: Services, state: State, experiment: design.Experiment, points: int | None) -> list[EstimateOut]:
    with refusals("/query/points"):
        listed = experiment.designs() if points is None else experiment.spread(points)
    if listed is None:
        raise Malformed(
            'these designs are not a list but a space; ask for ?points=61 of them, or name some: ?designs=[{"x": 0.5}]',
            pointer="/query/designs",
        )
    pointer = "/query/designs" if points is None else "/query/points"
    return _estimates(services, state, experiment, listed, pointer=pointer)


def _estimates(
    services: Services, state: State, experiment: design.Experiment, listed: list[dict[str, Any]], *, pointer: str
) -> list[EstimateOut]:
    cap = services.settings.max_design_work
    fewer = "name" if pointer == "/query/designs" else "ask for"
    with refusals(pointer):
        work = experiment.work(len(state.observations))
        evaluations = work.evaluations / work.n_designs * len(listed)
        if evaluations > cap:
            raise Malformed(
                f"{len(listed):,} designs take about {evaluations:,.0f} evaluations, over the cap of {cap:,.0f}; "
                f"{fewer} at most {max(1, int(cap / evaluations * len(listed))):,} of them",
                pointer=pointer,
            )
        seconds = PATIENCE * services.settings.design_seconds
        try:
            with design.limited(seconds):
                estimates = experiment.eig(listed, state.observations)
        except design.TooMuchWork as error:
            raise Malformed(
                f"the EIG of {len(listed):,} designs takes more than {seconds:g} s here; {fewer} fewer of them",
                pointer=pointer,
            ) from error
    return [EstimateOut.of(found, design=dict(each)) for each, found in zip(listed, estimates, strict=True)]


def read_stop(services: Services, session_id: str) -> StandingOut:
    state, experiment = _read(services, session_id)
    found = stop_state(services, state, experiment, state.observations, cap=services.settings.max_design_work)
    return StandingOut(session_id=session_id, n=len(state.observed), revision=state.revision, **found)
