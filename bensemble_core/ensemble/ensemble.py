"""Ensemble: M posterior draws as named tensors, with a deterministic predict."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from bensemble_core import display, io
from bensemble_core.display import Described
from bensemble_core.ensemble.devices import usable_device
from bensemble_core.ensemble.members import (
    COMPILED_ROWS,
    MOST_ROWS,
    Layout,
    Members,
    Mode,
    Plan,
    count_members,
    gather,
    plan,
    zero_rows,
)
from bensemble_core.ensemble.representative import representative
from bensemble_core.ensemble.rows import Rows, as_rows, indices_checked, sliceable
from bensemble_core.ensemble.stacking import stack_modules
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidData, InvalidFile, InvalidModel
from bensemble_core.models.spec import outline
from bensemble_core.models.transforms import Linearised, extra_shapes, layers_in_order, transform_from_json
from bensemble_core.options import whole
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive, join, mixtures
from bensemble_core.predictive.calibration import Calibration
from bensemble_core.torch_modes import own_modes
from bensemble_core.types import Family, Likelihood, Problem, Shapes, Tensors, Transform


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ensemble(Described):
    """M networks drawn from a posterior, which predict rows together. Nothing in it is ever written to.

    Tensors that differ between members are `stacked` [M, ...], the others are `shared`.

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
    notes: tuple[str, ...] = ()  # what a reader of its predictions should know; kept in the file
    is_student: bool = False  # one network that learnt the mean prediction of others (`distil`); kept in the file

    def __post_init__(self) -> None:
        if not self.stacked:
            raise InvalidData("an ensemble needs at least one stacked tensor; its leading axis counts the members")
        sizes = {name: tuple(t.shape[:1]) for name, t in self.stacked.items()}
        if len(set(sizes.values())) != 1 or () in sizes.values():
            raise InvalidData(f"stacked tensors have to agree in their leading axis, got {sizes}")
        if not self.n_members:
            raise InvalidData("an ensemble needs at least one member, and its tensors have none")
        mixtures.check_weights(self.log_weights, self.n_members)
        if self.is_student and self.n_members != 1:
            raise InvalidData(f"a student is one network, and these tensors are of {self.n_members}")

    @classmethod
    def from_modules(
        cls,
        modules: Sequence[nn.Module],
        *,
        likelihood: str | Likelihood,
        input_shape: Sequence[int] | None = None,
        log_weights: Tensor | None = None,
    ) -> "Ensemble":
        """An ensemble of modules that were trained elsewhere: member m predicts what modules[m] does in eval mode.

        modules: of one architecture; they are copied. likelihood: what their outputs mean, "categorical" for logits,
        Gaussian(noise=…) for means in the units of y, HeteroscedasticGaussian() for means and raw variances (σ² =
        softplus(raw) + 10⁻⁶). input_shape: of one row; not needed for flat rows of a network that begins with a linear
        layer. log_weights: [M] of the members, equal unless given.
        """
        problem, stacked = stack_modules(modules, likelihood, input_shape)
        device = next((p.device for p in modules[0].parameters()), torch.device("cpu"))
        return cls(problem=problem, stacked=stacked, log_weights=log_weights).to(device)

    def __getstate__(self) -> dict[str, Any]:
        """Without what runs the members, which holds a lock and is made anew where a copy or a pickle predicts."""
        return {name: value for name, value in self.__dict__.items() if name != "_members"}

    def _facts(self) -> dict[str, object]:
        return {
            "members": self.n_members,
            "model": display.network(self.problem.model),
            "input": list(self.problem.model.input_shape),
            "likelihood": display.likelihood(self.problem.likelihood),
            "weights": None if self.log_weights is None else "unequal",
            "calibration": self.calibration,
            "student": self.is_student or None,
            **display.kind(next(iter(self.stacked.values()))),
            "notes": "; ".join(self.notes) or None,
        }

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

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes in the order of `log_probs`, where the likelihood has them."""
        return getattr(self.problem.likelihood, "classes", None)

    @cached_property
    def plan(self) -> Plan:
        """How members run and how many rows a block has; chosen once, in `members.py`."""
        with own_modes():
            return self.stored_plan or plan(self.problem, self.stacked, self.shared, self.transform)

    @property
    def is_concurrent(self) -> bool:
        """Whether threads that predict different rows run side by side, and faster than one with threads inside."""
        return self._members.is_concurrent and self.device.type == "cpu"

    def predict(self, x: Rows) -> Predictive:
        """Every member's distribution for every row: x [N, ...] -> a Predictive of [M, N, …]."""
        parts = list(self.iter_predict(x))
        return join(parts)

    def iter_predict(self, x: Rows, chunk_rows: int | None = None) -> Iterator[Predictive]:
        """As `predict`, in chunks of `chunk_rows` rows (default: one block), each starting a block of its own.

        Never more than a chunk of x is read and converted, so x may be a memory map. An empty x gives one empty chunk.
        """
        step, x = chunk_rows or self.plan.rows, sliceable(x)
        for start in range(0, max(1, len(x)), step):
            yield self.predict_chunk(x[start : start + step])

    @own_modes()
    def predict_chunk(self, x: Rows) -> Predictive:
        """One chunk: its blocks start at its first row."""
        outputs, extra = self.outputs_chunk(x)
        predictive = self.problem.likelihood.predictive(outputs, extra, self.log_weights)
        return predictive if self.calibration is None else self.calibration(predictive)

    @own_modes()
    def outputs_chunk(self, x: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """What the networks give for one chunk, [M, N, O] of standardised targets, and the likelihood's own tensors."""
        _, extra = split_extra({**self.shared, **self.stacked})
        stacked, _ = split_extra(self.stacked)
        shared, _ = split_extra(self.shared)
        with torch.no_grad(), indices_checked(self.problem):
            blocks = [self._members(stacked, shared, block)[:, :n] for block, n in self._blocks(x)]
        return torch.cat(blocks, 1), extra

    @own_modes()
    def features(self, x: Rows, *, member: int | None = None) -> Tensor:
        """Features of rows: the input of the last linear layer, else the flattened rows: [N, F].

        Features of different members are not comparable, so they are one member's: see `representative`.
        """
        if member is None:
            member = representative(self.stacked, self.log_weights)
        if self._head is None:
            return torch.cat([block[:n].flatten(1) for block, n in self._blocks(x)])
        stacked, _ = split_extra({k: v[member] for k, v in self.stacked.items()})
        shared, _ = split_extra(self.shared)
        found = []
        with torch.no_grad(), indices_checked(self.problem):
            for block, n in self._blocks(x):
                inputs = self._members.inputs_of(self._head, stacked, shared, block.clone())
                found.append(inputs[:n].flatten(1))
        return torch.cat(found)

    def to(self, device: torch.device | str) -> "Ensemble":
        """The same ensemble on another device, with a plan of its own where the kind of device changes."""
        device = usable_device(device)
        same_kind = device.type == self.device.type
        return replace(
            self,
            problem=self.problem.to(device),
            stacked={k: v.to(device) for k, v in self.stacked.items()},
            shared={k: v.to(device) for k, v in self.shared.items()},
            log_weights=None if self.log_weights is None else self.log_weights.to(device),
            stored_plan=self.plan if same_kind else None,
            calibration=None if self.calibration is None else self.calibration.to(device),
        )

    def compile(self) -> "Ensemble":
        """The same ensemble with each member compiled by torch.compile, tried and ready to run here.

        It pays for networks whose members run one after another, such as convolutions on a CPU: a quarter less time
        after half a minute to get ready, which every process pays once (`warm_up` says how long). Others, whose members
        are batched products already, come back as they are. Files keep the choice, since it changes a score's last
        bits; who loads one needs a C++ compiler.
        """
        if self.plan.mode == "vmap" or self._members.is_concurrent:
            return self
        made = replace(self, stored_plan=replace(self.plan, compiled=True, rows=max(COMPILED_ROWS, self.plan.rows)))
        made.warm_up()
        rows = _trial_rows(self.problem, self.plan.rows)
        if not _agree(self.predict(rows), made.predict(rows)):
            raise InvalidModel("torch.compile changes what this network predicts; use it as it is")
        return made

    def warm_up(self) -> float:
        """Seconds until a compiled ensemble is ready in this process, 0 where nothing is to be done."""
        if not self.plan.compiled:
            return 0.0
        start = time.perf_counter()
        try:
            self.predict_chunk(zero_rows(self.problem, 1, self.device))
        except Exception as error:  # of any kind: which exceptions torch.compile raises is not documented
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise InvalidModel(
                f"torch.compile cannot take this network here ({reason}); it needs a C++ compiler and a network of "
                "tensor operations alone. Use the ensemble that is not compiled"
            ) from error
        return time.perf_counter() - start

    def save(self, path: str | Path) -> None:
        """Write safetensors with a JSON header; `bensemble_core.load` reads it."""
        io.write(path, *self.to_tensors())

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The JSON header and the flat tensors of a file."""
        header = {
            "kind": "ensemble",
            "problem": io.problem_header(self.problem),
            "transform": None if self.transform is None else self.transform.to_json(),
            "plan": asdict(self.plan),
            "notes": list(self.notes),
            "is_student": self.is_student,
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
        with io.header_read():
            wanted = header["problem"]
        problem = io.problem_from(wanted, tensors, model=model)
        with io.header_read():
            made = cls(
                problem=problem,
                stacked=io.below("stacked/", tensors),
                shared=io.below("shared/", tensors),
                log_weights=tensors.get("log_weights"),
                transform=transform_from_json(header["transform"]),
                stored_plan=_plan_from(header["plan"]),
                calibration=Calibration.from_tensors(io.below("calibration/", tensors), problem.likelihood),
                notes=_notes_from(header.get("notes", [])),  # there were none once
                is_student=_flag_from(header.get("is_student", False)),  # nor students
            )
            expected = made._expected()
        named = {**io.above("stacked/", made.stacked), **io.above("shared/", made.shared)}
        io.check_tensors(problem, expected, named)
        return made

    def _expected(self) -> Shapes:
        """What a file of this network and transform has to hold, stacked or shared as this one has it."""
        own, module = io.model_shapes(self.problem), outline(self.problem.model)
        extra = extra_shapes(self.transform, module)
        for layer in getattr(self.transform, "layers", ()):
            if not any(name in extra and name.rpartition(".")[0] == layer for name in {**self.stacked, **self.shared}):
                raise InvalidFile(f"the file lacks what its transform adds to {layer or 'the layer'}; write it anew")
        expected: Shapes = {}
        for name, shape in {**own, **extra}.items():
            if name in self.stacked:
                expected[f"stacked/{name}"] = (self.n_members, *shape)
            alone = name not in self.stacked and (name in own or name in self.shared)
            if alone or isinstance(self.transform, Linearised):
                expected[f"shared/{name}"] = shape
        return expected

    @cached_property
    def _members(self) -> Members:
        stacked, shared = split_extra(self.stacked)[0], split_extra(self.shared)[0]
        return gather(
            self.problem,
            stacked,
            shared,
            transform=self.transform,
            mode=self.plan.mode,
            layout=self.plan.layout,
            compiled=self.plan.compiled,
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
        shape, rows, x = self.problem.model.input_shape, self.plan.rows, sliceable(x)
        for start in range(0, max(1, len(x)), rows):
            block = as_rows(x[start : start + rows], self.problem, self.device)
            n = block.shape[0]
            if self.problem.scaling is not None:
                block = self.problem.scaling(block)
            if n < rows:
                block = torch.cat([block, block.new_zeros(rows - n, *shape)])
            yield block, n


def _plan_from(spec: Mapping[str, Any]) -> Plan:
    rows, mode = whole(spec["rows"], "plan.rows"), spec["mode"]
    layout, compiled = spec.get("layout", "contiguous"), spec.get("compiled", False)  # there was no choice once
    if (
        not 1 <= rows <= MOST_ROWS
        or mode not in get_args(Mode)
        or layout not in get_args(Layout)
        or not isinstance(compiled, bool)
    ):
        raise InvalidFile(
            f"a plan has 1 to {MOST_ROWS} rows, a mode of {', '.join(get_args(Mode))}, a layout of "
            f"{', '.join(get_args(Layout))}, and is compiled or not; got {dict(spec)}"
        )
    return Plan(mode=mode, rows=rows, layout=layout, compiled=compiled)


def _notes_from(notes: Any) -> tuple[str, ...]:
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise InvalidFile(f"notes are a list of sentences, got {notes!r:.80}")
    return tuple(notes)


def _flag_from(is_student: Any) -> bool:
    if not isinstance(is_student, bool):
        raise InvalidFile(f"is_student is true or false, got {is_student!r:.80}")
    return is_student


def _trial_rows(problem: Problem, n: int) -> Tensor:
    rows = zero_rows(problem, n, torch.device("cpu"))
    if not rows.is_floating_point():
        return rows
    return torch.randn(rows.shape, generator=torch.Generator().manual_seed(0), dtype=rows.dtype)


def _agree(one: Predictive, other: Predictive) -> bool:
    if isinstance(one, CategoricalPredictive) and isinstance(other, CategoricalPredictive):
        return torch.allclose(one.logits, other.logits, rtol=1e-4, atol=1e-4)
    assert isinstance(one, GaussianPredictive)
    assert isinstance(other, GaussianPredictive)
    same = torch.allclose(one.means, other.means, rtol=1e-4, atol=1e-4)
    return same and torch.allclose(one.variances, other.variances, rtol=1e-4, atol=1e-4)
