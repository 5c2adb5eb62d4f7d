#!/usr/bin/env python3
"""Which sources compile together as one unit: most of the time of a build goes into headers and templates that many
sources share. Two sources share a unit only if what is private to the one cannot change what the other means:
  - a private function is no name that the other calls (unless as a member or with its namespace);
  - any other private name does not occur so in the other, where both are in one namespace or in nested ones;
  - no header that the other includes declares it, in such a namespace too; nor, where it has a name that headers declare
    as well, does one use it.
   usage: units.py KEPT MOST_SOURCES MOST_LINES SOURCE...   prints unit;source;unit;source;... as a list of CMake
KEPT is a file of the build that holds what was chosen last: sources stay where they were while they may, so that a new
one lets one unit be compiled again rather than most."""
import re
import sys
from functools import cache
from pathlib import Path

TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)
WORD = re.compile(r"(\.|->|::|)\b([A-Za-z_]\w*)\b(\s*\(|)")
# What is declared at the start of a line: types, aliases, macros, variables.
DECLARED = [
    re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+class)?)\s+(\w+)"),
    re.compile(r"using\s+(\w+)\s*="),
    re.compile(r"#\s*define\s+(\w+)"),
    re.compile(r"[^=({;]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*(?:[={;]|$)"),
]
SEVERAL = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*=(?!=)|\b(k[A-Z]\w*)\{")
TYPES = set("void bool char int float double size_t int64_t int32_t uint64_t uint32_t uint8_t string decltype alignas noexcept sizeof static_assert".split())
ATTRIBUTE = re.compile(r"^(?:\[\[[^\]]*\]\]\s*)+", re.M)  # in front of a declaration: [[noreturn]]
NAMESPACE = re.compile(r"namespace ([\w:]+)\s*\{")
TEST = re.compile(r"(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\((\w+),\s*(\w+)\)")
TEST_LIST = re.compile(r"(?:INSTANTIATE_TEST_SUITE_P|GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST)\(")


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
    """(namespace, name) of what a header declares."""
    with open(path, encoding="utf-8") as file:
        code = TEXT.sub('""', file.read())
    out, namespace = set(), ""
    for line in code.splitlines():
        if found := NAMESPACE.match(line):
            namespace = found[1]
        elif re.match(r"[A-Za-z]", line) and not re.match(r"(namespace|extern|using namespace)\b", line):
            functions, others = declared(line)
            out |= {(namespace, name) for name in functions | others}
    return frozenset(out)


@cache
def words_of_header(path):
    with open(path, encoding="utf-8") as file:
        return frozenset(name for _, name, _ in WORD.findall(TEXT.sub('""', file.read())))


class Source:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.lines = text.count("\n")
        # The one place where a comment says what the code does not: which of the braces ends a nameless namespace.
        code = TEXT.sub('""', re.sub(r"^\}\s*// namespace$", "END_OF_PRIVATE", text, flags=re.M))
        code = ATTRIBUTE.sub("", code)
        self.calls, self.plain, self.words = set(), set(), set()  # names called, names without a namespace or object, all
        self.functions, self.others = set(), set()  # private: (namespace, name)
        self.aliases = {}  # (namespace, name): the declaration
        self.alone = False
        reached, rest = set(), [path]
        while rest:
            for header in included(rest.pop()) - reached:
                reached.add(header)
                rest.append(header)
        self.headers = reached
        self.header_names = set().union(*map(names_of_header, reached))
        private, self.namespace = False, ""
        for line in code.splitlines():
            if not line.startswith("#include"):
                self.read_words(line)
            if found := NAMESPACE.match(line):
                self.alone = self.alone or self.namespace not in ("", found[1])
                self.namespace = found[1]
            elif re.match(r"namespace\s*\{", line):
                private = True
            elif line == "END_OF_PRIVATE":
                private = False
            elif re.match(r"#\s*(define|undef|pragma)\b", line) and "#pragma omp" not in line:
                self.alone = True  # would reach into what follows
            elif re.match(r"using namespace\b", line):
                self.alone = True
            elif alias := re.match(r"using ([\w:]+::)?(\w+);", line):
                self.aliases[self.namespace, alias[2]] = line
            elif re.match(r"[A-Za-z]", line) and not re.match(r"(namespace|extern|using (?!\w+ =))\b", line):
                if private or re.match(r"(static|constexpr|const|inline|using|struct|class|enum|thread_local)\b", line):
                    functions, others = declared(line)
                    self.functions |= {(self.namespace, name) for name in functions}
                    self.others |= {(self.namespace, name) for name in others}

    def read_words(self, line):
        for before, name, call in WORD.findall(line):
            self.words.add(name)
            if not before:
                self.plain.add(name)
                if call:
                    self.calls.add(name)

    def disturbs(self, other):
        """Whether what is private here could change what the other means."""
        for names, used in ((self.functions, other.calls), (self.others, other.plain)):
            for namespace, name in names:
                near = nested(namespace, other.namespace)
                if (namespace, name) in self.header_names:  # an overload of what headers declare
                    if near and (name in other.words or any(name in words_of_header(h) for h in other.headers - self.headers)):
                        return True
                elif name in used and (near or names is self.functions):  # functions are also found by their arguments
                    return True
                elif any(name == its and nested(namespace, of) for of, its in other.header_names):
                    return True
        for (namespace, name), line in self.aliases.items():
            if other.aliases.get((namespace, name)) != line and name in other.plain and (
                    nested(namespace, other.namespace) or name[0].islower()):
                return True
        return False


def nested(one, other):
    return (one + "::").startswith(other + "::") or (other + "::").startswith(one + "::")


def declared(line):
    """The functions that a line declares, and its other names."""
    nothing = set()
    if TEST_LIST.match(line):
        return nothing, nothing
    test = TEST.match(line)
    if test:
        return nothing, {f"{test[1]}_{test[2]}_Test"}
    # A function is the word before a parenthesis; types of functions among its own have some too.
    head = re.split(r"=|\{", line)[0] if "operator" not in line else ""
    functions = set(re.findall(r"(\w+)\s*\(", head)) - TYPES
    if functions and not re.match(r"(struct|class|union|enum|using|#)\b", line):
        return functions, nothing
    if re.match(r"(static|inline|constexpr|const|using|thread_local|[\w:<>]+ )", line) and (several := {a or b for a, b in SEVERAL.findall(line)}):
        return nothing, several
    for pattern in DECLARED:
        found = pattern.match(line)
        if found:
            return nothing, {found[1]}
    return nothing, nothing


class Unit:
    def __init__(self):
        self.sources, self.lines = [], 0

    def takes(self, source, most_sources, most_lines):
        if len(self.sources) >= most_sources or self.lines + source.lines > most_lines:
            return False
        return not any(source.disturbs(one) or one.disturbs(source) for one in self.sources)

    def add(self, source):
        self.sources.append(source)
        self.lines += source.lines


GROWTH = 1.3  # how much longer than others a unit may become before its sources are parted


def kept_units(kept, sources, most_sources, most_lines):
    """The units of last time, of the sources that are still there and go together."""
    if not kept.is_file():
        return []
    units = {}
    words = kept.read_text(encoding="utf-8").split(";")
    for name, path in zip(words[::2], words[1::2]):
        unit = units.setdefault(name, Unit())
        source = sources.get(path)
        if source and unit.takes(source, most_sources, GROWTH * most_lines):
            unit.add(sources.pop(path))
    return [unit for unit in units.values() if unit.sources]


def main():
    kept, most_sources, most_lines = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sources = {path: source for path in sys.argv[4:] if not (source := Source(path)).alone}
    units = kept_units(kept, sources, most_sources, most_lines)
    for source in sources.values():
        for unit in units:
            if unit.takes(source, most_sources, most_lines):
                break
        else:
            unit = Unit()
            units.append(unit)
        unit.add(source)
    name = {unit: "with_" + "_".join(Path(unit.sources[0].path).with_suffix("").parts[-2:]) for unit in units}
    listed = [(name[unit], source.path) for unit in units for source in unit.sources]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(";".join(word for pair in listed for word in pair), encoding="utf-8")
    together = {name[unit] for unit in units if len(unit.sources) > 1}
    sys.stdout.write(";".join(word for pair in listed if pair[0] in together for word in pair))


if __name__ == "__main__":
    main()
