"""A student predicts what its teacher's members predict on average: known answers, streams, resuming, serving."""

import math
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.types import Snapshot

LINEAR = {"name": "mlp", "hidden": []}
ONE_HOT = torch.eye(2, dtype=torch.float64)


def table(values: list[list[float]]) -> nn.Module:
    """A linear layer that gives one-hot row i the outputs values[i]."""
    layer = nn.Linear(len(values), len(values[0]), bias=False, dtype=torch.float64)
    layer.weight.data = torch.tensor(values, dtype=torch.float64).T.contiguous()
    return layer


def of_probs(*members: float, log_weights: Tensor | None = None) -> bc.Ensemble:
    """Members that give class 1 these probabilities on row 0, and their halves on row 1."""

    def logits(p: float) -> list[float]:
        return [math.log(1 - p), math.log(p)]

    modules = [table([logits(p), logits(p / 2)]) for p in members]
    return bc.Ensemble.from_modules(modules, likelihood="categorical", log_weights=log_weights)


def of_numbers(*members: tuple[float, float], log_weights: Tensor | None = None) -> bc.Ensemble:
    """Members N(mean, variance) on row 0, N(2 mean, variance) on row 1."""

    def raw(variance: float) -> float:
        return math.log(math.expm1(variance - 1e-6))  # the inverse of softplus, above the floor

    modules = [table([[m, raw(v)], [2 * m, raw(v)]]) for m, v in members]
    return bc.Ensemble.from_modules(modules, likelihood=bc.HeteroscedasticGaussian(), log_weights=log_weights)


def distil(ensemble: Any, x: Any = ONE_HOT, model: Any = LINEAR, **options: Any) -> bc.Ensemble:
    return bc.distil(ensemble, model, x, **{"epochs": 250, "lr": 0.1, **options})


def probabilities(ensemble: bc.Ensemble) -> Tensor:
    predictive = ensemble.predict(ONE_HOT)
    assert isinstance(predictive, bc.CategoricalPredictive)
    return predictive.mean()[:, 1]


def moments(ensemble: bc.Ensemble, x: Tensor = ONE_HOT) -> Tensor:
    predictive = ensemble.predict(x)
    assert isinstance(predictive, bc.GaussianPredictive)
    return torch.stack([predictive.mean(), predictive.variance()])


def close(found: Tensor, expected: list[Any], atol: float = 1e-3) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), rtol=0, atol=atol)


def test_a_student_of_classes_learns_mean_probabilities_not_mean_logits() -> None:
    student = distil(of_probs(0.9, 0.5))
    close(probabilities(student), [0.70, 0.35])  # mean logits would give .75
    assert student.n_members == 1
    assert student.is_student
    assert student.notes == (
        "this is a student, one network that learnt the mean prediction of 2 members: it cannot tell what they "
        "disagreed about",
    )


def test_a_student_of_numbers_learns_mean_and_variance_of_the_mixture() -> None:
    student = distil(of_numbers((0.0, 0.25), (1.0, 0.25)))
    close(moments(student), [[0.5, 1.0], [0.5, 1.25]])  # noise .25 and between members .25, then 1
    assert isinstance(student.problem.likelihood, bc.HeteroscedasticGaussian)


def test_the_weights_of_members_are_honoured() -> None:
    quarter = torch.tensor([1.0, 3.0]).log()
    close(probabilities(distil(of_probs(0.9, 0.5, log_weights=quarter))), [0.60, 0.30])
    teacher = of_numbers((0.0, 0.25), (1.0, 0.25), log_weights=quarter)
    close(moments(distil(teacher)), [[0.75, 1.5], [0.25 + 3 / 16, 0.25 + 3 / 4]])


def test_a_stream_of_ensembles_is_their_union() -> None:
    parts = [of_probs(0.9), of_probs(0.5, 0.2)]
    union = distil(of_probs(0.9, 0.5, 0.2))
    streamed = distil(part for part in parts)
    torch.testing.assert_close(probabilities(streamed), probabilities(union), rtol=0, atol=1e-8)
    assert "of 3 members" in streamed.notes[0]
    members = [(1e4, 0.3), (1e4 + 1, 0.5), (1e4 - 2, 0.2)]  # far from 0: E y² − (E y)² would lose its digits
    options = {"epochs": 50}
    all_at_once, numbers = of_numbers(*members), [of_numbers(*members[:2]), of_numbers(members[2])]
    found, expected = moments(distil(numbers, **options)), moments(distil(all_at_once, **options))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_stream_is_read_once_and_each_ensemble_is_dropped_before_the_next_is_made() -> None:
    seen: list[weakref.ref[bc.Ensemble]] = []

    def chain() -> Iterator[bc.Ensemble]:
        for p in (0.9, 0.5, 0.1):
            assert all(reference() is None for reference in seen)
            ensemble = of_probs(p)
            seen.append(weakref.ref(ensemble))
            yield ensemble
            del ensemble

    close(probabilities(distil(chain())), [0.5, 0.25])
    assert len(seen) == 3


