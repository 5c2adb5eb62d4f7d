#!/usr/bin/env python3
"""Ranks that hold one model together: losses follow those of one process, alone and as a grid with ranks that share a batch; repeated
runs have the same bytes, checkpoints are those of one process and are gone on with by any grid; what cannot be shared is refused.

Usage: tests/cli/ranks/tensor_parallel_check.py LUMEN
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ranks_check import BASE, LONGEST, Check, layout


def grid(ranks, tensor, *more):
    return ["--ranks", ranks, "--tensor-parallel", tensor, *more]


def runs_alike(c):
    words = [*BASE, "--steps", 8, "--keep", 0]
    c.run(*words, "-o", "alone")
    for name, more in {"two": grid(2, 2), "grid": grid(4, 2), "parts": grid(4, 2, "--shard", "gradients"), "dealt": grid(2, 2, "--sequence-parallel")}.items():
        c.run(*words, *more, "-o", name)
        c.near("alone", name, 1e-5)
        for part in ("model", "optimizer"):
            file = f"checkpoint-8/{part}.safetensors"
            assert layout(c.work / name / file) == layout(c.work / "alone" / file), (name, part)
    # Computing layers again changes no bits, with tokens dealt between ranks, too.
    for recompute in ("layers", "300K"):
        c.run(*words, *grid(2, 2, "--sequence-parallel", "--recompute", recompute), "-o", "again")
        c.same("dealt", "again", f"--recompute {recompute}")
        shutil.rmtree(c.work / "again")
    # Gone on with from the checkpoint in the middle: by the same grid the same bytes, by others the same run.
    for more, resumed in ((grid(4, 2), "same"), (grid(2, 2), "fewer"), (["--ranks", 2, "--tensor-parallel", 1], "flat"), ([], "one")):
        shutil.copytree(c.work / "grid", c.work / resumed, symlinks=True)
        shutil.rmtree(c.work / resumed / "checkpoint-8")
        c.run("--resume", resumed, *more, "--threads", 1, "-q")
        if resumed == "same":
            c.same("grid", resumed, "a resumed run")
        else:
            c.near("grid", resumed, 1e-5)


def kinds(c):
    """What is trained otherwise than plain weights, and other families."""
    for name, (more, ranks, within) in {
        "heads": (["--shape", "gpt2-tiny"], 4, 1e-5), "muon": (["--optimizer", "muon", "--param-type", "bf16"], 2, 1e-2),
        "scales": (["--precision", "fp8-delayed"], 2, 1e-2),
        "short": (["--precision", "bf16", "--ema", "0.9", "--accumulate", "2"], 2, 1e-3),
        "adapter": (["-m", "alone/model.gguf", "--lora", "--lora-rank", "4"], 2, 1e-5),
    }.items():
        base = BASE[2:] if "-m" in more or "--shape" in more else BASE
        c.run(*base, *more, "--steps", 4, "-o", f"one-{name}")
        c.run(*base, *more, "--steps", 4, *grid(ranks, ranks), "-o", name)
        c.near(f"one-{name}", name, within)
        for path in sorted((c.work / name / "checkpoint-4").glob("*.safetensors")):
            assert layout(path) == layout(c.work / f"one-{name}" / "checkpoint-4" / path.name), path


def refusals(c):
    for words, code, told in (
        (grid(4, 4), 2, "4 ranks do not divide the product"),
        (grid(3, 2), 2, "does not divide 3 ranks"),
        (["--tensor-parallel", 2], 2, "there is one process"),
        (grid(2, 2, "--shard", "parameters"), 2, "--shard gradients works with it"),
        (grid(2, 2, "--moments", "q8_0"), 2, "cannot be held in q8_0 in 2 parts"),
        (["--ranks", 2, "--sequence-parallel"], 2, "it goes with --tensor-parallel"),
        (grid(4, 2, "--optimizer", "muon", "--shard", "states"), 2, "as a whole"),
    ):
        out = c.run(*BASE, "--steps", 2, *words, "-o", "refused", code=code)
        assert told in out, (words, out)


def stopped(c):
    """One rank of a grid is asked to stop: all save and end together."""
    process = c.start(*BASE, "--steps", 100000, "--keep", 0, *grid(4, 2), "-o", "stopped")
    until = time.time() + LONGEST
    while not (c.work / "stopped" / "checkpoint-8").exists():
        assert process.poll() is None and time.time() < until, process.communicate()
        time.sleep(0.05)
    ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(ranks[3]), signal.SIGTERM)
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode in (130, 143), (process.returncode, err)


def plans(c):
    def needs(*more):
        out = c.run("--shape", "char-16m", "--batch", 4, "--length", 32, "--plan", *more)
        return {line[:40].strip(): float(line[40:].split()[0]) for line in out.splitlines() if line.endswith("MiB")}
    whole, parts = needs(), needs(*grid(2, 2))
    for what in ("weights", "states of the optimizer"):
        assert parts[what] < 0.6 * whole[what], (what, whole, parts)


def main():
    with tempfile.TemporaryDirectory(prefix="lumen-tensor-") as folder:
        c = Check(str(Path(sys.argv[1]).resolve()), Path(folder))
        for part in (runs_alike, kinds, refusals, stopped, plans):
            begin = time.time()
            part(c)
            print(f"tensor parallel: {part.__name__} in {time.time() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
