"""A small GPT that learns to write like a text file, character by character.

python -m treadle.examples.gpt FILE [--steps 500] [--context 64] [--width 128] [--layers 4] [--heads 4]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

import treadle as torch
from treadle import nn
from treadle.nn import functional as F


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    vocabulary: int
    context: int = 64
    width: int = 128
    layers: int = 4
    heads: int = 4
    dropout: float = 0.1


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads = c.heads
        self.dropout = c.dropout
        self.qkv = nn.Linear(c.width, 3 * c.width, bias=False)
        self.out = nn.Linear(c.width, c.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same."""
        n, t, width = x.shape
        q, k, v = (a.view(n, t, self.heads, width // self.heads).transpose(1, 2) for a in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(n, t, width))


class Block(nn.Module):
    """Attention and a perceptron, each with a norm before and a residual around."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(c.width)
        self.attention = Attention(c)
        self.norm2 = nn.LayerNorm(c.width)
        self.mlp = nn.Sequential(
            nn.Linear(c.width, 4 * c.width), nn.GELU(), nn.Linear(4 * c.width, c.width), nn.Dropout(c.dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token and position embeddings, blocks, and a head that shares the token embedding's weight."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.tokens = nn.Embedding(c.vocabulary, c.width)
        self.positions = nn.Embedding(c.context, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """Logits of the next token after each of (N, T) tokens."""
        x = self.tokens(index) + self.positions(torch.arange(index.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Text:
    """A file as token numbers, one for each distinct character."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self.alphabet = sorted(set(text))
        number = {c: i for i, c in enumerate(self.alphabet)}
        self.data = np.array([number[c] for c in text], dtype=np.int64)

    def batch(self, rng: np.random.Generator, n: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`n` random pieces, and the same pieces one character later."""
        starts = rng.integers(0, len(self.data) - length, size=n)
        rows = np.stack([self.data[i : i + length + 1] for i in starts])
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())

    def decode(self, tokens: list[int]) -> str:
        """Token numbers as text."""
        return "".join(self.alphabet[t] for t in tokens)


def train(model: GPT, text: Text, options: argparse.Namespace) -> float:
    """Train with AdamW, warm-up and cosine decay; the mean loss of the last steps."""
    rng = np.random.default_rng(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.99), weight_decay=0.1)
    warm = max(1, min(50, options.steps // 10))
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.05, total_iters=warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, options.steps - warm)),
        ],
        milestones=[warm],
    )
    model.train()
    recent: list[torch.Tensor] = []
    mean, start = float("nan"), time.perf_counter()
    for n in tqdm(range(1, options.steps + 1), desc="training", leave=False, disable=not sys.stderr.isatty()):
        x, y = text.batch(rng, options.batch_size, options.context)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent.append(loss.detach())
        if n % options.log_every == 0 or n == options.steps:
            mean = torch.stack(recent).mean().item()
            recent.clear()
            print(f"step {n:5d}   loss {mean:.4f}   {(time.perf_counter() - start) / n * 1e3:6.1f} ms/step", flush=True)
    return mean


@torch.no_grad()
def sample(model: GPT, length: int, temperature: float = 0.8) -> list[int]:
    """Let the model write `length` tokens after token 0. The window has a fixed size, so it is one program."""
    model.eval()
    context = model.config.context
    tokens = [0]
    for _ in range(length):
        window = tokens[-context:]
        padded = torch.tensor([window + [0] * (context - len(window))])
        logits = model(padded)[0, len(window) - 1] / temperature
        tokens.append(int(torch.multinomial(F.softmax(logits, dim=-1), 1).item()))
    return tokens[1:]


def main(arguments: list[str] | None = None) -> float:
    """Run the example; the final loss."""
    parser = argparse.ArgumentParser(description="A small character-level GPT.")
    parser.add_argument("file", type=Path, help="a text to learn from, say the plays of Shakespeare")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--sample", type=int, default=300, help="characters to write at the end")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    text = Text(options.file)
    if len(text.data) <= options.context:
        parser.error(f"{options.file} has {len(text.data)} characters; --context needs more than {options.context}")
    config = Config(len(text.alphabet), options.context, options.width, options.layers, options.heads, options.dropout)
    model = GPT(config)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text.data):,} characters")
    loss = train(model, text, options)
    print("\n" + text.decode(sample(model, options.sample)))
    return loss


if __name__ == "__main__":
    main()
