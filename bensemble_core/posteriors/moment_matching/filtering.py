"""Assumed density filtering of a ReLU network's weights, a row at a time, for S problems at once.

The belief is a flat dict of tensors [S, ...]: means under the parameters' own names and `variance/…`; where they are
learnt, Gammas over the precision of the noise and of the prior as `gamma/noise` and `gamma/prior` [S, 2] (shape, rate),
and with the latter the prior's approximate factors `factor/precision/…`, `factor/shape/…`, `factor/rate/…`.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.io import above
from bensemble_core.posteriors.moment_matching.gamma import Floats, PriorFactors, noise_variances, observe
from bensemble_core.posteriors.moment_matching.propagation import (
    Layer,
    Record,
    Weights,
    join,
    propagate,
    separate,
    update_weights,
    with_ones,
)
from bensemble_core.randomness import permutation
from bensemble_core.training.resuming import restore, stamp
from bensemble_core.types import Data, Report, Tensors

NOISE, PRIOR = "gamma/noise", "gamma/prior"
VARIANCE, FACTOR = "variance/", "factor/"
_ORDER = 2  # branch of a problem's seed
_QUIET_SECONDS = 0.2  # longest time between two reports


class Filter:
    """The state of one filter over S problems."""

    def __init__(
        self,
        layers: tuple[Layer, ...],
        starts: Sequence[Tensors],
        datas: Sequence[Data],
        noise: Tensor,
        seeds: Sequence[int],
        epochs: int,
        settings: object = None,
    ) -> None:
        self.layers, self.seeds, self.epochs = layers, [int(s) for s in seeds], epochs
        self.settings = settings  # what else a snapshot has to agree in: priors and likelihoods
        keys = set(starts[0])
        if any(set(start) != keys for start in starts[1:]):
            raise InvalidOption(
                "problems filtered together all learn their noise and prior, or none; fit them one by one"
            )
        device = datas[0].x.device
        self.state = {k: torch.cat([s[k].to(device, torch.float64) for s in starts]) for k in starts[0]}
        self.means, self.variances = (join(layers, self.state, prefix) for prefix in ("", VARIANCE))
        self.fixed_noise = noise.to(device, torch.float64)  # [S] variance, used unless one is learnt
        self.counts = [d.n_rows for d in datas]
        self.n_rows, self.fewest = max(self.counts), min(self.counts)
        if epochs and not self.fewest:
            raise InvalidData("there is nothing to train on: the data has no rows; label some, or use epochs=0")
        self.x = [with_ones(layers, d.x.flatten(1).to(torch.float64)) for d in datas]
        self.y = [d.y.reshape(-1).to(torch.float64) for d in datas]
        self.step, self.total = 0, epochs * self.n_rows
        self.epoch_rows: tuple[Tensor, Tensor] | None = None

    def run(self, report: Report) -> None:
        """All rows that are left, with progress; to stop, `report` raises."""
        reported = time.monotonic()
        with torch.no_grad():
            while self.step < self.total:
                ended_epoch = self.take_row()
                if ended_epoch or time.monotonic() - reported >= _QUIET_SECONDS:
                    report(self.step, self.total, self.message(), self.snapshot)
                    reported = time.monotonic()

    def take_row(self) -> bool:
        """One row of every problem; whether it was the last of its pass."""
        at = self.step % self.n_rows
        if at == 0 or self.epoch_rows is None:
            self.epoch_rows = self._shuffled(self.step // self.n_rows)
        x, y = self.epoch_rows[0][at], self.epoch_rows[1][at]  # [S, 1, K], [S]
        active = None
        if at >= self.fewest:
            active = torch.tensor([at < n for n in self.counts], device=y.device)
        records: list[Record] = []
        m, v = propagate(self.layers, self.means, self.variances, x, records)
        error, spread = y - m[:, 0, 0], v[:, 0, 0]  # [S]
        if NOISE in self.state:
            a, b = self.state[NOISE].unbind(1)
            total = spread + noise_variances(a, b)  # [3, S]
            log_z = -0.5 * (total.log() + error.square() / total)
            new = torch.stack(observe(a, b, log_z), 1)
            self.state[NOISE] = new if active is None else new.where(active[:, None], self.state[NOISE])
            total = total[0]
        else:
            total = spread + self.fixed_noise
        by_mean = error / total
        by_variance = 0.5 * (by_mean.square() - 1 / total)
        update_weights(
            self.layers,
            self.means,
            self.variances,
            records,
            by_mean[:, None, None],
            by_variance[:, None, None],
            active,
        )
        self.step += 1
        ended = at == self.n_rows - 1
        if ended:
            self._end_epoch()
        return ended

    def message(self) -> str:
        return f"pass {-(-self.step // self.n_rows)} of {self.epochs}"

    def states(self) -> list[dict[str, Tensor]]:
        """Of each problem, [1, ...]."""
        named = self._named()
        return [{k: v[s : s + 1].clone() for k, v in named.items()} for s in range(len(self.seeds))]

    def snapshot(self) -> dict[str, Tensor]:
        header = {"step": torch.tensor(self.step), "seeds": torch.tensor(self.seeds)}
        return stamp(header | above("state/", self._named()), self._settings(), (*self.x, *self.y))

    def restore(self, snapshot: Tensors) -> None:
        own = restore(snapshot, self._settings(), (*self.x, *self.y), self.fixed_noise.device)
        self.step = int(own["step"])
        self.state = {k: own[f"state/{k}"] for k in self.state}
        self.means, self.variances = (join(self.layers, self.state, prefix) for prefix in ("", VARIANCE))

    def _shuffled(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Rows in this pass's order, [N, S, 1, K] and [N, S]; short problems are padded with zeros."""
        n, s = self.n_rows, len(self.seeds)
        x = self.fixed_noise.new_zeros(n, s, 1, self.x[0].shape[1])
        y = self.fixed_noise.new_zeros(n, s)
        for i, (seed, count) in enumerate(zip(self.seeds, self.counts, strict=True)):
            order = permutation(count, seed, _ORDER, epoch).to(y.device)
            x[:count, i, 0], y[:count, i] = self.x[i][order], self.y[i][order]
        return x, y

    def _end_epoch(self) -> None:
        for name, tensors in (("mean", self.means), ("variance", self.variances)):
            if not all(bool(t.isfinite().all()) for t in tensors):
                raise NotFinite(
                    f"pbp: a weight's {name} left the finite numbers in {self.message()}; standardise the data, "
                    "or use fewer epochs"
                )
        if PRIOR in self.state:
            self._refine_prior()

    def _refine_prior(self) -> None:
        """In the paper's w = √K θ."""
        fan_ins = np.repeat([float(la.fan_in) for la in self.layers], [m[0].numel() for m in self.means])[:, None]
        mean, variance = _columns(self.means) * np.sqrt(fan_ins), _columns(self.variances) * fan_ins  # [P, S]
        parts = {p: join(self.layers, self.state, f"{FACTOR}{p}/") for p in ("precision", "shape", "rate")}
        factors = PriorFactors(**{p: _columns(t) for p, t in parts.items()})
        a, b = self.state[PRIOR].cpu().numpy().T.copy()
        a, b = factors.refine(mean, variance, a, b)
        self.state[PRIOR] = torch.from_numpy(np.stack([a, b], 1)).to(self.state[PRIOR])
        _write(self.means, mean / np.sqrt(fan_ins))
        _write(self.variances, variance / fan_ins)
        for p, tensors in parts.items():
            _write(tensors, getattr(factors, p))
            self.state |= separate(self.layers, tensors, f"{FACTOR}{p}/")

    def _named(self) -> dict[str, Tensor]:
        return {
            **separate(self.layers, self.means, ""),
            **separate(self.layers, self.variances, VARIANCE),
            **{k: v for k, v in self.state.items() if k.startswith(("gamma/", FACTOR))},
        }

    def _settings(self) -> tuple[object, ...]:
        return (self.layers, self.epochs, self.seeds, self.counts, sorted(self.state), self.settings)


def _columns(tensors: Weights) -> Floats:
    """All weights of S problems as [P, S]."""
    return torch.cat([t.flatten(1) for t in tensors], 1).T.contiguous().cpu().numpy().copy()


def _write(tensors: Weights, columns: Floats) -> None:
    """The inverse of `_columns`, in place."""
    flat = torch.from_numpy(columns).T
    parts = torch.split(flat, [t[0].numel() for t in tensors], 1)
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.reshape(tensor.shape))
