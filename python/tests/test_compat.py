"""The names of the published implementation, against its numbers (fixtures/golden)."""

import json
import struct
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gemcnn  # noqa: E402
import gemcnn.compat as gem_cnn  # noqa: E402
from gemcnn import compat  # noqa: E402
from torch import nn  # noqa: E402

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
    data = multiscale(numbers)
    close(compat.MatrixFeaturesTransform()(data).matrix_features, numbers["matrix_features"], 1e-9)


def multiscale(numbers):
    """The data of `pool_irregular200`, with its own geometry."""
    return SimpleNamespace(
        pos=numbers["vertices"],
        edge_index=numbers["edge_index"],
        edge_mask=numbers["edge_mask"],
        node_mask=numbers["node_mask"],
        connection=numbers["g"],
        edge_coords=torch.stack([numbers["r"], numbers["theta"]], dim=1),
        frame=numbers["frames"],
        batch=None,
    )


def test_multiscale_radius_graph_and_pooling():
    numbers = golden("pool_irregular200")
    data = SimpleNamespace(pos=numbers["vertices"], normal=numbers["normals"])
    compat.MultiscaleRadiusGraph([1, 0.25], [0.4, 0.8])(data)
    for name in ("edge_index", "edge_mask", "node_mask"):
        assert torch.equal(getattr(data, name), numbers[name].to(getattr(data, name).dtype)), name
    assert torch.equal(torch.nonzero(data.node_mask >= 1)[:, 0], numbers["coarse_vertex_ids"])
    compat.SimpleGeometry()(data)
    close(data.edge_coords[:, 0], numbers["r"])
    close(data.frame, numbers["frames"])
    others = data.edge_index[0] != data.edge_index[1]
    assert torch.cos(data.edge_coords[:, 1] - numbers["theta"])[others].min() > 1 - 1e-12
    assert torch.cos(data.connection - numbers["g"]).min() > 1 - 1e-12
    for unpool, x, y in [(False, "x", "y_pool"), (True, "xc", "y_unpool")]:
        close(compat.ParallelTransportPool(1, unpool=unpool)(numbers[x], data), numbers[y])


@pytest.mark.parametrize("unpool", [False, True])
def test_pooling_is_equivariant(unpool):
    torch.manual_seed(0)
    data = multiscale(golden("pool_irregular200"))
    angle = 6 * torch.rand(200, dtype=torch.float64)
    fine, coarse = angle, angle[data.node_mask >= 1]
    before, after = (coarse, fine) if unpool else (fine, coarse)
    x = torch.randn(len(before), 3, 7, dtype=torch.float64)
    layer = compat.ParallelTransportPool(1, unpool=unpool)
    rotated = layer(compat.rep_act(x, -before), compat.GaugeTransformer(angle)(data))
    close(rotated, compat.rep_act(layer(x, data), -after))
    assert torch.autograd.gradcheck(lambda x: layer(x[:, :2, :3], data), x.requires_grad_(), fast_mode=True)


def test_pooling_needs_a_level_that_is_pooled_to():
    data = multiscale(golden("pool_irregular200"))
    x = torch.zeros(200, 2, 5)
    for level, rows in [(0, x), (2, x), (1, x[:50]), (1, x[:, 0])]:
        with pytest.raises(ValueError):
            compat.ParallelTransportPool(level, unpool=False)(rows, data)
    for ratios, radii in [([1], [0.4, 0.8]), ([0], [1.0]), ([1.5], [1.0])]:
        with pytest.raises(ValueError):
            compat.MultiscaleRadiusGraph(ratios, radii)


def test_scale_mask():
    data = multiscale(golden("pool_irregular200"))
    kept = torch.nonzero(data.node_mask >= 1)[:, 0]
    data.batch = (torch.arange(200) > 99).long()
    for level, vertices in [(0, torch.arange(200)), (1, kept)]:
        found = compat.ScaleMask(level)(data)
        edges = (data.edge_mask & (2 << 2 * level)) != 0
        assert torch.equal(vertices[found.edge_index], data.edge_index[:, edges])
        assert torch.equal(found.batch, data.batch[vertices])
        assert torch.equal(found.edge_coords, data.edge_coords[edges])
        assert torch.equal(found.connection, data.connection[edges])


