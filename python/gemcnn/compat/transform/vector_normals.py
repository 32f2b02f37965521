"""Normals and edges of a mesh."""

from __future__ import annotations

from typing import Any

import torch

from ...mesh import from_pyg

__all__ = ["compute_normals_edges_from_mesh"]


def compute_normals_edges_from_mesh(data: Any) -> Any:
    """Adds `normal` `[V, 3]`, with faces weighted by their angles, and `edge_index` `[2, 3 F]`, the sides of all faces, to data
    with `pos` `[V, 3]` and `face` `[3, F]`."""
    frames = from_pyg(data).gauge_graph(normals="corner_angle", estimate_normals=True).frames
    data.normal = torch.from_numpy(frames[:, 2].copy()).to(data.pos)
    corners = data.face.T
    data.edge_index = torch.stack([corners, corners.roll(-1, 1)]).reshape(2, -1).long()
    return data
