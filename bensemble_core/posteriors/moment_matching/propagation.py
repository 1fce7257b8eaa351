"""Moments of a ReLU network whose weights are independent Gaussians, and the Bayesian update by one row.

The arithmetic of probabilistic backpropagation (Hernández-Lobato & Adams 2015) for S problems at once, each with its
own rows, weights and noise: tensors are [S, R, …] for R rows, in float64. A layer's bias is the last column of its
weights, beside an input that is always 1, so K = V + 1 counts both (K = V without a bias).

Weights are those of the network as it runs. The paper's own w has its pre-activations divided by √K: θ = w/√K, which
only the prior has to know, since the update below is the same in either units.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from bensemble_core.errors import InvalidModel
from bensemble_core.types import Tensors

_ROOT_2PI = math.sqrt(2 * math.pi)
_LEAST_VARIANCE = 1e-30  # of a pre-activation: a row of zeros before a layer without bias has none


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A linear layer under its parameters' names, with a ReLU after it or not."""

    weight: str
    bias: str | None
    n_inputs: int
    n_outputs: int
    relu: bool

    @property
    def fan_in(self) -> int:
        """K, the bias counted."""
        return self.n_inputs + (self.bias is not None)


Weights: TypeAlias = list[Tensor]  # one [S, O, K] per layer, the bias as last column
Slopes: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """What the way back needs of a layer: the moments of its inputs, and the slopes of its ReLU."""

    mean: Tensor  # [S, R, K]
    variance: Tensor | None  # [S, R, K]; None for rows, which are certain
    slopes: Slopes | None


def join(layers: tuple[Layer, ...], state: Tensors, prefix: str) -> Weights:
    """Named tensors [S, ...] as one [S, O, K] per layer, tensors of their own."""
    found = []
    for layer in layers:
        weight = state[prefix + layer.weight].to(torch.float64)
        columns = [weight] if layer.bias is None else [weight, state[prefix + layer.bias].to(torch.float64)[..., None]]
        found.append(torch.cat(columns, -1))
    return found


def separate(layers: tuple[Layer, ...], tensors: Weights, prefix: str) -> dict[str, Tensor]:
    """The inverse of `join`."""
    named = {}
    for layer, tensor in zip(layers, tensors, strict=True):
        named[prefix + layer.weight] = tensor[..., : layer.n_inputs]
        if layer.bias is not None:
            named[prefix + layer.bias] = tensor[..., layer.n_inputs]
    return named


def relu_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Slopes]:
    """Mean and variance of max(0, a) for a ~ N(m, s²), with α = m/s:

    m' = mΦ(α) + sφ(α),  v' = s²Φ(α) + m'(m − m');
    slopes ∂m'/∂m = Φ, ∂m'/∂s² = φ/2s, ∂v'/∂m = 2m'(1 − Φ), ∂v'/∂s² = Φ − m'φ/s.
    (Equal to the paper's form with γ = φ/Φ, and needs no special case far below 0.)
    """
    variance = variance.clamp(min=_LEAST_VARIANCE)
    s = variance.sqrt()
    alpha = mean / s
    below = torch.special.ndtr(alpha)
    density = (alpha.square() * -0.5).exp() / _ROOT_2PI
    m = torch.addcmul(mean * below, s, density).clamp(min=0)
    v = torch.addcmul(variance * below, m, mean - m).clamp(min=0)
    density = density / s
    return m, v, (below, 0.5 * density, 2 * m * (1 - below), below - m * density)


def with_ones(layers: tuple[Layer, ...], x: Tensor) -> Tensor:
    """Rows [..., D] as the first layer takes them, [..., K]."""
    return x if layers[0].bias is None else pad(x, (0, 1), value=1.0)


