#!/usr/bin/env python3
"""How far each target is verified, kernel by kernel: the table of docs/reference/targets.md, made of what tests have shown.

Usage: tools/targets.py BUILD [--results FOLDER [--device NAME]] [--check]
  BUILD      folder with the lumen binary, which knows the targets
  --results  what tests wrote:  mkdir FOLDER; LUMEN_TEST_RESULTS=FOLDER ctest --test-dir build -j 8  (or one test program alone, or
             gtest's own GTEST_OUTPUT=json:FOLDER/ of one). What they have shown is added to docs/reference/target-results.jsonl, one fact a line,
             which is committed. FOLDER is an absolute path
  --device   what "hardware" was in these results; this processor where it is not given
  --check    write nothing; exit 1 where the page is not what the facts say, or a target or a kind is missing or unknown
"""
import argparse
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "targets.md"
FACTS = ROOT / "docs" / "reference" / "target-results.jsonl"
MODELS = ROOT / "docs" / "reference" / "gpu-targets.txt"  # models that compile, by tools/gpu_table.py
BEGIN, END = "<!-- made by tools/targets.py -->", "<!-- end -->"
# Best first, with their letters.
HOW = {"hardware": "H", "interpreted": "I", "evaluated": "E", "compiled": "C"}
# Columns, and the kinds of kernels (tests/verified.h) that each one is of.
KINDS = {
    "scalars": ["scalars"],
    "instructions": ["instructions"],
    "dot": ["dot"],
    "dot, matrix": ["dot, matrix"],
    "attend": ["attend"],
    "attend gradient": ["attend gradient"],
    "map": ["map"],
    "reduce": ["reduce"],
    "encode": ["encode", "codes", "feedback", "fields", "pack", "panels", "quantize", "round"],
    "decode": ["decode"],
    "moves": ["concat", "copy", "count", "gather", "pad", "prepare", "rows", "scatter_add", "sort", "turn", "update", "zero", "zeros"],
    "exchange": ["exchange"],
    "models": ["models"],
}
COLUMN = {kind: column for column, kinds in KINDS.items() for kind in kinds}


def targets(lumen: Path) -> list[str]:
    run = subprocess.run([lumen, "doctor", "--quick", "--device", "cpu", "--cache", "off", "--json"], capture_output=True, text=True)
    return [m["name"] for m in json.loads(run.stdout)["machines"]]


def processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else "this processor"


def shown(folder: Path, device: str) -> list[dict]:
    """The facts that passing tests of these results have recorded."""
    facts, today = [], datetime.date.today().isoformat()
    for test in passed(folder):
        for one in filter(None, test.get("verified", "").split(";")):
            target, kind, how = one.split("|")
            fact = {"target": target, "kind": kind, "how": how, "test": f"{test['classname']}.{test['name'].split('/')[0]}"}
            if how == "hardware":
                fact |= {"device": device, "on": today}
            facts.append(fact)
    return facts


def passed(folder: Path) -> list[dict]:
    """Tests that passed: of gtest's results, and of tests/verified.h, which keeps no others."""
    tests = []
    for file in sorted(folder.glob("*.json")):
        for suite in json.loads(file.read_text()).get("testsuites", []):
            tests += [t for t in suite.get("testsuite", []) if not t.get("failures") and t.get("result") == "COMPLETED"]
    for file in sorted(folder.glob("*.jsonl")):
        tests += [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(tests, key=lambda t: (t["classname"], t["name"], t.get("verified", "")))


def known_facts() -> list[dict]:
    return [json.loads(line) for line in FACTS.read_text().splitlines()] if FACTS.exists() else []


def merged(facts: list[dict]) -> list[dict]:
    """One fact for each target, column, way and device: the later one's."""
    latest = {(f["target"], COLUMN.get(f["kind"], f["kind"]), f["how"], f.get("device")): f for f in facts}
    return sorted(latest.values(), key=lambda f: (f["target"], COLUMN.get(f["kind"], f["kind"]), f["how"], f.get("device", "")))


def compiled_models() -> list[dict]:
    lines = [line for line in MODELS.read_text().splitlines() if re.match(r"(sm_|gfx)", line)]
    names = {line.split()[0] for line in lines}
    failing = {line.split()[0] for line in lines if "fails" in line}
    return [{"target": n, "kind": "models", "how": "compiled"} for n in names - failing]


def table(facts: list[dict], names: list[str]) -> str:
    cells = {}
    for f in [*facts, *compiled_models()]:
        cells.setdefault((f["target"], COLUMN[f["kind"]]), set()).add(HOW[f["how"]])
    rows = [["target", *KINDS], ["---"] * (len(KINDS) + 1)]
    for name in names:
        rows.append([name, *("".join(h for h in HOW.values() if h in cells.get((name, kind), ())) or "-" for kind in KINDS)])
    text = "\n".join("| " + " | ".join(r) + " |" for r in rows)
    devices = {}
    for f in facts:
        if f["how"] == "hardware":
            devices.setdefault(f["device"], {}).setdefault(f["target"], f["on"])
    where = "\n".join(f"- {device}: {', '.join(f'{t} ({on})' for t, on in sorted(of.items()))}" for device, of in sorted(devices.items()))
    return f"{BEGIN}\n{text}\n\nHardware that ran it, with the day of the last run:\n\n{where or '- none'}\n{END}"


def troubles(facts: list[dict], names: list[str]) -> list[str]:
    out = [f"{FACTS.name}: no target is called {t}" for t in sorted({f["target"] for f in facts} - set(names))]
    out += [f"{FACTS.name}: no kind is called {k}: tools/targets.py lists them" for k in sorted({f["kind"] for f in facts} - set(COLUMN))]
    out += [f"{FACTS.name}: nothing is shown that way: {h}" for h in sorted({f["how"] for f in facts} - set(HOW))]
    return out


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--device", default="")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    names, facts = targets(arguments.build / "lumen"), known_facts()
    if arguments.results:
        facts = merged(facts + shown(arguments.results, arguments.device or processor()))
    wrong = troubles(facts, names)
    if wrong:
        print("\n".join(wrong))
        return 1
    page = PAGE.read_text()
    parts = re.match(f"(.*?){BEGIN}.*?{END}(.*)$", page, re.S)
    if not parts:
        print(f"{PAGE.name} has no place for the table: {BEGIN} .. {END}")
        return 1
    made = parts[1] + table(facts, names) + parts[2]
    if arguments.check:
        if made != page:
            print(f"{PAGE.name} is stale: its table is not of these targets, kinds and facts; tools/targets.py {arguments.build} makes it anew")
        return int(made != page)
    FACTS.write_text("".join(json.dumps(f) + "\n" for f in facts))
    PAGE.write_text(made)
    print(f"{len(facts)} facts about {len(names)} targets and {len(KINDS)} kinds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
