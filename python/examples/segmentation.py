"""Segmentation of meshes in a folder, in several processes, each of which reads its share of the meshes.

    torchrun --nproc-per-node 2 python/examples/segmentation.py             # gloo on CPUs, NCCL on GPUs
    python python/examples/segmentation.py --epochs 5                       # one process
    python python/examples/segmentation.py --epochs 20 --checkpoint run.pt  # continues if the file exists
    python python/examples/segmentation.py --data teeth                     # own meshes: see docs/data.md

Without own meshes, the folder is filled with synthetic bodies. Prepared meshes are kept in the cache on disk. The same script runs on
several machines (`torchrun --nnodes`) with a common folder. Batch normalisation uses the statistics of all processes. A checkpoint does
not depend on the number of processes, so a run may continue with another number.
"""

import argparse
import gc
import os
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler

import gemcnn
import gemcnn.torch as gt


def write_bodies(folder, count, vertices):
    """Synthetic bodies with a class at each vertex, for training and for testing."""
    for part, indices in (("train", range(count)), ("test", range(1000, 1004))):
        meshes, labels = gemcnn.shapes.bodies(indices, vertices=vertices)
        os.makedirs(folder / part)
        for index, mesh in zip(indices, meshes, strict=True):
            mesh.write(folder / part / f"{index}.ply")
            np.save(folder / part / f"{index}.npy", labels.astype("int64"))


def data(folder, part):
    """Meshes of a part with matrix features and labels."""
    config = {
        "task": "segmentation",
        "data": {"folder": folder},
        "features": {"kind": "matrix"},
        "model": {"kind": "gem"},
        "training": {"validation": 0.0},
    }
    return gt.DataSet(config, part)


def network(meshes):
    """A small network for a data set."""
    options = {"blocks": 2, "channels": 8, "scalars": 32, "head": 64, "dropout": 0.0}
    return gt.GemNetwork(meshes.input, len(meshes.classes), **options)


def accuracy(model, loader, device):
    """Share of correct vertices over all processes."""
    counts = torch.zeros(2, device=device)
    model.eval()
    with torch.no_grad():
        for features, graph, labels in loader:
            found = model(features.to(device), graph.to(device)).argmax(1)
            counts += torch.stack([(found == labels.to(device)).sum(), torch.tensor(len(labels), device=device)])
    model.train()
    if distributed.is_initialized():
        distributed.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default="bodies", help="folder; filled with bodies if it does not exist")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--bodies", type=int, default=16)
    parser.add_argument("--vertices", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=2, help="meshes of each process in a step")
    parser.add_argument("--workers", type=int, default=0, help="processes that read meshes for each process")
    parser.add_argument("--checkpoint", help="file that is written after each epoch, and continued from")
    train(parser.parse_args())
    if distributed.is_initialized():
        # The model is gone before the threads of gloo end: those abort if they free tensors of Python after it has ended.
        gc.collect()
        distributed.barrier()
        distributed.destroy_process_group()


def train(options):
    several = "RANK" in os.environ
    first_process = os.environ.get("RANK", "0") == "0"
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if several:
        distributed.init_process_group("nccl" if cuda else "gloo")
    if first_process and not options.data.exists():
        write_bodies(options.data, options.bodies, options.vertices)
    if several:
        distributed.barrier()

    def loader(part):
        meshes = data(options.data, part)
        sampler = DistributedSampler(meshes, shuffle=True) if several else None
        return DataLoader(
            meshes,
            options.batch,
            shuffle=sampler is None,
            sampler=sampler,
            num_workers=options.workers,
            persistent_workers=options.workers > 0,
            collate_fn=meshes.collate,
            pin_memory=cuda,
        )

    training, test = loader("train"), loader("test")
    torch.manual_seed(0)
    plain = network(training.dataset.meshes).to(device)
    model = nn.parallel.DistributedDataParallel(plain) if several else plain
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    first = 0
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint, map_location=device, weights_only=True)
        plain.load_state_dict(saved["network"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["epoch"]
    for epoch in range(first, options.epochs):
        if several:
            training.sampler.set_epoch(epoch)
        for features, graph, labels in training:
            optimiser.zero_grad()
            loss = model(features.to(device), graph.to(device), labels.to(device))
            loss.backward()
            optimiser.step()
        score = accuracy(model, test, device)
        if first_process:
            print(f"epoch {epoch + 1}  loss {loss.item():.3f}  accuracy on other meshes {score:.3f}", flush=True)
            if options.checkpoint:
                state = {"network": plain.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch + 1}
                torch.save(state, options.checkpoint + ".new")
                os.replace(options.checkpoint + ".new", options.checkpoint)


if __name__ == "__main__":
    main()
