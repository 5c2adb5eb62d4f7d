#!/usr/bin/env python3
"""Writes what is made of the table of options (src/cli/settings): docs/reference/options.md, and the names and types of
options of the Python package, python/lumen_compiler/_settings.py.

Usage: tools/option_table.py BUILD [--check]
  BUILD      folder with the lumen binary, which prints the table (`lumen manual --form json`)
  --check    compare with the committed files instead of writing them; exits 1 and names the file that differs
"""
import argparse
import json
import keyword
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "options.md"
PYTHON = ROOT / "python" / "lumen_compiler" / "_settings.py"
INTRODUCTION = """# Options

This page is made from the table of options in `src/cli/settings` and the keys of recipes in
`src/model/recipe/recipe_keys.def` by `tools/option_table.py`; applications have their rows in
`apps`. It lists each option once, with the commands that have it. `lumen COMMAND --help` groups a
command's options, everyday ones first, and `lumen manual COMMAND` is the manual of a command.

Where several places give a value, the first of these counts:

1. the command line;
2. the environment variable in the table, as in `LUMEN_THREADS=4`, or with the command's name
   where commands have options of one name, as in `LUMEN_DEMO_STEPS=300`. Flags take `1`, `true`,
   `on` or `yes`, and `0`, `false`, `off` or `no`. An empty variable counts as none;
3. a recipe (`--recipe`): the column "recipe" names the key;
4. the configuration file ([models.md](../guide/models.md#configuration));
5. the default.

A value that an option refuses is an error of usage that names the variable. With `-v` a command
prints which options came from the environment. Options that name a file to write, or that replace
or delete files, have no variable.

The column "API" names the function of `include/lumen.h` and of the Python package, and its option
that means the same. Handles of the API do not read the environment.
"""
# Arguments of the Python package that are more than one number or text.
PYTHON_TYPES = {
    "stop": "Sequence[str]",
    "json_schema": "Mapping[str, Any]",
    "logit_bias": "Mapping[int, float | None]",
    "template_values": "Mapping[str, Any]",
}
# Functions of the package whose options are keywords of one dictionary.
PYTHON_CLASSES = {
    "generate": ("GenerateOptions", "TypedDict", "Options of Model.generate and Model.stream."),
    "chat": ("ChatOptions", "GenerateOptions", "Options of Model.chat."),
    "logits": ("LogitsOptions", "TypedDict", "Options of Model.logits."),
    "perplexity": ("PerplexityOptions", "TypedDict", "Options of Model.perplexity."),
}
# Functions of the package that are commands: their keywords are the command's flags, without those of their own.
PYTHON_COMMANDS = {
    "train": ("TrainOptions", "Options of train() and Trainer: flags of ``lumen train``.", {"--model", "--data", "--out", "--recipe", "--formats"}),
    "quantize": ("QuantizeOptions", "Options of quantize(): flags of ``lumen quantize``.", {"--formats"}),
    "eval": ("EvaluateOptions", "Options of evaluate(): flags of ``lumen eval``.", {"--model", "--tasks", "--output", "--formats"}),
}
COLUMNS = 110
# Bounds from here on only keep numbers finite.
UNBOUNDED = 1e12


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def values(row: dict) -> str:
    """Which values the option takes, and which one holds without it."""
    parts = []
    if row.get("choices"):
        parts.append(", ".join(row["choices"]))
    elif "least" in row:
        has_most = row.get("most", UNBOUNDED) < UNBOUNDED
        low = "above 0" if 0 < row["least"] <= 1e-6 else f"{row['least']:g}" if has_most else f"from {row['least']:g}"
        # An upper bound just below a whole number only excludes that number.
        parts.append(f"{low} to {round(row['most'], 7):.15g}" if has_most else low)
    elif row.get("type") and row["type"] not in ("TEXT", "INT", "FLOAT", "UINT"):
        parts.append(row["type"])
    if row.get("default"):
        parts.append(f"default {row['default']}")
    return cell("; ".join(parts))


def table(rows: list[dict], with_commands: bool) -> str:
    head = ["option"] + (["commands"] if with_commands else []) + ["values", "environment", "recipe", "API", "meaning"]
    used = [name for name in head if name in ("option", "commands", "values", "meaning") or
            any(row.get({"environment": "variable", "recipe": "key", "API": "api"}[name]) for row in rows)]
    out = ["| " + " | ".join(used) + " |", "|---" * len(used) + "|"]
    for row in rows:
        api = " ".join(code(name) for name in row.get("api", "").split(",") if name)
        cells = {"option": ", ".join(code(name) for name in row["names"]), "commands": ", ".join(row["commands"]), "values": values(row),
                 "environment": code(row.get("variable", "")), "recipe": code(row.get("key", "")), "API": api, "meaning": cell(row["help"])}
        out.append("| " + " | ".join(cells[name] for name in used) + " |")
    return "\n".join(out) + "\n"


