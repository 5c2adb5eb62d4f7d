#!/usr/bin/env python3
"""A program that starts with standard descriptors closed (`<&- >&- 2>&-`) writes the very bytes that it writes with them: nothing
it says lands inside its outputs.

Usage: tests/cli/system/descriptors_check.py LUMEN
"""
import os
import sys
import tempfile
from pathlib import Path

from verbs import Verbs


def contents(path):
    """The bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.read_bytes()
    return {p.relative_to(path): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def main():
    with tempfile.TemporaryDirectory(prefix="lumen-descriptors-") as folder:
        verbs = Verbs(sys.argv[1], folder)
        for out in ("open", "closed"):
            os.mkdir(verbs.work / out)
        wrong = []
        for (name, words, made), (_, closed, _) in zip(verbs.writing("open"), verbs.writing("closed")):
            verbs.do(*words)

            def close():
                for fd in range(3):
                    os.close(fd)

            process = verbs.start(closed, preexec_fn=close)
            code = process.wait(timeout=600)
            before, after = Path(folder, "open", made), Path(folder, "closed", made)
            if code != 0 or not after.exists():
                wrong.append(f"{name}: ended with {code} where its descriptors are closed")
            elif name not in ("report", "compare") and contents(before) != contents(after):  # pages say when they were made
                wrong.append(f"{name}: other bytes where its descriptors are closed")
            elif name in ("report", "compare") and b"warning" in after.read_bytes()[:64]:
                wrong.append(f"{name}: notes land in its page")
        assert not wrong, "\n".join(wrong)
        print(f"{len(verbs.writing('open'))} verbs with closed descriptors: the same bytes")


if __name__ == "__main__":
    main()
