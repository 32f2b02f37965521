"""The constants of convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["GemPrecomp"]


class GemPrecomp:
    """Adds `precomp` `[E, 3 + n_rings]` to data with `edge_coords` and `connection`: the angles of each message, whether it is
    one of a vertex to itself, and the weights of the rings.

    Args:
        n_rings: number of rings.
        max_order: unused, as in the published implementation.
        max_r: radius of the last ring (default: the longest edge of the batch, which makes the result of a mesh depend on its
            batch).
    """

    def __init__(self, n_rings: int = 2, max_order: int = 1, max_r: float | None = None) -> None:
        self.n_rings, self.max_order, self.max_r = n_rings, max_order, max_r

    def __call__(self, data: Any) -> Any:
        radius, theta = data.edge_coords.unbind(1)
        least = torch.finfo(radius.dtype).tiny
        largest = nn.functional.pad(radius, (0, 1), value=least).max() if self.max_r is None else self.max_r
        place = radius / largest * (self.n_rings - 1)
        rings = torch.arange(self.n_rings, dtype=radius.dtype, device=radius.device)
        hats = (1 - (place[:, None].clamp(max=self.n_rings - 1) - rings).abs()).clamp(min=0)
        own = (radius == 0).to(radius.dtype)[:, None]
        angles = torch.stack([data.connection - theta, theta], dim=1)
        data.precomp = torch.cat([angles, own, hats * (1 - own)], dim=1)
        return data

    def __repr__(self) -> str:
        return f"GemPrecomp(n_rings={self.n_rings}, max_order={self.max_order}, max_r={self.max_r})"
