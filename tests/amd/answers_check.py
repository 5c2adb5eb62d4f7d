#!/usr/bin/env python3
"""What `lumen doctor --device hip` and a command that computes make of drivers that are too old, lack functions, have no GPU, waves of
another width, XNACK, memory that is the processor's, or a chip without a row of its own. The driver is the stand-in for libamdhip64,
told what to answer (LUMEN_STAND_IN_ANSWERS).

Usage: tests/amd/answers_check.py BUILD
"""
import json
import os
import subprocess
import sys
from pathlib import Path

BUILD = Path(sys.argv[1])
LUMEN = BUILD / "lumen"
failures = []


def lumen(*words, chip="gfx942", answers="", library=BUILD / "tests/amd/libamdhip64.so"):
    environment = dict(os.environ, LUMEN_STAND_IN_AMD=chip, LUMEN_STAND_IN_ANSWERS=answers, LUMEN_HIP_LIBRARY=str(library), NO_COLOR="1")
    done = subprocess.run([str(LUMEN), *words, "--cache", "off"], capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, " ".join((done.stdout + done.stderr).split())  # lines are wrapped


def expect(what, code, *parts, command=("doctor", "--device", "hip", "--quick"), **how):
    got, text = lumen(*command, **how)
    lacks = [p for p in parts if p not in text]
    if got != code or lacks:
        failures.append(f"{what}: exit code {got}, without {lacks}:\n  {text}")
    else:
        print(f"{what}: as expected")


TRAIN = ("train", "--shape", "tiny", "--steps", "1", "--device", "hip", "-o", "/nowhere/run")
for command in (("doctor", "--device", "hip", "--quick"), TRAIN):
    expect("ROCm 5.6", 3, "the hip driver is too old: its version is 5.6.0", "Lumen needs ROCm 6.0 or newer", command=command,
           answers="version=50600000")
    expect("no function", 3, "is too old: it lacks hipGetDevicePropertiesR0600", "Lumen needs ROCm 6.0 or newer", command=command,
           library=BUILD / "tests/libfake_hip_old.so")
    expect("no GPU", 3, "hipErrorNoDevice", "HIP_VISIBLE_DEVICES", command=command, answers="devices=0")
    expect("waves of 32 lanes", 3, "32 lanes step together, and code for gfx942 is made for 64", command=command, answers="wave=32")
expect("--machine of another width", 3, "64 lanes step together, and code for gfx1100 is made for 32", command=(*TRAIN, "--machine", "gfx1100"))
expect("XNACK", 0, "gfx942:sramecc+:xnack+", answers="features=:sramecc+:xnack+")
expect("memory of the processor", 0, "memory shared with the processor", chip="gfx1103", answers="integrated=1 bytes=300000000")
expect("memory set apart", 0, "memory set apart from the processor's", chip="gfx1103", answers="integrated=1 bytes=9000000000000000")
expect("a chip without a row", 0, "gfx1103 has no row of its own: its generation's generic code (gfx11-generic) is used",
       "code for gfx11-generic", chip="gfx1103")
expect("generic code by name", 0, "code for gfx12-generic", command=("doctor", "--device", "hip", "--quick", "--machine", "gfx12-generic"),
       chip="gfx1201")
code, text = lumen("doctor", "--device", "hip", "--quick", "--json", chip="gfx1103")
found = json.loads(text[: text.rindex("}") + 1])
row = [m for m in found["machines"] if m["name"] == "gfx11-generic"]
if not row or not row[0]["runs_here"]:
    failures.append(f"gfx11-generic does not run here: {row}")
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