def test_a_batch_has_the_graphs_of_its_meshes():
    torch.manual_seed(0)
    transform = compat.MultiscaleRadiusGraph([1, 0.3, 0.5], [0.2, 0.4, 0.8], max_neighbours=5)
    points = [torch.rand(count, 3, dtype=torch.float64) for count in (40, 7, 1)]
    alone = [transform(SimpleNamespace(pos=pos)) for pos in points]
    batch = torch.tensor([0] * 40 + [1] * 7 + [2])
    found = transform(SimpleNamespace(pos=torch.cat(points), batch=batch))
    starts = [0, 40, 47]
    edges = [part.edge_index + start for part, start in zip(alone, starts)]
    assert torch.equal(found.edge_index, torch.cat(edges, dim=1))
    for name in ("edge_mask", "node_mask"):
        assert torch.equal(getattr(found, name), torch.cat([getattr(part, name) for part in alone]))
    conv = (found.edge_mask & 2) != 0
    assert torch.bincount(found.edge_index[0, conv]).max() == 5
    assert [int((part.node_mask >= 1).sum()) for part in alone] == [12, 3, 1]


def test_find_first_neighbour():
    # Vertex 1 has an edge to itself first; vertex 2 has no other one; vertex 3 has none.
    edges = torch.tensor([[1, 4, 0, 1, 2, 0, 1], [1, 0, 2, 0, 2, 1, 4]])
    assert compat.find_first_neighbour(edges).tolist() == [2, 0, 2, 3, 0]
    assert compat.find_first_neighbour(edges, 6).tolist() == [2, 0, 2, 3, 0, 5]
    assert compat.find_first_neighbour(edges[:, :0]).tolist() == []


def test_rep_act():
    torch.manual_seed(0)
    x, y = torch.randn(2, 9, 4, 7, dtype=torch.float64)
    a, b = torch.randn(2, 9, dtype=torch.float64)
    turned = compat.rep_act(x, a)
    for n in range(4):
        first = torch.complex(x[..., 2 * n - 1], x[..., 2 * n]) if n else x[..., 0]
        second = torch.complex(turned[..., 2 * n - 1], turned[..., 2 * n]) if n else turned[..., 0]
        close(second, first * (torch.exp(1j * n * a)[:, None] if n else 1), 1e-14)
    close(compat.rep_act(turned, b), compat.rep_act(x, a + b), 1e-14)
    assert torch.allclose((turned * y).sum(), (x * compat.rep_act(y, -a)).sum())
    close(compat.rep_act(x[..., :1], a), x[..., :1], 0)


def random_graph(vertices, edges):
    """Points with normals, and random edges with one of each vertex to itself."""
    ends = torch.randint(0, vertices, (2, edges))
    own = torch.arange(vertices).expand(2, -1)
    return SimpleNamespace(
        pos=torch.rand(vertices, 3, dtype=torch.float64),
        normal=nn.functional.normalize(torch.randn(vertices, 3, dtype=torch.float64), dim=1),
        edge_index=torch.cat([ends[:, ends[0] != ends[1]], own], dim=1),
    )


