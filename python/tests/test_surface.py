"""Networks on surfaces, and the fused classifier, under PyTorch on the CPU."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gemcnn  # noqa: E402
import gemcnn.torch as gt  # noqa: E402
from gemcnn.torch.loss import _on_device  # noqa: E402
from gemcnn.torch.models import Head  # noqa: E402
from test_runs import config_of, write_data  # noqa: E402
from test_torch import random, rotation, rough  # noqa: E402

DOUBLE = torch.float64
COUNTS = (12, 8, 6)


def test_gradients_of_fields():
    mesh = gemcnn.shapes.grid(9, 9)
    graph = mesh.gauge_graph()
    # A linear function has the same gradient everywhere, times the scale to unit area.
    slope = np.array([0.3, -0.7, 0.0])
    fields = np.stack([mesh.vertices @ slope, np.ones(81)], axis=1)
    found = mesh.gradient(fields, graph)
    assert found.shape == (81, 2, 2) and np.allclose(found[:, :, 1], 0, atol=1e-12)
    inside = np.einsum("vi,vik->vk", found[:, :, 0], graph.frames[:, :2])
    assert np.allclose(inside, 8 * slope, atol=1e-3)
    assert np.array_equal(mesh.gradient(fields[:, 0], graph), found[:, :, 0])


def test_diffusion_appends_gradients():
    mesh = rough()
    graph = mesh.gauge_graph()
    spectra = gt.Spectra.of(mesh, graph, COUNTS, DOUBLE)
    layer = gt.Diffusion("2x0 + 1x1", gradients=True, dtype=DOUBLE)
    assert layer.output == "2x0 + 3x1"
    x = random(30, 4)
    y = layer(x, spectra).detach()
    plain = gt.Diffusion("2x0 + 1x1", dtype=DOUBLE)
    plain.load_state_dict(layer.state_dict())
    expected = plain(x, spectra).detach()
    assert torch.allclose(y[:, :2], expected[:, :2])
    vectors = y[:, 2:].view(30, 2, 3)
    assert torch.allclose(vectors[:, :, 0], expected[:, 2:])
    gradient = mesh.gradient(expected[:, :2].numpy(), graph)
    assert np.allclose(vectors[:, :, 1:], gradient, atol=1e-9) and np.abs(gradient).max() > 0.1


@pytest.mark.parametrize("kind", ["3x0", "3x0 + 2x1 + 1x2"])
def test_blocks(kind):
    torch.manual_seed(3)
    block = gt.DiffusionBlock(kind).double()
    # Without biases of 0, which would put perceptrons on the kink of ReLU.
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    mesh, other = rough(), gemcnn.shapes.icosphere(1)
    graph = mesh.gauge_graph()
    spectra = gt.Spectra.of(mesh, graph, COUNTS, DOUBLE)
    x = random(30, block.input.dimension, requires_grad=True)
    names = [name for name, _ in block.named_parameters()]

    def run(x, *values):
        return torch.func.functional_call(copy.deepcopy(block), dict(zip(names, values)), (x, spectra))

    inputs = (x, *(p.detach().clone().requires_grad_() for p in block.parameters()))
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    # The frames do not matter, and meshes of a batch do not see each other.
    angles = torch.linspace(-3, 3, 30, dtype=DOUBLE)
    turned = gt.Spectra.of(mesh, graph.rotated(angles.numpy()), COUNTS, DOUBLE)
    matrices = rotation(block.input, angles)
    y = block(x, spectra)
    found = block(torch.einsum("vij,vj->vi", matrices, x), turned)
    assert torch.allclose(found, torch.einsum("vij,vj->vi", matrices, y), atol=1e-6)
    second = gt.Spectra.of(other, other.gauge_graph(), COUNTS, DOUBLE)
    z = random(42, block.input.dimension)
    together = block(torch.cat([x, z]), gt.Spectra.collate([spectra, second]))
    assert torch.allclose(together, torch.cat([y, block(z, second)]))
    # A dropped update leaves the mesh as it is; a kept one is larger.
    block.stochastic_depth = 0.5
    batch = gt.Spectra.collate([spectra] * 20)
    rows = (block(x.repeat(20, 1), batch) - x.repeat(20, 1)).view(20, *x.shape)
    shares = {round(share, 6) for share in (rows / (y - x)).flatten(1).mean(1).tolist()}
    assert shares == {0.0, 2.0}
    block.irrep_dropout = 0.999
    block(x, spectra).sum().backward()


@pytest.mark.parametrize(
    "task, model",
    [
        ("segmentation", {"kind": "surface", "head": 8}),
        ("segmentation", {"kind": "surface", "channels": [6, 0, 3], "eigenvectors": [12, 0, 70]}),
        ("segmentation", {"kind": "diffusion", "channels": 6, "eigenvectors": 12, "blocks": 2}),
        ("classification", {"kind": "surface", "pool": "max"}),
        ("regression", {"kind": "surface"}),
        ("vectors", {"kind": "surface"}),
        ("whole meshes", {"kind": "surface", "pool": "max"}),
        ("segmentation", {"kind": "attention", "channels": 4, "scalars": 8, "blocks": 2}),
        ("vectors", {"kind": "attention", "channels": 6, "scalars": 6, "heads": 3, "nonlinearity": "gated", "blocks": 1}),
        ("segmentation", {"kind": "hermes", "channels": 4, "scalars": 8, "blocks": 2, "head": 8}),
        ("classification", {"kind": "hermes", "channels": 3, "edge_layers": 1, "node_layers": 3, "blocks": 1}),
        ("vectors", {"kind": "hermes", "channels": 3, "nonlinearity": "norm", "batch_norm": False, "blocks": 1}),
        ("segmentation", {"kind": "unet", "channels": [2, 3, 4], "scalars": 8, "head": 8}),
        ("vectors", {"kind": "unet", "channels": [3, 2], "ratios": [0.3], "radii": [3.0], "weights": "area"}),
        ("classification", {"kind": "unet", "channels": [2, 3], "ratios": [0.3], "radii": [3.0]}),
        ("segmentation", {"kind": "unet", "channels": [2], "ratios": [], "radii": [], "scalars": 8}),
        ("segmentation", {"kind": "graph", "width": 5, "scalars": 8, "blocks": 2}),
        ("whole meshes", {"kind": "graph", "scalars": 8, "blocks": 1, "batch_norm": False}),
    ],
)
def test_models_of_the_command_are_modules(task, model, tmp_path):
    data = tmp_path / "data"
    write_data(data, 4)
    for index, path in enumerate(sorted(data.glob("*.npy"))):
        vertices = gemcnn.read(path.with_suffix(".ply")).vertices
        if task == "regression":
            np.save(path, vertices[:, 2] * 3 + 5)
        elif task == "vectors":
            np.save(path, np.cross(vertices, [0, 0, 1.0]))
        elif task in ("classification", "whole meshes"):
            path.unlink()
    if task == "vectors":
        (data / "dataset.toml").write_text('task = "regression"\n[target]\nfiles = "{name}.npy"\nvectors = true\n')
    if task == "classification":
        (data / "classes.csv").write_text("".join(f"{index}.ply,{'ab'[index % 2]}\n" for index in range(4)))
    if task == "whole meshes":
        (data / "values.csv").write_text("mesh,height,width\n" + "".join(f"{index}.ply,{index}.5,{7 - index}\n" for index in range(4)))
    sizes = {"blocks": 2, "channels": [6, 4, 3], "eigenvectors": [12, 8, 6]} if model["kind"] == "surface" else {}
    config = config_of(data, epochs=2) | {"model": sizes | model}
    config["task"] = "regression" if task in ("vectors", "whole meshes") else task
    trained = gemcnn.train(config, run_dir=tmp_path / "run", device="cpu", cache=False, on_epoch=None)
    mesh = rough()
    network = trained.to_torch()
    kinds = {"surface": gt.SurfaceNetwork, "diffusion": gt.SurfaceNetwork, "hermes": gt.HermesNetwork, "unet": gt.UNet}
    assert type(network) is kinds.get(model["kind"], gt.GemNetwork) and not network.training
    inputs = trained.torch_inputs(mesh)

    def check(model):
        found, predicted = network(*inputs).detach(), model.predict(mesh)
        if predicted.values is not None:
            assert np.allclose(found, predicted.values, atol=1e-4) and found.std() > 0
        else:
            probabilities = found.softmax(-1).view(predicted.probabilities.shape)
            assert np.allclose(probabilities, predicted.probabilities, atol=1e-5) and found.std() > 0
        return found

    before = check(trained)
    # Weights and statistics that change in PyTorch go back to the command.
    with torch.no_grad():
        for name, value in network.state_dict().items():
            value.mul_(1.1 if name not in ("shift", "scale") else 1.0)
    after = check(trained.save(tmp_path / "tuned.safetensors", network))
    assert (after - before).abs().max() > 1e-3


def test_other_models_are_refused(tmp_path):
    write_data(tmp_path / "data", 3)
    implicit = {"kind": "surface", "blocks": 1, "channels": [4, 2, 2], "diffusion": "implicit"}
    for index, model in enumerate([implicit, {"kind": "feast", "matrices": 2}]):
        config = config_of(tmp_path / "data", epochs=1) | {"model": model}
        run = tmp_path / f"run{index}"
        trained = gemcnn.train(config, run_dir=run, device="cpu", cache=False, on_epoch=None)
        with pytest.raises(gemcnn.TaskError):
            trained.to_torch()
    faces = tmp_path / "faces"
    write_data(faces, 3)
    for path in faces.glob("*.npy"):
        mesh = gemcnn.read(path.with_suffix(".ply"))
        np.save(path, np.arange(len(mesh.faces)) % 2)
    sizes = {"kind": "surface", "blocks": 1, "channels": [4, 2, 2], "eigenvectors": [8, 4, 4]}
    config = config_of(faces, epochs=1) | {"model": sizes}
    trained = gemcnn.train(config, run_dir=tmp_path / "run-faces", device="cpu", cache=False, on_epoch=None)
    assert trained.predict(mesh).classes.shape == (len(mesh.faces),)
    with pytest.raises(gemcnn.TaskError):
        trained.to_torch()


def test_modules_of_other_models_are_not_saved(tmp_path):
    write_data(tmp_path / "data", 3)
    config = config_of(tmp_path / "data", epochs=1)
    trained = gemcnn.train(config, run_dir=tmp_path / "run", device="cpu", cache=False, on_epoch=None)
    network = trained.to_torch()
    file = tmp_path / "new.safetensors"
    wrong = [torch.nn.Linear(2, 2), gt.GemNetwork("3x0", 2, blocks=1), gt.GemNetwork("3x0", 2), gt.SurfaceNetwork("3x0", 2)]
    for other in wrong:
        with pytest.raises(gemcnn.TaskError):
            trained.save(file, other)
    torch.nn.init.constant_(network.blocks[0].conv1.bias, torch.nan)
    with pytest.raises(gemcnn.TaskError):
        trained.save(file, network)
    assert not file.exists()


@pytest.mark.parametrize("kind, geometry", [("gem", gt.Graph), ("unet", gt.Levels), ("surface", gt.Spectra)])
def test_data_sets_for_loaders(kind, geometry, tmp_path):
    write_data(tmp_path / "data", 5)
    sizes = {"surface": {"eigenvectors": [8, 4, 4]}}.get(kind, {})
    config = config_of(tmp_path / "data") | {"model": {"kind": kind} | sizes}
    data = gt.DataSet(config, cache=False)
    assert len(data) == 4 and data.meshes.classes == ["0", "1"] and data.meshes.input == "3x0"
    loader = torch.utils.data.DataLoader(
        data, 2, num_workers=2, collate_fn=data.collate, multiprocessing_context="fork", timeout=120
    )
    network = {"gem": gt.GemNetwork, "unet": gt.UNet, "surface": gt.SurfaceNetwork}[kind]("3x0", 2)
    batches = list(loader)
    assert len(batches) == 2
    for features, place, labels in batches:
        assert type(place) is geometry and labels.dtype == torch.int64
        assert torch.isfinite(network(features, place, labels))
    alone = torch.cat([data[index][0] for index in range(4)])
    assert torch.equal(torch.cat([features for features, _, _ in batches]), alone)


def test_the_last_linear_layer_is_that_of_pytorch():
    torch.manual_seed(0)
    head = Head(6, 5, 8, 0.0).double()
    x, dy = random(20, 6, requires_grad=True), random(20, 5)
    first, second = head[0], head[-1]
    plain = torch.nn.functional.linear(
        torch.nn.functional.linear(x, first.weight, first.bias).relu(), second.weight, second.bias
    )
    values = [x, *head.parameters()]
    found, expected = (torch.autograd.grad(y, values, dy) for y in (head(x), plain))
    assert torch.allclose(head(x), plain) and all(map(torch.allclose, found, expected))
    # A result of many pages.
    wide = Head(4, 3000, 0, 0.0)
    x = torch.randn(3000, 4)
    assert torch.allclose(wide(x), torch.nn.functional.linear(x, wide[-1].weight, wide[-1].bias), atol=1e-5)


def classifier(rows=50, channels=5, classes=7):
    """Features, weight, bias and labels, some of which are not counted."""
    torch.manual_seed(4)
    labels = torch.randint(classes, (rows,))
    labels[::9] = -100
    return random(rows, channels), random(classes, channels), random(classes), labels


@pytest.mark.parametrize("weighted, smoothing", [(False, 0.0), (True, 0.0), (False, 0.2)])
def test_fused_loss_equals_the_plain_one(weighted, smoothing):
    x, weight, bias, labels = classifier()
    class_weights = torch.rand(7, dtype=DOUBLE) if weighted else None
    parts = [part.requires_grad_() for part in (x, weight, bias)]
    fused = gt.linear_cross_entropy(*parts, labels, class_weights=class_weights, label_smoothing=smoothing)
    found = torch.autograd.grad(3 * fused, parts)
    plain = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(*parts), labels, class_weights, label_smoothing=smoothing
    )
    assert torch.allclose(fused, plain, rtol=1e-12)
    for gradient, expected in zip(found, torch.autograd.grad(3 * plain, parts)):
        assert torch.allclose(gradient, expected, atol=1e-12)
    with torch.no_grad():
        again = gt.linear_cross_entropy(*parts, labels, class_weights=class_weights, label_smoothing=smoothing)
    assert torch.allclose(again, plain, rtol=1e-12)


def test_fused_loss_keeps_the_contract_of_operators():
    x, weight, bias, labels = classifier()
    parts = [part.requires_grad_() for part in (x, weight, bias)]
    assert torch.autograd.gradcheck(lambda *p: gt.linear_cross_entropy(*p, labels), parts, fast_mode=True)
    loss = gt.linear_cross_entropy(*parts, labels)
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        first.sum().backward()
    # Only the features, in single precision under autocast.
    leaf = x.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        single = gt.linear_cross_entropy(leaf.bfloat16(), weight.detach().float(), bias.detach().float(), labels)
    single.backward()
    assert single.dtype == torch.float32 and torch.isclose(single.double(), loss, rtol=1e-2)
    compiled = torch.compile(gt.linear_cross_entropy, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*parts, labels), parts)
    for gradient, expected in zip(found, torch.autograd.grad(loss, parts)):
        assert torch.equal(gradient, expected)


def test_labels_for_a_gpu_are_counted_there():
    """What is computed with operators of PyTorch on a GPU, where the host does not see the labels."""
    labels = torch.tensor([2, -1, 0, 2], dtype=torch.int32)
    marked, normaliser = _on_device(labels, None, 3)
    assert torch.equal(marked, labels) and normaliser.tolist() == [1 / 3] and normaliser.dtype == torch.float64
    weights = torch.tensor([0.25, 9.0, 0.5])
    assert _on_device(labels, weights, 3)[1].tolist() == [1 / 1.25]
    nothing = torch.full((4,), -1, dtype=torch.int32)
    assert _on_device(nothing, None, 3)[1].isfinite().all() and _on_device(nothing, weights, 3)[1].tolist() == [0]
    for wrong in (3, -2):
        with pytest.raises(RuntimeError):
            _on_device(torch.tensor([0, wrong], dtype=torch.int32), None, 3)


def test_bad_arguments_of_the_fused_loss():
    x, weight, bias, labels = classifier()
    empty = gt.linear_cross_entropy(x, weight, bias, torch.full_like(labels, -100))
    assert empty == 0
    for wrong in [
        (x[:, 1:], weight, bias, labels),
        (x, weight, bias[1:], labels),
        (x, weight, bias, labels[1:]),
        (x, weight, bias, labels.float()),
        (x, weight, bias, torch.full_like(labels, 7)),
        (x, weight, bias, torch.full_like(labels, -2)),
        (x, weight.float(), bias, labels),
    ]:
        with pytest.raises(gemcnn.OperatorError):
            gt.linear_cross_entropy(*wrong)
    with pytest.raises(gemcnn.OperatorError):
        gt.linear_cross_entropy(x, weight, bias, labels, label_smoothing=1.0)


def test_networks_compute_their_loss():
    mesh = rough()
    labels = torch.arange(30) % 3
    gem = gt.GemNetwork("3x0", 3, blocks=1, channels=2, scalars=4, head=5, dropout=0.0)
    surface = gt.SurfaceNetwork("3x0", 3, blocks=1, channels=(4, 2, 2))
    x = torch.from_numpy(mesh.features("xyz").values).float()
    for network, geometry in [(gem, gt.Graph.of(mesh)), (surface, gt.Spectra.of(mesh, mesh.gauge_graph(), COUNTS))]:
        loss = network(x, geometry, labels)
        expected = torch.nn.functional.cross_entropy(network(x, geometry), labels)
        assert torch.isclose(loss, expected, rtol=1e-4)
        loss.backward()
        assert all(p.grad is not None for p in network.parameters())
    with pytest.raises(gemcnn.TaskError):
        gt.SurfaceNetwork("3x0", "1x1", blocks=1, channels=(4, 2, 2))(x, geometry, labels)
