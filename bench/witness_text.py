#!/usr/bin/env python3
"""Text for witness models: every passage of real files (.txt .md .json .jsonl .csv .tsv, also .gz), each once, in the order
of the files' names; of every ten passages one goes to the text held out. Labels, keys and short cells are left out.

Run:  python3 bench/witness_text.py seen.txt held.txt FILE_OR_FOLDER..
"""
import csv
import gzip
import io
import json
import sys
from pathlib import Path

LEAST = 12  # characters of a passage
KINDS = (".txt", ".md", ".json", ".jsonl", ".csv", ".tsv")


def texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from texts_in(v)
    elif isinstance(value, list):
        for v in value:
            yield from texts_in(v)


def passages(path):
    raw = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode("utf-8", errors="strict")
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind in (".txt", ".md"):
        # A few paragraphs together, so that what follows can depend on what was said.
        block = []
        for paragraph in text.split("\n\n" if "\n\n" in text else "\n"):
            block.append(paragraph.strip("\n"))
            if sum(map(len, block)) > 2000:
                yield "\n".join(block)
                block = []
        yield "\n".join(block)
    elif kind == ".json":
        yield from texts_in(json.loads(text))
    elif kind == ".jsonl":
        for line in text.split("\n"):
            if line.strip():
                yield "\n".join(texts_in(json.loads(line)))
    else:
        csv.field_size_limit(1 << 24)
        rows = csv.reader(io.StringIO(text), delimiter="\t" if kind == ".tsv" else ",",
                          quoting=csv.QUOTE_NONE if kind == ".tsv" else csv.QUOTE_MINIMAL)
        next(rows, None)
        for row in rows:
            yield "\n".join(cell for cell in row if len(cell) >= LEAST)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    files = []
    for name in map(Path, sys.argv[3:]):
        inside = sorted(name.rglob("*")) if name.is_dir() else [name]
        files += [f for f in inside if f.is_file() and any(f.name.removesuffix(".gz").endswith(k) for k in KINDS)
                  and not f.name.startswith("README")]
    known, counted = set(), 0
    with open(sys.argv[1], "w") as seen, open(sys.argv[2], "w") as held:
        for file in files:
            for passage in passages(file):
                passage = passage.strip()
                if len(passage) < LEAST or passage in known:
                    continue
                known.add(passage)
                counted += 1
                (held if counted % 10 == 0 else seen).write(passage + "\n\n")
    print(f"{len(files)} files, {counted} passages")


main()
