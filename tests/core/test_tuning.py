"""Searching settings: against optima that are known in closed form; the same seed, the same answer."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.randomness import permutation
from bensemble_core.training import descent as training
from bensemble_core.tuning import _SPLIT
from bensemble_core.types import Aim, Snapshot, Tensors

GAUSSIAN: dict[str, Any] = {"likelihood": bc.Gaussian(noise=1.0), "fit_options": {"standardise": False}}
SCALE = {"prior.scale": ("log", 0.01, 100.0)}


@dataclass(frozen=True, kw_only=True)
class Ridge:
    """Least squares with noise 1 in closed form: a method whose best setting can be computed."""

    name: str = "ridge"
    jitter: float = field(default=0.0, metadata={"description": "added to the diagonal"})
    aims: ClassVar[Aim] = "none"
    batches: ClassVar[bool] = False
    resumes: ClassVar[bool] = False
    starts_from_weights: ClassVar[bool] = False

    def fit(self, problem: bc.Problem, data: bc.Data, **_: Any) -> dict[str, Tensor]:
        assert isinstance(problem.prior, bc.Normal)
        x, y, precision = data.x, data.y, problem.prior.scale**-2 + self.jitter
        weight = torch.linalg.solve(x.T @ x + precision * torch.eye(x.shape[1]).double(), x.T @ y)
        evidence = log_evidence(x, y[:, 0], precision**-0.5)
        return {"weight": weight.T[None], "evidence": torch.tensor([evidence], dtype=torch.float64)}

    def sample(self, problem: bc.Problem, state: Tensors, n: int, *, rng: torch.Generator) -> bc.Ensemble:
        return bc.Ensemble(problem=problem, stacked={"weight": state["weight"]})

    def cost(self, n_parameters: int) -> int:
        return n_parameters

    def log_evidence(self, problem: bc.Problem, state: Tensors) -> float:
        return float(state["evidence"])


def log_evidence(x: Tensor, y: Tensor, scale: float) -> float:
    covariance = torch.eye(len(x)).double() + scale**2 * x @ x.T
    return float(torch.distributions.MultivariateNormal(torch.zeros(len(x)).double(), covariance).log_prob(y))


def regression(n: int = 40, d: int = 8, scale: float = 0.3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(5)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    return x, x @ (scale * torch.randn(d, generator=g, dtype=torch.float64)) + torch.randn(
        n, generator=g, dtype=torch.float64
    )


def classes() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g)
    return x, (x.sum(1) + 0.5 * torch.randn(60, generator=g) > 0).long()


def linear(d: int = 8) -> nn.Module:
    return nn.Linear(d, 1, bias=False).double()


def ridge_nll(x: Tensor, y: Tensor, scale: float, held: int, seed: int = 0) -> float:
    """Of the ridge solution with noise 1 on the rows that tune holds out."""
    order = permutation(len(x), seed, _SPLIT)
    train, test = order[held:], order[:held]
    gram = x[train].T @ x[train] + torch.eye(x.shape[1]).double() / scale**2
    w = torch.linalg.solve(gram, x[train].T @ y[train])
    return float(0.5 * (y[test] - x[test] @ w).square().mean() + 0.5 * math.log(2 * math.pi))


def test_the_chosen_prior_scale_is_as_good_as_the_best_of_a_fine_grid() -> None:
    x, y = regression()
    tuned = bc.tune(Ridge(), linear(), (x, y), search=SCALE, trials=20, **GAUSSIAN)
    grid = [ridge_nll(x, y, 10 ** (-2 + i / 50), 8) for i in range(201)]
    assert max(grid) - min(grid) > 0.1  # it matters what is chosen
    assert tuned.value == pytest.approx(min(grid), abs=2e-3)
    for trial in tuned.trials:
        assert trial.value == pytest.approx(ridge_nll(x, y, trial.settings["prior.scale"], 8), abs=1e-10)
    assert tuned.value == min(t.value for t in tuned.trials if t.value is not None)
    assert tuned.trials[0].settings == {"prior.scale": 1.0}  # the setting handed in comes first


def test_the_winner_is_fitted_to_all_rows() -> None:
    x, y = regression()
    tuned = bc.tune(Ridge(), linear(), (x, y), search={**SCALE, "jitter": ("linear", 0, 1)}, trials=8, **GAUSSIAN)
    scale, jitter = tuned.settings["prior.scale"], tuned.settings["jitter"]
    expected = torch.linalg.solve(x.T @ x + (scale**-2 + jitter) * torch.eye(8).double(), x.T @ y)
    torch.testing.assert_close(tuned.fitted.state["weight"][0, 0], expected, rtol=0, atol=1e-12)
    assert tuned.fitted.problem.prior == bc.Normal(scale=scale)
    assert tuned.posterior == tuned.fitted.posterior == Ridge(jitter=jitter)


def test_the_evidence_chooses_without_holding_rows_out() -> None:
    x, y = regression()
    tuned = bc.tune(Ridge(), linear(), (x, y), metric="log_evidence", search=SCALE, trials=20, **GAUSSIAN)
    best = max(log_evidence(x, y, 10 ** (-2 + i / 50)) for i in range(201))
    assert tuned.value == pytest.approx(best, abs=0.02)
    assert tuned.value == pytest.approx(log_evidence(x, y, tuned.settings["prior.scale"]), abs=1e-10)


def test_the_evidence_of_laplace_is_that_of_the_linear_model() -> None:
    x, y = regression()
    tuned = bc.tune(
        bc.Laplace(structure="full", batch_size=1000, epochs=250, lr=0.03),
        linear(),
        (x, y),
        metric="log_evidence",
        search={"prior.scale": ("log", 0.1, 10.0)},
        trials=4,
        **GAUSSIAN,
    )
    for trial in tuned.trials:
        assert trial.value == pytest.approx(log_evidence(x, y, trial.settings["prior.scale"]), abs=1e-4)
    assert tuned.value == max(t.value for t in tuned.trials if t.value is not None)


def test_without_a_search_the_declared_ranges_and_the_prior_are_searched() -> None:
    tuned = bc.tune(
        "mc_dropout", {"name": "mlp", "hidden": [4]}, classes(), likelihood="categorical", trials=3, epochs=2
    )
    assert set(tuned.settings) == {"lr", "rate", "prior.scale"}
    first = tuned.trials[0].settings
    assert (first["lr"], first["rate"], first["prior.scale"]) == (0.01, 0.1, 1.0)
    for trial in tuned.trials:
        assert 1e-4 <= trial.settings["lr"] <= 0.1
        assert 0.01 <= trial.settings["rate"] <= 0.5
    without = bc.tune("map", nn.Linear(3, 2), classes(), likelihood="categorical", trials=1, epochs=0)
    assert set(without.settings) == {"prior.scale"}  # a step that is never made needs no rate


def test_every_kind_of_setting_can_be_searched() -> None:
    tuned = bc.tune(
        "map",
        {"name": "mlp", "hidden": [4]},
        regression(),
        likelihood=bc.Gaussian(noise=0.5),
        search={
            "model.hidden": ("choice", [[2], [4], [3, 3]]),
            "likelihood.noise": ("log", 0.3, 3),
            "epochs": ("log", 1, 20),
            "schedule": ("choice", ["cosine", "constant"]),
            "momentum": ("linear", 0, 0.9),
        },
        trials=6,
        metric="crps",
    )
    first = tuned.trials[0].settings  # 100 epochs are outside the range, so they are drawn
    assert (first["model.hidden"], first["likelihood.noise"], first["schedule"]) == ([4], 0.5, "cosine")
    for trial in tuned.trials:
        assert isinstance(trial.settings["epochs"], int)
        assert trial.settings["model.hidden"] in ([2], [4], [3, 3])
    assert list(tuned.fitted.problem.model.to_json()["spec"]["hidden"]) == tuned.settings["model.hidden"]
    assert len({t.settings["likelihood.noise"] for t in tuned.trials}) == 6


def run(**extra: Any) -> bc.Tuned:
    options: dict[str, Any] = {"likelihood": "categorical", "trials": 5, "epochs": 3, "members": 2, "seed": 4}
    return bc.tune("deep_ensemble", {"name": "mlp", "hidden": [4]}, classes(), **options | extra)


def same(a: bc.Tuned, b: bc.Tuned) -> bool:
    state = all(torch.equal(a.fitted.state[k], b.fitted.state[k]) for k in a.fitted.state)
    return a.trials == b.trials and a.settings == b.settings and state


def test_same_seed_same_trials_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    assert same(run(), run())
    assert run().trials != run(seed=5).trials
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stop", [2, 8, 22])
def test_a_search_that_was_interrupted_ends_as_if_it_had_not_been(stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_QUIET_SECONDS", 1e9)  # a report an epoch, however slow the machine
    kept: list[dict[str, Tensor]] = []

    def interrupt(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        assert 0 <= done <= total
        kept.append(snapshot())
        if len(kept) == stop:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        run(report=interrupt)
    stored = bc.load_tensors(bc.save_tensors(kept[-1]))
    heard: list[str] = []
    resumed = run(resume=stored, report=lambda done, total, message, snapshot: heard.append(message))
    assert same(resumed, run())
    assert len(stored["values"]) > 0 or stop == 2
    assert not any(message.startswith("trial 1 ") for message in heard) or stop == 2
    with pytest.raises(bc.InvalidData, match="another search"):
        run(resume=stored, seed=9)
    with pytest.raises(bc.InvalidSnapshot, match="another search"):
        run(resume=stored, trials=9)  # the sampler begins to learn at another trial


@pytest.mark.parametrize("n_done", [1, 4, 5])
def test_trials_that_were_done_are_not_run_again_and_the_answer_is_the_same(n_done: int) -> None:
    whole = run()
    told: list[bc.Trial] = []
    heard: list[tuple[float, str]] = []

    def hear(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        heard.append((done / total, message))

    stored = json.loads(json.dumps([dataclasses.asdict(trial) for trial in whole.trials[:n_done]]))
    resumed = run(done=[bc.Trial(**trial) for trial in stored], on_trial=told.append, report=hear)
    assert same(resumed, whole)
    assert told == list(whole.trials[n_done:])
    assert [t.seconds for t in resumed.trials[:n_done]] == [t.seconds for t in whole.trials[:n_done]]
    assert all(t.seconds is not None and t.seconds > 0 for t in resumed.trials)
    assert [share for share, _ in heard] == sorted(share for share, _ in heard)
    assert (heard[0], heard[-1][0]) == ((n_done / 6, f"{n_done} of 5 trials were done before"), 1.0)
    trained = {int(message.split()[1]) for _, message in heard if message.startswith("trial ")}
    assert trained == set(range(n_done + 1, 6))
    with pytest.raises(bc.InvalidSnapshot, match="the one that was done has"):
        run(done=[bc.Trial(settings={"lr": 0.5}, value=1.0)])


def test_a_warm_start_is_of_the_last_fit_alone() -> None:
    """What was fitted before has seen the rows that the trials hold out."""
    before = bc.fit("map", {"name": "mlp", "hidden": [4]}, classes(), likelihood="categorical", epochs=50)
    options: dict[str, Any] = {"likelihood": "categorical", "trials": 2, "epochs": 3}
    fresh, warm = (
        bc.tune("map", {"name": "mlp", "hidden": [4]}, classes(), warm=start, **options) for start in (None, before)
    )
    assert fresh.trials == warm.trials
    expected = bc.fit(
        warm.posterior,
        {"name": "mlp", "hidden": [4]},
        classes(),
        likelihood="categorical",
        prior=warm.fitted.problem.prior,
        warm=before,
    )
    assert all(torch.equal(warm.fitted.state[k], expected.state[k]) for k in expected.state)
    assert not all(torch.equal(warm.fitted.state[k], fresh.fitted.state[k]) for k in expected.state)


def test_held_out_rows_are_measured_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(trials=2)
    monkeypatch.setattr(bc.tuning, "_ROWS_AT_ONCE", 5)  # 12 rows are held out
    heard: list[str] = []
    pieces = run(trials=2, report=lambda done, total, message, snapshot: heard.append(message))
    assert heard.count("trial 1 of 2: measuring") == 3
    for one, other in zip(whole.trials, pieces.trials, strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-6)


def test_a_trial_that_diverges_loses_and_is_recorded() -> None:
    x, y = regression()
    options: dict[str, Any] = {**GAUSSIAN, "optimiser": "sgd", "epochs": 40, "batch_size": 8, "trials": 6}
    tuned = bc.tune("map", linear(), (x, y), search={"lr": ("choice", [0.01, 50.0])}, lr=0.01, **options)
    assert tuned.settings == {"lr": 0.01}
    values = {t.settings["lr"]: t.value for t in tuned.trials}
    assert values[50.0] is None
    assert values[0.01] == tuned.value
    with pytest.raises(bc.NotFinite, match="all 6 trials"):
        bc.tune("map", linear(), (x, y), search={"lr": ("choice", [50.0, 60.0])}, **options)


def test_rows_of_ones_own_can_be_held_out_and_classes_seen_only_there_count() -> None:
    x, y = classes()
    own = (x[:10], y[:10])
    tuned = bc.tune(
        "map",
        {"name": "mlp", "hidden": [4]},
        (x[10:], y[10:]),
        likelihood="categorical",
        validation=own,
        trials=1,
        epochs=5,
        metric="accuracy",
    )
    fitted = bc.fit("map", {"name": "mlp", "hidden": [4]}, (x[10:], y[10:]), likelihood="categorical", epochs=5)
    assert tuned.value == bc.metrics.accuracy(fitted.sample(1).predict(own[0]), own[1])
    assert all(torch.equal(tuned.fitted.state[k], fitted.state[k]) for k in fitted.state)
    rare = y.clone()
    rare[permutation(60, 0, _SPLIT)[0]] = 2  # a class of one row, which is held out
    found = bc.tune("map", {"name": "mlp", "hidden": [4]}, (x, rare), likelihood="categorical", trials=1, epochs=1)
    assert found.fitted.problem.likelihood.n_outputs == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"search": {"rate": ("log", 0.1, 1.0)}}, "no 'rate' to search; map has epochs"),
        ({"search": {"lr": ("log", 0.0, 1.0)}}, "0 < low < high"),
        ({"search": {"lr": ("uniform", 0.1, 1.0)}}, "a range is"),
        ({"search": {"lr": ("log", 0.1, 1e9)}}, "lr is above 0 and at most 100"),
        ({"search": {"optimiser": ("choice", ["adam", "lion"])}}, "optimiser has to be one of"),
        ({"search": {"data.rows": ("linear", 1, 2)}}, "prior.…, likelihood.…, model.…"),
        ({"search": {"prior.scale": ("log", 0.1, 1.0)}, "prior": None}, "the prior is NoneType"),
        ({"search": {}}, "nothing to search"),
        ({"metric": "rmse"}, "nll, brier, ece, accuracy"),
        ({"metric": "log_evidence"}, "map has no log evidence"),
        ({"metric": "bound"}, "map has no bound"),
        ({"validation": 1.5}, "strictly between 0 and 1"),
        ({"trials": 0}, "at least 1 trial"),
    ],
)
def test_an_impossible_search_is_refused_before_any_work(wrong: dict[str, Any], message: str) -> None:
    def never(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        raise AssertionError("work was begun")

    with pytest.raises(bc.InvalidOption, match=message):
        bc.tune("map", {"name": "mlp", "hidden": [4]}, classes(), likelihood="categorical", report=never, **wrong)


@pytest.mark.parametrize("name", list(bc.POSTERIORS))
def test_declared_ranges_lie_within_the_bounds_and_pydantic_ignores_them(name: str) -> None:
    kind = bc.POSTERIORS[name]
    schema = TypeAdapter(kind).json_schema()
    assert not any("search" in option for option in schema["properties"].values())
    for option, (how, low, high) in bc.tuning._declared(kind()).items():
        assert how in ("log", "linear")
        assert low < high
        for end in (low, high):
            bc.options.make(kind, {option: end})


def test_of_several_tasks_the_one_that_is_predicted_is_held_out_from() -> None:
    x, task = torch.arange(30.0)[:, None], torch.arange(30) % 3
    rows = bc.Data(x=x, y=x[:, 0], task=task)
    train, held_out = bc.tuning._split(rows, 0.2, 0)
    assert held_out.task is not None
    assert held_out.task.tolist() == [0, 0]
    assert sorted([*train.y.tolist(), *held_out.y.tolist()]) == x[:, 0].tolist()
