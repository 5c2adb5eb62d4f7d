"""The rooms of the house: a folder with sources in it is a room. tools/house.py calls this; what is checked:

- a room holds at most MOST_FILES sources (under src/, apps/ and tests/);
- rooms do not include each other in a circle; a folder and a folder in it are two rooms;
- nor do the folders of a folder, whichever of their rooms it is: model/train and model/eval, kernel/synth/gemm and map;
- every room under src/ and apps/ has a door, the header named as the folder. Its first comment says what the room is for, in a
  sentence that begins with "May include:" which rooms the room may include, and in a last one that begins with
  "Offers:" which of its headers others may include besides the door and what the door includes of the room itself.
  Nothing else is included under src/ and apps/ (tests may look inside);
- what is included exists;
- files named by "Proved by ..." exist, and so do the files and headings that documents link to;
- docs/README.md links to every page of docs/, or to its folder;
- docs/reference/tests.md lists the tests of every room;
- no line of C++ is longer than COLUMNS, and clang-format would change nothing;
- outside of tables and code no line of a document is longer than PROSE_COLUMNS, and no paragraph has more than PROSE_WORDS.
"""
import os
import re
import shutil
import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOST_FILES = 20
COLUMNS = 120
PROSE_COLUMNS, PROSE_WORDS = 100, 80
FORMATTER = "clang-format-22"
TOPS = ("src", "apps")
SOURCE_FOLDERS = tuple(f"{top}/" for top in TOPS)
SOURCES = (".h", ".cpp", ".def")
TEST_SOURCES = (".h", ".cpp", ".c", ".py")
DATA = ("fixtures", "corpus", "__pycache__")  # folders of files that are no sources
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
FILE_NAME = re.compile(r"[\w./*-]*\w\.(?:cpp|py|h|txt)\b")
PROOF = re.compile(r"[Pp]rove[dn] by (.*?)(?:\.(?:\s|$)|$)")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
FENCED = re.compile(r"^[ \t]*```.*?^[ \t]*```|<!--.*?-->", re.S | re.M)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)
PLACE = re.compile(r"<a id=\"([^\"]+)\"></a>")
INDEX = "docs/README.md"
MAP = "docs/reference/tests.md"
MAP_HEAD = """# Which tests prove which folder

`tools/house.py . --write-doors` writes this page from the comments "Proved by" of the sources, and
from the folders under `tests`: the tests of a source folder are in the folder of the same name.
Other tests prove folders without tests of their own: those of the folders that use them.

| folder | files under `tests` |
|---|---|
"""


def sources(root: Path) -> list[Path]:
    return sorted(p for top in TOPS for p in (root / top).rglob("*") if p.suffix in SOURCES)


def included_as(root: Path, file: Path) -> str:
    """A source as an #include spells it: without src/, which is a folder of includes, but with apps/."""
    return file.relative_to(root).as_posix().removeprefix("src/")


def path_of(header: str) -> str:
    """The other way round: where in the tree a header or a room is."""
    return header if header.startswith("apps/") else f"src/{header}"


def test_sources(root: Path) -> list[Path]:
    return sorted(p for p in (root / "tests").rglob("*") if p.suffix in TEST_SOURCES and not set(p.parts) & set(DATA))


def room_of(path: str) -> str:
    return path.rsplit("/", 1)[0] if "/" in path else ""


def rooms(root: Path) -> dict[str, list[str]]:
    """Rooms, as "src/base", and the names of their files."""
    out: dict[str, list[str]] = {}
    for file in sources(root) + test_sources(root):
        out.setdefault(file.parent.relative_to(root).as_posix(), []).append(file.name)
    return out


def includes_between(root: Path) -> dict[str, dict[str, str]]:
    """By room the rooms it includes, each with one file that does and what it includes."""
    out: dict[str, dict[str, str]] = {}
    for file in sources(root):
        path = included_as(root, file)
        seen = out.setdefault(room_of(path), {})
        for header in INCLUDE.findall(file.read_text()):
            if (root / path_of(header)).exists() and room_of(header) != room_of(path):
                seen.setdefault(room_of(header), f"{path_of(path)} includes {header}")
    return out


def included_from_outside(root: Path) -> dict[str, dict[str, str]]:
    """By room its headers that others include, each with one file that does."""
    out: dict[str, dict[str, str]] = {}
    for file in sources(root):
        path = included_as(root, file)
        for header in INCLUDE.findall(file.read_text()):
            if (root / path_of(header)).exists() and room_of(header) != room_of(path):
                out.setdefault(room_of(header), {}).setdefault(header.rsplit("/", 1)[-1], path_of(path))
    return out