@pytest.mark.parametrize("gauge", ["first_neighbour", "random", "x"])
def test_layers_are_equivariant(gauge):
    torch.manual_seed(0)
    data = compat.SimpleGeometry(gauge)(random_graph(30, 200))
    angle = 6 * torch.rand(30, dtype=torch.float64)
    turned = compat.GaugeTransformer(angle)(data)
    compat.GemPrecomp(2, 4)(data)
    later = compat.GaugeTransformer(angle)(data)
    compat.GemPrecomp(2, 4)(turned)
    x = torch.randn(30, 4, 5, dtype=torch.float64)
    for layer in (
        compat.GemConv(4, 6, 2, 2, n_rings=2),
        compat.GemResNetBlock(4, 4, 2, 2, n_rings=2, num_samples=301),
    ):
        layer.double()
        if isinstance(layer, compat.GemConv):
            nn.init.normal_(layer.bias)
        y = compat.rep_act(layer(x, data.edge_index, data.precomp, data.connection), -angle)
        for other in (turned, later):
            z = layer(compat.rep_act(x, -angle), other.edge_index, other.precomp, other.connection)
            close(z, y, 1e-12 if isinstance(layer, compat.GemConv) else 1e-3)
    features = compat.MatrixFeaturesTransform()(data).matrix_features
    close(compat.MatrixFeaturesTransform()(turned).matrix_features, compat.rep_act(features, -angle))


def open_mesh(seed=0):
    """A rough grid with a boundary; its first and last vertices are in no face, and one face hangs on a corner."""
    grid = gemcnn.shapes.rough_grid(4, 5, seed=seed)
    pos = np.concatenate([[[9.0, 9, 9]], grid.vertices, [[-1.0, 0, 1], [-1, 1, 0], [7, 7, 7]]])
    faces = np.concatenate([grid.faces.astype(np.int64) + 1, [[1, 21, 22]]])
    return SimpleNamespace(pos=torch.from_numpy(pos), face=torch.from_numpy(faces.T.copy()))


def test_open_meshes():
    """Edges at the boundary are in one direction only, and two vertices have none: against the definition."""
    data = compat.SimpleGeometry()(compat.compute_normals_edges_from_mesh(open_mesh()))
    for name in ("normal", "edge_coords", "connection", "weight", "frame"):
        assert torch.isfinite(getattr(data, name)).all(), name
    identity = torch.eye(3, dtype=torch.float64).expand(24, 3, 3)
    used = data.edge_index.unique()
    close((data.frame @ data.frame.transpose(1, 2))[used], identity[used])
    found = compat.MatrixFeaturesTransform()(data).matrix_features
    assert found.shape == (24, 7, 5) and found[[0, 23]].abs().max() == 0
    for p in used.tolist():
        x, y, n = data.frame[p]
        means = {"dd": 0, "nn": 0, "dn": 0}
        neighbours = data.edge_index[1, data.edge_index[0] == p]
        for q in neighbours.tolist():
            d, m = data.pos[q] - data.pos[p], data.frame[q, 2]
            for name, product in [("dd", d.outer(d)), ("nn", m.outer(m)), ("dn", d.outer(m))]:
                means[name] = means[name] + product / len(neighbours)
        for channel, name in [(0, "dd"), (2, "nn"), (4, "dn")]:
            mean = means[name]
            trace, curl = x @ mean @ x + y @ mean @ y, y @ mean @ x - x @ mean @ y
            row = [trace if name != "dn" else curl, 2 * n @ mean @ x, 2 * n @ mean @ y]
            row += [x @ mean @ y + y @ mean @ x, y @ mean @ y - x @ mean @ x]
            close(found[p, channel], torch.stack(row) / 2)
        close(found[p, 5, :3], torch.stack([trace / 2, x @ mean @ n, y @ mean @ n]))
        close(found[p, [1, 3, 6], 0], torch.stack([n @ mean @ n for mean in means.values()]))


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


def test_arguments_that_do_not_fit():
    data = compat.GemPrecomp(2)(compat.SimpleGeometry()(random_graph(8, 40)))
    conv = compat.GemConv(2, 3, 1, 1, n_rings=2).double()
    x = torch.zeros(8, 2, 3, dtype=torch.float64)
    good = (x, data.edge_index, data.precomp, data.connection)
    conv(*good)
    for place, other in [
        (0, x[:, :1]),
        (0, x[:5]),
        (0, x[0]),
        (1, data.edge_index[:, 1:]),
        (1, data.edge_index - 1),
        (2, data.precomp[:, :-1]),
        (2, data.precomp[1:]),
    ]:
        with pytest.raises(ValueError):
            conv(*good[:place], other, *good[place + 1 :])
    with pytest.raises(ValueError):
        compat.GaugeTransformer(torch.zeros(3))(data)
    # Changes in place are seen.
    x = torch.randn_like(x)
    before = conv(x, *good[1:])
    data.precomp[:, 1] += 1
    assert not torch.equal(conv(x, *good[1:]), before)


