"""Interactive pages of meshes, in notebooks and as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arguments, _gemcnn
from .errors import FileError, MeshError
from .mesh import Mesh, as_mesh

__all__ = ["View", "view"]

# Labels with more values are shown as numbers.
_MOST_LABELS = 256


class View:
    """An interactive page of meshes (docs/view.md). A notebook shows it below its cell.

    The page is one HTML text that needs nothing else. It makes no request, so it works offline. A notebook shows it in a
    frame of its own, without access to the notebook.
    """

    __slots__ = ("height", "html", "title")

    def __init__(self, title: str, html: str, height: int) -> None:
        self.title = title
        """Title of the page."""
        self.html = html
        """The page."""
        self.height = height
        """Height in a notebook, in pixels."""

    def __repr__(self) -> str:
        return f"View({self.title!r}, {len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        page = self.html.replace("&", "&amp;").replace('"', "&quot;")
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{page}"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to an HTML file, which opens in a browser."""
        Path(_arguments.path(FileError, "path", path)).write_text(self.html, encoding="utf-8")


def view(
    *meshes: Any,
    scalar: Any = None,
    vectors: Any = None,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    up: str = "y",
    frames: bool = True,
    height: int = 600,
) -> View:
    """An interactive page of meshes with fields on them.

    A field is an array with a value for each vertex or each face. Each of `scalar`, `vectors` and `labels` is an array, or a
    dictionary of arrays by name. With several meshes it is a list of these, one for each mesh; `None` leaves a mesh out.
    Fields of the same name share their colours. Labels called `truth` and `prediction` are compared by the page.

    ```
    gemcnn.view(mesh, scalar=mesh.geodesics(0))
    gemcnn.view(mesh, labels={"truth": truth, "prediction": model.predict(mesh).classes}, classes=model.classes)
    gemcnn.view(first, second, labels=[parts, parts]).save("view.html")
    ```

    Args:
        meshes: `Mesh`, or any object with `vertices` and `faces`.
        scalar: numbers, `[V]` or `[F]`. Missing values are not finite.
        vectors: vectors in space, `[V, 3]` or `[F, 3]`.
        labels: integers, `[V]` or `[F]`. More than 256 different ones are shown as numbers.
        classes: names of the labels from 0. Negative labels are unknown then.
        names: names of the meshes.
        title: title of the page (default: the names).
        up: axis that points up, `y` or `z`.
        frames: adds the tangent frames, for their arrows and for transport.
        height: height in a notebook, in pixels.

    Raises:
        MeshError: no mesh, or a field of another length than the mesh.
    """
    if not meshes:
        raise MeshError("there is no mesh to view")
    _arguments.choice(MeshError, "up", up, ("y", "z"))
    _arguments.flag(MeshError, "frames", frames)
    height = _arguments.integer(MeshError, "height", height, 1)
    if title is not None:
        _arguments.text(MeshError, "title", title)
    if classes is not None:
        classes = [_arguments.text(MeshError, "classes", str(name)) for name in _arguments.listed(MeshError, "classes", classes)]
    if names is not None:
        names = [_arguments.text(MeshError, "names", str(name)) for name in _arguments.listed(MeshError, "names", names)]
    used = [as_mesh(mesh) for mesh in meshes]
    count = len(used)
    if names is None:
        names = ["mesh"] if count == 1 else [f"mesh {index + 1}" for index in range(count)]
    if len(names) != count:
        raise MeshError(f"{len(names)} names for {count} meshes")
    fields: list[list[_Field]] = [[] for _ in used]
    for kind, given in (("scalar", scalar), ("vectors", vectors), ("labels", labels)):
        for mesh, found, own in zip(used, fields, _each(kind, given, count), strict=True):
            named = own if isinstance(own, Mapping) else {} if own is None else {kind: own}
            found.extend(_Field(mesh, kind, str(name), values) for name, values in named.items())
    tables = _tables(fields, classes)
    places = {name: place for place, name in enumerate(tables)}
    shown = []
    for mesh, name, found in zip(used, names, fields, strict=True):
        taken = [field.name for field in found]
        if len(set(taken)) < len(taken):
            raise MeshError(f"two fields of {name} have the same name: {', '.join(taken)}")
        columns = [
            (field.name, field.on_faces, field.encoded(tables.get(field.name)), places.get(field.name))
            for field in found
        ]
        shown.append((str(name), mesh._native, columns))
    classes_of = [
        [(classes[label] if classes else str(label), label % 2**32) for label in table]
        for table in tables.values()
    ]
    used_title = ", ".join(map(str, names)) if title is None else title
    return View(used_title, _gemcnn.page(used_title, up == "z", frames, classes_of, shown), height)


class _Field:
    """An array of a mesh."""

    def __init__(self, mesh: Mesh, kind: str, name: str, values: ArrayLike) -> None:
        self.kind, self.name = kind, name
        values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
        try:
            self.values = np.asarray(values)
        except ValueError as problem:
            raise _arguments.wrong(MeshError, name, "numbers", values) from problem
        shape = [3] if kind == "vectors" else []
        vertices, faces = len(mesh.vertices), mesh.face_count
        if list(self.values.shape) not in ([vertices, *shape], [faces, *shape]):
            wanted = " or ".join(str([number, *shape]) for number in (vertices, faces))
            raise MeshError(
                f"`{name}` has shape {list(self.values.shape)}, but {kind} of vertices or faces have {wanted}"
            )
        if self.values.dtype.kind not in ("iub" if kind == "labels" else "iubf"):
            raise MeshError(f"`{name}` must be {'integers' if kind == 'labels' else 'numbers'}, not {self.values.dtype}")
        self.on_faces = len(self.values) != vertices

    def encoded(self, table: Sequence[int] | None) -> NDArray[Any]:
        """The array as the native part takes it; labels are places in their table."""
        if self.kind == "vectors":
            return np.ascontiguousarray(self.values, dtype=np.float64)
        if table is None:
            return np.ascontiguousarray(self.values, dtype=np.float32)
        places = np.searchsorted(np.asarray(table, dtype=np.int64), self.values)
        # The last number is that of unknown labels.
        return np.where(np.isin(self.values, table), places, 2**32 - 1).astype(np.uint32)


def _each(kind: str, given: Any, count: int) -> list[Any]:
    """The fields of each mesh."""
    if count == 1:
        return [given]
    if given is None:
        return [None] * count
    if isinstance(given, (Mapping, str)) or not hasattr(given, "__len__") or len(given) != count:
        raise MeshError(f"`{kind}` must be a list with an entry for each of the {count} meshes")
    return list(given)


def _tables(fields: list[list[_Field]], classes: Sequence[str] | None) -> dict[str, list[int]]:
    """The labels of each field that has classes, over all meshes."""
    tables: dict[str, list[int]] = {}
    labels = [field for found in fields for field in found if field.kind == "labels"]
    for name in dict.fromkeys(field.name for field in labels):
        parts = [np.unique(field.values).astype(np.int64) for field in labels if field.name == name]
        values = np.unique(np.concatenate(parts))
        if classes is not None:
            if len(values) and values[-1] >= len(classes):
                raise MeshError(f"`{name}` has the label {values[-1]}, but there are {len(classes)} classes")
            tables[name] = list(range(len(classes)))
        elif len(values) <= _MOST_LABELS:
            tables[name] = values.tolist()
    return tables
