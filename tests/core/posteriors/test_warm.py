"""A warm start keeps the standardisation of the fit it goes on from, obeys what is asked, and takes any method's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from tests.contracts.test_posteriors import known, small, with_tasks

MLP: dict[str, Any] = {"name": "mlp", "hidden": [5]}
OPTIONS: dict[str, Any] = {"swag": {"rank": 0}, "multi_swag": {"rank": 0}, "snapshot_ensemble": {"cycles": 2}}


def rows(n: int = 30, d: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    return x, 3 * x[:, 0] + 10


def test_another_kind_of_likelihood_is_refused() -> None:
    x, y = rows()
    warm = bc.fit("map", MLP, (x, y), likelihood="gaussian", epochs=1)
    with pytest.raises(bc.InvalidOption, match="fitted with Gaussian, got Categorical"):
        bc.fit("map", MLP, (x, (y > 10).long()), likelihood="categorical", warm=warm)
    with pytest.raises(bc.InvalidOption, match="got HeteroscedasticGaussian"):
        bc.fit("map", MLP, (x, y), likelihood="heteroscedastic_gaussian", warm=warm)
    classes = bc.fit("map", MLP, (x, (y > 10).long()), likelihood="categorical", epochs=1)
    with pytest.raises(bc.InvalidOption, match="has 2 classes, got n_classes=3"):
        bc.fit("map", MLP, (x, (y > 10).long()), likelihood=bc.Categorical(n_classes=3), warm=classes)
    with pytest.raises(bc.InvalidOption, match="has to be a Fitted or its state, got str"):
        bc.fit("map", MLP, (x, y), likelihood="gaussian", warm="f.safetensors")  # type: ignore[arg-type]


def test_the_settings_asked_for_are_used_under_the_old_standardisation() -> None:
    x, y = rows()
    warm = bc.fit("map", MLP, (x, y), likelihood="gaussian", epochs=3)
    more = (x + 1, 2 * y)
    told = bc.fit("map", MLP, more, likelihood=bc.Gaussian(noise=9.0, learn_noise=False), warm=warm, epochs=1)
    old, new = warm.problem, told.problem
    assert (new.likelihood.mean, new.likelihood.scale) == (old.likelihood.mean, old.likelihood.scale)  # type: ignore[attr-defined]
    assert new.scaling is not None
    assert old.scaling is not None
    assert torch.equal(new.scaling.mean, old.scaling.mean)
    assert torch.allclose(told.sample(1).predict(x).variances, torch.tensor(81.0))
    learnt = bc.fit("map", MLP, (x, y), likelihood="gaussian", warm=told, epochs=0)
    assert torch.equal(learnt.state["linear1.weight"], told.state["linear1.weight"])
    assert float(learnt.state["likelihood/log_noise"]) == 0.0  # the start: the sd of y


def test_rows_of_another_width_are_refused_and_float64_is_gone_on_with() -> None:
    x, y = rows()
    warm = bc.fit("map", MLP, (x, y), likelihood="gaussian", epochs=1)
    with pytest.raises(bc.InvalidData, match=r"rows of shape \[4\], got \[3\]"):
        bc.fit("map", MLP, (x[:, :3], y), likelihood="gaussian", warm=warm)
    wide = bc.fit("map", MLP, (x.double(), y), likelihood="gaussian", warm=warm, epochs=1)
    assert wide.state["linear1.weight"].dtype == torch.float64
    bc.fit("map", MLP, (x, y), likelihood="gaussian", warm=wide, epochs=1)


@pytest.mark.parametrize("old", ["rank1_bnn", "batch_ensemble", "pbp", "mc_dropout", "swag", "laplace", "mfvi"])
def test_every_method_starts_from_every_other(old: str) -> None:
    x, y = rows()
    warm = bc.fit(old, MLP, (x, y), likelihood="gaussian", epochs=2, **OPTIONS.get(old, {}))
    for new in bc.POSTERIORS:
        options = known(new, {"epochs": 2}) | OPTIONS.get(new, {}) or small(new)
        own = with_tasks(new, x, y)
        bc.fit(new, MLP, own, likelihood="gaussian", warm=warm, **options).sample(2).predict(x)


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 2, groups=2)
        self.back = nn.ConvTranspose1d(6, 4, 3, groups=2)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.back(self.conv(x).relu()).mean(-1))
        return out


@pytest.mark.parametrize("method", ["batch_ensemble", "rank1_bnn"])
def test_members_with_factors_become_the_same_networks_without(method: str) -> None:
    x = torch.randn(12, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(12) % 2
    members = 3 if method == "batch_ensemble" else 1
    options: dict[str, Any] = {"members": members} if method == "batch_ensemble" else {"init_sd": 1e-12}
    factored = bc.fit(method, Grouped(), (x, y), likelihood="categorical", epochs=5, **options)
    plain = bc.fit(
        "deep_ensemble", Grouped(), (x, y), likelihood="categorical", warm=factored, epochs=0, members=members
    )
    expected = factored.sample(members).predict(x).logits
    torch.testing.assert_close(plain.sample(members).predict(x).logits, expected, rtol=0, atol=1e-5)


def test_a_network_from_pbp_keeps_its_noise() -> None:
    x, y = rows()
    warm = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=2)
    point = bc.fit("map", MLP, (x, y), likelihood="gaussian", warm=warm, epochs=0)
    expected = warm.sample(1).predict(x).variances
    torch.testing.assert_close(point.sample(1).predict(x).variances, expected)
