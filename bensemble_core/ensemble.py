"""Ensemble: M posterior draws as named tensors, with a deterministic predict."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bensemble_core import io
from bensemble_core.calibration import Calibration
from bensemble_core.errors import InvalidData
from bensemble_core.members import Members, Plan, count_members, gather, plan, zero_rows
from bensemble_core.models.transforms import layers_in_order, transform_from_json
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.training import split_extra
from bensemble_core.types import Family, Problem, Tensors, Transform

Rows: TypeAlias = Tensor | npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """What differs between members is `stacked` [M, ...], what does not is `shared`; nothing here is ever written to.

    Rows run in blocks of `plan.rows` from row 0 of the array handed in, the last one padded with zeros and cut, so a
    row's bits do not depend on how many rows follow its block.
    """

    problem: Problem
    stacked: Tensors
    shared: Tensors = field(default_factory=dict)
    log_weights: Tensor | None = None  # [M]; None is equal weights
    transform: Transform | None = None
    stored_plan: Plan | None = None  # read from a file, so that a row keeps its bits
    calibration: Calibration | None = None  # applied to every prediction

    def __post_init__(self) -> None:
        if not self.stacked:
            raise InvalidData("an ensemble needs at least one stacked tensor; its leading axis counts the members")
        sizes = {name: tuple(t.shape[:1]) for name, t in self.stacked.items()}
        if len(set(sizes.values())) != 1 or () in sizes.values():
            raise InvalidData(f"stacked tensors have to agree in their leading axis, got {sizes}")
        if self.log_weights is not None and self.log_weights.shape != (self.n_members,):
            raise InvalidData(f"expected {self.n_members} log-weights, got shape {tuple(self.log_weights.shape)}")

    @property
    def n_members(self) -> int:
        return count_members(self.stacked)

    @property
    def device(self) -> torch.device:
        return next(iter(self.stacked.values())).device

    @property
    def family(self) -> Family:
        """Which of the two predictives it gives: "categorical" or "gaussian"."""
        return self.problem.likelihood.family

    @cached_property
    def plan(self) -> Plan:
        """How members run and how many rows a block has; chosen once, in `members.py`."""
        return self.stored_plan or plan(self.problem, self.stacked, self.shared, self.transform)

    def predict(self, x: Rows) -> Predictive:
        """Every member's distribution for every row: x [N, ...] -> a Predictive of [M, N, …]."""
        parts = list(self.iter_predict(x))
        if isinstance(parts[0], CategoricalPredictive):
            return CategoricalPredictive.cat(p for p in parts if isinstance(p, CategoricalPredictive))
        return GaussianPredictive.cat(p for p in parts if isinstance(p, GaussianPredictive))

    def iter_predict(self, x: Rows, chunk_rows: int | None = None) -> Iterator[Predictive]:
        """The same in chunks of `chunk_rows` rows (default: one block), each starting a block of its own.

        Never more than a chunk of x is read and converted, so x may be a memory map. An empty x gives one empty chunk.
        """
        step = chunk_rows or self.plan.rows
        for start in range(0, max(1, len(x)), step):
            yield self.predict_chunk(x[start : start + step])

    def predict_chunk(self, x: Rows) -> Predictive:
        """One chunk: its blocks start at its first row."""
        _, extra = split_extra({**self.shared, **self.stacked})
        stacked, _ = split_extra(self.stacked)
        shared, _ = split_extra(self.shared)
        with torch.no_grad():
            blocks = [self._members(stacked, shared, block)[:, :n] for block, n in self._blocks(x)]
        outputs = torch.cat(blocks, 1)  # [M, N, O]
        predictive = self.problem.likelihood.predictive(outputs, extra, self.log_weights)
        return predictive if self.calibration is None else self.calibration(predictive)

    def features(self, x: Rows, *, member: int | None = None) -> Tensor:
        """The input of the last linear layer, else the flattened rows: [N, F].

        Features of different members are not comparable, so they are one member's: the heaviest, or the first.
        """
        if member is None:
            member = 0 if self.log_weights is None else int(self.log_weights.argmax())
        if self._head is None:
            return torch.cat([block[:n].flatten(1) for block, n in self._blocks(x)])
        stacked, _ = split_extra({k: v[member] for k, v in self.stacked.items()})
        shared, _ = split_extra(self.shared)
        found = []
        with torch.no_grad():
            for block, n in self._blocks(x):
                inputs = self._members.inputs_of(self._head, stacked, shared, block.clone())
                found.append(inputs[:n].flatten(1))
        return torch.cat(found)

    def to(self, device: torch.device | str) -> "Ensemble":
        """The same ensemble on another device, with a plan of its own where the kind of device changes."""
        same_kind = torch.device(device).type == self.device.type
        return replace(
            self,
            problem=self.problem.to(device),
            stacked={k: v.to(device) for k, v in self.stacked.items()},
            shared={k: v.to(device) for k, v in self.shared.items()},
            log_weights=None if self.log_weights is None else self.log_weights.to(device),
            stored_plan=self.plan if same_kind else None,
            calibration=None if self.calibration is None else self.calibration.to(device),
        )

    def save(self, path: str | Path) -> None:
        """Write safetensors with a JSON header; `bensemble_core.load` reads it."""
        io.write(path, *self.to_tensors())

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and flat tensors."""
        header = {
            "kind": "ensemble",
            "problem": io.problem_header(self.problem),
            "transform": None if self.transform is None else self.transform.to_json(),
            "plan": {"mode": self.plan.mode, "rows": self.plan.rows, "layout": self.plan.layout},
        }
        tensors = {
            **io.problem_tensors(self.problem),
            **io.above("stacked/", self.stacked),
            **io.above("shared/", self.shared),
        }
        if self.log_weights is not None:
            tensors["log_weights"] = self.log_weights
        if self.calibration is not None:
            tensors |= io.above("calibration/", self.calibration.to_tensors())
        return header, tensors

    @classmethod
    def from_tensors(cls, header: Mapping[str, Any], tensors: Tensors, *, model: nn.Module | None = None) -> "Ensemble":
        """The inverse of `to_tensors`; `model` where the network was an nn.Module."""
        problem = io.problem_from(header["problem"], tensors, model=model)
        how = header["plan"]
        layout = how.get("layout", "contiguous")  # files from before there was a choice
        return cls(
            problem=problem,
            stacked=io.below("stacked/", tensors),
            shared=io.below("shared/", tensors),
            log_weights=tensors.get("log_weights"),
            transform=transform_from_json(header["transform"]),
            stored_plan=Plan(mode=how["mode"], rows=int(how["rows"]), layout=layout),
            calibration=Calibration.from_tensors(io.below("calibration/", tensors), problem.likelihood.family),
        )

    @cached_property
    def _members(self) -> Members:
        stacked, shared = split_extra(self.stacked)[0], split_extra(self.shared)[0]
        return gather(
            self.problem, stacked, shared, transform=self.transform, mode=self.plan.mode, layout=self.plan.layout
        )

    @cached_property
    def _head(self) -> str | None:
        """Name of the last linear layer to run."""
        one, shared = split_extra({k: v[0] for k, v in self.stacked.items()})[0], split_extra(self.shared)[0]
        row = zero_rows(self.problem, 1, self.device)
        with torch.no_grad():
            order = layers_in_order(self._members.module, lambda: self._members.one(one, shared, row))
        linear = [name for name in order if isinstance(self._members.module.get_submodule(name), nn.Linear)]
        return linear[-1] if linear else None

    def _blocks(self, x: Rows) -> Iterator[tuple[Tensor, int]]:
        """Standardised rows of x, `plan.rows` at a time, the last padded with zeros; and how many are real."""
        shape, rows = self.problem.model.input_shape, self.plan.rows
        for start in range(0, max(1, len(x)), rows):
            block = as_rows(x[start : start + rows], self.problem, self.device)
            n = block.shape[0]
            if self.problem.scaling is not None:
                block = self.problem.scaling(block)
            if n < rows:
                block = torch.cat([block, block.new_zeros(rows - n, *shape)])
            yield block, n


def as_rows(x: Rows, problem: Problem, device: torch.device | str) -> Tensor:
    """A chunk of rows in the problem's dtype and shape; flat rows of the right length are reshaped."""
    shape = problem.model.input_shape
    dtype = torch.int64 if problem.model.integers else problem.dtype
    if not isinstance(x, Tensor):
        # a copy: memory maps are often read-only, which torch does not know
        x = torch.from_numpy(np.array(x, dtype=np.dtype(str(dtype).removeprefix("torch."))))
    if x.shape[1:] != shape and math.prod(x.shape[1:]) != math.prod(shape):
        raise InvalidData(f"expected rows of shape {list(shape)}, got {list(x.shape[1:])}")
    return x.reshape(x.shape[0], *shape).to(device=device, dtype=dtype)
