"""Layers under PyTorch on the CPU."""

import contextlib
import copy
import inspect
import io
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gemcnn  # noqa: E402
import gemcnn.torch as gt  # noqa: E402

HIDDEN = "3x(0,1,2)"


def rough(rows=5, columns=6, seed=1):
    """An open mesh with vertices of different degree."""
    return gemcnn.shapes.rough_grid(rows, columns, 1.0, seed=seed)


@pytest.fixture
def graph():
    return gt.Graph.of(rough(), torch.float64)


def clusters_of(mesh, dtype=torch.float64):
    level = mesh.hierarchy([0.4], [2.5])[1]
    return gt.Clusters.of(level.clusters, dtype), gt.Graph.of(level.graph, dtype)


def random(*shape, **options):
    return torch.randn(*shape, dtype=torch.float64, **options)


def layers():
    """Layers with few numbers, in float64."""
    double = {"dtype": torch.float64}
    return [
        gt.GaugeConv("2x0 + 1x1", "1x(0,1,2)", **double),
        gt.GaugeConv("1x1 + 1x3", "2x0 + 1x2", rings=2, max_radius=1.5, aggregation="mean", **double),
        gt.GaugeConv("1x1", "1x1 + 1x2", aggregation="mean_with_self", **double),
        gt.GaugeConv("2x0", "1x0 + 1x1", self_term=False, bias=False, **double),
        gt.EquivariantLinear("2x0 + 2x1", "1x0 + 3x1 + 1x2", **double),
        gt.EquivariantLinear("1x0 + 1x1", "1x1", bias=False, **double),
        gt.RegularNonlinearity("1x(0,1,2)", 7, "tanh"),
        gt.RegularNonlinearity("2x(0,1)", 5, "elu", output_band_limit=2),
        gt.NormNonlinearity("2x0 + 1x1 + 1x2", "gelu", **double),
        gt.GatedNonlinearity("1x0 + 2x1", "tanh"),
        gt.BatchNorm("2x0 + 1x1", "irrep", **double),
        gt.BatchNorm("2x(0,1)", "channel", **double),
        gt.ResidualBlock(
            "2x0",
            "1x(0,1)",
            nonlinearity=lambda kind: gt.RegularNonlinearity(kind, 5, "tanh"),
            **double,
        ),
        gt.GaugeAttention("1x0 + 1x1", "1x0 + 1x2", **double),
        gt.GaugeAttention("2x0", "2x(0,1)", heads=2, **double),
        gt.GaugeMessages("1x0 + 1x1", "1x(0,1)", samples=4, activation="tanh", **double),
        gt.MessageBlock(
            "2x0",
            "1x(0,1)",
            hidden="1x(0,1,2)",
            nonlinearity=lambda kind: gt.RegularNonlinearity(kind, 5, "tanh"),
            batch_norm=True,
            activation="elu",
            **double,
        ),
    ]


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_gradients_equal_differences(layer, graph):
    torch.manual_seed(1)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    names = [name for name, _ in layer.named_parameters()]
    start = random(graph.vertex_count, layer.input.dimension, requires_grad=True)

    def run(x, *values):
        return torch.func.functional_call(copy.deepcopy(layer), dict(zip(names, values)), (x, graph))

    inputs = (start, *(p.detach().clone().requires_grad_() for p in layer.parameters()))
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


def test_pooling_gradients():
    mesh = rough()
    clusters, _ = clusters_of(mesh)
    for layer, rows in [(gt.TransportPool("1x(0,1,2)"), 30), (gt.TransportUnpool("1x(0,1,2)"), 12)]:
        x = random(rows, 5, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: layer(x, clusters), (x,), fast_mode=True)
    constant = torch.tensor([[1.0, 0, 0, 0, 0]]).double().repeat(30, 1)
    assert torch.allclose(gt.TransportPool("1x(0,1,2)")(constant, clusters)[:, 0], torch.ones(12).double())


