"""Times of gemcnn.torch beside plain PyTorch (bench/pytorch) and beside Rust: one convolution, and the correspondence network.

    python python/tests/speed.py                            # on the CPU
    python python/tests/speed.py --threads 1 --rust target/release/gemcnn
    python python/tests/speed.py cuda --rust target/release/gemcnn

`--rust` is the command, whose `gemcnn bench` runs first, and on the CPU after each table again. Times are the least of all calls and, in brackets,
their median, in ms. On a GPU they are times between two events, over groups of calls of about 2 ms, as in `gemcnn bench`.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

import gemcnn
import gemcnn.torch as gt

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "pytorch"))

HIDDEN = "16x(0,1,2)"
CLASSES = 6890
OURS, PUBLISHED, BEST = "gemcnn", "PyTorch, as the published code", "PyTorch, gathers, compiled"
LAYER = ("convolution_forward", "convolution_forward_backward")
NETWORK = ("correspondence_inference", "training_step")


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def milliseconds(call, device, repeats=50, clock=time.perf_counter):
    """Least and median time of a call; on the CPU by a clock."""

    def group(count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / count

    def single():
        start = clock()
        call()
        return 1e3 * (clock() - start)

    for _ in range(3):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
        count = min(max(int(2 / group(1)), 1), 100)
        times = [group(count) for _ in range(repeats)]
    else:
        times = [single() for _ in range(repeats)]
    return min(times), sorted(times)[len(times) // 2]


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


def in_one_thread(call):
    """The call with its backward pass in the thread of the caller."""

    def run():
        with torch.autograd.set_multithreading_enabled(False):
            return call()

    return run


class Rust:
    """Times of `gemcnn bench` on a device, by work and number of vertices."""

    def __init__(self, program, device):
        self.program, self.cuda, self.found = program, device.type == "cuda", {}

    def run(self):
        """Measures once more, and keeps the least times."""
        if self.program is None or (self.cuda and self.found):
            return
        options = ["--device", "cuda"] if self.cuda else ["--quick", "--device", "cpu"]
        options += ["--threads", str(torch.get_num_threads()), "--json"]
        output = subprocess.run([self.program, "bench", *options], capture_output=True, check=True).stdout
        for row in json.loads(output)["rows"]:
            key, times = (row["work"], row["vertices"]), (row["minimum_ms"], row["median_ms"])
            self.found[key] = tuple(map(min, times, self.found.get(key, times)))

    def lines(self, works, sets):
        """Prints the times of two kinds of work, and of the same as CUDA graphs."""
        for vertices, _ in sets:
            for label, prefix in [("Rust", ""), ("Rust, CUDA graph", "replayed_")]:
                cells = [self.found.get((prefix + work, vertices)) for work in works]
                if any(cells):
                    line(label, vertices, cells)


def line(label, vertices, cells):
    texts = ["-" if cell is None else "{:.3f} ({:.3f})".format(*cell) for cell in cells]
    print(f"{label:38} {vertices:9} {texts[0]:>20} {texts[1]:>20}", flush=True)


def table(title, works, rust, device, sets):
    """Measures the two calls of each row. `sets` are the numbers of vertices with their rows: labels, repeats and calls."""
    print(f"\n{title}\n{'':38} {'vertices':>9} {'forward':>20} {'and backward':>20}")
    rust.run()
    if rust.cuda:
        rust.lines(works, sets)
    for vertices, rows in sets:
        for label, repeats, calls in rows:
            clock = time.process_time if "processor" in label else time.perf_counter
            try:
                prepared = [captured(call) for call in calls] if "CUDA graph" in label else calls
                line(label, vertices, [milliseconds(call, device, repeats, clock) for call in prepared])
            except Exception as error:
                print(f"{label:38} {vertices:9} failed: {error!r}"[:300], flush=True)
    if not rust.cuda:
        rust.run()
        rust.lines(works, sets)


def union(graphs, mean, device):
    """Graphs in the form of bench/pytorch."""
    import convolution as plain

    offsets, neighbours, theta, g = [torch.zeros(1, dtype=torch.long)], [], [], []
    vertices = edges = 0
    for graph in graphs:
        offsets.append(torch.from_numpy(graph.offsets[1:].astype("int64")) + edges)
        neighbours.append(torch.from_numpy(graph.neighbours.astype("int64")) + vertices)
        theta.append(torch.from_numpy(graph.theta.copy()))
        g.append(torch.from_numpy(graph.transport.copy()))
        vertices += graph.vertex_count
        edges += graph.edge_count
    offsets = torch.cat(offsets)
    scale = 1 / offsets.diff().double() if mean else torch.ones(vertices, dtype=torch.float64)
    return plain.Graph(*(part.to(device) for part in (offsets, *map(torch.cat, (neighbours, theta, g)), scale)))


def plain_layers(graphs, layer, device):
    """Layers of bench/pytorch with the same weights, as functions of x."""
    import convolution as plain

    graph = union(graphs, False, device)
    kind = plain.Kind(16, 2)
    weights = (layer.weight, layer.self_weight, layer.bias)
    direct = plain.direct_tables(graph, 2, torch.float32)
    gather = plain.gather_tables(graph, 2, torch.float32)
    compiled = torch.compile(plain.gather.apply)

    def published(x):
        folded = x.view(-1, 5, 16).transpose(1, 2)
        y = plain.direct(folded, layer.weight[0], *weights[1:], kind, kind, *direct)
        return y.transpose(1, 2).reshape(len(x), -1)

    return {PUBLISHED: published, BEST: lambda x: compiled(x, *weights, kind, kind, *gather)}


def layer_rows(graphs, device):
    """Rows of one convolution on a batch of graphs."""
    cuda = device.type == "cuda"
    graph = gt.Graph.collate([gt.Graph.of(one) for one in graphs]).to(device)
    torch.manual_seed(0)
    layer = gt.GaugeConv(HIDDEN, HIDDEN).to(device)
    x = torch.randn(graph.vertex_count, 80, device=device, requires_grad=True)
    dy = torch.randn(graph.vertex_count, 80, device=device)
    expected = layer(x, graph).detach()
    rows = []
    for name, call in {OURS: lambda x: layer(x, graph), **plain_layers(graphs, layer, device)}.items():

        def forward(call=call):
            with torch.no_grad():
                return call(x)

        def both(call=call):
            layer.zero_grad(set_to_none=True)
            x.grad = None
            call(x).backward(dy)

        error = relative(forward(), expected)
        assert error < 3e-3, f"{name} differs by {error:.1e}"
        rows.append((name, 50, (forward, both)))
        if cuda and name == OURS:
            rows.append((f"{name}, one thread", 50, (forward, in_one_thread(both))))
        if cuda and name != PUBLISHED:
            rows.append((f"{name}, CUDA graph", 50, (forward, both)))
    return rows


def plain_network(graphs, form, device):
    """The correspondence network in a form of bench/pytorch, as a function of x."""
    import network as plain

    hidden = "16x0 + 16x1 + 16x2"
    types = [hidden, hidden, "64x0"]
    layers = [{"residual": {"middle": hidden, "output": kind, "samples": 5}} for kind in types]
    layers += [{"linear": {"outputs": 256}}, "relu", {"dropout": {"probability": 0.5}}, {"linear": {"outputs": CLASSES}}]
    network = plain.Network({"input": "3x0", "mean": True, "layers": layers}, form, len(graphs))
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.05)
    tables = plain.Tables(form, union(graphs, True, device), network.types(), torch.float32).to(device)
    network.to(device)
    run = network if form == "direct" else torch.compile(network)
    return network, lambda x: run(plain.to_form(form, x, network.input), tables)


def network_rows(graphs, device, beside):
    """Rows of the correspondence network on a batch of graphs: inference, and a training step with Adam. The networks `beside` are
    those of bench/pytorch. On the CPU also the time of all threads together, which depends less on other work on the machine."""
    cuda = device.type == "cuda"
    graph = gt.Graph.collate([gt.Graph.of(one) for one in graphs]).to(device)
    x = torch.randn(graph.vertex_count, 3, device=device)
    labels = torch.arange(CLASSES, device=device).repeat(len(graphs))
    torch.manual_seed(0)

    def calls(network, run, loss, fused):
        optimiser = torch.optim.Adam(network.parameters(), 1e-3, fused=fused, capturable=cuda)

        def inference():
            network.eval()
            with torch.no_grad():
                return run(x)

        def step():
            network.train()
            optimiser.zero_grad(set_to_none=True)
            loss(x).backward()
            optimiser.step()

        return inference, step

    ours = gt.GemNetwork("3x0", CLASSES).to(device)
    both = calls(ours, lambda x: ours(x, graph), lambda x: ours(x, graph, labels), True)
    rows = [(OURS, 10, both)]
    if cuda:
        rows += [(f"{OURS}, one thread", 10, (both[0], in_one_thread(both[1]))), (f"{OURS}, CUDA graph", 10, both)]
    else:
        rows.append((f"{OURS}, processor time", 10, both))
    for name, form in beside.items():
        network, run = plain_network(graphs, form, device)

        def loss(x, run=run):
            return torch.nn.functional.cross_entropy(run(x), labels)

        both = calls(network, run, loss, form != "direct")
        rows.append((name, 5, both))
        if cuda and form != "direct":
            rows.append((f"{name}, CUDA graph", 5, both))
    return rows


def times(device, program=None):
    """Prints all tables. Products on a GPU are in tf32, as those of `gemcnn bench`."""
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} threads of the CPU"
    torch.set_float32_matmul_precision("high" if cuda else "highest")
    torus = gemcnn.shapes.torus((130, 53)).gauge_graph()
    rust = Rust(program, device)
    batches = (1, 8) if cuda else (1,)
    machine = f"{name}, PyTorch {torch.__version__}, ms"
    sets = [(batch * CLASSES, layer_rows([torus] * batch, device)) for batch in batches]
    table(f"{HIDDEN} to the same on {machine}", LAYER, rust, device, sets)
    forms = {PUBLISHED: "direct", BEST: "gather"}
    sets = [
        (batch * CLASSES, network_rows([torus] * batch, device, forms if batch == batches[-1] else {}))
        for batch in batches
    ]
    table(f"the correspondence network on {machine}", NETWORK, rust, device, sets)
    torch.set_float32_matmul_precision("highest")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Times of gemcnn.torch.")
    parser.add_argument("device", nargs="?", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rust", metavar="PROGRAM", help="the command gemcnn, to measure beside it")
    parser.add_argument("--threads", type=int, help="threads of the CPU (default: those of PyTorch)")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    times(torch.device(arguments.device), arguments.rust)
