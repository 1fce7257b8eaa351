"""A compiled ensemble predicts what it predicted before, and keeps being compiled through a file."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from tests.compiling import needs_compiler, old_torch_names

pytestmark = old_torch_names


def images(n: int = 40) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(n, 1, 8, 8, generator=rng), torch.randint(0, 3, (n,), generator=rng)


def small(method: str = "deep_ensemble", **options: Any) -> bc.Ensemble:
    model = {"name": "conv", "channels": [4], "hidden": 8}
    fitted = bc.fit(method, model, images(), likelihood="categorical", epochs=1, **options)
    return fitted.sample(3)


@needs_compiler
@pytest.mark.parametrize("method", ["deep_ensemble", "mfvi"])
def test_it_predicts_the_same_and_says_how_long_it_took(method: str, tmp_path: Path) -> None:
    plain = small(method)
    made = plain.compile()
    assert made.plan.compiled
    assert not plain.plan.compiled
    x = images(150)[0]
    before, after = plain.predict(x), made.predict(x)
    assert isinstance(before, bc.CategoricalPredictive)
    assert isinstance(after, bc.CategoricalPredictive)
    assert torch.allclose(before.logits, after.logits, atol=1e-5)
    assert made.warm_up() < 1.0  # it is ready
    made.save(tmp_path / "made")
    loaded = bc.load(tmp_path / "made")
    assert isinstance(loaded, bc.Ensemble)
    assert loaded.plan.compiled
    assert loaded.warm_up() > 0
    assert torch.equal(bc.score(loaded, x, "bald"), bc.score(made, x, "bald"))
    assert torch.equal(loaded.features(x), plain.features(x))


def test_what_would_not_gain_stays_as_it_is() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 4, generator=rng), torch.randint(0, 2, (20,), generator=rng)
    plain = bc.fit("deep_ensemble", {"name": "mlp", "hidden": [4]}, rows, likelihood="categorical", epochs=1).sample(2)
    assert plain.compile() is plain
    assert plain.warm_up() == 0


class Peeking(nn.Module):
    """Its path depends on a value, which no compiler can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(2 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x).flatten(1)
        if float(h.detach().sum()) > 1e9:
            h = -h
        out: Tensor = self.head(h)
        return out


def test_a_network_that_cannot_be_compiled_is_refused_with_advice() -> None:
    members = bc.fit("deep_ensemble", Peeking(), images(), likelihood="categorical", epochs=1, members=2).sample(2)
    with pytest.raises(bc.InvalidModel, match="Use the ensemble that is not compiled"):
        members.compile()