# The published scripts, step by step: three experiments and three tests. The latter are above.


class Compose:
    """As that of PyTorch Geometric."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, data):
        for transform in self.transforms:
            data = transform(data)
        return data


class Direct(nn.Module):
    """`faust_direct.py` and `shapes.py`: three blocks on the edges of the mesh, from positions or from matrix features."""

    def __init__(self, channels, order, classes):
        super().__init__()
        options = dict(n_rings=2, band_limit=2, num_samples=7, checkpoint=True, batch=100000)
        self.conv1 = gem_cnn.nn.GemResNetBlock(channels, 4, order, 2, **options)
        self.conv2 = gem_cnn.nn.GemResNetBlock(4, 4, 2, 2, **options)
        self.conv3 = gem_cnn.nn.GemResNetBlock(4, 4, 2, 0, **options)
        self.lin = nn.Linear(4, classes)

    def forward(self, data):
        x = data.pos[:, :, None] if self.conv1.conv1.in_order == 0 else data.matrix_features
        data = gem_cnn.transform.GemPrecomp(2, 2)(data)
        for conv in (self.conv1, self.conv2, self.conv3):
            x = conv(x, data.edge_index, data.precomp, data.connection)
        return self.lin(x[:, :, 0])


class Pooled(nn.Module):
    """`faust_pool.py`: three levels down and up again, with skip connections."""

    radii = [0.15, 0.3, 0.6]
    pre_transform = Compose(
        [
            gem_cnn.transform.compute_normals_edges_from_mesh,
            gem_cnn.transform.multiscale_radius_graph.MultiscaleRadiusGraph([1, 0.25, 0.25], radii, max_neighbours=32),
            gem_cnn.transform.SimpleGeometry(),
            gem_cnn.transform.matrix_features_transform.MatrixFeaturesTransform(),
        ]
    )
    levels = [
        Compose([gem_cnn.transform.scale_mask.ScaleMask(level), gem_cnn.transform.GemPrecomp(2, 2, max_r=radius)])
        for level, radius in enumerate(radii)
    ]

    def __init__(self, classes):
        super().__init__()
        options = dict(n_rings=2, band_limit=2, num_samples=7, checkpoint=True, batch=100000)
        widths = [(7, 2), (4, 2), (4, 2), (8, 2), (8, 0)]
        self.convs = nn.ModuleList(gem_cnn.nn.GemResNetBlock(n, 4, 2, order, **options) for n, order in widths)
        self.pools = nn.ModuleList(gem_cnn.nn.ParallelTransportPool(level, unpool=False) for level in (1, 2))
        self.unpools = nn.ModuleList(gem_cnn.nn.ParallelTransportPool(level, unpool=True) for level in (1, 2))
        self.lin = nn.Linear(4, classes)

    def forward(self, data):
        levels = [transform(data) for transform in self.levels]
        fine, middle, coarse = ((level.edge_index, level.precomp, level.connection) for level in levels)
        first = self.convs[0](data.matrix_features, *fine)
        second = self.convs[1](self.pools[0](first, data), *middle)
        x = self.convs[2](self.pools[1](second, data), *coarse)
        x = self.convs[3](torch.cat([self.unpools[1](x, data), second], dim=1), *middle)
        x = self.convs[4](torch.cat([self.unpools[0](x, data), first], dim=1), *fine)
        return self.lin(x[:, :, 0])


def learns(network, data, target, pooled=lambda x: x):
    """Trains for some steps: the loss falls, all weights have gradients, and outputs have the type of the input."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        output = pooled(network(data))
        assert output.dtype == data.pos.dtype
        loss = nn.functional.nll_loss(output.log_softmax(1), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    # Edges from faces have none of a vertex to itself: its weights have zero gradients.
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())
    assert losses[-1] < losses[0]


