"""What a method cannot do is refused before any work, by `check` without rows and by `fit` with the same words."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.members import layers_called
from bensemble_core.models import named_model
from bensemble_core.models.spec import adopt, outline
from bensemble_core.types import Checks

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
    if method == "pbp":
        bc.check(method, {"name": "mlp"}, likelihood="gaussian", input_shape=shape)
    else:
        bc.check(method, {"name": model}, likelihood=bc.Categorical(n_classes=3), input_shape=shape)
        bc.check(method, {"name": model}, likelihood="gaussian", input_shape=shape, n_targets=2)


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
