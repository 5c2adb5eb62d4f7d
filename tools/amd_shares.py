#!/usr/bin/env python3
"""Predicted shares of the peak of AMD kernels, by executing their inner loops instruction by instruction on a model of a compute unit.

Usage: tools/amd_shares.py BUILD [--targets gfx942,gfx950] [-v]
The model: four SIMDs, each with a matrix unit and a vector unit (4 cycles an instruction of 64 lanes; a matrix instruction as long as the
peak says), waves that issue in order, LDS with 128 bytes a cycle for all (64 cycles of latency; banks without conflicts, as the panels'
swizzle makes them: tests/amd/panels_test.cpp), vector memory with 64 bytes a cycle, waits and barriers as they stand in the code. Memory
answers after LATENCY cycles, from the second cache: an assumption, as no card was measured. Of a product: the share of its loop in which
the matrix units are busy, and that times the share of units that have a tile. Decoding (one row): tools/amd_decoding.py.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LATENCY = 500
LDS_LATENCY, LDS_BYTES, MEMORY_BYTES = 64, 128, 64  # cycles; bytes a cycle of a unit
ROUNDS = 12  # of a loop: the first ones fill the pipeline
# Floating point operations a cycle of a SIMD: f16 and bf16, 8 bits; and of memory, bytes a cycle of a compute unit. AMD's data sheets of
# MI300X (1307 and 2615 Tflop/s, 304 units at 2.1 GHz, 5.3 TB/s) and MI355X (2517 and 5033, 256 at 2.4 GHz, 8 TB/s).
PEAKS = {"gfx942": (512, 1024, 8.3), "gfx950": (1024, 2048, 13.0)}
CHIPLETS = 8  # with a second-level cache each, which get blocks in turn
UNITS = {"gfx942": 304, "gfx950": 256}
PRODUCT = """model product(cfg) {
  config { n : i32 = 8192 }
  param w : f32[cfg.n, cfg.n]
  fn forward(x : f32[B, cfg.n]) -> f32[B, cfg.n] {
    return linear(x, w)
  }
}
"""
# One scale for each tensor, in the codes of gfx942.
RECIPE = """doc = "FP8 without negative zero"
[run]
precision = "bf16"
[products]
activation = "fp8_e4m3fnuz"
weight = "fp8_e4m3fnuz"
gradient = "fp8_e5m2fnuz"
"""
LARGE = [("bf16 8192^3", {"": "bf16"}, False), ("fp8 8192^3", {"": "fp8-tensors", "gfx942": "fnuz"}, True)]


def loops(text: str) -> list[list[str]]:
    """Innermost loops: from a label to the branch back to it."""
    lines = [re.sub(r"\s*[;/].*", "", x).strip() for x in text.splitlines()]
    out, labels = [], {}
    for n, x in enumerate(lines):
        m = re.match(r"(\.L\w+):", x)
        if m:
            labels[m[1]] = n
        m = re.match(r"s_(?:cbranch_\w+|branch) (\.L\w+)", x)
        if m and m[1] in labels:
            body = [y for y in lines[labels[m[1]]:n + 1] if y and not y.endswith(":") and not y.startswith(".")]
            out.append(body)
    return out


def matrix_cycles(x: str, peak: tuple) -> float:
    m = re.match(r"v_mfma_(?:scale_)?[fi]32_(\d+)x(\d+)x(\d+)_?(\w+)", x)
    if not m:
        return 0
    rows, columns, k = int(m[1]), int(m[2]), int(m[3])
    # What takes 8 bits in a short shape goes at the pace of 16 bits where wider shapes have come (gfx950).
    short = re.match(r"(fp8|bf8|i8)", m[4]) is not None
    rate = peak[1] if "f8f6f4" in m[4] or (short and (peak[1] == 1024 or rows * columns * k >= 32768)) else peak[0]
    return 2 * rows * columns * k / rate


class Wave:
    def __init__(self, simd: int, block: int):
        self.simd, self.block, self.at, self.time, self.round = simd, block, 0, 0.0, 0
        self.lds, self.memory, self.sums = [], [], {}


class Access:
    """Under way until `time`; loads straight to LDS then take it for so many cycles."""
    def __init__(self, time: float):
        self.time, self.lds_cycles = time, 0.0


def simulate(body: list[str], peak: tuple, waves: int, blocks: int) -> float:
    """Share of the time in which the matrix units are busy."""
    all_waves = [Wave(n % 4, b) for b in range(blocks) for n in range(waves)]
    matrix, vector, lds, memory, busy = [0.0] * 4, [0.0] * 4, 0.0, 0.0, 0.0
    begin = None
    held = {}
    arriving = []

    def take_arrived(until: float) -> None:
        nonlocal lds
        while arriving and arriving[0].time <= until:
            access = arriving.pop(0)
            lds = access.time = max(lds, access.time) + access.lds_cycles
    while True:
        ready = [w for w in all_waves if w.round < ROUNDS and not held.get(id(w))]
        if not ready:
            break
        w = min(ready, key=lambda q: q.time)
        x = body[w.at]
        w.at += 1
        t = w.time
        if x.startswith("v_mfma"):
            cycles = matrix_cycles(x, peak)
            to = re.search(r" ([va]\[?[\d:]+)", x)[1]
            t = max(t, matrix[w.simd], vector[w.simd], w.sums.get(to, 0))
            matrix[w.simd] = t + cycles
            vector[w.simd] = t + 4
            w.sums[to] = t + cycles + 8
            busy += cycles if begin is not None else 0
            w.time = t + 4
        elif x.startswith("ds_"):
            take_arrived(max(lds, t))
            size = 16 if "b128" in x else 12 if "b96" in x else 8 if "b64" in x else 4
            size *= 2 if re.match(r"ds_(read|write)2", x) else 1
            lds = max(lds, t) + 64 * size / LDS_BYTES
            w.lds.append(Access(lds + LDS_LATENCY))
            w.time = t + 4
        elif re.match(r"(global|buffer|flat)_(load|store|atomic)", x):
            words = int((re.search(r"dwordx(\d)", x) or [0, 1])[1])
            memory = max(memory, t) + 64 * 4 * words / MEMORY_BYTES
            access = Access(memory + (LATENCY if "load" in x else 0))
            if "_lds_" in x or re.search(r"\blds\b", x):  # straight to LDS, which takes it at its pace when it has come
                access.lds_cycles = 64 * 4 * words / LDS_BYTES
                arriving.append(access)
            w.memory.append(access)
            w.time = t + 4
        elif x.startswith("s_waitcnt"):
            for name, queue in (("vmcnt", w.memory), ("lgkmcnt", w.lds)):
                m = re.search(name + r"\((\d+)\)", x)
                while m and len(queue) > int(m[1]):
                    first = queue.pop(0)
                    take_arrived(first.time)
                    t = max(t, first.time)
            w.time = t + 1
        elif x.startswith("s_barrier"):
            held[id(w)] = True
            w.time = t + 4
            group = [q for q in all_waves if q.block == w.block]
            if all(held.get(id(q)) for q in group):
                last = max(q.time for q in group)
                for q in group:
                    q.time, held[id(q)] = last, False
        elif x.startswith("v_"):
            t = max(t, vector[w.simd])
            vector[w.simd] = t + 4
            w.time = t + 4
        else:
            w.time = t + 4
        if w.at == len(body):
            w.at, w.round = 0, w.round + 1
            if begin is None and all(q.round >= 2 for q in all_waves):
                begin = max(q.time for q in all_waves)
    end = max(q.time for q in all_waves)
    return busy / (4 * (end - begin)) if begin is not None and end > begin else 0.0


def place(tile: int, down: int, across: int, neighbours: int) -> tuple[int, int]:
    """A tile's row and column of tiles: TileOrder::place of src/kernel/synth/gemm/gpu/tile_scheduler.cpp."""
    group = max(g for g in range(1, neighbours + 1) if down % g == 0)
    if group * 4 < min(neighbours, down):
        group = down
    inside = tile % (group * across)
    return tile // (group * across) * group + inside % group, inside // group


