#!/usr/bin/env python3
"""Fits this machine's table of costs (src/kernel/machine/costs.def) to measurements, by least squares.

  python3 bench/fit_costs.py [--build build] [--lines FILTER ..] [--costs NAME ..] [--measured FILE] [--keep FILE]

Every family's bids for the lines of bench_gemm (FILTER: part of a name) are run and timed; then the coefficients are
moved, within a factor of four of what they are, so that the squares of log(predicted / measured) become least. Each
coefficient is worth what bench_gemm --predict says the bids would cost by another value of it, so that the models
themselves need not be told twice. Prints the errors of every family before and after, and the rows of costs.def that
changed. --keep writes the measurements to a file, --measured reads one instead of running (a log of bench_gpu --bids has
the same lines, but its costs cannot be predicted here: then only the errors are printed).
"""
import argparse
import math
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COST = re.compile(r'LUMEN_(\w+)_COST\((\w+), ([^,]+), "([^"]*)"\)')
GROUPS = {"TASK": "tasks", "PANEL": "panels", "CODE": "codes", "BLOCK": "blocks", "STREAM": "streams"}
FARTHEST = math.log(4)  # of a coefficient, from what it was
STEP = 0.05             # of a coefficient, to see what it is worth
DAMPING = 0.1           # pulls coefficients back that few measurements speak about
ROUNDS = 4


def table() -> dict[str, tuple[float, str]]:
    """Coefficients by name, "tasks.launch", with their values and what they are."""
    text = (ROOT / "src/kernel/machine/costs.def").read_text()
    return {f"{GROUPS[group]}.{name}": (float(eval(value, {"__builtins__": {}})), says)
            for group, name, value, says in COST.findall(text) if group in GROUPS and name != "name"}


def parse(text: str) -> tuple[float, dict[tuple[str, str], tuple[str, float, float]]]:
    """Cycles a second, and by line and plan: family, predicted cycles, measured seconds."""
    hertz, bids = 0.0, {}
    for line in text.splitlines():
        if line.startswith("hertz "):
            hertz = float(line.split()[1])
        if line.startswith("bid "):
            name, family, cycles, seconds, plan = line[4:].split(" | ", 4)
            bids[name, plan] = (family, float(cycles), float(seconds))
    return hertz, bids


def bench(build: Path, mode: str, lines: list[str], costs: dict[str, float]) -> str:
    words = [word for name, value in costs.items() for word in ("--cost", f"{name}={value:.9g}")]
    out = ""
    for line in lines:
        run = subprocess.run([build / "bench/bench_gemm", mode, "native", line, *words], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"bench_gemm: {run.stderr}")
        out += run.stdout
    return out


def solve(a: list[list[float]], b: list[float]) -> list[float]:
    """Gauss with pivots: a is square and not singular."""
    n = len(b)
    rows = [a[i][:] + [b[i]] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            for c in range(i, n + 1):
                rows[r][c] -= factor * rows[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][c] * x[c] for c in range(i + 1, n))) / rows[i][i]
    return x


def errors(measured: dict, predicted: dict, hertz: float) -> dict[tuple[str, str], float]:
    """log(predicted / measured) of the bids that both know."""
    return {key: math.log(predicted[key][1] / (seconds * hertz))
            for key, (_, _, seconds) in measured.items() if key in predicted and seconds > 0 and predicted[key][1] > 0}


def report(title: str, measured: dict, off: dict) -> float:
    families: dict[str, list[float]] = {}
    for key, error in off.items():
        families.setdefault(measured[key][0], []).append(error)
    print(title)
    for family, list_ in sorted(families.items()):
        mean = sum(list_) / len(list_)
        spread = math.sqrt(sum(e * e for e in list_) / len(list_))
        print(f"  {family:14} {len(list_):4} plans: predicted / measured {math.exp(mean):6.2f} in the mean, "
              f"error {100 * (math.exp(spread) - 1):5.0f} %")
    all_ = math.sqrt(sum(e * e for e in off.values()) / max(1, len(off)))
    print(f"  {'all':14} {len(off):4} plans: error {100 * (math.exp(all_) - 1):5.0f} %")
    chosen, best = {}, {}
    for (line, plan), error in off.items():
        seconds = measured[line, plan][2]
        bid = seconds * math.exp(error)
        if line not in chosen or bid < chosen[line][0]:
            chosen[line] = (bid, seconds)
        best[line] = min(best.get(line, seconds), seconds)
    lost = [chosen[line][1] / best[line] for line in chosen]
    print(f"  the cheapest bid of a line takes {sum(lost) / max(1, len(lost)):.3f} times the fastest's time in the mean, "
          f"{max(lost, default=1):.2f} at most")
    return all_


