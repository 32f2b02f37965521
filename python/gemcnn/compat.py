"""The names and signatures of the published implementation of the method, over the kernels of gemcnn.

A script that imports `gem_cnn.nn` and `gem_cnn.transform` runs with these imports changed:

    from gemcnn.compat import GemConv, GemResNetBlock, RegularNonlinearity
    from gemcnn.compat import GemPrecomp, SimpleGeometry, compute_normals_edges_from_mesh

Features are `[V, channels, 2 order + 1]`; an edge `edge_index[:, e] = (p, q)` sends from `q` to `p`; messages are averaged.
State dictionaries have the same names and shapes. Neither PyTorch Geometric nor trimesh is needed: data are any objects with
the named attributes. What differs is listed in docs/python.md.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from . import _gemcnn
from .geometry import GaugeGraph
from .mesh import Mesh
from .torch.graph import Graph
from .torch.ops import operators
from .torch.types import FeatureType

__all__ = [
    "GemConv",
    "GemPrecomp",
    "GemResNetBlock",
    "MatrixFeaturesTransform",
    "RegularNonlinearity",
    "SimpleGeometry",
    "compute_normals_edges_from_mesh",
]


class _Messages(NamedTuple):
    """Edges as the kernels take them."""

    graph: Graph
    """Neighbours, with the factor of each: one over the number of messages, and 0 for an edge that is only there because its
    reverse is."""
    own: Tensor
    """Factor of the message of each vertex to itself, `[V, 1]`; 0 without one."""


def _messages(edge_index: Tensor, precomp: Tensor, vertices: int) -> _Messages:
    """The edges in compressed rows, each with its reverse. They are kept with `precomp`, which layers share."""
    kept = getattr(precomp, "_gemcnn", None)
    if kept is not None and kept[0] is edge_index and kept[1] == vertices:
        return cast(_Messages, kept[2])
    target, source = edge_index
    counts = torch.bincount(target, minlength=vertices).clamp(min=1).to(precomp.dtype)
    is_self = precomp[:, 2] != 0
    loops = torch.bincount(target[is_self], minlength=vertices).to(precomp.dtype)
    edges = torch.nonzero(~is_self)[:, 0]
    target, source = target[edges], source[edges]
    # Edges whose reverse is missing get one that counts nothing. Equal edges are numbered, so that each finds another.
    key, back = target * vertices + source, source * vertices + target
    forth = _numbered(key)
    lacking = ~torch.isin(forth, _numbered(back))
    target, source = torch.cat([target, source[lacking]]), torch.cat([source, target[lacking]])
    theirs = torch.cat([edges, edges[lacking]])
    factor = 1 / counts[target]
    factor[len(edges) :] = 0
    order = torch.argsort(_numbered(target * vertices + source))
    target, source, theirs, factor = target[order], source[order], theirs[order], factor[order]
    # The rank of a reversed edge is its place.
    reverse = torch.argsort(torch.argsort(_numbered(source * vertices + target)))
    before, after = precomp[theirs, 0], precomp[theirs, 1]
    phases = torch.stack([after.cos(), after.sin(), before.cos(), before.sin()], dim=1)
    # The place between the rings from their weights.
    rings = precomp.shape[1] - 3
    places = torch.arange(rings, dtype=precomp.dtype, device=precomp.device) / max(rings - 1, 1)
    degrees = torch.bincount(target, minlength=vertices)
    offsets = nn.functional.pad(degrees.cumsum(0), (1, 0))
    graph = Graph.from_parts(
        offsets.int(),
        source.int(),
        reverse.int(),
        phases,
        precomp[theirs, 3:] @ places,
        factor[:, None],
        torch.tensor([0, vertices], dtype=torch.int32, device=precomp.device),
    )
    messages = _Messages(graph, (loops / counts)[:, None])
    precomp._gemcnn = (edge_index, vertices, messages)  # type: ignore[attr-defined]
    return messages


def _numbered(key: Tensor) -> Tensor:
    """Distinct keys in the same order: equal ones are told apart by how many came before."""
    order = torch.argsort(key, stable=True)
    ranked = key[order]
    place = torch.arange(len(key), device=key.device)
    starts = torch.searchsorted(ranked, ranked)
    again = torch.empty_like(place)
    again[order] = place - starts
    return key * (len(key) + 1) + again


class _SelfWeight(nn.Module):
    """Weights of the message of a vertex to itself, `[basis, in, out]`."""

    kernels: Tensor

    def __init__(self, in_channels: int, out_channels: int, in_order: int, out_order: int) -> None:
        super().__init__()
        bases = 2 * min(in_order, out_order) + 1
        kernels = torch.zeros(bases, 2 * in_order + 1, 2 * out_order + 1)
        kernels[0, 0, 0] = 1
        for basis in range(1, bases, 2):
            kernels[basis, basis, basis] = kernels[basis, basis + 1, basis + 1] = 1
            kernels[basis + 1, basis, basis + 1] = 1
            kernels[basis + 1, basis + 1, basis] = -1
        self.register_buffer("kernels", kernels)
        self.weight = nn.Parameter(torch.empty(bases, in_channels, out_channels))
        fans = in_channels * (2 * in_order + 1) + out_channels * (2 * out_order + 1)
        nn.init.uniform_(self.weight, -math.sqrt(6 / fans), math.sqrt(6 / fans))

    def forward(self) -> Tensor:
        """In the layout of the kernels: order by order, `[out, in]` of each basis; the second of an order is negative."""
        signs = self.weight.new_ones(len(self.weight))
        signs[2::2] = -1
        return (self.weight * signs[:, None, None]).transpose(1, 2).reshape(-1)


class GemConv(nn.Module):
    """Gauge equivariant convolution: the mean of the messages of all edges.

    Args:
        in_channels, out_channels: channels of each order.
        in_order, out_order: highest orders.
        n_rings: number of radial rings.
        band_limit, batch: without effect, as in the published implementation.
    """

    bias_mask: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        in_order: int,
        out_order: int,
        n_rings: int,
        band_limit: int | None = None,
        batch: int | None = None,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.in_order, self.out_order, self.n_rings = in_order, out_order, n_rings
        components = (2 * in_order + 1, 2 * out_order + 1)
        shape = (n_rings, in_channels, components[0], out_channels, components[1])
        self.weight = nn.Parameter(torch.empty(shape))
        self.self_weight = _SelfWeight(in_channels, out_channels, in_order, out_order)
        self.bias = nn.Parameter(torch.zeros(out_channels, components[1]))
        self.register_buffer("bias_mask", torch.eye(components[1])[0])
        self._input = FeatureType.uniform(in_channels, in_order)
        self._with_one = FeatureType(f"{self._input} + 1x0")
        self._output = FeatureType.uniform(out_channels, out_order)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform weights by their numbers of inputs and outputs, and no bias."""
        fans = self.weight[0, :, :, 0, 0].numel() + self.weight[0, 0, 0].numel()
        nn.init.uniform_(self.weight, -math.sqrt(6 / fans), math.sqrt(6 / fans))
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, precomp: Tensor, connection: Tensor) -> Tensor:
        """`[V, in_channels, 2 in_order + 1]` to `[V, out_channels, 2 out_order + 1]`.

        Args:
            x: features.
            edge_index: `[2, E]`.
            precomp: `[E, 3 + n_rings]`, from `GemPrecomp`.
            connection: unused, as in the published implementation; `precomp` holds it.
        """
        vertices, channels = x.shape[0], self.in_channels
        messages = _messages(edge_index, precomp, vertices)
        rows = x.transpose(1, 2).reshape(vertices, -1)
        # The bias is a kernel on a constant scalar, which comes after the other scalars.
        ones = rows.new_ones(vertices, 1)
        extended = torch.cat([rows[:, :channels], ones, rows[:, channels:]], dim=1)
        kernel = self.weight.permute(0, 4, 3, 2, 1).reshape(self.n_rings, self._output.dimension, -1)
        bias = self.bias.T.reshape(1, -1, 1).expand(self.n_rings, -1, 1)
        kernel = torch.cat([kernel[..., :channels], bias, kernel[..., channels:]], dim=2)
        y = operators.gauge_conv(
            extended,
            kernel,
            None,
            None,
            *messages.graph._for_operators(),
            str(self._with_one),
            str(self._output),
            1.0,
            "mean",
        )
        own = operators.linear(
            rows, self.self_weight(), self.bias[:, 0], str(self._input), str(self._output)
        )
        y = torch.addcmul(y, own, messages.own)
        return cast(Tensor, y).view(vertices, -1, self.out_channels).transpose(1, 2)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, in_order={self.in_order}, "
            f"out_order={self.out_order}, n_rings={self.n_rings}"
        )


