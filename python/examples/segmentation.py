"""Segmentation of synthetic bodies in several processes, each with its share of the meshes.

    torchrun --nproc-per-node 2 python/examples/segmentation.py             # gloo on CPUs, NCCL on GPUs
    python python/examples/segmentation.py --epochs 5                       # one process
    python python/examples/segmentation.py --epochs 20 --checkpoint run.pt  # continues if the file exists

The same script runs on several machines (`torchrun --nnodes`). Batch normalisation uses the statistics of all processes. A
checkpoint does not depend on the number of processes, so a run may continue with another number.
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import gemcnn
import gemcnn.torch as gt


class Bodies(Dataset):
    """Bodies with a class at each vertex. Geometry is computed by the workers of the loader, once for each mesh."""

    def __init__(self, indices, vertices):
        self.meshes, parts = gemcnn.shapes.bodies(indices, vertices=vertices)
        self.labels = torch.from_numpy(parts.astype("int64"))
        self.prepared = {}

    def __len__(self):
        return len(self.meshes)

    def __getitem__(self, index):
        if index not in self.prepared:
            mesh = self.meshes[index]
            graph = mesh.gauge_graph()
            features = torch.from_numpy(mesh.features("matrix", graph).values).float()
            self.prepared[index] = (features, gt.Graph.of(graph), self.labels)
        return self.prepared[index]


def collate(samples):
    features, graphs, labels = zip(*samples)
    return torch.cat(features), gt.Graph.collate(graphs), torch.cat(labels)


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
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--bodies", type=int, default=16)
    parser.add_argument("--vertices", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=2, help="meshes of each process in a step")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare meshes")
    parser.add_argument("--checkpoint", help="file that is written after each epoch, and continued from")
    options = parser.parse_args()

    several = "RANK" in os.environ
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if several:
        distributed.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    model = gt.GemNetwork("7x(0,1,2)", 14, blocks=2, channels=8, scalars=32, head=64, dropout=0.0).to(device)
    network = model
    if several:
        model = nn.parallel.DistributedDataParallel(model)

    def loader(indices):
        data = Bodies(indices, options.vertices)
        sampler = DistributedSampler(data, shuffle=True) if several else None
        return DataLoader(
            data,
            options.batch,
            shuffle=sampler is None,
            sampler=sampler,
            num_workers=options.workers,
            persistent_workers=options.workers > 0,
            collate_fn=collate,
            pin_memory=cuda,
        )

    training, test = loader(range(options.bodies)), loader(range(1000, 1004))
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    first = 0
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint, map_location=device, weights_only=True)
        network.load_state_dict(saved["network"])
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
        if not several or distributed.get_rank() == 0:
            print(f"epoch {epoch + 1}  loss {loss.item():.3f}  accuracy on other bodies {score:.3f}", flush=True)
            if options.checkpoint:
                state = {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch + 1}
                torch.save(state, options.checkpoint + ".new")
                os.replace(options.checkpoint + ".new", options.checkpoint)
    if several:
        # gloo may abort where one process closes its connections while another still works.
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
