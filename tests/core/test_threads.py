"""Pieces on threads: in order, each on one of torch's threads, and nothing left behind; small steps on one."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bensemble_core as bc
from bensemble_core.threads import in_order


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("pieces")]


def number_in_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_results_come_in_order_however_long_each_takes(n_threads: int) -> None:
    def work(piece: int) -> int:
        time.sleep(0.01 if piece % 3 == 0 else 0)
        return piece * piece

    assert list(in_order(work, range(20), n_threads)) == [i * i for i in range(20)]


@pytest.mark.usefixtures("two_threads")
def test_two_pieces_run_at_the_same_time_on_one_torch_thread_each() -> None:
    both = threading.Barrier(2, timeout=10)

    def work(_piece: int) -> int:
        both.wait()  # breaks where pieces wait for each other
        return torch.get_num_threads()

    assert list(in_order(work, range(4), 2)) == [1, 1, 1, 1]
    assert torch.get_num_threads() == number_in_a_new_thread() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_piece_that_fails_ends_it_all() -> None:
    taken: list[int] = []

    def work(piece: int) -> int:
        taken.append(piece)
        if piece == 3:
            raise ValueError("piece 3")
        return piece

    found = []
    with pytest.raises(ValueError, match="piece 3"):
        found.extend(in_order(work, range(1000), 2))
    assert len(taken) < 20
    assert pool_threads() == []
    assert number_in_a_new_thread() == 2


def ensemble() -> bc.Ensemble:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(60, 8, generator=rng)
    y = x[:, :3].argmax(1)
    return bc.fit(
        "deep_ensemble", {"name": "mlp", "hidden": [16]}, (x, y), likelihood="categorical", members=4, epochs=2
    ).sample(4)


@pytest.mark.usefixtures("two_threads")
def test_scores_have_the_same_bits_on_any_number_of_threads() -> None:
    members, pool = ensemble(), torch.randn(10_000, 8, generator=torch.Generator().manual_seed(1))
    shards = [pool[:4096], pool[4096:4200], pool[4200:]]
    assert members.is_concurrent
    heard: list[int] = []
    two = bc.score(members, shards, "bald", report=lambda done, total, message: heard.append(done))
    assert heard == sorted(heard)
    assert heard[-1] == 10_000
    torch.set_num_threads(1)
    assert torch.equal(two, bc.score(members, shards, "bald"))


@pytest.mark.usefixtures("two_threads")
def test_scoring_is_cancelled_by_its_report() -> None:
    members, pool = ensemble(), torch.randn(200_000, 8)

    def stop(done: int, total: int, message: str) -> None:
        raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        bc.score(members, pool, "bald", report=stop)
    assert pool_threads() == []
    assert number_in_a_new_thread() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("hidden", "expected"), [(16, 1), (2000, 2)])
def test_small_steps_of_a_training_use_one_thread(hidden: int, expected: int) -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 8, generator=rng), torch.randint(0, 2, (64,), generator=rng)
    model = {"name": "mlp", "hidden": [hidden, hidden]}
    seen: set[int] = set()
    bc.fit("map", model, rows, likelihood="categorical", epochs=1, report=lambda *_: seen.add(torch.get_num_threads()))
    assert seen == {expected}
    assert torch.get_num_threads() == number_in_a_new_thread() == 2


class Watch(TorchDispatchMode):
    """Tells on how many of its threads torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("two_threads")
def test_experiments_are_designed_on_one_thread() -> None:
    spec = {
        "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
        "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
        "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
        "stop": {"max_eig_below": 0.01},
    }
    seen: list[Any] = [({"xi": 7}, {"y": 1})]
    asked: list[Callable[[bc.design.Experiment], Any]] = [
        lambda _: bc.design.Experiment.from_spec(spec),
        lambda experiment: experiment.propose(seen, count=2),
        lambda experiment: experiment.eig(observations=seen),
        lambda experiment: experiment.joint_eig([{"xi": 7}, {"xi": 8}]),
        lambda experiment: experiment.posterior(seen),
        lambda experiment: experiment.information(seen),
        lambda experiment: experiment.guards(seen),
        lambda experiment: experiment.stop(seen),
    ]
    for ask in asked:
        fresh = bc.design.Experiment.from_spec(spec)
        with Watch() as watch:
            ask(fresh)
        assert watch.seen == {1}
    assert torch.get_num_threads() == number_in_a_new_thread() == 2
