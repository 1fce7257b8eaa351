"""What a method cannot do is refused before any work, by `check` without rows and by `fit` with the same words."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import layers_called
from bensemble_core.models import named_model
from bensemble_core.models.spec import adopt, outline
from bensemble_core.types import Checks
from tests.contracts.test_posteriors import REGRESSION, known, small

MLP: dict[str, Any] = {"name": "mlp", "hidden": [5]}
FROZEN = nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.ReLU(), nn.Linear(3, 2).requires_grad_(False))


class Sequences(nn.Module):
    """Rows on the second axis inside."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.mix(x.expand(3, *x.shape)).mean(0))
        return out


class Scale(nn.Module):
    """No layer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2] * self.scale


UNSUITABLE: list[tuple[str, Any, str, dict[str, Any], str]] = [  # method, model, likelihood, options, what is said
    ("pbp", MLP, "categorical", {}, 'pbp is for regression .* use likelihood="gaussian"'),
    ("pbp", MLP, "heteroscedastic_gaussian", {}, "got HeteroscedasticGaussian"),
    ("pbp", {"name": "mlp", "activation": "tanh"}, "gaussian", {}, "a Tanh at place 3"),
    ("pbp", MLP, "gaussian", {"prior": None}, "pbp needs a prior=Normal"),
    ("laplace", {"name": "mlp", "hidden": [100, 100]}, "gaussian", {"structure": "full"}, "at most 5,000 .* 10,701"),
    ("laplace", MLP, "gaussian", {"prior": None}, "has no prior precision"),
    ("laplace", MLP, "categorical", {"noise": "marglik"}, "learn_noise=True"),
    ("laplace", Scale(), "categorical", {"subset": "last_layer"}, "needs a linear layer"),
    ("laplace", FROZEN, "categorical", {}, "unfreeze some"),
    ("mfvi", MLP, "gaussian", {"prior": None}, "mfvi weighs the likelihood against a prior"),
    ("renyi", FROZEN, "categorical", {}, "no weight is left to have a distribution"),
    ("renyi", MLP, "gaussian", {"alpha": 1e308}, 'alpha="max" is the limit'),
    ("renyi", {"name": "mlp", "hidden": [100, 100]}, "gaussian", {"samples": 100_000}, "pass samples=25,085 or fewer"),
    ("mfvi", {"name": "mlp", "hidden": [100, 100]}, "gaussian", {"samples": 100_000}, "at one time"),
    ("map", FROZEN, "categorical", {}, "map: every parameter of the module is frozen"),
    ("deep_ensemble", FROZEN, "categorical", {}, "is frozen"),
    ("snapshot_ensemble", FROZEN, "categorical", {}, "is frozen"),
    ("mc_dropout", FROZEN, "categorical", {}, "is frozen"),
    ("swa", FROZEN, "categorical", {}, "is frozen"),
    ("swag", FROZEN, "categorical", {}, "is frozen"),
    ("multi_swag", FROZEN, "categorical", {}, "is frozen"),
    ("swa", MLP, "gaussian", {"patience": 3}, "drop patience"),
    ("swag", MLP, "gaussian", {"epochs": 20}, "got rank 20 and 10 .* at least 40 epochs"),
    ("multi_swag", MLP, "gaussian", {"rank": 1}, "at least 2"),
    ("snapshot_ensemble", MLP, "gaussian", {"members": 7}, "members is at most cycles"),
    ("deep_ensemble", MLP, "gaussian", {"anchored": True, "prior": None}, "anchors are drawn from the prior"),
    ("mc_dropout", Scale(), "categorical", {}, "this module calls none"),
    ("mc_dropout", MLP, "gaussian", {"learn_rates": True, "kind": "gaussian"}, "learnt of Bernoulli masks"),
    ("batch_ensemble", Scale(), "categorical", {}, "this module calls none"),
    ("batch_ensemble", Sequences(), "categorical", {}, "does not keep rows on the first axis"),
    ("rank1_bnn", Sequences(), "categorical", {}, "does not keep rows on the first axis"),
    ("rank1_bnn", MLP, "gaussian", {"components": 3}, "pass members=6"),
]


@pytest.mark.parametrize(("method", "model", "likelihood", "extra", "words"), UNSUITABLE)
def test_what_does_not_suit_is_refused_by_check_and_by_fit_alike(
    method: str, model: Any, likelihood: str, extra: dict[str, Any], words: str
) -> None:
    classes = likelihood == "categorical"
    y = torch.tensor([0, 1] * 5) if classes else torch.arange(10.0)
    known: Any = bc.Categorical(n_classes=2) if classes else likelihood
    heard: list[int] = []
    with pytest.raises((bc.InvalidOption, bc.InvalidModel), match=words) as by_fit:
        bc.fit(
            method,
            model,
            (torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), y),
            likelihood=known,
            report=lambda done, *_: heard.append(done),
            **extra,
        )
    assert heard == []
    with pytest.raises(type(by_fit.value), match=words) as by_check:
        bc.check(method, model, likelihood=known, input_shape=[4], **extra)
    assert str(by_check.value) == str(by_fit.value)


@pytest.mark.parametrize("method", [name for name, kind in bc.POSTERIORS.items() if issubclass(kind, Checks)])
@pytest.mark.parametrize("model", ["mlp", "conv", "residual"])
def test_what_suits_passes(method: str, model: str) -> None:
    shape = [1, 6, 6] if model != "mlp" else [4]
    if method in REGRESSION:
        bc.check(method, {"name": "mlp"}, likelihood="gaussian", input_shape=shape)
    elif method == "bbvi":  # for up to 500 weights
        bc.check(method, {"name": "mlp", "hidden": [8]}, likelihood="gaussian", input_shape=shape)
    elif method in ("hvi", "sivi", "uivi", "hmc", "sgld", "sghmc", "metropolis", "annealing"):  # not for large networks
        trunk = {"map_epochs": 5} if method == "annealing" else {}
        bc.check(method, {"name": model}, likelihood="gaussian", input_shape=shape, subset="last_layer", **trunk)
    elif method == "ris" and model != "mlp":
        with pytest.raises(bc.InvalidModel, match="use mfvi"):
            bc.check(method, {"name": model}, likelihood="gaussian", input_shape=shape)
    else:
        if method != "neural_process":
            bc.check(method, {"name": model}, likelihood=bc.Categorical(n_classes=3), input_shape=shape)
        bc.check(method, {"name": model}, likelihood="gaussian", input_shape=shape, n_targets=2)


@pytest.mark.parametrize("method", ["map", "snapshot_ensemble", "mc_dropout", "swa"])
def test_frozen_weights_are_taken_as_they_are(method: str) -> None:
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    members = bc.fit(method, FROZEN, (x, torch.arange(10) % 2), likelihood="categorical", epochs=0).sample(1)
    tensors = {**members.shared, **{k: v[0] for k, v in members.stacked.items()}}
    assert torch.equal(tensors["0.weight"], FROZEN[0].weight)


class Curved(nn.Module):
    """A layer whose weight is computed from others, and one that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(5, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.first(x)))
        return out


