"""What the program's commands do, from Python: the same code, the same files, the same bytes."""
from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._format import Format
from ._options import as_words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import EvaluateOptions, QuantizeOptions, TrainOptions


def command(*words: str | os.PathLike[str]) -> str:
    """Runs a command of the program, ``command("inspect", "model.gguf")``, and returns what it prints. Notes and progress
    go to stderr, unless "-q" is among the words. Ctrl-C stops it as it stops the program: after saving, files whole."""
    return _native.command([os.fspath(w) for w in words])


def train(model: str | os.PathLike[str] | None = None, data: str | os.PathLike[str] | Sequence[Any] | None = None, *,
          out: str | os.PathLike[str], recipe: str | os.PathLike[str] | None = None,
          formats: Sequence[str | Format] | None = None, **options: Unpack[TrainOptions]) -> Path:
    """Trains, as ``lumen train``: the same seed gives the same bytes. Returns the folder of the run.

    Args:
        model: what is trained further; without it a fresh one of ``shape``.
        data: a file, a folder, or a list of them; the built-in text by default.
        out: the folder of the run.
        recipe: a name or a file.
        formats: number formats of your own, as texts of the language or :class:`Format`.
        options: flags of ``lumen train``: ``steps=300, lr=2e-4, shape="char", format="q4_0", quiet=True``, ..
    """
    with _formats(formats) as flags:
        command("train", *training_words(model, data, out, recipe, options), *flags)
    return Path(out)


def training_words(model: Any, data: Any, out: Any, recipe: Any, options: Mapping[str, Any]) -> list[str]:
    """The words behind ``lumen train``."""
    if data is not None and not isinstance(data, (str, os.PathLike)):
        data = ",".join(os.fspath(d) for d in data)
    return as_words({"model": model, "data": data, "out": out, "recipe": recipe, **options})


def quantize(model: str | os.PathLike[str], out: str | os.PathLike[str], format: str | Format | None = None, *,
             formats: Sequence[str | Format] | None = None, **options: Unpack[QuantizeOptions]) -> str:
    """Rounds a model's weights, as ``lumen quantize MODEL OUT FORMAT``; returns the table of what became of them.

    Args:
        format: a format or a mixture by name, or a :class:`Format` of your own.
        options: flags of ``lumen quantize``: ``imatrix=..., tensor_type=["ffn_down=q6_k"], pure=True``, ..
    """
    formats = list(formats or [])
    if isinstance(format, Format):
        if format.text is not None:
            formats.append(format)
        format = format.name
    with _formats(formats) as flags:
        words = [os.fspath(model), os.fspath(out)] + ([format] if format is not None else [])
        return command("quantize", *words, *as_words(options), *flags)


def evaluate(model: str | os.PathLike[str], tasks: str | Sequence[str], *, formats: Sequence[str | Format] | None = None,
             **options: Unpack[EvaluateOptions]) -> dict[str, Any]:
    """Puts questions to a model, as ``lumen eval``, and returns the figures that its ``--output`` writes.

    Args:
        tasks: names; ``lumen.command("eval", "--list")`` lists those that come along.
        options: flags of ``lumen eval``: ``task_file="mine.toml", data="folder", num_fewshot=5, limit=100``, ..
    """
    names = tasks if isinstance(tasks, str) else ",".join(tasks)
    with tempfile.TemporaryDirectory() as folder, _formats(formats) as flags:
        figures = Path(folder) / "figures.json"
        command("eval", *as_words({"model": model, "tasks": names, "output": figures, **options}), *flags)
        return dict(json.loads(figures.read_text()))


@contextmanager
def _formats(formats: Sequence[str | Format] | None) -> Iterator[list[str]]:
    """Flags by which a command knows formats of texts."""
    if not formats:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder:
        for i, f in enumerate(formats):
            text = f.text if isinstance(f, Format) else f
            if text is not None:
                (Path(folder) / f"format{i}.lum").write_text(text)
        yield [f"--formats={folder}"]