def fetched(down: int, across: int, at_once: int, by_chiplet: bool) -> tuple[int, int]:
    """Panels of both operands that second-level caches fetch, all of them together, and that memory gives (or the cache before it):
    tiles are computed in rounds, so many at once, and a cache keeps what its chiplet's tiles of a round share."""
    tiles, caches, memory = down * across, 0, 0
    run, longer = divmod(tiles, CHIPLETS)
    for first in range(0, tiles, at_once):
        panels = [set() for _ in range(CHIPLETS)]
        for block in range(first, min(tiles, first + at_once)):
            chiplet, number = block % CHIPLETS, block // CHIPLETS
            tile = chiplet * run + min(chiplet, longer) + number if by_chiplet else block
            row, column = place(tile, down, across, 8 if by_chiplet else 16)
            panels[chiplet] |= {("a", row), ("b", column)}
        caches += sum(len(x) for x in panels)
        memory += len(set().union(*panels))
    return caches, memory


def compiled(lumen: Path, model: Path, target: str, flags: list[str], stage: str = "asm") -> tuple[str, list[list[str]]]:
    base = [lumen, "compile", model, "--target", target, *flags]
    with tempfile.NamedTemporaryFile(suffix=".s") as out:
        run = subprocess.run([*base, "--check", "--emit", stage, "--out", out.name], capture_output=True, text=True)
        if run.returncode != 0:
            return run.stderr.strip().splitlines()[0], []
        rows = [r.split(None, 9) for r in run.stdout.splitlines() if re.match(r"\s*[\d?]+\s+[\d?]+\s+[\d?]+\s", r)]
        return Path(out.name).read_text(), rows


