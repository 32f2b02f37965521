"""Maps between meshes."""

import numpy as np
import pytest

import gemcnn


@pytest.fixture(scope="module")
def pair():
    bodies, parts = gemcnn.shapes.bodies([1, 2], vertices=800, poses=0.3)
    other = gemcnn.Mesh(100 * bodies[1].vertices, bodies[1].faces)
    return bodies[0], other, parts, gemcnn.match(bodies[0], other, device="cpu", force=True)


def test_maps_of_a_pair(pair):
    a, b, parts, found = pair
    # The bodies have the same vertices.
    size = np.ptp(b.vertices, axis=0).max()
    for image in (found.map, found.inverse):
        assert image.shape == (800,)
        assert np.linalg.norm(b.vertices[image] - b.vertices, axis=1).mean() < 0.05 * size
    corners, weights = found.precise
    assert corners.shape == weights.shape == (800, 3)
    assert np.allclose(weights.sum(axis=1), 1) and weights.min() >= 0
    assert (corners[np.arange(800), weights.argmax(axis=1)] == found.map).all()
    size = len(found.functional_map)
    assert found.functional_map.shape == (size, size) and size > 100
    assert found.confidence.shape == (800,) and 0 <= found.confidence.min() <= found.confidence.max() <= 1
    assert found.verdict != "meaningless"
    # Meshes of so few vertices are subdivided.
    assert [len(notes) for notes in found.notes] == [1, 1]
    assert found.evidence["bijectivity"] > 0.9


def test_values_are_carried(pair):
    a, b, parts, found = pair
    carried = found.transfer(parts)
    assert carried.dtype == parts.dtype and (carried == parts).mean() > 0.85
    assert found.transfer(b.vertices).shape == (800, 3)
    # Normals are interpolated, and turn with the surface.
    normals = found.transfer(b.gauge_graph().frames[:, 2], "vectors")
    assert np.linalg.norm(normals, axis=1).max() < 1 + 1e-9
    assert (normals * a.gauge_graph().frames[:, 2]).sum(axis=1).mean() > 0.8
    for values, kind in [(parts[:-1], None), (1, None), (parts, "word"), (np.zeros((800, 2)), "vectors")]:
        with pytest.raises(gemcnn.GemcnnError):
            found.transfer(values, kind)


def test_maps_that_mean_nothing_are_refused(pair):
    a, sphere = pair[0], gemcnn.shapes.icosphere(3)
    with pytest.raises(gemcnn.TaskError):
        gemcnn.match(a, sphere, device="cpu")
    with pytest.warns(UserWarning):
        found = gemcnn.match(a, sphere, device="cpu", force=True)
    assert found.verdict == "meaningless" and found.doubts


def test_meshes_that_are_inside_out_are_turned(pair):
    a, b = pair[:2]
    turned = gemcnn.Mesh(b.vertices, b.faces[:, ::-1])
    found = gemcnn.match(a, turned, device="cpu", force=True)
    assert [len(notes) for notes in found.notes] == [1, 2]
    assert (found.map == pair[3].map).mean() > 0.95


def test_wrong_arguments_of_match():
    sphere = gemcnn.shapes.icosphere(2)
    for arguments in [
        {"b": 1},
        {"b": "none.ply"},
        {"b": gemcnn.Mesh(np.eye(3), [[0, 1, 2]])},
        {"model": "bodies-parts"},
        {"model": "none"},
        {"device": "word"},
        {"force": 1},
    ]:
        with pytest.raises((gemcnn.GemcnnError, OSError)):
            gemcnn.match(**({"a": sphere, "b": sphere, "device": "cpu"} | arguments))
