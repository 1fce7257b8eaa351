"""What `laplace` keeps, as named tensors and back: prior precisions, blocks of the curvature, evidence, rows.

All lie under `laplace/` with a leading axis of 1: `prior_precision/…` of each uncertain parameter, `log_evidence`,
`n_rows`, and the curvature as one `dense` matrix, or by parameter as `diagonal/…` or the eigenvalues and -vectors of
its two Kronecker factors.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bensemble_core.linalg import Dense, Diagonal, Kronecker
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.posteriors.laplace.curvature import Block, Deltas, Structure
from bensemble_core.types import Problem, Shapes, Tensors

PREFIX = "laplace/"
EVIDENCE, ROWS = PREFIX + "log_evidence", PREFIX + "n_rows"
_PRECISION, _DENSE, _DIAGONAL = PREFIX + "prior_precision/", PREFIX + "dense", PREFIX + "diagonal/"
_FACTORS = ("left_values", "left_vectors", "right_values", "right_vectors")


def to_state(blocks: Sequence[Block], deltas: Deltas, evidence: Tensor, n_rows: int) -> dict[str, Tensor]:
    state = {_PRECISION + name: delta[None] for name, delta in deltas.items()}
    state |= {EVIDENCE: evidence[None], ROWS: torch.tensor([n_rows], device=evidence.device)}
    for block in blocks:
        c, name = block.curvature, block.names[0]
        if isinstance(c, Dense):
            state[_DENSE] = c.matrix[None]
        elif isinstance(c, Diagonal):
            state[_DIAGONAL + name] = c.diagonal[None]
        else:
            # contiguous, as a file gives them back: a product's last bits depend on it
            state |= {f"{PREFIX}{f}/{name}": getattr(c, f)[None].contiguous() for f in _FACTORS}
    return state


def expected_state(problem: Problem, state: Tensors, names: Sequence[str], structure: Structure) -> Shapes:
    """Names and shapes of what `to_state` keeps; the state shows which blocks are Kronecker products."""
    own = {n: tuple(p.shape) for n, p in outline(problem.model).named_parameters()}
    found: Shapes = {_PRECISION + n: (1,) for n in names}
    found |= {EVIDENCE: (1,), ROWS: (1,)}
    if structure == "full":
        size = sum(math.prod(own[n]) for n in names)
        return found | {_DENSE: (1, size, size)}
    joint = ""  # a bias in the block of the weight before it
    for name, following in zip(names, (*names[1:], ""), strict=True):
        if name == joint:
            continue
        if structure == "diag" or f"{PREFIX}left_values/{name}" not in state or not own[name]:
            found[_DIAGONAL + name] = (1, math.prod(own[name]))
            continue
        left, right = own[name][0], math.prod(own[name][1:])
        if following and state.get(f"{PREFIX}right_values/{name}", torch.empty(0)).shape[-1:] == (right + 1,):
            joint, right = following, right + 1
        sizes = ((1, left), (1, left, left), (1, right), (1, right, right))
        found |= {f"{PREFIX}{f}/{name}": size for f, size in zip(_FACTORS, sizes, strict=True)}
    return found


def from_state(problem: Problem, state: Tensors, *, factored: bool) -> tuple[tuple[str, ...], list[Block], Deltas]:
    """Names in the model's order, blocks and precisions, as `to_state` left them."""
    deltas = {k[len(_PRECISION) :]: v[0] for k, v in state.items() if k.startswith(_PRECISION)}
    names = tuple(n for n in trainable_names(outline(problem.model)) if n in deltas)
    shapes = {n: state[n][0].shape for n in names}
    if _DENSE in state:
        whole = Dense(matrix=state[_DENSE][0])
        return names, [Block(names=names, shapes=tuple(shapes.values()), curvature=whole)], deltas
    blocks = []
    for i, name in enumerate(names):
        part: Diagonal | Kronecker
        covers: tuple[str, ...] = (name,)
        if _DIAGONAL + name in state:
            part = Diagonal(diagonal=state[_DIAGONAL + name][0])
        elif f"{PREFIX}left_values/{name}" in state:
            factors = {f: state[f"{PREFIX}{f}/{name}"][0] for f in _FACTORS}
            own_bias = len(factors["right_values"]) == shapes[name][1:].numel()
            covers = (name,) if own_bias else (name, names[i + 1])
            n_rows = int(state[ROWS][0])
            part = Kronecker(**factors, n_rows=n_rows, factored=factored and len(shapes[name]) > 1)
        else:
            continue  # a bias in its weight's block
        blocks.append(Block(names=covers, shapes=tuple(shapes[n] for n in covers), curvature=part))
    return names, blocks, deltas
