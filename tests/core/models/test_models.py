"""Networks by name: shapes, parameter counts, helpful refusals."""

from typing import Any

import pytest
import torch
from torch import nn

import bensemble_core as bc
from bensemble_core.models import named_model

SPECS: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"name": "mlp", "hidden": [5, 3]}, (1, 8, 8)),
    ({"name": "mlp", "hidden": [], "activation": "tanh"}, (7,)),
    ({"name": "conv", "channels": [4, 6], "hidden": 9}, (2, 7, 5)),
    ({"name": "residual", "width": 4, "blocks": 1}, (3, 9, 9)),
]


@pytest.mark.parametrize(("spec", "shape"), SPECS)
def test_every_model_maps_rows_to_outputs_and_is_counted_without_being_built(
    spec: dict[str, Any], shape: tuple[int, ...]
) -> None:
    state = torch.get_rng_state()
    net = named_model(spec, shape, 3).skeleton()
    assert net(torch.zeros(2, *shape)).shape == (2, 3)
    assert bc.count_parameters(spec, shape, 3) == sum(p.numel() for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_default_residual_network_is_resnet20() -> None:
    net = named_model({"name": "residual"}, (3, 32, 32), 10).skeleton()
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 20
    assert bc.count_parameters({"name": "residual"}, [3, 32, 32], 10) == 269_722 + 16 * 32 + 32 * 64  # + 1×1 shortcuts
    assert convolutions[-1].out_channels == 64


def test_mlp_has_the_textbook_number_of_parameters() -> None:
    assert bc.count_parameters({"name": "mlp", "hidden": [128, 128]}, [64], 10) == 64 * 128 + 128 + 128 * 129 + 1290


@pytest.mark.parametrize("name", ["conv", "residual"])
def test_convolutions_on_flat_rows_say_what_shape_to_give(name: str) -> None:
    x, y = torch.zeros(4, 64), torch.tensor([0, 1, 0, 1])
    with pytest.raises(bc.InvalidModel, match=r"\[channels, height, width\]"):
        bc.fit("map", {"name": name}, (x, y), likelihood="categorical", epochs=1)
    bc.fit("map", {"name": name}, (x, y), likelihood="categorical", epochs=0, input_shape=(1, 8, 8))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "mpl"}, "unknown model 'mpl'; there are mlp, conv, residual, default"),
        ({"name": "mlp", "hiden": [3]}, "mlp has no option 'hiden'"),
        ({"name": "mlp", "hidden": [0]}, "from 1 to 65536, got 0"),
        ({"name": "mlp", "hidden": 12}, "hidden has to be a list of a whole number"),
        ({"name": "mlp", "activation": "sine"}, "activation has to be one of 'relu'"),
        ({"name": "residual", "width": 0}, "width is at least 1"),
        ({"name": "conv", "channels": []}, "channels is at least this many entries: 1"),
    ],
)
def test_bad_specs_are_named(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(bc.InvalidOption, match=words):
        named_model(spec, (1, 8, 8), 2)


def test_images_are_trained_one_member_after_another_on_a_cpu() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, 6, 6, generator=g)
    y = (x[:, 0, :3].mean((1, 2)) > x[:, 0, 3:].mean((1, 2))).long()
    for spec in ({"name": "conv", "channels": [6], "hidden": 16}, {"name": "residual", "width": 4, "blocks": 1}):
        ensemble = bc.fit("deep_ensemble", spec, (x, y), likelihood="categorical", members=2, epochs=25).sample(2)
        assert ensemble.plan.mode == "loop"
        assert (ensemble.predict(x).mean().argmax(1) == y).double().mean() > 0.9


def test_a_module_that_does_not_fit_the_rows_is_explained() -> None:
    x, y = torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])
    with pytest.raises(bc.InvalidModel, match=r"does not run on rows of shape \[3\]"):
        bc.fit("map", nn.Linear(5, 2), (x, y), likelihood="categorical")
    with pytest.raises(bc.InvalidModel, match=r"expected a tensor \[rows, outputs\]"):
        bc.fit("map", nn.Unflatten(1, (3, 1)), (x, y), likelihood="categorical")


def test_lazy_layers_take_their_shape_from_the_rows() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    x, y = torch.randn(6, 3), torch.tensor([0, 1] * 3)
    fitted = bc.fit("deep_ensemble", net, (x, y), likelihood="categorical", epochs=1)
    assert fitted.state["0.weight"].shape == (5, 4, 3)
