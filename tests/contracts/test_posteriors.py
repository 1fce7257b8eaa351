"""Every entry of POSTERIORS walks the whole protocol; a new method is one more row here by being registered."""

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Union

import pytest
import torch
from pydantic import Discriminator, TypeAdapter, ValidationError
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import Plan
from bensemble_core.predictive import mixtures
from bensemble_core.types import Snapshot, Unfolds

NAMES = list(bc.POSTERIORS)
SMALL: dict[str, Any] = {"epochs": 3}  # what keeps an entry quick, if it has such options; others add their own here
CHAINS: dict[str, Any] = {"samples": 4, "warmup": 5, "chains": 2, "thin": 1, "map_epochs": 2}  # of a sampler
OPTIONS: dict[str, dict[str, Any]] = {
    "deep_ensemble": {"members": 3, **SMALL},
    "snapshot_ensemble": {"cycles": 3, **SMALL},
    "swag": {"rank": 2, "epochs": 6},
    "multi_swag": {"members": 2, "rank": 2, "epochs": 6},
    "hmc": {**CHAINS, "leapfrog": 4},
    "sgld": CHAINS,
    "sghmc": CHAINS,
    "metropolis": CHAINS,
    "annealing": {"steps": 10, "chains": 2, "map_epochs": 2},
    "importance": {"samples": 200, **SMALL},
    "gp": {"starts": 2, "steps": 20, "frequencies": 32},
    "vip": {"functions": 6, "steps": 10},
    "neural_process": {"width": 8, **SMALL},
}
MODELS: dict[str, Any] = {
    "mlp": {"name": "mlp", "hidden": [6]},
    "module": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
}
REGRESSION: dict[str, Any] = {  # entries that are for numbers only, with a module they are for
    "pbp": nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 1)),
    "gp": nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)),
    "vip": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)),
    "fbnn": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)),
    "neural_process": nn.Linear(4, 1),
}
STACKS: dict[str, Any] = {  # entries that are not for every module, with one they are for
    "ris": nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
}


NOISE, TAU = 0.5, 0.8  # of the conjugate problem
TO_THE_END: dict[str, Any] = {"epochs": 600, "lr": 0.05, "batch_size": 1000}  # as far as an entry has such options
LINEAR: dict[str, dict[str, Any]] = {  # what else it takes to reach what an entry aims at
    "laplace": {"structure": "full"},
    "importance": {"samples": 20_000},
    "snapshot_ensemble": {"cycles": 2, "epochs": 1500},  # each cycle has to arrive
    "bbvi": {"samples": 1000},
    "hvi": {"samples": 300, "epochs": 1000},  # its optimum is found by noisy steps
    "hmc": {"chains": 40, "samples": 100, "warmup": 200},
    "sgld": {"chains": 100, "samples": 50, "warmup": 200, "preconditioner": "none", "lr": 0.005},
    "sghmc": {"chains": 100, "samples": 50, "warmup": 200, "preconditioner": "none", "lr": 0.05},
    "metropolis": {"chains": 100, "samples": 40, "warmup": 300},
    "vogn": {"samples": 300, "lr": 0.5, "curvature_lr": 0.1},  # its curvature comes from the noise of the draws
}
AT_THE_MAP = ("map", "deep_ensemble", "snapshot_ensemble", "swa")  # whose members are the MAP of a linear model
OF_ITS_OWN = {  # the test against a known answer of an entry that aims at nothing here
    "auto": "auto.test_auto:test_a_kernel_regression_is_the_map_that_scikit_learn_finds",
    "mc_dropout": "test_posteriors:test_dropout_variance_of_one_linear_layer_is_the_formula",
    "swag": "averaging.test_swag:test_draws_have_the_mean_and_covariance_of_the_formula",
    "multi_swag": "averaging.test_swag:test_a_mixture_spreads_its_draws_evenly_over_its_members",
    "renyi": "variational.test_renyi:test_the_spread_grows_from_the_conditional_to_the_marginal_as_alpha_falls",
    "sivi": "implicit.test_sivi:test_correlated_weights_are_met_and_the_bracket_holds_the_evidence",
    "uivi": "implicit.test_uivi:test_correlated_weights_are_met",
    "mnf": "variational.test_mnf:test_a_flow_recovers_most_of_what_mean_field_loses_to_correlation",
    "pbp": "moment_matching.test_pbp:test_one_pass_over_one_hot_rows_is_the_exact_posterior",
    "batch_ensemble": "ensembles.test_batch_ensemble:test_members_are_dense_networks_with_rank_one_products",
    "annealing": "sampling.test_samplers:test_annealing_ends_at_the_map",
    "gp": "function_space.test_gp:test_mean_sd_and_evidence_are_the_known_ones",
    "vip": "function_space.test_vip:test_it_is_gp_regression_with_the_kernel_of_its_own_functions",
    "fbnn": "function_space.test_fbnn:test_it_is_the_known_gaussian_process",
    "neural_process": "function_space.test_neural_process:test_it_learns_from_tasks_what_a_gaussian_process_knows",
    "rank1_bnn": "ensembles.test_rank1:test_with_all_else_frozen_at_one_q_of_r_is_the_conjugate_mean_field_posterior",
}
POINTS = ("map", "swa", "annealing")  # entries without any spread
SPREAD: dict[str, dict[str, Any]] = {  # options for a curved fit
    "swag": {"rank": 10},
    "multi_swag": {"rank": 10},
    "hmc": {"samples": 50, "warmup": 100, "leapfrog": 16},
    "sgld": {"samples": 100, "warmup": 500},
    "sghmc": {"samples": 100, "warmup": 500},
    "metropolis": {"samples": 100, "warmup": 500},
}


