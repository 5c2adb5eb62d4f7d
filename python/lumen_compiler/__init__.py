"""Lumen trains, quantizes and runs models in any number format.

    import lumen_compiler as lumen

    model = lumen.load("model.gguf")
    print(model.generate("Once upon a time", max_tokens=50, seed=1))

Errors are :class:`lumen_compiler.Error`, with a ``hint`` and an ``exit_code``; Ctrl-C is KeyboardInterrupt. See docs/guide/python.md.
"""
from ._commands import command, evaluate, quantize, train
from ._errors import Error
from ._format import Format
from ._function import Function, compile
from ._model import Model, Perplexity, Text, load
from ._native import DeviceArray, __version__
from ._trainer import Step, Trainer

__all__ = ["DeviceArray", "Error", "Format", "Function", "Model", "Perplexity", "Step", "Text", "Trainer", "__version__",
           "command", "compile", "evaluate", "load", "quantize", "train"]
