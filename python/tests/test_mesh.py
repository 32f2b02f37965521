"""Meshes and geometry in NumPy."""

import pickle

import numpy as np
import pytest

import gemcnn


@pytest.fixture(scope="module")
def sphere():
    return gemcnn.shapes.icosphere(3)


def test_arrays_are_views_and_survive_their_mesh():
    mesh = gemcnn.shapes.icosphere(2)
    vertices, faces = mesh.vertices, mesh.faces
    assert vertices.shape == (162, 3) and faces.shape == (320, 3)
    assert np.shares_memory(vertices, mesh.vertices) and np.shares_memory(faces, mesh.corners)
    assert not vertices.flags.writeable
    del mesh
    assert np.allclose(np.linalg.norm(vertices, axis=1), 1)


def test_meshes_of_arrays_and_lists():
    square = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0]]
    mixed = gemcnn.Mesh(square, [[0, 1, 2, 3], [1, 4, 2]])
    assert mixed.face_count == 2 and mixed.face_offsets.tolist() == [0, 4, 7]
    with pytest.raises(gemcnn.MeshError):
        mixed.faces
    assert mixed.triangulated().faces.shape == (3, 3)
    assert mixed.vertex_areas.sum() == pytest.approx(1.5)
    transposed = np.asfortranarray(np.array(square, dtype=np.float32))
    assert gemcnn.Mesh(transposed, np.array([[0, 1, 2]], dtype=np.int16)).vertices[4, 0] == 2
    assert gemcnn.Mesh(np.zeros((0, 3)), np.zeros((0, 3), int)).face_count == 0
    restored = pickle.loads(pickle.dumps(mixed))
    assert restored == mixed and restored != mixed.triangulated()
    for vertices, faces in [
        ([[0, 0, np.nan]], []),
        (square, [[0, 1, 9]]),
        (square, [[0, 1, -1]]),
        (square, [[0, 1]]),
        (square, [[0.5, 1, 2]]),
        ([[0, 0]], [[0, 0, 0]]),
        ([0, 0, 0], [[0, 0, 0]]),
    ]:
        with pytest.raises(gemcnn.MeshError):
            gemcnn.Mesh(vertices, faces)


def test_files(tmp_path, sphere):
    labels = np.arange(len(sphere.vertices))
    path = tmp_path / "sphere.ply"
    sphere.write(path, {"label": labels, "height": sphere.vertices[:, 2], "top": sphere.vertices[:, 2] > 0})
    file = gemcnn.read_file(path)
    assert file.mesh == gemcnn.read(str(path)) and file.format.lower().startswith("ply")
    assert np.array_equal(file.mesh.faces, sphere.faces)
    assert np.array_equal(file.attributes["label"], labels) and file.attributes["top"].dtype == np.uint8
    assert np.array_equal(file.attributes["height"], sphere.vertices[:, 2])
    with pytest.raises(gemcnn.MeshError):
        sphere.write(path, {"label": labels[:5]})
    with pytest.raises(gemcnn.FileError):
        sphere.write(tmp_path / "sphere.xyz")
    with pytest.raises(OSError):
        gemcnn.read(tmp_path / "none.ply")
    (tmp_path / "broken.ply").write_text("ply\nformat ascii 1.0\nelement vertex 3\nend_header\n0 0\n")
    with pytest.raises(gemcnn.GemcnnError):
        gemcnn.read(tmp_path / "broken.ply")


def test_report_and_repair(sphere):
    assert sphere.report()["sound"] and sphere.report()["genus"] == 0
    # Every triangle with its own corners, one of them reversed.
    corners = sphere.vertices[sphere.faces].reshape(-1, 3)
    faces = np.arange(len(corners)).reshape(-1, 3)
    faces[7] = faces[7, ::-1]
    soup = gemcnn.Mesh(corners, faces)
    report = soup.report()
    assert report["components"] == len(faces) and "weld" in report["suggested_repairs"]
    repaired = soup.repair("weld", "orient")
    assert len(repaired.mesh.vertices) == len(sphere.vertices)
    assert [(name, changed) for name, changed, _ in repaired.steps] == [
        ("weld", len(corners) - len(sphere.vertices)),
        ("orient", 1),
    ]
    assert np.array_equal(repaired.mesh.vertices, corners[repaired.vertex_origin])
    assert np.array_equal(repaired.mesh.vertices[repaired.vertex_map], corners)
    assert repaired.mesh.report()["sound"]
    with pytest.raises(gemcnn.MeshError):
        soup.repair("mend")