def data(name: str = "") -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(24, 4, generator=g)
    return x, x[:, 0] - x[:, 1].abs() if name in REGRESSION else x[:, :3].argmax(1)


def with_tasks(name: str, x: Tensor, y: Tensor, n_tasks: int = 3) -> tuple[Tensor, ...]:
    """The rows, and for an entry that learns over tasks the number of each one's."""
    return (x, y, torch.arange(len(x)) % n_tasks) if getattr(bc.POSTERIORS[name], "needs_tasks", False) else (x, y)


def with_other_waves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows as task 0, and 48 tasks of waves with other phases, over a wider range."""
    g = torch.Generator().manual_seed(1)
    wide = torch.rand(48, 30, 1, generator=g) * 8 - 4
    waves = torch.sin(3 * wide[..., 0] + 6.3 * torch.rand(48, 1, generator=g)) * torch.randn(48, 1, generator=g)
    task = torch.cat([torch.zeros(len(x)), torch.arange(1, 49).repeat_interleave(30)]).long()
    return torch.cat([x, wide.reshape(-1, 1)]), torch.cat([y, waves.reshape(-1)]), task


def network(name: str, model: str) -> Any:
    return (REGRESSION | STACKS).get(name, MODELS[model]) if model == "module" else MODELS[model]


def likelihood(name: str) -> str:
    return "gaussian" if name in REGRESSION else "categorical"


def outputs(predictive: Any) -> Tensor:
    return predictive.means if predictive.family == "gaussian" else predictive.logits


def known(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that an entry has: a sampler has no epochs, pbp no learning rate."""
    has = {f.name for f in dataclasses.fields(bc.POSTERIORS[name])}
    return {k: v for k, v in options.items() if k in has}


def small(name: str) -> dict[str, Any]:
    return OPTIONS.get(name) or known(name, SMALL)


def fit(name: str, model: str = "mlp", **extra: Any) -> bc.Fitted:
    options = small(name) | extra
    rows: Any = with_tasks(name, *data(name))
    return bc.fit(name, network(name, model), rows, likelihood=likelihood(name), **options)


def same(a: Any, b: Any) -> bool:
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)


def same_weights(a: bc.Ensemble, b: bc.Ensemble) -> bool:
    if a.log_weights is None or b.log_weights is None:
        return a.log_weights is b.log_weights
    return torch.equal(a.log_weights, b.log_weights)


@contextmanager
def untouched(*modules: Any) -> Iterator[None]:
    """The global generator, the modules' tensors and their hooks are afterwards what they were before."""
    nets = [m for m in modules if isinstance(m, nn.Module)]
    generator, before = torch.get_rng_state(), [copy.deepcopy(net.state_dict()) for net in nets]
    was_training = [net.training for net in nets]
    yield
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(same(net.state_dict(), old) for net, old in zip(nets, before, strict=True))
    assert [net.training for net in nets] == was_training
    assert not any(part._forward_hooks or part._forward_pre_hooks for net in nets for part in net.modules())


