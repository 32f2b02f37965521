"""Segmentation of meshes in a folder with Lightning, in one process or several.

    python python/examples/lightning_segmentation.py                        # one process
    python python/examples/lightning_segmentation.py --devices 2            # two: gloo on CPUs, NCCL on GPUs
    python python/examples/lightning_segmentation.py --resume runs/last.ckpt --epochs 20

Without own meshes (`--data`), the folder is filled with synthetic bodies. A checkpoint holds the same weights and states for any
number of processes, so a run may continue with another number.
"""

import argparse
import os
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader

from segmentation import data, network, write_bodies


class Segmentation(lightning.LightningModule):
    """The network of the paper. The loss is computed without storing the logits."""

    def __init__(self, meshes, rate=0.01):
        super().__init__()
        self.rate = rate
        self.network = network(meshes)

    def training_step(self, batch, index):
        features, graph, labels = batch
        loss = self.network(features, graph, labels)
        self.log("loss", loss, prog_bar=True, batch_size=graph.mesh_count)
        return loss

    def validation_step(self, batch, index):
        features, graph, labels = batch
        found = self.network(features, graph).argmax(1)
        accuracy = (found == labels).float().mean()
        self.log("accuracy", accuracy, prog_bar=True, batch_size=graph.mesh_count, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default="bodies", help="folder; filled with bodies if it does not exist")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--bodies", type=int, default=16)
    parser.add_argument("--vertices", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=2, help="meshes of each process in a step")
    parser.add_argument("--devices", type=int, default=1, help="processes of each machine")
    parser.add_argument("--nodes", type=int, default=1, help="machines")
    parser.add_argument("--runs", default="runs", help="folder of the checkpoint last.ckpt")
    parser.add_argument("--resume", help="checkpoint to continue from")
    options = parser.parse_args()

    # Lightning starts the other processes of this one when it trains.
    if "LOCAL_RANK" not in os.environ and not options.data.exists():
        write_bodies(options.data, options.bodies, options.vertices)

    def loader(part):
        meshes = data(options.data, part)
        return DataLoader(meshes, options.batch, shuffle=part == "train", collate_fn=meshes.collate)

    training = loader("train")
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        devices=options.devices,
        num_nodes=options.nodes,
        strategy="ddp" if options.devices * options.nodes > 1 else "auto",
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(options.runs, filename="best", save_last=True)],
        logger=False,
    )
    trainer.fit(
        Segmentation(training.dataset.meshes),
        training,
        loader("test"),
        ckpt_path=options.resume,
    )
    if trainer.is_global_zero:
        accuracy = trainer.callback_metrics["accuracy"].item()
        print(f"step {trainer.global_step}  accuracy on other meshes {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
