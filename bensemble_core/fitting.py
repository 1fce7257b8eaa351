"""fit(): the single entry point; check(): what it would refuse; Fitted: what it gives back; load(): from a file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bensemble_core import display, io, options
from bensemble_core.display import Described
from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.devices import usable_device
from bensemble_core.ensemble.rows import Rows, as_rows, indices_checked
from bensemble_core.errors import InvalidData, InvalidFile, InvalidModel, InvalidOption
from bensemble_core.likelihoods import likelihood_named
from bensemble_core.models.spec import LARGEST_ROW, has_embedding
from bensemble_core.posteriors import POSTERIORS, named_posterior
from bensemble_core.predictive import Predictive
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.problem import AnyData, AnyModel, as_data, encoded, joined, make_problem, with_unlabelled
from bensemble_core.randomness import generator
from bensemble_core.torch_modes import own_modes
from bensemble_core.types import (
    Analytic,
    Augment,
    Bounds,
    Brackets,
    Checks,
    Data,
    Diagnoses,
    Diagnostics,
    Evidence,
    FitsSplits,
    FunctionSpace,
    HoldsOut,
    Likelihood,
    Posterior,
    Prior,
    Problem,
    Report,
    Snapshot,
    Tensors,
    Unfolds,
    Updates,
    over,
    silent,
)

_FIT, _SAMPLE = 1, 2  # branches of a seed
_DRAWS = 20  # members that `sample` draws by default


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fitted(Described):
    """A posterior fitted to data: draw ensembles from it, save it, or go on from it with more rows."""

    posterior: Posterior
    problem: Problem
    state: Tensors
    seed: int
    data: Data | None = None  # the rows it was fitted to, as handed in; not saved
    n_latest: int | None = None  # of these, how many came last, with what was known before as their prior; None: all

    def _facts(self) -> dict[str, object]:
        return {
            "method": display.entry(self.posterior),
            "model": display.network(self.problem.model),
            "input": list(self.problem.model.input_shape),
            "likelihood": display.likelihood(self.problem.likelihood),
            "prior": self.problem.prior or "none",
            "rows": None if self.data is None else self.data.n_rows,
            "seed": self.seed,
            "dtype": str(self.problem.dtype).removeprefix("torch."),
            "device": _device(self.state),
        }

    @own_modes()
    def sample(self, n: int | None = None, *, seed: int = 0, at_most: bool = False) -> Ensemble:
        """Draw an ensemble of n members, by default 20; of a method that keeps S members min(n, S), evenly thinned.

        Where that is fewer than were asked for, `Ensemble.notes` says so, unless n was meant as `at_most`; and it
        repeats the warnings of `diagnostics`.
        """
        wanted = _DRAWS if n is None else options.whole(n, "the number of members")
        if wanted < 1:
            raise InvalidOption(f"sample draws at least 1 member, got {wanted}")
        drawn = self.posterior.sample(self.problem, self.state, wanted, rng=generator(seed, _SAMPLE))
        notes = self.diagnostics.warnings
        if not (n is None or at_most or drawn.n_members >= wanted):
            had = f"{wanted} members were asked for and {drawn.n_members} drawn"
            notes = (*notes, f"{had}: this {self.posterior.name} keeps no more")
        return replace(drawn, notes=(*drawn.notes, *notes)) if notes else drawn

    @own_modes()
    def predict(self, x: Rows) -> Predictive:
        """Predict rows in closed form, as one member, where the method can (pbp); else use sample(n).predict(x)."""
        if not isinstance(self.posterior, Analytic):
            raise InvalidOption(
                f"{self.posterior.name} has no predictive in closed form; draw members, sample(n).predict(x)"
            )
        return self.posterior.analytic(self.problem, self.state, x)

    @own_modes()
    def update(
        self,
        data: AnyData,
        *,
        keep: bool | None = None,
        seed: int | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
        **changes: Any,
    ) -> "Fitted":
        """Go on from where this one ended, with new rows.

        A method with an update of its own takes its posterior as the prior of the new rows, and needs the old ones no
        more. Any other, and every one with keep=True, is fitted again to its own rows and the new ones, starting from
        its state; with keep=False to these rows alone. The standardisation of the first fit is kept. A Fitted read from
        a file has no rows of its own: to refit it, pass all of them with keep=False. `changes` are options of the
        posterior, such as fewer epochs.
        """
        new = as_data(data)
        posterior = options.make(type(self.posterior), {**options.to_json(self.posterior), **changes})
        seed = self.seed if seed is None else options.whole(seed, "seed")
        _refuse_unsuitable(posterior, self.problem)
        if keep is None and isinstance(posterior, Updates):
            if self.data is not None and new.augment is None:
                new = replace(new, augment=self.data.augment)
            own = encoded(posterior, self.problem, new, _device(self.state))
            if not own.n_rows:
                raise InvalidData("there is nothing to train on: an update needs new rows, and here are none")
            rng = generator(seed, _FIT)
            with indices_checked(self.problem):
                state = posterior.update(self.problem, self.state, own, rng=rng, resume=resume, report=report)
            seen = None if self.data is None else joined(self.data, new)
            return Fitted(
                posterior=posterior, problem=self.problem, state=state, seed=seed, data=seen, n_latest=own.n_rows
            )
        if keep or keep is None:
            if self.data is None:
                raise InvalidData(
                    "this Fitted was read from a file, which does not hold the rows it was fitted to; pass all rows, "
                    "old and new, with keep=False"
                )
            new = joined(self.data, new)
        elif self.data is not None and new.augment is None:
            new = replace(new, augment=self.data.augment)
        return _fit(posterior, self.problem, new, seed=seed, warm=self.state, resume=resume, report=report)

    @own_modes()
    def bound(self, data: AnyData | None = None, *, samples: int = 100, seed: int = 0) -> float:
        """The method's bound on log p(D) (the ELBO of mfvi), in nats and the units of y, from `samples` draws.

        `data` are the rows it was fitted to, where this Fitted does not hold them; after an update the new rows alone,
        whose prior is what was known before. Where a noise or a prior scale was learnt, it bounds the evidence given
        those.
        """
        if not isinstance(self.posterior, Bounds):
            raise InvalidOption(f"{self.posterior.name} has no bound on the evidence; mfvi, renyi, hvi and others have")
        own = self._fitted_rows(data, samples)
        rng = generator(seed, _SAMPLE)
        with indices_checked(self.problem):
            return self.posterior.bound(self.problem, self.state, own, samples=samples, rng=rng)

    @own_modes()
    def bracket(self, data: AnyData | None = None, *, samples: int = 100, seed: int = 0) -> tuple[float, float]:
        """Two numbers, in nats and the units of y, between which the method's bound on log p(D) lies.

        Where the entropy of the approximation has no closed form (sivi), it is known from below and from above; the
        lower number is what `bound` gives. Arguments as there.
        """
        if not isinstance(self.posterior, Brackets):
            raise InvalidOption(f"{self.posterior.name} has no bracket on its bound; sivi has")
        own = self._fitted_rows(data, samples)
        with indices_checked(self.problem):
            return self.posterior.bracket(self.problem, self.state, own, samples=samples, rng=generator(seed, _SAMPLE))

    def _fitted_rows(self, data: AnyData | None, samples: int) -> Data:
        """The rows that a bound is about, as the posterior is given them."""
        if options.whole(samples, "samples") < 1:
            raise InvalidOption(f"a bound needs at least 1 draw, got {samples}")
        rows = self.data if data is None else as_data(data)
        if rows is None:
            raise InvalidData("this Fitted was read from a file, which does not hold its rows; pass data=(x, y)")
        if data is None and self.n_latest is not None:
            rows = rows.take(slice(-self.n_latest, None))
        return encoded(self.posterior, self.problem, rows, _device(self.state))

    def held_out(self) -> tuple[Predictive, Tensor] | None:
        """What was predicted of the rows it was fitted to while they were held out, where the method keeps it (auto).

        Predictions of all N rows in their order, and a mask [N] of those that were held out at all.
        """
        if not isinstance(self.posterior, HoldsOut):
            return None
        return self.posterior.held_out(self.problem, self.state)

    @property
    def log_evidence(self) -> float:
        """log p(D) in nats and the units of y, as the method has it (laplace, importance): it compares models."""
        if not isinstance(self.posterior, Evidence):
            raise InvalidOption(f"{self.posterior.name} has no log evidence; laplace and importance have")
        return self.posterior.log_evidence(self.problem, self.state)

    @property
    def diagnostics(self) -> Diagnostics:
        """How far the draws can be trusted: `values` by name and `warnings`; empty for a method that does not tell."""
        if not isinstance(self.posterior, Diagnoses):
            return Diagnostics()
        return self.posterior.diagnose(self.problem, self.state)

    @own_modes()
    def function_variance(self, x: Rows, *, joint: bool = False) -> Tensor:
        """Posterior variance of the logits, or of the means in the units of y (squared), in closed form: [N, T].

        No draws are made. `joint` gives the covariance of a row's outputs: [N, T, T].
        """
        if not isinstance(self.posterior, FunctionSpace):
            raise InvalidOption(f"{self.posterior.name} has no variance in closed form; laplace has, others sample")
        rows = as_rows(x, self.problem, _device(self.state))
        if self.problem.scaling is not None:
            rows = self.problem.scaling(rows)
        with indices_checked(self.problem):
            covariance = self.posterior.function_covariance(self.problem, self.state, rows)
        return covariance if joint else covariance.diagonal(dim1=-2, dim2=-1)

    def save(self, path: str | Path) -> None:
        """Write safetensors with a JSON header; `bensemble_core.load` reads it."""
        header = {
            "kind": "fitted",
            "posterior": options.to_json(self.posterior),
            "problem": io.problem_header(self.problem),
            "seed": self.seed,
        }
        io.write(path, header, {**io.problem_tensors(self.problem), **io.above("state/", self.state)})


@own_modes()
def fit(
    method: str | Posterior,
    model: AnyModel,
    data: AnyData,
    *,
    likelihood: str | Likelihood,
    prior: Prior | None = DEFAULT_PRIOR,
    seed: int = 0,
    standardise: bool | None = None,
    warm: "Fitted | Tensors | None" = None,
    resume: Tensors | None = None,
    report: Report = silent,
    device: str | torch.device = "cpu",
    input_shape: Sequence[int] | None = None,
    augment: Augment | None = None,
    unlabelled: Rows | None = None,
    **options_: Any,
) -> Fitted:
    """Fit a posterior over the weights of a network to labelled rows.

    `fit("swag", {"name": "mlp", "hidden": [64]}, (x, y), likelihood="categorical", epochs=50).sample(20)` is an
    ensemble of 20 networks.

    method: a name in `bc.POSTERIORS`, with its options as further keywords, or an instance, `bc.SWAG(epochs=50)`.
    model: `{"name": "mlp", "hidden": [64]}` with a name in `bc.MODELS`, or any nn.Module; None is the default network
        for the shape of the rows, and leaves `auto` free to take none.
    data: (x [N, ...], y), tensors or arrays, y [N] class indices or [N(, T)] numbers in their own units; or a torch
        Dataset or DataLoader of such pairs, whose rows are read once and in its order. float64 rows make everything
        float64.
    likelihood: "categorical" or "gaussian", or an instance: `bc.Gaussian(noise=0.3)`, a standard deviation in units of
        y. Of "gaussian" the noise is learnt.
    prior: on every weight of the network; default `bc.Normal(scale=1.0)`; None is maximum likelihood. Or
        `bc.DoubleExponential(scale=…)` (L1) or `bc.StudentT(df=…, scale=…)`, which methods that need a Normal refuse.
        Of a posterior over functions (gp, fbnn) `bc.GP(lengthscale=…, scale=…)`, of fbnn also
        `bc.FunctionSamples(draw)`.
    seed: the same seed gives the same bits on the same machine; default 0.
    standardise: inputs and numbers y to mean 0 and sd 1 inside the ensemble; default true, except where the weights of
        a module are taken as they are (epochs=0).
    warm: a Fitted (or its state) to start from, of the same kind of likelihood; its standardisation is kept. Default:
        start from the seed, or from the weights of a module.
    resume: a snapshot that `report` was given, to go on from bit for bit; needs the same other arguments.
    report: `report(done, total, message, snapshot)`, called at least every 0.2 s of a training; raise in it to stop.
    device: where to compute, "cpu" (the default), "cuda" or "cuda:1".
    input_shape: of one row, where rows are stored flat: [3, 32, 32].
    augment: a function (x [B, ...], rng) -> x of the same shape, applied to every training batch in the units handed
        in, each member's with a generator of its own. It is code: not saved in files, and resuming needs the same one.
    unlabelled: rows [U, ...] of the pool, a few thousand are plenty: inputs are standardised by them too, and `auto`
        learns from them what each labelled row stands for; default none.
    """
    posterior, device = named_posterior(method, options_), usable_device(device)
    rows = as_data(data)
    if augment is not None:
        if not callable(augment):
            raise InvalidOption(f"augment has to be a function (x, rng) -> x, got {augment!r}")
        rows = replace(rows, augment=augment)
    if unlabelled is not None:
        rows = with_unlabelled(rows, unlabelled)
    if standardise is None:
        standardise = not (isinstance(model, nn.Module) and _takes_weights_as_they_are(posterior))
    like = warm.problem if isinstance(warm, Fitted) else None
    problem = make_problem(model, rows, likelihood_named(likelihood), prior, standardise, input_shape, like)
    state = _warm_state(warm, posterior)
    return _fit(posterior, problem.to(device), rows, seed=seed, warm=state, resume=resume, report=report, device=device)


def check(
    method: str | Posterior,
    model: AnyModel,
    *,
    likelihood: str | Likelihood,
    input_shape: Sequence[int],
    n_targets: int = 1,
    prior: Prior | None = DEFAULT_PRIOR,
    **options_: Any,
) -> None:
    """Raise the InvalidOption or InvalidModel that `fit` would raise before any work; no rows are needed.

    A network given by name is not allocated. input_shape: of one row. Of classes the likelihood says how many,
    `Categorical(n_classes=…)`; of numbers there are `n_targets` a row.
    """
    posterior = named_posterior(method, options_)
    named = likelihood_named(likelihood)
    shape = [options.whole(n, "an entry of input_shape") for n in input_shape]
    if not shape or min(shape) < 1 or math.prod(shape) > LARGEST_ROW:
        raise InvalidModel(f"expected the shape of a row, such as [64] or [1, 8, 8], got {shape}")
    indices = isinstance(model, nn.Module) and has_embedding(model)
    x = torch.zeros(1, *shape, dtype=torch.int64 if indices else torch.float32)
    y = torch.zeros(0 if named.family == "categorical" else 1, n_targets)
    _refuse_unsuitable(posterior, make_problem(model, Data(x=x, y=y), named, prior, standardise=True))


@own_modes()
def fit_splits(
    method: str | Posterior,
    model: AnyModel,
    splits: Sequence[AnyData],
    *,
    likelihood: str | Likelihood,
    prior: Prior | None = DEFAULT_PRIOR,
    seed: int = 0,
    standardise: bool | None = None,
    report: Report = silent,
    device: str | torch.device = "cpu",
    **options_: Any,
) -> list[Fitted]:
    """Fit the same model to several data sets, split i as `fit` would with seed + i: train/test splits, say.

    One after another, but for pbp, which has a way of its own to fit them all at once.
    """
    posterior, device = named_posterior(method, options_), usable_device(device)
    seed = options.whole(seed, "seed")
    if not isinstance(posterior, FitsSplits):

        def part_of(i: int) -> Report:
            def part(done: int, total: int, message: str, snapshot: Snapshot) -> None:
                report(i * total + done, len(splits) * total, f"split {i + 1}: {message}", snapshot)

            return part

        common: dict[str, Any] = {
            "likelihood": likelihood,
            "prior": prior,
            "standardise": standardise,
            "device": device,
        }
        return [
            fit(posterior, model, data, seed=seed + i, report=part_of(i), **common) for i, data in enumerate(splits)
        ]
    rows = [as_data(data) for data in splits]
    bound = likelihood_named(likelihood)
    standardise = True if standardise is None else standardise
    problems = [make_problem(model, r, bound, prior, standardise).to(device) for r in rows]
    for problem in problems:
        _refuse_unsuitable(posterior, problem)
    datas = [encoded(posterior, p, r, device) for p, r in zip(problems, rows, strict=True)]
    rngs = [generator(seed + i, _FIT) for i in range(len(rows))]
    states = posterior.fit_splits(problems, datas, rngs=rngs, report=report)
    return [
        Fitted(posterior=posterior, problem=p, state=s, seed=seed + i, data=r)
        for i, (p, s, r) in enumerate(zip(problems, states, rows, strict=True))
    ]


def load(source: str | Path | bytes, *, model: nn.Module | None = None, device: str | torch.device = "cpu") -> Any:
    """Read a Fitted or an Ensemble from a path or bytes; pass `model` where the network was an nn.Module."""
    device = usable_device(device)
    header, tensors = io.read(source)
    tensors = {k: v.to(device) for k, v in tensors.items()}
    if header.get("kind") == "ensemble":
        return Ensemble.from_tensors(header, tensors, model=model)
    if header.get("kind") != "fitted":
        raise InvalidFile(f"expected a fitted posterior or an ensemble, got a file of kind {header.get('kind')!r}")
    with io.header_read():
        name, wanted, seed = header["posterior"]["name"], header["problem"], options.whole(header["seed"], "seed")
        if name not in POSTERIORS:
            raise InvalidFile(f"the file holds a {name!r} posterior, which this version does not have; upgrade")
        posterior: Posterior = options.make(POSTERIORS[name], header["posterior"])
    problem = io.problem_from(wanted, tensors, model=model)
    state = io.below("state/", tensors)
    with io.header_read():
        expected = posterior.expected(problem, state)
    io.check_tensors(problem, expected, state)
    return Fitted(posterior=posterior, problem=problem, state=state, seed=seed)


def _fit(
    posterior: Posterior,
    problem: Problem,
    rows: Data,
    *,
    seed: int,
    warm: Tensors | None,
    resume: Tensors | None,
    report: Report,
    device: str | torch.device | None = None,
) -> Fitted:
    seed = options.whole(seed, "seed")
    _refuse_unsuitable(posterior, problem)
    if device is None:
        device = "cpu" if warm is None else _device(warm)
    own = encoded(posterior, problem, rows, device)
    with indices_checked(problem):
        state = posterior.fit(problem, own, rng=generator(seed, _FIT), warm=warm, resume=resume, report=report)
    return Fitted(posterior=posterior, problem=problem, state=state, seed=seed, data=rows)


def _warm_state(warm: Fitted | Tensors | None, posterior: Posterior) -> Tensors | None:
    """What a method can start from: a state of its own, or of another method as plain networks."""
    if isinstance(warm, Fitted):
        if isinstance(warm.posterior, Unfolds) and type(warm.posterior) is not type(posterior):
            return warm.posterior.unfold(warm.problem, warm.state)
        return warm.state
    if warm is not None and not isinstance(warm, Mapping):
        raise InvalidOption(f"warm has to be a Fitted or its state, got {type(warm).__name__}; pass what fit gave back")
    return warm


def _refuse_unsuitable(posterior: Posterior, problem: Problem) -> None:
    prior = problem.prior
    if over(prior) == "functions" and over(posterior) == "weights":
        raise InvalidOption(
            f"{posterior.name} infers the weights of a network, and {type(prior).__name__} is a prior over functions; "
            "pass prior=Normal(scale=…), or take a posterior over functions, such as gp"
        )
    if over(posterior) == "functions" and over(prior) == "weights" and prior not in (None, DEFAULT_PRIOR):
        raise InvalidOption(
            f"{posterior.name} infers functions and has no use for a prior over weights, {prior}; pass a prior over "
            "functions, GP(lengthscale=…, scale=…), or leave it out"
        )
    if isinstance(posterior, Checks):
        posterior.check(problem)


def _device(state: Tensors) -> torch.device:
    return next(iter(state.values())).device


def _takes_weights_as_they_are(posterior: Posterior) -> bool:
    return posterior.starts_from_weights and getattr(posterior, "epochs", None) == 0