def missing_includes(root: Path) -> list[str]:
    out = []
    for file in sources(root) + test_sources(root):
        for header in INCLUDE.findall(file.read_text()) if file.suffix != ".py" else ():
            ways = (root / "src" / header, root / header, file.parent / header, root / "tests" / header)
            if not any(way.exists() for way in ways) and not header.endswith(".inc"):  # .inc: made by a script
                out.append(f"{file.relative_to(root)}: includes {header}, which does not exist")
    return out


def circles(graph: dict[str, dict[str, str]]) -> list[list[str]]:
    """Sets of rooms of which each includes each, by others if need be (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(room: str) -> None:
        number[room] = low[room] = len(number)
        stack.append(room)
        for other in graph.get(room, {}):
            if other not in number:
                visit(other)
                low[room] = min(low[room], low[other])
            elif other in stack:
                low[room] = min(low[room], number[other])
        if low[room] == number[room]:
            members = stack[stack.index(room):]
            del stack[stack.index(room):]
            if len(members) > 1:
                out.append(members)

    for room in graph:
        if room not in number:
            visit(room)
    return out


def by_neighbours(graph: dict[str, dict[str, str]]) -> dict[str, dict[str, dict[str, str]]]:
    """For each folder how the folders in it include each other, whichever of their rooms it is."""
    out: dict[str, dict[str, dict[str, str]]] = {}
    for room, others in graph.items():
        for other, where in others.items():
            a, b = room.split("/"), other.split("/")
            same = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
            if same is None:  # a room and one in it
                continue
            parent, one, two = "/".join(a[:same]), "/".join(a[:same + 1]), "/".join(b[:same + 1])
            out.setdefault(parent, {}).setdefault(one, {}).setdefault(two, where)
    return out


def door_of(room: str) -> str:
    return f"{room}/{room.rsplit('/', 1)[-1]}.h"


def first_comment(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    return lines


def may_include(comment: list[str]) -> set[str] | None:
    found = re.search(r"May include: ([^.]*)\.", " ".join(comment))
    if not found:
        return None
    named = found.group(1).strip()
    return set() if named == "nothing" else {name.strip() for name in named.split(",")}


def offered(room: str, text: str) -> set[str]:
    """Headers of a room that others may include."""
    own = {h.rsplit("/", 1)[-1] for h in INCLUDE.findall(text) if room_of(h) == room}
    said = re.search(r"Offers: (.*)$", " ".join(first_comment(text)))
    return own | {door_of(room).rsplit("/", 1)[-1]} | set(re.findall(r"\w+\.(?:h|def)\b", said.group(1) if said else ""))


def door_breaches(root: Path, graph: dict[str, dict[str, str]]) -> list[str]:
    out = []
    shown = included_from_outside(root)
    for room, included in sorted(graph.items()):
        door = root / path_of(door_of(room))
        if room in ("", "apps"):
            out.append(f"{room or 'src'}: files belong into rooms")
            continue
        if not door.exists():
            out.append(f"{path_of(room)}: no door; {door_of(room)} says what the room is for")
            continue
        comment = first_comment(door.read_text())
        named = may_include(comment)
        known = offered(room, door.read_text())
        for header, where in sorted(shown.get(room, {}).items()):
            if header not in known:
                out.append(f"{where}: includes {room}/{header}, which the door {door_of(room)} does not offer")
        if not comment or comment[0].startswith("May include"):
            out.append(f"{path_of(door_of(room))}: does not say what the room is for")
        if named is None:
            out.append(f"{path_of(door_of(room))}: does not say which rooms may be included ('May include: base, ..', or nothing)")
            continue
        for other, where in sorted(included.items()):
            if other not in named:
                out.append(f"{where}; the door {door_of(room)} does not allow {other}")
        for other in sorted(named - set(included)):
            out.append(f"{path_of(door_of(room))}: allows {other}, which nobody in the room includes")
    return out


def write_doors(root: Path) -> None:
    """Brings "May include:" and "Offers:" of every door up to what is included now."""
    shown = included_from_outside(root)
    for room, included in includes_between(root).items():
        door = root / path_of(door_of(room))
        if not door.exists():
            continue
        text = door.read_text()
        comment = first_comment(text)
        rest = text.splitlines(keepends=True)[len(comment):]
        at = next((i for i, line in enumerate(comment) if line.startswith(("May include:", "Offers:"))), len(comment))
        comment = comment[:at]
        while comment and not comment[-1]:
            comment.pop()
        said = [f"May include: {', '.join(sorted(included)) or 'nothing'}."]
        if more := sorted(set(shown.get(room, {})) - offered(room, "".join(rest))):
            said.append(f"Offers: {', '.join(more)}.")
        lines = [line for s in said
                 for line in textwrap.wrap(s, COLUMNS - 3, break_on_hyphens=False, break_long_words=False)]
        new = "".join(f"// {line}".rstrip() + "\n" for line in comment + [""] + lines) + "".join(rest)
        if new != text:
            door.write_text(new)
    if (root / MAP).exists():
        (root / MAP).write_text(map_page(root))


def proofs(root: Path) -> list[tuple[str, str, list[str]]]:
    """For each name in a "Proved by": the file that says it, the name, and the tests that it means."""
    out = []
    tests = [p.relative_to(root).as_posix() for p in (root / "tests").rglob("*") if p.is_file()]
    for file in sources(root) + test_sources(root):
        text = re.sub(r"\n[ \t]*//[ \t]*", " ", file.read_text()) if file.suffix != ".py" else ""
        for line in text.splitlines():
            for claim in PROOF.findall(line):
                for name in FILE_NAME.findall(claim):
                    pattern = re.compile(("" if "/" in name else "(.*/)?") + re.escape(name).replace(r"\*", "[^/]*"))
                    out.append((file.relative_to(root).as_posix(), name, [t for t in tests if pattern.fullmatch(t)]))
    return out


def proof_breaches(root: Path) -> list[str]:
    return [f"{file}: proved by {name}, which does not exist" for file, name, tests in proofs(root) if not tests]


def test_map(root: Path) -> str:
    """Which tests prove the sources of a room: those that its files name, and those in the room's place under tests/."""
    named: dict[str, set[str]] = {}
    for file, _, tests in proofs(root):
        if file.startswith(SOURCE_FOLDERS):
            named.setdefault(file.rsplit("/", 1)[0], set()).update(t for t in tests if t.startswith("tests/"))
    out = []
    for room in sorted(r for r in rooms(root) if r.startswith(SOURCE_FOLDERS)):
        own = {p.relative_to(root).as_posix() for p in (root / "tests" / room.removeprefix("src/")).glob("*_test.cpp")}
        found = sorted(named.get(room, set()) | own)
        out.append(room + (":" if found else ": none of its own"))
        out += ["  " + test for test in found]
    return "\n".join(out)


