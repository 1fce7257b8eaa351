"""What an outcome taught, and what the stopping rules say after it, computed as long as a request may."""

import logging
from dataclasses import asdict
from typing import Any

from app.errors import Problem
from app.experiments.refusals import refusals
from app.queue.context import storable
from app.services import Services
from app.sessions.propose import TOO_EXPENSIVE
from app.sessions.state import Pair, State
from bensemble_core import design

logger = logging.getLogger(__name__)

PATIENCE = 5  # times as long as a proposal may take: an outcome is worth waiting for
NOT_LEARNT = "the outcome is recorded; its posterior takes longer than a request may: GET …/posterior computes it"
FAILED = "the outcome is recorded; what it taught could not be computed: an unforeseen error, in the service's log"
UNKNOWN = dict.fromkeys(("posterior", "entropy_drop", "kl", "log_evidence", "surprise", "guards"))


def learnt(
    services: Services, experiment: design.Experiment, state: State, observations: list[Pair], *, n: int
) -> dict[str, Any]:
    """What the last outcome taught. One that cannot have come out is refused; where it takes too long to tell, all is
    null but the warning that says so."""
    too_long = {"n": n, **UNKNOWN, "warnings": [NOT_LEARNT]}
    what = ("posterior", state.spec_hash)
    if services.compute.is_too_expensive(what, len(observations)):
        return too_long
    try:
        with refusals("/outcome"), design.limited(PATIENCE * services.settings.design_seconds):
            belief = experiment.posterior(observations)
            information = experiment.information(observations)
            guards = experiment.guards(observations)
            start = experiment.posterior(state.prior).log_evidence
            found = {
                "n": n,
                "posterior": design.summary(belief),
                "entropy_drop": information.entropy_drop,
                "kl": information.kl,
                "log_evidence": belief.log_evidence - start,
                "surprise": information.surprise,
                "guards": asdict(guards),
                "warnings": list(guards.warnings),
            }
            return dict(storable(found))
    except design.TooMuchWork:
        services.compute.remember_too_expensive(what, len(observations))
        return too_long
    except Problem:
        raise
    except Exception:  # whatever it is, it must not cost the outcome
        logger.exception("what an outcome taught could not be computed", extra={"session_id": state.id})
        return {"n": n, **UNKNOWN, "warnings": [FAILED]}


def stop_state(
    services: Services, state: State, experiment: design.Experiment, observations: list[Pair], *, cap: float
) -> dict[str, Any]:
    """What the stopping rules say; those that look at the best design only where that is cheap to find."""
    work = experiment.work(len(observations)).evaluations
    what = ("proposal", state.spec_hash)
    is_too_expensive = experiment.looks_ahead and (work > cap or services.compute.is_too_expensive(what, work))
    if not is_too_expensive:
        try:
            with refusals(), design.limited(services.settings.design_seconds):
                return asdict(experiment.stop(observations, n_prior=len(state.prior)))
        except design.TooMuchWork:
            if experiment.looks_ahead:
                services.compute.remember_too_expensive(what, work)
    return plain_stop(services, state, experiment, observations, note=TOO_EXPENSIVE)


def plain_stop(
    services: Services, state: State, experiment: design.Experiment, observations: list[Pair], *, note: str
) -> dict[str, Any]:
    """Without the best design, which the note is about; and where the posterior takes too long, without that too."""
    n_prior = len(state.prior)
    try:
        if services.compute.is_too_expensive(("posterior", state.spec_hash), len(observations)):
            raise design.TooMuchWork(0)
        with refusals(), design.limited(PATIENCE * services.settings.design_seconds):
            found = experiment.stop(observations, max_eig=float("inf"), n_prior=n_prior)
    except design.TooMuchWork:
        return {**asdict(experiment.plain_stop(observations, n_prior=n_prior)), "note": NOT_LEARNT}
    except Problem:
        raise
    except Exception:
        logger.exception("stopping rules could not be judged", extra={"session_id": state.id})
        return {**asdict(experiment.plain_stop(observations, n_prior=n_prior)), "note": FAILED}
    return {**asdict(found), "note": note if experiment.looks_ahead else None}