def operators(graph):
    """One call of each operator."""
    ops = torch.ops.gemcnn
    clusters, _ = clusters_of(rough())

    def x(*shape):
        return random(*shape, requires_grad=True)

    fields = graph[:9]
    conv = ("2x0 + 1x1", "1x0 + 1x2", 1.0, "mean")
    vertices = graph.vertex_count
    weights = (x(1, 3, 4), x(2), x(1))
    yield ops.gauge_conv.default, (x(vertices, 4), *weights, *fields, *conv)
    yield ops.gauge_conv.default, (x(vertices, 4), weights[0], None, None, *fields, *conv)
    plain = [w.detach() for w in weights]
    yield ops.gauge_conv_backward.default, (random(vertices, 3), random(vertices, 4), *plain, *fields, *conv, True)
    edges, types = graph.edge_count, ("2x0 + 1x1", "1x0 + 1x2")
    kernel = random(1, 3, 4)
    yield ops.edge_product.default, (x(vertices, 3), x(vertices, 4), x(1, 3, 4), *fields, *types)
    products = (random(edges), random(vertices, 3), random(vertices, 4), kernel)
    yield ops.edge_product_backward.default, (*products, *fields, *types)
    yield ops.edge_softmax.default, (x(edges), *fields)
    yield ops.edge_softmax_backward.default, (random(edges), random(edges), *fields)
    yield ops.weighted_conv.default, (x(vertices, 4), x(edges), x(1, 3, 4), x(1), *fields, *types)
    yield ops.weighted_conv.default, (x(vertices, 4), x(edges), x(1, 3, 4), None, *fields, *types)
    weighted = (random(vertices, 3), random(vertices, 4), random(edges), kernel, random(1))
    yield ops.weighted_conv_backward.default, (*weighted, *fields, *types)
    function = ("2x0", "1x(0,1)", 3, "relu")
    yield ops.messages.default, (x(vertices, 2), x(21), x(6), *fields, *function)
    messages = (random(vertices, 3), random(vertices, 2), random(21), random(6))
    yield ops.messages_backward.default, (*messages, *fields, *function)
    yield ops.linear.default, (x(7, 4), x(6), x(2), "2x0 + 1x1", "2x0 + 1x1")
    yield ops.linear_backward.default, (random(7, 4), random(7, 4), random(6), 2, "2x0 + 1x1", "2x0 + 1x1", False)
    yield ops.regular.default, (x(7, 6), "2x(0,1)", 2, 5, "relu")
    yield ops.regular_backward.default, (random(7, 10), random(7, 6), "2x(0,1)", 2, 5, "relu")
    yield ops.norm.default, (x(7, 3), x(1), "1x0 + 1x1", "relu", 1e-8)
    yield ops.norm_backward.default, (random(7, 3), random(7, 3), random(1), "1x0 + 1x1", "relu", 1e-8)
    yield ops.gated.default, (x(7, 4), "1x0 + 1x1", "relu")
    yield ops.gated_backward.default, (random(7, 3), random(7, 4), "1x0 + 1x1", "relu")
    norm = ("2x0 + 1x1", "irrep", 1e-5, 0, 0, "")
    yield ops.batch_norm.default, (x(7, 4), x(3), x(3), None, None, *norm)
    yield ops.batch_norm.default, (x(7, 4), x(3), x(3), random(3), random(3).abs(), *norm)
    yield ops.batch_norm_backward.default, (random(7, 4), random(7, 4), random(3), random(3), None, None, *norm)
    norm = ("2x(0,1)", "channel", 1e-5, 2, 5, "relu")
    yield ops.batch_norm.default, (x(7, 6), x(2), x(2), None, None, *norm)
    yield ops.batch_norm.default, (x(7, 6), x(2), x(2), random(2), random(2).abs(), *norm)
    yield ops.batch_norm_backward.default, (random(7, 10), random(7, 6), random(2), random(2), None, None, *norm)
    yield ops.pool.default, (x(30, 3), *clusters, "1x(0,1)")
    yield ops.pool_backward.default, (random(12, 3), *clusters, "1x(0,1)")
    yield ops.unpool.default, (x(12, 3), *clusters, "1x(0,1)")
    yield ops.unpool_backward.default, (random(30, 3), *clusters, "1x(0,1)")
    labels = torch.tensor([0, 1, -1, 1, 0], dtype=torch.int32)
    yield ops.linear_cross_entropy.default, (x(5, 4), x(2, 4), x(2), labels, None, 0.1, True)
    gradients = (random(5, 4), random(2, 4), random(2))
    weights = random(2).abs()
    yield ops.linear_cross_entropy.default, (*gradients, labels, weights, 0.0, False)
    yield ops.linear_cross_entropy_backward.default, (random(()), random(5, 4), *gradients)