def page(rows: list[dict]) -> str:
    named = [row for row in rows if row["names"][0].startswith("-")]
    everywhere = [row for row in named if row["heading"] == "Common"]
    several = [row for row in named if len(row["commands"]) > 1 and row not in everywhere]
    out = INTRODUCTION + "\n## Of every command\n\n" + table(everywhere, False)
    out += "\n## Of several commands\n\n" + table(several, True)
    alone = [row for row in named if row not in everywhere and row not in several]
    for command in dict.fromkeys(row["commands"][0] for row in alone):
        out += f"\n## lumen {command}\n"
        mine = [row for row in alone if row["commands"] == [command]]
        headings = list(dict.fromkeys(row["heading"] for row in mine))
        for heading in sorted(headings, key=lambda h: h != "Options"):
            title = "Everyday options" if heading == "Options" else heading
            out += f"\n{title}:\n\n" + table([row for row in mine if row["heading"] == heading], False)
    keys = [row for row in rows if row.get("key") == row["names"][0]]
    out += "\n## Keys of training recipes without an option of their own\n\n| key | values | meaning |\n|---|---|---|\n"
    return out + "".join(f"| {code(row['key'])} | {values(row)} | {cell(row['help'])} |\n" for row in keys)


def python_type(name: str, row: dict) -> str:
    if name in PYTHON_TYPES:
        return PYTHON_TYPES[name]
    return {"": "bool", "INT": "int", "FLOAT": "float"}.get(row.get("type", ""), "str")


def flag_type(row: dict) -> str:
    """What a keyword that stands for a flag takes."""
    if "type" not in row:
        return "bool"
    one = "int" if row["type"] == "INT" else "float" if row["type"] == "FLOAT" or "least" in row else "str"
    if row.get("path"):
        one = "str | os.PathLike[str]"
    return ("bool | " if row.get("optional_value") else "") + one + (f" | Sequence[{one}]" if row.get("list") else "")


def command_options(rows: list[dict], command: str, name: str, doc: str, own: set[str]) -> str:
    """The keywords of a function that is a command, with each of a flag's names."""
    out, seen = f'\n\nclass {name}(TypedDict, total=False):\n    """{doc}"""\n\n', set()
    for row in rows:
        keys = [one[2:].replace("-", "_") for one in row["names"] if one.startswith("--")]
        keys = [key for key in dict.fromkeys(keys) if key not in seen and not keyword.iskeyword(key)]
        if command not in row["commands"] or own & set(row["names"]) or not keys:
            continue
        seen.update(keys)
        out += wrapped(row["help"]) + "".join(f"    {key}: {flag_type(row)}\n" for key in keys)
    return out


def wrapped(text: str) -> str:
    """A comment of one or more lines."""
    lines, line = [], "    #"
    for word in text.split():
        if len(line) + 1 + len(word) > COLUMNS:
            lines.append(line)
            line = "    #"
        line += " " + word
    return "\n".join(lines + [line]) + "\n"


def python(rows: list[dict]) -> str:
    out = ('"""Names and types of options, made from the table of options by tools/option_table.py."""\n'
           "from __future__ import annotations\n\n"
           "import os\nfrom collections.abc import Mapping, Sequence\nfrom typing import Any, TypedDict\n")
    for function, (name, base, doc) in PYTHON_CLASSES.items():
        out += f'\n\nclass {name}({base}, total=False):\n    """{doc}"""\n\n'
        for row in rows:
            for api in row.get("api", "").split(","):
                if api.startswith(function + "."):
                    key = api.split(".")[1]
                    out += wrapped(row["help"]) + f"    {key}: {python_type(key, row)}\n"
    return out + "".join(command_options(rows, command, *what) for command, what in PYTHON_COMMANDS.items())


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    done = subprocess.run([options.build / "lumen", "manual", "--form", "json"], capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)
    stale = []
    for file, text in ((PAGE, page(rows)), (PYTHON, python(rows))):
        if not options.check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(file.relative_to(ROOT).as_posix())
    if stale:
        sys.exit(f"not what the table of options says: {', '.join(stale)}; run tools/option_table.py BUILD")
    print(f"{len(rows)} rows of the table of options")


if __name__ == "__main__":
    main()
