"""Pooling."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ...errors import OperatorError
from ...torch.ops import operators
from ...torch.types import FeatureType
from ..transform.scale_mask import invert_index, mask_idx

__all__ = ["ParallelTransportPool"]


class ParallelTransportPool(nn.Module):
    """Pooling between two levels of a `MultiscaleRadiusGraph`, with parallel transport: the mean of the vertices that are pooled
    to a vertex, or back.

    Args:
        coarse_lvl: the coarser level, from 1.
        unpool: from `coarse_lvl` to the level before, instead of to `coarse_lvl`.
    """

    def __init__(self, coarse_lvl: int, *, unpool: bool) -> None:
        super().__init__()
        self.coarse_lvl, self.unpool = coarse_lvl, unpool

    def forward(self, x: Tensor, data: Any) -> Tensor:
        """`[vertices of one level, channels, 2 order + 1]` to those of the other.

        Args:
            x: features.
            data: with `edge_index`, `edge_mask`, `node_mask` and `connection`, from `MultiscaleRadiusGraph` and
                `SimpleGeometry`.
        """
        vertices, level = len(data.node_mask), self.coarse_lvl
        fine, coarse = (torch.nonzero(data.node_mask >= lvl)[:, 0] for lvl in (level - 1, level))
        edges = mask_idx(2 * level, data.edge_mask)
        to, of = data.edge_index[:, edges]
        # Each finer vertex has one edge.
        edges = edges[torch.argsort(of)]
        if not torch.equal(data.edge_index[1, edges], fine):
            raise OperatorError(
                f"level {level} is not pooled to: {len(edges)} of {len(fine)} vertices have an edge for it. "
                "Levels with a ratio of 1 keep all vertices, and need no pooling"
            )
        expected = len(coarse) if self.unpool else len(fine)
        if x.dim() != 3 or len(x) != expected:
            raise OperatorError(f"x has shape {list(x.shape)}, but must be [{expected}, channels, 2 order + 1]")
        cluster_of = invert_index(coarse, vertices)[data.edge_index[0, edges]]
        offsets = nn.functional.pad(torch.bincount(cluster_of, minlength=len(coarse)).cumsum(0), (1, 0))
        angle = data.connection[edges].to(x.dtype)
        rows, channels, components = x.shape
        y = (operators.unpool if self.unpool else operators.pool)(
            x.transpose(1, 2).reshape(rows, -1),
            offsets.int(),
            torch.argsort(cluster_of, stable=True).int(),
            cluster_of.int(),
            torch.stack([angle.cos(), angle.sin()], dim=1),
            str(FeatureType.uniform(channels, components // 2)),
        )
        return cast(Tensor, y).view(-1, components, channels).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{self.coarse_lvl}, unpool={self.unpool}"
