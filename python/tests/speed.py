"""Times of a convolution of gemcnn.torch, beside plain PyTorch layers (bench/pytorch), and of the correspondence network:

    python python/tests/speed.py            # on the CPU, with torch.get_num_threads() threads
    python python/tests/speed.py cuda
"""

import sys
import time
from pathlib import Path

import torch

import gemcnn
import gemcnn.torch as gt

HIDDEN = "16x(0,1,2)"


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def milliseconds(call, device, repeats=50, clock=time.perf_counter):
    """Least and median time of a call; on the CPU by a clock."""
    for _ in range(5):
        call()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start = clock()
            call()
            times.append(1e3 * (clock() - start))
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


def rivals(graphs, layer, device):
    """Layers of bench/pytorch with the same weights, as functions of x."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "pytorch"))
    try:
        import convolution as plain
    except ImportError:
        return {}
    offsets, neighbours, theta, g = [torch.zeros(1, dtype=torch.long)], [], [], []
    vertices = edges = 0
    for graph in graphs:
        offsets.append(torch.from_numpy(graph.offsets[1:].astype("int64")) + edges)
        neighbours.append(torch.from_numpy(graph.neighbours.astype("int64")) + vertices)
        theta.append(torch.from_numpy(graph.theta.copy()))
        g.append(torch.from_numpy(graph.transport.copy()))
        vertices += graph.vertex_count
        edges += graph.edge_count
    union = plain.Graph(
        torch.cat(offsets).to(device),
        torch.cat(neighbours).to(device),
        torch.cat(theta).to(device),
        torch.cat(g).to(device),
        torch.ones(vertices, dtype=torch.float64, device=device),
    )
    kind = plain.Kind(16, 2)
    weights = (layer.weight, layer.self_weight, layer.bias)
    direct = plain.direct_tables(union, 2, torch.float32)
    gather = plain.gather_tables(union, 2, torch.float32)
    compiled = torch.compile(plain.gather.apply)

    def published(x):
        folded = x.view(-1, 5, 16).transpose(1, 2)
        y = plain.direct(folded, layer.weight[0], *weights[1:], kind, kind, *direct)
        return y.transpose(1, 2).reshape(len(x), -1)

    return {
        "PyTorch, as the published code": published,
        "PyTorch, gathers, compiled": lambda x: compiled(x, *weights, kind, kind, *gather),
    }


def times(device):
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} threads of the CPU"
    print(f"\nms on {name}, PyTorch {torch.__version__}, least and median of 50; {HIDDEN} -> {HIDDEN}")
    print(f"{'':38} {'vertices':>9} {'forward':>17} {'forward + backward':>20}")
    torus = gemcnn.shapes.torus((130, 53)).gauge_graph()
    for precision in ("highest", "high") if cuda else ("highest",):
        torch.set_float32_matmul_precision(precision)
        for batch in (1, 8) if cuda else (1,):
            graphs = [torus] * batch
            graph = gt.Graph.collate([gt.Graph.of(one) for one in graphs]).to(device)
            torch.manual_seed(0)
            layer = gt.GaugeConv(HIDDEN, HIDDEN).to(device)
            x = torch.randn(graph.vertex_count, 80, device=device, requires_grad=True)
            dy = torch.randn(graph.vertex_count, 80, device=device)
            rows = {"gemcnn": lambda x: layer(x, graph)}
            rows |= rivals(graphs, layer, device)
            expected = layer(x, graph).detach()
            for name, call in rows.items():
                def forward(call=call):
                    with torch.no_grad():
                        return call(x)

                def both(call=call):
                    layer.zero_grad(set_to_none=True)
                    x.grad = None
                    call(x).backward(dy)

                versions = [(name, forward, both)]
                try:
                    error = relative(forward(), expected)
                    assert error < 3e-3, f"{name} differs by {error:.1e}"
                    if cuda and name == "gemcnn":
                        versions.append(("gemcnn, CUDA graph", captured(forward), captured(both)))
                    for label, one, two in versions:
                        cells = ["{:.3f} {:.3f}".format(*milliseconds(step, device)) for step in (one, two)]
                        label = f"{label} ({precision})"
                        print(f"{label:38} {graph.vertex_count:9} {cells[0]:>17} {cells[1]:>20}", flush=True)
                except Exception as error:
                    print(f"{name:38} {graph.vertex_count:9} failed: {error!r}"[:160], flush=True)
    torch.set_float32_matmul_precision("highest")


def network_times(device):
    """Training steps of the network of `gemcnn bench`: the default model `gem` with 6,890 classes, the fused loss, and Adam. On
    the CPU also the time of all threads together, which depends less on other work on the machine."""
    cuda = device.type == "cuda"
    print(f"\nms of the correspondence network, least and median of 10\n{'':38} {'vertices':>9} {'inference':>17} {'step':>20}")
    torch.set_float32_matmul_precision("high" if cuda else "highest")
    torus = gt.Graph.of(gemcnn.shapes.torus((130, 53)))
    for batch in (1, 8) if cuda else (1,):
        graph = gt.Graph.collate([torus] * batch).to(device)
        torch.manual_seed(0)
        network = gt.GemNetwork("3x0", 6890).to(device)
        optimiser = torch.optim.Adam(network.parameters(), 1e-3, fused=True, capturable=cuda)
        x = torch.randn(graph.vertex_count, 3, device=device)
        labels = torch.arange(6890, device=device).repeat(batch)

        def inference():
            with torch.no_grad():
                return network(x, graph)

        def step():
            optimiser.zero_grad(set_to_none=True)
            network(x, graph, labels).backward()
            optimiser.step()

        for label in ("gemcnn", "gemcnn, CUDA graph" if cuda else "gemcnn, time of the threads"):
            clock = time.process_time if "threads" in label else time.perf_counter
            cells = []
            for training, call in ((False, inference), (True, step)):
                network.train(training)
                call = captured(call) if cuda and "graph" in label else call
                cells.append("{:.3f} {:.3f}".format(*milliseconds(call, device, 10, clock)))
            print(f"{label:38} {graph.vertex_count:9} {cells[0]:>17} {cells[1]:>20}", flush=True)
    torch.set_float32_matmul_precision("highest")


if __name__ == "__main__":
    chosen = torch.device(*sys.argv[1:2] or ["cpu"])
    times(chosen)
    network_times(chosen)
