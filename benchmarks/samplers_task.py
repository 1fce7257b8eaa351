"""The two posteriors of `benchmarks/samplers.py`, in numpy alone: rows, weights in one row, log joint and outputs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS, HIDDEN = 500, 50
N_PROBES = 32  # rows at which outputs are compared: half of training, half beyond it


@dataclass(frozen=True, eq=False)
class Task:
    """Rows and labels; weights have the prior N(0, 1), the network's noise is known."""

    name: str  # "logistic": one logit x·w; "network": one hidden layer of tanh units
    x: Any  # [N, D] float32
    y: Any  # [N] float32, of classes 0 and 1
    noise: float = 1.0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights, in the order in which draws hold them: that of torch."""
        n_inputs = self.x.shape[1]
        if self.name == "logistic":
            return {"weight": (1, n_inputs)}
        return {"w1": (HIDDEN, n_inputs), "b1": (HIDDEN,), "w2": (1, HIDDEN), "b2": (1,)}

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def split(self, theta: Any) -> dict[str, Any]:
        """[..., P] -> named [..., *shape], of numpy or of JAX."""
        parts, at = {}, 0
        for name, shape in self.shapes.items():
            n = int(np.prod(shape))
            parts[name] = theta[..., at : at + n].reshape(*theta.shape[:-1], *shape)
            at += n
        return parts

    def probes(self) -> Any:
        rng = np.random.default_rng(3)
        beyond = 1.5 * rng.standard_normal((N_PROBES // 2, self.x.shape[1]))
        return np.concatenate([self.x[: N_PROBES // 2], beyond]).astype(np.float64)

    def outputs(self, theta: Any, x: Any) -> Any:
        """θ [S, P], x [N, D] -> [S, N]."""
        w = self.split(theta)
        if self.name == "logistic":
            return w["weight"][:, 0] @ x.T
        hidden = np.tanh(x @ w["w1"].swapaxes(-1, -2) + w["b1"][:, None])
        return (hidden @ w["w2"].swapaxes(-1, -2))[..., 0] + w["b2"]

    def log_joint(self, theta: Any) -> Any:
        """Up to a constant, in float64: θ [S, P] -> [S]."""
        f = self.outputs(theta, self.x.astype(np.float64))
        if self.name == "logistic":
            likelihood = -np.logaddexp(0, -(2 * self.y - 1) * f).sum(-1)
        else:
            likelihood = -0.5 * ((self.y - f) ** 2).sum(-1) / self.noise**2
        return likelihood - 0.5 * (theta**2).sum(-1)


def logistic() -> Task:
    """20 correlated inputs, no bias."""
    rng = np.random.default_rng(1)
    mixing = np.eye(20) + 0.3 * rng.standard_normal((20, 20)) / np.sqrt(20)
    x = (rng.standard_normal((ROWS, 20)) @ mixing).astype(np.float32)
    w = rng.standard_normal(20)
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-x @ w))).astype(np.float32)
    return Task("logistic", x, y)


def network(n_inputs: int = 3, noise: float = 0.5) -> Task:
    """A smooth function of unit size."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((ROWS, n_inputs)).astype(np.float32)
    clean = np.sin(1.5 * x[:, 0]) + (0.5 * x[:, 1] * x[:, -1] if n_inputs > 1 else 0)
    return Task("network", x, (clean + noise * rng.standard_normal(ROWS)).astype(np.float32), noise)


TASKS = {"logistic": logistic, "network": network}
