"""The PyTorch side of the comparison: reads one JSON object a line from stdin, answers each with one on stdout.

    {"do": "load", "case": PATH, "variant": V, "matmul": "f32" | "tf32" | "bf16"}  ->  {"ok": true, "seconds": S}
    {"do": "run", "calls": N}                                          ->  {"seconds": S}
    {"do": "agree", "path": PATH}                                      ->  {"difference": D, "where": NAME}
    {"do": "memory"}                                                   ->  {"peak_bytes": P, "start_bytes": B}

A failure is {"error": TEXT, "memory": true if memory ran out}, after which the worker goes on.
"""

import argparse
import gc
import json
import os
import re
import sys
import time

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import case
import diffusion
import geometry
import messages
from case import Case
from network import Dropout, Network, Tables, from_form, to_form

# Form of the convolution, or dense products of the spectral network, and mode of torch.compile; eager without a mode.
VARIANTS = {
    "direct": ("direct", None),
    "edges": ("edges", "default"),
    "sparse": ("sparse", "default"),
    "gather": ("gather", "default"),
    "graphs": ("edges", "reduce-overhead"),
    "gather_graphs": ("gather", "reduce-overhead"),
    "eager": ("spectral", None),
    "compiled": ("spectral", "default"),
    "compiled_graphs": ("spectral", "reduce-overhead"),
    # Modules of gemcnn.torch; with gradients in the thread of the caller; as a CUDA graph.
    "module": ("module", None),
    "module_one_thread": ("module", None),
    "module_graphs": ("module", None),
}
# Those that work as the published code does.
PUBLISHED = ("direct", "eager")
MESSAGES = ("attention_forward", "attention_backward", "messages_forward", "messages_backward")
SPECTRAL = ("diffusion", "segmentation")
LABELLED = ("correspondence", "mnist", *SPECTRAL)
LEARNING_RATE = 1e-3
# Gradients that are so much smaller than the largest one are measured by that.
VANISHING = 1e-4
# Rows of features up to which the published way is compared in float64.
PRECISE = 10_000


def gemcnn_modules():
    """gemcnn.torch, which only its own variants need."""
    import modules

    return modules


class GeometryWork:
    """From vertices and faces to the gauge graph."""

    def __init__(self, case: Case, variant: str, device: str):
        self.vertices, self.faces = case.tensors["vertices"], case.tensors["faces"].long()
        self.angles = torch.compile(geometry.edge_angles, dynamic=False)

    def call(self):
        return geometry.geometry(self.vertices, self.faces, angles=self.angles)

    def differences(self, path: str) -> dict[str, float]:
        other = load_file(path)
        offsets, neighbours = other["offsets"].long(), other["neighbours"].long()
        fields = (other[name].double() for name in ("theta", "g", "r"))
        return geometry.differences(self.call(), geometry.Geometry(offsets, neighbours, *fields))


class Model(nn.Module):
    """A network with its graph or eigenbases and input as buffers, which CUDA graphs read in place; gives y, or a loss."""

    def __init__(self, case: Case, form: str, device: str, dtype: torch.dtype):
        super().__init__()
        self.work = case.work
        # Attention and messages have rows of features in all forms.
        self.layout = "rows" if case.work in MESSAGES else form
        self.is_module = form == "module"
        if self.is_module:
            self.network, self.tables = gemcnn_modules().Network(case), gemcnn_modules().graph(case, device)
        else:
            self.network = Network(case.network, form, case.meshes)
        if form == "spectral":
            self.tables = diffusion.Spectra(case.tensors, case.meshes)
        elif case.work in MESSAGES:
            graph = case.graph(self.network.aggregation, device)
            self.tables = messages.Table(form, graph, self.network.input.band, dtype)
        elif not self.is_module:
            graph = case.graph(self.network.aggregation, device)
            self.tables = Tables(form, graph, self.network.types(), dtype)
        self.register_buffer("x", to_form(self.layout, case.tensors["x"], self.network.input))
        if self.work in LABELLED:
            self.register_buffer("labels", case.tensors["labels"].long())
        self.to(device, dtype)

    def forward(self) -> Tensor:
        if self.is_module and self.work in LABELLED:
            return self.network(self.x, self.tables, self.labels)
        y = self.network(self.x, self.tables)
        if self.work in LABELLED:
            return functional.cross_entropy(y, self.labels)
        return y.flatten(1).square().sum(1).mean() if self.work == "blocks" else y


