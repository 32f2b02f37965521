"""The last linear layer of a classifier, fused with softmax cross-entropy."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from .. import _gemcnn
from .._arguments import instance, integer, number, wrong
from ..errors import OperatorError
from .ops import _differentiable, _operator, _wanted, operators

__all__ = ["linear_cross_entropy"]


def _on_device(labels: Tensor, class_weights: Tensor | None, classes: int) -> tuple[Tensor, Tensor]:
    """Labels on a GPU that are classes, or -1 for rows that are not counted, and the reciprocal of their total weight. Another
    label fails on the device, as in PyTorch."""
    inside = labels.clamp(-1, classes - 1)
    torch._assert_async((inside == labels).all())
    counted = inside >= 0
    if class_weights is None:
        # Without rows any number does.
        return inside, counted.sum(0, keepdim=True, dtype=torch.float64).clamp_(min=1).reciprocal_()
    total = (counted * class_weights[inside.clamp(min=0).long()].double()).sum(0, keepdim=True)
    return inside, total.reciprocal().where(total > 0, 0.0)


def _run(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    class_weights: Tensor | None,
    smoothing: float,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    labels = labels.contiguous()
    class_weights = None if class_weights is None else class_weights.contiguous()
    score = x.new_empty(3, dtype=torch.float64)
    normaliser = x.new_empty(1, dtype=torch.float64)
    classes = weight.shape[0]
    if x.is_cuda:
        labels, normaliser = _on_device(labels, class_weights, classes)
    elif labels.numel() and not (labels.min() >= -1 and labels.max() < classes):
        row = int(torch.nonzero((labels < -1) | (labels >= classes))[0])
        found = "a negative number" if labels[row] < 0 else int(labels[row])
        raise OperatorError(
            f"linear_cross_entropy: labels must be from 0 to {classes - 1}, for the {classes} rows of weight, or ignore_index, "
            f"but the label of row {row} is {found}"
        )
    gradients = (
        (torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias))
        if wanted
        else (x.new_empty(0), x.new_empty(0), x.new_empty(0))
    )
    _gemcnn.linear_cross_entropy(
        (*weight.shape, smoothing),
        [x, weight, bias, labels, normaliser],
        class_weights,
        list(gradients) if wanted else None,
        score,
    )
    return (score[0].to(x.dtype, copy=True), *gradients)


def _fake(
    x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, class_weights: Tensor | None, *settings: Any
) -> tuple[Tensor, ...]:
    parts = (x, weight, bias)
    return (x.new_empty(()), *(p.new_empty(p.shape) if settings[1] else x.new_empty(0) for p in parts))


def _backward_run(
    dloss: Tensor, x: Tensor, dx: Tensor, dweight: Tensor, dbias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return dx * dloss, dweight * dloss, dbias * dloss


def _backward_fake(dloss: Tensor, x: Tensor, *gradients: Tensor) -> tuple[Tensor, ...]:
    return tuple(gradient.new_empty(gradient.shape) for gradient in gradients)


def _saved(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    # The features are not needed, but a second derivative has to be refused.
    ctx.save_for_backward(inputs[0], *output[1:])


def _gradient(ctx: Any, dloss: Tensor | None, *others: Any) -> tuple[Any, ...]:
    if dloss is None:
        return (None,) * 3
    found = operators.linear_cross_entropy_backward(dloss, *ctx.saved_tensors)
    return _wanted(found, ctx.needs_input_grad)


_operator(
    "linear_cross_entropy(Tensor x, Tensor weight, Tensor bias, Tensor labels, Tensor? class_weights, "
    "float smoothing, bool wanted) -> (Tensor, Tensor, Tensor, Tensor)",
    _run,
    _fake,
)
_operator(
    "linear_cross_entropy_backward(Tensor dloss, Tensor x, Tensor dx, Tensor dweight, Tensor dbias)"
    " -> (Tensor, Tensor, Tensor)",
    _backward_run,
    _backward_fake,
)
_differentiable("linear_cross_entropy", 3, _saved, _gradient, "linear_cross_entropy_backward")


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    *,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    """Mean cross-entropy of `x weight^T + bias`. The logits `[V, classes]` are never stored, and the gradients are computed
    with the loss (docs/losses.md). With thousands of classes this saves most of the memory.

    Args:
        x: features, `[V, channels]`.
        weight: `[classes, channels]`, as that of `torch.nn.Linear`.
        bias: `[classes]`.
        labels: class of each row, integers `[V]`.
        class_weights: weight of the rows of each class, `[classes]`.
        label_smoothing: share of the target that is spread over all classes, below 1.
        ignore_index: label of rows that are not counted.

    Returns:
        The loss, a number.
    """
    for name, value in (("x", x), ("weight", weight), ("bias", bias), ("labels", labels)):
        instance(OperatorError, name, value, Tensor, "a tensor")
    if class_weights is not None:
        instance(OperatorError, "class_weights", class_weights, Tensor, "a tensor")
    tensors = {"x": x, "weight": weight, "bias": bias, "labels": labels, "class_weights": class_weights}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.layout != torch.strided:
            raise wrong(OperatorError, name, "a dense tensor", tensor)
    label_smoothing = number(OperatorError, "label_smoothing", label_smoothing, 0, 1)
    if label_smoothing == 1:
        raise wrong(OperatorError, "label_smoothing", "below 1", label_smoothing)
    ignore_index = integer(OperatorError, "ignore_index", ignore_index, -(2**63))
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise OperatorError(
            "linear_cross_entropy: features [V, channels] and weight [classes, channels] do not fit: "
            f"{list(x.shape)} and {list(weight.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.shape != x.shape[:1]:
        raise OperatorError(
            f"linear_cross_entropy: labels must be integers [{x.shape[0]}], not {labels.dtype} {list(labels.shape)}"
        )
    wanted = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or bias.requires_grad)
    # Rows that are not counted are marked by -1; other negative labels are none.
    marked = labels.long().clamp(-2, 2**31 - 1)
    marked = torch.where(labels == ignore_index, -1, torch.where(marked < 0, -2, marked)).to(torch.int32)
    found = operators.linear_cross_entropy(
        x, weight, bias, marked, class_weights, label_smoothing, wanted
    )
    return cast(Tensor, found[0])
