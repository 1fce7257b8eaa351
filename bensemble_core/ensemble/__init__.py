"""Members of a posterior and how they run: batched, one by one, or compiled, in chunks of rows.

From outside use `Ensemble`; posteriors and training also use `members` (run named tensors through a network),
`tensors` (take them apart), `rows` (what callers hand in, as tensors), `devices` and `representative`.
"""

from bensemble_core.ensemble.ensemble import Ensemble

__all__ = ["Ensemble"]
