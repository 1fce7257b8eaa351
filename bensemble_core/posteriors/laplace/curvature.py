"""Gauss-Newton (Fisher) curvature of a network over rows, and the covariance of its outputs that a posterior implies.

H = Σ_n J_nᵀ Λ_n J_n with J the Jacobian of the outputs and Λ = SSᵀ the Fisher information of the likelihood in the
outputs (Schraudolph 2002; Martens 2020). Columns of S are sent backwards, so a layer sees g = S-weighted output
gradients [R, n, T, O] and its inputs a [n, T, I]:

- dense: the sum itself, over all parameters;
- diagonal: Σ_{n,r} (Σ_t g_t a_tᵀ)², exact;
- Kronecker: (Σ_{n,r,t} g gᵀ) ⊗ (1/NT) Σ_{n,t} a aᵀ for a weight (Martens & Grosse 2015; for convolutions Grosse &
  Martens 2016, positions taken as independent), and Σ_{n,r,t} g gᵀ for its bias, a block of its own, or one block with
  the bias as a weight of the constant input 1. Parameters of no linear or convolution layer have a diagonal block.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from bensemble_core.linalg import Dense, Diagonal, Kronecker, gram
from bensemble_core.posteriors.laplace.network import Layer, Network, Record
from bensemble_core.types import Likelihood, Tensors

Structure: TypeAlias = Literal["kron", "diag", "full"]
Bias: TypeAlias = Literal["own", "joint"]
Deltas: TypeAlias = dict[str, Tensor]  # prior precision of each parameter, []
RowProgress: TypeAlias = Callable[[int, int], None]  # rows done, of how many
_ENTRIES = 4 << 20  # most numbers in an intermediate tensor of a chunk of rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Parameters whose posterior is independent of all others, and their curvature."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    curvature: Kronecker | Diagonal | Dense

    def delta(self, deltas: Deltas) -> Tensor:
        """Prior precision in the form that the curvature takes."""
        if isinstance(self.curvature, Dense):
            return torch.cat([deltas[n].expand(s.numel()) for n, s in zip(self.names, self.shapes, strict=True)])
        return deltas[self.names[0]]

    def join(self, named: Tensors) -> Tensor:
        """Named [M, ...] tensors in the shape of the curvature: [M, O, I], [M, ...] or [M, P]."""
        parts = [named[n] for n in self.names]
        if isinstance(self.curvature, Kronecker):
            return torch.cat([p.reshape(*p.shape[:2], -1) for p in parts], 2)
        return torch.cat([p.flatten(1) for p in parts], 1)

    def split(self, joined: Tensor) -> dict[str, Tensor]:
        """The inverse of `join`."""
        flat = joined.flatten(2) if isinstance(self.curvature, Kronecker) else joined
        rows = self.shapes[0][0] if isinstance(self.curvature, Kronecker) else 1
        sizes = [s.numel() // rows for s in self.shapes]
        parts = torch.split(flat, sizes, -1)
        return {n: p.reshape(len(joined), *s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def log_det(self, deltas: Deltas) -> Tensor:
        return self.curvature.log_det(self.delta(deltas))

    def variances(self, deltas: Deltas) -> dict[str, Tensor]:
        """Marginal posterior variance of each parameter, in its own shape."""
        return {k: v[0] for k, v in self.split(self.curvature.variances(self.delta(deltas))[None]).items()}

    def traces(self, deltas: Deltas) -> dict[str, Tensor]:
        """Trace of each parameter's posterior covariance."""
        if isinstance(self.curvature, Kronecker) and len(self.names) == 1:
            return {self.names[0]: self.curvature.traces(self.delta(deltas))}
        return {k: v.sum() for k, v in self.variances(deltas).items()}

    def noise(self, n: int, rng: torch.Generator) -> Tensor:
        """n standard normal draws in the shape that the curvature takes, in float64 and on the CPU."""
        if isinstance(self.curvature, Kronecker):
            shape: tuple[int, ...] = (len(self.curvature.left_values), len(self.curvature.right_values))
        else:
            shape = (sum(s.numel() for s in self.shapes),)
        return torch.randn(n, *shape, generator=rng, dtype=torch.float64)

    def offsets(self, deltas: Deltas, z: Tensor) -> dict[str, Tensor]:
        """d = θ − θ* of standard normal z [M, ...], with dᵀ (H + δ) d = zᵀz; in float64."""
        delta = self.delta(deltas)
        return self.split(self.curvature.draw(delta, z.to(delta.device)))

    def draw(self, deltas: Deltas, n: int, rng: torch.Generator) -> dict[str, Tensor]:
        """n draws of θ − θ*, in float64."""
        return self.offsets(deltas, self.noise(n, rng))

    def quadratic(self, deltas: Deltas, offset: Tensors) -> Tensor:
        """dᵀ (H + δ) d of named [1, ...] tensors, in their dtype."""
        return self.curvature.quadratic(self.delta(deltas), self.join(offset)[0])

    def scaled(self, factor: float | Tensor) -> "Block":
        """The curvature times a number, as when the noise variance is divided by it."""
        return replace(self, curvature=self.curvature.scaled(factor))

    def plus(self, other: "Block") -> "Block":
        return replace(self, curvature=self.curvature.plus(other.curvature))  # type: ignore[arg-type]  # of one kind