def fitted(family: str = "categorical", n_targets: int = 1, **options: Any) -> tuple[bc.Fitted, Tensor]:
    x = 5 + 3 * torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    y = x[:, 0] - x[:, 1] if n_targets == 1 else 100 * x
    y = (y > 0).long() if family == "categorical" else y
    chosen = {"likelihood": family, "members": 3, "epochs": 20, **options}
    return bc.fit("deep_ensemble", {"name": "mlp", "hidden": [16]}, (x, y), **chosen), x


def test_a_chain_teaches_while_it_runs_a_piece_at_a_time() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g)
    data = (x, (x[:, 0] + 0.5 * torch.randn(60, generator=g) > 0).long())
    pieces: list[bc.Ensemble] = []

    def chain() -> Iterator[bc.Ensemble]:
        run = None
        for i in range(4):  # each piece goes on where the last one ended
            options: dict[str, Any] = {"samples": 20, "warmup": 0 if i else 100, "chains": 2}
            run = bc.fit("sgld", LINEAR, data, likelihood="categorical", warm=run, seed=i, lr=0.05, **options)
            pieces.append(run.sample(20))
            yield pieces[-1]

    student = bc.distil(chain(), LINEAR, x, epochs=100, lr=0.1)
    assert len(pieces) == 4
    taught = torch.stack([piece.predict(x).mean() for piece in pieces]).mean(0)
    assert float((student.predict(x).mean() - taught).abs().max()) < 0.1  # a linear student of curved means
    ends = pieces[0].stacked["linear1.weight"], pieces[-1].stacked["linear1.weight"]
    assert not torch.equal(*ends)


def test_a_student_of_real_networks_is_near_its_teacher_in_the_units_handed_in() -> None:
    for family, n_targets in (("categorical", 1), ("gaussian", 1), ("gaussian", 2)):
        posterior, x = fitted(family, n_targets)
        teacher = posterior.sample(3)
        student = bc.distil(teacher, {"name": "mlp", "hidden": [64]}, x, epochs=150)
        assert student.problem.scaling is not None
        assert torch.equal(student.problem.scaling.mean, teacher.problem.scaling.mean)  # type: ignore[union-attr]
        learnt, taught = student.predict(x), teacher.predict(x)
        if isinstance(taught, bc.CategoricalPredictive):
            assert float((learnt.mean() - taught.mean()).abs().max()) < 0.05
            continue
        assert isinstance(learnt, bc.GaussianPredictive)
        assert learnt.means.shape == taught.means[:1].shape
        sd = taught.variance().sqrt()
        assert float(((learnt.mean() - taught.mean()) / sd).abs().mean()) < 0.1
        assert float((learnt.variance().sqrt() / sd).log().abs().mean()) < 0.1


def test_a_calibrated_teacher_teaches_what_it_says_after_calibration() -> None:
    half = bc.Calibration(family="categorical", scale=torch.tensor(0.5))
    teacher = replace(of_probs(0.9), calibration=half)
    close(probabilities(distil(teacher))[:1], [3 / 4])  # odds of 9, their root 3


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    posterior, x = fitted()
    students = [bc.distil(posterior.sample(3), LINEAR, x, epochs=3, seed=seed) for seed in (1, 1, 2)]
    weights = [student.stacked["linear1.weight"] for student in students]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_it_resumes_bit_for_bit_and_refuses_the_snapshot_of_another_teacher(family: str) -> None:
    posterior, x = fitted(family)
    teacher, model = posterior.sample(3), {"name": "mlp", "hidden": [8]}
    kept: list[dict[str, Tensor]] = []
    done = bc.distil(teacher, model, x, epochs=6, batch_size=16, report=lambda *told: kept.append(told[3]()))
    assert kept[0] == {}  # from before the first step: it starts afresh
    for snapshot in (kept[0], bc.load_tensors(bc.save_tensors(kept[3]))):
        again = bc.distil(iter([teacher]), model, x, epochs=6, batch_size=16, resume=snapshot)
        assert all(torch.equal(again.stacked[name], tensor) for name, tensor in done.stacked.items())
    with pytest.raises(bc.InvalidSnapshot, match="of another training"):
        bc.distil(posterior.sample(2), model, x, epochs=6, batch_size=16, resume=kept[3])


def test_the_report_hears_of_the_teacher_and_of_every_epoch_and_may_stop_it() -> None:
    told: list[tuple[int, int, str]] = []

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        told.append((done, total, message))
        if done == 2:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled, match="enough"):
        distil([of_probs(0.9), of_probs(0.5)], epochs=5, report=report)
    assert told[:2] == [(0, 5, "ensemble 1 predicted 2 rows"), (0, 5, "ensemble 2 predicted 2 rows")]
    assert [done for done, _, _ in told[2:]] == [1, 2]
    assert told[2][2].startswith("epoch 1 of 5, loss ")


