"""How members run: the one place that chooses between all at once (vmap) and one after another, and the rows a block.

On a CPU vmap wins for linear layers while all members' weights fit the cache, else every block of rows reads them anew;
convolutions are several times faster member by member and faster still with channels last, recurrent layers cannot be
vmapped, batch normalisation writes to its buffers as it trains, and a module that draws random numbers must draw them
for each member alone. The numbers agree to rounding.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock, get_ident
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bensemble_core.models.spec import outline
from bensemble_core.models.transforms import CONVOLUTIONS, join, layers_in_order, removing
from bensemble_core.randomness import borrowed
from bensemble_core.types import Problem, Tensors, Transform

Mode: TypeAlias = Literal["vmap", "loop"]
Layout: TypeAlias = Literal["contiguous", "channels_last"]
_ONE_BY_ONE_ON_CPU = CONVOLUTIONS
_ONE_BY_ONE = (nn.RNNBase, nn.RNNCellBase, nn.modules.batchnorm._BatchNorm)
_CACHE_BYTES = 2 << 20  # largest activation of a block; measured on one core: past 2 MB vmap is slower than the loop
_LOOP_BYTES = 8 << 20  # the same of members that run one after another, whose weights are read again for each block
_WEIGHT_BYTES = 4 << 20  # of all members; past it linear layers run faster member by member
_LEAST_ROWS, MOST_ROWS = 32, 512
COMPILED_ROWS = 128  # of a compiled block; measured on a small convolutional network: 64 and 256 take a fifth more time


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Chosen once per ensemble and stored with it: a row's bits depend on it."""

    mode: Mode
    rows: int  # rows in one forward pass; a shorter last block is padded
    layout: Layout = "contiguous"  # of images, in memory; their shape stays [N, C, H, W]
    compiled: bool = False  # one member's pass through torch.compile; of members that run one after another


