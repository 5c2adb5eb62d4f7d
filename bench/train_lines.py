#!/usr/bin/env python3
"""What `lumen train` reaches, data path included, line by line: tokens a second over the last half of a stretch of steps, memory, and
the card's clock meanwhile. Runs end before they write anything. `--torch` adds PyTorch's training of the 1.1B shape (compiled, bf16 and
torchao's FP8), sustained for as long: a card that has worked for seconds is at its limit of power, and slower than one that was idle.

Run:  python3 bench/train_lines.py --lumen build/lumen --text seen.txt --tokenizer tokenizer.json --lines bf16 fp8 [--torch]
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ONE, SEVEN = ["--shape", "llama-1b", "-b", 8, "-c", 2048], ["--shape", "llama-7b", "-b", 4, "-c", 2048, "--param-type", "bf16"]
LINES = {
    "bf16": [*ONE, "--precision", "bf16"],
    "fp8": [*ONE, "--precision", "fp8-tensors"],
    "delayed": [*ONE, "--precision", "fp8-delayed"],
    "rows": [*ONE, "--precision", "fp8-rows"],
    "int8": [*ONE, "--precision", "int8-rows"],
    "bf16-sm80": [*ONE, "--precision", "bf16", "--machine", "sm_80"],
    "fp8-sm89": [*ONE, "--precision", "fp8-tensors", "--machine", "sm_89"],
    "7b": [*SEVEN, "--moments", "bf16", "--precision", "bf16"],
    "7b-fp8": [*SEVEN, "--moments", "bf16", "--precision", "fp8-tensors"],
    "7b-24g": [*SEVEN, "--moments", "bf16", "--precision", "bf16", "--memory", "24G", "--accumulate", 8],
}


def watch(samples, done):
    """Clock and power every half second, where there is a card."""
    while not done.wait(0.5):
        out = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,memory.used", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True)
        if out.returncode == 0 and out.stdout:
            samples.append([float(x) for x in out.stdout.splitlines()[0].split(",")])


def steps_of(run):
    file = run / "metrics.jsonl"
    if not file.exists():
        return []
    found = []
    for line in file.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # being written
        if record.get("tokens_per_second"):
            found.append(record)
    return found


def train(arguments, name, folder):
    """Median tokens a second of the last half, steps, and what the card said; or why there is none."""
    run = folder / name
    command = [arguments.lumen.resolve(), "train", "--data", arguments.text, "--validation", 0.001, "--eval-every", 0, "--save-every", 0, "--warmup", 1,
               "--steps", 100000, "--device", arguments.device, "-o", run, *LINES[name], *(["--tokenizer", arguments.tokenizer] if arguments.tokenizer else []),
               *arguments.flags]
    samples, done = [], threading.Event()
    if shutil.which("nvidia-smi"):
        threading.Thread(target=watch, args=(samples, done), daemon=True).start()
    with open(folder / "log", "w") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, start_new_session=True)
        begin, first = time.monotonic(), None
        while process.poll() is None and time.monotonic() - begin < arguments.limit:
            time.sleep(0.5)
            if first is None and steps_of(run):
                first = time.monotonic()
            if first is not None and time.monotonic() - first >= arguments.seconds and len(steps_of(run)) >= 3:
                break
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # nothing is to be written
            process.wait()
    done.set()
    found = steps_of(run)
    shutil.rmtree(run, ignore_errors=True)
    if not found:
        return {"error": (folder / "log").read_text().strip()[-400:] or "no step was done"}
    seconds = [step["seconds"] for step in found]
    tokens = found[0]["tokens"]  # of one step
    last = samples[len(samples) // 2:]
    return {"speed": tokens / statistics.median(seconds[len(seconds) // 2:]), "steps": len(found), "memory": found[-1].get("memory", 0) / 2**30,
            "clock": statistics.median(s[0] for s in last) if last else None, "loss": found[-1].get("loss")}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lumen", type=Path, default=Path("build/lumen"))
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lines", nargs="*", default=["bf16", "fp8"], choices=list(LINES))
    parser.add_argument("--seconds", type=float, default=20, help="how long steps go on")
    parser.add_argument("--limit", type=float, default=200, help="seconds for a line, compilation included")
    parser.add_argument("--flags", nargs="*", default=[], help="more flags of lumen train, as --flags=--seed 2")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    arguments.flags = [word for flags in arguments.flags for word in flags.split()]
    failed = False
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name in arguments.lines:
            result = train(arguments, name, Path(folder))
            if "error" in result:
                failed = True
                print(f"{name:10} {result['error']}", flush=True)
                continue
            clock = f"  {result['clock']:.0f} MHz" if result["clock"] else ""
            print(f"{name:10} {result['speed']:10.0f} tokens/s  {result['memory']:7.2f} GiB  {result['steps']} steps, loss {result['loss']:.4f}{clock}", flush=True)
    if arguments.torch:
        suite = Path(__file__).resolve().parent / "gpu_suite.py"
        for part in ("training", "tensorwise"):
            out = subprocess.run([sys.executable, suite, "--part", part], capture_output=True, text=True)
            words = json.loads(out.stdout.splitlines()[-1]) if out.returncode == 0 else out.stderr.strip()[-400:]
            print(f"PyTorch {part}: {words}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
