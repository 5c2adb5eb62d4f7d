#!/usr/bin/env python3
"""Which sources compile together as one unit: most of the time of a build goes into headers and templates that many
sources share. Two sources share a unit only if no name that is private to the one occurs in the other or is declared in
a header that the other alone includes, so what a unit means is what its sources mean alone.
   usage: units.py MOST_SOURCES MOST_LINES SOURCE...        prints unit;source;unit;source;... as a list of CMake"""
import re
import sys
from functools import cache
from pathlib import Path

TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)
WORD = re.compile(r"[A-Za-z_]\w*")
# What is declared at the start of a line: types, aliases, macros, variables.
DECLARED = [
    re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+class)?)\s+(\w+)"),
    re.compile(r"using\s+(\w+)\s*="),
    re.compile(r"#\s*define\s+(\w+)"),
    re.compile(r"[^=({;]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*(?:[={;]|$)"),
]
SEVERAL = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*=(?!=)")
TYPES = set("void bool char int float double size_t int64_t int32_t uint64_t uint32_t uint8_t string decltype alignas noexcept".split())
TEST = re.compile(r"(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\((\w+),\s*(\w+)\)")


INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
ROOT = Path(__file__).resolve().parent.parent


@cache
def included(path):
    """What a file includes, and what that does."""
    with open(path, encoding="utf-8") as file:
        found = INCLUDE.findall(file.read())
    out = set()
    for header in found:
        for folder in (ROOT / "src", ROOT, Path(path).parent):
            if (folder / header).is_file():
                out.add(str(folder / header))
                break
    return frozenset(out)


@cache
def names_of_header(path):
    with open(path, encoding="utf-8") as file:
        code = TEXT.sub('""', file.read())
    out = set()
    for line in code.splitlines():
        if re.match(r"[A-Za-z]", line) and not re.match(r"(namespace|extern|using namespace)\b", line):
            out |= declared(line)
    return frozenset(out)


class Source:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.lines = text.count("\n")
        # The one place where a comment says what the code does not: which of the braces ends a nameless namespace.
        code = TEXT.sub('""', re.sub(r"^\}\s*// namespace$", "END_OF_PRIVATE", text, flags=re.M))
        self.words = set()
        self.names = set()
        self.aliases = {}
        self.alone = False
        reached, rest = set(), [path]
        while rest:
            for header in included(rest.pop()) - reached:
                reached.add(header)
                rest.append(header)
        self.header_names = set().union(*map(names_of_header, reached))
        private = False
        for line in code.splitlines():
            if not line.startswith("#include"):
                self.words.update(WORD.findall(line))
            if re.match(r"namespace\s*\{", line):
                private = True
            elif line == "END_OF_PRIVATE":
                private = False
            elif re.match(r"#\s*(define|undef|pragma)\b", line) and "#pragma omp" not in line:
                self.alone = True  # would reach into what follows
            elif re.match(r"using namespace\b", line):
                self.alone = True
            elif alias := re.match(r"using ([\w:]+::)?(\w+);", line):
                self.aliases[alias[2]] = line
            elif re.match(r"[A-Za-z]", line) and not re.match(r"(namespace|extern|using (?!\w+ =))\b", line):
                if private or re.match(r"(static|constexpr|const|inline|using|struct|class|enum|thread_local)\b", line):
                    self.names.update(declared(line))


def declared(line):
    test = TEST.match(line)
    if test:
        return {f"{test[1]}_{test[2]}_Test"}
    # A function is the word before a parenthesis; types of functions among its own have some too.
    head = re.split(r"=|\{", line)[0] if "operator" not in line else ""
    functions = set(re.findall(r"(\w+)\s*\(", head)) - TYPES
    if functions and not re.match(r"(struct|class|union|enum|using|#)\b", line):
        return functions
    if re.match(r"(static|inline|constexpr|const|using|thread_local|[\w:<>]+ )", line) and (several := set(SEVERAL.findall(line))):
        return several
    for pattern in DECLARED:
        found = pattern.match(line)
        if found:
            return {found[1]}
    return set()


def fits(aliases, other):
    return all(name not in other.words or other.aliases.get(name) == line for name, line in aliases.items())


class Unit:
    def __init__(self):
        self.sources, self.lines, self.words, self.names, self.aliases = [], 0, set(), set(), {}
        self.header_names, self.own = set(), set()  # own: private names that no header of their source declares

    def takes(self, source, most_sources, most_lines):
        if len(self.sources) >= most_sources or self.lines + source.lines > most_lines:
            return False
        if self.names & source.words or self.words & source.names:
            return False
        if self.own & source.header_names or (source.names - source.header_names) & self.header_names:
            return False
        return fits(self.aliases, source) and fits(source.aliases, self)

    def add(self, source):
        self.sources.append(source)
        self.lines += source.lines
        self.words |= source.words
        self.names |= source.names
        self.aliases |= source.aliases
        self.header_names |= source.header_names
        self.own |= source.names - source.header_names


def main():
    most_sources, most_lines = int(sys.argv[1]), int(sys.argv[2])
    units = []
    for path in sys.argv[3:]:
        source = Source(path)
        if source.alone:
            continue
        for unit in units:
            if unit.takes(source, most_sources, most_lines):
                break
        else:
            unit = Unit()
            units.append(unit)
        unit.add(source)
    out = []
    for unit in units:
        if len(unit.sources) < 2:
            continue
        for source in unit.sources:
            out += ["with_" + "_".join(Path(unit.sources[0].path).with_suffix("").parts[-2:]), source.path]
    sys.stdout.write(";".join(out))


if __name__ == "__main__":
    main()
