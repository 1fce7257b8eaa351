"""Neural processes on functions of a Gaussian process, beside its exact predictive and what is known without a context.

Tasks: an RBF kernel of lengthscale .6 and scale 1, noise .1, x ~ U(−2, 2), 30 rows each; 2,000 to learn from in 4,000
steps of 16; 200 others to be judged by, with 10 rows of context. Log-likelihood of a target under the mixture of 30
members, and the variance between members. Ends with an error where a form is worse than it should be.

    python benchmarks/neural_process.py          # about two minutes on one core
"""

import math
import time

import torch
from torch import Tensor

import bensemble_core as bc

LENGTHSCALE, NOISE, N_CONTEXT, N_MEMBERS = 0.6, 0.1, 10, 30
FORMS: dict[str, tuple[dict[str, object], float]] = {  # options, and the least log-likelihood of a target
    "attention": ({}, -0.3),
    "mean": ({"encoder": "mean"}, -0.8),
    "mean, latent": ({"encoder": "mean", "latent": True}, -1.2),
}


def gram(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-0.5 * torch.cdist(a / LENGTHSCALE, b / LENGTHSCALE).square())


def draw_tasks(n: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows [n, rows, 1] and labels [n, rows]."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, rows, 1, generator=g, dtype=torch.float64) * 4 - 2
    root = torch.linalg.cholesky(gram(x, x) + NOISE**2 * torch.eye(rows, dtype=torch.float64))
    return x, (root @ torch.randn(n, rows, 1, generator=g, dtype=torch.float64))[..., 0]


def exact(x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean log-likelihood of a target and variance of its function given the context: [n, rows, 1], [n, rows]."""
    known, new = x[:, :N_CONTEXT], x[:, N_CONTEXT:]
    inner = gram(known, known) + NOISE**2 * torch.eye(N_CONTEXT, dtype=x.dtype)
    weights = torch.linalg.solve(inner, gram(known, new))
    mean = (weights.mT @ y[:, :N_CONTEXT, None])[..., 0]
    variance = 1 - (weights * gram(known, new)).sum(1)
    normal = torch.distributions.Normal(mean, (variance + NOISE**2).sqrt())
    return float(normal.log_prob(y[:, N_CONTEXT:]).mean()), float(variance.mean())


def judge(fitted: bc.Fitted, x: Tensor, y: Tensor) -> tuple[float, float]:
    scores, spreads = [], []
    for i in range(len(x)):
        there = fitted.update((x[i, :N_CONTEXT], y[i, :N_CONTEXT]), keep=False, epochs=0)
        found = there.sample(N_MEMBERS, seed=i).predict(x[i, N_CONTEXT:])
        assert isinstance(found, bc.GaussianPredictive)
        each = torch.distributions.Normal(found.means, found.variances.sqrt()).log_prob(y[i, N_CONTEXT:].float())
        scores.append((each.logsumexp(0) - math.log(N_MEMBERS)).mean())
        spreads.append(found.means.var(0).mean())
    return float(torch.stack(scores).mean()), float(torch.stack(spreads).mean())


def main() -> None:
    x, y = draw_tasks(2000, 30, 0)
    rows = (x.reshape(-1, 1).float(), y.reshape(-1), torch.arange(2000).repeat_interleave(30))
    new_x, new_y = draw_tasks(200, 30, 1)
    prior = torch.distributions.Normal(0.0, math.sqrt(1 + NOISE**2)).log_prob(new_y[:, N_CONTEXT:]).mean()
    print(f"{'':>14} log-likelihood  variance between members  seconds")
    print(f"{'no context':>14} {float(prior):14.3f}")
    score, spread = exact(new_x, new_y)
    print(f"{'exact':>14} {score:14.3f} {spread:25.3f}")
    missed = []
    for form, (options, least) in FORMS.items():
        start = time.perf_counter()
        fitted = bc.fit("neural_process", "mlp", rows, likelihood="gaussian", epochs=32, **options)
        seconds = time.perf_counter() - start
        score, spread = judge(fitted, new_x.float(), new_y)
        print(f"{form:>14} {score:14.3f} {spread:25.3f} {seconds:8.1f}", flush=True)
        if score < least or spread < 0.02:
            missed.append(form)
    if missed:
        raise SystemExit(f"worse than it should be: {', '.join(missed)}")


if __name__ == "__main__":
    main()
