#!/usr/bin/env python3
"""Trains a Llama of 100 million parameters in bf16 (sums, parameters and optimizer in f32) in PyTorch (autocast, compiled) and in Lumen,
alternating, each in a process of its own, and prints tokens per second, peak memory, and the ratios.

Needs PyTorch from PyPI in a virtual environment:   python3 -m venv venv && venv/bin/pip install torch numpy
Run:                                                venv/bin/python bench/train_bf16.py --lumen build/lumen
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def worker(args):
    """PyTorch, in this process: tokens per second as JSON."""
    import torch
    from torch import nn
    from train_char import Model

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    text = Path(args.text).read_text()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.tensor([index[c] for c in text])
    model = Model(len(index), args.width, args.layers, args.heads, args.inner, args.context)
    step_model = model if args.eager else torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    start = None
    for step in range(args.steps + args.warm):
        if step == args.warm:
            start = time.perf_counter()
        at = torch.randint(len(data) - args.context - 1, (args.batch,))
        x = torch.stack([data[i:i + args.context] for i in at])
        y = torch.stack([data[i + 1:i + 1 + args.context] for i in at])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = step_model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - start
    print(json.dumps({"speed": args.steps * args.batch * args.context / seconds, "loss": loss.item(),
                      "parameters": sum(p.numel() for p in model.parameters())}))


def watched(command, steps_file=None):
    """Runs a process; its output and its peak of resident memory in MiB (of the training, not of what follows it)."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = [0]

    def watch():
        while process.poll() is None:
            try:
                resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
            except (OSError, IndexError, ValueError):
                return
            peak[0] = max(peak[0], resident)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, error = process.communicate()
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed with {process.returncode}:\n{error}")
    return out, peak[0]


def run_torch(args):
    command = [sys.executable, __file__, "--worker"] + ["--eager"] * args.eager
    for name in ("steps", "warm", "threads", "text", "width", "layers", "heads", "inner", "context", "batch"):
        command += [f"--{name}", str(getattr(args, name))]
    out, peak = watched(command)
    found = json.loads(out.splitlines()[-1])
    return found["speed"], peak, found["loss"], found["parameters"]


def run_lumen(args):
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(f"""[model]
family = "llama"
[model.config]
hidden = {args.width}
layers = {args.layers}
heads = {args.heads}
ffn = {args.inner}
context = {args.context}
[run]
batch = {args.batch}
length = {args.context}
evaluate_every = 0
precision = "{args.precision}"
[optimizer]
beta2 = 0.99
[schedule]
shape = "constant"
learning_rate = 1e-4
""")
        command = [args.lumen, "train", "-r", str(recipe), "--data", args.text, "--max-steps", str(args.steps + args.warm),
                   "--warmup", "1", "--validation", "0.005", "--output-dir", f"{folder}/out", "--threads", str(args.threads)]
        _, peak = watched(command)
        rows = [json.loads(line) for line in (Path(folder) / "out" / "metrics.jsonl").read_text().splitlines()]
        rows = [r for r in rows if "elapsed" in r and "step" in r]
        first = next(r for r in rows if r["step"] >= args.warm)
        last = rows[-1]
        tokens = (last["step"] - first["step"]) * args.batch * args.context
        return tokens / (last["elapsed"] - first["elapsed"]), peak, last["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default=str(ROOT / "build/lumen"))
    parser.add_argument("--text", default=str(ROOT / "data/tinyshakespeare/input.txt"))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm", type=int, default=2, help="steps not timed")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="bf16", help="of Lumen, a recipe's name too; PyTorch stays in bf16")
    parser.add_argument("--eager", action="store_true", help="PyTorch without torch.compile")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    for name, value in (("width", 768), ("layers", 14), ("heads", 12), ("inner", 2048), ("context", 512), ("batch", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    speeds, peaks = {"torch": [], "lumen": []}, {"torch": [], "lumen": []}
    for _ in range(args.rounds):
        speed, peak, loss, parameters = run_torch(args)
        speeds["torch"].append(speed), peaks["torch"].append(peak)
        print(f"torch  {speed:8.0f} tokens/s  {peak:8.0f} MiB  loss {loss:.3f}  {parameters / 1e6:.1f} M parameters", flush=True)
        speed, peak, loss = run_lumen(args)
        speeds["lumen"].append(speed), peaks["lumen"].append(peak)
        print(f"lumen  {speed:8.0f} tokens/s  {peak:8.0f} MiB  loss {loss:.3f}", flush=True)
    ratio = statistics.median(a / b for a, b in zip(speeds["lumen"], speeds["torch"]))
    memory = statistics.median(a / b for a, b in zip(peaks["lumen"], peaks["torch"]))
    print(f"lumen / torch: speed {ratio:.2f}, peak memory {memory:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