def test_gauge_graph(sphere):
    graph = sphere.gauge_graph()
    offsets, neighbours, reverse = graph.offsets, graph.neighbours, graph.reverse
    assert graph.vertex_count == 642 and graph.edge_count == len(neighbours) == offsets[-1]
    source, target = graph.edge_index
    assert np.array_equal(source[reverse], target) and np.array_equal(target[reverse], source)
    frames = graph.frames
    assert np.allclose(frames @ frames.transpose(0, 2, 1), np.eye(3))
    assert np.allclose(frames[:, 2], sphere.vertices, atol=0.02)
    edges = sphere.vertices[source] - sphere.vertices[target]
    planar = np.einsum("eik,ek->ei", frames[target][:, :2], edges)
    assert np.allclose(np.cos(np.arctan2(planar[:, 1], planar[:, 0]) - graph.theta), 1)
    assert np.allclose(np.linalg.norm(edges, axis=1), graph.radius)
    turn = graph.transport + graph.transport[reverse]
    assert np.allclose(np.cos(turn), 1)
    angles = np.linspace(-3, 3, graph.vertex_count)
    rotated = sphere.gauge_graph(gauge=angles)
    assert np.allclose(np.cos(rotated.theta - graph.theta + angles[target]), 1)
    assert np.allclose(rotated.theta, graph.rotated(angles).theta)
    restored = pickle.loads(pickle.dumps(rotated))
    assert np.array_equal(restored.transport, rotated.transport)
    again = gemcnn.GaugeGraph(offsets, neighbours, graph.theta, graph.transport, graph.radius, frames)
    assert np.array_equal(again.reverse, reverse)
    towards = neighbours[offsets[:-1] + 1]
    assert np.allclose(sphere.gauge_graph(gauge=towards).theta[offsets[:-1] + 1], 0)
    patch = sphere.gauge_graph(neighbourhood="patch", radius=0.3, limit=40, weights="jets")
    assert patch.edge_count > 2 * graph.edge_count and patch.coefficients.shape == (patch.edge_count, 5)
    for wrong in [
        {"neighbourhood": "two_ring"},
        {"neighbourhood": "radius"},
        {"weights": "none"},
        {"gauge": np.zeros(3)},
        {"gauge": np.zeros((642, 2))},
    ]:
        with pytest.raises(gemcnn.GeometryError):
            sphere.gauge_graph(**wrong)


def test_features(sphere):
    xyz = sphere.features("xyz")
    assert xyz.type == "3x0" and np.array_equal(xyz.values, sphere.vertices)
    both = sphere.features(["xyz", {"kind": "curvature", "times": [0.01]}, "hks"])
    assert both.type == "20x0 + 1x2" and both.values.shape == (642, 22)
    assert np.array_equal(both.values[:, :3], sphere.vertices)
    with pytest.raises(gemcnn.TaskError):
        sphere.features("colour")
    with pytest.raises(gemcnn.GeometryError):
        sphere.features("xyz", gemcnn.shapes.icosphere(1).gauge_graph())


def test_surface_operators():
    sphere = gemcnn.shapes.icosphere(4)
    # Spherical harmonics of the unit sphere, scaled to unit area: l (l + 1) * 4 pi.
    values, vectors = sphere.eigenpairs(9)
    expected = 4 * np.pi * np.array([0, 2, 2, 2, 6, 6, 6, 6, 6])
    assert np.allclose(values, expected, rtol=0.01, atol=1e-6)
    laplacian = sphere.laplacian()
    mass = laplacian.mass
    assert mass.sum() == pytest.approx(1)
    assert np.allclose(vectors.T @ (mass[:, None] * vectors), np.eye(9), atol=1e-8)
    applied = np.zeros_like(vectors)
    np.add.at(applied, laplacian.rows, laplacian.values[:, None] * vectors[laplacian.columns])
    assert np.allclose(applied, values * mass[:, None] * vectors, atol=1e-6)
    # Tangent fields: the lowest eigenvalue of the connection Laplacian of the unit sphere is 1, in three
    # complex dimensions.
    graph = sphere.gauge_graph()
    values, vectors = sphere.eigenpairs(3, order=1, graph=graph)
    assert np.allclose(values, 4 * np.pi, rtol=0.02) and np.iscomplexobj(vectors)
    connection = sphere.laplacian(1, graph)
    applied = np.zeros_like(vectors)
    np.add.at(applied, connection.rows, connection.values[:, None] * vectors[connection.columns])
    assert np.allclose(applied, values * mass[:, None] * vectors, atol=1e-6)
    field = sphere.diffuse(vectors[:, 0], 0.01, order=1, graph=graph)
    assert np.allclose(field, vectors[:, 0] / (1 + 0.01 * values[0]), atol=1e-7)
    assert np.allclose(sphere.diffuse(np.ones(len(mass)), 0.1), 1)


