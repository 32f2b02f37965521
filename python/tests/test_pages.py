"""Interactive pages."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import gemcnn


def described(view):
    """What the page knows of its meshes and classes."""
    text = re.search(r'<script id="description"[^>]*>(.*?)</script>', view.html, re.S)
    return json.loads(text.group(1))


def test_fields_of_a_mesh():
    mesh = gemcnn.shapes.icosphere(2)
    height = mesh.vertices[:, 2]
    view = gemcnn.view(
        mesh,
        scalar={"height": height, "face": np.arange(320)},
        vectors=mesh.vertices,
        labels={"truth": height > 0, "prediction": np.where(height > 0.5, 1, -1)},
        classes=["low", "high <b>"],
        names=["a sphere"],
        up="z",
    )
    page = described(view)
    (entry,) = page["meshes"]
    fields = {field["name"]: field for field in entry["fields"]}
    assert page["title"] == "a sphere" and page["up"] == "z" and entry["vertices"] == 162
    assert {name: (field["kind"], field["on"], field["role"]) for name, field in fields.items()} == {
        "height": ("numbers", "vertex", None),
        "face": ("numbers", "face", None),
        "vectors": ("vectors", "vertex", None),
        "truth": ("labels", "vertex", "truth"),
        "prediction": ("labels", "vertex", "prediction"),
    }
    tables = [page["classes"][fields[name]["table"]]["names"] for name in ("truth", "prediction")]
    assert tables == [["low", "high <b>"]] * 2
    assert entry["frames"] is not None and described(gemcnn.view(mesh, frames=False))["meshes"][0]["frames"] is None


def test_several_meshes_share_labels():
    sphere, torus = gemcnn.shapes.icosphere(1), gemcnn.shapes.torus((6, 5))
    page = described(gemcnn.view(sphere, torus, labels=[np.full(42, 7), np.arange(30) % 3 - 1]))
    assert [mesh["name"] for mesh in page["meshes"]] == ["mesh 1", "mesh 2"]
    assert [mesh["fields"][0]["table"] for mesh in page["meshes"]] == [0, 0]
    assert page["classes"][0]["names"] == ["-1", "0", "1", "7"]
    alone = described(gemcnn.view(sphere, torus, labels=[None, np.arange(30)]))
    assert [len(mesh["fields"]) for mesh in alone["meshes"]] == [0, 1]
    many = gemcnn.shapes.icosphere(3)
    assert described(gemcnn.view(many, labels=np.arange(642)))["meshes"][0]["fields"][0]["kind"] == "numbers"


def test_bad_fields_are_named():
    mesh = gemcnn.shapes.icosphere(1)
    for arguments in [
        {"scalar": np.zeros(41)},
        {"vectors": np.zeros((42, 2))},
        {"labels": np.zeros(42)},
        {"labels": np.full(42, 2), "classes": ["a", "b"]},
        {"scalar": {"a": np.zeros(42)}, "labels": {"a": np.zeros(42, int)}},
        {"names": ["a", "b"]},
        {"up": "x"},
    ]:
        with pytest.raises(gemcnn.MeshError):
            gemcnn.view(mesh, **arguments)
    with pytest.raises(gemcnn.MeshError):
        gemcnn.view()
    with pytest.raises(gemcnn.MeshError):
        gemcnn.view(mesh, mesh, scalar={"a": np.zeros(42)})


def test_notebooks_show_the_page_in_a_frame(tmp_path):
    view = gemcnn.view(gemcnn.shapes.icosphere(1), title="<&\" title", height=321)
    frame = view._repr_html_()
    attributes = dict(re.findall(r'(\w+)="([^"]*)"', frame[: frame.index("srcdoc")]))
    assert attributes["sandbox"] == "allow-scripts allow-downloads" and "height:321px" in attributes["style"]
    page = re.search(r' srcdoc="([^"]*)"></iframe>$', frame).group(1)
    assert html.unescape(page) == view.html
    view.save(tmp_path / "view.html")
    assert (tmp_path / "view.html").read_text(encoding="utf-8") == view.html


BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_frame_works_in_a_browser(tmp_path):
    mesh = gemcnn.shapes.icosphere(2)
    view = gemcnn.view(mesh, mesh, scalar=[mesh.vertices[:, 2], None])
    look = "setTimeout(() => console.log('shown', gemcnn.data.count, gemcnn.state.field, window.origin), 1000)"
    view.html = view.html.replace("</body>", f"<script>{look}</script></body>")
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{view._repr_html_()}", encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    webgl = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    command = [BROWSER, *options, *webgl, f"--user-data-dir={tmp_path}/profile", "--dump-dom", page.as_uri()]
    log = subprocess.run(command, capture_output=True, text=True, timeout=120).stderr
    console = [line for line in log.splitlines() if ":CONSOLE" in line]
    assert any("shown 2 scalar null" in line for line in console), log[-2000:]
    assert not any("Uncaught" in line or "Refused" in line for line in console), console
