"""Members of a posterior and how they run: batched, one by one, or compiled, in chunks of rows.

From outside use `Ensemble`, and `reweight`, by which new rows change the weights of its members; posteriors and
training also use `members` (run named tensors through a network), `tensors` (take them apart), `resampling` (fewer
weighted draws for many), `rows` (what callers hand in, as tensors), `devices` and `representative`.
"""

from bensemble_core.ensemble.ensemble import Ensemble
from bensemble_core.ensemble.reweight import reweight

__all__ = ["Ensemble", "reweight"]
