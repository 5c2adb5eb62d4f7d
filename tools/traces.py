"""The traces and questions of docs/tour.md. tools/house.py calls this. A trace follows one value through the code. A step is an item of a
numbered list; its first name in backticks is a file under src, and every other name must occur in that file. No trace
visits a folder more than MOST_VISITS times. A question is a row of a table with a word and a folder: the first comment of
the folder's door has the word, and few other doors do."""
import re
from collections import Counter
from pathlib import Path

import rooms

PAGE = "docs/tour.md"
TRACE = re.compile(r"^### Trace: (.*)$", re.M)
STEP = re.compile(r"^\d+\. (.*(?:\n +\S.*)*)", re.M)
NAME = re.compile(r"`([^`]+)`")
# A function, a type or a member; other things in backticks are what a user writes.
IDENTIFIER = re.compile(r"^(?:\w+::)*[A-Za-z_]\w*$")
TRACES, MOST_VISITS = 11, 3
QUESTION = re.compile(r"^\| [^|]*\? \| `([^`]+)` \| `([^`]+)` \|$", re.M)
MOST_DOORS = 3


def traces(text: str) -> list[tuple[str, list[str]]]:
    parts = TRACE.split(text)[1:]
    return [(title, STEP.findall(re.split(r"^#", body, maxsplit=1, flags=re.M)[0])) for title, body in zip(parts[::2], parts[1::2])]


def purposes(root: Path) -> dict[str, str]:
    """What the door of each room under src says in front of its lists."""
    out = {}
    for room in rooms.rooms(root):
        door = root / rooms.door_of(room)
        if room.startswith("src/") and door.exists():
            comment = " ".join(rooms.first_comment(door.read_text()))
            out[room.removeprefix("src/")] = re.split("May include:|Offers:", comment)[0]
    return out


def question_breaches(root: Path, text: str) -> list[str]:
    out, doors = [], purposes(root)
    for word, folder in QUESTION.findall(text):
        having = [room for room, purpose in doors.items() if word.lower() in purpose.lower()]
        if folder not in having:
            out.append(f"{PAGE}: the door of {folder} does not say '{word}'")
        if len(having) > MOST_DOORS:
            out.append(f"{PAGE}: {len(having)} doors say '{word}': {', '.join(having)}")
    return out


def breaches(root: Path) -> list[str]:
    if not (root / PAGE).exists():
        return []
    page = (root / PAGE).read_text()
    return trace_breaches(root, page) + question_breaches(root, page)


def trace_breaches(root: Path, page: str) -> list[str]:
    found = traces(page)
    if not found:
        return []
    out = [] if len(found) == TRACES else [f"{PAGE}: {len(found)} traces; {TRACES} are promised"]
    for title, steps in found:
        visits: Counter[str] = Counter()
        for step in steps:
            file, *names = NAME.findall(step) or [""]
            if not file or not (root / "src" / file).is_file():
                out.append(f"{PAGE}: trace '{title}' names src/{file}, which does not exist")
                continue
            visits[file.rsplit("/", 1)[0]] += 1
            text = (root / "src" / file).read_text()
            missing = [n for n in names if IDENTIFIER.match(n) and not re.search(rf"\b{n.rsplit('::', 1)[-1]}\b", text)]
            out += [f"{PAGE}: trace '{title}' names {name}, which src/{file} does not have" for name in missing]
        out += [f"{PAGE}: trace '{title}' visits {folder} {count} times; {MOST_VISITS} are the most"
                for folder, count in visits.items() if count > MOST_VISITS]
    return out
