#!/usr/bin/env python3
"""Convolutions, poolings, norms and recurrences of models/functions.lum against PyTorch: results, and gradients by every input, within
1e-4 of their range.

usage: functions_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
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


def first(x):
    """Channels in front, as PyTorch has them."""
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


def conv(function):
    return lambda i, s: [last(function(first(i["x"]), first(i["w"]), **s))]


def conv_transpose2d(i, s):
    s = dict(s)
    more = s.pop("more", 0)
    return [last(F.conv_transpose2d(first(i["x"]), first(i["w"]), output_padding=more, **s))]


def pool(function):
    return lambda i, s: [last(function(first(i["x"]), s["size"], s["stride"], s["padding"]))]


def group_norm(i, s):
    return [last(F.group_norm(first(i["x"]), s["groups"], i["w"], i["b"], 1e-5))]


def batch_norm(i, s):
    return [last(F.batch_norm(first(i["x"]), None, None, i["w"], i["b"], True, 0.1, 1e-5))]


def batch_norm_of(i, s):
    """PyTorch has no gradient by the statistics, so the values alone are its own."""
    y = (i["x"] - i["mean_of"]) / torch.sqrt(i["variance"] + 1e-5) * i["w"] + i["b"]
    with torch.no_grad():
        theirs = last(F.batch_norm(first(i["x"]), i["mean_of"], i["variance"], i["w"], i["b"], False, 0.1, 1e-5))
        assert (y - theirs).abs().max() < 1e-9
    return [y]


def batch_norm_remembered(i, s):
    mean, variance = i["mean_of"].detach().clone(), i["variance"].detach().clone()
    y = F.batch_norm(first(i["x"]), mean, variance, i["w"], i["b"], True, s["rate"], 1e-5)
    return [last(y), mean, variance]


def gru_cell(i, s):
    return [torch.gru_cell(i["x"], i["h"], i["w"], i["u"], i["b"], i["c"])]


def gru(i, s):
    y, _ = torch.gru(i["x"], i["h"][None], [i["w"], i["u"], i["b"], i["c"]], True, 1, 0.0, False, False, True)
    return [y]


def lstm(i, s):
    state = [i["h"][None], i["m"][None]]
    y, _, _ = torch.lstm(i["x"], state, [i["w"], i["u"], i["b"], i["c"]], True, 1, 0.0, False, False, True)
    return [y]


def timestep_embedding(i, s):
    half = s["width"] // 2
    angles = i["t"][:, None] * torch.exp(-math.log(10000.0) * torch.arange(half, dtype=i["t"].dtype) / half)
    return [torch.cat([torch.cos(angles), torch.sin(angles)], -1)]


FUNCTIONS = {
    "conv1d": conv(F.conv1d),
    "conv2d": conv(F.conv2d),
    "conv_transpose2d": conv_transpose2d,
    "max_pool1d": pool(F.max_pool1d),
    "avg_pool1d": pool(F.avg_pool1d),
    "max_pool2d": pool(F.max_pool2d),
    "avg_pool2d": pool(F.avg_pool2d),
    "group_norm": group_norm,
    "batch_norm": batch_norm,
    "batch_norm_of": batch_norm_of,
    "batch_norm_remembered": batch_norm_remembered,
    "gru_cell": gru_cell,
    "gru": gru,
    "lstm": lstm,
    "timestep_embedding": timestep_embedding,
}


def check(line):
    tensors = {n: torch.tensor(t["values"], dtype=torch.float64).reshape(t["shape"]) for n, t in line["inputs"].items()}
    weights = tensors.pop("weights")
    wanted = line["gradients"]
    for name in wanted:
        tensors[name].requires_grad_(True)
    settings = {n: int(v) if float(v).is_integer() else v for n, v in line.get("settings", {}).items()}
    results = FUNCTIONS[line["function"]](tensors, settings)
    (results[0] * weights).sum().backward()
    worst = 0.0
    pairs = [(f"result {k}", r.detach(), g["values"]) for k, (r, g) in enumerate(zip(results, line["results"]))]
    pairs += [(f"gradient of {n}", tensors[n].grad, wanted[n]) for n in wanted]
    assert len(results) == len(line["results"]), line["function"]
    for what, theirs, ours in pairs:
        ours = torch.tensor(ours, dtype=torch.float64)
        assert ours.numel() == theirs.numel(), f"{line['function']} {settings}: {what} has {ours.numel()} numbers, not {theirs.numel()}"
        off = ((ours - theirs.flatten()).abs().max() / theirs.abs().max().clamp(min=1e-6)).item()
        if not off <= BOUND:
            sys.exit(f"{line['function']} {settings}: {what} is off by {off:.2e} of its range")
        worst = max(worst, off)
    return worst


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.argv[1], "--gtest_filter=FunctionsExchange.*"], env={**os.environ, "LUMEN_EXCHANGE_DIR": folder},
                             capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(run.stdout + run.stderr)
        lines = json.loads((Path(folder) / "functions.json").read_text())
    missing = set(FUNCTIONS) - {line["function"] for line in lines}
    if missing:
        sys.exit(f"nothing was written of {sorted(missing)}")
    worst = max(check(line) for line in lines)
    print(f"{len(lines)} cases of {len(FUNCTIONS)} functions, forward and backward: off by {worst:.1e} of the range at most")


main()
