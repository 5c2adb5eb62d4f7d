#!/usr/bin/env python3
"""Runs of `lumen quantize` killed at random moments and started again: the file in the end has the very bytes of a run left
alone, and at no moment is there a part of it. By layers with a strategy, with preparations, and with a budget.

Usage: tests/cli/convert/kill_check.py LUMEN [KILLS [SEED]]
"""
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = {
    "gptq": ["int4_g32", "--strategy", "gptq"],
    "awq,gptaq": ["int3_g32", "--strategy", "awq,gptaq"],
    "block-ap": ["int3_g32", "--strategy", "block-ap", "--iterations", "8"],
    "budget": ["--budget", "6bpw", "--candidates", "int3_g32,int4_g32,q4_0,q8_0"],
    "criteria": ["--budget", "5bpw", "--candidates", "int3_g32,int4_g32,q8_0", "--criteria", "outputs"],
}


def killed_at_random(words, out, expected, kills, rng, whole_takes):
    killed = 0
    while killed < kills:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=rng.uniform(0.02, 0.6) * whole_takes)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        else:
            assert process.returncode == 0, process.stderr.read().decode()
            assert out.read_bytes() == expected, "a run that went on gave other bytes"
            out.unlink()  # from the beginning
        assert not out.exists() or out.read_bytes() == expected, "a part of a model"
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == expected, "a run that went on gave other bytes"
    left = [p.name for p in out.parent.iterdir() if p != out]
    assert not left, f"left behind: {left}"


def main():
    lumen = sys.argv[1]
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 30)
    rng = random.Random(seed)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        common = ["--cache", str(work / "cache"), "-q"]
        subprocess.run([lumen, "train", "--shape", "tiny", "--steps", "3", "--eval-every", "0", "-o", str(work / "m"), *common],
                       check=True, capture_output=True)
        for name, what in RUNS.items():
            place = work / name.replace(",", "-")
            place.mkdir()
            words = [lumen, "quantize", str(work / "m/model.gguf"), "", *what, "-c", "16", "--chunks", "24", "-b", "4", *common]
            words[3] = str(work / "whole.gguf")
            for warm in (True, False):
                begin = time.monotonic()
                subprocess.run(words, check=True, capture_output=True)
                takes = time.monotonic() - begin
            words[3] = str(place / "out.gguf")
            killed_at_random(words, place / "out.gguf", (work / "whole.gguf").read_bytes(), kills, rng, takes)
            print(f"{name}: killed {kills} times, equal bytes", flush=True)


main()
