#!/usr/bin/env python3
"""The example in C does what it says, and liblumen.so has the functions of its header and no other names.

usage: example_check.py EXAMPLE LUMEN
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE, LUMEN = Path(sys.argv[1]), Path(sys.argv[2])
ROOT = Path(__file__).resolve().parent.parent.parent


def run(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300)


def check_example(folder):
    model = folder / "run/model.gguf"
    made = run(LUMEN, "train", "-q", "--shape", "tiny", "--steps", "4", "--out", folder / "run")
    assert made.returncode == 0, made.stderr
    done = run(EXAMPLE, model, "ROMEO:")
    assert done.returncode == 0, done.stderr
    assert "sum of squares: 30\ngradient: 2 4 6 8\n" in done.stdout, done.stdout
    assert '"reason":"limit"' in done.stdout and '"tokens":24' in done.stdout, done.stdout
    lost = run(EXAMPLE, folder / "nowhere.gguf", "ROMEO:")
    assert lost.returncode == 1 and "nowhere.gguf" in lost.stderr, lost
    assert run(EXAMPLE).returncode == 2


def check_names():
    header = (ROOT / "include/lumen.h").read_text()
    promised = set(re.findall(r"^LUMEN_API [^(]*?(lumen_\w+)\(", header, re.M))
    listed = run("nm", "-D", "--defined-only", LUMEN.parent / "liblumen.so")
    assert listed.returncode == 0, listed.stderr
    found = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()} - {"LUMEN_1"}
    assert found == promised, (found - promised, promised - found)
    return len(found)


with tempfile.TemporaryDirectory() as folder:
    check_example(Path(folder))
print(f"the example runs; {check_names()} names, all of them promised")
