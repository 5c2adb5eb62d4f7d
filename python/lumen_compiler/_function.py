"""Functions of the language on arrays, with gradients."""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np

from . import _native
from ._errors import Error
from ._native import DeviceArray
from ._options import as_json

Array = Union[np.ndarray, DeviceArray]


class Function:
    """A function of the language, compiled for the shapes it is called with; made by :func:`compile`.

    Arguments are arrays of float32 or int32 (numpy, or what has ``__dlpack__``), dense, in memory of the processor or of
    the function's own device, where they are used without a way through the host; nothing is converted in silence.
    Results are float32 arrays: on the device (:class:`DeviceArray`) where an argument lies there, numpy's where none
    does, and as ``on_device`` says where it is given. A function on the processor gives numpy's.
    """

    def __init__(self, text: str, name: str | None = None, **options: Any) -> None:
        self._native = _native.Function(text, name, as_json(options))
        info = json.loads(self._native.info())
        self.name: str = info["name"]
        self.arguments: list[str] = [i["name"] for i in info["inputs"]]
        self.types: list[str] = [i["type"] for i in info["inputs"]]
        self.results: list[str] = info["results"]
        self._is_float = [i["dtype"] == "f32" for i in info["inputs"]]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(self.arguments, self.types))
        return f"<lumen_compiler.Function {self.name}({arguments}) -> {', '.join(self.results)}>"

    def close(self) -> None:
        """Frees what was compiled. Any further call is an Error."""
        self._native.close()

    def __call__(self, *arguments: Any, on_device: bool | None = None) -> Array | tuple[Array, ...]:
        """The result, or a tuple of several."""
        return _one_or_all(self._native.call(arguments, len(self.results), on_device))

    def vjp(self, arguments: Sequence[Any], cotangents: Any, wanted: Sequence[int | str] | None = None, *,
            on_device: bool | None = None) -> list[Array]:
        """The gradients of sum(result * cotangent), a cotangent for each result, with respect to the arguments that
        ``wanted`` names or counts: all of float32 by default."""
        if len(self.results) == 1 and not isinstance(cotangents, (list, tuple)):
            cotangents = [cotangents]
        return self._native.gradient(tuple(arguments), tuple(cotangents), self._numbers(wanted), on_device)

    def grad(self, *arguments: Any, wanted: Sequence[int | str] | None = None,
             on_device: bool | None = None) -> Array | tuple[Array, ...]:
        """The gradients of a function that gives one number."""
        if len(self.results) != 1:
            raise Error(f"{self.name} has {len(self.results)} results", "vjp() weighs several", 2)
        try:
            gradients = self.vjp(arguments, np.ones((), np.float32), wanted, on_device=on_device)
        except Error as error:
            if "cotangent" not in str(error):
                raise
            raise Error(f"{self.name} gives {self.results[0]}, not one number", "vjp() takes a cotangent", 2) from None
        return _one_or_all(gradients)

    def torch(self) -> Callable[..., Any]:
        """The function on tensors of PyTorch, with gradients: ``f.torch()(x, w).sum().backward()``. All lie on one device,
        the processor or the function's own, and so do results and gradients."""
        import torch
        import torch.utils.dlpack

        function = self

        class Applied(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *tensors: Any) -> Any:
                ctx.save_for_backward(*tensors)
                results = function._native.call([t.detach().contiguous() for t in tensors], len(function.results), None)
                return _one_or_all([torch.utils.dlpack.from_dlpack(r) for r in results])

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
                tensors = [t.detach().contiguous() for t in ctx.saved_tensors]
                wanted = [i for i, needs in enumerate(ctx.needs_input_grad) if needs]
                weights = [c.detach().contiguous() for c in cotangents]
                gradients = function._native.gradient(tensors, weights, wanted, None)
                out: list[Any] = [None] * len(tensors)
                for i, gradient in zip(wanted, gradients):
                    out[i] = torch.utils.dlpack.from_dlpack(gradient)
                return tuple(out)

        def apply(*tensors: Any) -> Any:
            for i, tensor in enumerate(tensors):
                if not isinstance(tensor, torch.Tensor):
                    raise Error(f"argument {i} is no tensor of PyTorch", "torch.as_tensor makes one", 2)
                if tensor.device != tensors[0].device:
                    raise Error(f"argument 0 lies on {tensors[0].device}, and argument {i} on {tensor.device}",
                                f"bring all to one device: x.to({str(tensors[0].device)!r})", 2)
            return Applied.apply(*tensors)

        return apply

    def _numbers(self, wanted: Sequence[int | str] | None) -> list[int]:
        if wanted is None:
            return [i for i, is_float in enumerate(self._is_float) if is_float]
        out = []
        for w in wanted:
            if isinstance(w, str):
                if w not in self.arguments:
                    raise Error(f"{self.name} has no argument {w!r}", "it has " + ", ".join(self.arguments), 2)
                w = self.arguments.index(w)
            if not 0 <= int(w) < len(self.arguments):
                raise Error(f"{self.name} has no argument {w}", "they are counted from 0", 2)
            out.append(int(w))
        return out


def compile(text: str, name: str | None = None, *, device: str | None = None, threads: int | None = None,
            cache: str | None = None, tune: bool | None = None) -> Function:
    """Compiles a function of the language: ``compile("fn double(x: f32[N]) -> f32[N] = 2 * x")``. ``name``: which of the
    text's functions; the last by default. Other options are those of :func:`lumen_compiler.load`."""
    return Function(text, name, device=device, threads=threads, cache=cache, tune=tune)


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
