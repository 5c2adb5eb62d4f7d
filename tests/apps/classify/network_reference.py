#!/usr/bin/env python3
"""Image classifiers of models/*.lum against PyTorch: logits, the loss and its gradients by every trained parameter, within 1e-4 of
their range.

usage: network_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
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


def first(x):
    """Channels in front, as PyTorch has them."""
    return x.movedim(-1, 1)


def conv(x, w, stride=1):
    return F.conv2d(x, first(w), None, stride, w.shape[1] // 2)


def small_images(p, images):
    x = first(images)
    for name in ("conv1", "conv2"):
        x = F.max_pool2d(F.relu(conv(x, p[name]) + p[name + "_level"][:, None, None]), 2)
    x = F.relu(x.movedim(1, -1).reshape(len(images), -1) @ p["inner"].T + p["inner_level"])
    return x @ p["last"].T + p["last_level"]


def resnet(p, images, trains=False):
    def norm(x, name):
        return F.batch_norm(x, p[name + "_mean"].detach().clone(), p[name + "_variance"].detach().clone(), p[name + "_scale"], p[name + "_level"],
                            trains, 0.1, 1e-5)

    x = F.relu(norm(conv(first(images), p["first"]), "first"))
    for i in range(sum(name.endswith(".one") for name in p)):
        block = f"layers.{i}."
        w = p[block + "one"]
        halves = w.shape[0] != w.shape[3]
        y = F.relu(norm(conv(x, w, 2 if halves else 1), block + "one"))
        y = norm(conv(y, p[block + "two"]), block + "two")
        around = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, w.shape[3] // 2, w.shape[3] // 2)) if halves else x
        x = F.relu(y + around)
    return x.mean((2, 3)) @ p["answer"].T + p["answer_level"]


def off(name, ours, theirs):
    error = float((ours - theirs).abs().max() / max(float(theirs.abs().max()), 1e-6))
    if error > BOUND:
        print(f"  {name}: off by {error:.2e} of its range")
    return error


def check(case):
    tensor = lambda t: torch.tensor(t["values"], dtype=torch.float64).reshape(t["shape"])
    p = {name: tensor(t).requires_grad_(name in case["gradients"]) for name, t in case["parameters"].items()}
    images, shown = tensor(case["images"]), torch.tensor(case["shown"])
    function = {"small_images": small_images, "resnet": resnet}[case["family"]]
    worst = off("logits", tensor(case["logits"]), function(p, images).detach())
    loss = F.cross_entropy(function(p, images, *([True] if case["family"] == "resnet" else [])), shown)
    worst = max(worst, off("loss", torch.tensor(case["loss"]), loss.detach()))
    loss.backward()
    for name, gradient in case["gradients"].items():
        worst = max(worst, off(name, tensor(gradient), p[name].grad))
    print(f"{case['family']}: {len(case['gradients'])} gradients, at most {worst:.2e} of a range off")
    return worst <= BOUND


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.argv[1], "--gtest_filter=ClassifyExchange.*"]
        subprocess.run(program, env={**os.environ, "LUMEN_EXCHANGE_DIR": folder}, check=True, stdout=subprocess.DEVNULL)
        files = sorted(Path(folder).glob("*.json"))
        assert len(files) >= 2, "the test program wrote nothing"
        good = [check(json.loads(file.read_text())) for file in files]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
