#!/usr/bin/env python3
"""DiffusionNet (Sharp, Attaiki, Crane and Ovsjanikov 2022) in PyTorch, trained on a segmentation with its published
settings: 4 blocks of 128 channels, 128 eigenvectors, 16 heat kernel signatures, dropout 0.5, Adam with rate 0.001 halved every
50 epochs, 200 epochs, one mesh a step.

    bench/pytorch/segmentation.py FOLDER [--epochs N] [--seed S] [--operators FOLDER] [--json FILE]

FOLDER has `meshes/*.ply` (binary, with the vertex property `label`), and lists `train.txt` and `validation.txt`. Operators are those
of the publication too: cotangent Laplacian and lumped mass by scipy, gradients by least squares over the neighbours as sparse matrices.
With `--operators` they are kept in files, for the next run; `--epochs 0` only prepares them. After every epoch the accuracy on the
vertices of the validation meshes is printed with the training time so far.
"""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# One thread for each worker process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as solvers
import torch
from torch import Tensor, nn
from torch.nn import functional

TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4", "double": "f8"}
TYPES |= {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"}


def read_ply(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices, triangles and labels of a binary little-endian PLY file."""
    content = path.read_bytes()
    start = content.index(b"end_header\n") + len(b"end_header\n")
    counts, vertex, face, element = {}, [], None, ""
    for words in map(str.split, content[:start].decode().splitlines()):
        if words[:1] == ["format"] and words[1] != "binary_little_endian":
            raise SystemExit(f"{path}: only binary little-endian files are read")
        if words[:1] == ["element"]:
            element = words[1]
            counts[element] = int(words[2])
        if words[:1] == ["property"] and element == "vertex":
            vertex.append((words[2], "<" + TYPES[words[1]]))
        if words[:2] == ["property", "list"] and element == "face":
            face = np.dtype([("count", "<" + TYPES[words[2]]), ("corners", "<" + TYPES[words[3]], 3)])
    rows = np.frombuffer(content, np.dtype(vertex), counts["vertex"], start)
    faces = np.frombuffer(content, face, counts["face"], start + rows.nbytes)
    if (faces["count"] != 3).any():
        raise SystemExit(f"{path}: only triangles are read")
    positions = np.stack([rows["x"], rows["y"], rows["z"]], 1).astype(np.float64)
    return positions, faces["corners"].astype(np.int64), rows["label"].astype(np.int64)


def kept_operators(path: Path, eigenvectors: int, folder: Path | None) -> dict[str, np.ndarray]:
    """`operators`, from a file of the folder if it is there."""
    kept = folder and folder / f"{path.stem}.npz"
    if kept and kept.exists():
        with np.load(kept) as arrays:
            return dict(arrays)
    arrays = operators(path, eigenvectors)
    if kept:
        partial = kept.with_suffix(".part.npz")
        np.savez(partial, **arrays)
        partial.rename(kept)
    return arrays


def operators(path: Path, eigenvectors: int) -> dict[str, np.ndarray]:
    """Everything that a network needs of a mesh. Vertices without faces have no part in the operators, and features 0: their tiny mass
    would give them all the eigenvectors and huge signatures."""
    positions, faces, labels = read_ply(path)
    used, faces = np.unique(faces, return_inverse=True)
    faces = faces.reshape(-1, 3)
    arrays = operators_of(positions[used], faces, eigenvectors)
    for name in ["basis", "features", "mass"]:
        spread = np.zeros((len(positions), *arrays[name].shape[1:]), arrays[name].dtype)
        spread[used] = arrays[name]
        arrays[name] = spread
    for name in ["rows", "columns"]:
        arrays[name] = used[arrays[name]]
    return arrays | {"labels": labels}


def operators_of(x: np.ndarray, faces: np.ndarray, eigenvectors: int) -> dict[str, np.ndarray]:
    """Operators of a mesh whose vertices all have faces."""
    x = x - x.mean(0)
    x /= np.linalg.norm(x, axis=1).max()
    count = len(x)
    corners = x[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    double_area = np.maximum(np.linalg.norm(normals, axis=1), 1e-12)
    mass = np.full(count, 1e-10)
    vertex_normals = np.zeros_like(x)
    weights = sparse.csr_matrix((count, count))
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        np.add.at(mass, faces[:, i], double_area / 6)
        np.add.at(vertex_normals, faces[:, i], normals)
        u, v = corners[:, j] - corners[:, i], corners[:, k] - corners[:, i]
        cotangents = (u * v).sum(1) / double_area / 2
        weights += sparse.coo_matrix((cotangents, (faces[:, j], faces[:, k])), shape=weights.shape)
    weights = weights + weights.T
    laplacian = sparse.diags(np.asarray(weights.sum(1)).ravel()) - weights + 1e-8 * sparse.identity(count)
    values, basis = solvers.eigsh(laplacian.tocsc(), eigenvectors, sparse.diags(mass).tocsc(), sigma=-1e-8)
    values = np.clip(values, 0, None)
    times = np.logspace(-2, 0, 16)
    signatures = (basis**2) @ np.exp(-values[:, None] * times)
    # Gradients: tangent frames, and a least squares fit over the neighbours.
    normal = vertex_normals / np.maximum(np.linalg.norm(vertex_normals, axis=1, keepdims=True), 1e-12)
    helper = np.where(np.abs(normal[:, :1]) < 0.9, [[1.0, 0, 0]], [[0, 1.0, 0]])
    first = helper - (helper * normal).sum(1, keepdims=True) * normal
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normal, first)
    tail, tip = weights.nonzero()
    edge = x[tip] - x[tail]
    plane = np.stack([(edge * first[tail]).sum(1), (edge * second[tail]).sum(1)], 1)
    moments = np.zeros((count, 2, 2))
    np.add.at(moments, tail, plane[:, :, None] * plane[:, None, :])
    fits = np.einsum("eij,ej->ei", np.linalg.inv(moments + 1e-5 * np.eye(2))[tail], plane)
    rows = np.concatenate([tail, tail])
    columns = np.concatenate([tip, tail])
    return {
        "mass": mass.astype(np.float32),
        "values": values.astype(np.float32),
        "basis": basis.astype(np.float32),
        "features": signatures.astype(np.float32),
        "rows": rows,
        "columns": columns,
        "gradient": np.concatenate([fits, -fits]).astype(np.float32),
    }


class Mesh:
    """The operators of a mesh on a device."""

    def __init__(self, arrays: dict[str, np.ndarray], classes: np.ndarray, device: torch.device):
        put = lambda name: torch.from_numpy(arrays[name]).to(device)
        known = np.isin(arrays["labels"], classes)
        labels = np.where(known, np.searchsorted(classes, arrays["labels"]), -1)
        self.labels = torch.from_numpy(labels).to(device)
        self.mass, self.values, self.basis, self.features = put("mass")[:, None], put("values")[:, None], put("basis"), put("features")
        places = torch.stack([put("rows"), put("columns")])
        size = (len(labels), len(labels))
        matrices = [torch.sparse_coo_tensor(places, part, size).coalesce() for part in put("gradient").unbind(1)]
        self.gradients = [matrix.to_sparse_csr() for matrix in matrices]
        self.transposed = [matrix.t().to_sparse_csr() for matrix in matrices]


class SparseProduct(torch.autograd.Function):
    """A sparse matrix times dense columns, with its transpose at hand."""

    @staticmethod
    def forward(context, matrix, transposed, x):
        context.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(context, gradient):
        return None, None, context.transposed @ gradient


class Block(nn.Module):
    def __init__(self, channels: int, dropout: float):
        super().__init__()
        self.time = nn.Parameter(torch.zeros(channels))
        self.real = nn.Linear(channels, channels, bias=False)
        self.imaginary = nn.Linear(channels, channels, bias=False)
        layers = [nn.Linear(3 * channels, channels), nn.ReLU()]
        for _ in range(2):
            layers += [nn.Dropout(dropout), nn.Linear(channels, channels), nn.ReLU()]
        self.perceptron = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor, mesh: Mesh) -> Tensor:
        with torch.no_grad():
            self.time.clamp_(min=1e-8)
        spectrum = mesh.basis.T @ (x * mesh.mass)
        diffused = mesh.basis @ (torch.exp(-mesh.values * self.time) * spectrum)
        gx, gy = (SparseProduct.apply(m, t, diffused) for m, t in zip(mesh.gradients, mesh.transposed))
        real, imaginary = self.real(gx) - self.imaginary(gy), self.real(gy) + self.imaginary(gx)
        invariants = torch.tanh(gx * real + gy * imaginary)
        return x + self.perceptron(torch.cat([x, diffused, invariants], 1))


class DiffusionNet(nn.Module):
    def __init__(self, inputs: int, classes: int, channels: int = 128, blocks: int = 4, dropout: float = 0.5):
        super().__init__()
        self.first = nn.Linear(inputs, channels)
        self.blocks = nn.ModuleList(Block(channels, dropout) for _ in range(blocks))
        self.last = nn.Linear(channels, classes)

    def forward(self, mesh: Mesh) -> Tensor:
        x = self.first(mesh.features)
        for block in self.blocks:
            x = block(x, mesh)
        return self.last(x)


def accuracy(network: DiffusionNet, meshes: list[Mesh]) -> float:
    network.eval()
    right = known = 0
    with torch.no_grad():
        for mesh in meshes:
            is_known = mesh.labels >= 0
            right += int(((network(mesh).argmax(1) == mesh.labels) & is_known).sum())
            known += int(is_known.sum())
    return right / known


def main():
    options = argparse.ArgumentParser(description="DiffusionNet on a segmentation")
    options.add_argument("folder", type=Path)
    options.add_argument("--epochs", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--workers", type=int, default=None)
    options.add_argument("--operators", type=Path, help="folder that keeps the operators")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(chosen.seed)
    torch.set_float32_matmul_precision("high")
    parts, names = {}, {}
    for part in ["train", "validation"]:
        names[part] = (chosen.folder / f"{part}.txt").read_text().split()
    files = [chosen.folder / "meshes" / Path(name).with_suffix(".ply") for part in names.values() for name in part]
    start = time.time()
    if chosen.operators:
        chosen.operators.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(chosen.workers) as pool:
        arrays = list(pool.map(kept_operators, files, [128] * len(files), [chosen.operators] * len(files)))
    count = len(names["train"])
    classes = np.unique(np.concatenate([mesh["labels"] for mesh in arrays[:count]]))
    classes = classes[classes >= 0]
    meshes = [Mesh(mesh, classes, device) for mesh in arrays]
    parts["train"], parts["validation"] = meshes[:count], meshes[count:]
    print(f"operators of {len(meshes)} meshes in {time.time() - start:.1f} s, {len(classes)} classes", flush=True)
    network = DiffusionNet(16, len(classes)).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 50, 0.5)
    seconds, curve = 0.0, []
    for epoch in range(1, chosen.epochs + 1):
        network.train()
        start = time.time()
        for index in torch.randperm(count).tolist():
            mesh = parts["train"][index]
            optimiser.zero_grad(set_to_none=True)
            functional.cross_entropy(network(mesh), mesh.labels, ignore_index=-1).backward()
            optimiser.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds += time.time() - start
        schedule.step()
        reached = accuracy(network, parts["validation"])
        curve.append({"epoch": epoch, "seconds": seconds, "accuracy": reached})
        if chosen.json:
            chosen.json.write_text(json.dumps(curve))
        if epoch % 5 == 0 or epoch == chosen.epochs:
            print(f"epoch {epoch}: validation {100 * reached:.2f} %, {seconds:.1f} s of training", flush=True)


if __name__ == "__main__":
    main()
