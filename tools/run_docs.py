#!/usr/bin/env python3
"""Runs what the documents say, so that they cannot rot.

For each Markdown file, in a fresh folder where `build` and the source folders are linked:
  - a block behind a line that says "Save this as `PATH`" is written to PATH;
  - every ```sh block is run by bash, line by line as one script; a failing command fails the test;
  - `make X` lines must name a target of the Makefile; of these only `make demo` is run, by the Makefile's own command with
    few steps, because what follows it uses its files.

Blocks of "```sh real" need models that others trained (tools/real_models.sh) and take minutes. Only --real runs them, and
nothing else then; without it they are counted.

Usage: tools/run_docs.py [--real] BUILD_FOLDER FILE.md...
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```", re.M | re.S)
SAVE = re.compile(r"Save this as `([^`]+)`")


def blocks(text: str):
    """(language, whether it needs a real model, content, the paragraph before) of each fenced block."""
    for match in BLOCK.finditer(text):
        before = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
        yield match.group(1), match.group(2).strip() == "real", match.group(3), before


SHORT_DEMO = "--steps 20 --tuning-steps 4 --sample 20"


def make_line(line: str) -> tuple[str, str | None]:
    """What to run in place of a `make X` line, and what is wrong with it."""
    makefile = (ROOT / "Makefile").read_text()
    target = line.split()[1]
    if target not in re.findall(r"^([\w-]+):", makefile, re.M):
        return "", f"Makefile has no target '{target}'"
    if target != "demo":
        return "", None
    command = re.search(r"^demo:.*\n\t(.*)$", makefile, re.M)
    return (f"{command.group(1)} {SHORT_DEMO}", None) if command else ("", "the target demo runs nothing")


def run_file(document: Path, build: Path, real: bool) -> tuple[int, int, list[str]]:
    """Blocks run, blocks of the other kind, failures."""
    ran, left, failures = 0, 0, []
    with tempfile.TemporaryDirectory(prefix="lumen-docs-") as folder:
        work = Path(folder)
        (work / "build").symlink_to(build)
        for name in ("formats", "models", "recipes", "data", "docs", "src", "apps", "tests", "tools", "include", "examples", "README.md"):
            (work / name).symlink_to(ROOT / name)
        for language, is_real, content, before in blocks(document.read_text()):
            if found := SAVE.search(before):
                path = work / found.group(1)
                if not path.resolve().is_relative_to(work.resolve()):
                    failures.append(f"{document}: saves outside its folder: {path}")
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            if language != "sh":
                continue
            if is_real != real:
                left += 1
                continue
            lines = content.splitlines()
            for i, line in enumerate(lines):
                if line.startswith("make "):
                    lines[i], wrong = make_line(line)
                    if wrong:
                        failures.append(f"{document}: {wrong}")
            script = "\n".join(lines)
            if not script.strip():
                continue
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=work, capture_output=True, text=True, timeout=900,
                                  stdin=subprocess.DEVNULL)
            ran += 1
            if done.returncode != 0:
                failures.append(f"{document}: exit {done.returncode} from\n{script}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return ran, left, failures


def main() -> int:
    real = sys.argv[1] == "--real"
    build, documents = Path(sys.argv[1 + real]).resolve(), [Path(p) for p in sys.argv[2 + real :]]
    failures: list[str] = []
    total = 0
    for document in documents:
        ran, left, wrong = run_file(document, build, real)
        total += ran
        failures += wrong
        others = f", {left} {'without' if real else 'of'} real models not run" if left else ""
        print(f"{document}: {ran} blocks run, {len(wrong)} failures{others}", flush=True)
    for failure in failures:
        print(failure)
    if total == 0:
        print("no block was run: nothing is proved")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
