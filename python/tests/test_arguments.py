"""Every public function with everything: an exception of Python names the argument. Nothing panics.

`GEMCNN_FUZZ_INPUTS=100000` calls each function that often with several random arguments.
"""

import itertools
import math
import os
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

import gemcnn

MESH = gemcnn.shapes.icosphere(1)
GRAPH = MESH.gauge_graph()
COUNT = len(MESH.vertices)
FIELD = np.arange(COUNT, dtype=float)
CHAIN = MESH.simplify(20)
ANYTHING = [
    None,
    True,
    -1,
    0,
    1,
    3,
    2**31,
    2**40,
    2**64,
    -(2**70),
    0.5,
    -0.0,
    1e-320,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
    1j,
    "",
    "word",
    "\0",
    "\ud800",
    "1x0 + 2x1",
    b"x",
    object(),
    object,
    len,
    ...,
    [],
    (),
    [[]],
    [1, [2]],
    [None],
    ["a", 1],
    [0.5, -1],
    [[0, 1, 2], [0, 1]],
    {},
    {"kind": "hks"},
    {1: 2},
    set("ab"),
    range(3),
    iter([1]),
    np.int64(3),
    np.uint8(2),
    np.float32(0.5),
    np.bool_(True),
    np.array(3),
    np.array(2.5),
    np.zeros(0),
    np.zeros((0, 3)),
    np.zeros((3, 0)),
    np.zeros((2, 3, 4)),
    np.full(COUNT, np.nan),
    np.full(COUNT, 2**63 - 1),
    np.full(COUNT, -1),
    np.zeros(COUNT, dtype=">f8"),
    np.zeros(COUNT, dtype=complex),
    np.zeros(COUNT, dtype=np.float16),
    np.zeros(COUNT, dtype=object),
    np.zeros(COUNT, dtype="datetime64[s]"),
    np.zeros(COUNT, dtype=[("a", float)]),
    np.full(COUNT, "a"),
    np.arange(2 * COUNT)[::2],
    np.arange(COUNT)[::-1],
    np.asfortranarray(MESH.vertices),
    np.zeros((COUNT, 3), dtype=bool),
    np.ma.masked_array(np.zeros(COUNT), mask=True),
    memoryview(b"abc"),
    SimpleNamespace(vertices=1, faces="a"),
    SimpleNamespace(pos=None, face=None),
    SimpleNamespace(pos=[1, 2], face=3),
    MESH,
    gemcnn.shapes.icosphere(2),
    GRAPH,
    gemcnn.Clusters(2, [0, 1], [0.0, 0.0]),
]


def everything_of_torch():
    torch = pytest.importorskip("torch")
    from gemcnn import torch as gt

    graph, other = gt.Graph.of(MESH), gt.Graph.of(gemcnn.shapes.icosphere(2), torch.float64)
    values = [
        torch.zeros(0),
        torch.zeros(COUNT, 3),
        torch.zeros(COUNT, 3).half(),
        torch.zeros(COUNT, 3, dtype=torch.float64),
        torch.zeros(COUNT, 3, dtype=torch.int64),
        torch.zeros(COUNT, 3, dtype=torch.complex64),
        torch.zeros(COUNT, 3, dtype=torch.bool),
        torch.zeros(COUNT, 3, device="meta"),
        torch.zeros(COUNT, 3).to_sparse(),
        torch.zeros(COUNT, 3, requires_grad=True),
        torch.zeros(3, COUNT).T,
        torch.zeros(COUNT, 1).expand(COUNT, 3),
        torch.full((COUNT, 3), math.nan),
        torch.arange(COUNT),
        torch.tensor(3),
        torch.nn.Parameter(torch.zeros(3)),
        torch.float32,
        torch.float16,
        torch.device("cpu"),
        torch.device("meta"),
        torch.nn.Linear(3, 3),
        graph,
        other,
        graph._replace(neighbours=graph.neighbours[:0]),
        graph._replace(neighbours=graph.neighbours.long()),
        graph._replace(offsets=graph.offsets[:0]),
        graph._replace(offsets=-graph.offsets),
        graph._replace(phases=graph.phases[:, :2]),
    ]
    return gt, torch, graph, values


