"""Case files: one piece of work with its graph or mesh, input, network and weights."""

import json
from dataclasses import dataclass

import torch
from safetensors import safe_open
from torch import Tensor

from convolution import Graph


@dataclass
class Case:
    work: str
    meshes: int
    network: dict | None
    tensors: dict[str, Tensor]
    weights: dict[str, Tensor]

    def graph(self, aggregation: str, device: str) -> Graph:
        def whole(name):
            return self.tensors[name].to(device).long()

        offsets = whole("offsets")
        degrees = offsets.diff().double()
        scales = {"sum": torch.ones_like(degrees), "mean": 1 / degrees.clamp(min=1)}
        theta, g = self.tensors["theta"].to(device), self.tensors["g"].to(device)
        return Graph(offsets, whole("neighbours"), theta, g, scales[aggregation])


def read(path: str) -> Case:
    with safe_open(path, framework="pt") as file:
        settings = json.loads(file.metadata()["gemcnn"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    prefix = "weights/"
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    tensors = {n: t for n, t in tensors.items() if not n.startswith(prefix)}
    case = settings["case"]
    return Case(case["work"], case["meshes"], settings.get("network"), tensors, weights)
