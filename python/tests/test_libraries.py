"""Exchange of meshes with other libraries, where they are installed."""

import numpy as np
import pytest

import gemcnn

MIXED = gemcnn.Mesh(
    [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0.5]], [[0, 1, 2, 3], [1, 4, 2]]
)


def test_trimesh():
    trimesh = pytest.importorskip("trimesh")
    sphere = gemcnn.shapes.icosphere(2)
    found = sphere.to_trimesh()
    assert isinstance(found, trimesh.Trimesh) and found.is_watertight
    assert found.area == pytest.approx(sphere.vertex_areas.sum())
    assert gemcnn.from_trimesh(found) == sphere
    # Two vertices at the same place stay two.
    split = gemcnn.Mesh(np.repeat(sphere.vertices, 2, axis=0), 2 * sphere.faces.astype(np.int64))
    assert len(split.to_trimesh().vertices) == 2 * len(sphere.vertices)
    assert gemcnn.from_trimesh(MIXED.to_trimesh()) == MIXED.triangulated()
    box = gemcnn.from_trimesh(trimesh.creation.box())
    assert len(box.vertices) == 8 and box.face_count == 12 and box.report()["sound"]


def test_pyvista():
    pyvista = pytest.importorskip("pyvista")
    sphere = gemcnn.shapes.icosphere(2)
    found = sphere.to_pyvista()
    assert isinstance(found, pyvista.PolyData) and found.n_cells == sphere.face_count
    assert np.array_equal(found.points, sphere.vertices)
    assert np.array_equal(found.faces.reshape(-1, 4)[:, 1:], sphere.faces)
    assert found.area == pytest.approx(sphere.vertex_areas.sum())
    # Polygons of several sizes stay what they are.
    mixed = MIXED.to_pyvista()
    assert mixed.faces.tolist() == [4, 0, 1, 2, 3, 3, 1, 4, 2]
    assert mixed.area == pytest.approx(MIXED.vertex_areas.sum())


def test_torch_geometric():
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Batch, Data
    from torch_geometric.transforms import FaceToEdge

    sphere = gemcnn.shapes.icosphere(2)
    found = sphere.to_pyg()
    assert isinstance(found, Data) and found.num_nodes == 162 and list(found.face.shape) == [3, 320]
    back = gemcnn.from_pyg(found)
    assert np.array_equal(back.faces, sphere.faces) and np.allclose(back.vertices, sphere.vertices, atol=1e-7)
    # Its edges are those of our graph.
    edges = FaceToEdge()(found.clone()).edge_index
    graph = sphere.gauge_graph()
    rows = np.repeat(np.arange(162), np.diff(graph.offsets))
    assert {*zip(*edges.tolist())} == {*zip(rows.tolist(), graph.neighbours.tolist())}
    batch = Batch.from_data_list([found, MIXED.to_pyg()])
    assert batch.num_nodes == 167 and batch.face.shape[1] == 323
    assert gemcnn.from_pyg(batch[1]) == MIXED.triangulated()
