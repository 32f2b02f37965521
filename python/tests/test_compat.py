"""The names of the published implementation, against its numbers (fixtures/golden)."""

import json
import struct
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gemcnn import compat  # noqa: E402

GOLDEN = Path(__file__).resolve().parents[2] / "fixtures" / "golden"
MESHES = ["mesh_icosahedron", "mesh_icosahedron_deformed", "mesh_irregular200", "mesh_grid6x7_open"]


def golden(name):
    """Tensors of a safetensors file, in float64 or int64."""
    content = (GOLDEN / f"{name}.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for key, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = {"F64": np.float64, "I32": np.int32, "F32": np.float32}[entry["dtype"]]
        array = np.frombuffer(content[start:end], dtype=kind).reshape(entry["shape"])
        wide = np.int64 if kind is np.int32 else np.float64
        found[key] = torch.from_numpy(array.astype(wide))
    return found


def close(found, expected, tolerance=1e-11):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance


def data_of(numbers, edges):
    coordinates = torch.stack([numbers[f"{edges}.r"], numbers[f"{edges}.theta"]], dim=1)
    return SimpleNamespace(
        edge_index=numbers[f"{edges}.edge_index"], edge_coords=coordinates, connection=numbers[f"{edges}.g"]
    )


@pytest.mark.parametrize("mesh", MESHES)
def test_geometry(mesh):
    numbers = golden(mesh)
    data = SimpleNamespace(pos=numbers["vertices"], face=numbers["faces"].T)
    compat.compute_normals_edges_from_mesh(data)
    close(data.normal, numbers["normals"])
    assert torch.equal(data.edge_index, numbers["edges_A.edge_index"])
    compat.SimpleGeometry()(data)
    close(data.edge_coords[:, 0], numbers["edges_A.r"])
    for angle, name in [(data.edge_coords[:, 1], "theta"), (data.connection, "g")]:
        assert torch.cos(angle - numbers[f"edges_A.{name}"]).min() > 1 - 1e-12
    close(data.frame, numbers["frames"])
    for rings in (1, 2):
        found = compat.GemPrecomp(rings)(data_of(numbers, "edges_B")).precomp[:, 2:]
        close(found, numbers[f"edges_B.radial_r{rings}"])


# `edges_A` of the open mesh has edges at the boundary in one direction only.
@pytest.mark.parametrize("edges", ["edges_A", "edges_B"])
@pytest.mark.parametrize("mesh", MESHES)
def test_convolutions_and_all_gradients(mesh, edges):
    numbers = golden(mesh)
    for rings in (1, 2):
        data = compat.GemPrecomp(rings)(data_of(numbers, edges))
        conv = compat.GemConv(4, 5, 2, 2, rings).double()
        state = {
            "weight": numbers["weight"][:rings],
            "self_weight.weight": numbers["self_weight"],
            "bias": numbers["bias"],
        }
        missing, unexpected = conv.load_state_dict(state, strict=False)
        assert set(missing) == {"self_weight.kernels", "bias_mask"} and not unexpected
        x = numbers["x"].clone().requires_grad_()
        y = conv(x, data.edge_index, data.precomp, data.connection)
        (y * numbers["c"]).sum().backward()
        for name, found in [
            ("y", y.detach()),
            ("dx", x.grad),
            ("dweight", conv.weight.grad),
            ("dself_weight", conv.self_weight.weight.grad),
            ("dbias", conv.bias.grad),
        ]:
            close(found, numbers[f"{edges}.conv_r{rings}.{name}"])


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("block, outputs, order", [("4to4", 4, 2), ("4to6", 6, 2), ("4to6_last0", 6, 0)])
def test_blocks(mesh, block, outputs, order):
    numbers = golden(mesh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer = compat.GemResNetBlock(4, outputs, 2, order, n_rings=2, num_samples=7).double()
    assert len(caught) == (1 if outputs != 4 else 0)
    prefix = f"block_{block}.param."
    state = {key[len(prefix) :]: value for key, value in numbers.items() if key.startswith(prefix)}
    missing, unexpected = layer.load_state_dict(state, strict=False)
    assert not unexpected and not [name for name in missing if "kernels" not in name and "mask" not in name and "dft" not in name]
    data = compat.GemPrecomp(2)(data_of(numbers, "edges_B"))
    y = layer(numbers["x"], data.edge_index, data.precomp, data.connection)
    close(y.detach(), numbers[f"block_{block}.y"])


def test_nonlinearity():
    numbers = golden("regular_nonlinearity")
    for samples in (5, 7, 101):
        for function, tolerance in [(torch.nn.ReLU(), 1e-12), (torch.relu, 1e-6)]:
            layer = compat.RegularNonlinearity(2, samples, function)
            close(layer.dft.double(), numbers[f"n{samples}.dft"], 1e-7)
            x = numbers["x"].clone().requires_grad_()
            y = layer(x)
            (y * numbers["c"]).sum().backward()
            close(y.detach(), numbers[f"n{samples}.y"], tolerance)
            close(x.grad, numbers[f"n{samples}.dx"], tolerance)


def test_matrix_features():
    numbers = golden("pool_irregular200")
    shape = golden("mesh_irregular200")
    data = SimpleNamespace(
        pos=shape["vertices"], edge_index=numbers["edge_index"], edge_mask=numbers["edge_mask"], frame=numbers["frames"]
    )
    close(compat.MatrixFeaturesTransform()(data).matrix_features, numbers["matrix_features"], 1e-9)


def test_messages_in_any_order_and_number():
    """Against the formula, on random edges: equal ones, one direction only, several loops, vertices without any."""
    torch.manual_seed(0)
    vertices, count = 9, 60
    edges = torch.randint(0, 8, (2, count))
    others = edges[0] != edges[1]
    radius, theta, turn = (others * torch.rand(count, dtype=torch.float64) for _ in range(3))
    data = SimpleNamespace(
        edge_index=edges, edge_coords=torch.stack([radius, theta], dim=1), connection=turn
    )
    compat.GemPrecomp(3, max_r=1.0)(data)
    conv = compat.GemConv(2, 3, 1, 2, 3).double()
    torch.nn.init.normal_(conv.bias)
    x = torch.randn(vertices, 2, 3, dtype=torch.float64)
    found = conv(x, edges, data.precomp, data.connection)

    def rotate(rows, angle):
        result = rows.clone()
        for n in range(1, rows.shape[2] // 2 + 1):
            a, b = rows[:, :, 2 * n - 1], rows[:, :, 2 * n]
            c, s = torch.cos(n * angle)[:, None], torch.sin(n * angle)[:, None]
            result[:, :, 2 * n - 1], result[:, :, 2 * n] = c * a - s * b, s * a + c * b
        return result

    before, after, own = data.precomp[:, 0], data.precomp[:, 1], data.precomp[:, 2:3, None]
    sent = rotate(x[edges[1]], before)
    kernels = torch.cat(
        [torch.einsum("bji,bmn->jmin", conv.self_weight.weight, conv.self_weight.kernels)[None], conv.weight]
    )
    messages = torch.einsum("ejm,er,rjmin->ein", sent, data.precomp[:, 2:], kernels)
    messages = messages + conv.bias * (1 - own) + conv.bias * conv.bias_mask * own
    messages = rotate(messages, after)
    sums = torch.zeros(vertices, 3, 5, dtype=torch.float64).index_add(0, edges[0], messages)
    counts = torch.bincount(edges[0], minlength=vertices).clamp(min=1)
    close(found.detach(), (sums / counts[:, None, None]).detach())
    assert found[8].abs().max() == 0
