"""Trains a small GPT on the text of this book, once with PyTorch's attention and once with fa's, from the same start and on the
same batches, and prints both losses. The model guesses the next byte.

  python3 examples/train_gpt.py                      on a GPU: 6 layers, 4 heads with head_dim 128, 1024 tokens, 200 steps
  python3 examples/train_gpt.py --small --steps 4    without one: the emulator computes fa's attention and its gradients
  python3 examples/train_gpt.py --json losses.json   and writes them

Needs torch, and fa where Python finds it (docs/use.md). Exit code: 0 done, 2 bad arguments."""

import argparse
import json
from pathlib import Path

import fa
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

ROOT = Path(__file__).resolve().parent.parent
EVERY = 10  # steps for which the mean of the losses is told


def by_torch(q, k, v):
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def by_fa(q, k, v):
    return fa.flash_attn_func(q, k, v, causal=True)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, attend):
        q, k, v = self.to_qkv(self.first(x)).bfloat16().unflatten(-1, (3, self.heads, -1)).unbind(2)
        x = x + self.to_out(attend(q, k, v).flatten(2))
        return x + self.down(gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, tokens):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(tokens, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.norm, self.to_logits = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, text, attend):
        x = self.bytes(text) + self.places.weight
        for layer in self.layers:
            x = layer(x, attend)
        return self.to_logits(self.norm(x))


def losses(attend, text, steps, batch, device, shape):
    """The loss of each step."""
    torch.manual_seed(1)
    model = Gpt(*shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    tokens, found = shape[-1], []
    for step in range(steps):
        begins = torch.randint(len(text) - tokens - 1, (batch,))
        pieces = torch.stack([text[begin:begin + tokens + 1] for begin in begins]).long().to(device)
        with torch.autocast(device, torch.bfloat16):
            logits = model(pieces[:, :-1], attend)
        loss = cross_entropy(logits.float().flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
        print(f"\r{attend.__name__}: step {step + 1} of {steps}", end="", flush=True)
    print()
    return torch.stack(found).tolist()


def means(found):
    return [sum(part) / len(part) for part in (found[i:i + EVERY] for i in range(0, len(found), EVERY))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, metavar="N")
    parser.add_argument("--small", action="store_true", help="one layer with one head of 64, 128 tokens")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    if args.json and not args.json.absolute().parent.is_dir():
        parser.error(f"there is no folder {args.json.parent}")
    device = "cuda" if torch.cuda.is_available() and not args.small else "cpu"
    text = torch.tensor(list(b"".join(path.read_bytes() for path in sorted((ROOT / "docs").rglob("*.md")))), dtype=torch.uint8)
    shape, batch = ((1, 64, 1, 128), 2) if args.small else ((6, 512, 4, 1024), 16)
    found = {attend.__name__: losses(attend, text, args.steps, batch, device, shape) for attend in (by_torch, by_fa)}
    torchs, ours = map(means, found.values())
    print("\nsteps         by_torch     by_fa")
    for i, (one, other) in enumerate(zip(torchs, ours)):
        print(f"{i * EVERY + 1:>4} to {min(args.steps, (i + 1) * EVERY):<5} {one:>9.4f} {other:>9.4f}")
    print(f"furthest apart: {max(abs(one - other) for one, other in zip(torchs, ours)):.4f} (both round to bf16, in different places)")
    if args.json:
        steps = [{"step": step, "by_torch": one, "by_fa": other} for step, (one, other) in enumerate(zip(*found.values()), 1)]
        args.json.write_text(json.dumps({"training_version": 1, "torch": torch.__version__,
                                         "gpu": torch.cuda.get_device_name() if device == "cuda" else None, "steps": steps}) + "\n")


if __name__ == "__main__":
    main()