class NetworkWork:
    """Calls of a model. What a call computes, `results` gives by the names of the result files."""

    def __init__(self, case: Case, variant: str, device: str, dtype: torch.dtype = torch.float32):
        form, mode = VARIANTS[variant]
        if mode == "reduce-overhead" and device == "cpu":
            raise ValueError(f"{variant} needs a GPU")
        if (form == "spectral") != (case.work in SPECTRAL) or (form == "sparse" and case.work in MESSAGES):
            raise ValueError(f"{variant} is no variant of {case.work}")
        self.weights = diffusion.from_stored(case.weights)
        self.model = Model(case, form, device, dtype)
        self.reset()
        self.graphs = mode == "reduce-overhead"
        self.evaluate = torch.compile(self.model, mode=mode, dynamic=False) if mode else self.model
        self.prepare(case, variant, device)

    def prepare(self, case: Case, variant: str, device: str):
        pass

    def reset(self):
        """Goes back to the weights of the case, which may leave out running statistics."""
        left_out = self.model.network.load_state_dict(self.weights, strict=False)
        missing = set(left_out.missing_keys) & {name for name, _ in self.parameters()}
        if missing or left_out.unexpected_keys:
            raise ValueError(f"weights that do not fit the network: {missing}, {left_out.unexpected_keys}")

    def parameters(self):
        return list(self.model.network.named_parameters())

    def evaluated(self) -> Tensor:
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        return self.evaluate()

    def differences(self, path: str) -> dict[str, float]:
        dropouts = [module for module in self.model.modules() if isinstance(module, (Dropout, nn.Dropout))]
        for module in dropouts:
            module.eval()
        self.reset()
        ours, other = diffusion.to_stored(self.results()), load_file(path)
        for module in dropouts:
            module.train(self.model.training)
        if ours.keys() != other.keys():
            raise ValueError(f"results of the two sides: {sorted(ours)}, {sorted(other)}")
        largest = {name: t.abs().max().item() for name, t in other.items()}
        gradients = [size for name, size in largest.items() if name.startswith("gradient.")]
        result = {}
        for name, size in largest.items():
            # Biases before a batch normalisation have no gradient but rounding.
            if name.startswith("gradient.") and size < VANISHING * max(gradients):
                size = max(gradients)
            result[name] = (ours[name].cpu() - other[name].view_as(ours[name].cpu())).abs().max().item() / size
        return result


class Forward(NetworkWork):
    def prepare(self, case: Case, variant: str, device: str):
        self.model.eval()

    @torch.no_grad()
    def call(self):
        return self.evaluated()

    def results(self) -> dict[str, Tensor]:
        return {"y": from_form(self.call())}


class Backward(NetworkWork):
    def prepare(self, case: Case, variant: str, device: str):
        self.dy = to_form(self.model.layout, case.tensors["dy"], self.model.network.output).to(self.model.x)
        self.model.x.requires_grad_()

    def gradients(self):
        wanted = [self.model.x, *(parameter for _, parameter in self.parameters())]
        y = self.evaluated()
        return y, *torch.autograd.grad(y, wanted, self.dy)

    def call(self):
        self.gradients()

    def results(self) -> dict[str, Tensor]:
        y, dx, *gradients = self.gradients()
        named = {f"gradient.{name}": g for (name, _), g in zip(self.parameters(), gradients)}
        return {"y": from_form(y.detach()), "dx": from_form(dx)} | named


