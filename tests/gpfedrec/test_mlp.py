"""The small network: kernel against NumPy, gradients against finite differences and against autograd."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from coterie.algorithms import mlp

SHAPES = [((8, 6, 4, 1), 4), ((8, 6, 4, 1), 0), ((5, 3, 2), 2), ((7, 1), 3), ((64, 32, 16, 8, 1), 32)]


def _case(sizes: tuple[int, ...], head: int, n: int, dtype: Any = np.float32) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(sum(sizes) + head)
    theta = mlp.start(sizes, draw).astype(dtype)
    return theta, draw.normal(size=head).astype(dtype), draw.normal(size=(n, sizes[0] - head)).astype(dtype)


def _kernel(theta: np.ndarray, sizes: tuple[int, ...], head: np.ndarray, x: np.ndarray, delta: np.ndarray) -> Any:
    n, rows = len(x), mlp.n_activations(sizes, len(head))
    acts, deltas = (np.full((rows, n + 3), 7.0, theta.dtype) for _ in range(2))  # wider than n: the rest is not read
    acts[: x.shape[1], :n] = x.T
    shape = np.array(sizes)
    mlp.forward(theta, shape, head, acts, n)
    deltas[-sizes[-1] :, :n] = delta.T
    grad, grad_head = np.full_like(theta, 7.0), np.full_like(head, 7.0)
    mlp.backward(theta, shape, head, acts, deltas, n, grad, grad_head)
    assert (acts[:, n:] == 7.0).all() and (deltas[:, n:] == 7.0).all()
    return acts[-sizes[-1] :, :n].T, grad, grad_head, deltas[: x.shape[1], :n].T


@pytest.mark.parametrize(("sizes", "head"), SHAPES)
@pytest.mark.parametrize("n", [1, 9, 40, 64])  # less than a tile, a tile and a rest, whole tiles
def test_kernel_equals_reference(sizes: tuple[int, ...], head: int, n: int) -> None:
    theta, common, x = _case(sizes, head, n)
    delta = np.random.default_rng(1).normal(size=(n, sizes[-1])).astype(np.float32)
    z, grad, grad_head, grad_x = _kernel(theta, sizes, common, x, delta)
    whole = np.hstack([np.tile(common, (n, 1)), x])
    values = mlp.forward_numpy(theta, sizes, whole)
    expected, grad_in = mlp.backward_numpy(theta, sizes, values, delta)
    np.testing.assert_allclose(z, values[-1], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(grad, expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(grad_x, grad_in[:, head:], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(grad_head, grad_in[:, :head].sum(0), rtol=2e-4, atol=5e-5)


@pytest.mark.parametrize("n", [9, 16])
def test_what_is_not_a_number_stays_so(n: int) -> None:
    """A layer that made 0 of it would hide that training has diverged."""
    sizes = (8, 6, 4, 1)
    theta, common, x = _case(sizes, 4, n)
    x[3, 1] = np.nan
    z, *_ = _kernel(theta, sizes, common, x, np.ones((n, 1), np.float32))
    assert np.isnan(z[3, 0]) and np.isfinite(np.delete(z, 3)).all()


def test_gradients_equal_finite_differences() -> None:
    sizes, head, n, step = (6, 5, 3, 1), 2, 7, 1e-6
    theta, common, x = _case(sizes, head, n, np.float64)
    weight = np.random.default_rng(2).normal(size=(n, 1))

    def loss(theta: np.ndarray, common: np.ndarray, x: np.ndarray) -> float:
        values = mlp.forward_numpy(theta, sizes, np.hstack([np.tile(common, (n, 1)), x]))
        return float((weight * values[-1]).sum())

    _, grad, grad_head, grad_x = _kernel(theta, sizes, common, x, weight)
    for place, (whole, found) in enumerate(((theta, grad), (common, grad_head), (x, grad_x))):
        for index in np.ndindex(whole.shape):
            moved = [theta.copy(), common.copy(), x.copy()]
            moved[place][index] += step
            up = loss(*moved)
            moved[place][index] -= 2 * step
            assert found[index] == pytest.approx((up - loss(*moved)) / (2 * step), abs=1e-7)


def test_gradients_equal_autograd() -> None:
    torch = pytest.importorskip("torch")
    sizes, n = (10, 8, 4, 1), 12
    theta, common, x = _case(sizes, 4, n)
    linears = [torch.nn.Linear(i, o) for i, o in itertools.pairwise(sizes)]
    with torch.no_grad():
        for linear, (weights, bias) in zip(linears, mlp.layers(theta, sizes), strict=True):
            linear.weight.copy_(torch.from_numpy(weights.T.copy()))
            linear.bias.copy_(torch.from_numpy(bias.copy()))
    value = torch.from_numpy(np.hstack([np.tile(common, (n, 1)), x])).requires_grad_()
    hidden = value
    for linear in linears[:-1]:
        hidden = torch.relu(linear(hidden))
    z = linears[-1](hidden)
    delta = np.random.default_rng(3).normal(size=(n, 1)).astype(np.float32)
    z.backward(torch.from_numpy(delta))
    found, grad, grad_head, grad_x = _kernel(theta, sizes, common, x, delta)
    np.testing.assert_allclose(found, z.detach().numpy(), rtol=1e-4, atol=1e-5)
    for linear, (weights, bias) in zip(linears, mlp.layers(grad, sizes), strict=True):
        np.testing.assert_allclose(weights, linear.weight.grad.numpy().T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(bias, linear.bias.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grad_x, value.grad.numpy()[:, 4:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grad_head, value.grad.numpy()[:, :4].sum(0), rtol=1e-4, atol=1e-5)


def test_start_is_within_its_bounds() -> None:
    sizes = (64, 32, 16, 8, 1)
    theta = mlp.start(sizes, np.random.default_rng(0))
    assert len(theta) == mlp.n_parameters(sizes) == 2753
    for inputs, (weights, bias) in zip(sizes[:-1], mlp.layers(theta, sizes), strict=True):
        edge = inputs**-0.5
        assert max(abs(weights).max(), abs(bias).max()) <= edge
        assert abs(weights).max() > 0.7 * edge or weights.size < 10
