"""Ensembles of modules that were trained elsewhere."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc


def rows(n: int, *shape: int) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1))


def seeded(build: Any, n: int = 3) -> list[nn.Module]:
    made = []
    with torch.random.fork_rng():
        for seed in range(n):
            torch.manual_seed(seed)
            made.append(build())
    return made


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def normalised() -> nn.Module:
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 3)
    net = nn.Sequential(*layers)
    net(4 * torch.randn(10, 2, 4, 4))  # running statistics that differ
    return net


class Positioned(nn.Module):
    """An embedding that is not of the rows, which are real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.head = nn.Embedding(4, 3), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head((x[..., None] * self.place.weight).flatten(1))
        return outputs


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2))


@pytest.mark.parametrize(
    ("build", "x", "shape"),
    [
        (plain, rows(50, 6), None),
        (plain, rows(50, 6).double(), None),
        (normalised, rows(50, 2, 4, 4), [2, 4, 4]),
        (words, torch.arange(100).reshape(50, 2) % 7, [2]),
        (Positioned, rows(50, 4), [4]),
    ],
)
def test_each_member_predicts_what_its_module_does(build: Any, x: Tensor, shape: Any) -> None:
    nets = [net.to(x.dtype) if x.is_floating_point() else net for net in seeded(build)]
    ensemble = bc.Ensemble.from_modules(nets, likelihood="categorical", input_shape=shape)
    assert all(net.training for net in nets)
    expected = torch.stack([net.eval()(x).detach() for net in nets])
    predictive = ensemble.predict(x)
    torch.testing.assert_close(predictive.logits, expected, rtol=1e-5, atol=1e-5)  # type: ignore[union-attr]
    assert predictive.logits.dtype == expected.dtype  # type: ignore[union-attr]
    mean = expected.log_softmax(-1).exp().mean(0)
    entropy = -(mean * mean.log()).sum(-1)
    torch.testing.assert_close(bc.score(ensemble, x, "entropy"), entropy, rtol=1e-4, atol=1e-5)
    picked = bc.rank(ensemble, x, acquisition="entropy", k=3).rows
    torch.testing.assert_close(entropy[picked], entropy.topk(3).values, rtol=1e-4, atol=1e-5)


def test_modules_of_numbers_are_in_the_units_of_y() -> None:
    nets, x = seeded(lambda: nn.Linear(6, 2)), rows(20, 6)
    outputs = torch.stack([net(x).detach() for net in nets])
    known = bc.Ensemble.from_modules(nets, likelihood=bc.Gaussian(noise=0.3)).predict(x)
    torch.testing.assert_close(known.means, outputs, rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    assert known.variances.unique().tolist() == pytest.approx([0.09])  # type: ignore[union-attr]
    by_row = bc.Ensemble.from_modules(nets, likelihood=bc.HeteroscedasticGaussian()).predict(x)
    torch.testing.assert_close(by_row.means, outputs[..., 0], rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    noise = nn.functional.softplus(outputs[..., 1]) + 1e-6
    torch.testing.assert_close(by_row.variances, noise, rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]


def test_it_is_saved_weighted_and_independent_of_its_modules(tmp_path: Path) -> None:
    nets, x = seeded(plain), rows(9, 6)
    names = bc.Categorical(classes=("cat", "dog", "eel"))
    weights = torch.tensor([1.0, 2.0, 1.0]).log()
    ensemble = bc.Ensemble.from_modules(nets, likelihood=names, log_weights=weights)
    expected = ensemble.predict(x)
    by_hand = sum(w * net(x).detach().softmax(-1) for w, net in zip((0.25, 0.5, 0.25), nets, strict=True))
    torch.testing.assert_close(expected.mean(), by_hand, rtol=1e-5, atol=1e-6)
    ensemble.save(tmp_path / "e")
    again = bc.load(tmp_path / "e", model=plain())
    assert again.classes == ("cat", "dog", "eel")
    assert torch.equal(again.predict(x).logits, expected.logits)  # type: ignore[union-attr]
    with torch.no_grad():
        nets[0][0].weight.zero_()  # type: ignore[index,union-attr]
    assert torch.equal(ensemble.predict(x).logits, expected.logits)  # type: ignore[union-attr]


def other(width: int = 8, act: type[nn.Module] = nn.Tanh, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), act(), nn.Linear(width, 3, bias=bias))


class Noisy(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(())


REFUSED: list[tuple[list[Any], dict[str, Any], str]] = [
    ([], {}, "list of modules is empty"),
    ([nn.Linear], {}, "entry 0 is of type type"),
    ([other().state_dict()], {}, "entry 0 is of type OrderedDict"),
    (other(), {}, r"expected a list of modules, got one Sequential; for one member pass \[it\]"),  # type: ignore[list-item]
    ([other(), other(9)], {}, r"module 1 differs from module 0 in 0\.weight: \[9, 6\] there, \[8, 6\] in module 0"),
    ([other(), other(), other(bias=False)], {}, r"module 2 differs .* in 2\.bias: no such tensor there, \[3\] in"),
    ([other(bias=False), other()], {}, r"module 1 differs .* in 2\.bias: \[3\] there, no such tensor in module 0"),
    ([other(), other(act=nn.ReLU)], {}, "module 1 gives other outputs than its tensors do in the code of module 0"),
    ([Noisy(6, 3)], {}, "draw no random numbers"),
    ([normalised()], {}, "pass input_shape=…"),
    ([other()], {"input_shape": [5]}, "does not run on rows of shape"),
    ([other()], {"likelihood": "gaussian"}, r"do not hold the noise of y; pass likelihood=Gaussian\(noise=…\)"),
    ([other()], {"likelihood": bc.HeteroscedasticGaussian()}, "needs 2 network outputs, Sequential has 3"),
    ([other()], {"likelihood": bc.Categorical(n_classes=4)}, "needs 4 network outputs, Sequential has 3"),
    ([other()], {"log_weights": torch.zeros(2)}, "weight"),
]


@pytest.mark.parametrize(("modules", "options", "words"), REFUSED)
def test_what_makes_no_ensemble_is_refused(modules: list[Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(bc.BensembleError, match=words):
        bc.Ensemble.from_modules(modules, **{"likelihood": "categorical", **options})


def test_one_module_is_an_ensemble_of_one() -> None:
    alone = bc.Ensemble.from_modules([plain()], likelihood="categorical")
    assert alone.n_members == 1
    assert float(alone.predict(rows(3, 6)).mutual_information().max()) < 1e-6
    assert math.isfinite(float(alone.predict(rows(3, 6)).entropy().sum()))
