"""Retired words: docs/reference/glossary.md lists words that the code no longer uses, what is said instead, and where.
tools/house.py calls this. It checks identifiers and comments of C++. It checks strings for `help`, which is src/cli and apps, and not
elsewhere (plans keep their words). A word of an identifier is the part between underscores. No comment begins with 'Of': it
has a noun. In formats, models, recipes and tasks it checks comments and the strings that users read: reasons and descriptions."""
import re
from pathlib import Path

import rooms

STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'')
ROW = re.compile(r"^\| (?P<words>[^|]+) \| (?P<instead>[^|]+) \| (?P<where>[^|]+) \|$")
WORD = re.compile(r"[A-Za-z0-9]+")
HEADING = "## Retired words"
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
SHOWN = re.compile(r'\b(?:because|instead|doc|absent_says)\s*=?\s*("(?:\\.|[^"\\])*")')
DATA = ("formats", "models", "recipes", "tasks")


def retired(root: Path) -> list[tuple[re.Pattern[str], str, list[str], str]]:
    """Patterns, what is said instead, the folders they are refused in, and the first word of each."""
    text = (root / "docs" / "reference" / "glossary.md").read_text()
    if HEADING not in text:
        return []
    out = []
    for line in text.split(HEADING, 1)[1].splitlines():
        row = ROW.match(line)
        if not row or row["words"].strip() in ("retired", "---"):
            continue
        for word in row["words"].split(","):
            word = word.strip().strip("`")
            pattern = re.compile(r"(?<![A-Za-z0-9])" + re.escape(word) + r"(?![A-Za-z0-9])")
            out.append((pattern, row["instead"].strip(), [w.strip().strip("`") for w in row["where"].split(",")], WORD.search(word)[0]))
    return out


def help_breaches(root: Path, words: list[tuple[re.Pattern[str], str, list[str], str]]) -> list[str]:
    """In the texts of the command line. Names of options are kept for those who know them."""
    here = [(pattern, instead) for pattern, instead, where, _ in words if "help" in where]
    out = []
    for file in rooms.sources(root):
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text().splitlines() if path.startswith(("src/cli/", "apps/")) else (), 1):
            texts = " ".join(t for t in STRING.findall(line) if "--" not in t)
            out += [f"{path}:{number}: '{found[0]}' is a retired word; say {instead} (docs/reference/glossary.md)"
                    for pattern, instead in here if (found := pattern.search(texts))]
    return out


def prose_of(line: str) -> str:
    """The comment of a line of a .lum or .toml file without `code`, and the strings in it that users read."""
    mark = QUOTED.sub(lambda found: " " * len(found[0]), line).find("#")
    code, comment = (line, "") if mark < 0 else (line[:mark], line[mark:])
    return " ".join([*SHOWN.findall(code), re.sub(r"`[^`]*`", "", comment)]).lower()


def data_breaches(root: Path, words: list[tuple[re.Pattern[str], str, list[str], str]]) -> list[str]:
    """In the definitions of formats, families, recipes and tasks."""
    out = []
    for folder in DATA:
        here = [(pattern, instead) for pattern, instead, where, _ in words if folder in where]
        for file in sorted(p for p in (root / folder).rglob("*") if here and p.suffix in (".lum", ".toml")):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                prose = prose_of(line)
                out += [f"{file.relative_to(root).as_posix()}:{number}: '{found[0]}' is a retired word; say {instead} (docs/reference/glossary.md)"
                        for pattern, instead in here if (found := pattern.search(prose))]
    return out


def without_strings(text: str) -> str:
    """Comments keep theirs: an apostrophe there begins nothing."""
    lines = []
    for line in text.splitlines():
        code, mark, comment = line, "", ""
        for found in re.finditer(r"//", line):
            if STRING.sub("", line[:found.start()]).count('"') == 0:
                code, mark, comment = line[:found.start()], "//", line[found.end():]
                break
        lines.append(STRING.sub('""', code) + mark + comment)
    return "\n".join(lines)


def breaches(root: Path) -> list[str]:
    words = retired(root)
    out = []
    for file in rooms.sources(root):
        path = file.relative_to(root).as_posix()
        place = path if path.startswith("src/") else f"src/{path}"  # words retired in all of src are so in apps
        text = without_strings(file.read_text())
        in_file = set(WORD.findall(text))  # so that few patterns are searched for in each line
        here = [(pattern, instead) for pattern, instead, where, first in words if first in in_file and any(place.startswith(w) for w in where)]
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("// Of "):
                out.append(f"{path}:{number}: a comment begins with 'Of'; give it its noun")
            for pattern, instead in here:
                if found := pattern.search(line):
                    out.append(f"{path}:{number}: '{found[0]}' is a retired word; say {instead} (docs/reference/glossary.md)")
    return out + help_breaches(root, words) + data_breaches(root, words)
