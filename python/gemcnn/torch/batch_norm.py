"""The operator of batch normalisation, alone or with the regular nonlinearity after it."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from .. import _gemcnn
from .ops import _differentiable, _is_plain, _operator, _wanted, operators
from .types import regular_dimension

# The last three are those of the nonlinearity, with 0 samples if there is none.
_SETTINGS = (
    "Tensor? mean, Tensor? variance, str type, str per, float epsilon, int band_limit, int samples, str activation"
)
_COUNT = 6
# Without a nonlinearity.
ALONE = (0, 0, "")


def _parts(*tensors: Tensor | None) -> list[Tensor] | None:
    """Contiguous tensors, or nothing if there are none."""
    return None if tensors[0] is None else [tensor.contiguous() for tensor in tensors if tensor is not None]


def _result(x: Tensor, settings: Any) -> Tensor:
    """An empty tensor of the rows that are made of x."""
    type, _, _, band_limit, samples, _ = settings
    return x.new_empty((x.shape[0], regular_dimension(type, band_limit) if samples else x.shape[1]))


def _run(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor | None, variance: Tensor | None, *settings: Any
) -> tuple[Tensor, Tensor]:
    *config, followers = settings if len(settings) > _COUNT else (*settings, None)
    y = _result(x, config)
    found = x.new_empty(2, gamma.shape[0] if mean is None and followers is None else 0)
    moments, weight = (found.unbind(), 1.0) if followers is None else followers
    parts = _parts(x, gamma, beta)
    _gemcnn.batch_norm_forward(tuple(config), x.shape[0], parts, _parts(mean, variance), y, moments, weight)
    return y, found


def _fake(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor | None, variance: Tensor | None, *settings: Any
) -> tuple[Tensor, Tensor]:
    return _result(x, settings), x.new_empty(2, gamma.shape[0] if mean is None else 0)


def _backward_run(
    dy: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    gradients = (torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(gamma), torch.empty_like(beta))
    _gemcnn.batch_norm_backward(
        settings, x.shape[0], _parts(x, gamma, beta, dy), _parts(mean, variance), list(gradients)
    )
    return gradients


def _backward_fake(dy: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, *others: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in (x, gamma, beta))


def _saved(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5])
    ctx.settings = inputs[5 : 5 + _COUNT]


def _gradient(ctx: Any, dy: Tensor | None, *others: Any) -> tuple[Any, ...]:
    if dy is None:
        return (None,) * 3
    found = operators.batch_norm_backward(dy, *ctx.saved_tensors, *ctx.settings)
    return _wanted(found, ctx.needs_input_grad)


_operator(f"batch_norm(Tensor x, Tensor gamma, Tensor beta, {_SETTINGS}) -> (Tensor, Tensor)", _run, _fake)
_operator(
    f"batch_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor beta, {_SETTINGS}) -> (Tensor, Tensor, Tensor)",
    _backward_run,
    _backward_fake,
)
_differentiable("batch_norm", 3, _saved, _gradient, "batch_norm_backward")


def normalise(
    x: Tensor, gamma: Tensor, beta: Tensor, running: tuple[Tensor, Tensor], momentum: float, *settings: Any
) -> Tensor:
    """Normalises with mean and variance of the rows. The running ones follow them; those of slots without scalars have no mean.

    Args:
        x: `[V, D]`.
        gamma, beta: scale and shift of each slot.
        running: running mean and variance.
        momentum: weight of those of the rows.
        settings: type, kind of slots, what is added to variances, and those of the nonlinearity.
    """
    mean, variance = running
    fits = mean.shape == variance.shape and mean.dtype == variance.dtype == x.dtype
    if fits and not torch.compiler.is_compiling() and _is_plain(x):
        y, _ = operators.batch_norm(x, gamma, beta, None, None, *settings, (running, momentum))
        increment_version(mean)
        increment_version(variance)
    else:
        y, found = operators.batch_norm(x, gamma, beta, None, None, *settings)
        follow(running, found[0, : mean.shape[0]], found[1], momentum)
    return cast(Tensor, y)


def follow(running: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor, momentum: float) -> None:
    """Moves the running statistics towards those of a batch."""
    with torch.no_grad():
        for old, new in zip(running, (mean, variance), strict=True):
            old.lerp_(new.detach().to(old.dtype), momentum)
