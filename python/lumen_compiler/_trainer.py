"""Training a step at a time."""
from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._commands import training_words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import TrainOptions


@dataclass(frozen=True)
class Step:
    """One step of the optimizer: its number, the loss and the norm of the gradients, the learning rate, and how many
    tokens took how long. ``steps``: how many the recipe plans."""

    step: int
    steps: int
    loss: float
    norm: float
    rate: float
    tokens: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)


class Trainer:
    """What :func:`lumen_compiler.train` does, with the loop in your hands; the arguments are the same. After as many steps the
    weights are the same, bit for bit::

        with lumen.Trainer(out="run", shape="char", steps=100) as trainer:
            for step in trainer:
                print(step.loss)
            trainer.finish()

    Ctrl-C during a step raises KeyboardInterrupt at once; the step is finished by itself, and the trainer can go on or
    save.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None,
                 data: str | os.PathLike[str] | Sequence[Any] | None = None, *, out: str | os.PathLike[str],
                 recipe: str | os.PathLike[str] | None = None, **options: Unpack[TrainOptions]) -> None:
        self.out = Path(out)
        self._native = _native.Trainer(training_words(model, data, out, recipe, options))

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Step]:
        """The steps that the recipe plans and that are left."""
        while True:
            step = self.step()
            yield step
            if step.step >= step.steps:
                return

    def step(self) -> Step:
        """One step. Error (exit_code 4) when numbers are not finite."""
        return Step(**json.loads(self._native.step()))

    def evaluate(self, rows: int = 0) -> float:
        """Mean nats per token over the first rows of the validation data; 0: all."""
        return self._native.evaluate(rows)

    def save(self) -> Path:
        """Writes a checkpoint, from which ``lumen train --resume`` goes on; its folder."""
        return Path(self._native.save())

    def finish(self) -> dict[str, Any]:
        """Writes a checkpoint and the model's files, as the command does at its end: output (what it would print),
        checkpoint, validation_loss. Then only close() is left."""
        return dict(json.loads(self._native.finish()))

    def close(self) -> None:
        """Ends it where it is; what was saved stays."""
        self._native.close()