def fit(build: Path, lines: list[str], names: list[str], costs: dict[str, float], measured: dict,
        hertz: float) -> dict[str, float]:
    """Gauss-Newton with damping on the logarithms of coefficients."""
    def predicted(values):
        return parse(bench(build, "--predict", lines, values))[1]
    start, best = dict(costs), dict(costs)
    off = errors(measured, predicted(best), hertz)
    for _ in range(ROUNDS):
        keys = sorted(off)
        slopes = {}
        for name in names:
            moved = errors(measured, predicted(best | {name: best[name] * math.exp(STEP)}), hertz)
            slope = [(moved[k] - off[k]) / STEP if k in moved else 0.0 for k in keys]
            if any(abs(s) > 1e-4 for s in slope):
                slopes[name] = slope
        free = list(slopes)
        a = [[sum(x * y for x, y in zip(slopes[i], slopes[j])) + (DAMPING * len(keys) / 100 if i == j else 0)
              for j in free] for i in free]
        b = [-sum(s * off[k] for s, k in zip(slopes[i], keys)) for i in free]
        step = solve(a, b) if free else []
        for scale in (1, 0.5, 0.25, 0.1):  # the models are no planes
            tried = dict(best)
            for name, by in zip(free, step):
                far = math.log(best[name] / start[name]) + scale * by
                tried[name] = start[name] * math.exp(max(-FARTHEST, min(FARTHEST, far)))
            now = errors(measured, predicted(tried), hertz)
            if len(now) * 10 >= len(off) * 9 and sum(e * e for e in now.values()) / len(now) < \
                    sum(e * e for e in off.values()) / len(off):
                best, off = tried, now
                break
        else:
            break
    return best


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--build", type=Path, default=ROOT / "build")
    ask.add_argument("--lines", nargs="+", default=["x4096x4096", "y=xw' 512", "y=xw' 768x128x128", "y=xw' 4x"])
    ask.add_argument("--costs", nargs="+", help="coefficients that may move; without it those of processors")
    ask.add_argument("--measured", type=Path)
    ask.add_argument("--keep", type=Path)
    given = ask.parse_args()
    known = table()
    names = given.costs or [n for n in known if n.split(".")[0] in ("tasks", "panels", "codes")]
    for name in names:
        if name not in known:
            sys.exit(f"no cost is called {name}; known: {', '.join(known)}")
    text = given.measured.read_text() if given.measured else bench(given.build, "--bids", given.lines, {})
    if given.keep:
        given.keep.write_text(text)
    hertz, measured = parse(text)
    if not hertz or not measured:
        sys.exit("no measurements: expected lines 'hertz ..' and 'bid ..'")
    costs = {name: value for name, (value, _) in known.items()}
    here = {line for line, _ in parse(bench(given.build, "--predict", given.lines, {}))[1]}
    before = report(f"{len(measured)} bids measured, {hertz / 1e9:.2f} GHz; as the table is:", measured,
                    errors(measured, measured, hertz))
    if not any(line in here for line, _ in measured):
        return 0
    fitted = fit(given.build, given.lines, names, {n: costs[n] for n in names}, measured, hertz)
    after = report("fitted:", measured,
                   errors(measured, parse(bench(given.build, "--predict", given.lines, fitted))[1], hertz))
    print(f"rows of costs.def ({before:.3f} -> {after:.3f}):")
    groups = {field: macro for macro, field in GROUPS.items()}
    for name, value in fitted.items():
        if abs(value / costs[name] - 1) < 0.02:
            continue
        group, short = name.split(".")
        print(f'LUMEN_{groups[group]}_COST({short}, {value:.3g}, "{known[name][1]}")  // {costs[name]:g}')
    return 0


if __name__ == "__main__":
    sys.exit(main())