def test_a_student_is_saved_ranked_and_calibrated_as_any_ensemble(tmp_path: Path) -> None:
    posterior, x = fitted(likelihood=bc.Categorical(classes=("low", "high")))
    student = bc.distil(posterior.sample(10), LINEAR, x.numpy(), epochs=5)
    assert student.classes == ("low", "high")
    assert student.notes[0].startswith("10 members were asked for and 3 drawn")  # what the teacher had to say
    student.save(tmp_path / "student")
    again = bc.load(tmp_path / "student")
    assert again.is_student
    assert again.notes == student.notes
    assert torch.equal(again.predict(x).logits, student.predict(x).logits)
    ranking = bc.rank(again, x, acquisition="margin", k=3)
    assert ranking.notes == student.notes
    with pytest.raises(bc.InvalidOption, match="bald measures how members disagree, and this ensemble is a student"):
        bc.rank(again, x, acquisition="bald", k=3)


def test_rows_come_in_any_form_that_predict_takes(tmp_path: Path) -> None:
    posterior, x = fitted()
    teacher = posterior.sample(3)
    np.save(tmp_path / "x.npy", x.numpy())
    forms = (x, x.numpy(), x.tolist(), np.load(tmp_path / "x.npy", mmap_mode="r"))
    students = [bc.distil(teacher, LINEAR, form, epochs=2) for form in forms]
    first = students[0].stacked["linear1.weight"]
    assert all(torch.equal(student.stacked["linear1.weight"], first) for student in students)


def test_a_module_starts_from_its_own_weights_and_may_read_indices() -> None:
    student = distil(of_probs(0.9, 0.5), model=table([[0.0, 1.0], [2.0, 3.0]]), epochs=0)
    close(student.stacked["weight"][0].T, [[0.0, 1.0], [2.0, 3.0]])
    bag = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2))
    teacher = bc.Ensemble.from_modules([bag], likelihood="categorical", input_shape=[3])
    rows = torch.randint(10, (20, 3), generator=torch.Generator().manual_seed(0))
    close(distil(teacher, rows, bag, epochs=1, lr=1e-6).predict(rows).mean(), teacher.predict(rows).mean().tolist())


def test_a_prior_pulls_the_student_to_zero() -> None:
    free, pulled = (distil(of_probs(0.9), prior=prior) for prior in (None, bc.Normal(scale=0.5)))
    assert 0.5 < float(probabilities(pulled)[0]) < float(probabilities(free)[0]) - 0.05


def test_what_cannot_be_learnt_from_is_refused_with_advice() -> None:
    posterior, x = fitted()
    teacher = posterior.sample(3)
    with pytest.raises(bc.InvalidOption, match=r"got Fitted; pass an Ensemble.*sample\(20\)"):
        distil(posterior)
    with pytest.raises(bc.InvalidOption, match="one of them is of type str"):
        distil(["a"])
    with pytest.raises(bc.InvalidData, match="the iterable of ensembles was empty"):
        distil([])
    with pytest.raises(bc.InvalidData, match="x has no rows"):
        distil(teacher, x[:0])
    with pytest.raises(bc.InvalidData, match="row 1 has a NaN"):
        distil(teacher, torch.tensor([[1.0, 2.0], [math.nan, 1.0]]))
    with pytest.raises(bc.InvalidModel, match="HeteroscedasticGaussian needs 2 network outputs, Linear has 1"):
        distil(fitted("gaussian")[0].sample(3), x, nn.Linear(2, 1))
    with pytest.raises(bc.InvalidData, match="ensemble 2 predicts something else than the first"):
        distil([of_probs(0.5), of_numbers((0.0, 1.0))])
    with pytest.raises(bc.InvalidOption, match="lr is above 0"):
        distil(teacher, x, lr=0.0)
    broken = replace(teacher, stacked={k: v * math.nan for k, v in teacher.stacked.items()})
    with pytest.raises(bc.NotFinite, match="row 0 has predictions that are not finite"):
        distil(broken, x)


def test_cross_entropy_is_an_average_of_minus_log_prob() -> None:
    rng = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    probs = torch.rand(3, 4, generator=rng, dtype=torch.float64).softmax(-1)
    classes = bc.Categorical(n_classes=4)
    by_class = torch.stack([classes.log_prob(outputs, torch.full((3,), c), {}) for c in range(4)], -1)
    torch.testing.assert_close(classes.cross_entropy(outputs, probs), -(probs * by_class).sum(-1))
    certain = torch.tensor([[0.0, -math.inf]], dtype=torch.float64)
    assert float(bc.Categorical(n_classes=2).cross_entropy(certain, torch.tensor([[1.0, 0.0]]).double())) == 0
    numbers = bc.HeteroscedasticGaussian(mean=(0.0, 0.0), scale=(1.0, 1.0), spread=(1.0, 1.0))
    means = torch.randn(3, 2, generator=rng, dtype=torch.float64)
    spread = torch.rand(3, 2, generator=rng, dtype=torch.float64)
    either = torch.stack([numbers.log_prob(outputs, means + sign * spread, {}) for sign in (1, -1)]).mean(0)
    torch.testing.assert_close(numbers.cross_entropy(outputs, means, spread.square()), -either)
