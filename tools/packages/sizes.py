#!/usr/bin/env python3
"""Which archives and files a linked program consists of, from the map that mold writes (-Wl,-Map=FILE), largest first.

Usage: sizes.py MAP [--members ARCHIVE]      --members: the members of one archive; ARCHIVE "" is all
"""
import re
import sys
from collections import Counter
from pathlib import Path

# "VMA SIZE ALIGN OUT IN SYMBOL": an input section is a file and a section, an archive's member stands in brackets.
SECTION = re.compile(r"^\s*(?:0x)?[0-9a-f]+\s+(\d+|0x[0-9a-f]+)\s+\d+\s{9}(\S.*?):\(([^)]*)\)$")


def main():
    members = sys.argv[3] if sys.argv[2:3] == ["--members"] else None
    sizes, kinds = Counter(), Counter()
    for line in Path(sys.argv[1]).read_text().splitlines():
        match = SECTION.match(line)
        if not match:
            continue
        size, file, section = int(match.group(1), 0), match.group(2), match.group(3)
        archive, _, member = file.partition("(")
        archive = Path(archive).name
        if members is not None:
            if members not in archive:
                continue
            archive = f"{archive}({member}"
        if section.startswith((".bss", ".tbss")):
            continue
        sizes[archive] += size
        kinds[re.match(r"\.?[a-z_]+", section + " ").group(0)] += size
    for name, size in sizes.most_common(60):
        print(f"{size / 1e6:8.2f} MB  {name}")
    print(f"{sum(sizes.values()) / 1e6:8.2f} MB  in all: " + ", ".join(f"{k} {v / 1e6:.2f}" for k, v in kinds.most_common(8)))


main()
