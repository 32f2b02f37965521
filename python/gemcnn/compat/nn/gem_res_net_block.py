"""The residual block."""

from __future__ import annotations

import warnings
from typing import cast

from torch import Tensor, nn

from .gem_conv import GemConv
from .regular_nonlin import RegularNonlinearity

__all__ = ["GemResNetBlock"]


class GemResNetBlock(nn.Module):
    """Residual block of two convolutions.

    Where the numbers of channels differ, the skip connection has a bias on every component, as in the published
    implementation. With an input order above 0 this breaks equivariance, and warns: `gemcnn.torch.ResidualBlock` has an equivariant
    one.

    Args:
        in_channels, out_channels, in_order, out_order, n_rings, band_limit, batch: as in `GemConv`.
        num_samples: of the nonlinearities.
        last_layer: without the last nonlinearity.
        checkpoint: without effect; convolutions save their input only.
        batch_norm: normalises samples.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        in_order: int,
        out_order: int,
        n_rings: int,
        num_samples: int,
        band_limit: int | None = None,
        last_layer: bool = False,
        checkpoint: bool = False,
        batch_norm: bool = False,
        batch: int | None = None,
    ) -> None:
        super().__init__()
        middle = max(in_order, out_order)
        self.conv1 = GemConv(in_channels, out_channels, in_order, middle, n_rings)
        self.conv2 = GemConv(out_channels, out_channels, middle, out_order, n_rings)

        def act() -> nn.Module:
            if batch_norm:
                return nn.Sequential(nn.BatchNorm1d(out_channels), nn.ReLU())
            return nn.ReLU()

        self.nonlin1 = RegularNonlinearity(middle, num_samples, act())
        self.nonlin2: nn.Module = (
            nn.Identity() if last_layer else RegularNonlinearity(out_order, num_samples, act())
        )
        self.lin: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.lin = nn.Conv1d(in_channels, out_channels, 1)
            if in_order > 0:
                warnings.warn(
                    f"the skip connection from {in_channels} to {out_channels} channels adds a bias to components "
                    "that rotate: the block is not equivariant (gemcnn.torch.ResidualBlock is)",
                    stacklevel=2,
                )

    def forward(self, x: Tensor, edge_index: Tensor, precomp: Tensor, connection: Tensor) -> Tensor:
        """`[V, in_channels, 2 in_order + 1]` to `[V, out_channels, 2 out_order + 1]`."""
        y = self.nonlin1(self.conv1(x, edge_index, precomp, connection))
        y = self.conv2(y, edge_index, precomp, connection)
        skipped = self.lin(x)
        both = min(y.shape[2], skipped.shape[2])
        skipped = nn.functional.pad(skipped[:, :, :both], (0, y.shape[2] - both))
        return cast(Tensor, self.nonlin2(y + skipped))
