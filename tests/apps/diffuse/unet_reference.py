#!/usr/bin/env python3
"""The U-Net of models/unet.lum against the same in PyTorch, written by hand: its velocity and the gradients of all weights in double
precision, within 1e-4 of their range.

usage: unet_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
"""
import json
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
SIZE, CLASSES, WIDTH, GROUPS, HIDDEN, WAVES, BLOCKS = 12, 4, 8, 2, 16, 32, 5


def shape_of(name, count):
    last = name.split(".")[-1]
    if last in ("half", "quarter", "first", "second"):
        return (WIDTH, 3, 3, WIDTH)
    if last in ("join_half", "join_whole"):
        return (WIDTH, 3, 3, 2 * WIDTH)
    known = {"enter": (WIDTH, 3, 3, 1), "leave": (1, 3, 3, WIDTH), "time_up": (HIDDEN, WAVES), "time_down": (HIDDEN, HIDDEN),
             "labels": (CLASSES + 1, HIDDEN), "modulation": (2 * WIDTH, HIDDEN)}
    return known.get(last, (count,))


def conv(w, name, x, stride=1):
    return F.conv2d(x, w[name].permute(0, 3, 1, 2), w[name + "_level"], stride=stride, padding=1)


def block(w, layer, x, about):
    at = f"layers.{layer}."
    scale, shift = F.linear(about, w[at + "modulation"], w[at + "modulation_level"]).chunk(2, -1)
    normed = F.group_norm(x, GROUPS, w[at + "norm"], w[at + "norm_level"], 1e-5)
    inner = conv(w, at + "first", F.silu(normed)) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
    return x + conv(w, at + "second", F.silu(inner))


def velocity(w, x, t, label):
    angles = t[:, None] * 1000 * torch.tensor([10000.0 ** (-2.0 * i / WAVES) for i in range(WAVES // 2)], dtype=t.dtype)
    waves = torch.cat([angles.cos(), angles.sin()], -1)
    now = F.linear(F.silu(F.linear(waves, w["time_up"], w["time_up_level"])), w["time_down"], w["time_down_level"])
    about = F.silu(now + w["labels"][label])
    doubled = lambda v: F.interpolate(v, scale_factor=2, mode="nearest")
    whole = block(w, 0, conv(w, "enter", x[:, None]), about)
    middle = block(w, 1, conv(w, "half", whole, 2), about)
    low = block(w, 2, conv(w, "quarter", middle, 2), about)
    up = block(w, 3, conv(w, "join_half", torch.cat([doubled(low), middle], 1)), about)
    last = block(w, 4, conv(w, "join_whole", torch.cat([doubled(up), whole], 1)), about)
    return conv(w, "leave", F.silu(last))[:, 0]


def off_by(theirs, ours):
    ours = torch.tensor(ours, dtype=torch.float64).reshape(theirs.shape)
    return (theirs - ours).abs().max().item() / max((theirs.max() - theirs.min()).item(), 1e-12)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "--gtest_filter=UnetExchange.Write"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "LUMEN_EXCHANGE_DIR": folder})
        ours = json.loads((Path(folder) / "unet.json").read_text())
    w = {name: torch.tensor(v, dtype=torch.float64).reshape(shape_of(name, len(v))).requires_grad_() for name, v in ours["weights"].items()}
    double = lambda key: torch.tensor(ours[key], dtype=torch.float64)
    images = len(ours["t"])
    y = velocity(w, double("x").reshape(images, SIZE, SIZE), double("t"), torch.tensor(ours["label"]))
    (y * double("arriving").reshape(y.shape)).sum().backward()
    worst = {"velocity": off_by(y.detach(), ours["velocity"])}
    for name, weight in w.items():
        worst[name] = off_by(weight.grad, ours["gradients"][name]) if len(ours["gradients"][name]) > 1 else abs(
            weight.grad.item() - ours["gradients"][name][0]) / max(abs(weight.grad.item()), 1e-12)
    bad = {name: error for name, error in worst.items() if not error <= BOUND}
    print(f"velocity {worst['velocity']:.2e} of its range, {len(w)} gradients, the worst {max(worst.values()):.2e}")
    for name, error in bad.items():
        print(f"{name}: off by {error:.2e} of its range")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
