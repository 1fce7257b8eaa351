"""distil(): one student network that predicts what many members predict on average, for cheap serving.

Bayesian dark knowledge (Balan, Rathod, Murphy & Welling 2015). With the members' weights w_m and p̄ = Σ_m w_m p_m the
student S minimises, averaged over the rows x, KL(p̄ ‖ S) up to what no student changes:

    classes:  −Σ_c p̄_c log S_c, the members' mean probabilities (not their mean logits)
    numbers:  ½ [log σ² + ((m − μ)² + v) / σ²], m and v mean and variance of the mixture, S = N(μ(x), σ²(x))

v is noise and disagreement together (the law of total variance), so the student is as wide as its teacher.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bensemble_core import options
from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.rows import Rows, as_rows, indices_checked, sliceable
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian
from bensemble_core.posteriors.start import check_trainable, split_shared, start_members
from bensemble_core.predictive import CategoricalPredictive, Predictive
from bensemble_core.problem import AnyModel, encoded_rows, make_problem
from bensemble_core.randomness import derive
from bensemble_core.torch_modes import own_modes
from bensemble_core.training.descent import Descent, Run, count_steps, descend
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Data, Likelihood, Prior, Problem, Report, Tensors, silent

_STUDENT = 41  # branch of the seed
_QUIET_SECONDS = 0.2  # longest silence between two reports, blocks of rows permitting


@own_modes()
def distil(
    ensemble: Ensemble | Iterable[Ensemble],
    model: AnyModel,
    x: Rows,
    *,
    prior: Prior | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    lr: float = 0.01,
    seed: int = 0,
    resume: Tensors | None = None,
    report: Report = silent,
) -> Ensemble:
    """Train one network to predict what an ensemble predicts, as an Ensemble of that one member.

    It saves, loads, predicts, calibrates and serves as any other, at the price of one forward pass. What the members
    disagree about is part of its entropy or variance and cannot be told from noise any more: `Ensemble.is_student` says
    so, and `score` and `rank` refuse it for scores of disagreement (`bald`, `epig`, …), which would be 0 on every row.

    ensemble: the teacher, with its weights and its calibration; or an iterable of ensembles, such as draws along a
        chain that is still running. It is read once, an ensemble at a time, and each is dropped before the next is
        asked for; only the mean prediction is kept, C or 2T numbers a row. The answer is that of all their members at
        once: an ensemble counts by how many it has.
    model: the student's network, by name or an nn.Module (which starts from its own weights): one output a class, or a
        mean and a raw variance for each target, as of `HeteroscedasticGaussian`.
    x: rows [N, ...] without labels, in the units handed to `fit`, in any form that `predict` takes. The student learns
        what its teacher says of these rows and nothing else: give many, and such as will be asked about.
    prior: on the student's weights, such as `bc.Normal(scale=1.0)`; default None, no more than the loss above.
    epochs: passes over the rows; default 100.
    batch_size: rows a step; default 64.
    lr: learning rate at the start, of Adam, from where it falls to 0 along half a cosine; default 0.01.
    seed: of the start and the order of rows; the same seed gives the same bits on the same machine; default 0.
    resume: a snapshot that `report` was given, to go on from bit for bit; needs the same other arguments, a stream from
        its beginning. One from before the first step is empty and starts afresh.
    report: `report(done, total, message, snapshot)` in steps, as in `fit`; raise in it to stop.

    The student is standardised as its (first) teacher is, and runs on its device and in its precision.

    Two departures from the paper. There the student takes steps beside the chain, each towards the latest draw's
    predictions: a noisy gradient of this same loss. Here the predictions are averaged first, exactly, and one training
    follows. And there inputs are training rows moved by Gaussian noise: to do so, pass rows that you have moved,
    `torch.cat([x, x + 0.1 * torch.randn_like(x)])`; the teacher is asked about them as they are.
    """
    how = options.make(Descent, {"epochs": epochs, "batch_size": batch_size, "lr": lr})
    own_seed = derive(options.whole(seed, "seed"), _STUDENT)
    x = sliceable(x)
    if not len(x):
        raise InvalidData("there is nothing to learn from: x has no rows; pass rows, they need no labels")
    total = how.epochs * count_steps(len(x), how.batch_size)
    mixture: _Mixture | None = None  # made with the first ensemble, as are the student's problem and its rows
    for teacher in _ensembles(ensemble):  # not enumerated: that would hold one while the next is made
        if mixture is None:
            problem = _problem_of_student(teacher, model, x, prior)
            check_trainable("distil", problem, as_they_are=how.epochs == 0)
            rows = encoded_rows(problem, x, teacher.device)
            mixture = _Mixture.empty(problem.likelihood, len(rows), teacher)
        mixture.add(teacher, x, report, total)
        del teacher
    if mixture is None:
        raise InvalidData("there is nobody to learn from: the iterable of ensembles was empty")
    theta, fixed = start_members(problem, [own_seed], warm=None, from_weights=True, device=rows.device)
    run = Run(
        problem=problem,
        data=Data(x=rows, y=mixture.targets(problem)),
        theta=theta,
        fixed=fixed,
        options=how,
        seeds=[own_seed],
        objective=_cross_entropy,
    )
    with indices_checked(problem):
        trained = descend(run, resume=resume or None, report=report)
    stacked, shared = split_shared(problem, {**trained.theta, **trained.fixed})
    learnt = f"this is a student, one network that learnt the mean prediction of {mixture.n_members:,} members"
    notes = (*mixture.notes, f"{learnt}: it cannot tell what they disagreed about")
    return Ensemble(problem=problem, stacked=stacked, shared=shared, notes=notes, is_student=True)


@dataclass(kw_only=True, eq=False)
class _Mixture:
    """What all members seen so far predict together: p̄, or mean and variance of the mixture, in float64."""

    classes: tuple[str, ...] | None
    mean: Tensor  # [N, C] probabilities, or [N, T] in the units of y
    variance: Tensor | None  # [N, T] of numbers
    n_members: int = 0
    n_ensembles: int = 0
    notes: dict[str, None] = field(default_factory=dict)  # of the teachers, each once and in order

    @classmethod
    def empty(cls, likelihood: Likelihood, n_rows: int, first: Ensemble) -> "_Mixture":
        """Of no members yet, for students of this likelihood."""
        is_number = isinstance(likelihood, HeteroscedasticGaussian)
        width = len(likelihood.mean) if isinstance(likelihood, HeteroscedasticGaussian) else likelihood.n_outputs
        none = torch.zeros(n_rows, width, dtype=torch.float64, device=first.device)
        return cls(classes=first.classes, mean=none, variance=none.clone() if is_number else None)

    def add(self, teacher: Ensemble, x: Rows, report: Report, total: int) -> None:
        """Merge another ensemble's predictions, with its number of members for a weight.

        mean ← mean + s δ and variance ← (1 − s) variance + s v + s (1 − s) δ², δ = m − mean, s its share of all
        members: the moments of the union, without the cancellation of E y² − (E y)².
        """
        n_rows, share = len(self.mean), teacher.n_members / (self.n_members + teacher.n_members)
        start, said = 0, time.monotonic()
        for predictive in teacher.iter_predict(x):
            mean, variance = _moments(predictive, self.mean)
            self._check(teacher, mean, variance, start)
            at = slice(start, start + len(mean))
            step = mean - self.mean[at]
            if self.variance is not None and variance is not None:
                self.variance[at] += share * (variance - self.variance[at]) + share * (1 - share) * step.square()
            self.mean[at] += share * step
            start += len(mean)
            if time.monotonic() - said >= _QUIET_SECONDS:
                report(0, total, f"ensemble {self.n_ensembles + 1} predicted {start:,} of {n_rows:,} rows", dict)
                said = time.monotonic()
        self.n_members += teacher.n_members
        self.n_ensembles += 1
        self.notes |= dict.fromkeys(teacher.notes)
        report(0, total, f"ensemble {self.n_ensembles} predicted {n_rows:,} rows", dict)

    def targets(self, problem: Problem) -> Tensor:
        """As the student is trained on them: [N, C] probabilities, or [N, 2T] standardised means, then variances."""
        found, likelihood = self.mean, problem.likelihood
        if isinstance(likelihood, HeteroscedasticGaussian) and self.variance is not None:
            scale = found.new_tensor(likelihood.scale)
            found = torch.cat([(found - found.new_tensor(likelihood.mean)) / scale, self.variance / scale.square()], -1)
        return found.to(problem.dtype)

    def _check(self, teacher: Ensemble, mean: Tensor, variance: Tensor | None, first_row: int) -> None:
        alike = mean.shape[1] == self.mean.shape[1] and (variance is None) == (self.variance is None)
        if not alike or teacher.classes != self.classes:
            raise InvalidData(
                f"ensemble {self.n_ensembles + 1} predicts something else than the first does: {mean.shape[1]} "
                f"{'classes' if variance is None else 'numbers'} a row against {self.mean.shape[1]}, or classes of "
                "other names; a stream is of ensembles that answer one question"
            )
        sound = mean.isfinite().all(-1) if variance is None else (mean.isfinite() & variance.isfinite()).all(-1)
        if not bool(sound.all()):
            row = first_row + int((~sound).nonzero()[0])
            raise NotFinite(f"row {row} has predictions that are not finite; check its numbers and the members")


def _moments(predictive: Predictive, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """p̄ [N, C] of classes; mean and variance of the mixture, [N, T] each, of numbers; as `like` is, in float64."""
    if isinstance(predictive, CategoricalPredictive):
        return replace(predictive, logits=predictive.logits.double()).mean().to(like), None
    wide = replace(predictive, means=predictive.means.double(), variances=predictive.variances.double())
    mean, variance = (part.reshape(wide.n_rows, wide.n_outputs).to(like) for part in (wide.mean(), wide.variance()))
    return mean, variance


def _ensembles(given: Ensemble | Iterable[Ensemble]) -> Iterator[Ensemble]:
    """One by one; none is held here while the next is made."""
    advice = "pass an Ensemble, or an iterable of them; a Fitted draws one with sample(20)"
    if not isinstance(given, (Ensemble, Iterable)):
        raise InvalidOption(f"distil learns from an ensemble, got {type(given).__name__}; {advice}")
    for one in [given] if isinstance(given, Ensemble) else given:
        if not isinstance(one, Ensemble):
            raise InvalidOption(f"distil learns from ensembles, one of them is of type {type(one).__name__}; {advice}")
        yield one
        del one


def _problem_of_student(teacher: Ensemble, model: AnyModel, x: Rows, prior: Prior | None) -> Problem:
    """The teacher's problem with another network, which answers with the whole mixture."""
    old = teacher.problem
    likelihood: Likelihood
    if teacher.family == "categorical":
        likelihood = Categorical(n_classes=old.likelihood.n_outputs, classes=teacher.classes)
    elif isinstance(old.likelihood, (Gaussian, HeteroscedasticGaussian)):
        own = old.likelihood
        likelihood = HeteroscedasticGaussian(mean=own.mean, scale=own.scale, spread=own.spread)
    else:
        raise InvalidOption(f"there is no student yet for numbers under {type(old.likelihood).__name__}")
    rows = Data(x=as_rows(x[:1], old, "cpu"), y=torch.zeros(1))
    like = replace(old, likelihood=likelihood)
    return make_problem(model, rows, likelihood, prior, standardise=True, like=like).to(teacher.device)


def _cross_entropy(problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
    """−(1/B) Σ E log S(y | x) over the teacher's y, − (1/N) log p(θ) where there is a prior: [1]."""
    weights, _ = split_extra(theta)
    outputs, likelihood = forward(weights, batch.x), problem.likelihood
    if isinstance(likelihood, HeteroscedasticGaussian):
        of_rows = likelihood.cross_entropy(outputs, *batch.y.chunk(2, -1))
    else:
        assert isinstance(likelihood, Categorical)
        of_rows = likelihood.cross_entropy(outputs, batch.y)
    loss = of_rows.mean(-1)
    return loss if problem.prior is None else loss - problem.prior.log_prob(weights) / batch.n_rows