def map_page(root: Path) -> str:
    """docs/reference/tests.md: the same as a table. --write-doors writes it."""
    rows = []
    for block in re.split(r"\n(?=\S)", test_map(root)):
        room, *tests = block.split("\n")
        names = ", ".join(f"`{t.strip().removeprefix('tests/')}`" for t in tests)
        rows.append(f"| `{room.split(':')[0]}` | {names or 'none of its own'} |")
    return MAP_HEAD + "\n".join(rows) + "\n"


def map_breaches(root: Path) -> list[str]:
    page = root / MAP
    if not page.exists() or page.read_text() == map_page(root):
        return []
    return [f"{MAP}: not the tests that there are; tools/house.py . --write-doors writes it"]


def pages(root: Path) -> list[Path]:
    """Every Markdown file but what was built and the inputs of tests."""
    out = []
    for folder, inside, files in os.walk(root):
        at_root = Path(folder) == root
        inside[:] = [d for d in inside if d not in (".git", "corpus", "__pycache__") and
                     not (at_root and d.startswith(("build", "out", "demo-out")))]
        out += [Path(folder, f) for f in files if f.endswith(".md")]
    return sorted(out)


def anchors(text: str) -> set[str]:
    """What a link may name behind '#': headings as GitHub spells them, and places that are named."""
    out = set(PLACE.findall(text))
    for title in HEADING.findall(FENCED.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = 0
        while name + (f"-{count}" if count else "") in out:
            count += 1
        out.add(name + (f"-{count}" if count else ""))
    return out


def links(page: Path) -> list[tuple[str, str]]:
    """The relative links of a page: the path, which is empty within the page, and what stands behind '#'."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text()))
    return [(path, anchor) for path, anchor in LINK.findall(text) if ":" not in path and (path or anchor)]


def link_breaches(root: Path) -> list[str]:
    out = []
    linked = set()
    for page in pages(root):
        where = page.relative_to(root)
        for path, anchor in links(page):
            target = page.parent / path if path else page
            if where.as_posix() == INDEX:
                linked.add(target.resolve())
            if not target.exists():
                out.append(f"{where}: links to {path}, which does not exist")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                out.append(f"{where}: links to {path}#{anchor}; {target.name} has no such heading")
    if (root / INDEX).exists():
        out += [f"{page.relative_to(root)}: {INDEX} does not link to this page or its folder"
                for page in sorted((root / "docs").rglob("*.md"))
                if page != root / INDEX and not {page.resolve(), page.parent.resolve()} & linked]
    return out


def column_breaches(root: Path) -> list[str]:
    out = []
    for file in sources(root) + test_sources(root):
        if file.suffix not in (".h", ".cpp"):
            continue
        literal = False
        for number, line in enumerate(file.read_text().splitlines(), 1):
            literal = literal or 'R"' in line  # what stands in raw strings is not ours to break
            if len(line) > COLUMNS and not literal and '"' not in line:
                out.append(f"{file.relative_to(root)}:{number}: {len(line)} columns; {COLUMNS} are the most")
            literal = literal and not re.search(r'\)\w*"', line.split('R"', 1)[-1] if 'R"' in line else line)
    return out


def prose_breaches(root: Path) -> list[str]:
    """Of documents, without tables, headings, comments and code; an item of a list is a paragraph."""
    out = []
    for page in sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md")):
        where = page.relative_to(root)
        text = re.sub(r"^[ \t]*```.*?^[ \t]*```|<!--.*?-->", lambda cut: "\n" * cut[0].count("\n"), page.read_text(), flags=re.S | re.M)
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > PROSE_COLUMNS and not line.lstrip().startswith("|"):
                out.append(f"{where}:{number}: {len(line)} columns; {PROSE_COLUMNS} are the most outside of tables")
        at = 1
        for paragraph in re.split(r"(\n[ \t]*\n|\n(?=[ \t]*(?:[-*]|\d+\.)[ \t]))", text):
            words = len(paragraph.split())
            if words > PROSE_WORDS and not paragraph.lstrip().startswith(("|", "#")):
                out.append(f"{where}:{at}: a paragraph of {words} words; {PROSE_WORDS} are the most")
            at += paragraph.count("\n")
    return out


def format_breaches(root: Path) -> list[str]:
    if not shutil.which(FORMATTER):
        print(f"house: {FORMATTER} is not here, so nobody looked whether files are formatted (tools/setup.sh installs it)")
        return []
    files = sources(root) + test_sources(root) + list((root / "bench").glob("*.cpp"))
    files = [str(f) for f in files if f.suffix in (".h", ".cpp")]
    width = 40

    def look(some: list[str]) -> list[str]:
        run = subprocess.run([FORMATTER, "--dry-run", f"--style=file:{style}", *some], capture_output=True, text=True)
        return sorted({line.split(":")[0] for line in run.stderr.splitlines() if "[-Wclang-format-violations]" in line})

    style = root / ".clang-format"
    if not style.exists():
        return []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(look, (files[i:i + width] for i in range(0, len(files), width)))
    return [f"{Path(f).relative_to(root)}: not as {FORMATTER} writes it ('make format')" for some in found for f in some]


def breaches(root: Path) -> list[str]:
    root = root.resolve()
    graph = includes_between(root)
    out = [f"{room}: {len(files)} files; {MOST_FILES} are the most of a room"
           for room, files in sorted(rooms(root).items()) if len(files) > MOST_FILES]
    for members in circles(graph):
        out.append("rooms include each other in a circle: " + ", ".join(sorted(members)))
        out += sorted("  " + where for room in members for other, where in graph[room].items() if other in members)
    for parent, inside in sorted(by_neighbours(graph).items()):
        for members in circles(inside):
            out.append(f"folders of {parent or 'src'} include each other in a circle: " + ", ".join(sorted(members)))
            out += sorted("  " + where for one in members for other, where in inside[one].items() if other in members)
    return (out + door_breaches(root, graph) + missing_includes(root) + proof_breaches(root) + link_breaches(root) +
            map_breaches(root) + column_breaches(root) + prose_breaches(root) + format_breaches(root))


def table(root: Path) -> str:
    """Files, lines and purpose of every room."""
    out = []
    for room, files in sorted(rooms(root).items()):
        lines = sum(len((root / room / f).read_text().splitlines()) for f in files)
        door = root / door_of(room)
        purpose = ""
        if room.startswith(SOURCE_FOLDERS) and door.exists():
            purpose = re.split(r"(?<=\.) ", " ".join(first_comment(door.read_text())))[0]
        out.append(f"{room:<36} {len(files):>3} files {lines:>6} lines  {purpose}".rstrip())
    return "\n".join(out)