def check(name, function, arguments, named):
    """Calls a function. What it raises is an exception for the caller, and names one of the arguments in question."""
    try:
        function(**arguments)
    except gemcnn.InternalError:
        raise
    except Exception as problem:
        text = f"{type(problem).__name__}: {problem}"
        ours = isinstance(problem, (gemcnn.GemcnnError, TypeError, OSError))
        words = {word for argument in named for word in (argument, argument.rstrip("s"))}
        if not (ours and any(re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE) for word in words)):
            return f"{name}: {text}"
    return None


def attack(calls, values, synonyms=(), pairs=40):
    """Each argument of each call with each value, and some arguments at once. Gives the unhelpful exceptions."""
    pairs = int(os.environ.get("GEMCNN_FUZZ_INPUTS", pairs))
    chance, found = random.Random(0), []
    for name, function, good in calls:
        function(**good)
        for argument in good:
            for value in values:
                words = [argument, *dict(synonyms).get(argument, ())]
                problem = check(f"{name}({argument}={value!r:.40})", function, good | {argument: value}, words)
                found += [problem] if problem else []
        for _ in range(pairs if len(good) > 1 else 0):
            chosen = {argument: chance.choice(values) for argument in good if chance.random() < 0.6}
            words = [*chosen, *(word for argument in chosen for word in dict(synonyms).get(argument, ()))]
            problem = check(f"{name}({chosen!r:.90})", function, good | chosen, words)
            found += [problem] if problem else []
    return found


SYNONYMS = {
    "mesh": ["vertices", "faces", "pos", "data", "surface", "vertex"],
    "graph": ["mesh", "vertices"],
    "vertices": ["coordinate", "index", "vertex", "face"],
    "faces": ["index", "face", "vertex", "vertices"],
    "indices": ["body"],
    "data": ["pos", "face", "coordinate"],
    "kinds": ["kind", "feature", "eigenvectors", "times"],
    "settings": ["kind", "remesh"],
    "radii": ["radius", "minor_radius"],
    "radius": ["neighbour"],
    "count": ["cluster"],
    "cluster_of": ["cluster", "transport"],
    "neighbours": ["offsets", "theta"],
    "gauge": ["reference neighbours"],
    "rows": ["vertices"],
    "columns": ["vertices"],
    "bands": ["vertices"],
    "segments": ["vertices"],
    "attributes": ["kind"],
    "path": ["file", "directory", "is no", "ending"],
    "neighbourhood": ["radius", "neighbour"],
}


