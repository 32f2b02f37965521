"""Levels of a multi-scale graph."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

__all__ = ["ScaleMask", "invert_index", "mask_idx"]


def invert_index(index: Tensor, n: int | None = None) -> Tensor:
    """The place of each of `n` items (default: as many as `index` has) in `index`; 0 for items that are not there."""
    places = torch.zeros(len(index) if n is None else n, dtype=torch.long, device=index.device)
    places[index] = torch.arange(len(index), device=index.device)
    return places


def mask_idx(lvl: int, edge_mask: Tensor) -> Tensor:
    """The edges with bit `lvl`: `2 n` for pooling to level `n`, `2 n + 1` for convolutions on it."""
    return torch.nonzero((edge_mask >> lvl) & 1)[:, 0]


class ScaleMask:
    """The graph of one level: data with `edge_index`, `batch` and, if there are any, `edge_coords` and `connection`. Vertices are
    those of the level, in their order.

    Args:
        lvl: level, from 0.
    """

    def __init__(self, lvl: int) -> None:
        self.node_lvl, self.edge_lvl = lvl, 2 * lvl + 1

    def __call__(self, data: Any) -> Any:
        edges = mask_idx(self.edge_lvl, data.edge_mask)
        vertices = torch.nonzero(data.node_mask >= self.node_lvl)[:, 0]
        batch = getattr(data, "batch", None)
        # Data of PyTorch Geometric if that is what came.
        pyg = sys.modules.get("torch_geometric.data")
        make = pyg.Data if pyg is not None and isinstance(data, pyg.Data) else SimpleNamespace
        level = make(
            edge_index=invert_index(vertices, len(data.node_mask))[data.edge_index[:, edges]],
            batch=None if batch is None else batch[vertices],
            num_nodes=len(vertices),
        )
        if getattr(data, "connection", None) is not None:
            level.edge_coords, level.connection = data.edge_coords[edges], data.connection[edges]
        return level
