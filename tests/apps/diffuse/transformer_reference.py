#!/usr/bin/env python3
"""The diffusion transformer of models/dit.lum against the same in PyTorch, written by hand from its publication: its velocity and
the gradients of all weights, within 1e-4 of their range.

usage: transformer_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
"""
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch")
    sys.exit(77)

BOUND = 1e-4
SIZE, PATCH, CLASSES, LAYERS, HIDDEN, HEADS, WAVES = 12, 4, 4, 2, 32, 2, 256
SIDE = SIZE // PATCH
SHAPES = {
    "patch_in": (HIDDEN, PATCH * PATCH),
    "time_up": (HIDDEN, WAVES),
    "time_down": (HIDDEN, HIDDEN),
    "labels": (CLASSES + 1, HIDDEN),
    "modulation": (6 * HIDDEN, HIDDEN),
    "qkv": (3 * HIDDEN, HIDDEN),
    "out": (HIDDEN, HIDDEN),
    "up": (4 * HIDDEN, HIDDEN),
    "down": (HIDDEN, 4 * HIDDEN),
    "last_modulation": (2 * HIDDEN, HIDDEN),
    "patch_out": (PATCH * PATCH, HIDDEN),
}


def waves(t, width):
    angles = t[:, None] * torch.tensor([10000.0 ** (-2.0 * i / width) for i in range(width // 2)], dtype=t.dtype)
    return torch.cat([angles.cos(), angles.sin()], -1)


def places(dtype):
    one = waves(torch.arange(SIDE, dtype=dtype), HIDDEN // 2)
    rows = one[:, None].expand(SIDE, SIDE, -1)
    columns = one[None].expand(SIDE, SIDE, -1)
    return torch.cat([rows, columns], -1).reshape(SIDE * SIDE, HIDDEN)


def moved(h, shift, scale):
    return F.layer_norm(h, (HIDDEN,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def velocity(w, x, t, label):
    linear = lambda name, v: F.linear(v, w[name], w["patch_level" if name == "patch_in" else name + "_level"])
    images = x.shape[0]
    cut = x.reshape(images, SIDE, PATCH, SIDE, PATCH).permute(0, 1, 3, 2, 4).reshape(images, SIDE * SIDE, PATCH * PATCH)
    h = linear("patch_in", cut) + places(x.dtype)
    now = linear("time_down", F.silu(linear("time_up", waves(t * 1000, WAVES))))
    about = F.silu(now + w["labels"][label])
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        shift1, scale1, gate1, shift2, scale2, gate2 = linear(at + "modulation", about).chunk(6, -1)
        q, k, v = linear(at + "qkv", moved(h, shift1, scale1)).reshape(images, -1, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        p = (q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS)).softmax(-1)
        mixed = (p @ v).transpose(1, 2).reshape(images, -1, HIDDEN)
        h = h + gate1[:, None] * linear(at + "out", mixed)
        inner = F.gelu(linear(at + "up", moved(h, shift2, scale2)), approximate="tanh")
        h = h + gate2[:, None] * linear(at + "down", inner)
    shift, scale = linear("last_modulation", about).chunk(2, -1)
    patches = linear("patch_out", moved(h, shift, scale))
    return patches.reshape(images, SIDE, SIDE, PATCH, PATCH).permute(0, 1, 3, 2, 4).reshape(images, SIZE, SIZE)


def shape_of(name, count):
    shape = SHAPES.get(name.split(".")[-1], (count,))
    assert math.prod(shape) == count, name
    return shape


def off_by(theirs, ours):
    ours = torch.tensor(ours, dtype=torch.float64).reshape(theirs.shape)
    spread = (theirs.max() - theirs.min()).item()
    return (theirs - ours).abs().max().item() / max(spread, 1e-12)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "--gtest_filter=TransformerExchange.Write"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "LUMEN_EXCHANGE_DIR": folder})
        ours = json.loads((Path(folder) / "transformer.json").read_text())
    w = {name: torch.tensor(v, dtype=torch.float64).reshape(shape_of(name, len(v))).requires_grad_() for name, v in ours["weights"].items()}
    double = lambda key: torch.tensor(ours[key], dtype=torch.float64)
    images = len(ours["t"])
    y = velocity(w, double("x").reshape(images, SIZE, SIZE), double("t"), torch.tensor(ours["label"]))
    (y * double("arriving").reshape(y.shape)).sum().backward()
    worst = {"velocity": off_by(y.detach(), ours["velocity"])}
    for name, weight in w.items():
        worst[name] = off_by(weight.grad, ours["gradients"][name])
    bad = {name: error for name, error in worst.items() if not error <= BOUND}
    print(f"velocity {worst['velocity']:.2e} of its range, {len(w)} gradients, the worst {max(worst.values()):.2e}")
    for name, error in bad.items():
        print(f"{name}: off by {error:.2e} of its range")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