def conjugate() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows and targets of a linear model, and the mean and precision of its posterior."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(25, 3, generator=g, dtype=torch.float64)
    x[:, 1:] += 0.8 * x[:, :-1]
    y = x @ torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)
    y = y + NOISE * torch.randn(25, generator=g, dtype=torch.float64)
    precision = x.T @ x / NOISE**2 + torch.eye(3, dtype=torch.float64) / TAU**2
    return x, y, torch.linalg.solve(precision, x.T @ y / NOISE**2), precision


def effective(fitted: bc.Fitted, ensemble: bc.Ensemble) -> float:
    """As how many independent draws of equal weight the members count: by their weights, and by what the fit says."""
    size = mixtures.effective_size(ensemble.log_weights, ensemble.n_members)
    values = fitted.diagnostics.values
    return min(size, values.get("ess", size), values.get("ess_bulk_weights", size))


def weights_drawn(name: str, n: int) -> tuple[Tensor, Tensor | None, float]:
    """The weights of at most n members, read off as what they say to unit vectors, so that it is the same for all:
    [M, 3]; their log-weights as members, and as how many draws they count."""
    x, y, _, _ = conjugate()
    start = nn.Linear(3, 1, bias=False)
    start.weight.data.fill_(0.1)  # not wherever the global generator is: from some places Adam takes longer
    fitted = bc.fit(
        name,
        start,
        (x, y),
        likelihood=bc.Gaussian(noise=NOISE),
        prior=bc.Normal(scale=TAU),
        standardise=False,
        **(known(name, TO_THE_END) | LINEAR.get(name, {})),
    )
    ensemble = fitted.sample(n, seed=1)
    assert ensemble.n_members <= n
    predictive = ensemble.predict(torch.eye(3, dtype=torch.float64))
    return predictive.means, predictive.log_weights, effective(fitted, ensemble)


@pytest.mark.parametrize("name", [name for name in NAMES if bc.POSTERIORS[name].aims != "none"])
def test_draws_on_a_conjugate_problem_are_what_the_entry_aims_at(name: str) -> None:
    _, _, mean, precision = conjugate()
    exact, factorised = torch.linalg.inv(precision), torch.diag(1 / precision.diagonal())
    assert float((exact.diagonal() / factorised.diagonal()).min()) > 1.3  # the two aims cannot be taken for each other
    covariance = exact if bc.POSTERIORS[name].aims == "exact" else factorised
    drawn, log_weights, size = weights_drawn(name, 20_000)
    assert size >= 1000, f"{name} has to draw more here: see LINEAR"
    sd = covariance.diagonal().sqrt()
    found = mixtures.member_average(drawn, log_weights)
    assert bool(((found - mean).abs() < 5 * sd / size**0.5).all())
    apart = mixtures.deviations(drawn, log_weights)
    spread = mixtures.member_average(apart[:, :, None] * apart[:, None], log_weights)
    units = sd[:, None] * sd
    torch.testing.assert_close(spread / units, covariance / units, rtol=0, atol=5 * (2 / size) ** 0.5)


@pytest.mark.parametrize("name", [name for name in NAMES if bc.POSTERIORS[name].aims == "none"])
def test_an_entry_that_aims_at_nothing_is_the_map_of_a_linear_model_or_has_a_test_of_its_own(name: str) -> None:
    if name not in AT_THE_MAP:
        assert name in OF_ITS_OWN, f"add {name!r} to AT_THE_MAP or, as 'family.test_file:test_name', to OF_ITS_OWN"
        assert callable(resolve_name(f"tests.core.posteriors.{OF_ITS_OWN[name]}"))
        return
    _, _, mean, _ = conjugate()
    drawn, _, _ = weights_drawn(name, 5)
    torch.testing.assert_close(drawn, mean.expand_as(drawn), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_members_disagree_more_off_the_data_than_on_it(name: str) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, generator=g) * 2 - 1
    y = torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(60, generator=g)
    options = known(name, {"epochs": 60, "batch_size": 20}) if name != "pbp" else {"epochs": 5}
    options |= SPREAD.get(name, {})
    rows = with_other_waves(x, y) if getattr(bc.POSTERIORS[name], "needs_tasks", False) else (x, y)
    ensemble = bc.fit(name, {"name": "mlp", "hidden": [20]}, rows, likelihood="gaussian", **options).sample(30)
    if name in POINTS:
        assert ensemble.n_members == 1
        return
    off = torch.cat([torch.linspace(-4, -2.5, 20), torch.linspace(2.5, 4, 20)])[:, None]
    on = ensemble.predict(x).epistemic_variance().mean()
    assert float(on) > 0
    assert float(ensemble.predict(off).epistemic_variance().mean()) > 2 * float(on)