def test_every_operator_keeps_its_contract(graph):
    checked = set()
    for operator, arguments in operators(graph):
        torch.library.opcheck(operator, arguments)
        checked.add(operator.name())
    assert len(checked) == 26


def test_second_derivatives_are_refused(graph):
    layer = gt.GaugeConv("1x0", "1x0", dtype=torch.float64)
    x = random(graph.vertex_count, 1, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x, graph).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        first.sum().backward()


def test_modes_profilers_and_transforms_see_the_operators(graph):
    """Plain calls pass by the dispatcher of PyTorch; nothing that listens to it may miss them."""

    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            names.add(function.name())
            return function(*arguments, **(keywords or {}))

    layer = gt.GaugeConv("2x0", "1x(0,1)", dtype=torch.float64)
    x, dy = random(graph.vertex_count, 2, requires_grad=True), random(graph.vertex_count, 3)

    def run():
        layer.zero_grad()
        x.grad = None
        y = layer(x, graph)
        y.backward(dy)
        return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]

    expected, names = run(), set()
    with Names():
        listened = run()
    with torch.profiler.profile() as profile:
        profiled = run()
    both = {"gemcnn::gauge_conv", "gemcnn::gauge_conv_backward"}
    assert both <= names and both <= {event.key for event in profile.key_averages()}
    for found in (listened, profiled):
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        assert layer(mode.from_tensor(x), graph).shape == (graph.vertex_count, 3)
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda x: layer(x, graph).sum())(x.detach())
    # PyTorch calls the operator for each of the two.
    several = torch.func.vmap(lambda x: layer(x, graph))(torch.stack([x.detach(), 2 * x.detach()]))
    assert torch.equal(several[1], layer(2 * x, graph))


def rotation(kind, angles):
    """Matrices `[V, D, D]` that take features to frames rotated by angles."""
    kind = gt.FeatureType(kind)
    matrix = torch.zeros(len(angles), kind.dimension, kind.dimension, dtype=torch.float64)
    for order, count in enumerate(kind.multiplicities):
        columns = kind.range(order)
        for channel in range(count):
            a = columns.start + channel
            if order == 0:
                matrix[:, a, a] = 1
                continue
            b = a + count
            cosine, sine = torch.cos(order * angles), torch.sin(order * angles)
            matrix[:, a, a], matrix[:, a, b] = cosine, sine
            matrix[:, b, a], matrix[:, b, b] = -sine, cosine
    return matrix


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_layers_are_equivariant(layer):
    torch.manual_seed(2)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    mesh = rough()
    angles = torch.linspace(-3, 3, 30, dtype=torch.float64)
    plain = mesh.gauge_graph()
    # Samples make the regular nonlinearity approximate; many of them make the error small.
    for module in layer.modules():
        if isinstance(module, gt.RegularNonlinearity):
            module.samples = 101
    x = random(30, layer.input.dimension)
    turned = torch.einsum("vij,vj->vi", rotation(layer.input, angles), x)
    y = layer(x, gt.Graph.of(plain, torch.float64))
    found = layer(turned, gt.Graph.of(plain.rotated(angles.numpy()), torch.float64))
    expected = torch.einsum("vij,vj->vi", rotation(layer.output, angles), y)
    assert torch.allclose(found, expected, atol=1e-4 if "Regular" in repr(layer) else 1e-9)
    assert expected.abs().max() > 0.1


