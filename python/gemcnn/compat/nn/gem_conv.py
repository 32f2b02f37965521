"""The convolution, and its edges as the kernels take them."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ...errors import OperatorError
from ...torch.graph import Graph
from ...torch.ops import operators
from ...torch.types import FeatureType

__all__ = ["GemConv"]


class _Messages(NamedTuple):
    """Edges as the kernels take them."""

    graph: Graph
    """Neighbours, with the factor of each: one over the number of messages, and 0 for an edge that is only there because its
    reverse is."""
    own: Tensor
    """Factor of the message of each vertex to itself, `[V, 1]`; 0 without one."""


def _messages(edge_index: Tensor, precomp: Tensor, vertices: int) -> _Messages:
    """The edges in compressed rows, each with its reverse. They are kept with `precomp`, which layers share."""
    state = (vertices, *(0 if part.is_inference() else part._version for part in (edge_index, precomp)))
    kept = getattr(precomp, "_gemcnn", None)
    if kept is not None and kept[0] is edge_index and kept[1] == state:
        return cast(_Messages, kept[2])
    if edge_index.shape != (2, len(precomp)):
        raise OperatorError(
            f"edge_index has shape {list(edge_index.shape)}, but precomp has {len(precomp)} edges: it must be [2, {len(precomp)}]"
        )
    if edge_index.numel() and not (edge_index.min() >= 0 and edge_index.max() < vertices):
        raise OperatorError(f"edge_index has vertices from {edge_index.min()} to {edge_index.max()}, but x has {vertices} rows")
    target, source = edge_index
    counts = torch.bincount(target, minlength=vertices).clamp(min=1).to(precomp.dtype)
    is_self = precomp[:, 2] != 0
    loops = torch.bincount(target[is_self], minlength=vertices).to(precomp.dtype)
    edges = torch.nonzero(~is_self)[:, 0]
    target, source = target[edges], source[edges]
    # Edges whose reverse is missing get one that counts nothing. Equal edges are numbered, so that each finds another.
    key, back = target * vertices + source, source * vertices + target
    forth = _numbered(key)
    lacking = ~torch.isin(forth, _numbered(back))
    target, source = torch.cat([target, source[lacking]]), torch.cat([source, target[lacking]])
    theirs = torch.cat([edges, edges[lacking]])
    factor = 1 / counts[target]
    factor[len(edges) :] = 0
    order = torch.argsort(_numbered(target * vertices + source))
    target, source, theirs, factor = target[order], source[order], theirs[order], factor[order]
    # The rank of a reversed edge is its place.
    reverse = torch.argsort(torch.argsort(_numbered(source * vertices + target)))
    before, after = precomp[theirs, 0], precomp[theirs, 1]
    phases = torch.stack([after.cos(), after.sin(), before.cos(), before.sin()], dim=1)
    # The place between the rings from their weights.
    rings = precomp.shape[1] - 3
    places = torch.arange(rings, dtype=precomp.dtype, device=precomp.device) / max(rings - 1, 1)
    degrees = torch.bincount(target, minlength=vertices)
    offsets = nn.functional.pad(degrees.cumsum(0), (1, 0))
    graph = Graph.from_parts(
        offsets.int(),
        source.int(),
        reverse.int(),
        phases,
        precomp[theirs, 3:] @ places,
        factor[:, None],
        torch.tensor([0, vertices], dtype=torch.int32, device=precomp.device),
    )
    messages = _Messages(graph, (loops / counts)[:, None])
    precomp._gemcnn = (edge_index, state, messages)  # type: ignore[attr-defined]
    return messages


def _numbered(key: Tensor) -> Tensor:
    """Distinct keys in the same order: equal ones are told apart by how many came before."""
    order = torch.argsort(key, stable=True)
    ranked = key[order]
    place = torch.arange(len(key), device=key.device)
    starts = torch.searchsorted(ranked, ranked)
    again = torch.empty_like(place)
    again[order] = place - starts
    return key * (len(key) + 1) + again


class _SelfWeight(nn.Module):
    """Weights of the message of a vertex to itself, `[basis, in, out]`."""

    kernels: Tensor

    def __init__(self, in_channels: int, out_channels: int, in_order: int, out_order: int) -> None:
        super().__init__()
        bases = 2 * min(in_order, out_order) + 1
        kernels = torch.zeros(bases, 2 * in_order + 1, 2 * out_order + 1)
        kernels[0, 0, 0] = 1
        for basis in range(1, bases, 2):
            kernels[basis, basis, basis] = kernels[basis, basis + 1, basis + 1] = 1
            kernels[basis + 1, basis, basis + 1] = 1
            kernels[basis + 1, basis + 1, basis] = -1
        self.register_buffer("kernels", kernels)
        self.weight = nn.Parameter(torch.empty(bases, in_channels, out_channels))
        fans = in_channels * (2 * in_order + 1) + out_channels * (2 * out_order + 1)
        nn.init.uniform_(self.weight, -math.sqrt(6 / fans), math.sqrt(6 / fans))

    def forward(self) -> Tensor:
        """In the layout of the kernels: order by order, `[out, in]` of each basis; the second of an order is negative."""
        signs = self.weight.new_ones(len(self.weight))
        signs[2::2] = -1
        return (self.weight * signs[:, None, None]).transpose(1, 2).reshape(-1)


class GemConv(nn.Module):
    """Gauge equivariant convolution: the mean of the messages of all edges.

    Args:
        in_channels, out_channels: channels of each order.
        in_order, out_order: highest orders.
        n_rings: number of radial rings.
        band_limit, batch: without effect, as in the published implementation.
    """

    bias_mask: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        in_order: int,
        out_order: int,
        n_rings: int,
        band_limit: int | None = None,
        batch: int | None = None,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.in_order, self.out_order, self.n_rings = in_order, out_order, n_rings
        components = (2 * in_order + 1, 2 * out_order + 1)
        shape = (n_rings, in_channels, components[0], out_channels, components[1])
        self.weight = nn.Parameter(torch.empty(shape))
        self.self_weight = _SelfWeight(in_channels, out_channels, in_order, out_order)
        self.bias = nn.Parameter(torch.zeros(out_channels, components[1]))
        self.register_buffer("bias_mask", torch.eye(components[1])[0])
        self._input = FeatureType.uniform(in_channels, in_order)
        self._with_one = FeatureType(f"{self._input} + 1x0")
        self._output = FeatureType.uniform(out_channels, out_order)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform weights by their numbers of inputs and outputs, and no bias."""
        fans = self.weight[0, :, :, 0, 0].numel() + self.weight[0, 0, 0].numel()
        nn.init.uniform_(self.weight, -math.sqrt(6 / fans), math.sqrt(6 / fans))
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, precomp: Tensor, connection: Tensor) -> Tensor:
        """`[V, in_channels, 2 in_order + 1]` to `[V, out_channels, 2 out_order + 1]`.

        Args:
            x: features.
            edge_index: `[2, E]`.
            precomp: `[E, 3 + n_rings]`, from `GemPrecomp`.
            connection: unused, as in the published implementation; `precomp` holds it.
        """
        channels, components = self.in_channels, 2 * self.in_order + 1
        if x.dim() != 3 or x.shape[1:] != (channels, components):
            raise OperatorError(f"x has shape {list(x.shape)}, but must be [V, {channels}, {components}]")
        if precomp.dim() != 2 or precomp.shape[1] != 3 + self.n_rings:
            raise OperatorError(
                f"precomp has shape {list(precomp.shape)}, but must be [E, {3 + self.n_rings}]: use GemPrecomp with n_rings={self.n_rings}"
            )
        vertices = len(x)
        messages = _messages(edge_index, precomp, vertices)
        rows = x.transpose(1, 2).reshape(vertices, -1)
        # The bias is a kernel on a constant scalar, which comes after the other scalars.
        ones = rows.new_ones(vertices, 1)
        extended = torch.cat([rows[:, :channels], ones, rows[:, channels:]], dim=1)
        kernel = self.weight.permute(0, 4, 3, 2, 1).reshape(self.n_rings, self._output.dimension, -1)
        bias = self.bias.T.reshape(1, -1, 1).expand(self.n_rings, -1, 1)
        kernel = torch.cat([kernel[..., :channels], bias, kernel[..., channels:]], dim=2)
        y = operators.gauge_conv(
            extended,
            kernel,
            None,
            None,
            *messages.graph._for_operators(),
            str(self._with_one),
            str(self._output),
            1.0,
            "mean",
        )
        own = operators.linear(
            rows, self.self_weight(), self.bias[:, 0], str(self._input), str(self._output)
        )
        y = torch.addcmul(y, own, messages.own)
        return cast(Tensor, y).view(vertices, -1, self.out_channels).transpose(1, 2)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, in_order={self.in_order}, "
            f"out_order={self.out_order}, n_rings={self.n_rings}"
        )
