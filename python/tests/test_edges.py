"""Attention, messages and the U-net under PyTorch on the CPU."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gemcnn  # noqa: E402
import gemcnn.torch as gt  # noqa: E402
from gemcnn.torch import edge_ops  # noqa: E402
from test_torch import random, rotation, rough  # noqa: E402

DOUBLE = torch.float64


def at_edges(mesh):
    """Vertex and neighbour of each edge, the angle of the neighbour, and the transport."""
    graph = mesh.gauge_graph()
    degrees = np.diff(graph.offsets.astype(np.int64))
    vertex = torch.from_numpy(np.repeat(np.arange(graph.vertex_count), degrees))
    neighbour = torch.from_numpy(graph.neighbours.astype(np.int64))
    return vertex, neighbour, torch.from_numpy(graph.theta.copy()), torch.from_numpy(graph.transport.copy())


def turn(kind, angles, x):
    """Rows rotated by angles."""
    return torch.einsum("eij,ej->ei", rotation(kind, -angles), x)


def with_random_weights(layer, seed=3):
    torch.manual_seed(seed)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_is_its_formula(heads):
    mesh = rough()
    vertex, neighbour, theta, g = at_edges(mesh)
    layer = with_random_weights(gt.GaugeAttention("2x0 + 1x1", "2x0 + 4x2", heads=heads, dtype=DOUBLE))
    part = gt.FeatureType(f"{2 // heads}x0 + {4 // heads}x2")
    x = random(30, 4)
    aligned = turn("2x0 + 1x1", g - theta, x[neighbour])
    fields = {0: [], 2: []}
    for head in layer.children():
        query = head["query"](x)[vertex]
        keys, values = (turn(part, theta, aligned @ head[name].weight[0].T) for name in ("key", "value"))
        scores = (query * keys).sum(1) / part.dimension**0.5
        y = torch.zeros(30, part.dimension, dtype=DOUBLE)
        for p in range(30):
            of_vertex = vertex == p
            y[p] = torch.softmax(scores[of_vertex], 0) @ values[of_vertex]
        y[:, part.range(0)] += head["value"].bias
        fields[0].append(y[:, part.range(0)].view(30, 1, -1))
        fields[2].append(y[:, part.range(2)].view(30, 2, -1))
    expected = torch.cat([torch.cat(fields[order], dim=2).flatten(1) for order in (0, 2)], dim=1)
    found = layer(x, gt.Graph.of(mesh, DOUBLE))
    assert torch.allclose(found, expected, atol=1e-12) and found.std() > 0.1


def test_messages_are_their_formula():
    mesh = rough()
    vertex, neighbour, theta, g = at_edges(mesh)
    layer = with_random_weights(gt.GaugeMessages("1x0 + 2x1", "2x(0,1)", layers=2, dtype=DOUBLE))
    x = random(30, 5)
    kind = "1x0 + 2x1"
    value = torch.cat([turn(kind, -theta, x[vertex]), turn(kind, g - theta, x[neighbour])], dim=1)
    act = gt.RegularNonlinearity("2x(0,1)", 3)
    for edge in layer.children():
        value = act(edge(value))
    value = turn("2x(0,1)", theta, value)
    degree = torch.bincount(vertex).double()[:, None]
    expected = torch.zeros(30, 6, dtype=DOUBLE).index_add(0, vertex, value) / degree
    found = layer(x, gt.Graph.of(mesh, DOUBLE))
    assert torch.allclose(found, expected, atol=1e-12) and found.std() > 0.1


def test_pieces_of_edges_do_not_matter(monkeypatch):
    mesh = gemcnn.shapes.icosphere(3)
    graph = gt.Graph.of(mesh, DOUBLE)
    layer = with_random_weights(gt.GaugeMessages("2x(0,1)", "2x(0,1)", dtype=DOUBLE))

    def run(x):
        x = x.clone().requires_grad_()
        layer.zero_grad()
        y = layer(x, graph)
        y.square().sum().backward()
        return [y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]

    x = random(graph.vertex_count, 6)
    whole = run(x)
    monkeypatch.setitem(edge_ops._PIECE, "cpu", 1)
    assert graph.edge_count > 3 * 1024
    for one, two in zip(run(x), whole):
        assert torch.allclose(one, two, rtol=1e-12)


def test_vertices_without_neighbours():
    mesh = gemcnn.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 5, 5]], [[0, 1, 2]])
    graph = gt.Graph.of(mesh, DOUBLE)
    x = random(4, 1, requires_grad=True)
    attention = with_random_weights(gt.GaugeAttention("1x0", "2x0 + 1x1", dtype=DOUBLE))
    messages = with_random_weights(gt.GaugeMessages("1x0", "2x(0,1)", dtype=DOUBLE))
    alone = attention(x, graph)[3]
    assert torch.equal(alone[:2], attention.head1["value"].bias) and alone[2:].abs().max() == 0
    assert messages(x, graph)[3].abs().max() == 0
    (attention(x, graph).square().sum() + messages(x, graph).square().sum()).backward()
    assert torch.isfinite(x.grad).all() and x.grad[3] == 0


def test_networks_compile_and_run_in_single_precision():
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    for network in [
        gt.GemNetwork("3x0", 4, blocks=1, channels=4, heads=2, scalars=4, head=0, batch_norm=False),
        gt.HermesNetwork("3x0", 4, blocks=2, channels=2, scalars=4, head=0, batch_norm=False),
    ]:
        network.eval()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(network, fullgraph=True, backend=counter)
        for size in range(3):
            graph = gt.Graph.of(rough(5 + size, 6))
            x = torch.randn(graph.vertex_count, 3, requires_grad=True)
            found, expected = compiled(x, graph), network(x, graph)
            assert torch.allclose(found, expected, atol=1e-5)
            (one,), (two,) = (torch.autograd.grad(y.square().sum(), x) for y in (found, expected))
            assert torch.allclose(one, two, atol=1e-4)
        assert counter.frame_count <= 2
        block = network.blocks[0]
        with torch.autocast("cpu", torch.bfloat16):
            y = block(x, graph)
            assert y.dtype == torch.float32 and torch.equal(y, block(x, graph))


def test_bad_arguments():
    graph = gt.Graph.of(rough(), DOUBLE)
    attention = gt.GaugeAttention("2x0", "2x0", heads=2, dtype=DOUBLE)
    messages = gt.GaugeMessages("2x0", "2x0", dtype=DOUBLE)
    for layer in (attention, messages):
        for wrong, match in [(random(30, 3), "shape"), (random(29, 2), "needs"), (random(30, 2).float(), "float64")]:
            with pytest.raises(gemcnn.OperatorError, match=match):
                layer(wrong, graph)
        with pytest.raises(gemcnn.OperatorError):
            layer(random(30, 2), graph._replace(neighbours=graph.neighbours + 1))
        x = random(30, 2, requires_grad=True)
        (first,) = torch.autograd.grad(layer(x, graph).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="second derivative"):
            first.sum().backward()
    factors = random(graph.edge_count - 1)
    with pytest.raises(gemcnn.OperatorError, match="factors"):
        torch.ops.gemcnn.weighted_conv(random(30, 2), factors, random(1, 2, 2), None, *graph[:9], "2x0", "2x0")
    for make in [
        lambda: gt.GaugeAttention("2x0", "4x0 + 3x1", heads=2),
        lambda: gt.GaugeAttention("2x0", "4x0", heads=0),
        lambda: gt.GaugeMessages("2x0", "2x0 + 1x1"),
        lambda: gt.GaugeMessages("2x0", "2x0", layers=0),
        lambda: gt.MessageBlock("2x0", "2x0", hidden="2x0", node_layers=0),
    ]:
        with pytest.raises(gemcnn.OperatorError):
            make()


def test_features_keep_their_scale():
    torch.manual_seed(0)
    graph = gt.Graph.of(gemcnn.shapes.icosphere(4))
    x = torch.randn(graph.vertex_count, 80)
    kind = "16x(0,1,2)"
    # Attention starts near a mean of the values. Messages pass ReLUs, and their mean is taken over six.
    assert 0.3 < gt.GaugeAttention(kind, kind, heads=2)(x, graph).square().mean() < 3
    assert 0.05 < gt.GaugeMessages(kind, kind)(x, graph).square().mean() < 2


def test_unet_on_batches():
    network = with_random_weights(gt.UNet("3x0", 4, channels=(2, 3, 4), scalars=4, head=0, dropout=0.0)).double().eval()
    meshes = [rough(), rough(6, 7, seed=2)]
    parts = [gt.Levels.of(mesh.hierarchy([0.4, 0.4], [2.5, 5.0]), DOUBLE) for mesh in meshes]
    rows = [random(len(mesh.vertices), 3) for mesh in meshes]
    together = network(torch.cat(rows), gt.Levels.collate(parts))
    alone = torch.cat([network(x, levels) for x, levels in zip(rows, parts)])
    assert torch.allclose(together, alone, atol=1e-12) and alone.std() > 0.1
    whole = gt.UNet("3x0", 4, channels=(2, 3, 4), pool="max").eval()
    assert whole(torch.cat(rows).float(), gt.Levels.collate(parts).to(torch.float32)).shape == (2, 4)
    with pytest.raises(gemcnn.TaskError):
        network(rows[0], gt.Levels(parts[0].graphs[:2], parts[0].clusters[:1]))
    with pytest.raises(gemcnn.OperatorError):
        gt.Levels.collate([parts[0], gt.Levels(parts[0].graphs[:2], parts[0].clusters[:1])])
