"""Functions stay short, and casts few. tools/house.py calls this.

A function is measured from the line its declaration begins on to the line of its closing brace; what is in a function (blocks,
lambdas, local types) is part of it, and a lambda in a table outside of functions is a function of its own. Tables are no
code: lines in the braces of a `static` or `constexpr` variable do not count, nor does a line that is one whole
`case ...: return ...;` (or `break;`) of a switch. What remains is at most MOST_LINES.

static_cast is for what converts by a decision (a real number to an integer, a byte to a character without a sign, a product
that needs more bits); what converts by itself does so without the words. MOST_CASTS is how many the tree has: it falls,
and does not rise."""
import re
from pathlib import Path

import rooms

MOST_LINES = 100
MOST_CASTS = 945

LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
SCOPE = re.compile(r'\b(?:namespace|extern)\b[^()=]*$|(?:^|[\s>;])(?:class|struct|union|enum)\b[^()=]*$')
AFTER_PARAMETERS = r"(?:\s*(?:const|noexcept|override|final|mutable|&&?|->\s*[\w:<>,&*\s]+?))*\s*$"
BODY = re.compile(r"\)" + AFTER_PARAMETERS)
LAMBDA = re.compile(r"\](?:\s*\([^{}]*\))?" + AFTER_PARAMETERS)
MEMBERS = re.compile(r"\)[\s\w]*:\s")
TABLE = re.compile(r"\b(?:static|constexpr)\b[^;]*=\s*$")
ONE_CASE = re.compile(r"\s*(?:case\b.*|default\s*):.*(?:\breturn\b.*|\bbreak);\s*")


def blank(found: re.Match[str]) -> str:
    """The lines stay, the words go."""
    text = found[0]
    return '""' + "\n" * text.count("\n") if text[0] in "R\"'" else "\n" * text.count("\n")


def functions(text: str) -> list[tuple[int, int]]:
    """Functions of a source: the line each begins on, and how many lines it has that count."""
    code = DIRECTIVE.sub(lambda m: "\n" * m[0].count("\n"), LITERAL.sub(blank, text))
    lines = code.splitlines()
    out: list[tuple[int, int]] = []
    # Of every open brace its kind, where the head before it began, and where it stands.
    open_braces: list[tuple[str, int, int]] = []
    tables: list[tuple[int, int]] = []
    head, parentheses = 0, 0

    def line_of(place: int) -> int:
        return code.count("\n", 0, place) + 1

    for mark in re.finditer(r"[{}();]", code):
        at = mark.start()
        if mark[0] == "(":
            parentheses += 1
        elif mark[0] == ")":
            parentheses -= 1
        elif mark[0] == ";":
            head = at + 1
        elif mark[0] == "{":
            kinds = [kind for kind, _, _ in open_braces]
            before = code[head:at]
            # A lambda in a table is measured; other blocks of a function are the function's.
            inside = "function" in kinds and "table" not in kinds[len(kinds) - kinds[::-1].index("function"):]
            if inside:
                kind = "table" if TABLE.search(before) else "block"
            elif LAMBDA.search(before):
                kind = "function"
            elif "table" in kinds or "values" in kinds:
                kind = "values"
            elif SCOPE.search(before):
                kind = "scope"
            elif not re.search(r"(?<!operator)=[^=]", before.split("(")[0]) and (
                    BODY.search(before) or before.rstrip().endswith("}") and MEMBERS.search(before)):
                kind = "function"
            else:
                kind = "values"
            open_braces.append((kind, head, at))
            if kind != "values":
                head = at + 1
        elif open_braces:
            kind, began, opened = open_braces.pop()
            if kind == "table":
                tables.append((line_of(opened), line_of(at)))
            if kind == "function":
                first = began + len(code[began:]) - len(code[began:].lstrip())
                first_line = line_of(first) if "](" not in code[first:opened] else line_of(opened)
                last = line_of(at)
                count = sum(1 for n in range(first_line, last + 1)
                            if not ONE_CASE.fullmatch(lines[n - 1]) and not any(a < n < b for a, b in tables))
                out.append((first_line, count))
            head = began if kind == "values" else at + 1
    return out


def casts(root: Path) -> int:
    return sum(file.read_text().count("static_cast") for file in rooms.sources(root))


def breaches(root: Path) -> list[str]:
    out = []
    for file in rooms.sources(root):
        path = file.relative_to(root).as_posix()
        for line, count in functions(file.read_text()):
            if count > MOST_LINES:
                out.append(f"{path}:{line}: a function of {count} lines; more than {MOST_LINES} do more than one thing")
    if (count := casts(root)) > MOST_CASTS:
        out.append(f"static_cast stands {count} times in src/ and apps/, {MOST_CASTS} at most: what converts by itself needs none "
                   "(tools/functions.py)")
    return out
