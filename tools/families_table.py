#!/usr/bin/env python3
"""Which model families are read, and how far that is tested: docs/reference/families.md, made of what a test has shown.

Usage: tools/families_table.py [--results FILE] [--names] [--check]
  --results  what tests/model/arch/config_reference.py --results FILE wrote: it takes the place of what was known of those families
             in docs/reference/family-results.json, which is committed
  --names    take the names of architectures from the package gguf (PyPI)
  --check    write nothing; exit 1 where the page is not what the texts in models/ and the results say
"""
import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "families.md"
FACTS = ROOT / "docs" / "reference" / "family-results.json"
HEADER = re.compile(r"^model (\w+)\(cfg\) :(.*?)\{\s*$", re.M | re.S)


def texts_of(attributes, name):
    """The string values of an attribute of a model."""
    found = re.search(rf'(?:^|[,\s]){name} ((?:"[^"]*"\s*)+)', attributes)
    return re.findall(r'"([^"]*)"', found[1]) if found else []


def families():
    """Name, title, classes and GGUF architecture of every family that folders of Hugging Face have."""
    for path in sorted((ROOT / "models").glob("*.lum")):
        text = path.read_text()
        header = HEADER.search(text)
        if not header or re.search(r":\s*part\b|[,\s]part,", ":" + header[2]):
            continue
        classes = texts_of(header[2], "hf")
        if classes:
            title = re.match(r"# (.*?)(?:[:,(\n]|\.\s)", text)
            yield header[1], title[1].strip() if title else header[1], classes, (texts_of(header[2], "gguf") or [""])[0]


def state_of(one):
    if one is None:
        return "unseen"
    if one["wrong"]:
        return f"**{one['wrong']} wrong**"
    return "exact" if one["exact"] else "refused"


def page(facts):
    known = list(families())
    names = set(facts["architectures"])
    lines = [
        "# Model families", "",
        "A family is a text in `models/`. This page is made by `tools/families_table.py` from those texts and",
        "from results of `tests/model/arch/config_reference.py`. That test draws random configurations of a",
        "family's class: widths, heads, layers, windows, rotations, biases, keys left out. It compares logits",
        f"(of encoders, last hidden states) with transformers {facts['transformers']}. Each model is then written",
        "as GGUF and as a folder again, which transformers reads.", "",
        "- **exact**: configurations whose results are equal, up to 1e-4 of their range, in all forms",
        "- **refused**: configurations with a part that the family does not have; the error names the key",
        "- **unseen**: no random configurations were compared; `tests/model/fixtures` may cover it", "",
        "A GGUF name in brackets is one that llama.cpp does not read, by the list of",
        f"the package gguf {facts['gguf']}.", "",
        "| family | text | class | GGUF | state | exact | refused |", "|---|---|---|---|---|---|---|"]
    counts = {"exact": 0, "refused": 0, "unseen": 0}
    for name, title, classes, gguf in known:
        one = facts["families"].get(name)
        state = state_of(one)
        counts[state] = counts.get(state, 0) + 1
        shown = f"`{gguf}`" if gguf in names else f"(`{gguf}`)" if gguf else ""
        lines.append(f"| {title} | `{name}` | {classes[0]} | {shown} | {state} | {one['exact'] if one else ''} | {one['refused'] if one else ''} |")
    lines += ["", f"{len(known)} families: {counts['exact']} exact, {counts['refused']} refused, {counts['unseen']} unseen.", ""]
    written = {gguf: name for name, _, _, gguf in reversed(known) if gguf}
    both = sorted(names & set(written))
    lines += ["## Architectures of llama.cpp", "",
              f"The package gguf {facts['gguf']} names {len(names)} architectures. Families of Lumen read and write {len(both)} of them; the",
              "others are refused with the name of the architecture.", "",
              "| read and written | |", "|---|---|",
              "| yes | " + ", ".join(both) + " |", "| no | " + ", ".join(sorted(names - set(written))) + " |", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].split("\n")[0])
    parser.add_argument("--results")
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    facts = json.loads(FACTS.read_text()) if FACTS.exists() else {"transformers": "", "gguf": "", "architectures": [], "families": {}}
    if given.names:
        import importlib.metadata

        import gguf
        facts["gguf"] = importlib.metadata.version("gguf")
        facts["architectures"] = sorted(n for n in gguf.MODEL_ARCH_NAMES.values() if n != "clip")
    if given.results:
        new = json.loads(Path(given.results).read_text())
        facts["transformers"] = new["transformers"]
        facts["families"].update(new["families"])
    if given.check:
        if not PAGE.exists() or PAGE.read_text() != page(facts):
            print(f"{PAGE.relative_to(ROOT)} is not what the texts and results say: run tools/families_table.py")
            return 1
        return 0
    FACTS.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
