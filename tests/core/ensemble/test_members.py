"""The plan: which networks run batched, member by member or with channels last, and the same numbers from each."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import Plan
from bensemble_core.models import named_model

CONV = {"name": "conv", "channels": [4, 6], "hidden": 8}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ensemble(model: Any, *shape: int, members: int = 3) -> Ensemble:
    x = draw(20, *shape)
    y = torch.arange(20) % 3
    return bc.fit("deep_ensemble", model, (x, y), likelihood="categorical", epochs=1, members=members).sample(members)


def test_small_perceptrons_run_batched_and_large_ones_member_by_member() -> None:
    small = ensemble({"name": "mlp", "hidden": [16]}, 6)
    assert small.plan.mode == "vmap"
    large = ensemble({"name": "mlp", "hidden": [600, 600]}, 6)  # 1.5 MB a member
    assert large.plan == Plan(mode="loop", rows=512)
    x = draw(700, 6, seed=1)
    batched = replace(large, stored_plan=Plan(mode="vmap", rows=512)).predict(x).logits
    torch.testing.assert_close(large.predict(x).logits, batched, rtol=1e-5, atol=1e-6)


def test_perceptrons_member_by_member_are_the_modules_themselves() -> None:
    net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4, bias=False), nn.Tanh(), nn.Linear(4, 3))
    x = draw(40, 5)
    fitted = bc.fit("map", net, (x, torch.arange(40) % 3), likelihood="categorical", epochs=0)
    looped = replace(fitted.sample(1), stored_plan=Plan(mode="loop", rows=64))
    kept = x.clone()
    torch.testing.assert_close(looped.predict(x).logits[0], net(x), rtol=1e-6, atol=1e-6)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("model", [CONV, {"name": "residual", "width": 4, "blocks": 1}])
def test_images_run_member_by_member_with_channels_last(model: dict[str, Any]) -> None:
    members = ensemble(model, 2, 9, 9)
    assert (members.plan.mode, members.plan.layout) == ("loop", "channels_last")
    x = draw(70, 2, 9, 9, seed=1)
    plain = replace(members, stored_plan=replace(members.plan, layout="contiguous")).predict(x).logits
    torch.testing.assert_close(members.predict(x).logits, plain, rtol=1e-5, atol=1e-5)


def test_a_block_of_images_has_eight_megabytes_of_the_widest_layer() -> None:
    small, large, huge = (
        ensemble({"name": "conv", "channels": [32], "hidden": 4}, 1, size, size) for size in (8, 32, 128)
    )
    assert [members.plan.rows for members in (small, large, huge)] == [512, 64, 32]  # 8 KB, 128 KB and 2 MB an image


def test_a_row_of_images_keeps_its_bits_whatever_follows_it() -> None:
    members = ensemble(CONV, 2, 9, 9)
    block = members.plan.rows
    x = draw(2 * block + 6, 2, 9, 9, seed=1)
    whole = members.predict(x).logits
    for n in (1, block - 1, block + 1):
        assert torch.equal(members.predict(x[:n]).logits, whole[:, :n])


def test_a_network_that_views_its_images_keeps_the_plain_layout() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 4, 3), nn.Linear(4 * 7 * 7, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.conv(x).view(x.shape[0], -1))  # type: ignore[no-any-return]

    members = ensemble(Viewing(), 2, 9, 9)
    assert (members.plan.mode, members.plan.layout) == ("loop", "contiguous")
    assert members.predict(draw(5, 2, 9, 9)).logits.shape == (3, 5, 3)


def test_the_plan_is_kept_in_the_file_and_files_without_a_layout_are_plain() -> None:
    members = ensemble(CONV, 2, 9, 9)
    header, tensors = members.to_tensors()
    assert Ensemble.from_tensors(header, tensors).plan == members.plan
    old = {**header, "plan": {"mode": "loop", "rows": 64}}
    assert Ensemble.from_tensors(old, tensors).plan == Plan(mode="loop", rows=64, layout="contiguous")


def test_pooling_before_a_relu_gives_the_bits_of_pooling_after_it() -> None:
    net = named_model(CONV, (2, 9, 9), 3).skeleton()
    x = draw(6, 2, 9, 9)
    layers = dict(net.named_children())
    h = x
    for i in (1, 2):
        h = layers[f"pool{i}"](layers[f"act{i}"](layers[f"conv{i}"](h)))
    by_hand = layers["linear2"](layers["act"](layers["linear1"](h.flatten(1))))
    assert torch.equal(net(x), by_hand)
