#!/usr/bin/env python3
"""What kernels need on every GPU target: a table made by `lumen compile --check`, kept in docs/reference/gpu-targets.txt.

Usage: tools/gpu_table.py BUILD [--check] [--targets A,B]
  BUILD      folder with the lumen binary
  --check    compare with the committed table instead of writing it; exits 1 and shows what changed. Made with another LLVM than the
             table, figures may differ, but still no kernel may spill and no case may lose its matrix or dot instructions
  --targets  only these (the table is then printed, or their lines compared)
Takes minutes of processor time. A figure changes on purpose only: commit the new table with the change that caused it.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "reference" / "gpu-targets.txt"
# A whole pass over several positions, one position with held weights of each kind, a training step.
SIZE = ["--config", "hidden=256", "--config", "ffn=512"]  # so that inner loops stay loops
CASES = [
    ("prompt f32", ["--function", "forward", "--symbols", "B=1,T=64", *SIZE]),
    ("prompt q4_0", ["--function", "forward", "--symbols", "B=1,T=64", "--format", "*=q4_0", *SIZE]),
    ("prompt q4_k", ["--function", "forward", "--symbols", "B=1,T=64", "--format", "*=q4_k", *SIZE]),
    ("decode q4_k", ["--function", "step", "--symbols", "T=1,S=256", "--format", "*=q4_k", *SIZE]),
    ("decode q8_0", ["--function", "step", "--symbols", "T=1,S=256", "--format", "*=q8_0", *SIZE]),
    ("decode fp8", ["--function", "step", "--symbols", "T=1,S=256", "--format", "*=fp8_e4m3", *SIZE]),
    ("train f32", ["--function", "train", "--symbols", "B=2,T=128", *SIZE]),
    ("train bf16", ["--function", "train", "--symbols", "B=2,T=128", "--precision", "bf16", *SIZE]),
]
WIDTH = 15  # of a target's name
KEY = WIDTH + 13  # .. and of the case's
HEAD = (f"{'target':{WIDTH}} {'case':12} {'kernels':>7} {'vgpr':>5} {'spills':>6} {'private':>8} {'shared':>7} {'waves':>5} "
        f"{'matrix':>6} {'dots':>5}")


def targets(lumen: Path) -> list[str]:
    text = subprocess.run([lumen, "compile", "llama", "--target", "?"], capture_output=True, text=True).stderr
    return re.findall(r"\b(?:sm_\w+|gfx[\w-]+)\b", text)


def line(lumen: Path, target: str, name: str, flags: list[str]) -> str:
    run = subprocess.run([lumen, "compile", "llama", "--target", target, "--check", *flags], capture_output=True, text=True)
    if run.returncode != 0:
        return f"{target:{WIDTH}} {name:12} fails: {run.stderr.strip().splitlines()[0]}"
    rows = [r.split(None, 9) for r in run.stdout.splitlines() if re.match(r"\s*[\d?]+\s+[\d?]+\s+[\d?]+\s", r)]
    most = lambda i: "?" if any(r[i] == "?" for r in rows) else str(max(int(r[i]) for r in rows))
    least = lambda i: "?" if any(r[i] == "?" for r in rows) else str(min(int(r[i]) for r in rows))
    loops = [re.match(r"(\d+)\+(\d+)/(\d+)", r[8]).groups() for r in rows]
    matrix, dots = sum(int(m) > 0 for m, _, _ in loops), sum(int(d) > 0 for _, d, _ in loops)
    return (f"{target:{WIDTH}} {name:12} {len(rows):>7} {most(0):>5} {most(3):>6} {most(4):>8} {most(5):>7} {least(6):>5} "
            f"{matrix:>6} {dots:>5}")


def llvm_of(lumen: Path) -> str:
    report = subprocess.run([lumen, "doctor", "--device", "cpu", "--quick", "--json"], capture_output=True, text=True).stdout
    return (re.search(r"llvm [\d.]+", report) or ["llvm of an unknown version"])[0]


def instructions(row: str) -> tuple[int, int]:
    """Kernels with matrix and with dot instructions."""
    return int(row.split()[-2]), int(row.split()[-1])


def worse(now: str, before: str | None) -> bool:
    """What no LLVM may change."""
    if "fails" in now or re.search(r"\d", now[KEY:].split()[2]) and now[KEY:].split()[2] != "0":
        return True
    return before is not None and any(a < b for a, b in zip(instructions(now), instructions(before)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--targets", default="")
    arguments = parser.parse_args()
    lumen = arguments.build / "lumen"
    wanted = arguments.targets.split(",") if arguments.targets else targets(lumen)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(lambda case: line(lumen, *case), [(t, name, flags) for t in wanted for name, flags in CASES]))
    text = "\n".join([
        f"# Made with {llvm_of(lumen)}.",
        "# Made by tools/gpu_table.py: the largest figure over all kernels of a case (waves: the smallest). vgpr, spills, waves: per lane",
        "# and SIMD unit, ? where PTX does not say; private, shared: bytes of a lane, of a block; matrix, dots: kernels whose inner loop",
        "# holds such instructions.",
        HEAD, *lines]) + "\n"
    if not arguments.check:
        if arguments.targets:
            print(text, end="")
        else:
            TABLE.write_text(text)
        return 0
    known = TABLE.read_text().splitlines()
    llvm = llvm_of(lumen)
    same_llvm = f"# Made with {llvm}." in known
    if not same_llvm:
        print(f"gpu_table: this is {llvm}, the table is of another: spills and instructions are compared alone")
    before = {k[:KEY]: k for k in known}
    changed = [x for x in lines if (x not in known if same_llvm else worse(x, before.get(x[:KEY])))]
    for x in changed:
        print(f"was  {before.get(x[:KEY], 'nothing')}\nnow  {x}")
    print(f"gpu_table: {len(lines)} lines, {len(changed)} changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