def curvature(
    network: Network,
    likelihood: Likelihood,
    extra: Tensors,
    x: Tensor,
    *,
    structure: Structure,
    bias: Bias = "own",
    factored: bool = False,
    progress: RowProgress = lambda done, total: None,
) -> tuple[list[Block], Tensor]:
    """The blocks of H over all rows of x, and the network's outputs [N, O]."""
    sums: dict[str, Tensor] = {}
    outputs = []
    for done, record in _chunks(network, x, _cost(network, structure)):
        root = likelihood.fisher_root(record.outputs, extra)  # [n, O, R]
        flows = record.backward(root.permute(2, 0, 1).contiguous())
        rest = _weighted(network.jacobian(network.rest, x[done - len(root) : done]), root)
        if structure == "full":
            add_to(sums, "dense", gram(_flat_jacobian(network, record, flows, rest)))
        else:
            for layer in network.layers:
                if structure == "kron":
                    _add_factors(sums, layer, record.inputs(layer), flows[layer.name], bias)
                else:
                    _add_squares(sums, layer, record.inputs(layer), flows[layer.name])
            for name, jacobian in rest.items():
                add_to(sums, name, jacobian.square().sum((0, 1)))
        outputs.append(record.outputs)
        progress(done, len(x))
    if not outputs:
        outputs = [torch.zeros(0, likelihood.n_outputs, dtype=network.dtype, device=x.device)]
    return _blocks(network, sums, len(x), structure, bias, factored), torch.cat(outputs)


