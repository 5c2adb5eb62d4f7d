#!/usr/bin/env python3
"""Proves the laws of the house: who includes whom, where LLVM may be seen, where names of formats and families may stand.

Usage: tools/house.py [ROOT]      exits 1 and lists every breach.  Run by the tests (ctest -R house).
       --rooms          the table of rooms: files, lines, what each is for
       --tests          which tests prove each room
       --write-doors    brings "May include:" of every door up to what its room includes, and docs/reference/tests.md
                        up to the tests that there are; the diff is reviewed
What a room is, and what is asked of it, says tools/rooms.py; how long a function may be, and how many casts there are, says
tools/functions.py; the traces of docs/tour.md are checked by tools/traces.py.
"""
import re
import sys
from pathlib import Path

import functions
import rooms
import traces
import words

# The include table of docs/tour.md. A floor may always include itself.
MAY_INCLUDE = {
    "base": set(),
    "lang": {"base"},
    "number": {"base", "lang"},
    "graph": {"base", "lang", "number"},
    "kernel": {"base", "number", "graph"},
    "emit": {"base", "number", "kernel/loop", "kernel/machine"},
    "run/device": {"base", "kernel/machine"},
    "run/ranks": {"base", "kernel/machine", "run/device"},
    "run/engine": {"base", "lang", "number", "graph", "kernel", "emit", "run/device"},
    "model": {"base", "lang", "number", "graph", "run"},
    "cli": {"base", "number", "run", "model"},
    "api": {"base", "lang", "number", "graph", "run", "model", "cli"},
}
# The applications stand on the tower, whose files neither include nor name them.
APPS_MAY_INCLUDE = {"base", "number", "graph", "run", "model", "cli"}
# The floors inside model, from below, are libraries of the build. A folder includes itself and lower floors.
FLOORS_OF_MODEL = [row.split() for row in re.findall(r'^  "([\w ]+)"$', (Path(__file__).resolve().parent.parent / "cmake/model.cmake").read_text(), re.M)]
# The same inside apps: applications include what they share, and no other application.
FLOORS_OF_APPS = [["draws", "spread", "weighted_product"], ["network", "images"], ["image_fit", "image_training"], ["classify", "diffuse", "recommend", "federate"]]
INSIDE = {"model": FLOORS_OF_MODEL, "apps": FLOORS_OF_APPS}
# The floors, from below: README.md and docs/tour.md say how many there are, and list them.
FLOORS = list(dict.fromkeys(row.split("/")[0] for row in MAY_INCLUDE))
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
LISTS_OF_FLOORS = {"README.md": re.compile(r"^ ?(\d+)  (\w+) ", re.M), "docs/tour.md": re.compile(r"^## (\d+)\. (\w+)", re.M)}
LONGEST_FILE = 700
# Each is a namespace as well. Elsewhere it is opened to declare names, and nothing else: class Family;
NAMESPACE = re.compile(r"^namespace (lumen[\w:]*) \{\n(.*?)^\}", re.M | re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
WORDS_LEFT_FOR_LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK|not implemented|unimplemented)\b")
# Every thread is started through one door, which knows what to do where the system gives none; OpenMP's library ends the
# program then.
STARTS_THREADS = re.compile(r"std::j?thread\b(?!::id\b)|std::async\b|\bpthread_create\b|#\s*pragma omp (?!simd\b)|<omp\.h>")
DOOR_OF_THREADS = "base/threads/"
# The standard library's iterators over folders end the program where memory is short.
DOOR_OF_FOLDERS = "base/file/folder."
WALKS_FOLDERS = re.compile(r"\w*directory_iterator\b|\b(?:fs|filesystem)::(?:remove_all|copy)\(")
# Every option is a row of the table of options, from which its help, variable, manual and reference come.
DOOR_OF_OPTIONS = "cli/settings/"
DECLARES_OPTION = re.compile(r"(?:\.|->)add_(?:option|flag)(?:_\w+)?\s*[(<]")
BANNED_FILES = re.compile(r"(^|/|_)(utils?|helpers?|misc|common)(_|\.|/|$)")


