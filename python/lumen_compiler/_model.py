"""A model that is open: what it generates, its vectors and its logits."""
from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from . import _native
from ._errors import Error
from ._format import Format
from ._native import DeviceArray
from ._options import as_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import ChatOptions, GenerateOptions, LogitsOptions, PerplexityOptions


@dataclass(frozen=True)
class Text:
    """What a model wrote.

    Attributes:
        text: the text alone, without the prompt.
        reason: why it ended: "end" (the model ended it), "stop" (a stop text), "grammar", "limit" (max_tokens) or
            "context" (it was full).
        prompt_tokens, tokens: how many were read and written.
        prompt_seconds, seconds: what that took.
    """

    text: str
    reason: str
    prompt_tokens: int
    tokens: int
    prompt_seconds: float
    seconds: float

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Perplexity:
    """How well a model foretells a text; what ``lumen perplexity`` prints."""

    perplexity: float
    error: float
    nats: float
    tokens: int
    windows: int


class Model:
    """A model, opened with :func:`load`. Use it from several threads as you like: calls wait for each other, and Python
    runs on while they work. It is closed by ``close()``, at the end of a ``with`` block, or when nobody holds it."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        formats = options.pop("formats", None)
        if formats is not None:
            options["formats"] = [f.text if isinstance(f, Format) else f for f in formats]
        self._native = _native.Model(os.fspath(path), as_json(options))
        self._info: dict[str, Any] = json.loads(self._native.info())

    def __repr__(self) -> str:
        state = "" if self._native.is_open() else ", closed"
        return f"<lumen_compiler.Model {self.name!r}, {self.parameters / 1e6:.2f} M parameters{state}>"

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees its memory once calls under way have ended. Any further call is an Error."""
        self._native.close()

    @property
    def info(self) -> dict[str, Any]:
        """What there is to say: path, name, family, parameters, bytes, vocabulary, context, device, .."""
        return dict(self._info)

    @property
    def name(self) -> str:
        return str(self._info["name"])

    @property
    def parameters(self) -> int:
        """How many numbers its weights are."""
        return int(self._info["parameters"])

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self._info["vocabulary"])

    @property
    def context(self) -> int:
        """Tokens a text may have."""
        return int(self._info["context"])

    def tokenize(self, text: str, *, special: bool = False, control: bool = False) -> list[int]:
        """The text as tokens. ``special``: with the tokens that begin and end a text; ``control``: names of control tokens in
        the text become those tokens."""
        return self._native.tokenize(text, as_json({"special": special, "control": control}))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Tokens as a text. Error for a number that is no token."""
        return self._native.detokenize(_tokens(tokens))

    def generate(self, prompt: str, *, on_text: Callable[[str], object] | None = None,
                 **options: Unpack[GenerateOptions]) -> Text:
        """Continues a text.

        Args:
            on_text: called with each piece of text; when it returns False generation stops (KeyboardInterrupt).
            max_tokens: 128 by default; -1: until the model ends the text.
            temperature, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold,
                repeat_penalty, presence_penalty, frequency_penalty, repeat_last: as ``lumen run`` has them.
            seed: one seed, one text; without it another each time.
            stop: strings at which it ends.
            grammar, json_schema: a GBNF grammar, or a schema (a dict) that it must follow.
            logit_bias: {token: what is added to its logit}; None forbids a token.
            ignore_end, context, exact: as ``lumen run`` has them.
        """
        return Text(**json.loads(self._native.generate(prompt, as_json(options), on_text)))

    def stream(self, prompt: str, **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """The same, piece by piece. To leave the loop stops it."""
        return _pieces(lambda on_text: self.generate(prompt, on_text=on_text, **options))

    def chat(self, messages: str | Sequence[Mapping[str, Any]], *, on_text: Callable[[str], object] | None = None,
             **options: Unpack[ChatOptions]) -> Text:
        """Answers a conversation: a question, or a list of {"role": .., "content": ..}.

        Args:
            template: a name or a file, in place of the model's own.
            template_values: other values for it (tools, enable_thinking, ..).
        Other options are those of :meth:`generate`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        try:
            told = json.dumps(list(messages))
        except (TypeError, ValueError) as error:
            raise Error(f"messages cannot be told: {error}", "a list of {'role': .., 'content': ..}", 2) from None
        return Text(**json.loads(self._native.chat(told, as_json(options), on_text)))

    @overload
    def logits(self, tokens: str | Sequence[int], *, last: bool = ..., on_device: Literal[False] = ...,
               **options: Unpack[LogitsOptions]) -> np.ndarray: ...

    @overload
    def logits(self, tokens: str | Sequence[int], *, last: bool = ..., on_device: bool,
               **options: Unpack[LogitsOptions]) -> np.ndarray | DeviceArray: ...

    def logits(self, tokens: str | Sequence[int], *, last: bool = False, on_device: bool = False,
               **options: Unpack[LogitsOptions]) -> np.ndarray | DeviceArray:
        """The logits behind each token, float32 [tokens, vocabulary], or behind the last alone, [vocabulary].

        The array is the memory that Lumen wrote: ``torch.from_dlpack(model.logits(..))`` copies nothing. With
        ``on_device`` the logits of a model on a GPU stay there (:class:`DeviceArray`), the same bit for bit; on the
        processor that changes nothing. Options: ``context``, ``exact`` (float32 throughout).
        """
        ids = self.tokenize(tokens, special=True) if isinstance(tokens, str) else _tokens(tokens)
        if on_device and self._native.device()[0] != 1:
            return self._native.logits_array(ids, last, as_json(options))
        return self._native.logits(ids, last, as_json(options))

    def embed(self, texts: str | Sequence[str], *, pooling: str | None = None, normalize: int = 2,
              exact: bool = False) -> np.ndarray:
        """Embedding vectors of ``texts``, float32 [count, width], or [width] of a single string. ``pooling``: "mean", "cls" or "last";
        without it as the model says, else the mean. ``normalize``: 2: length 1; -1: as they are."""
        options = as_json({"pooling": pooling, "normalize": normalize, "exact": exact})
        if isinstance(texts, str):
            return self._native.embed([texts], options)[0]
        return self._native.embed(list(texts), options)

    def perplexity(self, text: str, **options: Unpack[PerplexityOptions]) -> Perplexity:
        """How well it foretells a text, by the protocol of ``lumen perplexity``. Options: length, batch, windows, full,
        bos, exact."""
        return Perplexity(**json.loads(self._native.perplexity(text, as_json(options))))