def large(lumen: Path, model: Path, target: str, name: str, flags: list[str], short: bool, verbose: bool) -> str:
    text, rows = compiled(lumen, model, target, flags)
    if not rows:
        return f"{target:10} {name:14} {text}"
    row = next(r for r in rows if r[9].startswith("dot"))
    body = max(loops(text), key=lambda b: sum(x.startswith("v_mfma") for x in b))
    threads = int(row[7].split("x")[1])
    per_simd = int(row[6])
    blocks = max(1, per_simd * 4 // (threads // 64))
    peak = PEAKS[target]
    share = simulate(body, peak, threads // 64, blocks)
    if short and not any(re.match(r"v_mfma\w+(fp8|bf8|f8f6f4)", x) for x in body):
        share /= 2  # of the peak of 8 bits
    elif short and not any("f8f6f4" in x for x in body) and peak[1] > 1024:
        share /= 2
    # Tiles are dealt out one by one: in the last round some units have none. What adds parts of K is not in it.
    rows_of, columns_of = (int(x) for x in re.search(r"blocks (\d+)x(\d+)x", row[9]).groups())
    parts = re.search(r"splits (\d+)", row[9])
    tiles = -(-8192 // rows_of) * -(-8192 // columns_of) * (int(parts[1]) if parts else 1)
    filled = tiles / (-(-tiles // UNITS[target]) * UNITS[target])
    counts = [sum(x.startswith(p) for x in body) for p in ("v_mfma", "ds_", "global", "v_", "s_waitcnt")]
    if verbose:
        print("\n".join(body))
    panel = rows_of * 8192 * (1 if short else 2) / 1e9  # of either operand, where tiles are squares
    down, across = -(-8192 // rows_of), -(-8192 // columns_of)
    in_order, by_chiplet = (fetched(down, across, UNITS[target] * blocks, x) for x in (False, True))
    caches = (f"GB into second-level caches {by_chiplet[0] * panel:.2f} (in plain order {in_order[0] * panel:.2f}), "
              f"of memory {by_chiplet[1] * panel:.2f} ({in_order[1] * panel:.2f})")
    return (f"{target:10} {name:14} share {share:.2f} (of all units {share * filled:.2f})  matrix {counts[0]} LDS {counts[1]} "
            f"memory {counts[2]} vector {counts[3] - counts[0]} waits {counts[4]} of {len(body)}  waves {per_simd} vgpr {row[0]}  "
            f"{caches}  {row[9]}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--targets", default="gfx942,gfx950")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    lumen = arguments.build / "lumen"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "product.lum"
        model.write_text(PRODUCT)
        (Path(folder) / "fnuz.toml").write_text(RECIPE)
        for target in arguments.targets.split(","):
            for name, precision, short in LARGE:
                flags = ["--symbols", "B=8192", "--models", folder, "--precision", precision.get(target, precision[""])]
                print(large(lumen, model, target, name, flags, short, arguments.verbose), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