def test_batches_equal_single_meshes():
    meshes = [rough(), gemcnn.shapes.icosphere(1), rough(4, 4, seed=3)]
    graphs = [gt.Graph.of(mesh, torch.float64) for mesh in meshes]
    union = gt.Graph.collate(graphs)
    assert union.mesh_count == 3 and union.vertex_count == 30 + 42 + 16
    layer = gt.ResidualBlock("2x0", HIDDEN, dtype=torch.float64)
    parts = [random(graph.vertex_count, 2) for graph in graphs]
    together = layer(torch.cat(parts), union)
    alone = torch.cat([layer(x, graph) for x, graph in zip(parts, graphs)])
    assert torch.allclose(together, alone, atol=1e-12)
    scalars = together[:, :3]
    assert torch.allclose(gt.global_mean(scalars, union)[1], scalars[30:72].mean(0))
    assert torch.equal(gt.global_max(scalars, union)[2], scalars[72:].amax(0))
    twice = gt.Graph.collate([gt.Graph.collate(graphs[:2]), graphs[2]])
    assert all(torch.equal(one, two) for one, two in zip(twice, union))
    first, second = (clusters_of(mesh)[0] for mesh in (rough(), rough(seed=4)))
    joined = gt.Clusters.collate([first, second])
    pool, x = gt.TransportPool("1x(0,1)"), random(60, 3)
    alone = torch.cat([pool(x[:30], first), pool(x[30:], second)])
    assert torch.equal(pool(x, joined), alone)


def test_graphs_move_and_survive_pickles(graph):
    single = graph.to(torch.float32)
    assert single.phases.dtype == torch.float32 and single.offsets.dtype == torch.int32
    assert isinstance(single, gt.Graph) and single.to("meta").radius.is_meta
    restored = pickle.loads(pickle.dumps(graph))
    assert isinstance(restored, gt.Graph) and torch.equal(restored.phases, graph.phases)


def test_weights_of_neighbours_change_the_sum():
    mesh = rough()
    layer = gt.GaugeConv("1x0", "1x0", self_term=False, bias=False, dtype=torch.float64)
    ones = torch.ones(30, 1, dtype=torch.float64)
    counted = layer(ones, gt.Graph.of(mesh, torch.float64))
    degrees = np.diff(mesh.gauge_graph().offsets)
    assert np.allclose(counted.detach()[:, 0], layer.weight.item() * degrees)
    weighted = layer(ones, gt.Graph.of(mesh, torch.float64, weights="area"))
    assert np.allclose(weighted.detach()[:, 0], layer.weight.item())
    x = random(30, 1, requires_grad=True)
    area = gt.Graph.of(mesh, torch.float64, weights="area")
    assert torch.autograd.gradcheck(lambda x: layer(x, area), (x,), fast_mode=True)


def test_features_keep_their_scale():
    torch.manual_seed(0)
    mesh = gemcnn.shapes.icosphere(4)
    graph = gt.Graph.of(mesh)
    for options in [{}, {"aggregation": "mean"}, {"rings": 2, "max_radius": 0.3}]:
        layer = gt.GaugeConv("16x(0,1,2)", "16x(0,1,2)", **options)
        y = layer(torch.randn(graph.vertex_count, 80), graph)
        assert 0.5 < y.square().mean() < 2


def test_states_are_plain(tmp_path, graph):
    torch.manual_seed(0)
    layer = gt.ResidualBlock("2x0", HIDDEN, batch_norm=True, dtype=torch.float64)
    x = random(30, 2)
    layer(x, graph)
    layer.eval()
    other = gt.ResidualBlock("2x0", HIDDEN, batch_norm=True, dtype=torch.float64).eval()
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(layer(x, graph), other(x, graph))
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_model(layer, str(tmp_path / "layer.safetensors"))
    third = gt.ResidualBlock("2x0", HIDDEN, batch_norm=True, dtype=torch.float64).eval()
    safetensors.load_model(third, str(tmp_path / "layer.safetensors"))
    assert torch.equal(layer(x, graph), third(x, graph))


