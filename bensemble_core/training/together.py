"""Several fits of one model as one descent: what `fit_splits` does for every method that is trained by descent.

Each fit runs as it always does, in a thread of its own, until it asks for a descent; there it stops and the next one
begins, so that only one runs at a time. Once all have asked, their members become the members of one descent, in which
each has its own rows, and every fit goes on with its part of the result. Where the descents cannot be joined (rows of
different number, another objective, a likelihood that is not the same for all) they run one after another.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from bensemble_core.training.descent import Call, Trained, descend, run_instead
from bensemble_core.training.objectives import log_joint
from bensemble_core.types import Data, Report, Tensors

T = TypeVar("T")


def fit_together(fits: Sequence[Callable[[], T]], report: Report) -> list[T]:
    """What each of the functions returns, their descents joined. `report` hears of a joint descent."""
    threads = [_Fit(fit) for fit in fits]
    try:
        for each in threads:
            each.go_on()
        while any(each.call is not None for each in threads):
            calls = [each.call for each in threads]
            asked = [call for call in calls if call is not None]
            found = _descended(asked, report) if len(asked) == len(calls) else [descend(**call) for call in asked]
            for each, trained in zip([each for each in threads if each.call is not None], found, strict=True):
                each.go_on(trained)
    finally:
        for each in threads:
            each.give_up()
    return [each.result for each in threads]


class _GivenUp(BaseException):
    """Raised inside a fit whose result nobody will ask for."""


@dataclass(eq=False)
class _Fit(Generic[T]):
    """One of the fits, as a thread that runs only while `go_on` waits for it."""

    fit: Callable[[], T]
    call: Call | None = None  # the descent it waits for
    _answer: Trained | None = None
    _found: list[T] = field(default_factory=list)
    _problem: BaseException | None = None
    _thread: threading.Thread | None = None
    _its_turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _our_turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def result(self) -> T:
        return self._found[0]

    def go_on(self, trained: Trained | None = None) -> None:
        """Until it asks for a descent or has ended; what it raises is raised here."""
        self.call, self._answer = None, trained
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._its_turn.release()
        self._our_turn.acquire()
        if self._problem is not None:
            raise self._problem

    def give_up(self) -> None:
        if self.call is not None:
            self.call = self._answer = None
            self._its_turn.release()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with run_instead(self._ask):
                self._found.append(self.fit())
        except _GivenUp:
            pass
        except BaseException as problem:
            self._problem = problem
        finally:
            self._our_turn.release()

    def _ask(self, call: Call) -> Trained:
        self.call = call
        self._our_turn.release()
        self._its_turn.acquire()
        if self._answer is None:
            raise _GivenUp
        return self._answer


def _descended(calls: Sequence[Call], report: Report) -> list[Trained]:
    if not _can_join(calls):
        return [descend(**call) for call in calls]
    counts = [len(call["seeds"]) for call in calls]
    ends = torch.tensor(counts).cumsum(0).tolist()
    groups = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
    kept: list[dict[str, Tensor]] = [{} for _ in calls]

    def watch(epoch: int, theta: Tensors, fixed: Tensors, _kept: dict[str, Tensor]) -> None:
        for call, group, own in zip(calls, groups, kept, strict=True):
            if (look := call["watch"]) is not None:
                look(epoch, _part(theta, group), _part(fixed, group), own)

    n_rows = calls[0]["data"].n_rows
    data = _concatenated([call["data"] for call in calls])
    shift = n_rows * torch.repeat_interleave(torch.arange(len(calls)), torch.tensor(counts))
    every = torch.arange(n_rows).expand(sum(counts), -1)
    rows = every if calls[0]["rows"] is None else torch.cat([call["rows"].cpu() for call in calls])
    joint: Call = {
        **calls[0],
        "data": data,
        "theta": _stacked([call["theta"] for call in calls]),
        "fixed": _stacked([call["fixed"] for call in calls]),
        "seeds": [seed for call in calls for seed in call["seeds"]],
        "rows": (rows + shift[:, None]).to(data.x.device),
        "watch": watch,
        "report": report,
    }
    trained = descend(**joint)
    return [
        Trained(theta=_part(trained.theta, group), fixed=_part(trained.fixed, group), kept=own)
        for group, own in zip(groups, kept, strict=True)
    ]


def _can_join(calls: Sequence[Call]) -> bool:
    first = calls[0]
    return (
        len({call["data"].n_rows for call in calls}) == 1
        and all(call["options"] == first["options"] for call in calls)
        and all(call["objective"] is log_joint for call in calls)
        and all(call[name] is None for call in calls for name in ("targets", "transform", "resume", "mode"))
        and len({call["rows"] is None for call in calls}) == 1
        and all(call["data"].augment is None for call in calls)
        and all(_shapes(call["theta"]) == _shapes(first["theta"]) for call in calls)
        and _is_one_likelihood(calls)
    )


def _shapes(theta: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape[1:] for name, tensor in theta.items()}


def _is_one_likelihood(calls: Sequence[Call]) -> bool:
    """The same number for the same outputs: a noise that is given in the units of y is another for each scale of y."""
    found = []
    for call in calls:
        likelihood, y = call["problem"].likelihood, call["data"].y[:1].cpu()
        outputs = torch.linspace(-1, 1, likelihood.n_outputs, dtype=call["problem"].dtype)[None]
        extra = likelihood.start(dtype=call["problem"].dtype)
        found.append(likelihood.log_prob(outputs, torch.zeros_like(y), extra))
    return all(torch.equal(value, found[0]) for value in found)


def _concatenated(parts: Sequence[Data]) -> Data:
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    return Data(x=x, y=y, augment=parts[0].augment)


def _stacked(parts: Sequence[Tensors]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _part(tensors: Tensors, group: slice) -> dict[str, Tensor]:
    return {name: tensor[group].clone() for name, tensor in tensors.items()}
