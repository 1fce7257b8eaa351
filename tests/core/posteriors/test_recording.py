"""A recorded function gives what the function gives, at any θ; what cannot be recorded is not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bensemble_core.posteriors.recording import record

X = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def with_slope(log: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def function(theta: Tensor) -> tuple[Tensor, Tensor]:
        theta = theta.detach().requires_grad_()
        value = log(theta)
        (slope,) = torch.autograd.grad(value.sum(), theta)
        return value.detach(), slope

    return function


def positions(dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(3, 2, generator=torch.Generator().manual_seed(i), dtype=dtype) for i in range(5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "link", [torch.tanh, lambda h: (h + 0).relu_(), lambda h: torch.log_softmax(h, -1), lambda h: h.sort(-1).values]
)
def test_a_recorded_function_gives_the_value_and_the_gradient_at_other_places(
    dtype: torch.dtype, link: Callable[[Tensor], Tensor]
) -> None:
    x = X.to(dtype)
    function = with_slope(lambda theta: -(link(theta @ x.mT) - 1).square().sum(-1) - theta.square().sum(-1))
    recorded = record(function, positions(dtype)[0])
    assert recorded is not None
    exact = 1e-4 if dtype == torch.float32 else 1e-12
    for theta in positions(dtype)[1:]:
        for found, expected in zip(recorded(theta), function(theta), strict=True):
            torch.testing.assert_close(found, expected, rtol=exact, atol=exact)


def test_the_same_theta_gives_the_same_again() -> None:
    recorded = record(with_slope(lambda theta: (theta @ X.mT).tanh().sum(-1)), positions(torch.float64)[0])
    assert recorded is not None
    first, _, again = (recorded(positions(torch.float64)[i]) for i in (1, 2, 1))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


def test_what_branches_by_a_value_or_writes_to_a_constant_is_not_recorded() -> None:
    def branches(theta: Tensor) -> Tensor:
        return theta.sum(-1) if bool(theta[0, 0] > 0) else theta.square().sum(-1)

    def writes(theta: Tensor) -> Tensor:
        sums = torch.zeros(3, dtype=theta.dtype)
        sums += theta.square().sum(-1)
        return sums

    start = positions(torch.float64)[0]
    assert record(with_slope(branches), start) is None
    assert record(with_slope(writes), start) is None