def test_networks_are_exported(graph):
    layer = gt.Sequential(gt.ResidualBlock("2x0", "2x(0,1)"), gt.GaugeConv("2x(0,1)", "1x0"))
    x, single = torch.randn(30, 2), graph.to(torch.float32)
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(layer, (x, single)), buffer)
    buffer.seek(0)
    program = torch.export.load(buffer)
    # PyTorch takes `graph.reversed_phases` in its guards for a part of `graph.reverse`.
    options = {"check_guards": False} if "check_guards" in inspect.signature(program.module).parameters else {}
    assert torch.allclose(program.module(**options)(x, single), layer(x, single))


def test_bad_arguments_are_named(graph):
    layer = gt.GaugeConv("2x0", "1x0", dtype=torch.float64)
    x = random(30, 2)
    for wrong, match in [
        (random(30, 3), "shape"),
        (random(29, 2), "`x`"),
        (x.float(), "float64"),
        (x.half(), "float16"),
        (x.to(torch.int64), "int64"),
    ]:
        with pytest.raises(gemcnn.OperatorError, match=match):
            layer(wrong, graph)
    with pytest.raises(gemcnn.OperatorError, match="float64"):
        layer(x, graph.to(torch.float32))
    with pytest.raises(gemcnn.OperatorError, match="weights torch.float32"):
        gt.GaugeConv("2x0", "1x0")(x, graph)
    for wrong in (None, "graph", gemcnn.shapes.icosphere(1), graph.offsets):
        with pytest.raises(gemcnn.OperatorError, match="graph"):
            layer(x, wrong)
    assert gt.Graph.of(SimpleNamespace(vertices=[[0, 0, 0], [1, 0, 0], [0, 1, 0]], faces=[[0, 1, 2]])).edge_count == 6
    for label in (-1, 5, 2**40):
        with pytest.raises(gemcnn.OperatorError, match="from 0 to 4"):
            gt.linear_cross_entropy(torch.randn(2, 3), torch.randn(5, 3), torch.randn(5), torch.tensor([0, label]))
    with pytest.raises(gemcnn.OperatorError, match="memory"):
        gemcnn._gemcnn.regular_forward(("2x0", 0, 1, "relu"), 30, x.to("meta"), x.clone())
    with pytest.raises(gemcnn.OperatorError, match="int32"):
        layer(x, graph._replace(neighbours=graph.neighbours.long()))
    with pytest.raises(gemcnn.OperatorError, match="graph"):
        layer(x, graph._replace(neighbours=graph.neighbours + 1))
    with pytest.raises(gemcnn.OperatorError, match="graph"):
        layer(x, graph._replace(neighbours=-graph.neighbours))
    # Numbers that begin at an odd byte.
    bytes = torch.zeros(30 * 2 * 8 + 1, dtype=torch.uint8).numpy()
    odd = torch.from_numpy(bytes[1:].view(np.float64).reshape(30, 2))
    with pytest.raises(gemcnn.OperatorError, match="aligned"):
        layer(odd, graph)
    layer(odd.clone(), graph)
    with pytest.raises(gemcnn.OperatorError):
        gt.GaugeConv("2y0", "1x0")
    with pytest.raises(gemcnn.OperatorError):
        gt.GaugeConv("2x0", "1x0", aggregation="max")
    with pytest.raises(gemcnn.OperatorError):
        gt.RegularNonlinearity("2x0 + 1x1")
    with pytest.raises(gemcnn.OperatorError):
        gt.RegularNonlinearity("2x0", activation="sin")(random(3, 2))