@pytest.mark.parametrize("module", [Curved(), Scale()])
@pytest.mark.parametrize("structure", ["kron", "diag", "full"])
def test_laplace_takes_modules_without_a_layer_of_their_own(module: nn.Module, structure: str) -> None:
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    options: dict[str, Any] = {"structure": structure, "epochs": 2, "predictive": "sampled"}
    fitted = bc.fit("laplace", module, (x, torch.arange(12) % 2), likelihood="categorical", **options)
    assert bool(fitted.sample(3).predict(x).logits.isfinite().all())
    if structure == "diag":  # by automatic differentiation alone
        expected = curvature_by_hand(fitted, x)
        found = fitted.posterior.variances(fitted.problem, fitted.state)  # type: ignore[attr-defined]
        for name, precision in expected.items():
            torch.testing.assert_close(found[name], 1 / precision)


def curvature_by_hand(fitted: bc.Fitted, x: Tensor) -> dict[str, Tensor]:
    """1 + Σ_n Σ_c p_c (∂ log p_c/∂θ)² of each parameter."""
    module = fitted.problem.model.skeleton().double().eval()
    tensors = {k: v[0].detach() for k, v in fitted.state.items() if not k.startswith("laplace/")}
    names = [name for name, _ in module.named_parameters()]
    total = {name: torch.ones_like(tensors[name]) for name in names}
    assert fitted.problem.scaling is not None
    for row in fitted.problem.scaling(x):
        for c in range(2):

            def log_p(own: dict[str, Tensor], row: Tensor = row, c: int = c) -> Tensor:
                outputs: Tensor = torch.func.functional_call(module, {**tensors, **own}, (row[None],))
                return torch.log_softmax(outputs, -1)[0, c]

            own = {name: tensors[name] for name in names}
            slopes = torch.func.grad(log_p)(own)
            weight = log_p(own).exp()
            total = {name: total[name] + weight * slopes[name].square() for name in names}
    return total