class Training(NetworkWork):
    def prepare(self, case: Case, variant: str, device: str):
        parameters = self.model.network.parameters()
        fused = None if variant in PUBLISHED else True
        self.optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=fused, capturable=variant == "module_graphs")

    def call(self):
        self.evaluated().backward()
        self.optimiser.step()
        self.optimiser.zero_grad()

    def results(self) -> dict[str, Tensor]:
        loss = self.evaluated()
        loss.backward()
        gradients = {f"gradient.{name}": p.grad.clone() for name, p in self.parameters()}
        self.optimiser.zero_grad()
        return {"loss": loss.detach().view(1)} | gradients


WORKS = {
    "geometry": GeometryWork,
    "convolution_forward": Forward,
    "convolution_backward": Backward,
    "attention_forward": Forward,
    "attention_backward": Backward,
    "messages_forward": Forward,
    "messages_backward": Backward,
    "inference": Forward,
    "correspondence_inference": Forward,
    "blocks": Training,
    "correspondence": Training,
    "mnist": Training,
    "diffusion": Training,
    "segmentation": Training,
}


class Worker:
    def __init__(self, device: str):
        self.device = device
        self.work = None
        self.precise = None
        self.start_bytes = None

    def load(self, message: dict) -> dict:
        self.forget()
        if self.start_bytes is None:
            self.start_bytes = process_bytes("VmRSS")
        if self.device == "cuda":
            precision = "highest" if message["matmul"] == "f32" else "high"
            torch.set_float32_matmul_precision(precision)
        torch.set_autocast_enabled(self.device, message["matmul"] == "bf16")
        start = time.perf_counter()
        read = case.read(message["case"])
        self.work = WORKS[read.work](read, message["variant"], self.device)
        # Small enough to be compared in float64, where no rounding takes a ReLU to its other side.
        small = read.work != "geometry" and message["variant"] in PUBLISHED and len(read.tensors["x"]) <= PRECISE
        self.precise = (message["case"], message["variant"]) if small else None
        del read
        if message["variant"] == "module_one_thread":
            self.work.call = gemcnn_modules().in_one_thread(self.work.call)
        if message["variant"] == "module_graphs":
            self.work.call = gemcnn_modules().captured(self.work.call)
        # The first call compiles; CUDA graphs are recorded in the second and third.
        for _ in range(3 if self.device == "cuda" else 1):
            self.work.call()
        self.wait()
        self.watch_memory()
        return {"ok": True, "seconds": time.perf_counter() - start}

    def watch_memory(self):
        """Makes what is in use now the peak so far."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")

    def run(self, message: dict) -> dict:
        self.wait()
        start = time.perf_counter()
        for _ in range(message["calls"]):
            self.work.call()
        self.wait()
        return {"seconds": time.perf_counter() - start}

    def agree(self, message: dict) -> dict:
        work = self.work
        if self.precise:
            path, variant = self.precise
            read = case.read(path)
            work = WORKS[read.work](read, variant, self.device, torch.float64)
        differences = work.differences(message["path"])
        where = max(differences, key=differences.get)
        return {"difference": differences[where], "where": where}

    def memory(self, message: dict) -> dict:
        if self.device == "cuda":
            return {"peak_bytes": torch.cuda.max_memory_allocated(), "start_bytes": 0}
        start = process_bytes("VmRSS") if self.start_bytes is None else self.start_bytes
        return {"peak_bytes": process_bytes("VmHWM"), "start_bytes": start}

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def forget(self):
        self.work = None
        torch._dynamo.reset()
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def answer(self, line: str) -> dict:
        try:
            message = json.loads(line)
            verbs = {"load": self.load, "run": self.run, "agree": self.agree, "memory": self.memory}
            return verbs[message["do"]](message)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
            memory = known or any(part in text for part in ("can't allocate", "not enough memory", "out of memory"))
        # Outside of the handler, where the error no longer holds on to what it was about.
        if memory:
            self.forget()
        return {"error": text, "memory": memory}


def process_bytes(field: str) -> int:
    """VmRSS, the memory in use, or VmHWM, the most there was."""
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(rf"{field}:\s*(\d+) kB", status.read())[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    # Answers alone go to stdout; whatever else is printed goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(arguments.device)
    for line in sys.stdin:
        print(json.dumps(worker.answer(line)), file=answers)


if __name__ == "__main__":
    main()