def function_covariance(network: Network, blocks: Sequence[Block], deltas: Deltas, x: Tensor) -> Tensor:
    """J (H + δ)⁻¹ Jᵀ of each row, [N, O, O]: for Kronecker and diagonal blocks without a Jacobian.

    A linear layer's W ~ U_L [Z ⊘ √v] U_Rᵀ adds Σ_i ĝ_ci ĝ_c'i w_i with ĝ = U_Lᵀ g, â = U_Rᵀ a, w_i = Σ_j â_j²/v_ij.
    """
    dense = next((b for b in blocks if isinstance(b.curvature, Dense)), None)
    by_name = {b.names[0]: b for b in blocks}
    factor = None
    if dense is not None:
        assert isinstance(dense.curvature, Dense)
        factor = dense.curvature.factor(dense.delta(deltas))
    spread = {} if dense is not None else {name: _Spread.of(b, deltas, network.dtype) for name, b in by_name.items()}
    found = []
    for done, record in _chunks(network, x, _cost(network, "diag" if dense is None else "full")):
        n, n_outputs = record.outputs.shape
        identity = torch.eye(n_outputs, dtype=record.outputs.dtype, device=x.device)
        flows = record.backward(identity[:, None].expand(n_outputs, n, n_outputs).contiguous())
        rest = network.jacobian(network.rest, x[done - n : done])  # [n, O, ...]
        if factor is not None:
            flat = _flat_jacobian(network, record, flows, {k: v.transpose(0, 1) for k, v in rest.items()})  # [O·n, P]
            half = torch.linalg.solve_triangular(factor, flat.to(factor).mT, upper=False)  # [P, O·n]
            half = half.reshape(-1, n_outputs, n).permute(2, 1, 0)  # [n, O, P]
            found.append((half @ half.mT).to(record.outputs))
            continue
        total = record.outputs.new_zeros(n, n_outputs, n_outputs)
        for layer in network.layers:
            a, g = record.inputs(layer), flows[layer.name].transpose(0, 1)  # [n, T, I], [n, C, T, O]
            if layer.weight is not None:
                spread_here = spread[layer.weight]
                if layer.bias is not None and layer.bias not in spread:
                    a = torch.cat([a, torch.ones_like(a[..., :1])], -1)
                total += spread_here.of_products(a, g)
            if layer.bias is not None and layer.bias in spread:
                total += spread[layer.bias].of_vectors(g.sum(2))
        for name, jacobian in rest.items():
            total += spread[name].of_vectors(jacobian.flatten(2))
        found.append(total)
    none = torch.zeros(0, network.n_outputs, network.n_outputs, dtype=network.dtype, device=x.device)
    return torch.cat([none, *found])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Spread:
    """A block's covariance as rotations and variances in the rotated frame, in the dtype of the network."""

    left: Tensor | None  # [O, O]
    right: Tensor | None  # [I, I]
    variances: Tensor  # [O, I]

    @classmethod
    def of(cls, block: Block, deltas: Deltas, dtype: torch.dtype) -> "_Spread":
        c, delta = block.curvature, block.delta(deltas)
        if isinstance(c, Kronecker):
            return cls(
                left=c.left_vectors.to(dtype),
                right=c.right_vectors.to(dtype) if len(c.right_values) > 1 else None,
                variances=c.values(delta).reciprocal().to(dtype),
            )
        assert isinstance(c, Diagonal)
        rows = block.shapes[0][0] if block.shapes[0] else 1
        return cls(left=None, right=None, variances=c.variances(delta).reshape(rows, -1).to(dtype))

    def of_products(self, a: Tensor, g: Tensor) -> Tensor:
        """Σ_t g_t a_tᵀ as the Jacobian: a [n, T, I], g [n, C, T, O] -> [n, C, C]."""
        a = a if self.right is None else _rotated(a, self.right)
        g = g if self.left is None else _rotated(g, self.left)
        if a.shape[1] == 1:
            w = a[:, 0].square() @ self.variances.mT  # [n, O]
            g = g[:, :, 0]
            return (g * w[:, None]) @ g.mT
        j = torch.einsum("ncto,nti->ncoi", g, a)
        return (j * self.variances).flatten(2) @ j.flatten(2).mT

    def of_vectors(self, j: Tensor) -> Tensor:
        """j [n, C, P] as the Jacobian -> [n, C, C]."""
        j = j if self.left is None else _rotated(j, self.left)
        return (j * self.variances.flatten()) @ j.mT


def _rotated(a: Tensor, basis: Tensor) -> Tensor:
    """a [..., D] @ basis [D, D], as one product of matrices."""
    return (a.reshape(-1, a.shape[-1]) @ basis).reshape(a.shape)


def add_to(sums: dict[str, Tensor], key: str, value: Tensor) -> None:
    """Long sums are kept in float64."""
    wide = value.to(torch.float64)
    sums[key] = sums[key] + wide if key in sums else wide


def _add_factors(sums: dict[str, Tensor], layer: Layer, a: Tensor, g: Tensor, bias: Bias) -> None:
    flat = a.reshape(-1, a.shape[-1])
    if bias == "joint" and layer.bias is not None:
        flat = torch.cat([flat, torch.ones_like(flat[:, :1])], 1)
    if layer.weight is not None:
        add_to(sums, f"right/{layer.name}", gram(flat) / layer.positions)
    add_to(sums, f"left/{layer.name}", gram(g.reshape(-1, g.shape[-1])))


def _add_squares(sums: dict[str, Tensor], layer: Layer, a: Tensor, g: Tensor) -> None:
    if layer.weight is not None:
        if a.shape[1] == 1:
            squares = g.square().sum(0)[:, 0].mT @ a[:, 0].square()
        else:
            squares = torch.einsum("rnto,nti->rnoi", g, a).square().sum((0, 1))
        add_to(sums, layer.weight, squares)
    if layer.bias is not None:
        add_to(sums, layer.bias, g.sum(2).square().sum((0, 1)))


