"""Learned diffusion on surfaces, in the eigenbases of their connection Laplacians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import OperatorError
from ..geometry import GaugeGraph
from ..mesh import Mesh
from .layers import Layer

__all__ = ["Diffusion", "Spectra"]


class Spectra(NamedTuple):
    """Masses and eigenbases of the surfaces of a batch, for orders from 0.

    Make it with `Spectra.of` and `Spectra.collate`.
    """

    mass: Tensor
    """Mass of each vertex, `[V]`."""
    bases: tuple[Tensor, ...]
    """Eigenvectors of each order: `[V, 1, K]` for order 0, `[V, 2, K]` for higher ones, real parts first."""
    eigenvalues: tuple[Tensor, ...]
    """Eigenvalues of each order, `[B, K]`, of surfaces of unit area."""
    sizes: tuple[int, ...]
    """Number of vertices of each mesh."""

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        graph: GaugeGraph,
        counts: Sequence[int] = (128, 64, 64),
        dtype: torch.dtype = torch.float32,
    ) -> Spectra:
        """The lowest eigenpairs of a mesh.

        Args:
            mesh: the mesh.
            graph: its gauge graph, whose frames the features refer to.
            counts: numbers of eigenpairs of the orders from 0. A mesh with fewer has columns of zeros.
            dtype: type of the numbers.
        """
        bases, eigenvalues = [], []
        for order, count in enumerate(counts):
            values, vectors = mesh.eigenpairs(count, order, graph)
            parts = [vectors] if order == 0 else [vectors.real, vectors.imag]
            spare = count - len(values)
            stacked = torch.from_numpy(np.stack(parts, axis=1)).to(dtype)
            bases.append(nn.functional.pad(stacked, (0, spare)))
            eigenvalues.append(nn.functional.pad(torch.from_numpy(values).to(dtype), (0, spare))[None])
        mass = torch.from_numpy(mesh.laplacian(0, graph).mass).to(dtype)
        return cls(mass, tuple(bases), tuple(eigenvalues), (len(mass),))

    @classmethod
    def collate(cls, parts: Sequence[Spectra]) -> Spectra:
        """The spectra of a batch, with the same numbers of eigenpairs."""
        return cls(
            torch.cat([part.mass for part in parts]),
            tuple(torch.cat(tensors) for tensors in zip(*(part.bases for part in parts), strict=True)),
            tuple(torch.cat(tensors) for tensors in zip(*(part.eigenvalues for part in parts), strict=True)),
            tuple(size for part in parts for size in part.sizes),
        )

    def to(self, *arguments: Any, **keywords: Any) -> Spectra:
        """The same on a device, or with numbers of another type. Takes the arguments of `Tensor.to`."""
        return self._each(lambda tensor: tensor.to(*arguments, **keywords))

    def pin_memory(self) -> Spectra:
        """The same in pinned memory."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Any) -> Spectra:
        bases = tuple(change(basis) for basis in self.bases)
        eigenvalues = tuple(change(values) for values in self.eigenvalues)
        return Spectra(change(self.mass), bases, eigenvalues, self.sizes)


class Diffusion(Layer):
    """Diffusion of each channel for a learned time, in the eigenbasis of the connection Laplacian of its order
    (docs/surfaces.md). It does not depend on the frames, and nearly not on the meshing. It is made of matrix products of
    PyTorch.

    With `s = Phi^H M x`, the result is `Phi f(lambda) s`, where `f = exp(-u) (1 + b u)` with `u = lambda t`, for a time `t` and a band
    `b` of each channel.

    Args:
        type: type of input and output.
        times: shortest and longest time at initialisation, for surfaces of unit area. Logarithms are uniform.

    Shapes:
        x: `[V, type.dimension]`; result: the same.
    """

    def __init__(
        self,
        type: str,
        times: tuple[float, float] = (1e-3, 0.3),
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_types(type, type)
        low, high = times
        if not (0 < low <= high < math.inf):
            raise OperatorError(f"times are {times}, but must be positive, the shorter first")
        self._orders = [(n, count) for n, count in enumerate(self.input.multiplicities) if count]
        total = sum(self.input.multiplicities)
        start = torch.empty(total, device=device, dtype=dtype).uniform_(math.log(low), math.log(high))
        self.log_time = nn.Parameter(start)
        self.band = nn.Parameter(torch.zeros(total, device=device, dtype=dtype))

    def forward(self, x: Tensor, spectra: Spectra) -> Tensor:
        self._check(x)
        if len(spectra.bases) <= self._orders[-1][0]:
            raise OperatorError(f"the spectra have orders below {len(spectra.bases)}, but features are {self.input}")
        if x.shape[0] != spectra.mass.shape[0]:
            raise OperatorError(f"{x.shape[0]} rows of features for {spectra.mass.shape[0]} vertices")
        results, column, irrep = [], 0, 0
        for order, count in self._orders:
            parts = 2 if order else 1
            fields = x[:, column : column + parts * count].reshape(-1, parts, count)
            log_time = self.log_time[irrep : irrep + count]
            band = self.band[irrep : irrep + count]
            results.append(self._diffuse(fields, spectra, order, log_time, band))
            column, irrep = column + parts * count, irrep + count
        return torch.cat(results, dim=1)

    @staticmethod
    def _diffuse(fields: Tensor, spectra: Spectra, order: int, log_time: Tensor, band: Tensor) -> Tensor:
        """Fields `[V, parts, channels]` of one order, diffused: `[V, parts * channels]`."""
        weighted = fields * spectra.mass[:, None, None]
        results = []
        for mesh, (basis, rows) in enumerate(
            zip(spectra.bases[order].split(spectra.sizes), weighted.split(spectra.sizes), strict=True)
        ):
            scaled = spectra.eigenvalues[order][mesh][:, None] * log_time.exp()
            filters = torch.exp(-scaled) * (1 + band * scaled)
            if order == 0:
                results.append(basis[:, 0] @ (filters * (basis[:, 0].T @ rows[:, 0])))
                continue
            real, imaginary = basis.unbind(1)
            x, y = rows.unbind(1)
            a = filters * (real.T @ x + imaginary.T @ y)
            b = filters * (real.T @ y - imaginary.T @ x)
            results.append(torch.cat([real @ a - imaginary @ b, imaginary @ a + real @ b], dim=1))
        return torch.cat(results)
