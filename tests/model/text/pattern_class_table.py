#!/usr/bin/env python3
"""Holds tests/model/fixtures/pattern_classes.json against the package `tokenizers` (PyPI): which characters its patterns take for
\\w, \\d, \\s and their kin, bare and in brackets, and between which there is a \\b. The test (pattern_test.cpp) holds our patterns
against the fixture, for every character that all versions of Unicode about know.

usage: pattern_class_table.py FIXTURE           exit code 77: the package is missing, nothing was checked
       pattern_class_table.py FIXTURE --write
"""
import json
import sys
import unicodedata
from pathlib import Path

try:
    from tokenizers import Regex, pre_tokenizers
except ImportError as missing:
    print(f"skipped: {missing}; pip install tokenizers")
    sys.exit(77)

# "~" stands before the character: there is a boundary between the two, or none.
PATTERNS = [r"\w", r"[\w]", r"\d", r"\s", r"\h", r"[[:word:]]", r"[[:alpha:]]", r"[[:alnum:]]", r"~\b"]
# What takes all other characters.
OTHERS = {r"\W": r"\w", r"[^\w]": r"[\w]", r"[\W]": r"[\w]", r"\D": r"\d", r"[\D]": r"\d", r"\S": r"\s", r"[\S]": r"\s", r"[^\s]": r"\s",
          r"\H": r"\h", r"[\H]": r"\h", r"~\B": r"~\b", r"[\d]": r"\D", r"[\s]": r"\S", r"[\h]": r"\H"}


def characters(step):
    return [c for c in range(0, 0x110000, step) if not 0xD800 <= c < 0xE000]


def ranges(found):
    out = []
    for c in found:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def taken(pattern, among):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    if not pattern.startswith("~"):
        return [c for c in among if not split.pre_tokenize_str(chr(c))]
    return [c for c in among if c != ord("~") and split.pre_tokenize_str("~" + chr(c))[0][0] == chr(c)]


def main():
    path = Path(sys.argv[1])
    if "--write" in sys.argv[2:]:
        path.write_text(json.dumps({p: ranges(taken(p, characters(1))) for p in PATTERNS}, separators=(",", ":")) + "\n")
        return
    # All characters take a minute: those below 0x3000, and every 17th, of those assigned long ago.
    some = sorted(set(characters(17)) | set(range(0x3000)))
    some = [c for c in some if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    known = {pattern: set(some) & {c for first, last in found for c in range(first, last + 1)} for pattern, found in json.loads(path.read_text()).items()}
    for pattern, other in OTHERS.items():
        known[pattern] = set(some) - known[other] - ({ord("~")} if "~" in pattern else set())
    wrong = 0
    for pattern, want in known.items():
        off = sorted(want ^ set(taken(pattern, some)))
        wrong += bool(off)
        print(f"{pattern:12} {len(want)} characters" + (f", but not {[hex(c) for c in off[:8]]}" if off else ""))
    sys.exit(1 if wrong else 0)


main()
