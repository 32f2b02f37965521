"""Gauge geometry of a triangle mesh: neighbours, normals, frames, angles and transport.

All in float64 on the CPU. Meshes are sound: no vertex without neighbours, no degenerate face, no edge along a
normal, no two neighbours with opposite normals.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Geometry(NamedTuple):
    """Directed edges p <- q grouped by p, each group ascending in q."""

    offsets: Tensor  # [V + 1] int64
    neighbours: Tensor  # [E] int64, q
    theta: Tensor  # [E], direction of q in the frame of p
    g: Tensor  # [E], transport from q to p
    r: Tensor  # [E], |q - p|


def geometry(vertices: Tensor, faces: Tensor, corner_angles: bool = False, angles=None) -> Geometry:
    """From vertices [V, 3] and faces [F, 3]. `angles` is `edge_angles` or a compiled version of it."""
    offsets, receivers, neighbours = directed_edges(faces, len(vertices))
    normals = vertex_normals(vertices, faces, corner_angles)
    axes = first_axes(vertices, normals, neighbours[offsets[:-1]])
    theta, g, r = (angles or edge_angles)(vertices, normals, axes, receivers, neighbours)
    return Geometry(offsets, neighbours, theta, g, r)


def directed_edges(faces: Tensor, vertices: int) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets, receivers p and neighbours q: every undirected edge gives p <- q and q <- p, once each."""
    heads = faces.roll(-1, 1)
    low, high = torch.minimum(faces, heads).flatten(), torch.maximum(faces, heads).flatten()
    # One number per edge, so that plain sorting groups edges: the lower vertex above, the higher below.
    edge = ((low << 32) | high).sort().values.unique_consecutive()
    low, high = edge >> 32, edge & 0xFFFFFFFF
    edge = torch.cat([edge, (high << 32) | low]).sort().values
    receivers, neighbours = edge >> 32, edge & 0xFFFFFFFF
    offsets = torch.zeros(vertices + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(receivers, minlength=vertices), 0, out=offsets[1:])
    return offsets, receivers, neighbours


def vertex_normals(vertices: Tensor, faces: Tensor, corner_angles: bool) -> Tensor:
    """Unit normals: of the faces around a vertex weighted by area, or by their corner angle."""
    first, second, third = (vertices[corner] for corner in faces.unbind(1))
    cross = torch.linalg.cross(second - first, third - first)  # its length is twice the area
    if corner_angles:
        cross = torch.nn.functional.normalize(cross, dim=1)
        sides = torch.stack([second - first, third - second, first - third], 1)
        back = -sides.roll(1, 1)
        sine = torch.linalg.cross(sides, back).norm(dim=2)
        weights = torch.atan2(sine, (sides * back).sum(2))
    normals = torch.zeros_like(vertices)
    for corner in range(faces.shape[1]):
        weighted = cross * weights[:, corner, None] if corner_angles else cross
        normals.index_add_(0, faces[:, corner], weighted)
    return torch.nn.functional.normalize(normals, dim=1)


def first_axes(vertices: Tensor, normals: Tensor, references: Tensor) -> Tensor:
    """First axis of each frame: along the tangent part of the direction to a reference neighbour."""
    direction = vertices[references] - vertices
    tangent = direction - (normals * direction).sum(1, keepdim=True) * normals
    return torch.nn.functional.normalize(tangent, dim=1)


def edge_angles(
    vertices: Tensor, normals: Tensor, axes: Tensor, receivers: Tensor, neighbours: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """theta, g and r of each edge.

    R, the smallest rotation that takes n_q to n_p, maps a vector v in the tangent plane of q to
    v - (n_p . v) / (1 + n_p . n_q) * (n_p + n_q).
    """

    def dot(a, b):
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]

    def at(field, index):
        row = field[index]
        return row[:, 0], row[:, 1], row[:, 2]

    p, q = at(vertices, receivers), at(vertices, neighbours)
    normal_p, normal_q = at(normals, receivers), at(normals, neighbours)
    first_p, first_q = at(axes, receivers), at(axes, neighbours)
    (n0, n1, n2), (e0, e1, e2) = normal_p, first_p
    second_p = n1 * e2 - n2 * e1, n2 * e0 - n0 * e2, n0 * e1 - n1 * e0
    step = q[0] - p[0], q[1] - p[1], q[2] - p[2]
    theta = torch.atan2(dot(second_p, step), dot(first_p, step))
    lean = dot(normal_p, first_q) / (1 + dot(normal_p, normal_q))
    sine = dot(second_p, first_q) - lean * dot(second_p, normal_q)
    cosine = dot(first_p, first_q) - lean * dot(first_p, normal_q)
    return theta, torch.atan2(sine, cosine), dot(step, step).sqrt()


def wrapped(angle: Tensor) -> Tensor:
    """The same angle from -pi to pi."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi


def differences(ours: Geometry, other: Geometry) -> dict[str, float]:
    """Largest differences of two geometries of one mesh whose frames may differ: of theta and g over pi, after the
    gauge change by a_p that takes the frames of one to those of the other (theta -> theta - a_p,
    g -> g - a_p + a_q); of r relative. `other` may list the neighbours of a vertex in any order."""
    degrees = other.offsets.diff()
    receivers = torch.repeat_interleave(torch.arange(len(degrees)), degrees)
    order = torch.argsort((receivers << 32) | other.neighbours)
    same = torch.equal(ours.offsets, other.offsets)
    if not same or not torch.equal(ours.neighbours, other.neighbours[order]):
        return {"neighbours": torch.inf}
    theta, g, r = other.theta[order], other.g[order], other.r[order]
    change = (ours.theta - theta)[ours.offsets[:-1]]
    change_p, change_q = change[receivers], change[ours.neighbours]
    return {
        "theta": wrapped(ours.theta - change_p - theta).abs().max().item() / torch.pi,
        "g": wrapped(ours.g - change_p + change_q - g).abs().max().item() / torch.pi,
        "r": ((ours.r - r).abs().max() / r.max()).item(),
    }
