#!/usr/bin/env python3
"""Runs the ten checks of .clang-tidy over sources; a minute for a few files.

Usage: tools/tidy.py               the sources that differ from the main branch of origin, and those not committed
       tools/tidy.py FILE..        these sources; a header is checked with the sources that include it
Exits 1 where a check finds something. Proved by tests/tools/tidy_test.py."""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAMS = ("clang-tidy-14", "clang-tidy")  # what the checks hold for: later versions find more
FLAGS = ["-std=c++20", "-DFMT_SHARED", '-DLUMEN_SOURCE_DIR="."', '-DLUMEN_BINARY_DIR="build"', "-Isrc", "-I.", "-Iinclude",
         "-isystem", "/usr/include/eigen3", "-isystem", "/usr/lib/llvm-22/include"]
FINDING = re.compile(r"^(.*?):(\d+):\d+: (?:warning|error): (.*?) \[([\w.-]+),?.*\]$", re.M)
# clang 14 does not parse some ranges of newer standard libraries. What it finds in the rest of such a file still counts.
NOT_PARSED = "clang-diagnostic-error"


def program() -> str | None:
    return next((p for p in PROGRAMS if shutil.which(p)), None)


def changed(root: Path) -> list[str]:
    def lines(*words: str) -> list[str]:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True).stdout.splitlines()
    base = lines("merge-base", "HEAD", "origin/main") or ["HEAD"]
    named = lines("diff", "--name-only", "--diff-filter=d", base[0]) + lines("ls-files", "--others", "--exclude-standard")
    return sorted({n for n in named if n.startswith(("src/", "apps/")) and n.endswith((".cpp", ".h"))})


def sources(root: Path, named: list[str]) -> list[str]:
    """Each header stands for its own source, or for one source that includes it."""
    out = {n for n in named if n.endswith(".cpp")}
    for header in (n for n in named if n.endswith(".h")):
        own = header[:-2] + ".cpp"
        if (root / own).exists():
            out.add(own)
            continue
        line = f'#include "{header.removeprefix("src/")}"'
        found = (p for top in ("src", "apps") for p in sorted((root / top).rglob("*.cpp")) if line in p.read_text())
        if first := next(found, None):
            out.add(first.relative_to(root).as_posix())
    return sorted(out)


def findings(root: Path, tidy: str, source: str) -> tuple[set[str], bool]:
    """What the checks find, and whether the source was parsed."""
    run = subprocess.run([tidy, "--quiet", source, "--", *FLAGS], cwd=root, capture_output=True, text=True)
    out, parsed = set(), run.returncode in (0, 1)
    for path, line, message, check in FINDING.findall(run.stdout):
        if check == NOT_PARSED:
            parsed = False
        else:
            out.add(f"{os.path.relpath(root / path, root)}:{line}: {message} [{check}]")
    return out, parsed


def main() -> int:
    if any(a.startswith("-") for a in sys.argv[1:]):
        sys.exit(__doc__)
    root = Path(os.environ.get("LUMEN_TIDY_ROOT", Path(__file__).resolve().parent.parent))
    tidy = program()
    if not tidy:
        sys.exit("tools/tidy.py needs clang-tidy: apt-get install clang-tidy-14")
    files = sources(root, sys.argv[1:] or changed(root))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda f: findings(root, tidy, f), files))
    found = sorted(set().union(*(lines for lines, _ in results)))
    for line in found:
        print(line)
    for file, (_, parsed) in zip(files, results):
        if not parsed:
            print(f"{file}: {tidy} cannot parse all of it")
    print(f"tidy: {len(files)} sources, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
