"""The U-net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import TaskError
from .edges import joined_columns
from .graph import Levels
from .layers import ResidualBlock, TransportPool, TransportUnpool
from .models import BlockNetwork, nonlinearity_of
from .types import FeatureType, output_type

__all__ = ["UNet"]

# Neighbours on coarser graphs that the initialisation assumes.
_COARSE_DEGREE = 8.0


class UNet(BlockNetwork):
    """Residual blocks on coarser and coarser graphs and back, with skip connections: the model `unet` of the command
    (docs/models.md). With `pool` it stays on the coarsest graph.

    Args:
        input: type of the input.
        outputs: number of outputs, or their type for outputs of an order above 0.
        channels: channels of each order on each graph, from fine to coarse.
        band_limit: highest order.
        scalars: scalar channels of the last block.
        nonlinearity: `regular`, `norm` or `gated`.
        samples: samples of the regular nonlinearity (default: `2 band_limit + 1`).
        batch_norm: normalises before nonlinearities.
        head: hidden channels of the head; 0 makes it a single linear layer.
        dropout: probability of dropout in the head.
        pool: `mean` or `max` over each mesh before the head (default: outputs for each vertex).

    Shapes:
        x: `[V, input.dimension]`; result: `[V, outputs]`, or `[B, outputs]` after pooling.
    """

    def __init__(
        self,
        input: str,
        outputs: int | str,
        *,
        channels: Sequence[int] = (16, 32, 64),
        band_limit: int = 2,
        scalars: int = 64,
        nonlinearity: str = "regular",
        samples: int | None = None,
        batch_norm: bool = True,
        head: int = 256,
        dropout: float = 0.5,
        pool: str | None = None,
    ) -> None:
        super().__init__()
        if not channels:
            raise TaskError("a U-net needs the channels of at least one graph")
        self.depth = len(channels)
        hidden = [FeatureType.uniform(count, band_limit) for count in channels]
        output = output_type(outputs)

        def block(level: int, before: FeatureType, after: FeatureType, middle: str | None = None) -> ResidualBlock:
            return ResidualBlock(
                before,
                after,
                middle=middle,
                nonlinearity=nonlinearity_of(nonlinearity, samples, band_limit),
                batch_norm=batch_norm,
                aggregation="mean",
                degree=_COARSE_DEGREE if level else 6.0,
            )

        kind = FeatureType(input)
        for level, after in enumerate(hidden):
            self.add_module(f"down{level + 1}", block(level, kind, after))
            kind = after
        self.pooling = nn.ModuleList(TransportPool(type) for type in hidden[:-1])
        self.unpooling = nn.ModuleList()
        if pool is None:
            for level in reversed(range(self.depth - 1)):
                self.unpooling.append(TransportUnpool(kind))
                self.register_buffer(f"columns{level + 1}", joined_columns([kind, hidden[level]]), False)
                kind = FeatureType(f"{kind} + {hidden[level]}")
                # The last block takes the place of that of the finest graph.
                if level:
                    self.add_module(f"up{level + 1}", block(level, kind, hidden[level]))
                    kind = hidden[level]
        last = hidden[0] if output.highest_order > 0 else FeatureType(f"{scalars}x0")
        coarse = 0 if pool is None else self.depth - 1
        self.blocks = nn.ModuleList([block(coarse, kind, last, hidden[coarse])])
        self._finish(last, output, head, dropout, pool, "mean")

    def forward(self, x: Tensor, levels: Levels, labels: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """The outputs, or with `labels` the mean cross-entropy, as `linear_cross_entropy` computes it."""
        graphs, clusters = levels
        if len(graphs) != self.depth:
            raise TaskError(f"the network runs on {self.depth} graphs, not {len(graphs)}")
        kept = []
        for level, graph in enumerate(graphs):
            if level:
                kept.append(x)
                x = self.pooling[level - 1](x, clusters[level - 1])
            x = getattr(self, f"down{level + 1}")(x, graph)
        for unpool in self.unpooling:
            level = len(kept) - 1
            both = [unpool(x, clusters[level]), kept.pop()]
            x = torch.cat(both, dim=1).index_select(1, getattr(self, f"columns{level + 1}"))
            if level:
                x = getattr(self, f"up{level + 1}")(x, graphs[level])
        return super().forward(x, graphs[0 if self.pool is None else -1], labels)