def test_diffusion():
    mesh, other = rough(), gemcnn.shapes.icosphere(1)
    graph = mesh.gauge_graph()
    double = torch.float64
    spectra = gt.Spectra.of(mesh, graph, (10, 6, 200), double)
    assert [tuple(basis.shape) for basis in spectra.bases] == [(30, 1, 10), (30, 2, 6), (30, 2, 200)]
    layer = gt.Diffusion("2x(0,1)", dtype=double)
    torch.nn.init.normal_(layer.band)
    x = random(30, 6, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x, spectra), (x, *layer.parameters()), fast_mode=True)
    # An eigenvector is multiplied by its filter.
    for order, columns in [(0, slice(0, 2)), (1, slice(2, 6))]:
        start = torch.zeros(30, 6, dtype=double)
        vector, value = spectra.bases[order][:, :, 4], spectra.eigenvalues[order][0, 4]
        start[:, columns] = vector.repeat_interleave(2, dim=1)
        scaled = value * layer.log_time[2 * order : 2 * order + 2].exp()
        filters = torch.exp(-scaled) * (1 + layer.band[2 * order : 2 * order + 2] * scaled)
        expected = start[:, columns] * filters.repeat(1 if order == 0 else 2)
        assert torch.allclose(layer(start, spectra)[:, columns], expected, atol=1e-9)
    # The frames do not matter, and meshes of a batch do not see each other.
    angles = torch.linspace(-3, 3, 30, dtype=double)
    turned = gt.Spectra.of(mesh, graph.rotated(angles.numpy()), (10, 6), double)
    matrices = rotation("2x(0,1)", angles)
    found = layer(torch.einsum("vij,vj->vi", matrices, x), turned)
    assert torch.allclose(found, torch.einsum("vij,vj->vi", matrices, layer(x, spectra)), atol=1e-7)
    second = gt.Spectra.of(other, other.gauge_graph(), (10, 6, 200), double)
    y = random(42, 6)
    together = layer(torch.cat([x, y]), gt.Spectra.collate([spectra, second]))
    assert torch.allclose(together, torch.cat([layer(x, spectra), layer(y, second)]))
    with pytest.raises(gemcnn.OperatorError):
        gt.Diffusion("1x(0,1,2)", dtype=double)(random(30, 5), turned)
    with pytest.raises(gemcnn.OperatorError):
        layer(y, spectra)


def test_batch_normalisation_has_unit_variance():
    torch.manual_seed(0)
    x = 3 * random(500, 6) + 2
    irreps = gt.BatchNorm("2x(0,1)", momentum=1.0, dtype=torch.float64)
    y = irreps(x).detach()
    one = torch.ones(2, dtype=torch.float64)
    assert torch.allclose(y[:, :2].mean(0), 0 * one, atol=1e-9)
    assert torch.allclose(y[:, :2].square().mean(0), one, atol=1e-4)
    assert torch.allclose(y[:, 2:].square().mean(0).view(2, 2).sum(0) / 2, one, atol=1e-4)
    assert torch.allclose(irreps.eval()(x), y)
    # The samples of each channel around the circle have mean 0 and variance 1.
    y = gt.BatchNorm("2x(0,1)", "channel", dtype=torch.float64)(x).detach().view(500, 3, 2)
    angles = 2 * torch.pi * torch.arange(5, dtype=torch.float64) / 5
    samples = y[:, 0, :, None] + y[:, 1, :, None] * angles.cos() + y[:, 2, :, None] * angles.sin()
    assert torch.allclose(samples.mean((0, 2)), 0 * one, atol=1e-9)
    assert torch.allclose(samples.square().mean((0, 2)), one, atol=1e-4)


