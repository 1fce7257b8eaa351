"""A network at one set of weights, with what its linear and convolution layers were given and what flows back to them.

A layer's Jacobian is never formed: with inputs a_t and output gradients g_t at its positions t (one for a plain linear
layer, the pixels of a convolution), ∂f/∂W = Σ_t g_t a_tᵀ and ∂f/∂b = Σ_t g_t.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from bensemble_core.ensemble.members import zero_rows
from bensemble_core.models.transforms import join, layers_in_order, removing
from bensemble_core.randomness import generator
from bensemble_core.types import Problem, Tensors

_UNFOLDABLE = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_PROBE = 11  # branch of a seed for the rows on which layers are tried


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A linear or convolution layer that runs once a forward pass; parameters that are not asked for are None."""

    name: str
    weight: str | None
    bias: str | None
    n_inputs: int
    n_outputs: int
    positions: int  # in one row

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(p for p in (self.weight, self.bias) if p is not None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """The module in eval mode, one member's tensors, and the parameters in question split by how they are reached."""

    module: nn.Module
    tensors: dict[str, Tensor]
    names: tuple[str, ...]
    n_outputs: int
    layers: tuple[Layer, ...] = ()
    rest: tuple[str, ...] = ()  # parameters of no such layer: norms, embeddings, tied or functional weights
    in_place: bool = True  # some layer may work in place on another's input or output

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[self.names[0]].dtype

    def outputs(self, x: Tensor) -> Tensor:
        """[N, O]."""
        return _columns(functional_call(self.module, self.tensors, (x,)))

    def record(self, x: Tensor) -> "Record":
        """One forward pass that remembers the layers' inputs and outputs."""
        record = Record(network=self)
        hooks = [
            self.module.get_submodule(layer.name).register_forward_hook(record.note(layer)) for layer in self.layers
        ]
        with removing(hooks), torch.enable_grad():
            record.values.append(self.outputs(x.clone() if self.in_place else x))
        return record

    def inputs(self, layer: Layer, a: Tensor) -> Tensor:
        """What each position of a layer sees: [n, T, I]."""
        part = self.module.get_submodule(layer.name)
        if isinstance(part, nn.Linear):
            return a.reshape(a.shape[0], -1, a.shape[-1])
        assert isinstance(part, _UNFOLDABLE)
        mode = "constant" if part.padding_mode == "zeros" else part.padding_mode
        a = nn.functional.pad(a, part._reversed_padding_repeated_twice, mode=mode)
        axes = len(part.kernel_size)
        for axis, (size, step, gap) in enumerate(zip(part.kernel_size, part.stride, part.dilation, strict=True), 2):
            a = a.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap]  # [n, C, …places…, …kernel so far…]
        a = a.permute(0, *range(2, 2 + axes), 1, *range(2 + axes, 2 + 2 * axes))
        return a.reshape(a.shape[0], -1, layer.n_inputs)

    def gradients(self, layer: Layer, g: Tensor) -> Tensor:
        """A layer's output gradients [R, n, ...] by position: [R, n, T, O]."""
        if isinstance(self.module.get_submodule(layer.name), nn.Linear):
            return g.reshape(*g.shape[:2], -1, g.shape[-1])
        return g.flatten(3).mT

    def jacobian(self, names: Sequence[str], x: Tensor) -> dict[str, Tensor]:
        """∂f/∂θ of named parameters by automatic differentiation alone: each [n, O, ...]."""
        theta = {k: self.tensors[k] for k in names}
        if not theta:
            return {}

        def one(theta: Tensors, row: Tensor) -> Tensor:
            return _columns(functional_call(self.module, {**self.tensors, **theta}, (row[None].clone(),)))[0]

        try:
            with torch.enable_grad(), warnings.catch_warnings():
                warnings.simplefilter("error")  # torch warns where it would vmap by a slow loop
                found: dict[str, Tensor] = vmap(jacrev(one), in_dims=(None, 0))(theta, x)
        except (RuntimeError, NotImplementedError, ValueError, UserWarning):  # recurrent layers cannot be vmapped
            rows = [_jacobian_of_a_row(one, theta, row) for row in x]
            found = {k: torch.stack([row[k] for row in rows]) for k in theta}
        return {k: v.detach() for k, v in found.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """What one forward pass left behind."""

    network: Network
    values: list[Tensor] = field(default_factory=list)  # the outputs
    given: dict[str, Tensor] = field(default_factory=dict)  # layer -> input
    made: dict[str, Tensor] = field(default_factory=dict)  # layer -> output, a node of the graph

    @property
    def outputs(self) -> Tensor:
        return self.values[0].detach()

    def note(self, layer: Layer) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def hook(_part: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> Tensor:
            copies = self.network.in_place
            given = args[0].detach()
            self.given[layer.name] = given.clone() if copies else given
            node = out if out.requires_grad else out.detach().requires_grad_()
            self.made[layer.name] = node
            return node.clone() if copies else node

        return hook

    def backward(self, directions: Tensor) -> dict[str, Tensor]:
        """Gradients of Σ_o directions[r, n, o] f_o(x_n) at each layer's outputs: [R, n, T, O] by layer."""
        layers = [layer for layer in self.network.layers if layer.name in self.made]
        nodes = [self.made[layer.name] for layer in layers]
        if not nodes:
            return {}
        rows = []
        for i, direction in enumerate(directions):  # one by one: on a CPU no slower than batched, and any module can
            last = i + 1 == len(directions)
            rows.append(torch.autograd.grad(self.values[0], nodes, direction, retain_graph=not last, allow_unused=True))
        found = {}
        for k, layer in enumerate(layers):
            g = [torch.zeros_like(nodes[k]) if row[k] is None else row[k] for row in rows]
            found[layer.name] = self.network.gradients(layer, torch.stack(g))
        return found

    def inputs(self, layer: Layer) -> Tensor:
        return self.network.inputs(layer, self.given[layer.name])


def look_at(problem: Problem, tensors: Tensors, names: Sequence[str]) -> Network:
    """The network at these tensors (one member's, no leading axis), layers found by trying two rows.

    A layer counts as one if it is called once, no other module shares its parameters, and its inputs and output
    gradients give the derivative that automatic differentiation gives; all other parameters go to `rest`.
    """
    device = next(iter(tensors.values())).device
    module = problem.model.skeleton().to(device=device, dtype=problem.dtype).eval().requires_grad_(False)
    own = {k: v.detach() for k, v in tensors.items() if "/" not in k}
    network = Network(module=module, tensors=own, names=tuple(names), n_outputs=problem.model.n_outputs)
    rows = zero_rows(problem, 2, device)
    if rows.is_floating_point():
        rows = torch.randn(rows.shape, generator=generator(0, _PROBE), dtype=torch.float64).to(rows)
    called: dict[str, int] = {}
    shapes: dict[str, tuple[torch.Size, torch.Size]] = {}
    touched: list[tuple[Tensor, int]] = []
    hooks = []
    for name, part in module.named_modules():
        if isinstance(part, (nn.Linear, *_UNFOLDABLE)) and getattr(part, "groups", 1) == 1:

            def count(_part: nn.Module, args: tuple[Tensor, ...], out: Tensor, name: str = name) -> None:
                called[name] = called.get(name, 0) + 1
                shapes[name] = (args[0].shape, out.shape)
                touched.extend((t, t._version) for t in (args[0], out))

            hooks.append(part.register_forward_hook(count))
    with removing(hooks), torch.no_grad():
        network.outputs(rows.clone())
    network = replace(network, in_place=any(t._version != version for t, version in touched))
    layers = []
    for name in layers_in_order(module, lambda: network.outputs(rows.clone())):
        if called.get(name) != 1 or shapes[name][0][:1] != (2,) or shapes[name][1][:1] != (2,):
            continue
        part = module.get_submodule(name)
        weight, bias = (full if (full := join(name, p)) in names else None for p in ("weight", "bias"))
        if weight is None and bias is None:
            continue
        w: Tensor = part.weight  # type: ignore[assignment]  # no parameter where it is computed (parametrizations)
        out = shapes[name][1]
        positions = out[1:-1].numel() if isinstance(part, nn.Linear) else out[2:].numel()
        layers.append(
            Layer(
                name=name,
                weight=weight,
                bias=bias,
                n_inputs=w[0].numel(),
                n_outputs=w.shape[0],
                positions=positions,
            )
        )
    sound = _sound(replace(network, layers=tuple(layers)), rows)
    reached = {p for layer in sound for p in layer.parameters}
    rest = tuple(n for n in names if n not in reached)
    return replace(network, layers=sound, rest=rest)


def _sound(network: Network, rows: Tensor) -> tuple[Layer, ...]:
    """The layers whose own derivative, of the first of two rows, is the whole derivative of their parameters."""
    if not network.layers:
        return ()
    record = network.record(rows)
    direction = torch.zeros_like(record.outputs)
    direction[0] = torch.randn(direction[0].shape, generator=generator(0, _PROBE, 1), dtype=torch.float64).to(direction)
    flows = record.backward(direction[None])
    theta = {p: network.tensors[p].clone().requires_grad_() for layer in network.layers for p in layer.parameters}
    with torch.enable_grad():
        outputs = _columns(functional_call(network.module, {**network.tensors, **theta}, (rows.clone(),)))
        true = torch.autograd.grad((outputs * direction).sum(), list(theta.values()), allow_unused=True)
    wanted = dict(zip(theta, true, strict=True))
    kept = []
    for layer in network.layers:
        g, a = flows[layer.name][0, 0], record.inputs(layer)[0]  # [T, O], [T, I]
        if not len(a) == len(g) == layer.positions:
            continue
        found = {layer.weight: g.mT @ a, layer.bias: g.sum(0)}
        if all(_close(found[p], wanted[p]) for p in layer.parameters):
            kept.append(layer)
    return tuple(kept)


def _close(found: Tensor, wanted: Tensor | None) -> bool:
    if wanted is None:
        return not bool(found.any())
    scale = float(wanted.abs().max())
    tolerance = 1e-3 if wanted.dtype == torch.float32 else 1e-9
    return bool((found - wanted.reshape(found.shape)).abs().max() <= tolerance * scale)


def _columns(outputs: Tensor) -> Tensor:
    return outputs.unsqueeze(-1) if outputs.ndim == 1 else outputs


def _jacobian_of_a_row(one: Callable[[Tensors, Tensor], Tensor], theta: Tensors, row: Tensor) -> dict[str, Tensor]:
    leaves = {k: v.detach().clone().requires_grad_() for k, v in theta.items()}
    with torch.enable_grad():
        outputs = one(leaves, row)
    rows = [torch.autograd.grad(f, list(leaves.values()), retain_graph=True, materialize_grads=True) for f in outputs]
    return {k: torch.stack([r[i] for r in rows]) for i, k in enumerate(leaves)}