def _flat_jacobian(network: Network, record: Record, flows: dict[str, Tensor], rest: Tensors) -> Tensor:
    """[R·n, P] over `network.names` in their order; rest is [R, n, ...]."""
    parts = dict(rest)
    for layer in network.layers:
        g = flows[layer.name]
        if layer.weight is not None:
            parts[layer.weight] = torch.einsum("rnto,nti->rnoi", g, record.inputs(layer))
        if layer.bias is not None:
            parts[layer.bias] = g.sum(2)
    return torch.cat([parts[name].flatten(2) for name in network.names], 2).flatten(0, 1)


def _weighted(jacobian: Tensors, root: Tensor) -> dict[str, Tensor]:
    """J [n, O, ...] and S [n, O, R] -> SᵀJ [R, n, ...]."""
    return {k: torch.einsum("no...,nor->rn...", v, root) for k, v in jacobian.items()}


def _blocks(
    network: Network, sums: dict[str, Tensor], n_rows: int, structure: Structure, bias: Bias, factored: bool
) -> list[Block]:
    shape = {name: network.tensors[name].shape for name in network.names}
    device = next(iter(network.tensors.values())).device

    def total(key: str, *size: int) -> Tensor:
        return sums[key] if key in sums else torch.zeros(size, dtype=torch.float64, device=device)

    if structure == "full":
        p = sum(s.numel() for s in shape.values())
        shapes = tuple(shape.values())
        return [Block(names=network.names, shapes=shapes, curvature=Dense(matrix=total("dense", p, p)))]
    found = {}
    for layer in network.layers if structure == "kron" else ():
        left = total(f"left/{layer.name}", layer.n_outputs, layer.n_outputs)
        joint = bias == "joint" and layer.weight is not None and layer.bias is not None
        if layer.weight is not None:
            width = layer.n_inputs + joint
            right = total(f"right/{layer.name}", width, width) / max(1, n_rows)
            names = layer.parameters if joint else (layer.weight,)
            kron = Kronecker.of(left, right, n_rows, factored=factored)
            found[layer.weight] = Block(names=names, shapes=tuple(shape[n] for n in names), curvature=kron)
        if layer.bias is not None and not joint:
            one = torch.ones(1, 1, dtype=torch.float64, device=device)
            if layer.weight is not None:  # the left factor is diagonalised already
                k = found[layer.weight].curvature
                assert isinstance(k, Kronecker)
                own = replace(k, right_values=one[0], right_vectors=one, factored=False)
            else:
                own = Kronecker.of(left, one, n_rows)
            found[layer.bias] = Block(names=(layer.bias,), shapes=(shape[layer.bias],), curvature=own)
    covered = {n for block in found.values() for n in block.names}
    for name in network.names:
        if name not in covered:
            diagonal = Diagonal(diagonal=total(name, *shape[name]).flatten())
            found[name] = Block(names=(name,), shapes=(shape[name],), curvature=diagonal)
    return [found[name] for name in network.names if name in found]


def _cost(network: Network, structure: Structure) -> int:
    """Numbers that one row takes in the largest intermediate tensor."""
    n_outputs = network.n_outputs
    sizes = [1]
    for layer in network.layers:
        sizes.append(layer.positions * max(n_outputs * layer.n_outputs, layer.n_inputs))
        if structure != "kron" and layer.positions > 1:
            sizes.append(n_outputs * layer.n_outputs * layer.n_inputs)
    whole = network.names if structure == "full" else network.rest
    sizes.append(n_outputs * sum(network.tensors[name].numel() for name in whole))
    return max(sizes)


def _chunks(network: Network, x: Tensor, cost: int) -> Iterator[tuple[int, Record]]:
    """Equal chunks of rows, each as (rows done after it, its record)."""
    if not len(x):
        return
    count = -(-len(x) // max(1, _ENTRIES // cost))
    for i in range(count):
        start, stop = len(x) * i // count, len(x) * (i + 1) // count
        yield stop, network.record(x[start:stop])
