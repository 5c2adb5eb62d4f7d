"""Options in Python's words become those of lumen.h (JSON) and of commands (flags)."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ._errors import Error


def as_json(options: Mapping[str, Any]) -> str:
    """Options that are not None, as JSON."""
    try:
        return json.dumps({k: v for k, v in options.items() if v is not None}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Error(f"an option cannot be told: {error}", "options are numbers, strings, lists and dicts", 2) from None


def as_words(options: Mapping[str, Any]) -> list[str]:
    """Flags of a command: ``lora_r=8`` is ``--lora-r 8``, ``exact=True`` is ``--exact``, False and None are nothing,
    and a list is the flag again for each entry."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [f"{flag}={_word(entry)}" for entry in value]
        else:
            words.append(f"{flag}={_word(value)}")
    return words


def _word(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise Error(f"a flag cannot be {type(value).__name__}", "flags are strings, numbers, paths, True, or lists of them", 2)
