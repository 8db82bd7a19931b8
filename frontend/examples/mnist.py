"""LeNet on MNIST, read from the four original idx files (gzipped or not).

python -m treadle.examples.mnist FOLDER [--epochs 2] [--batch-size 128] [--limit N]
"""

from __future__ import annotations

import argparse
import gzip
import struct
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import treadle as torch
from treadle import nn
from treadle.nn import functional as F
from treadle.utils.data import DataLoader, TensorDataset


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images (N, 1, 28, 28)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file of bytes. Raises ValueError where it is something else."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    zero, kind, rank = struct.unpack_from(">HBB", data)
    if zero != 0 or kind != 8:
        raise ValueError(f"{path} is no idx file of unsigned bytes")
    shape = struct.unpack_from(f">{rank}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load(folder: Path, part: str, limit: int | None) -> TensorDataset:
    """`part` is "train" or "t10k"."""
    arrays = []
    for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        path = next((p for p in (folder / f"{name}.gz", folder / name) if p.exists()), None)
        if path is None:
            raise FileNotFoundError(f"{folder} has neither {name}.gz nor {name}")
        arrays.append(read_idx(path)[:limit])
    images = torch.tensor(arrays[0].astype(np.float32) / 255).unsqueeze(1)
    return TensorDataset((images - 0.1307) / 0.3081, torch.tensor(arrays[1].astype(np.int64)))


def train_epoch(net: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, label: str) -> float:
    """One pass over the data; the mean loss."""
    net.train()
    total = torch.zeros(())
    for x, y in tqdm(loader, desc=label, leave=False, disable=not sys.stderr.isatty()):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def accuracy(net: nn.Module, loader: DataLoader) -> float:
    """The share of images that get their own label."""
    net.eval()
    right = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    return right / len(loader.dataset)


def main(arguments: list[str] | None = None) -> float:
    """Run the example; the accuracy on the test images."""
    parser = argparse.ArgumentParser(description="LeNet on MNIST.")
    parser.add_argument("folder", type=Path, help="where train-images-idx3-ubyte.gz and the other three files are")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="use only the first LIMIT images of each part")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    learn = DataLoader(load(options.folder, "train", options.limit), batch_size=options.batch_size, shuffle=True)
    test = DataLoader(load(options.folder, "t10k", options.limit), batch_size=1000)
    net = LeNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=options.lr)
    right = 0.0
    for n in range(1, options.epochs + 1):
        start = time.perf_counter()
        loss = train_epoch(net, optimizer, learn, f"epoch {n}")
        right = accuracy(net, test)
        seconds = time.perf_counter() - start
        print(f"epoch {n:2d}   loss {loss:.4f}   test accuracy {right:.4f}   {seconds:5.1f} s", flush=True)
    return right


if __name__ == "__main__":
    main()
