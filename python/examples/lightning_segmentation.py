"""Segmentation of synthetic bodies with Lightning, in one process or several.

    python python/examples/lightning_segmentation.py                        # one process
    python python/examples/lightning_segmentation.py --devices 2            # two: gloo on CPUs, NCCL on GPUs
    python python/examples/lightning_segmentation.py --resume runs/last.ckpt --epochs 20

A checkpoint holds the same weights and states for any number of processes, so a run may continue with another number.
"""

import argparse

import lightning
import torch
from torch.utils.data import DataLoader

import gemcnn.torch as gt
from segmentation import Bodies, collate


class Segmentation(lightning.LightningModule):
    """The network of the paper with 14 classes. The loss is computed without storing the logits."""

    def __init__(self, rate=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.network = gt.GemNetwork("7x(0,1,2)", 14, blocks=2, channels=8, scalars=32, head=64, dropout=0.0)

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
        return torch.optim.Adam(self.parameters(), self.hparams.rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--bodies", type=int, default=16)
    parser.add_argument("--vertices", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=2, help="meshes of each process in a step")
    parser.add_argument("--devices", type=int, default=1, help="processes of each machine")
    parser.add_argument("--nodes", type=int, default=1, help="machines")
    parser.add_argument("--runs", default="runs", help="folder of the checkpoint last.ckpt")
    parser.add_argument("--resume", help="checkpoint to continue from")
    options = parser.parse_args()

    def loader(indices, shuffle):
        return DataLoader(Bodies(indices, options.vertices), options.batch, shuffle=shuffle, collate_fn=collate)

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
        Segmentation(),
        loader(range(options.bodies), True),
        loader(range(1000, 1004), False),
        ckpt_path=options.resume,
    )
    if trainer.is_global_zero:
        accuracy = trainer.callback_metrics["accuracy"].item()
        print(f"step {trainer.global_step}  accuracy on other bodies {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