def bodies(count):
    meshes, _ = gemcnn.shapes.bodies(range(count), vertices=500)
    return meshes


def mesh_data(mesh, dtype=torch.float64):
    pos, face = torch.tensor(mesh.vertices, dtype=dtype), torch.tensor(mesh.faces.astype(np.int64).T)
    return SimpleNamespace(pos=pos, face=face, batch=torch.zeros(len(pos), dtype=torch.long))


@pytest.mark.filterwarnings("ignore:the skip connection")
@pytest.mark.parametrize("script", ["faust_direct", "faust_pool", "shapes", "shapes_open"])
def test_scripts(script):
    torch.manual_seed(0)
    data = open_mesh() if script == "shapes_open" else mesh_data(bodies(1)[0])
    if script == "faust_pool":
        learns(Pooled(20).double(), Pooled.pre_transform(data), torch.arange(500) % 20)
        return
    gem_cnn.transform.SimpleGeometry()(gem_cnn.transform.compute_normals_edges_from_mesh(data))
    if script == "faust_direct":
        learns(Direct(3, 0, 20).double(), data, torch.arange(500) % 20)
    else:
        gem_cnn.transform.MatrixFeaturesTransform()(data)
        learns(Direct(7, 2, 40).double(), data, torch.tensor([3]), lambda x: x.mean(0, keepdim=True))


@pytest.mark.filterwarnings("ignore")
def test_scripts_with_pytorch_geometric(tmp_path, monkeypatch):
    """Its data sets, transforms, loaders and batches, on a folder in the layout of FAUST."""
    geometric = pytest.importorskip("torch_geometric")
    import torch_geometric.transforms
    from torch_geometric.datasets import FAUST
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import global_mean_pool

    class OpenMesh:
        """In place of the package that reads PLY files there."""

        def __init__(self, path):
            self.mesh = gemcnn.read(path)

        points = lambda self: self.mesh.vertices.copy()  # noqa: E731
        face_vertex_indices = lambda self: self.mesh.faces.astype(np.int64)  # noqa: E731

    monkeypatch.setattr(geometric.io.ply, "openmesh", SimpleNamespace(read_trimesh=OpenMesh))
    (tmp_path / "raw").mkdir()
    files = [tmp_path / f"{index}.ply" for index in range(2)]
    for mesh, file in zip(bodies(2), files):
        mesh.write(file)
    with zipfile.ZipFile(tmp_path / "raw" / "MPI-FAUST.zip", "w") as archive:
        for index in range(100):
            archive.write(files[index % 2], f"MPI-FAUST/training/registrations/tr_reg_{index:03}.ply")
    transforms = geometric.transforms.Compose(Pooled.pre_transform.transforms)
    done = {}

    def pre_transform(data):
        """Each of the two bodies once."""
        key = float(data.pos.sum())
        return done[key] if key in done else done.setdefault(key, transforms(data))

    first = FAUST(str(tmp_path), train=True, pre_transform=pre_transform)
    assert len(done) == 2 and len(first) == 80
    batch = next(iter(DataLoader(first, batch_size=2)))
    assert batch.batch.bincount().tolist() == [500, 500] and batch.pos.dtype == torch.float32
    target = torch.arange(500).expand(2, 500).flatten() % 20
    torch.manual_seed(0)
    network = Pooled(20)
    learns(network, batch, target)
    # Meshes of a batch do not see each other.
    network.eval()
    together, alone = network(batch), network(next(iter(DataLoader([first[1]]))))
    close(together[500:].detach(), alone.detach(), 1e-4)
    gem_cnn.transform.SimpleGeometry()(gem_cnn.transform.compute_normals_edges_from_mesh(batch))
    learns(Direct(3, 0, 20), batch, target)
    learns(Direct(7, 2, 40), batch, torch.tensor([0, 1]), lambda x: global_mean_pool(x, batch.batch))