def numpy_calls(tmp_path):
    shapes, operators, view = gemcnn.shapes, MESH.operators(GRAPH), gemcnn.view(MESH)
    arrays = {name: getattr(GRAPH, name) for name in ("offsets", "neighbours", "theta", "transport", "radius", "frames")}
    names = ("neighbourhood", "radius", "limit", "normals", "weights", "gauge", "estimate_normals")
    geometry = dict(zip(names, ("radius", 0.5, 9, "area", "count", None, True)))
    path = tmp_path / "mesh.ply"
    MESH.write(path)
    return [
        ("Mesh", gemcnn.Mesh, {"vertices": MESH.vertices, "faces": MESH.faces}),
        ("repair", lambda repairs: MESH.repair(repairs), {"repairs": "weld"}),
        ("remesh", MESH.remesh, {"kind": "subdivide", "seed": 1}),
        ("remesh", lambda amount: MESH.remesh("jitter", amount=amount), {"amount": 0.1}),
        ("remesh", lambda size: MESH.remesh("simplify", size=size), {"size": {"vertices": 20}}),
        ("simplify", MESH.simplify, {"vertices": 20}),
        ("geodesics", MESH.geodesics, {"sources": [0, 1]}),
        ("gauge_graph", MESH.gauge_graph, geometry),
        ("hierarchy", MESH.hierarchy, {"ratios": [0.5], "radii": [0.5], "neighbour_limit": 5}),
        ("operators", MESH.operators, {"graph": GRAPH}),
        ("features", MESH.features, {"kinds": "hks", "graph": GRAPH}),
        ("features", lambda times: MESH.features({"kind": "hks", "times": times}, GRAPH), {"times": 2}),
        ("laplacian", MESH.laplacian, {"order": 1, "graph": GRAPH}),
        ("eigenpairs", MESH.eigenpairs, {"count": 3, "order": 1, "graph": GRAPH}),
        ("gradient", MESH.gradient, {"field": FIELD, "graph": GRAPH}),
        ("diffuse", MESH.diffuse, {"field": FIELD, "time": 0.1, "order": 1, "graph": GRAPH}),
        ("operators.features", operators.features, {"kinds": "wks"}),
        ("operators.laplacian", operators.laplacian, {"order": 0}),
        ("operators.eigenpairs", operators.eigenpairs, {"count": 3, "order": 0}),
        ("operators.gradient", operators.gradient, {"field": FIELD}),
        ("operators.diffuse", operators.diffuse, {"field": FIELD, "time": 0.1, "order": 0}),
        ("write", lambda path: MESH.write(path), {"path": path}),
        ("write", lambda attributes: MESH.write(path, attributes), {"attributes": {"a": FIELD}}),
        ("write", lambda a: MESH.write(path, {"a": a}), {"a": FIELD}),
        ("then", CHAIN.then, {"later": CHAIN.mesh.simplify(10)}),
        ("carry_values", CHAIN.carry_values, {"values": FIELD}),
        ("carry_labels", CHAIN.carry_labels, {"labels": FIELD}),
        ("read", gemcnn.read, {"path": path}),
        ("read_file", gemcnn.read_file, {"path": path}),
        ("from_trimesh", gemcnn.from_trimesh, {"mesh": MESH}),
        ("GaugeGraph", gemcnn.GaugeGraph, arrays),
        ("rotated", GRAPH.rotated, {"angles": FIELD}),
        ("Clusters", gemcnn.Clusters, {"count": 2, "cluster_of": [0, 1, 1], "transport": [0, 1, 2]}),
        ("icosphere", shapes.icosphere, {"subdivisions": 1}),
        ("grid", shapes.grid, {"rows": 3, "columns": 4, "quads": True}),
        ("rough_grid", shapes.rough_grid, {"rows": 3, "columns": 4, "roughness": 1.0, "seed": 1, "quads": True}),
        ("torus", shapes.torus, {"segments": (5, 4), "radii": (1.0, 0.3), "quads": True}),
        ("capsule", shapes.capsule, {"segments": 5, "bands": (2, 3), "radius": 0.5, "length": 1.0, "quads": True}),
        ("bodies", shapes.bodies, {"indices": [0], "vertices": 500, "seed": 0, "people": 1.0, "poses": 1.0, "variety": 0.5}),
        ("view", lambda mesh: gemcnn.view(mesh), {"mesh": MESH}),
        ("view", lambda **given: gemcnn.view(MESH, **given), {"scalar": FIELD, "vectors": MESH.vertices, "title": "a"}),
        (
            "view",
            lambda **given: gemcnn.view(MESH, labels=np.zeros(COUNT, int), **given),
            {"classes": ["a"], "names": ["a"], "up": "z", "frames": True, "height": 300},
        ),
        ("view", lambda labels: gemcnn.view(MESH, labels=labels), {"labels": np.zeros(COUNT, int)}),
        ("save", view.save, {"path": tmp_path / "page.html"}),
        ("set_num_threads", gemcnn.set_num_threads, {"threads": gemcnn.get_num_threads()}),
    ]


def test_everything_with_everything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threads = gemcnn.get_num_threads()
    try:
        found = attack(numpy_calls(tmp_path), ANYTHING, SYNONYMS.items())
    finally:
        gemcnn.set_num_threads(threads)
    assert not found, "\n".join(sorted(set(found)))


