"""Observations of others inform an experiment, but are no rounds of it."""

from bensemble_core.design import Experiment
from tests.core.design.specs import DIGIT_SPAN

OTHERS = [({"xi": 7}, {"y": 0}), ({"xi": 6}, {"y": 0})]


def test_they_inform_the_next_design_as_ones_own_do() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    (theirs,) = experiment.propose(OTHERS, n_prior=2)
    (own,) = experiment.propose(OTHERS)
    assert (theirs.design, theirs.eig) == (own.design, own.eig) == ({"xi": 5}, own.eig)


def test_they_count_neither_as_rounds_nor_against_the_budget() -> None:
    experiment = Experiment.from_spec({**DIGIT_SPAN, "stop": {"any": [{"max_rounds": 2}, {"budget": 2}]}})
    assert experiment.stop(OTHERS).stop
    assert experiment.propose(OTHERS) == []
    assert not experiment.stop(OTHERS, n_prior=2).stop
    assert len(experiment.propose(OTHERS, 3, n_prior=2)) == 2
    assert len(experiment.propose(OTHERS, 3, n_prior=1)) == 1


def test_they_do_not_wear_a_design_out() -> None:
    experiment = Experiment.from_spec({**DIGIT_SPAN, "select": {"max_repeats": 1}})
    again = [({"xi": 5}, {"y": 1}), *OTHERS]
    assert experiment.propose(again, n_prior=3)[0].design == {"xi": 6}
    assert experiment.propose(again)[0].design["xi"] not in (5, 6, 7)
