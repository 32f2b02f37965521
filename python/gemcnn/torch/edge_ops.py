"""The operators of attention and of messages, registered with PyTorch under `torch.ops.gemcnn`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from .. import _gemcnn
from .ops import _GRAPH, _differentiable, _operator, _simple, operators
from .types import FeatureType, dimension

_TYPES = "str input, str output"

# Products of queries with the keys of each edge, and the gauge convolution with a weight for each edge. The gradients of each
# are made of both.


def _call(rest: tuple[Any, ...], bias: Tensor | None = None) -> tuple[Any, ...]:
    """The first arguments of native functions: types and whether there is a bias, and the graph."""
    return (*rest[9:], bias is not None), rest[:9]


def _product(rest: tuple[Any, ...], inputs: tuple[Tensor, ...], products: Tensor) -> None:
    _gemcnn.edge_product(*_call(rest), *inputs, products)


def _product_backward(
    rest: tuple[Any, ...], inputs: tuple[Tensor, ...], dy: Tensor, gradients: tuple[Tensor, ...]
) -> None:
    (query, x, weight), (dquery, dx, dweight) = inputs, gradients
    # With the gradient as weights of the edges, both are weighted convolutions.
    _gemcnn.weighted_conv(*_call(rest), dy, x, weight, None, dquery)
    _gemcnn.weighted_conv_backward(*_call(rest), dy, x, weight, None, query, dx, dweight, None)


def _weighted(rest: tuple[Any, ...], inputs: tuple[Any, ...], y: Tensor) -> None:
    x, factors, weight, bias = inputs
    _gemcnn.weighted_conv(*_call(rest, bias), factors, x, weight, bias, y)


def _weighted_backward(
    rest: tuple[Any, ...], inputs: tuple[Any, ...], dy: Tensor, gradients: tuple[Any, ...]
) -> None:
    (x, factors, weight, bias), (dx, dfactors, dweight, dbias) = inputs, gradients
    _gemcnn.weighted_conv_backward(*_call(rest, bias), factors, x, weight, bias, dy, dx, dweight, dbias)
    _gemcnn.edge_product(*_call(rest), dy, x, weight, dfactors)


_simple(
    "edge_product query x weight",
    f"{_GRAPH}, {_TYPES}",
    lambda query, x, weight, *rest: (rest[1].shape[0],),
    _product,
    _product_backward,
)
_simple(
    "weighted_conv x factors weight bias?",
    f"{_GRAPH}, {_TYPES}",
    lambda x, factors, weight, bias, *rest: (rest[0].shape[0] - 1, dimension(rest[10])),
    _weighted,
    _weighted_backward,
)


# Softmax over the edges of each vertex.


def _softmax_run(x: Tensor, *graph: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    _gemcnn.edge_softmax(1, graph, x, y)
    return y


def _softmax_fake(x: Tensor, *graph: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _softmax_backward_run(dy: Tensor, y: Tensor, *graph: Tensor) -> Tensor:
    y = y.contiguous()
    dx = torch.empty_like(y)
    _gemcnn.edge_softmax_backward(1, graph, y, dy.contiguous(), dx)
    return dx


def _softmax_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.graph = inputs[1:]


def _softmax_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return (operators.edge_softmax_backward(dy, *ctx.saved_tensors, *ctx.graph),)


_operator(f"edge_softmax(Tensor x, {_GRAPH}) -> Tensor", _softmax_run, _softmax_fake)
_operator(
    f"edge_softmax_backward(Tensor dy, Tensor y, {_GRAPH}) -> Tensor",
    _softmax_backward_run,
    _softmax_fake,
)
_differentiable("edge_softmax", 1, _softmax_saved, _softmax_gradient, "edge_softmax_backward")


# Mean of nonlinear messages. Edges are computed in pieces, and again in the backward pass.

# Numbers that exist for the edges of a piece at a time.
_PIECE = {"cpu": 1 << 22, "cuda": 1 << 26}


class _Messages:
    """The layers of a message function on a graph; `weight` and `bias` list those of all layers."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> None:
        self.graph = rest[:9]
        self.input, self.output, self.samples, self.activation = rest[9:]
        self.x = x.contiguous()
        self.maps, self.biases = self.layers(weight.contiguous(), bias.contiguous())
        highest = FeatureType(self.output).highest_order
        self.settings = (self.output, highest, self.samples, self.activation)

    def layers(self, weight: Tensor, bias: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The matrix and the bias of each layer, as views."""
        inputs, outputs = 2 * dimension(self.input), dimension(self.output)
        first = weight[: inputs * outputs].view(outputs, inputs)
        rest = weight[inputs * outputs :].view(-1, outputs, outputs)
        return [first, *rest], list(bias.view(-1, outputs))

    def pieces(self) -> Iterator[tuple[int, int]]:
        edges = self.graph[1].shape[0]
        numbers = 2 * dimension(self.input) + 2 * len(self.maps) * dimension(self.output)
        piece = max(_PIECE[self.x.device.type] // numbers, 1024)
        return ((first, min(first + piece, edges)) for first in range(0, edges, piece))

    def at_edges(self, which: str, type: str, piece: tuple[int, int], x: Tensor, y: Tensor) -> None:
        _gemcnn.messages_at_edges(which, type, piece, self.graph, x, y)

    def compute(self, piece: tuple[int, int]) -> tuple[list[Tensor], list[Tensor]]:
        """The gathered features and the output of each layer, and the values before each nonlinearity."""
        rows = piece[1] - piece[0]
        values = [self.x.new_empty((rows, 2 * dimension(self.input)))]
        self.at_edges("gather", self.input, piece, self.x, values[0])
        sums = []
        for matrix, bias in zip(self.maps, self.biases, strict=True):
            sums.append(torch.addmm(bias, values[-1], matrix.t()))
            values.append(torch.empty_like(sums[-1]))
            _gemcnn.regular_forward(self.settings, rows, sums[-1], values[-1])
        return values, sums


def _messages_run(x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
    function = _Messages(x, weight, bias, *rest)
    y = _messages_fake(x, weight, bias, *rest).zero_()
    for piece in function.pieces():
        values, _ = function.compute(piece)
        function.at_edges("reduce", function.output, piece, values[-1], y)
    return y


def _messages_fake(x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
    return x.new_empty((rest[0].shape[0] - 1, dimension(rest[10])))


def _messages_backward_run(
    dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    function = _Messages(x, weight, bias, *rest)
    dy, dx = dy.contiguous(), torch.zeros_like(function.x)
    dweight, dbias = weight.new_zeros(weight.shape), bias.new_zeros(bias.shape)
    dmaps, dbiases = function.layers(dweight, dbias)
    for piece in function.pieces():
        values, sums = function.compute(piece)
        rows = piece[1] - piece[0]
        gradient = torch.empty_like(sums[-1])
        function.at_edges("reduce_backward", function.output, piece, dy, gradient)
        for index in reversed(range(len(sums))):
            dsum = torch.empty_like(gradient)
            _gemcnn.regular_backward(function.settings, rows, sums[index], gradient, dsum)
            dmaps[index].addmm_(dsum.t(), values[index])
            dbiases[index].add_(dsum.sum(0))
            gradient = dsum @ function.maps[index]
        function.at_edges("gather_backward", function.input, piece, gradient, dx)
    return dx, dweight, dbias


def _messages_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.rest = inputs[3:]


def _messages_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return cast(tuple[Any, ...], operators.messages_backward(dy, *ctx.saved_tensors, *ctx.rest))


def _messages_backward_fake(dy: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(part.new_empty(part.shape) for part in rest[:3])


_FUNCTION = f"{_GRAPH}, {_TYPES}, int samples, str activation"
_operator(
    f"messages(Tensor x, Tensor weight, Tensor bias, {_FUNCTION}) -> Tensor", _messages_run, _messages_fake
)
_operator(
    f"messages_backward(Tensor dy, Tensor x, Tensor weight, Tensor bias, {_FUNCTION})"
    " -> (Tensor, Tensor, Tensor)",
    _messages_backward_run,
    _messages_backward_fake,
)
_differentiable("messages", 3, _messages_saved, _messages_gradient, "messages_backward")