def test_running_statistics_follow_the_batch():
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    x, dy = 3 * random(500, 6) + 2, random(500, 6)
    mean = x[:, :2].mean(0)
    variance = (x[:, :2] - mean).square().mean(0) + x[:, 2:].square().mean(0).view(2, 2).sum(0) / 2
    results = []
    # Plain calls update them in the kernel, others by operators of PyTorch.
    for mode in (contextlib.nullcontext(), FlopCounterMode(display=False)):
        layer = gt.BatchNorm("2x(0,1)", "channel", dtype=torch.float64)
        layer.gamma.data[:] = torch.tensor([0.5, 2.0])
        there = x.clone().requires_grad_()
        with mode:
            layer(there).backward(dy)
        assert torch.allclose(layer.running_mean, 0.1 * mean, rtol=1e-12)
        assert torch.allclose(layer.running_variance, 0.9 + 0.1 * variance, rtol=1e-12)
        assert layer.running_mean._version > 0
        results.append([there.grad, layer.gamma.grad, layer.beta.grad])
    assert all(torch.allclose(one, two, rtol=1e-12) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_normalisation_within_the_nonlinearity_changes_nothing(graph, training):
    results = []
    for hooked in (False, True):
        torch.manual_seed(0)
        block = gt.ResidualBlock("2x0", HIDDEN, batch_norm=True, dtype=torch.float64).train(training)
        calls = []
        for norm in (block.norm1, block.norm2):
            torch.nn.init.normal_(norm.gamma)
            torch.nn.init.normal_(norm.beta)
            norm.running_mean += 0.5
            if hooked:
                # With a hook the normalisation is an operator of its own.
                norm.register_forward_hook(lambda *arguments: calls.append(1))
        x = random(graph.vertex_count, 2, requires_grad=True)
        y = block(x, graph)
        y.square().sum().backward()
        assert len(calls) == 2 * hooked
        parts = [y.detach(), x.grad, *(p.grad for p in block.parameters()), *block.buffers()]
        results.append(parts)
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, rtol=1e-10, atol=1e-12)


def test_strided_features_and_gradients(graph):
    layer = gt.GaugeConv("2x0", "1x0 + 1x1", dtype=torch.float64)
    wide = random(30, 4, requires_grad=True)
    y = layer(wide[:, ::2], graph)
    y.sum().backward()  # a gradient with strides 0
    x = wide.detach()[:, ::2].contiguous().requires_grad_()
    layer(x, graph).backward(torch.ones(30, 3, dtype=torch.float64))
    assert torch.equal(wide.grad[:, ::2], x.grad) and wide.grad[:, 1::2].abs().max() == 0


def test_autocast_runs_in_single_precision():
    graph = gt.Graph.of(rough())
    layer = gt.ResidualBlock("2x0", HIDDEN)
    x = torch.randn(30, 2, requires_grad=True)
    expected = layer(x, graph)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, graph)
        assert layer(x.bfloat16(), graph).dtype == torch.float32
    assert found.dtype == torch.float32 and torch.equal(found, expected)
    found.sum().backward()


def test_compiled_networks_take_all_sizes_in_two_graphs():
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    network = gt.Sequential(
        gt.ResidualBlock("3x0", HIDDEN, batch_norm=True),
        gt.ResidualBlock(HIDDEN, "8x0", nonlinearity=gt.NormNonlinearity),
        gt.Scalars(torch.nn.Linear(8, 4)),
    )
    graphs = [gt.Graph.of(rough(5 + size, 6)) for size in range(4)]
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(network, fullgraph=True, backend=counter)
    for graph in graphs:
        x = torch.randn(graph.vertex_count, 3, requires_grad=True)
        state = copy.deepcopy(network.state_dict())
        found = compiled(x, graph)
        found.square().sum().backward()
        gradients = [p.grad.clone() for p in network.parameters()] + [x.grad]
        network.zero_grad()
        network.load_state_dict(state)
        again = x.detach().clone().requires_grad_()
        expected = network(again, graph)
        expected.square().sum().backward()
        assert torch.allclose(found, expected, atol=1e-5)
        for one, two in zip(gradients, [p.grad for p in network.parameters()] + [again.grad]):
            assert torch.allclose(one, two, atol=1e-3, rtol=1e-3)
        network.zero_grad()
    assert counter.frame_count <= 2


def test_inductor_compiles_a_block():
    torch._dynamo.reset()
    graph = gt.Graph.of(rough())
    block = gt.ResidualBlock("3x0", HIDDEN)
    x = torch.randn(30, 3)
    assert torch.allclose(torch.compile(block, fullgraph=True)(x, graph), block(x, graph), atol=1e-6)