@pytest.mark.parametrize("method", [*bc.POSTERIORS])
def test_parametrised_layers_are_fitted_or_refused_with_advice(method: str) -> None:
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
    options: dict[str, Any] = known(method, {"epochs": 2}) or small(method)
    options |= {"swag": {"rank": 0}, "multi_swag": {"rank": 0}, "snapshot_ensemble": {"cycles": 2}}.get(method, {})
    try:
        bc.fit(method, Curved(), (x, y), likelihood="categorical", **options).sample(2).predict(x)
    except bc.BensembleError as refused:
        advice = {"ris": "use mfvi", "mnf": "use mfvi"}.get(method, "use predictive")
        assert method in REGRESSION or advice in str(refused)  # noqa: PT017


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        old = nn.utils.weight_norm(nn.Linear(4, 2))  # its weight is the result of an operation, which has no copy
    with torch.enable_grad():
        old(torch.zeros(1, 4))
    with pytest.raises(bc.InvalidModel, match=r"torch\.nn\.utils\.parametrizations"):
        bc.check("map", old, likelihood="categorical", input_shape=[4])


def test_a_network_too_large_to_allocate_is_refused_all_the_same() -> None:
    wide = {"name": "mlp", "hidden": [60_000, 60_000, 60_000]}
    generator = torch.get_rng_state()
    with pytest.raises(bc.InvalidOption, match="these are 7,200,480,001"):
        bc.check("laplace", wide, likelihood="gaussian", input_shape=[4], structure="full")
    with pytest.raises(bc.InvalidModel, match="one output, got 3"):
        bc.check("pbp", wide, likelihood="gaussian", input_shape=[4], n_targets=3)
    for method in ("batch_ensemble", "laplace", "mc_dropout", "mfvi", "swag"):
        bc.check(method, wide, likelihood="gaussian", input_shape=[4])
    assert torch.equal(torch.get_rng_state(), generator)


def test_an_outline_has_the_names_and_shapes_of_the_network_and_no_numbers() -> None:
    model = named_model({"name": "residual"}, [1, 6, 6], 3)
    drawn, built = outline(model), model.skeleton()
    assert {p.device.type for p in (*drawn.parameters(), *drawn.buffers())} == {"meta"}
    assert [(n, p.shape) for n, p in drawn.named_parameters()] == [(n, p.shape) for n, p in built.named_parameters()]
    own = adopt(Sequences(), (4,), dtype=torch.float32)
    assert {p.device.type for p in outline(own).parameters()} == {"cpu"}


def test_layers_are_found_in_the_order_in_which_they_run() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.idle, self.first = nn.Linear(3, 2), nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.first(x))
            return out

    model = adopt(Backwards(), (4,), dtype=torch.float64)
    problem = bc.Problem(model=model, likelihood=bc.Categorical(n_classes=2), prior=None, dtype=torch.float64)
    assert layers_called(problem) == ("first", "last")


def test_check_needs_to_know_the_classes_and_takes_rows_of_indices() -> None:
    with pytest.raises(bc.InvalidData, match=r"n_classes=…"):
        bc.check("map", MLP, likelihood="categorical", input_shape=[4])
    words = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 2))
    bc.check("laplace", words, likelihood="categorical", input_shape=[4], structure="diag")
    with pytest.raises(bc.InvalidData, match="drop adversarial"):
        bc.check("deep_ensemble", words, likelihood="categorical", input_shape=[4], adversarial=0.1)


def test_an_update_refuses_what_its_new_options_do_not_allow() -> None:
    x, y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20.0)
    fitted = bc.fit("swag", MLP, (x, y), likelihood="gaussian", epochs=8, rank=2)
    with pytest.raises(bc.InvalidOption, match="rank is at most the number of collected weights"):
        fitted.update((x, y), rank=20)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("hmc", {"chains": 10_000, "samples": 1}),
        ("sivi", {"mixing": 100_000, "samples": 10_000}),
        ("uivi", {"draws": 1_000, "samples": 10_000, "rank": 1_000}),
        ("mnf", {"flow_hidden": 10_000, "flow_steps": 100}),
        ("neural_process", {"tasks": 10_000, "rows": 10_000}),
    ],
)
def test_a_step_that_no_memory_holds_is_refused_before_any_work(method: str, options: dict[str, Any]) -> None:
    model = {"name": "mlp", "hidden": [128, 128]}
    with pytest.raises(bc.InvalidOption, match=r"holds .* at one time"):
        bc.check(method, model, likelihood="gaussian", input_shape=[64], **options)


def test_a_batch_that_no_memory_holds_is_refused_too() -> None:
    x = torch.zeros(3000, 2)
    options: dict[str, Any] = {"samples": 10_000, "batch_size": 1_000_000}
    with pytest.raises(bc.InvalidOption, match="ris holds the draws of a layer"):
        bc.fit("ris", {"name": "mlp", "hidden": [64]}, (x, x[:, 0]), likelihood="gaussian", **options)