def load(path: str | os.PathLike[str], *, device: str | None = None, threads: int | None = None,
         formats: Sequence[str | Format] | None = None, adapters: Sequence[Any] | None = None,
         cache: str | None = None, tune: bool | None = None, mmap: bool | None = None) -> Model:
    """Opens a model.

    Args:
        path: a GGUF file, a Hugging Face folder, a checkpoint, or "hf:user/repo" of the local cache.
        device: "cpu" (default), "cuda[:N]", "hip[:N]", or "auto".
        threads: all cores by default.
        formats: number formats of your own, which the file is in: texts of the language, or :class:`Format`.
        adapters: paths of adapters to run beside the weights, or pairs (path, scale).
        cache: folder of compiled kernels; "off" keeps them in memory.
        tune: False keeps the cost model's plans.
        mmap: False copies the weights out of their mapped file into memory, in huge pages: processors read those
            faster.
    """
    told = None
    if adapters is not None:
        pairs = [a if isinstance(a, (tuple, list)) else (a, 1.0) for a in adapters]
        told = [{"path": os.fspath(p), "scale": scale} for p, scale in pairs]
    return Model(path, device=device, threads=threads, formats=formats, adapters=told, cache=cache, tune=tune,
                 mmap=mmap)


def _tokens(tokens: Sequence[int]) -> list[int]:
    try:
        ids = [int(t) for t in tokens]
    except (TypeError, ValueError):
        raise Error("tokens are whole numbers", "model.tokenize(text) makes some", 2) from None
    if any(not -(2**31) <= t < 2**31 for t in ids):
        raise Error("a token is no number of 32 bits", "model.tokenize(text) makes some", 2)
    return ids


def _pieces(write: Callable[[Callable[[str], object]], object]) -> Iterator[str]:
    """What a text writer says, as an iterator: it works in a thread until it has ended, or nobody listens."""
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stopped = threading.Event()

    def on_piece(piece: str) -> bool:
        said.put(piece)
        # A program that ends waits for this thread, which then need not go on.
        return not stopped.is_set() and threading.main_thread().is_alive()

    def run() -> None:
        try:
            write(on_piece)
            said.put(None)
        except BaseException as error:  # handed to the thread that listens
            said.put(error)

    writer = threading.Thread(target=run)
    writer.start()
    try:
        while (piece := said.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stopped.set()
        writer.join()
