"""The examples learn, in small."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from treadle.examples import digits, gpt, mnist


def test_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = digits.main(["--epochs", "3", "--out", str(tmp_path)])
    assert accuracy >= 0.95
    out = capsys.readouterr().out
    assert "test accuracy" in out and "programs compiled" in out
    source = (tmp_path / "digits-step.dot").read_text()
    assert "digits.py" in source and "subgraph cluster_" in source


def write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


def test_mnist(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, n in (("train", 300), ("t10k", 50)):
        labels = rng.integers(0, 10, n).astype(np.uint8)
        images = rng.integers(0, 60, (n, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):  # a bright bar whose place tells the digit
            image[2 * label + 4 : 2 * label + 7] = 255
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
    assert mnist.read_idx(tmp_path / "t10k-images-idx3-ubyte.gz").shape == (50, 28, 28)
    assert mnist.main([str(tmp_path), "--epochs", "4", "--batch-size", "32"]) > 0.8


def test_mnist_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte"):
        mnist.main([str(tmp_path)])


def test_gpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 60)
    loss = gpt.main(
        [str(text), "--steps", "60", "--context", "16", "--width", "32", "--layers", "2", "--heads", "2",
         "--batch-size", "8", "--dropout", "0", "--log-every", "20", "--sample", "20", "--lr", "1e-2"]
    )  # fmt: skip
    assert loss < 1.0
    assert len(capsys.readouterr().out.splitlines()[-1]) >= 20