def runs_calls(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for index in range(4):
        mesh = gemcnn.shapes.icosphere(1)
        gemcnn.Mesh(mesh.vertices * [1, 1, 1 + index], mesh.faces).write(data / f"{index}.ply")
        np.save(data / f"{index}.npy", (mesh.vertices[:, 2] > 0).astype(int))
    (data / "test.txt").write_text("3\n")
    network = {"kind": "gem", "blocks": 1, "channels": 2, "scalars": 2, "head": 2}
    config = {"task": "segmentation", "data": {"folder": data}, "features": "xyz", "model": network}
    config["training"] = {"epochs": 1, "validation": 0.0}
    runs, quiet = itertools.count(), {"device": "cpu", "cache": False, "on_epoch": None}

    def train(**given):
        return gemcnn.train(config, **{"run_dir": tmp_path / f"run{next(runs)}"} | quiet | given)

    def with_settings(table, **given):
        return gemcnn.DataSet(config | {table: config[table] | given}, cache=False)

    model = train()
    rates = {"rate": 0.1, "epochs": 2, "batch": 2, "seed": 1, "weight_decay": 0.1, "validation": 0.2, "patience": 3}
    return [
        ("train", train, quiet | {"resume": False}),
        ("DataSet", gemcnn.DataSet, {"config": config, "part": "train", "cache": False}),
        ("DataSet", lambda data: gemcnn.DataSet(config | {"data": data}, cache=False), {"data": config["data"]}),
        ("DataSet", lambda task: gemcnn.DataSet(config | {"task": task}, cache=False), {"task": "segmentation"}),
        ("DataSet", lambda features: gemcnn.DataSet(config | {"features": features}, cache=False), {"features": "hks"}),
        ("training", lambda **given: with_settings("training", **given), rates),
        ("model", lambda **given: with_settings("model", **given), {"blocks": 1, "channels": 2, "dropout": 0.1}),
        ("load", gemcnn.load, {"run": model.path, "device": "cpu"}),
        ("predict", model.predict, {"mesh": MESH}),
        ("prepare", model.prepare, {"mesh": MESH}),
        ("evaluate", model.evaluate, {"data": data, "part": "test", "rotation": 1, "cache": False}),
        ("save", lambda path: model.save(path), {"path": tmp_path / "saved.safetensors"}),
    ]


def test_everything_with_everything_of_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMCNN_CACHE", str(tmp_path / "cache"))
    files = ["file", "directory", "path", "folder", "run", "model"]
    synonyms = SYNONYMS | {
        "config": ["task", "toml", *files],
        "data": files,
        "run": files,
        "path": files,
        "mesh": [*files, "vertices"],
        "run_dir": files,
        "resume": files,
        "on_epoch": ["object"],
        "features": ["feature", "kind"],
    }
    # What is small is trained and predicted in no time, what is large is not.
    values = [value for value in ANYTHING if not (isinstance(value, str) and value == "word")]
    found = attack(runs_calls(tmp_path), values, synonyms.items(), pairs=10)
    assert not found, "\n".join(sorted(set(found)))


def torch_calls(gt, torch, graph):
    mesh, spectra = MESH, gt.Spectra.of(MESH, GRAPH, (6, 4))
    clusters = gt.Clusters.of(gemcnn.Clusters(2, np.arange(COUNT) % 2, FIELD))
    levels = MESH.hierarchy([0.5], [0.7])
    scalars, fields = torch.zeros(COUNT, 3), torch.zeros(COUNT, 6)
    labels, parts = torch.arange(COUNT) % 5, graph._asdict()
    reversed = ("reversed_phases", "reversed_radius", "reversed_coefficients")
    types = {"input": "3x0", "output": "2x(0,1)"}
    layers = [
        (gt.GaugeConv("3x0", "2x(0,1)"), scalars),
        (gt.GaugeAttention("3x0", "2x(0,1)"), scalars),
        (gt.GaugeMessages("3x0", "2x(0,1)"), scalars),
        (gt.MessageBlock("3x0", "2x(0,1)", hidden="2x(0,1)"), scalars),
        (gt.ResidualBlock("3x0", "2x(0,1)", batch_norm=True), scalars),
        (gt.EquivariantLinear("3x0", "2x0"), scalars),
        (gt.RegularNonlinearity("2x(0,1)"), fields),
        (gt.NormNonlinearity("2x(0,1)"), fields),
        (gt.GatedNonlinearity("2x0 + 1x1"), torch.zeros(COUNT, 5)),
        (gt.BatchNorm("2x(0,1)"), fields),
        (gt.Sequential(gt.GaugeConv("3x0", "2x0")), scalars),
        (gt.GemNetwork("3x0", 4, blocks=1, channels=2), scalars),
    ]
    return [
        *((type(layer).__name__, layer, {"x": x, "graph": graph}) for layer, x in layers),
        ("Diffusion", gt.Diffusion("3x0"), {"x": scalars, "spectra": spectra}),
        ("DiffusionBlock", gt.DiffusionBlock("3x0"), {"x": scalars, "spectra": spectra}),
        ("TransportPool", gt.TransportPool("3x0"), {"x": scalars, "clusters": clusters}),
        ("TransportUnpool", gt.TransportUnpool("3x0"), {"x": scalars[:2], "clusters": clusters}),
        ("global_mean", gt.global_mean, {"x": scalars, "graph": graph}),
        ("global_max", gt.global_max, {"x": scalars, "graph": graph}),
        ("Graph.of", lambda source, dtype: gt.Graph.of(source, dtype), {"source": MESH, "dtype": torch.float32}),
        ("Graph.collate", lambda graphs: gt.Graph.collate(graphs), {"graphs": [graph, graph]}),
        ("Graph.from_parts", gt.Graph.from_parts, {name: parts[name] for name in parts if name not in reversed}),
        ("Clusters.of", gt.Clusters.of, {"source": gemcnn.Clusters(1, [0], [0]), "dtype": torch.float32}),
        ("Clusters.collate", gt.Clusters.collate, {"parts": [clusters]}),
        ("Levels.of", gt.Levels.of, {"levels": levels, "dtype": torch.float32}),
        ("Levels.collate", gt.Levels.collate, {"parts": [gt.Levels.of(levels)]}),
        ("Spectra.of", gt.Spectra.of, {"mesh": mesh, "graph": GRAPH, "counts": (3, 2), "dtype": torch.float64}),
        ("Spectra.collate", gt.Spectra.collate, {"parts": [spectra]}),
        ("FeatureType", gt.FeatureType, {"text": "1x0"}),
        (
            "linear_cross_entropy",
            gt.linear_cross_entropy,
            {
                "x": scalars,
                "weight": torch.zeros(5, 3),
                "bias": torch.zeros(5),
                "labels": labels,
                "class_weights": torch.ones(5),
                "label_smoothing": 0.1,
                "ignore_index": -100,
            },
        ),
        ("GaugeConv", gt.GaugeConv, types | {"rings": 2, "max_radius": 1.0, "aggregation": "mean", "degree": 6.0}),
        ("GaugeAttention", gt.GaugeAttention, types | {"heads": 1}),
        ("GaugeMessages", gt.GaugeMessages, types | {"layers": 1, "samples": 5, "activation": "relu"}),
        ("EquivariantLinear", gt.EquivariantLinear, types),
        (
            "RegularNonlinearity",
            gt.RegularNonlinearity,
            {"type": "2x0", "samples": 3, "activation": "relu", "output_band_limit": 1},
        ),
        ("NormNonlinearity", gt.NormNonlinearity, {"type": "2x0", "activation": "relu", "epsilon": 1e-8}),
        ("GatedNonlinearity", gt.GatedNonlinearity, {"type": "2x0", "activation": "relu"}),
        ("BatchNorm", gt.BatchNorm, {"type": "2x0", "per": "irrep", "epsilon": 1e-5, "momentum": 0.1}),
        ("TransportPool", gt.TransportPool, {"type": "2x0"}),
        ("Diffusion", gt.Diffusion, {"type": "2x0", "times": (0.1, 0.2)}),
    ]


TORCH_SYNONYMS = SYNONYMS | {
    "x": ["graph", "features", "rows", "weight"],
    "text": ["type"],
    "type": ["orders"],
    "graph": ["mesh", "x", "vertices", *("offsets neighbours reverse phases radius coefficients").split()],
    "source": ["mesh", "graph", "vertices", "face", "pos"],
    "weight": ["bias", "labels"],
    "parts": ["clusters"],
    "input": ["type", "orders"],
    "output": ["type", "orders", "message"],
    "clusters": ["offsets", "members", "cluster_of", "phases"],
}


def test_everything_with_everything_in_torch():
    gt, torch, graph, values = everything_of_torch()
    torch.manual_seed(0)
    found = attack(torch_calls(gt, torch, graph), ANYTHING + values, TORCH_SYNONYMS.items(), pairs=10)
    assert not found, "\n".join(sorted(set(found)))
