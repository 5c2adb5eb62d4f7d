#!/usr/bin/env python3
"""Holds tests/model/fixtures/gguf_keys.json against the package `gguf` (PyPI): every key of its list stands there. The test
(gguf_keys_test.cpp) holds what families say of keys against the fixture. {arch} stands for the architecture.

usage: gguf_key_table.py FIXTURE           exit code 77: the package is missing, nothing was checked
       gguf_key_table.py FIXTURE --write   adds the package's keys
"""
import json
import sys
from pathlib import Path

try:
    from gguf.constants import Keys
except ImportError as missing:
    print(f"skipped: {missing}; pip install gguf")
    sys.exit(77)


def keys_of(group):
    found = set()
    for name, value in vars(group).items():
        if name.startswith("_"):
            continue
        if isinstance(value, str):
            # Names of parts that there are several of.
            found |= {value.replace("{dense}", dense) for dense in ("dense_2", "dense_3")}
        elif isinstance(value, type):
            found |= keys_of(value)
    return found


def main():
    path = Path(sys.argv[1])
    known = json.loads(path.read_text()) if path.exists() else []
    package = {key.replace("{id}", "0").replace("{name}", "tool_use") for key in keys_of(Keys)}
    if "--write" in sys.argv[2:]:
        path.write_text(json.dumps(sorted(set(known) | package), indent=0) + "\n")
        return
    missing = sorted(package - set(known))
    print(f"{len(package)} keys of the package" + "".join(f"\nnot in the fixture: {key}" for key in missing))
    sys.exit(1 if missing else 0)


main()
