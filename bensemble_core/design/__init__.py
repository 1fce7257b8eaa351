"""Bayesian experimental design: state p(y | θ, ξ), a prior and where you may measure; get the most informative next
measurement, report its outcome, repeat.

Axes: P points of the parameters, J designs, Y outcomes (or quadrature nodes), O outcome variables, D design variables.
Nats throughout. Everything is float64 on the CPU, and a function of the spec, its seed and the observations alone.

From outside use the names below, and `simulate.check_truth`. The folders follow a question: `spec`, `belief`,
`information`, `search`.
"""

from bensemble_core.design.belief.belief import Belief, summary
from bensemble_core.design.catalogue import CATALOGUE
from bensemble_core.design.deadline import TooMuchWork, limited
from bensemble_core.design.experiment import Experiment
from bensemble_core.design.guards import Guards
from bensemble_core.design.information.eig import Estimate
from bensemble_core.design.information.information import Information
from bensemble_core.design.preview import Preview, preview
from bensemble_core.design.search.propose import Proposal, RunnerUp
from bensemble_core.design.simulate import Curve, Policy, simulate
from bensemble_core.design.spec.model import Observation
from bensemble_core.design.spec.spec import Spec, canonical, read_spec
from bensemble_core.design.stop import Stop
from bensemble_core.design.work import Work

__all__ = [
    "CATALOGUE",
    "Belief",
    "Curve",
    "Estimate",
    "Experiment",
    "Guards",
    "Information",
    "Observation",
    "Policy",
    "Preview",
    "Proposal",
    "RunnerUp",
    "Spec",
    "Stop",
    "TooMuchWork",
    "Work",
    "canonical",
    "limited",
    "preview",
    "read_spec",
    "simulate",
    "summary",
]