@pytest.mark.parametrize("name", NAMES)
def test_members_run_at_once_as_they_run_one_after_another(name: str) -> None:
    ensemble, x = fit(name).sample(4), data()[0]
    plans = [Plan(mode="vmap", rows=32), Plan(mode="loop", rows=32)]
    batched, loop = (outputs(dataclasses.replace(ensemble, stored_plan=p).predict(x)) for p in plans)
    torch.testing.assert_close(batched, loop, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_handed_in_stays_as_it_was(name: str, model: str) -> None:
    net, (x, y) = network(name, model), data(name)
    before = x.clone(), y.clone()
    with untouched(net):
        rows: Any = with_tasks(name, x, y)
        fitted = bc.fit(name, net, rows, likelihood=likelihood(name), **small(name))
        state = copy.deepcopy(dict(fitted.state))
        fitted.sample(3).predict(x)
        fitted.update((x[:5], y[:5]))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert same(fitted.state, state)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_a_frozen_dataclass_that_declares_itself(name: str) -> None:
    kind = bc.POSTERIORS[name]
    entry = kind()
    fields = {f.name: f for f in dataclasses.fields(kind)}
    assert entry.name == name
    assert kind.aims in ("none", "mean_field", "exact")
    assert isinstance(kind.batches, bool)
    assert isinstance(kind.resumes, bool)
    assert isinstance(kind.starts_from_weights, bool)
    assert not any(f.startswith("__") for f in fields)
    assert all("description" in f.metadata for f in fields.values() if f.name != "name")
    assert entry.cost(1000) > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "other"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_fit_and_sample_are_functions_of_their_seeds(name: str, model: str) -> None:
    generator = torch.get_rng_state()
    first, second = fit(name, model, seed=5), fit(name, model, seed=5)
    assert same(first.state, second.state)
    a, b = first.sample(4, seed=1), first.sample(4, seed=1)
    assert same(a.stacked, b.stacked)
    assert same(a.shared, b.shared)
    assert same_weights(a, b)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_sampling_gives_as_many_members_as_the_method_has(name: str, model: str) -> None:
    fitted = fit(name, model)
    counts = [fitted.sample(n).n_members for n in (1, 2, 4)]
    assert counts == sorted(counts)
    assert all(count <= n for count, n in zip(counts, (1, 2, 4), strict=True))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_deterministic_finite_and_the_same_for_identical_rows(name: str, model: str) -> None:
    ensemble = fit(name, model).sample(4)
    x = data()[0][:1].expand(40, 4)
    found = outputs(ensemble.predict(x))
    assert found.shape[:2] == (ensemble.n_members, 40)
    assert bool(found.isfinite().all())
    assert torch.equal(found, outputs(ensemble.predict(x)))
    # To rounding: a product may treat a row by its place in the block, as some processors' libraries do.
    torch.testing.assert_close(found, found[:, :1].expand_as(found), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_file_keeps_every_bit(name: str, model: str, tmp_path: Path) -> None:
    fitted, net = fit(name, model), network(name, model) if model == "module" else None
    fitted.save(tmp_path / "f")
    fitted.sample(3).save(tmp_path / "e")
    x, drawn = data()[0], fitted.sample(3)
    loaded = bc.load(tmp_path / "f", model=net)
    for again in (loaded.sample(3), bc.load(tmp_path / "e", model=net)):
        assert torch.equal(outputs(again.predict(x)), outputs(drawn.predict(x)))
        assert same_weights(again, drawn)
    assert loaded.diagnostics == fitted.diagnostics


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_an_entry_that_resumes_goes_on_bit_for_bit_and_one_that_is_cancelled_stops(name: str, model: str) -> None:
    kept: list[dict[str, Tensor]] = []

    def cancel(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        assert 0 < done <= total
        kept.append(snapshot())
        raise bc.Cancelled("stop")

    with untouched(network(name, model)), pytest.raises(bc.Cancelled):
        fit(name, model, report=cancel)
    assert len(kept) == 1
    if bc.POSTERIORS[name].resumes:
        stored = bc.load_tensors(bc.save_tensors(kept[0]))
        assert same(fit(name, model, resume=stored).state, fit(name, model).state)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_starts_from_the_state(name: str) -> None:
    fitted = fit(name)
    x, y = data(name)
    updated = fitted.update((x[:5], y[:5]))
    assert set(updated.state) == set(fitted.state)
    assert not same(updated.state, fitted.state)


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(bc.POSTERIORS[name], "update")])
def test_an_update_with_one_row_hardly_moves_a_noise_that_a_hundred_rows_have_taught(name: str) -> None:
    """The others are fitted to all rows again."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(101, 2, generator=g)
    y = x @ torch.tensor([1.0, -0.5]) + 0.5 * torch.randn(101, generator=g)
    wanted = {"epochs": 40 if known(name, {"lr": 0.1}) else 3, "batch_size": 20, "lr": 0.1}
    options = known(name, wanted)
    fitted = bc.fit(name, nn.Linear(2, 1), (x[:100], y[:100]), likelihood="gaussian", **options)
    updated = fitted.update((x[100:], y[100:]))
    before, after = (float(f.sample(1).predict(x[:1]).variances[0, 0]) ** 0.5 for f in (fitted, updated))
    assert before == pytest.approx(0.5, rel=0.1)
    assert after == pytest.approx(before, rel=0.03)


@pytest.mark.parametrize("prior", [bc.DoubleExponential(scale=0.5), bc.StudentT(df=3.0)], ids=["l1", "t"])
@pytest.mark.parametrize("name", NAMES)
def test_an_entry_takes_any_prior_or_refuses_it_before_any_work(name: str, prior: Any, tmp_path: Path) -> None:
    kind = bc.Gaussian() if name in REGRESSION else bc.Categorical(n_classes=3)
    try:
        bc.check(name, MODELS["mlp"], likelihood=kind, input_shape=[4], prior=prior)
    except bc.InvalidOption:
        with pytest.raises(bc.InvalidOption, match=r"Normal|functions"):
            fit(name, prior=prior)
        return
    fitted = fit(name, prior=prior)
    assert not same(fitted.state, fit(name).state)  # it makes a difference
    fitted.save(tmp_path / "f")
    loaded = bc.load(tmp_path / "f")
    assert loaded.problem.prior == prior
    assert bool(outputs(loaded.sample(2).predict(data()[0])).isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_stays_double(name: str) -> None:
    x, y = data(name)
    rows: Any = with_tasks(name, x.double(), y)
    fitted = bc.fit(name, MODELS["mlp"], rows, likelihood=likelihood(name), **small(name))
    assert outputs(fitted.sample(2).predict(x.double())).dtype == torch.float64


@pytest.mark.parametrize("name", [name for name in NAMES if known(name, {"epochs": 0})])
def test_a_module_starts_from_its_weights_where_the_entry_says_so(name: str) -> None:
    net = nn.Linear(4, 1 if name in REGRESSION else 3)
    fitted = bc.fit(name, net, data(name), likelihood=likelihood(name), **(small(name) | {"epochs": 0}))
    state = fitted.state
    if isinstance(fitted.posterior, Unfolds):
        state = fitted.posterior.unfold(fitted.problem, state)
    kept = "weight" in state and torch.equal(state["weight"][0], net.weight.detach())
    assert kept == bc.POSTERIORS[name].starts_from_weights


def test_pydantic_reads_the_bounds_from_the_same_dataclasses() -> None:
    union: Any = Annotated[Union[tuple(bc.POSTERIORS.values())], Discriminator("name")]  # noqa: UP007
    adapter: TypeAdapter[Any] = TypeAdapter(union)
    schema = adapter.json_schema()
    assert set(schema["discriminator"]["mapping"]) == set(NAMES)
    members = schema["$defs"]["DeepEnsemble"]["properties"]["members"]
    assert (members["minimum"], members["maximum"], members["default"]) == (1, 1000, 5)
    assert schema["$defs"]["DeepEnsemble"]["additionalProperties"] is False
    made = adapter.validate_python({"name": "deep_ensemble", "members": 3, "epochs": 2})
    assert made == bc.DeepEnsemble(members=3, epochs=2)
    for wrong in ({"members": 0}, {"lr": float("inf")}, {"memers": 1}):
        with pytest.raises(ValidationError):
            adapter.validate_python({"name": "deep_ensemble", **wrong})


def test_pydantic_reads_the_models_too() -> None:
    union: Any = Annotated[Union[tuple(bc.MODELS.values())], Discriminator("name")]  # noqa: UP007
    adapter: TypeAdapter[Any] = TypeAdapter(union)
    made = adapter.validate_python({"name": "mlp", "hidden": [128, 128]})
    assert made.hidden == (128, 128)
    with pytest.raises(ValidationError):
        adapter.validate_python({"name": "mlp", "hidden": [0]})
