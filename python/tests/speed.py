"""Times of gemcnn.torch beside plain PyTorch (bench/pytorch) and beside Rust, in one run: a convolution, and the correspondence
network.

    cargo build --release -p gemcnn-compare-worker
    python python/tests/speed.py --threads 1 --rust target/release/gemcnn-compare-worker
    python python/tests/speed.py cuda --rust target/release/gemcnn-compare-worker --json times.json

`--rust` is the worker of bench/compare, a process beside this one. All rows of a column are measured in turns, in groups of calls
until the device is idle. The table has the least time of a call in ms and, in brackets, how many times that of Rust it is. On the
CPU there is a second table of processor time, of all threads together, which depends less on other work on the machine.

The networks of plain PyTorch take minutes to compile. `--eager` leaves out all that is compiled, and Ctrl-C the row that is being
compiled.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import gemcnn
import gemcnn.torch as gt

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "pytorch"))

HIDDEN = "16x(0,1,2)"
CLASSES = 6890
RUST, OURS, PUBLISHED, BEST = "Rust", "gemcnn.torch", "PyTorch, as the published code", "PyTorch, gathers, compiled"
ONE_THREAD, GRAPH, GRAPHED = f"{OURS}, one thread", f"{OURS}, CUDA graph", f"{OURS}, graphed callable"
# Columns: work of bench/compare, and title.
WORKS = {
    "convolution_forward": "layer, forward",
    "convolution_backward": "and backward",
    "correspondence_inference": "network, inference",
    "correspondence": "network, step",
}
# Seconds of a group of calls, and number of groups of each row.
TURNS = {"cpu": (0.2, 7), "cuda": (0.1, 8)}
PAUSE = 0.02  # seconds between groups, in which threads that spin fall asleep


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


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


def replayed(call):
    """The call, captured when it is called first."""
    replay = None

    def run():
        nonlocal replay
        replay = replay or captured(call)
        replay()

    return run


class Bound(torch.nn.Module):
    """A function of x, with the parameters of a module."""

    def __init__(self, module, run):
        super().__init__()
        self.module, self.run = module, run

    def forward(self, x):
        return self.run(x)


def graphed(module, run):
    """The function `run`, whose passes are two CUDA graphs that are captured when it is called first. The rest of a step is eager."""
    callable_ = None

    def call(x):
        nonlocal callable_
        callable_ = callable_ or torch.cuda.make_graphed_callables(Bound(module, run), (x,))
        return callable_(x)

    return call


def checked(call, expected, limit):
    """The call, whose result is compared when it is called first."""

    def run():
        nonlocal expected
        found = call()
        if expected is not None:
            error = relative(found, expected)
            assert error < limit, f"differs by {error:.1e}"
            expected = None

    return run


def in_one_thread(call):
    """The call with its backward pass in the thread of the caller."""

    def run():
        with torch.autograd.set_multithreading_enabled(False):
            return call()

    return run


class Rust:
    """The worker of bench/compare, with the case that was loaded last."""

    def __init__(self, program, device):
        self.cuda = device.type == "cuda"
        command = [program, "--threads", str(torch.get_num_threads()), "--device", device.type]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # Ctrl-C is not meant for it.
        self.process = subprocess.Popen(command, **pipes, start_new_session=True)
        # The clock of the processor time of another process (clock_getcpuclockid of Linux).
        self.clock = (~self.process.pid << 3) | 2

    def ask(self, **message):
        print(json.dumps(message), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def load(self, work, meshes):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "case")
            self.ask(do="make", work=work, vertices=CLASSES, meshes=meshes, path=path)
            self.ask(do="load", case=path, matmul="tf32" if self.cuda else "f32")

    def run(self, count):
        start = time.clock_gettime(self.clock)
        wall = self.ask(do="run", calls=count)["seconds"]
        return wall, time.clock_gettime(self.clock) - start


def runner(call, device):
    """Runs a call some times, and gives wall time and processor time in seconds."""

    def run(count):
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - wall, time.process_time() - processor

    return run


def measure(runs, device):
    """Wall times and processor times of a call in ms, of each that does not fail."""
    seconds, turns = TURNS[device.type]
    counts, found = {}, {}
    for label, run in runs.items():
        try:
            run(1)
            counts[label] = min(max(int(2 * seconds / run(2)[0]), 1), 1000)
        except (Exception, KeyboardInterrupt) as error:
            print(f"{label}: failed: {error!r}"[:500], flush=True)
    for _ in range(turns):
        for label, count in counts.items():
            time.sleep(PAUSE if device.type == "cpu" else 0)
            times = (1e3 * value / count for value in runs[label](count))
            for all_of_clock, value in zip(found.setdefault(label, ([], [])), times, strict=True):
                all_of_clock.append(value)
    return found


def union(graphs, device):
    """Graphs in the form of bench/pytorch, with means over neighbours."""
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
    parts = (offsets, *map(torch.cat, (neighbours, theta, g)), 1 / offsets.diff().double())
    return plain.Graph(*(part.to(device) for part in parts))


def plain_layers(graphs, layer, device):
    """Layers of bench/pytorch with the same weights, as functions of x."""
    import convolution as plain

    graph = union(graphs, device)
    kind = plain.Kind(16, 2)
    weights = (layer.weight, layer.self_weight, layer.bias)
    direct = plain.direct_tables(graph, 2, torch.float32)
    gather = plain.gather_tables(graph, 2, torch.float32)
    compiled = torch.compile(plain.gather.apply)

    def published(x):
        folded = x.view(-1, 5, 16).transpose(1, 2)
        y = plain.direct(folded, layer.weight[0], *weights[1:], kind, kind, *direct)
        return y.transpose(1, 2).reshape(len(x), -1)

    return {BEST: lambda x: compiled(x, *weights, kind, kind, *gather), PUBLISHED: published}


def variants(plain, device):
    """Rows of our module from a forward pass and one with a backward pass: eager and, on a GPU, without its cost for each call."""
    if device.type == "cpu":
        return {OURS: plain}
    return {OURS: plain, ONE_THREAD: (None, in_one_thread(plain[1])), GRAPH: tuple(map(replayed, plain))}


def layer_calls(graphs, device):
    """Calls of one convolution on a batch of graphs: forward, and with backward pass."""
    graph = gt.Graph.collate([gt.Graph.of(one) for one in graphs]).to(device)
    torch.manual_seed(0)
    layer = gt.GaugeConv(HIDDEN, HIDDEN, aggregation="mean").to(device)
    x = torch.randn(graph.vertex_count, 80, device=device, requires_grad=True)
    dy = torch.randn(graph.vertex_count, 80, device=device)
    expected = layer(x, graph).detach()

    def calls(run, module=layer, x=x, dy=dy, expected=expected):
        def forward():
            with torch.no_grad():
                return run(x)

        def both():
            module.zero_grad(set_to_none=True)
            x.grad = None
            run(x).backward(dy)

        return checked(forward, expected, 3e-3), both

    def ours(x):
        return layer(x, graph)

    rows = variants(calls(ours), device)
    for name, run in plain_layers(graphs, layer, device).items():
        rows[name] = calls(run)
    if device.type == "cuda":
        rows[GRAPHED] = (None, calls(graphed(layer, ours))[1])
        rows[f"{BEST}, CUDA graph"] = tuple(map(replayed, rows[BEST]))
        small = torch.nn.Linear(4, 4).to(device)
        few = [torch.randn(16, 4, device=device) for _ in range(2)]
        rows["torch.nn.Linear(4, 4)"] = calls(small, small, few[0].requires_grad_(), few[1], None)
    return rows


def plain_network(graphs, form, ours, device):
    """The correspondence network in a form of bench/pytorch with the weights of ours, and as a function of x."""
    import network as plain

    hidden = "16x0 + 16x1 + 16x2"
    types = [hidden, hidden, "64x0"]
    layers = [{"residual": {"middle": hidden, "output": kind, "samples": 5}} for kind in types]
    layers += [{"linear": {"outputs": 256}}, "relu", {"dropout": {"probability": 0.5}}, {"linear": {"outputs": CLASSES}}]
    network = plain.Network({"input": "3x0", "mean": True, "layers": layers}, form, len(graphs))
    state = ours.state_dict()
    names = ours._names([name for name, _ in network.named_parameters()])
    network.load_state_dict({theirs: state[name] for theirs, name in names.items()}, strict=False)
    tables = plain.Tables(form, union(graphs, device), network.types(), torch.float32).to(device)
    network.to(device)
    run = network if form == "direct" else torch.compile(network)
    return network, lambda x: run(plain.to_form(form, x, network.input), tables)


def network_calls(graphs, device, beside):
    """Calls of the correspondence network on a batch of graphs: inference, and a training step with Adam. The networks `beside` are
    those of bench/pytorch."""
    cuda = device.type == "cuda"
    graph = gt.Graph.collate([gt.Graph.of(one) for one in graphs]).to(device)
    x = torch.randn(graph.vertex_count, 3, device=device)
    labels = torch.arange(CLASSES, device=device).repeat(len(graphs))
    torch.manual_seed(0)

    def calls(network, run, loss, fused=True):
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

        return checked(inference, expected, 0.02), step

    ours = gt.GemNetwork("3x0", CLASSES).to(device).eval()
    with torch.no_grad():
        expected = ours(x, graph)

    def our_loss(x):
        return ours(x, graph, labels)

    rows = variants(calls(ours, lambda x: ours(x, graph), our_loss), device)
    if cuda:
        rows[GRAPHED] = (None, calls(ours, None, graphed(ours, our_loss))[1])
    for name, form in beside.items():
        network, run = plain_network(graphs, form, ours, device)

        def loss(x, run=run):
            return torch.nn.functional.cross_entropy(run(x), labels)

        rows[name] = calls(network, run, loss, fused=form != "direct")
    if cuda and BEST in rows:
        rows[f"{BEST}, CUDA graph"] = tuple(map(replayed, rows[BEST]))
    return rows


def tables(rows, device):
    """Prints the least times."""
    clocks = {"wall": "wall time"} | ({"processor": "processor time"} if device.type == "cpu" else {})
    for clock, title in clocks.items():
        print(f"\n{title + ', ms':38} {'vertices':>9}" + "".join(f"{name:>24}" for name in WORKS.values()))
        least = {(row["vertices"], row["label"], row["work"]): min(row[f"{clock}_ms"]) for row in rows}
        for vertices, label in dict.fromkeys(key[:2] for key in least):
            cells = []
            for work in WORKS:
                time_of = least.get((vertices, label, work))
                rust = least.get((vertices, RUST, work))
                ratio = f" ({time_of / rust:.2f})" if time_of and rust else ""
                cells.append("" if time_of is None else f"{time_of:.4g}{ratio}")
            print(f"{label:38} {vertices:9}" + "".join(f"{cell:>24}" for cell in cells), flush=True)


def times(device, program=None, file=None, eager=False):
    """Prints all tables, if `eager` without what is compiled. Products on a GPU are in tf32, also those of Rust."""
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} threads of the CPU"
    machine = f"{name}, PyTorch {torch.__version__}"
    torch.set_float32_matmul_precision("high" if cuda else "highest")
    torus = gemcnn.shapes.torus((130, 53)).gauge_graph()
    rust = Rust(program, device) if program else None
    rows = []
    for batch in (8, 1) if cuda else (1,):
        graphs, beside = [torus] * batch, {BEST: "gather", PUBLISHED: "direct"} if batch > 1 or not cuda else {}
        for works, make in [
            (list(WORKS)[:2], lambda: layer_calls(graphs, device)),
            (list(WORKS)[2:], lambda: network_calls(graphs, device, beside)),
        ]:
            calls = {label: pair for label, pair in make().items() if not (eager and label.startswith(BEST))}
            for place, work in enumerate(works):
                runs = {}
                if rust:
                    rust.load(work, batch)
                    runs[RUST] = rust.run
                runs |= {label: runner(pair[place], device) for label, pair in calls.items() if pair[place]}
                for label, (wall, processor) in measure(runs, device).items():
                    row = {"label": label, "vertices": batch * CLASSES, "work": work}
                    rows.append(row | {"wall_ms": wall, "processor_ms": processor})
                if file:
                    Path(file).write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print(machine)
    tables(rows, device)
    torch.set_float32_matmul_precision("highest")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Times of gemcnn.torch.")
    parser.add_argument("device", nargs="?", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rust", metavar="PROGRAM", help="the worker of bench/compare, to measure beside it")
    parser.add_argument("--json", metavar="FILE", help="write all times there")
    parser.add_argument("--eager", action="store_true", help="leave out what is compiled")
    parser.add_argument("--threads", type=int, help="threads of the CPU (default: those of PyTorch)")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    times(torch.device(arguments.device), arguments.rust, arguments.json, arguments.eager)