class RegularNonlinearity(nn.Module):
    """A function of samples around the circle. `nn.ReLU` runs in one kernel, with exact waves; other functions run on
    samples, and may be modules such as batch normalisation.

    Args:
        order: highest order.
        num_samples: number of samples, odd.
        fn: takes `[V, channels, num_samples]`.
    """

    dft: Tensor

    def __init__(self, order: int, num_samples: int, fn: Any) -> None:
        super().__init__()
        if num_samples % 2 != 1:
            raise ValueError(f"num_samples is {num_samples}, but must be odd")
        self.order, self.num_samples, self.fn = order, num_samples, fn
        angles = 2 * np.pi * np.arange(num_samples) / num_samples
        waves = [np.full(num_samples, np.sqrt(0.5))]
        # Without an order, all that the samples hold are in the buffer, as in the published implementation.
        for n in range(1, (order or num_samples // 2) + 1):
            waves += [np.cos(n * angles), np.sin(n * angles)]
        dft = np.sqrt(2 / num_samples) * np.stack(waves)
        self.register_buffer("dft", torch.tensor(dft, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """`[V, channels, 2 order + 1]` to the same."""
        vertices, channels, components = x.shape
        if type(self.fn) is not nn.ReLU:
            waves = self.dft[:components].to(x.dtype)
            return torch.matmul(self.fn(torch.matmul(x, waves)), waves.T)
        # On features whose orders above 0 are multiplied by the square root of 2, the kernel computes the same.
        scale = x.new_full((components, 1), math.sqrt(2))
        scale[0] = 1
        kind = FeatureType.uniform(channels, components // 2)
        rows = (x.transpose(1, 2) * scale).reshape(vertices, -1)
        y = operators.regular(rows, str(kind), components // 2, self.num_samples, "relu")
        return cast(Tensor, (y.view(vertices, components, channels) / scale).transpose(1, 2))

    def extra_repr(self) -> str:
        return f"order={self.order}, num_samples={self.num_samples}"


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


def compute_normals_edges_from_mesh(data: Any) -> Any:
    """Adds `normal` `[V, 3]`, with faces weighted by their angles, and `edge_index` `[2, 3 F]`, the sides of all faces, to data
    with `pos` `[V, 3]` and `face` `[3, F]`."""
    mesh = Mesh(data.pos.detach().cpu().numpy(), data.face.cpu().numpy().T)
    frames = mesh.gauge_graph(normals="corner_angle", estimate_normals=True).frames
    data.normal = torch.from_numpy(frames[:, 2].copy()).to(data.pos)
    corners = data.face.T
    data.edge_index = torch.stack([corners, corners.roll(-1, 1)]).reshape(2, -1).long()
    return data


class SimpleGeometry:
    """Adds `edge_coords` `[E, 2]` (length and angle of each edge), `connection` `[E]`, `weight` `[E]` and `frame` `[V, 3, 3]`
    to data with `pos`, `normal` and `edge_index`.

    Args:
        gauge_def: `first_neighbour`, `random` or `x`: the direction of the first axis of each frame.
    """

    def __init__(self, gauge_def: str = "first_neighbour") -> None:
        if gauge_def not in ("first_neighbour", "random", "x"):
            raise ValueError(f"gauge_def is `{gauge_def}`, but must be first_neighbour, random or x")
        self.gauge_def = gauge_def

    def _directions(self, data: Any) -> Tensor:
        pos = cast(Tensor, data.pos)
        if self.gauge_def == "random":
            return torch.randn_like(pos)
        if self.gauge_def == "x":
            return pos.new_tensor([1.0, 0.0, 0.0]).expand_as(pos)
        target, source = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
        first = torch.full((len(pos),), len(target), device=pos.device)
        first.scatter_reduce_(0, target, torch.arange(len(target), device=pos.device), "amin")
        return pos[source[first]] - pos

    def __call__(self, data: Any) -> Any:
        pos, (target, source) = data.pos, data.edge_index
        normal = nn.functional.normalize(data.normal, dim=1)
        direction = self._directions(data)
        tangent = direction - (direction * normal).sum(1, keepdim=True) * normal
        first = nn.functional.normalize(tangent, dim=1)
        second = torch.linalg.cross(normal, first)
        edge = pos[source] - pos[target]

        def angle(vector: Tensor) -> Tensor:
            """In the frame of the target."""
            return torch.atan2((second[target] * vector).sum(1), (first[target] * vector).sum(1))

        data.edge_coords = torch.stack([edge.norm(dim=1), angle(edge)], dim=1)
        # The least rotation of one normal to the other; none between opposite ones.
        to, at, axis = normal[target], normal[source], first[source]
        total = 1 + (to * at).sum(1, keepdim=True)
        turned = axis - (to * axis).sum(1, keepdim=True) / total.clamp(min=1e-12) * (to + at)
        data.connection = angle(torch.where(total > 1e-12, turned, axis))
        data.weight = 1.0 / torch.bincount(target, minlength=len(pos))[target]
        data.frame = torch.stack([first, second, normal], dim=1)
        return data


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
        largest = radius.max() if self.max_r is None else self.max_r
        place = radius / largest * (self.n_rings - 1)
        rings = torch.arange(self.n_rings, dtype=radius.dtype, device=radius.device)
        hats = (1 - (place[:, None].clamp(max=self.n_rings - 1) - rings).abs()).clamp(min=0)
        own = (radius == 0).to(radius.dtype)[:, None]
        angles = torch.stack([data.connection - theta, theta], dim=1)
        data.precomp = torch.cat([angles, own, hats * (1 - own)], dim=1)
        return data

    def __repr__(self) -> str:
        return f"GemPrecomp(n_rings={self.n_rings}, max_order={self.max_order}, max_r={self.max_r})"


class MatrixFeaturesTransform:
    """Adds `matrix_features` `[V, 7, 5]` to data with `pos`, `edge_index` and `frame`. Edges of the first convolution are chosen
    by `edge_mask` if there is one; edges must exist in both directions."""

    def __call__(self, data: Any) -> Any:
        edges = data.edge_index
        if getattr(data, "edge_mask", None) is not None:
            edges = edges[:, (data.edge_mask & 2) != 0]
        target, source = edges.cpu().numpy()
        vertices = len(data.pos)
        loops = np.bincount(target[target == source], minlength=vertices)
        if loops.min(initial=1) != loops.max(initial=0):
            raise ValueError("either all vertices or none must have an edge to themselves")
        others = target != source
        order = np.lexsort((source[others], target[others]))
        target, source = target[others][order], source[others][order]
        offsets = np.concatenate([[0], np.bincount(target, minlength=vertices).cumsum()])
        pos = data.pos.detach().cpu().double().numpy()
        frame = data.frame.cpu().double().numpy()
        edge = pos[source] - pos[target]
        x, y = np.einsum("eik,ek->ie", frame[target, :2], edge)
        graph = GaugeGraph(
            offsets, source, np.arctan2(y, x), np.zeros(len(edge)), np.linalg.norm(edge, axis=1), frame
        )
        mesh = Mesh(pos, np.zeros((0, 3), dtype=np.int64))
        rows = _gemcnn.matrix_features(mesh._native, graph._native, False, bool(loops.max(initial=0)))
        features = torch.from_numpy(rows.reshape(vertices, 5, 7)).transpose(1, 2)
        data.matrix_features = features.to(data.pos)
        return data
