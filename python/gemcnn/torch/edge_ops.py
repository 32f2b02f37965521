"""The operators of attention and of messages, registered with PyTorch under `torch.ops.gemcnn`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from .. import _gemcnn
from .ops import _GRAPH, _differentiable, _operator, _wanted, operators
from .types import FeatureType, dimension

_TYPES = "str input, str output"

# Products of queries with the keys of each edge.


def _product_run(query: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    products = _product_fake(query, x, weight, *rest)
    parts = (query.contiguous(), x.contiguous(), weight.contiguous())
    _gemcnn.edge_product(rest[9:], rest[:9], *parts, products)
    return products


def _product_fake(query: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(rest[1].shape[0])


def _product_backward_run(
    dy: Tensor, query: Tensor, x: Tensor, weight: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    graph, types = rest[:9], rest[9:]
    dy, query, x, weight = (part.contiguous() for part in (dy, query, x, weight))
    dquery, dx, dweight = torch.empty_like(query), torch.empty_like(x), torch.empty_like(weight)
    # With the gradient as weights of the edges, both are weighted convolutions.
    _gemcnn.weighted_conv(types, graph, dy, x, weight, None, dquery)
    _gemcnn.weighted_conv_backward(types, graph, dy, x, weight, None, query, dx, dweight, None)
    return dquery, dx, dweight


def _like_parts(dy: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(part.new_empty(part.shape) for part in rest[:3])


def _product_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.rest = inputs[3:]


def _product_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return cast(tuple[Any, ...], operators.edge_product_backward(dy, *ctx.saved_tensors, *ctx.rest))


_operator(
    f"edge_product(Tensor query, Tensor x, Tensor weight, {_GRAPH}, {_TYPES}) -> Tensor",
    _product_run,
    _product_fake,
)
_operator(
    f"edge_product_backward(Tensor dy, Tensor query, Tensor x, Tensor weight, {_GRAPH}, {_TYPES})"
    " -> (Tensor, Tensor, Tensor)",
    _product_backward_run,
    _like_parts,
)
_differentiable("edge_product", 3, _product_saved, _product_gradient, "edge_product_backward")


# Softmax over the edges of each vertex.


def _softmax_run(x: Tensor, *graph: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    _gemcnn.edge_softmax(graph, x, y)
    return y


def _softmax_fake(x: Tensor, *graph: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _softmax_backward_run(dy: Tensor, y: Tensor, *graph: Tensor) -> Tensor:
    y = y.contiguous()
    dx = torch.empty_like(y)
    _gemcnn.edge_softmax_backward(graph, y, dy.contiguous(), dx)
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


# Gauge convolution with a weight for each edge.


def _weighted_run(x: Tensor, factors: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    y = _weighted_fake(x, factors, weight, bias, *rest)
    used = None if bias is None else bias.contiguous()
    parts = (factors.contiguous(), x.contiguous(), weight.contiguous())
    _gemcnn.weighted_conv(rest[9:], rest[:9], *parts, used, y)
    return y


def _weighted_fake(x: Tensor, factors: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return x.new_empty((rest[0].shape[0] - 1, dimension(rest[10])))


def _weighted_backward_run(
    dy: Tensor, x: Tensor, factors: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    graph, types = rest[:9], rest[9:]
    dy, x, factors, weight = (part.contiguous() for part in (dy, x, factors, weight))
    dx, dfactors, dweight = torch.empty_like(x), torch.empty_like(factors), torch.empty_like(weight)
    used = None if bias is None else bias.contiguous()
    dbias = None if used is None else torch.empty_like(used)
    _gemcnn.weighted_conv_backward(types, graph, factors, x, weight, used, dy, dx, dweight, dbias)
    _gemcnn.edge_product(types, graph, dy, x, weight, dfactors)
    return dx, dfactors, dweight, x.new_empty(0) if dbias is None else dbias


def _weighted_backward_fake(
    dy: Tensor, x: Tensor, factors: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    dbias = x.new_empty(0) if bias is None else bias.new_empty(bias.shape)
    return (*_like_parts(dy, x, factors, weight), dbias)


def _weighted_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.rest = inputs[4:]


def _weighted_gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    found = operators.weighted_conv_backward(dy, *ctx.saved_tensors, *ctx.rest)
    return _wanted(found, ctx.needs_input_grad)


_operator(
    f"weighted_conv(Tensor x, Tensor factors, Tensor weight, Tensor? bias, {_GRAPH}, {_TYPES}) -> Tensor",
    _weighted_run,
    _weighted_fake,
)
_operator(
    "weighted_conv_backward(Tensor dy, Tensor x, Tensor factors, Tensor weight, Tensor? bias, "
    f"{_GRAPH}, {_TYPES}) -> (Tensor, Tensor, Tensor, Tensor)",
    _weighted_backward_run,
    _weighted_backward_fake,
)
_differentiable("weighted_conv", 4, _weighted_saved, _weighted_gradient, "weighted_conv_backward")


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


_FUNCTION = f"{_GRAPH}, {_TYPES}, int samples, str activation"
_operator(
    f"messages(Tensor x, Tensor weight, Tensor bias, {_FUNCTION}) -> Tensor", _messages_run, _messages_fake
)
_operator(
    f"messages_backward(Tensor dy, Tensor x, Tensor weight, Tensor bias, {_FUNCTION})"
    " -> (Tensor, Tensor, Tensor)",
    _messages_backward_run,
    _like_parts,
)
_differentiable("messages", 3, _messages_saved, _messages_gradient, "messages_backward")
