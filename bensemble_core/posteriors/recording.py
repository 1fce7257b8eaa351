"""A function of θ as the list of tensor operations that it came down to, gradients among them.

Small networks cost more in Python and autograd than in arithmetic: of 380 µs for the gradient of a logistic regression
(4 chains, 20 weights, 500 rows, one core) 310 are overhead, which a list of operations has not.
"""

from collections.abc import Callable

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[[Tensor], tuple[Tensor, Tensor]]

_aten = torch.ops.aten
_SAME_SHAPE = (_aten.view.default, _aten._unsafe_view.default, _aten.expand.default)
_OF_SHAPES = (_aten.ones_like.default, _aten.zeros_like.default, _aten.new_zeros.default)  # whatever values are given


def record(function: Function, theta: Tensor) -> Function | None:
    """The operations of `function` at θ, to be done again at any θ of that shape; None where that is not the same.

    It has to be one that `torch.vmap` can run, so that nothing in it branches by a value. What does not depend on θ is
    computed once. Functions that write to such a tensor, or give something else at a second θ, are not recorded.
    """
    try:
        module = make_fx(function)(theta)
        values = fx.Interpreter(module, garbage_collect_values=False)
        with torch.no_grad():
            values.run(theta)
    except Exception:  # whatever cannot be traced runs as it is, and fails there with its own message
        return None
    if not _fold(module, values.env):
        return None
    other = theta * 1.01 + 0.01
    with torch.no_grad():
        found = module(other)
    expected = function(other)
    if not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True)):
        return None
    _replace_tanh(module.graph)
    module.recompile()
    forward = module.forward  # without the checks for hooks, 4 µs

    def run(theta: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            value, slope = forward(theta)
        return value, slope

    return run


def _fold(module: fx.GraphModule, values: dict[fx.Node, object]) -> bool:
    """Keep what does not depend on θ as constants; False where something is written to one of them."""
    graph, constant = module.graph, set[fx.Node]()
    for node in graph.nodes:
        if node.op == "placeholder" or node.op == "output":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable and (node.args[0] in constant or node.args[0].op == "placeholder"):
            return False
        if node.op == "get_attr" or node.target in _OF_SHAPES or constant.issuperset(node.all_input_nodes):
            constant.add(node)
    for i, node in enumerate(list(graph.nodes)):
        value = values.get(node)
        if node not in constant and _changes_nothing(node, values):
            node.replace_all_uses_with(node.args[0])
        elif node in constant and isinstance(value, Tensor) and not constant.issuperset(node.users):
            module.register_buffer(f"constant{i}", value)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"constant{i}"))
    graph.eliminate_dead_code()
    module.recompile()
    return True


def _changes_nothing(node: fx.Node, values: dict[fx.Node, object]) -> bool:
    if node.target == _aten.detach.default or (node.target == _aten.pow.Tensor_Scalar and node.args[1] == 1):
        return True
    before, after = values.get(node.args[0]) if node.args else None, values.get(node)  # type: ignore[arg-type]
    is_same = isinstance(before, Tensor) and isinstance(after, Tensor) and before.shape == after.shape
    return is_same and node.target in _SAME_SHAPE


def _replace_tanh(graph: fx.Graph) -> None:
    """tanh x as 2σ(2x) − 1, which is within 2⁻²³ of it: torch takes 2.0 ns a number for the one, 0.4 for the other."""
    for node in list(graph.nodes):
        if node.target == _aten.tanh.default and node.meta["val"].dtype == torch.float32:
            with graph.inserting_before(node):
                twice = graph.call_function(_aten.mul.Scalar, (node.args[0], 2.0))
                share = graph.call_function(_aten.sigmoid_.default, (twice,))
                twofold = graph.call_function(_aten.mul_.Scalar, (share, 2.0))
                node.replace_all_uses_with(graph.call_function(_aten.sub_.Scalar, (twofold, 1.0)))
            graph.erase_node(node)
