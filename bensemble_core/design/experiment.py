"""An experiment as a library user sees it: state it once, then ask for estimates, posteriors and the next design.

Everything is a pure function of the spec and the observations handed in; what is remembered between calls only saves
work. Observations are pairs (design, outcome) of dicts.

All is computed on one of torch's threads: operations are small, and two threads that wait for each other beside another
busy process took 119 s for what one does in 10.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import Belief, PointBelief
from bensemble_core.design.belief.gaussian import GaussianBelief
from bensemble_core.design.belief.infer import infer
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.guards import Guards, look
from bensemble_core.design.information import batch as batches
from bensemble_core.design.information.accuracy import estimated
from bensemble_core.design.information.coarseness import too_coarse
from bensemble_core.design.information.eig import Estimate
from bensemble_core.design.information.information import Information, information
from bensemble_core.design.information.tables import Method, method_of
from bensemble_core.design.probe import probe
from bensemble_core.design.search.propose import Proposal, Request, choose
from bensemble_core.design.search.propose import max_eig as best_eig
from bensemble_core.design.spec.model import Event, Observation
from bensemble_core.design.spec.spaces import Design
from bensemble_core.design.spec.spec import Spec, read_spec
from bensemble_core.design.spec.spread import spread
from bensemble_core.design.stop import Standing, Stop, judge, needs_eig
from bensemble_core.design.work import Work, work_of
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.options import is_number, quoted
from bensemble_core.threads import one_thread

MAX_PROPOSALS = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """An experiment to be designed: a model of the outcome, a prior, and the designs that may be run.

    Made by `Experiment.from_spec(spec)`. Every question is asked with all observations so far, a list of
    (design, outcome) pairs such as `({"xi": 5}, {"y": 1})`, and is answered from the spec, its seed and these alone.

    spec: what was read of the JSON.
    memory: what is kept between calls, at most 320 MB; it saves time and changes no answer.
    """

    spec: Spec
    memory: Memory = field(default_factory=Memory, repr=False)

    @classmethod
    @one_thread()
    def from_spec(cls, spec: Mapping[str, Any]) -> "Experiment":
        """Read a spec, and try it on points of prior × designs; a mistake is an InvalidSpec with a JSON pointer.

        spec: parameters with priors, designs, outcome, and if wanted targets, constraints, cost, stop and select.
        """
        made = read_spec(spec)
        probe(made.model, made.select.seed)
        return cls(spec=made)

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical spec."""
        return self.spec.hash

    def designs(self) -> list[dict[str, Any]] | None:
        """All designs in order, or None if they cannot be listed."""
        space = self.spec.model.space
        return [space.decode(row) for row in space.all().tolist()] if space.is_listed else None

    def spread(self, points: int) -> list[dict[str, Any]]:
        """At most `points` designs spread evenly: to draw the EIG as a curve or a map.

        points: at least 2. Of three free variables and more, whose designs cannot be listed, 20 are given.
        """
        if isinstance(points, bool) or not isinstance(points, int) or points < 2:
            raise InvalidOption(f"points is a whole number from 2 on, got {points}")
        space = self.spec.model.space
        return [space.decode(row) for row in spread(space, points, self.spec.select.seed).tolist()]

    @one_thread()
    def posterior(self, observations: Sequence[Observation] = ()) -> Belief:
        """What is known of the parameters: means, sds, quantiles, draws, log evidence in nats.

        observations: (design, outcome) pairs; default none, which gives the prior.
        """
        return self._belief(self._events(observations))

    @one_thread()
    def eig(self, designs: Sequence[Design] | None = None, observations: Sequence[Observation] = ()) -> list[Estimate]:
        """Expected information gain of each design, in nats and with its error.

        designs: `[{"xi": 6}, {"xi": 7}]`; default all of them, where they can be listed.
        observations: (design, outcome) pairs so far; default none.
        """
        rows = self._rows(designs)
        found = estimated(self.spec.model, self._events(observations), rows, self.memory, seed=self.spec.select.seed)
        lost = ~(np.isfinite(found.eig) & np.isfinite(found.se))
        if lost.any():
            design = self.spec.model.space.decode(rows[int(lost.argmax())].tolist())
            raise NotFinite(
                f"the estimate at {design} is not finite: arguments of the outcome are too extreme there; leave that "
                "design out, narrow the prior, or clip() what overflows"
            )
        return found.listed(self.spec.model.costs(rows))

    def method(self, design: Design) -> Method:
        """How the EIG of a design is computed when nothing is observed yet, without computing it."""
        belief = self._belief(())
        if isinstance(belief, GaussianBelief):
            return "linear_gaussian"
        assert isinstance(belief, PointBelief)
        rows = self._rows([design])
        method = method_of(self.spec.model, belief.points, rows, self.memory)
        is_precise = uses_cells(self.spec.model) and (
            method == "bounds" or bool(too_coarse(self.spec.model, belief, rows)[0])
        )
        return "cells" if is_precise else method

    @one_thread()
    def joint_eig(self, designs: Sequence[Design], observations: Sequence[Observation] = ()) -> Estimate:
        """Expected information gain of running all these designs before any outcome is known, in nats.

        designs: at least one.
        observations: (design, outcome) pairs so far; default none.
        """
        if not designs:
            raise InvalidOption("joint_eig needs at least one design")
        model, seed = self.spec.model, self.spec.select.seed
        rows = self._rows(designs)
        events, is_alone = self._events(observations), len(rows) == 1
        batch = batches.begun(model, events, self.memory, seed=seed, is_alone=is_alone, rows=rows)
        for row in rows[:-1].tolist():
            batch = batches.joined(model, batch, row, self.memory, seed=seed)
        last = batches.conditional(model, batch, rows[-1:], self.memory, seed=seed)
        stated = last.stated(0)
        se = None if stated["se"] is None else batch.se + stated["se"]
        cost = float(model.costs(rows).sum())
        return Estimate(**{**stated, "se": se}, eig=batch.gain + float(last.eig[0]), cost=cost)

    @one_thread()
    def propose(
        self,
        observations: Sequence[Observation] = (),
        count: int = 1,
        *,
        pending: Sequence[Design] = (),
        fixed: Design | None = None,
        excluded: Sequence[Design] = (),
        n_prior: int = 0,
    ) -> list[Proposal]:
        """The `count` best designs to run next, the later ones chosen knowing that the earlier ones will be run.

        observations: (design, outcome) pairs so far; default none.
        count: how many; default 1. The list is shorter when nothing more can be afforded.
        pending: designs that were handed out and not answered yet: they count as members of the batch.
        fixed: values of some design variables, which narrow the choice.
        excluded: designs that must not be proposed.
        n_prior: so many of the first observations are others', default 0: they inform, but count neither as repeats
            nor against the budget.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PROPOSALS:
            raise InvalidOption(f"count is 1 to {MAX_PROPOSALS}, a whole number, got {quoted(count)}")
        self._check_prior(n_prior, observations)
        model = self.spec.model
        request = Request(
            events=self._events(observations),
            pending=[model.space.encode(design) for design in pending],
            fixed=model.space.partial(fixed or {}),
            excluded=frozenset(model.space.encode(design) for design in excluded),
            n_prior=n_prior,
        )
        seed, is_alone = self.spec.select.seed, count == 1 and not request.pending
        batch = batches.begun(model, request.events, self.memory, seed=seed, is_alone=is_alone)
        for row in request.pending:
            batch = batches.joined(model, batch, row, self.memory, seed=seed)
        return choose(self.spec, batch, request, self.memory, count)

    @one_thread()
    def stop(self, observations: Sequence[Observation] = (), *, max_eig: float | None = None, n_prior: int = 0) -> Stop:
        """Whether to stop by the rules of the spec, and why.

        observations: (design, outcome) pairs so far; default none.
        max_eig: that of a proposal just made, in nats; saves finding the best design again.
        n_prior: so many of the first observations are others', default 0: neither trials nor costs of this one.
        """
        self._check_prior(n_prior, observations)
        events = self._events(observations)
        spent = self.spec.model.spent(Counter(row for row, _ in events[n_prior:]))
        is_exhausted = False
        if max_eig is None and self.looks_ahead:
            best = self.propose(observations, n_prior=n_prior)
            is_exhausted = not best
            max_eig = self._max_eig(best[0], events, n_prior) if best and needs_eig(self.spec.stop) else None
        standing = Standing(
            sd=self._belief(events).sd,
            n_trials=len(events) - n_prior,
            spent=spent,
            max_eig=max_eig,
            is_exhausted=is_exhausted,
        )
        return judge(self.spec.stop, standing)

    def _max_eig(self, proposal: Proposal, events: Sequence[Event], n_prior: int) -> float:
        """The best design's, which need not be that of the one proposed."""
        if proposal.max_eig is not None:
            return proposal.max_eig
        request = Request(events=events, fixed={}, n_prior=n_prior)
        batch = batches.begun(self.spec.model, events, self.memory, seed=self.spec.select.seed, is_alone=True)
        return max(proposal.eig, best_eig(self.spec, batch, request, self.memory) or 0.0)

    def plain_stop(self, observations: Sequence[Observation] = (), *, n_prior: int = 0) -> Stop:
        """What those rules say that take no computing: rounds and budget. The others do not hold."""
        events = self._events(observations)
        standing = Standing(
            sd=dict.fromkeys(self.spec.model.prior.names, math.inf),
            n_trials=len(events) - n_prior,
            spent=self.spec.model.spent(Counter(row for row, _ in events[n_prior:])),
            max_eig=math.inf,
        )
        return judge(self.spec.stop, standing)

    @property
    def looks_ahead(self) -> bool:
        """Whether it takes the best next design to know if to stop."""
        may_end = self.spec.budget < math.inf or self.spec.select.max_repeats is not None
        return may_end or needs_eig(self.spec.stop)

    @one_thread()
    def information(self, observations: Sequence[Observation]) -> Information:
        """What the last of these observations taught about the targets, given those before it."""
        if not observations:
            raise InvalidOption("information is that of the last observation; pass at least one")
        events = self._events(observations)
        earlier = events[:-1]
        before, after = self._belief(earlier), self._belief(events)
        seed = self.spec.select.seed
        return information(self.spec.model, before, after, earlier, events[-1], self.memory, seed=seed)

    @one_thread()
    def guards(self, observations: Sequence[Observation]) -> Guards:
        """Signs of a wrong model or an overstretched approximation after the last observation."""
        events = self._events(observations)
        before, after = self._belief(events[:-1]), self._belief(events)
        return look(self.spec.model, before, after, events, seed=self.spec.select.seed)

    def draw(self, parameters: Mapping[str, float], design: Design, seed: int) -> dict[str, Any]:
        """One outcome of a simulated experiment whose parameters are known."""
        model = self.spec.model
        theta = self._point(parameters)
        u = torch.rand(1, len(model.outcomes), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        row = torch.tensor(model.space.encode(design), dtype=torch.float64)
        y = model.draw(theta, row, u)[0].tolist()
        return {variable.name: variable.decode(value) for variable, value in zip(model.outcomes, y, strict=True)}

    def log_likelihood(self, parameters: Mapping[str, float], observations: Sequence[Observation]) -> float:
        """log p(outcomes | parameters, designs)."""
        theta = self._point(parameters)
        return sum(float(self.spec.model.log_likelihood(theta, event)[0]) for event in self._events(observations))

    def work(self, n_observations: int = 0, count: int = 1, n_pending: int = 0) -> Work:
        """How much a proposal costs, before it is made."""
        return work_of(self.spec.model, n_observations=n_observations, count=count, n_pending=n_pending)

    def _check_prior(self, n_prior: int, observations: Sequence[Observation]) -> None:
        if isinstance(n_prior, bool) or not isinstance(n_prior, int) or not 0 <= n_prior <= len(observations):
            raise InvalidOption(
                f"n_prior is 0 to {len(observations)}, the number of observations, got {quoted(n_prior)}"
            )

    def _events(self, observations: Sequence[Observation]) -> tuple[Event, ...]:
        return self.spec.model.events(observations)

    def _point(self, parameters: Mapping[str, float]) -> dict[str, Tensor]:
        """Parameters by name, checked: [1] each."""
        names = self.spec.model.prior.names
        if not isinstance(parameters, Mapping) or set(parameters) != set(names):
            came = ", ".join(map(str, parameters)) if isinstance(parameters, Mapping) else type(parameters).__name__
            raise InvalidData(f"expected exactly the parameters {', '.join(names)}, got {came or 'none'}")
        for name, value in parameters.items():
            if not is_number(value):
                raise InvalidData(f"parameter {name}: expected a finite number, got {quoted(value)}")
        found = {name: torch.tensor([float(value)], dtype=torch.float64) for name, value in parameters.items()}
        for block in self.spec.model.prior.listed:
            if block.numbered:  # a table knows its points by number
                wanted = torch.tensor([float(parameters[name]) for name in block.names], dtype=torch.float64)
                same = (block.values == wanted).all(1).nonzero()[:, 0]
                if not len(same):
                    raise InvalidData(f"the table has no point {dict(parameters)}; choose one of its {block.n_points}")
                found |= block.pick(same[:1])[0]
        return found

    def _rows(self, designs: Sequence[Design] | None) -> Tensor:
        space = self.spec.model.space
        if designs is not None and not len(designs):
            raise InvalidOption("expected at least one design, got none; leave designs out for all of a list")
        if designs is None:
            if not space.is_listed:
                raise InvalidOption("these designs cannot be listed; name those whose EIG is wanted")
            return space.all()
        return torch.tensor([space.encode(design) for design in designs], dtype=torch.float64)

    def _belief(self, events: Sequence[Event]) -> Belief:
        return infer(self.spec.model, events, self.memory, seed=self.spec.select.seed)