def test_operators_share_what_they_compute(sphere):
    graph = sphere.gauge_graph()
    operators = sphere.operators(graph)
    assert operators.mass.sum() == pytest.approx(1)
    for order in (0, 1):
        values, vectors = operators.eigenpairs(12, order)
        assert np.array_equal(vectors, sphere.eigenpairs(12, order, graph)[1])
        fewer, some = operators.eigenpairs(5, order)
        assert np.array_equal(fewer, values[:5]) and np.array_equal(some, vectors[:, :5])
        for ours, theirs in zip(operators.laplacian(order), sphere.laplacian(order, graph)):
            assert np.array_equal(ours, theirs)
    kinds = ["curvature", {"kind": "hks", "eigenvectors": 20}]
    operators.eigenpairs(150)
    assert np.allclose(operators.features(kinds).values, sphere.features(kinds, graph).values, atol=1e-6)
    field = sphere.vertices @ [1.0, 2.0, 3.0]
    slope = operators.gradient(field)
    assert np.array_equal(slope, sphere.gradient(field, graph))
    gradient = operators.gradient_matrix()
    applied = np.bincount(gradient.rows, gradient.values * field[gradient.columns], minlength=2 * len(field))
    assert np.allclose(applied.reshape(-1, 2), slope, atol=1e-12)
    assert np.array_equal(pickle.loads(pickle.dumps(operators)).mass, operators.mass)
    with pytest.raises(gemcnn.GeometryError, match="graph"):
        gemcnn.shapes.icosphere(1).operators(graph)
    for count, order in [(0, 0), (-1, 0), (3, -1), (2.5, 0), ("3", 0)]:
        with pytest.raises(gemcnn.GeometryError, match="count|order"):
            operators.eigenpairs(count, order)


def test_gradient_and_laplacian_in_scipy(sphere):
    pytest.importorskip("scipy")
    operators = sphere.operators()
    matrix = operators.gradient_matrix().to_scipy()
    assert matrix.shape == (2 * 642, 642)
    assert np.allclose((matrix @ sphere.vertices).reshape(-1, 2, 3), operators.gradient(sphere.vertices), atol=1e-12)
    stiffness, mass = operators.laplacian().to_scipy()
    assert abs(stiffness @ np.ones(642)).max() < 1e-9 and np.array_equal(mass.diagonal(), operators.mass)


def test_meshes_that_are_inside_out(sphere):
    report = sphere.report()
    assert report["sound"] and report["volume"] == pytest.approx(4 / 3 * np.pi, rel=0.01)
    turned = gemcnn.Mesh(sphere.vertices + 5, sphere.faces[:, ::-1])
    report = turned.report()
    assert report["volume"] == pytest.approx(-4 / 3 * np.pi, rel=0.01)
    assert report["inside_out"] and not report["sound"] and report["suggested_repairs"] == ["orient"]
    repaired = turned.repair()
    assert repaired.mesh.report()["sound"] and repaired.steps == [("orient", 1280, 1280)]
    # A cavity faces inwards, and an open mesh has no inside.
    hollow = gemcnn.Mesh(
        np.concatenate([sphere.vertices, 0.5 * sphere.vertices]), np.concatenate([sphere.faces, 642 + sphere.faces[:, ::-1]])
    )
    assert hollow.report()["sound"] and hollow.report()["volume"] == pytest.approx(7 / 6 * np.pi, rel=0.01)
    half = gemcnn.Mesh(sphere.vertices, sphere.faces[:600])
    assert half.report()["volume"] is None and not half.report()["inside_out"]