def propagate(
    layers: tuple[Layer, ...], means: Weights, variances: Weights, x: Tensor, records: list[Record] | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs for rows x [S, R, K], as of `with_ones` -> [S, R, O] twice.

    a = Wz with independent W ~ N(M, V), z ~ (m, v): E a = Mm, Var a = V(m² + v) + M²v.
    """
    z: Tensor = x
    u: Tensor | None = None
    for layer, mean, variance in zip(layers, means, variances, strict=True):
        if u is not None and layer.bias is not None:
            one = z.new_ones(*z.shape[:-1], 1)
            z, u = torch.cat([z, one], -1), torch.cat([u, one - 1], -1)
        m = torch.bmm(z, mean.mT)
        if u is None:
            v = torch.bmm(z.square(), variance.mT)
        else:
            v = torch.bmm(torch.addcmul(u, z, z), variance.mT) + torch.bmm(u, mean.square().mT)
        slopes = None
        if layer.relu:
            m, v, slopes = relu_moments(m, v)
        if records is not None:
            records.append(Record(mean=z, variance=u, slopes=slopes))
        z, u = m, v
    assert u is not None
    return z, u


def update_weights(
    layers: tuple[Layer, ...],
    means: Weights,
    variances: Weights,
    records: list[Record],
    by_mean: Tensor,
    by_variance: Tensor,
    active: Tensor | None = None,
) -> None:
    """Move every weight, in place, given the gradients of log Z by the output's mean and variance [S, 1, O]:

    m ← m + v ∂logZ/∂m,  v ← v − v² ((∂logZ/∂m)² − 2 ∂logZ/∂v).
    A weight whose variance would not stay positive keeps both; so do problems that are not `active` [S].
    """
    for i in range(len(records) - 1, -1, -1):
        record, m, v = records[i], means[i], variances[i]
        if record.slopes is not None:
            mm, mv, vm, vv = record.slopes
            by_mean, by_variance = (
                torch.addcmul(by_mean * mm, by_variance, vm),
                torch.addcmul(by_mean * mv, by_variance, vv),
            )
        z, u = record.mean, record.variance
        gm, gv = by_mean.mT, by_variance.mT  # [S, O, 1]
        if u is None:
            gradient = gm * z  # [S, O, K]
            shrink = v * ((gm.square() - 2 * gv) * z.square())
        else:
            q = torch.addcmul(u, z, z)
            gradient = torch.addcmul(gm * z, 2 * gv * u, m)
            shrink = v * (gradient.square() - 2 * gv * q)
            down = torch.bmm(by_variance, v)  # [S, 1, K]
            by_mean, by_variance = (
                torch.addcmul(torch.bmm(by_mean, m), down, z, value=2),
                down + torch.bmm(by_variance, m.square()),
            )
            inputs = slice(0, layers[i].n_inputs)  # the constant beside the bias has no layer below
            by_mean, by_variance = by_mean[..., inputs], by_variance[..., inputs]
        if active is not None or not float(shrink.amax()) < 1:  # also where NaN
            valid = shrink < 1 if active is None else (shrink < 1) & active[:, None, None]
            gradient, shrink = gradient.where(valid, 0.0), shrink.where(valid, 0.0)
        m.addcmul_(v, gradient)
        v.addcmul_(v, shrink, value=-1)


def chain(module: nn.Module) -> tuple[Layer, ...]:
    """The layers of an nn.Linear, or an nn.Sequential of Linear and ReLU in turn; anything else is refused."""
    layers: list[Layer] = []
    seen: set[int] = set()
    for i, (name, part) in enumerate(_parts(module, "")):
        if type(part) is nn.Linear:
            if layers and not layers[-1].relu:
                raise _unsuitable("two linear layers without a ReLU between them")
            own = {id(p) for p in part.parameters()}
            if own & seen or not all(p.requires_grad for p in part.parameters()):
                raise _unsuitable("weights that are tied or frozen")
            seen |= own
            layers.append(
                Layer(
                    weight=f"{name}weight",
                    bias=None if part.bias is None else f"{name}bias",
                    n_inputs=part.in_features,
                    n_outputs=part.out_features,
                    relu=False,
                )
            )
        elif type(part) is nn.ReLU and layers and not layers[-1].relu:
            layers[-1] = replace(layers[-1], relu=True)
        elif not (type(part) is nn.Identity or (type(part) is nn.Flatten and not layers)):
            raise _unsuitable(f"a {type(part).__name__} at place {i + 1}")
    if not layers or layers[-1].relu:
        raise _unsuitable("no linear layer at the end")
    return tuple(layers)


def _parts(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested nn.Sequential in the order they run, with the prefix of their parameters' names."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise _unsuitable(f"a hook on a {type(module).__name__}")
    if type(module) is nn.Sequential:
        for name, part in module._modules.items():
            assert part is not None
            yield from _parts(part, f"{prefix}{name}.")
    else:
        yield prefix, module


def _unsuitable(what: str) -> InvalidModel:
    return InvalidModel(
        f"pbp propagates moments through Linear and ReLU layers in turn, ending in a Linear one, and this network has "
        f'{what}; use {{"name": "mlp", "hidden": […]}} or an nn.Sequential of these, or another posterior '
        "(deep_ensemble, laplace, mfvi)"
    )