@dataclass(frozen=True, kw_only=True, eq=False)
class Members:
    """A skeleton (a module of our own whose values are never read) and the way tensors are run through it."""

    module: nn.Module
    transform: Transform | None
    mode: Mode
    dense: "Dense | None" = None  # a shorter way to the same numbers, where there is one
    layout: Layout = "contiguous"
    compiled: bool = False
    lock: Lock = field(default_factory=Lock)  # functional_call swaps the module's tensors: one thread at a time

    @property
    def is_concurrent(self) -> bool:
        """Whether threads may run at once: batched products need neither the module nor its lock."""
        return self.dense is not None

    def __call__(self, stacked: Tensors, shared: Tensors, x: Tensor, *, own_rows: bool = False) -> Tensor:
        """Outputs of all members: x [N, ...] for all, or with `own_rows` [M, N, ...] -> [M, N, O]."""
        if self.mode == "vmap" and self.dense is not None:
            return self.dense({**shared, **stacked}, x if own_rows else x.expand(count_members(stacked), *x.shape))
        if self.mode == "vmap":
            rows = 0 if own_rows else None
            run = torch.vmap(lambda member, x: self.one(member, shared, x), in_dims=(0, rows))
            return run(dict(stacked), x)
        n_members = count_members(stacked)
        if self.dense is not None and not self.dense.columns:
            every = {**shared, **stacked}
            one_by_one = ({k: v[m : m + 1] for k, v in every.items()} for m in range(n_members))
            return torch.cat([self.dense(t, x[m : m + 1] if own_rows else x[None]) for m, t in enumerate(one_by_one)])
        if self.layout == "channels_last" and not own_rows:
            x = x.contiguous(memory_format=torch.channels_last)
        outputs = []
        for m in range(n_members):
            member, rows_of_m = {k: v[m] for k, v in stacked.items()}, x[m] if own_rows else x
            if self.compiled:
                outputs.append(self._compiled_one(member, shared, rows_of_m.clone()))
            else:
                outputs.append(self.one(member, shared, rows_of_m.clone()))
        return torch.stack(outputs)  # the clone above: a module may work in place on its input

    def one(self, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        """One member's outputs [N, O]."""
        return self._one(self._call, member, shared, x)

    def _one(self, call: Callable[[Tensors, Tensor], Tensor], member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        if self.transform is None:
            outputs = call({**shared, **member}, x)
        else:
            outputs = self.transform.forward(call, member, shared, x)
        return outputs.unsqueeze(-1) if outputs.ndim == 1 else outputs

    def _compiled_one(self, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        with self.lock, torch.no_grad():
            outputs: Tensor = self._compiled(member, shared, x)
        return outputs

    @cached_property
    def _compiled(self) -> Callable[[Tensors, Tensors, Tensor], Tensor]:
        def one(member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
            return self._one(self._call_freely, member, shared, x)

        return torch.compile(one, fullgraph=True, dynamic=False)

    def inputs_of(self, layer: str, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        """What the named layer is given when one member runs on x."""
        seen: list[Tensor] = []
        thread = get_ident()

        def note(_layer: nn.Module, args: tuple[Tensor, ...]) -> None:
            if get_ident() == thread:
                seen.append(args[0].detach())

        hook = self.module.get_submodule(layer).register_forward_pre_hook(note, prepend=True)
        centre = getattr(self.transform, "centre", None)  # where a member is no network of its own to look into
        with removing([hook]):
            if centre is None:
                self.one(member, shared, x)
            else:
                centre(self._call, member, shared, x)
        return seen[-1]

    def _call(self, tensors: Tensors, x: Tensor) -> Tensor:
        with self.lock:
            return self._call_freely(tensors, x)

    def _call_freely(self, tensors: Tensors, x: Tensor) -> Tensor:
        named = {k: v for k, v in tensors.items() if "/" not in k}  # what is not the module's own has a slash
        outputs: Tensor = functional_call(self.module, named, (x,))
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """All members of a plain stack of linear layers by batched products: what vmap does, at a third of its overhead."""

    layers: tuple[tuple[str, nn.Module], ...]
    columns: bool = False  # rows as columns, so that the gradients of weights come out in the weights' own layout

    def __call__(self, tensors: Tensors, x: Tensor) -> Tensor:
        """Every weight [M, ...], x [M, N, ...] -> [M, N, O]."""
        h = x.flatten(2)
        if self.columns:
            h = h.mT  # [M, D, N]
        ours = False  # a product of our own, which may be overwritten
        for name, layer in self.layers:
            if isinstance(layer, nn.Linear):
                weight, bias = tensors[join(name, "weight")], tensors.get(join(name, "bias"))  # [M, O, D], [M, O]
                if self.columns:
                    h = torch.bmm(weight, h) if bias is None else torch.baddbmm(bias[:, :, None], weight, h)
                else:
                    h = torch.bmm(h, weight.mT) if bias is None else torch.baddbmm(bias[:, None], h, weight.mT)
                ours = True
            elif ours and type(layer) is nn.ReLU:
                h = h.relu_()
            elif not isinstance(layer, nn.Flatten):
                h = layer(h)
        return h.mT if self.columns else h


_ELEMENTWISE = (nn.Identity, nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus, nn.Sigmoid, nn.LeakyReLU)


def _dense(module: nn.Module, stacked: Tensors, row: Tensor, *, training: bool) -> Dense | None:
    """Only for nn.Linear and nn.Sequential, of layers whose batched form is certain, with every weight stacked."""
    if type(module) not in (nn.Sequential, nn.Linear) or module._forward_pre_hooks or module._forward_hooks:
        return None
    layers = tuple(module.named_children()) if type(module) is nn.Sequential else (("", module),)
    for i, (name, layer) in enumerate(layers):
        if type(layer) is nn.Linear:
            if any(join(name, p) not in stacked for p, _ in layer.named_parameters(recurse=False)):
                return None  # shared or tied
        elif type(layer) is nn.Flatten:
            if i or (layer.start_dim, layer.end_dim) != (1, -1):
                return None
        elif type(layer) not in _ELEMENTWISE or getattr(layer, "inplace", False):
            return None
    flat = row.ndim == 2 or (layers and type(layers[0][1]) is nn.Flatten)
    return Dense(layers=layers, columns=training) if flat else None


def count_members(stacked: Tensors) -> int:
    """M, the leading axis of every stacked tensor."""
    return int(next(iter(stacked.values())).shape[0])


def gather(
    problem: Problem,
    stacked: Tensors,
    shared: Tensors,
    *,
    transform: Transform | None = None,
    training: bool = False,
    mode: Mode | None = None,
    layout: Layout = "contiguous",
    compiled: bool = False,
) -> Members:
    """The members of a problem, ready to run; `mode` overrules the choice (a stored plan, a test)."""
    device = _device(stacked)
    module = problem.model.skeleton().to(device=device, dtype=problem.dtype)
    if transform is not None:
        module = transform.prepare(module).to(device=device, dtype=problem.dtype)
    module.train(training)
    module.requires_grad_(False)
    if mode is None:
        trial = Members(module=module, transform=transform, mode="vmap")
        mode = "vmap" if _can_vmap(problem, trial, stacked, shared) else "loop"
    dense = _dense(module, stacked, zero_rows(problem, 1, device), training=training) if transform is None else None
    return Members(module=module, transform=transform, mode=mode, dense=dense, layout=layout, compiled=compiled)


def plan(problem: Problem, stacked: Tensors, shared: Tensors, transform: Transform | None) -> Plan:
    """Mode, layout, and as many rows as keep the widest activation in the cache: a power of two from 32 to 512."""
    members = gather(problem, stacked, shared, transform=transform)
    device = _device(stacked)
    mode = members.mode
    if mode == "vmap" and members.dense is not None and device.type == "cpu" and _size(stacked) > _WEIGHT_BYTES:
        mode = "loop"
    one = {k: v[0] for k, v in stacked.items()}
    width = _widest(members.module, lambda: members.one(one, shared, zero_rows(problem, 1, device)))
    at_once = count_members(stacked) if mode == "vmap" else 1
    rows, room = _LEAST_ROWS, _LOOP_BYTES if mode == "loop" and members.dense is None else _CACHE_BYTES
    item = torch.finfo(problem.dtype).bits // 8
    while rows < MOST_ROWS and 2 * rows * at_once * width * item <= room:
        rows *= 2
    return Plan(mode=mode, rows=rows, layout=_layout(problem, members, one, shared, device))


def _size(stacked: Tensors) -> int:
    return sum(v.numel() * v.element_size() for v in stacked.values())


def _layout(problem: Problem, members: Members, one: Tensors, shared: Tensors, device: torch.device) -> Layout:
    """Channels last for convolutions over images on a CPU, where the network takes it (one that calls `view` may not)
    and gives the same outputs."""
    images = len(problem.model.input_shape) == 3 and any(isinstance(p, nn.Conv2d) for p in members.module.modules())
    if members.mode == "vmap" or device.type != "cpu" or not images or problem.model.integers:
        return "contiguous"
    x = torch.randn(2, *problem.model.input_shape, generator=torch.Generator().manual_seed(0), dtype=problem.dtype)
    try:
        with torch.no_grad(), borrowed(0, device):
            expected = members.one(one, shared, x.clone())
        with torch.no_grad(), borrowed(0, device):
            found = members.one(one, shared, x.contiguous(memory_format=torch.channels_last))
    except Exception:  # whatever stops it; a module that is itself broken fails with its own message
        return "contiguous"
    same = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    return "channels_last" if same else "contiguous"


def zero_rows(problem: Problem, n: int, device: torch.device) -> Tensor:
    """Rows to try a network on."""
    dtype = torch.int64 if problem.model.integers else problem.dtype
    return torch.zeros(n, *problem.model.input_shape, dtype=dtype, device=device)


def layers_called(problem: Problem) -> tuple[str, ...]:
    """Linear and convolution layers in the order in which the network calls them, found by running a row of zeros."""
    module = outline(problem.model).to(problem.dtype).eval()
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with borrowed(0), torch.no_grad():
        return tuple(layers_in_order(module, lambda: module(zero_rows(problem, 1, device))))


def _device(stacked: Tensors) -> torch.device:
    return next(iter(stacked.values())).device


def _can_vmap(problem: Problem, members: Members, stacked: Tensors, shared: Tensors) -> bool:
    """Whether vmap runs these members, and is not known to be slower than one after another."""
    device = _device(stacked)
    slow = (*_ONE_BY_ONE, *(_ONE_BY_ONE_ON_CPU if device.type == "cpu" else ()))
    if any(isinstance(part, slow) for part in _differing(problem, members, stacked, shared)):
        return False
    x = zero_rows(problem, 2, device)
    before = x.clone()
    few = {k: v[:2].clone() for k, v in stacked.items()}
    try:
        with warnings.catch_warnings(), torch.no_grad(), borrowed(0, device):
            warnings.simplefilter("error")  # torch warns where it would vmap by a slow loop
            members(few, shared, x)
    except Exception:  # whatever stops vmap; a module that is itself broken fails in the loop, with its own message
        return False
    return torch.equal(before, x)  # in-place work on rows that all members share


def _differing(problem: Problem, members: Members, stacked: Tensors, shared: Tensors) -> list[nn.Module]:
    """Parts that do not give the same to all members: the first to own a stacked tensor and all that run after it.

    Under vmap what comes before (the trunk of an ensemble of heads) is computed once, whatever it is made of.
    """
    module, device = members.module, _device(stacked)
    owners = {name.rpartition(".")[0] for name in stacked}
    names = {part: name for name, part in module.named_modules()}
    order: list[str] = []
    hooks = [
        part.register_forward_pre_hook(lambda part, _args: order.append(names[part]))
        for part in module.modules()
        if not list(part.children())
    ]
    try:
        with removing(hooks), torch.no_grad(), borrowed(0, device):
            members.one({k: v[0].clone() for k, v in stacked.items()}, shared, zero_rows(problem, 2, device))
    except Exception:  # as above: a module that is itself broken fails in the loop
        return list(module.modules())
    first = min((order.index(name) for name in owners if name in order), default=0)
    if not owners <= set(order):
        first = 0  # a tensor that is read by no layer of its own
    before, after = set(order[:first]), set(order[first:])
    return [part for name, part in module.named_modules() if name not in before - after]


def _widest(module: nn.Module, run: Callable[[], object]) -> int:
    sizes = [1]

    def note(_part: nn.Module, _args: object, outputs: object) -> None:
        if isinstance(outputs, Tensor):
            sizes.append(outputs.numel())

    with removing([part.register_forward_hook(note) for part in module.modules()]), torch.no_grad():
        run()
    return max(sizes)