class Meshes(torch.utils.data.Dataset):
    """Graphs of meshes, prepared in the workers."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        mesh = gemcnn.shapes.rough_grid(6, 6, 1.0, seed=index)
        graph = gt.Graph.of(mesh)
        x = torch.from_numpy(mesh.features("xyz").values).float()
        layer = gt.GaugeConv("3x0", "1x0")
        torch.nn.init.ones_(layer.weight)
        return graph, layer(x, graph).detach()


def collate(samples):
    graphs, values = zip(*samples)
    return gt.Graph.collate(graphs), torch.cat(values)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(method):
    # The pool of this process has run already: a forked worker must not wait for its threads.
    gt.Graph.of(rough())
    loader = torch.utils.data.DataLoader(
        Meshes(),
        batch_size=4,
        num_workers=2,
        collate_fn=collate,
        multiprocessing_context=method,
        timeout=120,
    )
    batches = list(loader)
    assert [graph.mesh_count for graph, _ in batches] == [4, 4]
    assert all(torch.isfinite(values).all() for _, values in batches)


THREADS = """
import os, threading, gemcnn, torch, gemcnn.torch as gt

mesh = gemcnn.shapes.icosphere(4)
graph, layer, x = gt.Graph.of(mesh), gt.GaugeConv("1x0", "4x(0,1)"), torch.randn(len(mesh.vertices), 1)

def same():
    with torch.no_grad():
        return torch.equal(layer(x, graph), expected)

gemcnn.set_num_threads(2)
with torch.no_grad():
    expected = layer(x, graph)
found = []
other = threading.Thread(target=lambda: found.append(same()))
other.start()
other.join()
gemcnn.set_num_threads(3)
found.append(same())
for threads in (2, 3):
    child = os.fork()
    if child == 0:
        gemcnn.set_num_threads(threads)
        os._exit(0 if same() else 3)
    found.append(os.waitpid(child, 0)[1] == 0)
gemcnn.set_num_threads(2)
found.append(same())
assert found == [True] * 5, found
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_operators_in_other_threads_pools_and_processes():
    """The first thread is part of its pool. Other threads, pools of another size and forked processes must not wait for it."""
    assert subprocess.run([sys.executable, "-c", THREADS], timeout=120).returncode == 0


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    mesh = gemcnn.shapes.icosphere(3)
    graph = gt.Graph.of(mesh)
    x = torch.from_numpy(mesh.features("xyz").values).float()
    labels = (x[:, 0] * x[:, 1] > 0).long()
    network = gt.Sequential(
        gt.ResidualBlock("3x0", "8x(0,1,2)", aggregation="mean", batch_norm=True),
        gt.ResidualBlock("8x(0,1,2)", "16x0", aggregation="mean", batch_norm=True),
        gt.Scalars(torch.nn.Linear(16, 2)),
    )
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(30):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x, graph), labels)
        loss.backward()
        optimiser.step()
    assert loss < 0.1
    with torch.no_grad():
        assert (network.eval()(x, graph).argmax(1) == labels).float().mean() > 0.95


@pytest.mark.parametrize(
    "task, change",
    [
        ("segmentation", {}),
        ("segmentation", {"nonlinearity": "norm", "head": 0}),
        ("segmentation", {"nonlinearity": "gated", "weights": "area", "batch_norm": False}),
        ("segmentation", {"broken_symmetry": True, "samples": 7}),
        ("regression", {}),
    ],
)
def test_models_of_the_command_are_modules(task, change, tmp_path):
    from test_runs import GEM, config_of, write_data

    write_data(tmp_path / "data", 4)
    if task == "regression":
        for path in (tmp_path / "data").glob("*.npy"):
            np.save(path, gemcnn.read(path.with_suffix(".ply")).vertices[:, 2] * 3 + 5)
    config = config_of(tmp_path / "data", epochs=2) | {"task": task, "model": GEM | change}
    model = gemcnn.train(config, run_dir=tmp_path / "run", device="cpu", cache=False, on_epoch=None)
    mesh = rough()
    features, graph = model.prepare(mesh)
    network = model.to_torch()
    found = network(torch.from_numpy(features), gt.Graph.of(graph)).detach()
    predicted = model.predict(mesh)
    if task == "regression":
        assert np.allclose(found, predicted.values, atol=1e-4)
    else:
        assert np.array_equal(found.argmax(1), predicted.classes)
        assert found.std() > 0
