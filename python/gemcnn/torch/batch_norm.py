"""The operator of batch normalisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _gemcnn
from .ops import _differentiable, _operator, _wanted, operators

_SETTINGS = "Tensor? mean, Tensor? variance, str type, str per, float epsilon"


def _parts(*tensors: Tensor | None) -> list[Tensor] | None:
    """Contiguous tensors, or nothing if there are none."""
    return None if tensors[0] is None else [tensor.contiguous() for tensor in tensors if tensor is not None]


def _run(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor | None, variance: Tensor | None, *settings: Any
) -> tuple[Tensor, Tensor]:
    y = x.new_empty(x.shape)
    found = x.new_empty(2, gamma.shape[0] if mean is None else 0)
    _gemcnn.batch_norm_forward(
        settings, x.shape[0], _parts(x, gamma, beta), _parts(mean, variance), y, list(found.unbind())
    )
    return y, found


def _fake(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor | None, *others: Any
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(2, gamma.shape[0] if mean is None else 0)


def _backward_run(
    dy: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    gradients = (x.new_empty(x.shape), torch.empty_like(gamma), torch.empty_like(beta))
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
    ctx.settings = inputs[5:]


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