def floor_of(path: str) -> str:
    """The row of the table a path belongs to, as an #include spells it."""
    for floor in sorted(MAY_INCLUDE, key=len, reverse=True):
        if path.startswith(floor + "/"):
            return floor
    return path.split("/")[0]


def allowed(floor: str, header: str) -> bool:
    if header.startswith(floor + "/"):
        return True
    rooms_below = APPS_MAY_INCLUDE if floor == "apps" else MAY_INCLUDE[floor]
    return any(header.startswith(room + "/") for room in rooms_below)


def climbs_inside(path: str, header: str) -> str | None:
    """What is wrong where a file of model or of apps includes another folder of it."""
    one, two = path.split("/"), header.split("/")
    top = one[0]
    if top not in INSIDE or two[0] != top or len(one) < 3 or len(two) < 3 or one[1] == two[1]:
        return None
    level = {folder: number for number, floor in enumerate(INSIDE[top]) for folder in floor}
    for folder in (one[1], two[1]):
        if folder not in level:
            return f"{top}/{folder} is on no floor of FLOORS_OF_{top.upper()}"
    return None if level[two[1]] < level[one[1]] else f"{top}/{one[1]} must not include {header}: {top}/{two[1]} is no lower floor"


def foreign_namespaces(path: str, text: str) -> list[str]:
    """Namespaces that a file of model opens though they are not its folder's, or another file though they are model's."""
    folder = re.match(r"model/(\w+)/", path)
    own = f"lumen::model::{folder[1]}::" if folder else ""
    return [space for space, body in NAMESPACE.findall(text)
            if not (own and f"{space}::".startswith(own)) and (own or f"{space}::".startswith("lumen::model::")) and "{" in body]


def names_of_applications(root: Path) -> re.Pattern[str] | None:
    """Those folders of apps that have commands, as words or parts of identifiers; paths of their tests are no such names."""
    names = sorted(p.parent.name for p in (root / "apps").glob("*/verbs"))
    return re.compile(r"(?<![A-Za-z/])(?:" + "|".join(names) + r")(?![A-Za-z/])") if names else None


def floor_breaches(root: Path) -> list[str]:
    """Where a document counts or lists other floors than there are."""
    out = []
    floors = {(str(number), name) for number, name in enumerate(FLOORS, 1)}
    for page, row in LISTS_OF_FLOORS.items():
        text = (root / page).read_text() if (root / page).exists() else ""
        if (listed := set(row.findall(text))) and listed != floors:
            out.append(f"{page}: floors that are not those of the source: {sorted(' '.join(f) for f in listed ^ floors)}")
        out += [f"{page}: says {said} floors; there are {NUMBERS[len(FLOORS)]}"
                for said in re.findall(r"\b(" + "|".join(NUMBERS) + r") floors\b", text) if said != NUMBERS[len(FLOORS)]]
    return out


def include_cycles(graph: dict[str, list[str]]) -> list[str]:
    state: dict[str, int] = {}
    cycles: list[str] = []

    def visit(node: str, trail: list[str]) -> None:
        state[node] = 1
        for target in graph.get(node, []):
            if state.get(target) == 1:
                cycles.append(" -> ".join(trail[trail.index(target):] + [target]) if target in trail else target)
            elif target not in state:
                visit(target, trail + [target])
        state[node] = 2

    for node in graph:
        if node not in state:
            visit(node, [node])
    return cycles


def names_in_definitions(root: Path) -> list[str]:
    """Names of formats and model families, from their own texts; scalar types are not formats' property."""
    scalars = {"f16", "bf16", "f32", "f64", "int8", "int4", "int3", "int2"}
    names = set()
    for folder, word in (("formats", "format"), ("models", "model")):
        for file in sorted((root / folder).glob("*.lum")):
            names.update(re.findall(rf"^{word}\s+([A-Za-z_]\w*)", file.read_text(), re.M))
    return sorted(names - scalars)


