#!/usr/bin/env python3
"""Predicted pace of decoding on AMD: products of one row by a weight of 8192 x 8192, executed by the interpreter of tests/amd.

Usage: tools/amd_decoding.py BUILD [--targets gfx942,gfx950] [--formats q4_0,..] [-v]
How many times faster the lanes could take a weight than memory gives it; above 1 memory is what binds. Memory: all bytes of the weight at the
data sheet's pace. Lanes: issue slots of all vector instructions that the waves of the launch execute (matrix units: their cycles), on the
SIMD that has most to do when work-groups are dealt out to the units of the chip. Beside it the same of LDS, where it is used: cycles of loads
and stores as tests/amd/wave/lds.cpp counts them. Not in it: latencies, launches, and the kernel that rounds activations before, where there
is one; so what is above 1 need not be as fast as memory, and what is below 1 cannot be. All bytes of the weight are the same
(tests/amd/driver/executed_counts.cpp): no kernel goes another way for its numbers. -v: how often each code takes each instruction.
"""
import argparse
import heapq
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from amd_shares import PEAKS, PRODUCT, UNITS, compiled, matrix_cycles

SIZE = 8192  # rows and columns, as in PRODUCT
SYMBOL = 100  # characters of a kernel's name that its symbol keeps, at least
FORMATS = ["q4_0", "q4_k", "q6_k", "q8_0", "int3_g128", "int8_row", "nf4", "mxfp4", "fp8_e4m3", "bf16"]


class Launch:
    """What the waves of a launch executed: instructions, how often a wave did each (once for all waves that did the same), and of each
    work-group the number of its waves' lines."""
    def __init__(self, text: str):
        self.instructions: list[str] = []
        self.waves: list[dict[int, int]] = []
        self.groups: list[list[int]] = []
        self.lds = 0  # cycles of all units' LDS together
        for line in text.splitlines():
            kind, rest = line[0], line[2:]
            if kind == "i":
                self.instructions.append(rest)
            elif kind == "w":
                numbers = [int(n) for n in rest.split()]
                self.waves.append(dict(zip(numbers[::2], numbers[1::2])))
            elif kind == "g":
                self.groups.append([int(n) for n in rest.split()])
            elif kind == "l":
                self.lds = int(rest)

    def totals(self) -> dict[str, int]:
        """How often all waves together executed instructions, by name."""
        often = [0] * len(self.waves)
        for group in self.groups:
            for wave in group:
                often[wave] += 1
        out: dict[str, int] = {}
        for times, wave in zip(often, self.waves):
            for place, count in wave.items():
                name = re.sub(r"_(e32|e64|sdwa|dpp)$", "", self.instructions[place].split()[0])
                out[name] = out.get(name, 0) + times * count
        return out


def vector_cycles(x: str) -> int:
    """Issue slots of a SIMD for 64 lanes. Packed f32 is at full pace: the data sheets' vector peak counts it. A quarter of it:
    transcendentals and products of 32-bit integers."""
    if not x.startswith("v_"):
        return 0
    return 16 if re.match(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_|v_mul_(lo|hi)_[ui]32|v_mad_[ui]64", x) else 4


def busiest(launch: Launch, units: int, peak: tuple) -> tuple[float, float]:
    """Cycles of the SIMD that has most to do, and of all of them on average: a work-group goes to the unit that is free first, a wave to
    the SIMD of it that has least to do."""
    cost = []
    for wave in launch.waves:
        vector = sum(n * vector_cycles(launch.instructions[place]) for place, n in wave.items())
        matrix = sum(n * matrix_cycles(launch.instructions[place], peak) for place, n in wave.items())
        cost.append(max(vector, matrix))
    loads = [[0.0] * 4 for _ in range(units)]
    free = [(0.0, unit) for unit in range(units)]
    for group in launch.groups:
        before, unit = heapq.heappop(free)
        simds = loads[unit]
        for wave in group:
            simds[simds.index(min(simds))] += cost[wave]
        heapq.heappush(free, (before + sum(cost[w] for w in group), unit))
    return max(max(x) for x in loads), sum(sum(x) for x in loads) / (4 * units)


def buffers(loops_text: str, plan: str) -> tuple[str, list[int]]:
    """The symbol that the kernel of a plan begins with, and bytes of what it takes."""
    m = re.search(r"^# " + re.escape(plan) + r"\nkernel ([^(]+)\((.*)\) \{$", loops_text, re.M)
    if not m:
        return "", []
    return ("lumen_" + re.sub(r"\W", "_", m[1]))[:SYMBOL], [int(n) for n in re.findall(r": (\d+) bytes align", m[2])]


def decode(build: Path, model: Path, target: str, name: str, bits: float, verbose: bool) -> str:
    """Of the kernel that multiplies, executed by the interpreter of tests/amd: all waves, everything they do."""
    flags = ["--symbols", "B=1", "--format", f"*={name}"]
    loops_text, rows = compiled(build / "lumen", model, target, flags, "loops")
    if not rows:
        return f"{target:10} {name:14} {loops_text}"
    row = next(r for r in rows if r[9].startswith("dot"))
    symbol, sizes = buffers(loops_text, row[9])
    blocks, threads = row[7].split("x")
    with tempfile.NamedTemporaryFile(suffix=".o") as out:
        subprocess.run([build / "lumen", "compile", model, "--target", target, *flags, "--emit", "obj", "--out", out.name], check=True,
                       capture_output=True)
        run = subprocess.run([build / "tests/amd/amd_counts", target, out.name, symbol, blocks, threads, *map(str, sizes)],
                             capture_output=True, text=True)
    if run.returncode != 0:
        return f"{target:10} {name:14} {run.stderr.strip()}"
    launch = Launch(run.stdout)
    codes = SIZE * SIZE
    most, mean = busiest(launch, UNITS[target], PEAKS[target])
    memory = codes * bits / 8 / (UNITS[target] * PEAKS[target][2])
    # Of the unit that gets most work-groups, all with as much to do.
    lds = launch.lds / len(launch.groups) * -(-len(launch.groups) // UNITS[target])
    totals = launch.totals()

    def each(start: str) -> float:
        return 64 * sum(n for x, n in totals.items() if x.startswith(start)) / codes
    if verbose:
        for x, n in sorted(totals.items(), key=lambda item: -item[1]):
            print(f"{64 * n / codes:9.3f} {x}")
    return (f"{target:10} {name:14} {memory / most:5.2f} times memory's pace ({memory / mean:.2f} if all SIMDs had as much to do), "
            f"LDS {f'{memory / lds:.1f} times' if lds else 'unused'}  of each code vector {each('v_'):.2f} scalar {each('s_'):.2f} LDS {each('ds_'):.2f} memory {each('global_'):.2f}  "
            f"waves {sum(map(len, launch.groups))}, {row[6]} a SIMD  {row[9]}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--targets", default="gfx942,gfx950")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    listed = subprocess.run([arguments.build / "lumen", "format", "list"], capture_output=True, text=True, check=True).stdout
    bits = {name: float(number) for name, number in re.findall(r"^(\w+) +(\d+\.\d+) ", listed, re.M)}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "product.lum"
        model.write_text(PRODUCT)
        for target in arguments.targets.split(","):
            for name in arguments.formats.split(","):
                print(decode(arguments.build, model, target, name, bits[name], arguments.verbose), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