def test_geodesics(sphere):
    distances = sphere.geodesics(0)
    assert distances.shape == (642,) and distances[0] == 0
    angle = np.arccos(np.clip(sphere.vertices @ sphere.vertices[0], -1, 1))
    assert np.all(np.abs(distances - angle) <= 0.025 * angle)
    assert sphere.geodesics([0, 5]).shape == (2, 642)
    with pytest.raises(gemcnn.GeometryError):
        sphere.geodesics(642)


def test_hierarchy(sphere):
    levels = sphere.hierarchy([0.25, 0.25], [0.5, 1.0], neighbour_limit=12)
    assert [len(level.vertices) for level in levels] == [642, 161, 41]
    assert levels[0].clusters is None
    clusters = levels[1].clusters
    assert len(clusters) == 161 and np.bincount(clusters.cluster_of).min() > 0
    assert np.array_equal(clusters.cluster_of[clusters.members], np.repeat(np.arange(161), np.diff(clusters.offsets)))
    again = pickle.loads(pickle.dumps(clusters))
    assert np.array_equal(again.transport, clusters.transport)
    with pytest.raises(gemcnn.GeometryError):
        sphere.hierarchy([2.0], [0.5])


def test_remeshing(sphere):
    half = sphere.simplify(300)
    assert abs(len(half.mesh.vertices) - 300) <= 2
    carried = half.carry_values(sphere.vertices)
    assert np.linalg.norm(carried - half.mesh.vertices, axis=1).max() < 0.05
    assert np.allclose(half.weights.sum(1), 1)
    labels = (sphere.vertices[:, 2] > 0).astype(int)
    found = half.carry_labels(labels)
    assert np.mean(found == (half.mesh.vertices[:, 2] > 0)) > 0.95
    even = sphere.remesh("isotropic", size={"ratio": 2.0})
    assert 1000 < len(even.mesh.vertices) < 1600
    with pytest.raises(gemcnn.MeshError):
        sphere.remesh("isotropic", colour=1)


def test_remeshings_are_chained(sphere):
    steps = [("isotropic", {"size": {"ratio": 0.6}}), ("subdivide", {}), ("jitter", {"amount": 0.5})]
    chain, alone = sphere.simplify(300), sphere.simplify(300)
    values = np.stack([sphere.vertices[:, 0], np.cos(3 * sphere.vertices[:, 1])], axis=1)
    expected = alone.carry_values(values)
    for kind, settings in steps:
        alone = alone.mesh.remesh(kind, seed=1, **settings)
        expected = alone.carry_values(expected)
        chain = chain.remesh(kind, seed=1, **settings)
        assert chain.mesh == alone.mesh
        assert np.allclose(chain.weights.sum(1), 1) and chain.corners.max() < 642
        assert np.allclose(chain.carry_values(values), expected, atol=1e-12)
    labels = chain.carry_labels(sphere.vertices[:, 2] > 0)
    assert np.mean(labels == (chain.mesh.vertices[:, 2] > 0)) > 0.9
    with pytest.raises(gemcnn.MeshError):
        gemcnn.shapes.icosphere(1).simplify(20).then(sphere.simplify(300))
    with pytest.raises(gemcnn.MeshError):
        chain.carry_values(np.zeros(5))


def test_shapes():
    assert gemcnn.shapes.grid(4, 5, quads=True).faces.shape == (12, 4)
    assert gemcnn.shapes.torus((12, 6)).report()["genus"] == 1
    assert gemcnn.shapes.capsule().report()["closed"]
    assert gemcnn.shapes.rough_grid(6, 6, 1.0, seed=3) == gemcnn.shapes.rough_grid(6, 6, 1.0, seed=3)


def test_bodies():
    bodies, parts = gemcnn.shapes.bodies([0, 3], vertices=500)
    assert len(bodies) == 2 and len(bodies[1].vertices) == len(parts) == 500 and parts.max() > 5
    assert np.array_equal(bodies[0].faces, bodies[1].faces)
    assert gemcnn.shapes.bodies([3], vertices=500)[0] == bodies[1:]


def test_other_libraries_by_duck_typing(sphere):
    class Trimesh:
        vertices, faces = sphere.vertices, sphere.faces.astype(np.int64)

    assert gemcnn.from_trimesh(Trimesh()) == sphere
