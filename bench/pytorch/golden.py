"""Checks geometry, all forms of the convolution and the nonlinearity against fixtures/golden, in float64."""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import convolution
import geometry
import network
from convolution import Graph, Kind

FOLDER = Path(__file__).parents[2] / "fixtures" / "golden"
MESHES = "icosahedron", "icosahedron_deformed", "irregular200", "grid6x7_open"
TOLERANCE = 1e-12


class Report:
    def __init__(self):
        self.worst = 0.0

    def line(self, name: str, differences: dict[str, float]):
        worst = max(differences.values())
        self.worst = max(self.worst, worst)
        listed = "  ".join(f"{part} {value:.1e}" for part, value in differences.items())
        print(f"{'ok ' if worst <= TOLERANCE else 'BAD'}  {name:44}  {listed}")


def relative(ours, golden) -> float:
    return ((ours - golden).abs().max() / golden.abs().max()).item()


def csr(edge_index, *fields):
    """Edges without self loops grouped by receiver."""
    receivers, neighbours = edge_index.long()
    keep = (receivers != neighbours).nonzero()[:, 0]
    order = keep[torch.argsort(receivers[keep], stable=True)]
    offsets = torch.cat([torch.zeros(1).long(), torch.bincount(receivers[order]).cumsum(0)])
    return offsets, neighbours[order], *(field[order] for field in fields)


def check_geometry(report: Report, name: str, golden: dict):
    fields = (golden[f"edges_B.{field}"] for field in ("theta", "g", "r"))
    expected = geometry.Geometry(*csr(golden["edges_B.edge_index"], *fields))
    faces = golden["faces"].long()
    ours = geometry.geometry(golden["vertices"], faces, corner_angles=True)
    normals = geometry.vertex_normals(golden["vertices"], faces, corner_angles=False)
    differences = geometry.differences(ours, expected)
    differences["area normals"] = relative(normals, golden["normals_area_weighted"])
    report.line(f"geometry {name}", differences)


def check_convolution(report: Report, name: str, golden: dict):
    """Sum over neighbours with all gradients; and y of the mean, which follows from it."""
    fields = golden["edges_B.theta"], golden["edges_B.g"]
    graph = Graph(*csr(golden["edges_B.edge_index"], *fields), torch.ones(len(golden["x"]), dtype=torch.float64))
    degrees = graph.offsets.diff()[:, None]
    input, output = Kind(4, 2), Kind(5, 2)
    parameters = {
        "weight": stored_weight(golden["weight"]),
        "self_weight": stored_self_weight(golden["self_weight"]),
        "bias": torch.zeros(output.channels, dtype=torch.float64),
    }
    expected = {part: golden[f"edges_B.conv_sum_nobias.{part}"] for part in ("y", "dx", "dweight", "dself_weight")}
    expected["y"], expected["dx"] = rows(expected["y"]), rows(expected["dx"])
    expected["dweight"] = stored_weight(expected["dweight"])
    expected["dself_weight"] = stored_self_weight(expected["dself_weight"])
    x, c = rows(golden["x"]), rows(golden["c"])
    own = convolution.own_terms(x, parameters["self_weight"], None, input, output)
    mean = own + (expected["y"] - own) / degrees
    for form in network.FORMS:
        layer = network.Convolution(form, input, output).double()
        layer.load_state_dict(parameters)
        of_sum = network.Tables(form, graph, [(input, output)], torch.float64)
        of_mean = network.Tables(form, graph._replace(scale=1 / degrees[:, 0].double()), [(input, output)], torch.float64)
        features = network.to_form(form, x, input).clone().requires_grad_()
        y = layer(features, of_sum)
        y.backward(network.to_form(form, c, output))
        ours = {
            "y": network.from_form(y.detach()),
            "dx": network.from_form(features.grad),
            "dweight": layer.weight.grad,
            "dself_weight": layer.self_weight.grad,
        }
        differences = {part: relative(ours[part], expected[part]) for part in expected}
        differences["y of mean"] = relative(network.from_form(layer(features, of_mean).detach()), mean)
        report.line(f"convolution {form}, {name}", differences)


def rows(x):
    """[V, channel, component] to our layout."""
    return x.transpose(1, 2).flatten(1)


def stored_weight(golden):
    """[ring, in channel, in component, out channel, out component], of which ring 0 is used, to ours."""
    return golden[0].permute(3, 2, 1, 0).flatten(2, 3).flatten(0, 1)[None]


def stored_self_weight(golden):
    """[basis, in, out] to ours, whose second basis of each order turns the other way."""
    signs = torch.tensor([1, 1, -1, 1, -1], dtype=torch.float64)
    return (golden * signs[:, None, None]).transpose(1, 2).flatten()


def check_nonlinearity(report: Report, golden: dict):
    """The code's samples matrix is orthonormal: its s_t are ours of x_0 sqrt(1/N), x_n sqrt(2/N), and ReLU is
    homogeneous, so that our y are its y scaled back alike."""
    kind = Kind(3, 2)
    for samples in 5, 7, 101:
        scale = torch.full((5,), 2 / samples, dtype=torch.float64).sqrt()
        scale[0] = (1 / samples) ** 0.5
        for form in "direct", "edges":
            layer = network.Regular(form, kind, samples, norm=False)
            x = network.to_form(form, rows(golden["x"] * scale), kind).requires_grad_()
            y = layer(x)
            y.backward(network.to_form(form, rows(golden["c"] / scale), kind))
            ours = {"y": network.from_form(y.detach()), "dx": network.from_form(x.grad)}
            expected = {
                "y": rows(golden[f"n{samples}.y"] * scale),
                "dx": rows(golden[f"n{samples}.dx"] / scale),
            }
            differences = {part: relative(ours[part], expected[part]) for part in ours}
            report.line(f"nonlinearity {'by matrices' if form == 'direct' else 'fused'}, {samples} samples", differences)


def main() -> int:
    report = Report()
    for name in MESHES:
        golden = load_file(FOLDER / f"mesh_{name}.safetensors")
        check_geometry(report, name, golden)
        check_convolution(report, name, golden)
    check_nonlinearity(report, load_file(FOLDER / "regular_nonlinearity.safetensors"))
    print(f"largest difference {report.worst:.1e}, allowed {TOLERANCE:.0e}")
    return int(not report.worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
