"""Learn scikit-learn's handwritten digits with a small convolutional net.

python -m treadle.examples.digits [--epochs 10] [--batch-size 64] [--seed 0] [--out out]

Everything above `report` is ordinary PyTorch: with `import torch` it is the same program.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import treadle as torch
from treadle import nn
from treadle.nn import functional as F
from treadle.utils.data import DataLoader, TensorDataset


def make_net() -> nn.Module:
    """Two blocks of convolution, normalisation and ReLU, and a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 4 * 4, 10),
    )  # fmt: skip


def load_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """1437 images to learn from and 360 to test on."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = torch.tensor(digits.images[order], dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target[order])
    return TensorDataset(images[:1437], labels[:1437]), TensorDataset(images[1437:], labels[1437:])


class Trainer:
    """A net with its optimizer and learning-rate schedule."""

    def __init__(self, epochs: int, steps: int) -> None:
        self.net = make_net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-3, weight_decay=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs * steps)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One step of training on a batch; its loss."""
        loss = F.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def epoch(self, loader: DataLoader, label: str) -> float:
        """One pass over the data; the mean loss."""
        self.net.train()
        losses = []
        for x, y in tqdm(loader, desc=label, leave=False, disable=not sys.stderr.isatty()):
            losses.append(self.step(x, y).detach())
        return torch.stack(losses).mean().item()

    def accuracy(self, loader: DataLoader) -> float:
        """The share of images that get their own label."""
        self.net.eval()
        right = seen = 0
        with torch.no_grad():
            for x, y in loader:
                right += (self.net(x).argmax(1) == y).sum().item()
                seen += len(y)
        return right / seen


def train(epochs: int, batch_size: int, seed: int) -> tuple[Trainer, float, list[int]]:
    """Train and print; the trainer, its accuracy, and the number of programs there were after each epoch."""
    torch.manual_seed(seed)
    learn, test = load_data(seed)
    shuffled = DataLoader(learn, batch_size=batch_size, shuffle=True)
    ordered = DataLoader(test, batch_size=256)
    trainer = Trainer(epochs, len(shuffled))
    accuracy, programs = 0.0, []
    before = torch.compiler.stats().programs
    for n in range(1, epochs + 1):
        start = time.perf_counter()
        loss = trainer.epoch(shuffled, f"epoch {n}")
        accuracy = trainer.accuracy(ordered)
        seconds = time.perf_counter() - start
        programs.append(torch.compiler.stats().programs - before)
        print(f"epoch {n:2d}   loss {loss:.4f}   test accuracy {accuracy:.4f}   {seconds:5.2f} s", flush=True)
    return trainer, accuracy, programs


def report(trainer: Trainer, accuracy: float, programs: list[int], seconds: float, out: Path) -> None:
    """Print what it took, and draw the program of one training step."""
    early = programs[:2][-1]
    print(f"\ntest accuracy {accuracy:.4f} in {seconds:.1f} s, compilation included")
    print(f"programs compiled: {early} in the first two epochs, {programs[-1] - early} after")
    x, y = torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,))
    trainer.net.train()
    picture = torch.compiler.visualize(trainer.step, x, y, path=out / "digits-step")
    print("the program of one training step:", *picture.files, *picture.notes)


def main(arguments: list[str] | None = None) -> float:
    """Run the example; the accuracy."""
    parser = argparse.ArgumentParser(description="Learn handwritten digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture of the program")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    trainer, accuracy, programs = train(options.epochs, options.batch_size, options.seed)
    report(trainer, accuracy, programs, time.perf_counter() - start, options.out)
    return accuracy


if __name__ == "__main__":
    main()
