"""Learned diffusion on surfaces, in the eigenbases of their connection Laplacians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._arguments import instance, integers, numbers
from ..errors import OperatorError
from ..geometry import GaugeGraph
from ..mesh import Mesh, as_mesh
from .graph import _check_dtype, _parts
from .layers import Layer
from .types import FeatureType, join_orders, split_orders

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
    gradient: Tensor
    """Gradients of the eigenvectors of order 0 in the frames, `[V, 2, K]`."""
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
        _check_dtype(dtype)
        mesh = as_mesh(mesh)
        counts = integers(OperatorError, "counts", counts, 0, 65_536)
        operators = mesh.operators(graph)
        bases, eigenvalues = [], []

        def padded(array: NDArray[Any], count: int) -> Tensor:
            tensor = torch.from_numpy(array).to(dtype)
            return nn.functional.pad(tensor, (0, count - tensor.shape[-1]))

        gradient = torch.zeros(len(mesh.vertices), 2, 0, dtype=dtype)
        for order, count in enumerate(counts):
            if count == 0:
                bases.append(torch.zeros(len(mesh.vertices), 2 if order else 1, 0, dtype=dtype))
                eigenvalues.append(torch.zeros(1, 0, dtype=dtype))
                continue
            values, vectors = operators.eigenpairs(count, order)
            if order == 0:
                gradient = padded(operators.gradient(vectors), count)
            parts = [vectors] if order == 0 else [vectors.real, vectors.imag]
            bases.append(padded(np.stack(parts, axis=1), count))
            eigenvalues.append(padded(values, count)[None])
        mass = torch.from_numpy(operators.mass).to(dtype)
        return cls(mass, tuple(bases), tuple(eigenvalues), gradient, (len(mass),))

    @classmethod
    def of_arrays(cls, columns: Sequence[int], arrays: Sequence[NDArray[np.float32]]) -> Spectra:
        """The spectra of a mesh that a trained model has prepared: numbers of eigenpairs by order, masses, eigenvectors
        followed by gradients, and eigenvalues."""
        mass, vectors, values = (torch.from_numpy(array) for array in arrays)
        vertices = len(mass)
        parts = [(2 if order else 1, count) for order, count in enumerate(columns)] + [(2, columns[0])]
        blocks = vectors.split([vertices * width * count for width, count in parts])
        *bases, gradient = (
            block.view(vertices, width, count) for block, (width, count) in zip(blocks, parts, strict=True)
        )
        eigenvalues = tuple(part[None] for part in values.split(list(columns)))
        return cls(mass, tuple(bases), eigenvalues, gradient, (vertices,))

    @classmethod
    def collate(cls, parts: Sequence[Spectra]) -> Spectra:
        """The spectra of a batch, with the same numbers of eigenpairs."""
        parts = _parts("parts", parts, cls)
        return cls(
            torch.cat([part.mass for part in parts]),
            tuple(torch.cat(tensors) for tensors in zip(*(part.bases for part in parts), strict=True)),
            tuple(torch.cat(tensors) for tensors in zip(*(part.eigenvalues for part in parts), strict=True)),
            torch.cat([part.gradient for part in parts]),
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
        return Spectra(change(self.mass), bases, eigenvalues, change(self.gradient), self.sizes)


class Diffusion(Layer):
    """Diffusion of each channel for a learned time, in the eigenbasis of the connection Laplacian of its order
    (docs/surfaces.md). It does not depend on the frames, and hardly on the meshing. It is made of matrix products of
    PyTorch.

    With `s = Phi^H M x`, the result is `Phi f(lambda) s`, where `f = exp(-u) (1 + b u)` with `u = lambda t`, for a time `t` and a band
    `b` of each channel.

    Args:
        type: type of the input, and of the output without gradients.
        times: shortest and longest time at initialisation, for surfaces of unit area. Logarithms are uniform.
        gradients: appends the gradient of each diffused scalar, as a channel of order 1 after the others.

    Shapes:
        x: `[V, input.dimension]`; result: `[V, output.dimension]`.
    """

    def __init__(
        self,
        type: str,
        times: tuple[float, float] = (1e-3, 0.3),
        gradients: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gradients = gradients
        scalars = FeatureType(type).multiplicity(0)
        self._set_types(type, f"{type} + {scalars}x1" if gradients and scalars else type)
        ends = numbers(OperatorError, "times", times, 0)
        low, high = ends if len(ends) == 2 else (0.0, 0.0)
        if not 0 < low <= high:
            raise OperatorError(f"`times` are {ends}, but must be two positive numbers, the shorter first")
        self._orders = [(n, count) for n, count in enumerate(self.input.multiplicities) if count]
        total = sum(self.input.multiplicities)
        start = torch.empty(total, device=device, dtype=dtype).uniform_(math.log(low), math.log(high))
        self.log_time = nn.Parameter(start)
        self.band = nn.Parameter(torch.zeros(total, device=device, dtype=dtype))

    def forward(self, x: Tensor, spectra: Spectra) -> Tensor:
        self._check(x)
        instance(OperatorError, "spectra", spectra, Spectra, "gemcnn.torch.Spectra")
        mass = spectra.mass
        if x.dtype != mass.dtype or x.device != mass.device or x.dtype != self.band.dtype:
            self._refuse(x, mass, self.band)
        if len(spectra.bases) <= self._orders[-1][0]:
            raise OperatorError(f"the spectra have orders below {len(spectra.bases)}, but features are {self.input}")
        if x.shape[0] != spectra.mass.shape[0]:
            raise OperatorError(f"{x.shape[0]} rows of features for {spectra.mass.shape[0]} vertices")
        fields = split_orders(x, self.input)
        results: dict[int, list[Tensor]] = {}
        irrep = 0
        for order, count in self._orders:
            log_time = self.log_time[irrep : irrep + count]
            band = self.band[irrep : irrep + count]
            found = self._diffuse(fields[order], spectra, order, log_time, band)
            for above, field in enumerate(found):
                results.setdefault(order + above, []).append(field)
            irrep += count
        # Gradients of scalars follow the channels of order 1.
        if 1 in results:
            results[1].reverse()
        return join_orders({order: torch.cat(parts, dim=2) for order, parts in results.items()})

    def _diffuse(
        self, fields: Tensor, spectra: Spectra, order: int, log_time: Tensor, band: Tensor
    ) -> list[Tensor]:
        """Fields `[V, parts, channels]` of one order, diffused, and the gradients of scalars if they are wanted."""
        weighted = fields * spectra.mass[:, None, None]
        wanted = self.gradients and order == 0
        results: list[list[Tensor]] = [[], []] if wanted else [[]]
        for mesh, (basis, slope, rows) in enumerate(
            zip(
                *(t.split(spectra.sizes) for t in (spectra.bases[order], spectra.gradient, weighted)),
                strict=True,
            )
        ):
            scaled = spectra.eigenvalues[order][mesh][:, None] * log_time.exp()
            filters = torch.exp(-scaled) * (1 + band * scaled)
            if order == 0:
                filtered = filters * (basis[:, 0].T @ rows[:, 0])
                results[0].append((basis[:, 0] @ filtered)[:, None])
                if wanted:
                    results[1].append(slope @ filtered)
                continue
            real, imaginary = basis.unbind(1)
            x, y = rows.unbind(1)
            a = filters * (real.T @ x + imaginary.T @ y)
            b = filters * (real.T @ y - imaginary.T @ x)
            results[0].append(torch.stack([real @ a - imaginary @ b, imaginary @ a + real @ b], dim=1))
        return [torch.cat(parts) for parts in results]