def main() -> int:
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    given = [a for a in sys.argv[1:] if not a.startswith("--")]
    if set(flags) - {"--rooms", "--tests", "--write-doors"} or len(given) > 1:
        sys.exit(__doc__)
    root = Path(given[0] if given else Path(__file__).resolve().parent.parent).resolve()
    if "--write-doors" in flags:
        rooms.write_doors(root)
    if "--tests" in flags:
        print(rooms.test_map(root))
    if "--rooms" in flags:
        print(rooms.table(root))
    breaches: list[str] = []
    sources = rooms.sources(root)
    applications = names_of_applications(root)
    names = names_in_definitions(root)
    forbidden = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r"|qwen\d*|exaone|hyperclova)\b", re.I) if names else None
    graph: dict[str, list[str]] = {}
    for source in sources:
        path = rooms.included_as(root, source)
        place = rooms.path_of(path)
        text = source.read_text()
        floor = floor_of(path)
        if floor not in MAY_INCLUDE and floor != "apps":
            breaches.append(f"{place}: folder is not in the table of the house")
            continue
        graph[path] = []
        for header in INCLUDE.findall(text):
            if header.startswith(("llvm/", "lld/", "llvm-c/")):
                if floor != "emit":
                    breaches.append(f"{place}: includes {header}; only src/emit may see LLVM")
            elif (root / rooms.path_of(header)).exists():
                graph[path].append(header)
                if climbs := climbs_inside(path, header):
                    breaches.append(f"{place}: {climbs}")
                if not allowed(floor, header):
                    breaches.append(f"{place}: {floor} must not include {header}")
        breaches += [f"{place}: opens namespace {space}; a folder F of src/model is lumen::model::F, and it alone"
                     for space in foreign_namespaces(path, text)]
        for number, line in enumerate(text.splitlines(), 1):
            if applications and floor != "apps" and (found := applications.search(line)):
                breaches.append(f"{place}:{number}: names '{found.group(0)}', an application; src/ knows none")
            if forbidden and (found := forbidden.search(line)):
                breaches.append(f"{place}:{number}: names '{found.group(0)}'; formats and families live in .lum files only")
            if not path.startswith(DOOR_OF_THREADS) and (found := STARTS_THREADS.search(line)):
                breaches.append(f"{place}:{number}: '{found.group(0).strip()}'; threads are started by base/threads/threads.h alone")
            if not path.startswith(DOOR_OF_FOLDERS) and (found := WALKS_FOLDERS.search(line)):
                breaches.append(f"{place}:{number}: '{found.group(0)}' ends the program where memory is short; see base/file/folder.h")
            if not path.startswith(DOOR_OF_OPTIONS) and (found := DECLARES_OPTION.search(line)):
                breaches.append(f"{place}:{number}: '{found.group(0)}' declares an option; add a row to the table (cli/settings) and add_setting()")
            if found := WORDS_LEFT_FOR_LATER.search(line):
                breaches.append(f"{place}:{number}: '{found.group(0)}' left in the code")
        if len(text.splitlines()) > LONGEST_FILE:
            breaches.append(f"{place}: {len(text.splitlines())} lines; more than {LONGEST_FILE} hold more than one thing")
        if BANNED_FILES.search(path):
            breaches.append(f"{place}: a dumping-ground name; name the file after the thing it holds")
    breaches += [f"include cycle: {cycle}" for cycle in include_cycles(graph)]
    breaches += floor_breaches(root)
    breaches += rooms.breaches(root)
    breaches += words.breaches(root)
    breaches += traces.breaches(root)
    breaches += functions.breaches(root)
    for breach in breaches:
        print(breach)
    print(f"house: {len(sources)} files, {sum(map(len, graph.values()))} includes, {len(names)} names watched, "
          f"{functions.casts(root)} static_cast of {functions.MOST_CASTS}, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
