"""A small sweep of random models whose expected information gain is known by other means: stated errors cover, and what
is proposed is as good as the best. `benchmarks/design_honest.py` has the same of hundreds."""

import math

import numpy as np
import pytest
from design_honest import FLOOR, Found, cases, judge

N_MODELS = {"linear": 13, "curve": 20, "discrete": 14, "hostile": 20}  # of a sweep, whose share of a kind is run


@pytest.mark.parametrize("kind", N_MODELS)
def test_stated_errors_cover_and_no_better_design_is_passed_by(kind: str) -> None:
    found = [judge(case) for case in cases(N_MODELS[kind], [kind])]
    assert not [each for each in found if each.refusal]
    assert not [each for each in found if any(_is_beyond(*pair) for pair in each.errors)]
    assert not [each for each in found if _is_regretted(each)]


def _is_beyond(off: float, se: float | None) -> bool:
    return se is not None and abs(off) > 4 * se + FLOOR


def _is_regretted(found: Found) -> bool:
    assert found.regret is not None
    return found.regret > max(0.02, 2 * found.regret_se) or not math.isfinite(found.regret) or np.isnan(found.regret)
