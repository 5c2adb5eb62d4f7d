#!/usr/bin/env python3
"""Which kernels changed since a revision, by the digests of tests/golden: plans that are only described in other words do not count.

Usage: tools/golden_diff.py REVISION      compares the texts in the working tree (rewrite them first: LUMEN_BLESS=1 ctest -R golden)
Exits 1 and lists the cases whose kernels are others. A case that one side lacks is listed, too.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tests/golden"
DIGEST = re.compile(r"\b[0-9a-f]{8}(?=;|,|$)")


def kernels_of(path: str, text: str) -> dict[str, str]:
    """What stands for the kernels of each case of a file, without names and words."""
    if path.endswith(".loop"):
        lines = [line for line in text.splitlines() if not line.startswith("# ") or line.startswith("# ..")]
        return {path: "\n".join(re.sub(r"^kernel \S+?\(|(?<=[@ ])\w+: (?=\d+ bytes)", "", line) for line in lines)}
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(" | ")
        if path.startswith("plans/"):
            for machine in parts[1].split():
                found[f"{path} {machine}: {parts[0]}"] = " ".join(DIGEST.findall(parts[2]))
        elif path.startswith("programs/") and parts[1] == "costs":
            found[f"{path}: costs of {parts[0]}"] = parts[2]
        elif path.startswith("programs/"):
            found[f"{path}: {parts[0]}"] = found.get(f"{path}: {parts[0]}", "") + " " + parts[-1]
        else:
            for one in parts[1].split(", "):
                machine, digest = one.split()
                found[f"{path} {machine}: {parts[0]}"] = digest
    return found


def texts(paths: list[str]) -> list[str]:
    return [p.removeprefix(FOLDER + "/") for p in paths
            if p.endswith((".txt", ".loop")) and not p.endswith("/code.txt")]


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    revision = sys.argv[1]
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout
    before, now = {}, {}
    for path in texts(git("ls-tree", "-r", "-z", "--name-only", revision, FOLDER).split("\0")):
        before |= kernels_of(path, git("show", f"{revision}:{FOLDER}/{path}"))
    for path in texts([p.relative_to(ROOT).as_posix() for p in sorted((ROOT / FOLDER).rglob("*")) if p.is_file()]):
        now |= kernels_of(path, (ROOT / FOLDER / path).read_text())
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    for key in changed:
        print(("gone    " if key not in now else "new     " if key not in before else "changed ") + key)
    print(f"golden_diff: {len(now)} cases, kernels of {len(changed)} are not those of {revision}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
