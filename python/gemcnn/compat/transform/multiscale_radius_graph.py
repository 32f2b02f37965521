"""Radius graphs of several levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ... import _gemcnn
from ...errors import GeometryError

__all__ = ["MultiscaleRadiusGraph"]


class MultiscaleRadiusGraph:
    """Adds the graphs of several levels to data with `pos`: all edges in `edge_index`, sorted and without duplicates, their
    levels as bits in `edge_mask` `[E]` (bit `2 n`: from a vertex of level `n - 1` to the vertex of level `n` that it is pooled to;
    bit `2 n + 1`: convolutions on level `n`), and the coarsest level of each vertex in `node_mask` `[V]`.

    A level keeps vertices of the level before by farthest-point sampling, which starts at the first vertex of each mesh.

    Args:
        ratios: share of the vertices that each level keeps of the level before; 1 keeps all, without pooling.
        radii: radius of the neighbourhoods on each level. Vertices are their own neighbours.
        max_neighbours: the number of neighbours is at most this; the nearest are kept.
    """

    def __init__(self, ratios: Sequence[float], radii: Sequence[float], max_neighbours: int = 512) -> None:
        if len(ratios) != len(radii):
            raise GeometryError(f"there are {len(ratios)} ratios for {len(radii)} radii, but each level needs one of both")
        bad = [ratio for ratio in ratios if not 0 < ratio <= 1]
        if bad:
            raise GeometryError(f"ratios must be above 0 and at most 1, not {bad[0]}")
        self.ratios, self.radii, self.max_neighbours = ratios, radii, max_neighbours

    def __call__(self, data: Any) -> Any:
        pos, batch = data.pos.detach().cpu().double().numpy(), getattr(data, "batch", None)
        mesh_of = np.zeros(len(pos), dtype=np.int64) if batch is None else batch.cpu().numpy()
        levels = np.zeros(len(pos), dtype=np.float32)
        masks: dict[int, list[np.ndarray]] = {}
        for mesh in np.unique(mesh_of):
            kept = np.flatnonzero(mesh_of == mesh)
            for level, (ratio, radius) in enumerate(zip(self.ratios, self.radii, strict=True)):
                if ratio != 1:
                    # In single precision, as in the published implementation.
                    count = int(np.ceil(np.float32(len(kept)) * np.float32(ratio)))
                    chosen, cluster_of = _gemcnn.coarsen(pos[kept], count)
                    masks.setdefault(2 * level, []).append(np.stack([kept[chosen][cluster_of], kept]))
                    kept = kept[chosen]
                    levels[kept] = level
                pairs = _gemcnn.pairs_within(pos[kept], float(radius), self.max_neighbours)
                masks.setdefault(2 * level + 1, []).append(kept[np.stack(pairs)])
        keys = [np.unique(np.ravel_multi_index(tuple(np.concatenate(edges, axis=1)), (len(pos),) * 2)) for edges in masks.values()]
        union = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *keys]))
        bits = np.zeros(len(union), dtype=np.int64)
        for bit, key in zip(masks, keys, strict=True):
            bits[np.searchsorted(union, key)] |= 1 << bit
        edges = np.stack(np.divmod(union, max(len(pos), 1)))
        data.edge_coords = None
        data.edge_index, data.edge_mask, data.node_mask = (
            torch.from_numpy(array).to(data.pos.device) for array in (edges, bits, levels)
        )
        return data

    def __repr__(self) -> str:
        return f"MultiscaleRadiusGraph(radii={self.radii}, ratios={self.ratios})"
