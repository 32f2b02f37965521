"""Attention over neighbours, and nonlinear messages along edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from .._arguments import integer
from ..errors import OperatorError
from . import edge_ops as _edge_ops  # noqa: F401  (registers the operators)
from .graph import Graph
from .layers import EquivariantLinear, GaugeConv, Layer, RegularNonlinearity, activated, normalisation
from .ops import operators
from .types import FeatureType

__all__ = ["GaugeAttention", "GaugeMessages", "MessageBlock"]


def joined_columns(kinds: Sequence[FeatureType]) -> Tensor:
    """Rows of several types, one after the other, to a row of their sum: its columns among theirs."""
    starts = list(accumulate((kind.dimension for kind in kinds), initial=0))
    columns = [
        start + kind.range(order).start + component * kind.multiplicity(order) + channel
        for order in range(max(kind.highest_order for kind in kinds) + 1)
        for component in range(2 if order else 1)
        for start, kind in zip(starts, kinds, strict=False)
        for channel in range(kind.multiplicity(order))
    ]
    return torch.tensor(columns, dtype=torch.long)


class GaugeAttention(Layer):
    """Attention of each vertex over its neighbours, with gauge equivariant kernels (docs/messages.md).

    `y_p = sum_q a_pq K_v(theta_pq) rho(g_pq) x_q + bias`. The weights `a_pq` are the softmax over the neighbours `q` of
    `<K_q x_p, K_k(theta_pq) rho(g_pq) x_q> / sqrt(d)`. A vertex without neighbours gets the bias.

    Args:
        input: type of the input.
        output: type of the output.
        heads: number of heads, which divides the multiplicities of the output. Each has weights of its own and an equal part of the channels.
        degree: number of neighbours that the initialisation assumes.
        input_moments: as in `GaugeConv`.

    Shapes:
        x: `[V, input.dimension]`; result: `[V, output.dimension]`.
    """

    columns: Tensor

    def __init__(
        self,
        input: str,
        output: str,
        *,
        heads: int = 1,
        degree: float = 6.0,
        input_moments: Sequence[float] = (),
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(input, output)
        counts = self.output.multiplicities
        heads = integer(OperatorError, "heads", heads, 1)
        if any(count % heads for count in counts):
            raise OperatorError(f"{heads} heads do not divide the channels of {self.output}")
        self.heads = heads
        part = FeatureType(" + ".join(f"{count // heads}x{order}" for order, count in enumerate(counts)))
        self._part = (self._types[0], str(part))
        self.scale = max(part.dimension, 1) ** -0.5
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        conv = {"self_term": False, "input_moments": input_moments, **options}
        for index in range(heads):
            head = {
                "query": EquivariantLinear(self.input, part, bias=False, **options),
                # Keys are not summed, and attention starts near a mean of the values.
                "key": GaugeConv(self.input, part, bias=False, degree=1.0, **conv),
                "value": GaugeConv(self.input, part, aggregation="mean", degree=degree, **conv),
            }
            self.add_module(f"head{index + 1}", nn.ModuleDict(head))
        self.register_buffer("columns", joined_columns([part] * heads).to(device), False)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        self._check_both(x, graph)
        fields = graph._for_operators()
        results = []
        for index in range(self.heads):
            head = cast(nn.ModuleDict, getattr(self, f"head{index + 1}"))
            key, value = head["key"], head["value"]
            logits = operators.edge_product(head["query"](x) * self.scale, x, key.weight, *fields, *self._part)
            factors = operators.edge_softmax(logits, *fields)
            results.append(operators.weighted_conv(x, factors, value.weight, value.bias, *fields, *self._part))
        if self.heads == 1:
            return cast(Tensor, results[0])
        return torch.cat(results, dim=1).index_select(1, self.columns)

    def extra_repr(self) -> str:
        return f"{self.input} -> {self.output}, heads={self.heads}"


class GaugeMessages(Layer):
    """Mean of nonlinear messages over the neighbours of each vertex:
    `1/|N(p)| sum_q rho(theta_pq) phi(rho(-theta_pq) x_p, rho(g_pq - theta_pq) x_q)`.

    `phi` is a chain of linear layers, each followed by a regular nonlinearity, in the frame of the edge: it is exactly
    equivariant with any number of samples. A vertex without neighbours gets 0. Edges are computed in pieces, and again in the
    backward pass, so memory grows with the number of vertices.

    Args:
        input: type of the input.
        output: type of the messages, with the same multiplicity for all orders up to the highest.
        layers: number of layers of `phi`.
        samples: samples of the nonlinearity (default: twice the highest order, plus 1).
        activation: as in `RegularNonlinearity`.
        input_moment: mean square of an input component that the initialisation assumes.

    Shapes:
        x: `[V, input.dimension]`; result: `[V, output.dimension]`.
    """

    def __init__(
        self,
        input: str,
        output: str,
        *,
        layers: int = 2,
        samples: int | None = None,
        activation: str = "relu",
        input_moment: float = 1.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(input, output)
        act = RegularNonlinearity(self.output, samples, activation)
        layers = integer(OperatorError, "layers", layers, 1, 1024)
        if self.output.dimension == 0:
            raise OperatorError("output has no channels, but messages have at least one")
        self.layers, self.samples, self.activation = layers, act.samples, activation
        outputs = self.output.dimension
        inputs, moment = 2 * self.input.dimension, input_moment
        for index in range(layers):
            layer = nn.Linear(inputs, outputs, device=device, dtype=dtype)
            nn.init.normal_(layer.weight, 0, (max(inputs, 1) * moment) ** -0.5)
            nn.init.zeros_(layer.bias)
            self.add_module(f"edge{index + 1}", layer)
            # Half of the power of a zero-mean signal passes a ReLU.
            inputs, moment = outputs, 0.5

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        self._check_both(x, graph)
        layers = [cast(nn.Linear, getattr(self, f"edge{index + 1}")) for index in range(self.layers)]
        weight = torch.cat([layer.weight.flatten() for layer in layers])
        bias = torch.cat([layer.bias for layer in layers])
        settings = (*self._types, self.samples, self.activation)
        return cast(Tensor, operators.messages(x, weight, bias, *graph._for_operators(), *settings))

    def extra_repr(self) -> str:
        return f"{self.input} -> {self.output}, layers={self.layers}, samples={self.samples}"


class MessageBlock(nn.Module):
    """Block of nonlinear messages: `skip(x) + phi(x, messages(x))`. `phi` is a chain of equivariant linear maps with
    nonlinearities between them. The skip connection is the identity, or an equivariant linear map without bias if the types
    differ.

    Args:
        input: type of the input.
        output: type of the output.
        hidden: type of the messages and between the layers, with the same multiplicity for all orders up to the highest.
        edge_layers: layers of the message function.
        node_layers: layers of the update function `phi`.
        samples: samples of the nonlinearity of messages (default: twice the highest order of `hidden`, plus 1).
        nonlinearity: makes a nonlinearity of updates with a given output type (default: `RegularNonlinearity`).
        batch_norm: normalises before each nonlinearity of updates.
        activation: of the messages, as in `RegularNonlinearity`.

    Shapes:
        x: `[V, input.dimension]`; result: `[V, output.dimension]`.
    """

    columns: Tensor

    def __init__(
        self,
        input: str,
        output: str,
        *,
        hidden: str,
        edge_layers: int = 2,
        node_layers: int = 2,
        samples: int | None = None,
        nonlinearity: Callable[[str], nn.Module] = RegularNonlinearity,
        batch_norm: bool = False,
        activation: str = "relu",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        node_layers = integer(OperatorError, "node_layers", node_layers, 1, 1024)
        self.input, self.output, self.node_layers = FeatureType(input), FeatureType(output), node_layers
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.messages = GaugeMessages(
            self.input, hidden, layers=edge_layers, samples=samples, activation=activation, **options
        )
        before = FeatureType(f"{self.input} + {self.messages.output}")
        for index in range(1, node_layers):
            act = nonlinearity(hidden).to(**options)
            inner = cast(FeatureType, act.input)
            self.add_module(f"node{index}", EquivariantLinear(before, inner, **options))
            self.add_module(f"norm{index}", normalisation(inner, act, **options) if batch_norm else None)
            self.add_module(f"act{index}", act)
            before = FeatureType(hidden)
        self.add_module(f"node{node_layers}", EquivariantLinear(before, self.output, **options))
        same = self.input == self.output
        self.skip = None if same else EquivariantLinear(self.input, self.output, bias=False, **options)
        self.register_buffer("columns", joined_columns([self.input, self.messages.output]).to(device), False)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        update = torch.cat([x, self.messages(x, graph)], dim=1).index_select(1, self.columns)
        for index in range(1, self.node_layers):
            update = getattr(self, f"node{index}")(update)
            update = activated(getattr(self, f"act{index}"), getattr(self, f"norm{index}"), update)
        update = getattr(self, f"node{self.node_layers}")(update)
        return cast(Tensor, update + (x if self.skip is None else self.skip(x)))
