"""Number formats, those of Lumen and your own."""
from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import _native
from ._options import as_json


class Format:
    """A number format: ``Format("format mine : block 32 { .. }")`` from a text of the language (docs/reference/language.md), or
    ``Format(name="q4_0")`` one that Lumen has.

    Attributes:
        text: the text it was made of, or None.
        name, block, bits: its name, how many numbers share a block, and bits for each of them.
    """

    def __init__(self, text: str | None = None, *, name: str | None = None, **options: Any) -> None:
        self.text = text
        self._native = _native.Format(text, name, as_json(options))
        info = json.loads(self._native.info())
        self.name: str = info["name"]
        self.block: int = info["block"]
        self.bits: float = info["bits"]

    def __repr__(self) -> str:
        return f"<lumen_compiler.Format {self.name!r}, blocks of {self.block}, {self.bits:g} bits per number>"

    def encode(self, numbers: Any) -> bytes:
        """Rounds a matrix of float32 to the bytes that a file holds. Error where its rows do not divide into blocks."""
        return self._native.encode(numbers)

    def decode(self, data: bytes, rows: int, columns: int) -> np.ndarray:
        """What such bytes stand for, float32 [rows, columns]."""
        return self._native.decode(data, rows, columns)

    def round(self, numbers: Any) -> np.ndarray:
        """The numbers as the format holds them."""
        rows, columns = numbers.shape
        return self.decode(self.encode(numbers), rows, columns)
