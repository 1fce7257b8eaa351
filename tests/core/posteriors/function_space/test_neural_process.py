"""Neural processes against the Gaussian process that their tasks are drawn from."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc

LENGTHSCALE, NOISE = 0.6, 0.1
PRIOR_LOG_LIKELIHOOD = -1.422  # of a target, by what is known without a context
FORMS = [(encoder, latent) for encoder in ("attention", "mean") for latent in (False, True)]


PROCESS = bc.GP(lengthscale=LENGTHSCALE, scale=1.0)


def draw_tasks(n: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows [n, rows, 1] and labels [n, rows] of functions drawn from the process, x ~ U(−2, 2)."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, rows, 1, generator=g, dtype=torch.float64) * 4 - 2
    covariance = torch.stack([PROCESS.gram(own, own) for own in x]) + NOISE**2 * torch.eye(rows, dtype=torch.float64)
    y = torch.linalg.cholesky(covariance) @ torch.randn(n, rows, 1, generator=g, dtype=torch.float64)
    return x.float(), y[..., 0].float()


def as_rows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.reshape(-1, x.shape[-1]), y.reshape(-1), torch.arange(len(x)).repeat_interleave(x.shape[1])


def small(encoder: str = "attention", **more: Any) -> dict[str, Any]:
    return {"encoder": encoder, "width": 8, "epochs": 3, **more}


def fit_small(**options: Any) -> bc.Fitted:
    return bc.fit("neural_process", "mlp", as_rows(*draw_tasks(6, 8, 0)), likelihood="gaussian", **small(**options))


def judge(fitted: bc.Fitted, n_tasks: int, *, members: int = 20) -> tuple[float, float]:
    """Mean log-likelihood of a target given 10 rows of its task, and the variance between members."""
    x, y = draw_tasks(n_tasks, 30, 1)
    scores, spreads = [], []
    for i in range(n_tasks):
        there = fitted.update((x[i, :10], y[i, :10]), keep=False, epochs=0)
        found = there.sample(members, seed=i).predict(x[i, 10:])
        each = torch.distributions.Normal(found.means, found.variances.sqrt()).log_prob(y[i, 10:])
        scores.append((each.logsumexp(0) - math.log(members)).mean())
        spreads.append(found.means.var(0).mean())
    return float(torch.stack(scores).mean()), float(torch.stack(spreads).mean())


def test_it_learns_from_tasks_what_a_gaussian_process_knows() -> None:
    """Longer trainings (4,000 steps) reach about 0 of the exact .233."""
    rows = as_rows(*draw_tasks(400, 20, 0))
    fitted = bc.fit("neural_process", "mlp", rows, likelihood="gaussian", epochs=20, rows=20)
    score, spread = judge(fitted, 40)
    assert score > PRIOR_LOG_LIKELIHOOD + 0.5
    assert spread > 0.02


@pytest.mark.parametrize(("encoder", "latent"), FORMS)
def test_the_order_of_the_context_does_not_matter(encoder: str, latent: bool) -> None:
    fitted = fit_small(encoder=encoder, latent=latent)
    x, y = (values[0] for values in draw_tasks(1, 12, 5))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    new = torch.linspace(-2, 2, 9)[:, None]
    first, second = (
        fitted.update((x[rows], y[rows]), keep=False, epochs=0).sample(5).predict(new)
        for rows in (torch.arange(12), order)
    )
    torch.testing.assert_close(first.means, second.means, rtol=0, atol=1e-5)
    torch.testing.assert_close(first.variances, second.variances, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("encoder", "latent"), FORMS)
def test_members_differ_and_run_through_scores_ranks_and_files(encoder: str, latent: bool, tmp_path: Path) -> None:
    fitted = fit_small(encoder=encoder, latent=latent)
    ensemble, x = fitted.sample(6, seed=3), torch.linspace(-2, 2, 50)[:, None]
    found = ensemble.predict(x)
    assert found.means.shape == (6, 50)
    assert float(found.means.std(0).min()) > 0
    assert torch.equal(fitted.sample(6, seed=3).predict(x).means, found.means)
    ranking = bc.rank(ensemble, x, acquisition="bald", k=3)
    assert torch.equal(bc.score(ensemble, x, "bald").topk(3).indices, torch.as_tensor(ranking.rows))
    assert ensemble.features(x).shape == (50, 8)
    assert "conditioned" in repr(ensemble)
    assert len(bc.rank(ensemble, x, acquisition="bald", selection="kcenter", k=3).rows) == 3
    fitted.save(tmp_path / "fitted")
    ensemble.save(tmp_path / "ensemble")
    for again in (bc.load(tmp_path / "fitted").sample(6, seed=3), bc.load(tmp_path / "ensemble")):
        assert torch.equal(again.predict(x).means, found.means)
        assert torch.equal(again.predict(x).variances, found.variances)


def test_a_member_of_attention_is_the_context_and_its_own_pseudo_labels() -> None:
    """Its predictions are those of one forward pass with all these rows, made here by hand."""
    fitted = fit_small(pseudo_labels=3)
    ensemble = fitted.sample(4)
    assert ensemble.stacked["keys"].shape == (4, 3, 8)
    assert ensemble.shared["context_keys"].shape == (8, 8)
    state, x = fitted.state, torch.linspace(-1, 1, 5)[:, None]
    scaled = ensemble.problem.scaling(x) if ensemble.problem.scaling is not None else x

    def net(name: str, h: Tensor) -> Tensor:
        layers = {k: v[0] for k, v in state.items() if k.startswith(f"np/{name}")}
        for i, k in enumerate(sorted(k for k in layers if k.endswith(".weight"))):
            h = (h.relu() if i else h) @ layers[k].T + layers[k.replace("weight", "bias")]
        return h

    for m in range(4):
        keys = torch.cat([ensemble.shared["context_keys"], ensemble.stacked["keys"][m]])
        values = torch.cat([ensemble.shared["context_values"], ensemble.stacked["values"][m]])
        q, k, v = (t.reshape(len(t), 4, 2).transpose(0, 1) for t in (net("query/", scaled), keys, values))
        code = (torch.softmax(q @ k.mT / math.sqrt(2), -1) @ v).transpose(0, 1).reshape(5, 8)
        outputs = net("decoder/", torch.cat([scaled, code], 1))
        expected = ensemble.problem.likelihood.predictive(outputs[None], {}, None)
        found = ensemble.predict(x)
        torch.testing.assert_close(found.means[m], expected.means[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.variances[m], expected.variances[0], rtol=1e-4, atol=1e-5)


def test_conditioning_on_another_task_keeps_the_networks() -> None:
    fitted = fit_small()
    x, y = (values[0] for values in draw_tasks(1, 5, 7))
    other = fitted.update((x, y), keep=False, epochs=0)
    assert all(torch.equal(other.state[k], v) for k, v in fitted.state.items() if k.startswith("np/"))
    assert torch.equal(other.state["context/inputs"], fitted.state["context/inputs"])
    assert other.state["context/x"].shape == (5, 1)
    assert other.state["context/y"].shape == (5, 1)
    assert not torch.equal(other.sample(3).predict(x).means, fitted.sample(3).predict(x).means)


def test_what_it_is_not_for_is_refused_with_advice() -> None:
    x, y = draw_tasks(1, 8, 0)
    indices, embedding = torch.ones(8, 1).long(), nn.Sequential(nn.Embedding(9, 1), nn.Flatten())
    many = (torch.ones(10_006, 1), torch.ones(10_006), (torch.arange(10_006) < 5).long())
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: bc.fit("neural_process", "mlp", (x[0], y[0]), likelihood="gaussian"), "learns over tasks"),
        (lambda: bc.fit("neural_process", "mlp", (x[0], y[0] > 0), likelihood="categorical"), "is for numbers"),
        (
            lambda: bc.fit("neural_process", "mlp", (x[0], y[0]), likelihood="gaussian", prior=PROCESS),
            "need its noise",
        ),
        (
            lambda: bc.fit("neural_process", "mlp", (x[0], y[0], torch.arange(8) % 2 + 1), likelihood="gaussian"),
            "task 0 is the one that is predicted",
        ),
        (
            lambda: bc.fit("neural_process", "mlp", many, likelihood="gaussian"),
            "attention looks at every row",
        ),
        (
            lambda: bc.fit("neural_process", embedding, (indices, y[0]), likelihood="gaussian"),
            "indices",
        ),
    ]
    for call, said in refusals:
        with pytest.raises(bc.BensembleError, match=said):
            call()


def test_tasks_may_be_drawn_from_a_process_and_a_known_noise_is_the_least() -> None:
    x, y = draw_tasks(1, 40, 0)
    fitted = bc.fit(
        "neural_process",
        "mlp",
        (x[0], y[0]),
        likelihood=bc.Gaussian(noise=NOISE),
        prior=PROCESS,
        epochs=400,
        rows=20,
        width=32,
    )
    score, spread = judge(fitted, 20)
    assert score > PRIOR_LOG_LIKELIHOOD + 0.3
    assert spread > 0.02
    assert float(fitted.sample(5).predict(x[0]).variances.min()) >= 0.99 * NOISE**2


def test_several_targets_and_rows_of_any_shape() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 2, 3, generator=g), torch.randn(30, 2, generator=g)
    rows = (x, y, torch.arange(30) % 4)
    for encoder, latent in FORMS:
        fitted = bc.fit("neural_process", "mlp", rows, likelihood="gaussian", **small(encoder, latent=latent))
        found = fitted.sample(3).predict(x[:4])
        assert found.means.shape == (3, 4, 2)
        assert bool((found.variances > 0).all())


def test_a_file_with_another_context_than_its_header_says_is_refused(tmp_path: Path) -> None:
    header, tensors = fit_small().sample(2).to_tensors()
    for changes in ({"n_context": 9}, {"encoder": "median"}, {"floor": [-1.0]}, {"width": 10**9}, {"n_own": -1}):
        model = {**header["problem"]["model"], **changes}
        with pytest.raises(bc.InvalidFile):
            bc.Ensemble.from_tensors({**header, "problem": {**header["problem"], "model": model}}, tensors)
