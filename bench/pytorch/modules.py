"""gemcnn.torch in place of plain PyTorch: one convolution, or the correspondence network with its fused loss."""

import torch
from torch import Tensor, nn

import gemcnn.torch as gt
from case import Case
from network import parse_kind


def graph(case: Case, device: str) -> gt.Graph:
    names = ("offsets", "neighbours", "mesh_offsets", "theta", "g")
    offsets, neighbours, meshes, theta, g = (case.tensors[name] for name in names)
    degrees = offsets.diff().long()
    vertices = torch.arange(len(degrees)).repeat_interleave(degrees)
    ends = torch.stack([vertices, neighbours.long()])
    # The edges from q to p, in the order of those from p to q.
    reverse = torch.empty_like(vertices)
    order, other = (a * len(degrees) + b for a, b in (ends, ends.flip(0)))
    reverse[other.argsort()] = order.argsort()
    phases = [wave(angle) for angle in (theta, g - theta) for wave in (torch.cos, torch.sin)]
    return gt.Graph.from_parts(
        offsets=offsets.int(),
        neighbours=neighbours.int(),
        reverse=reverse.int(),
        phases=torch.stack(phases, 1).float(),
        radius=torch.ones(len(vertices)),
        coefficients=torch.empty(len(vertices), 0),
        mesh_offsets=meshes.int(),
    ).to(device)


class Network(nn.Module):
    """A module, with the names of parameters in case files."""

    def __init__(self, case: Case):
        super().__init__()
        layers = case.network["layers"]
        outputs = [layer["conv"]["output"] for layer in layers if "conv" in layer]
        if len(layers) == len(outputs) == 1:
            self.module = gt.GaugeConv(case.network["input"], outputs[0], aggregation="mean")
            self.names = {name: name.removeprefix("conv1.") for name in case.weights}
        elif case.work.startswith("correspondence"):
            self.module = gt.GemNetwork(case.network["input"], layers[-1]["linear"]["outputs"])
            self.names = self.module._names(case.weights)
        else:
            raise ValueError(f"gemcnn.torch is not compared in {case.work}")
        self.input = parse_kind(case.network["input"])
        self.output = parse_kind(outputs[0]) if outputs else None

    def load_state_dict(self, weights, strict=True):
        own = {self.names[name]: values.view_as(self.module.state_dict()[self.names[name]]) for name, values in weights.items()}
        return self.module.load_state_dict(own, strict)

    def named_parameters(self, *arguments, **options):
        own = dict(self.module.named_parameters())
        return [(name, own[ours]) for name, ours in self.names.items() if ours in own]

    def forward(self, x: Tensor, graph: gt.Graph, *labels: Tensor) -> Tensor:
        return self.module(x, graph, *labels)


def in_one_thread(call):
    """The call, with its backward pass in the thread of the caller."""

    def run():
        with torch.autograd.set_multithreading_enabled(False):
            return call()

    return run


def captured(call):
    """The call as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
