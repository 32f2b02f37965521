"""DiffusionNet (Sharp, Attaiki, Crane and Ovsjanikov 2022), evaluated as in the published code: dense products with the
eigenbasis of each mesh, and linear layers. Features are [mesh, vertex, channel]; all meshes have the same number of vertices.

It departs from the published code where the network of the case files does: times are exponentials of parameters,
filters have a band, and gradients are products with the gradients of the eigenvectors, which the published code takes from
a sparse matrix of the mesh.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Spectra(nn.Module):
    """The eigenbases of all meshes as buffers: CUDA graphs read these in place."""

    def __init__(self, tensors: dict[str, Tensor], meshes: int):
        super().__init__()
        gradient_x, gradient_y = tensors["gradient"].unbind(1)
        parts = {
            "mass": tensors["mass"][:, None],  # [mesh, vertex, 1]
            "values": tensors["eigenvalues"][:, None],  # [mesh, eigenvector, 1]
            "basis": tensors["basis"],  # [mesh, vertex, eigenvector]
            "gradient_x": gradient_x,
            "gradient_y": gradient_y,
        }
        for name, part in parts.items():
            self.register_buffer(name, part.repeat(meshes, 1, 1), persistent=False)


class Diffusion(nn.Module):
    """f(lambda) s with s = basis^T M x and f(lambda) = exp(-u) (1 + band u), u = lambda t: the diffused spectrum."""

    def __init__(self, channels: int):
        super().__init__()
        self.log_time = nn.Parameter(torch.zeros(channels))
        self.band = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, spectra: Spectra) -> Tensor:
        spectrum = torch.bmm(spectra.basis.transpose(1, 2), x * spectra.mass)
        u = spectra.values * torch.exp(self.log_time)
        return torch.exp(-u) * (1 + self.band * u) * spectrum


class Block(nn.Module):
    """x + perceptron(x, d, tanh(<g, A g>)) with diffused features d, their gradients g, and a complex matrix A."""

    def __init__(self, channels: int, dropout: float):
        super().__init__()
        self.diffusion = Diffusion(channels)
        self.real = nn.Linear(channels, channels, bias=False)
        self.imaginary = nn.Linear(channels, channels, bias=False)
        self.first = nn.Linear(3 * channels, channels)
        self.hidden = nn.Linear(channels, channels)
        self.update = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, spectra: Spectra) -> Tensor:
        x = rows.view(len(spectra.mass), -1, rows.shape[1])
        spectrum = self.diffusion(x, spectra)
        diffused = torch.bmm(spectra.basis, spectrum)
        gx, gy = torch.bmm(spectra.gradient_x, spectrum), torch.bmm(spectra.gradient_y, spectrum)
        # The imaginary part has the sign of the case files.
        mapped_x = self.real(gx) + self.imaginary(gy)
        mapped_y = self.real(gy) - self.imaginary(gx)
        products = torch.tanh(gx * mapped_x + gy * mapped_y)
        h = functional.relu(self.first(torch.cat([x, diffused, products], 2)))
        h = functional.relu(self.hidden(self.dropout(h)))
        return (x + self.update(self.dropout(h))).view_as(rows)


# The case files hold A as one parameter and the first layer of the perceptron as two.
A, SCALARS, INVARIANTS = "product.weight", "scalars.weight", "invariants.weight"
REAL, IMAGINARY, FIRST = "real.weight", "imaginary.weight", "first.weight"
BIASES = "scalars.bias", "first.bias"


def from_stored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters or gradients of the case files as those of the blocks; others stay."""
    result = dict(tensors)
    for block in prefixes(tensors, A):
        invariants = result.pop(block + INVARIANTS)
        scalars = result.pop(block + SCALARS).view(len(invariants), -1)
        result[block + FIRST] = torch.cat([scalars, invariants], 1)
        result[block + REAL], result[block + IMAGINARY] = result.pop(block + A).view(2, *invariants.shape)
        result[block + BIASES[1]] = result.pop(block + BIASES[0])
    return result


def to_stored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `from_stored`."""
    result = dict(tensors)
    for block in prefixes(tensors, REAL):
        real, imaginary, first = (result.pop(block + name) for name in (REAL, IMAGINARY, FIRST))
        result[block + A] = torch.stack([real, imaginary])
        result[block + SCALARS], result[block + INVARIANTS] = first.split([2 * len(first), len(first)], 1)
        result[block + BIASES[0]] = result.pop(block + BIASES[1])
    return result


def prefixes(names, suffix: str) -> list[str]:
    return [name.removesuffix(suffix) for name in names if name.endswith("." + suffix)]
