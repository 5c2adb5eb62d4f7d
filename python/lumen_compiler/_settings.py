"""Names and types of options, made from the table of options by tools/option_table.py."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class GenerateOptions(TypedDict, total=False):
    """Options of Model.generate and Model.stream."""

    # f32 activations throughout
    exact: bool
    # Tokens to generate; -1: no limit, -2: until the context is full
    max_tokens: int
    # Context length; 0: the model's
    context: int
    # Seed of sampling; -1: another each time
    seed: int
    # Never draw an end token
    ignore_end: bool
    # Text that ends the answer; repeatable
    stop: Sequence[str]
    # 0 is greedy
    temperature: float
    # Only the k best tokens; 0: all
    top_k: int
    # The best tokens with this much probability together; 1: all
    top_p: float
    # Tokens at least this likely, relative to the best
    min_p: float
    # Tokens of the usual surprise with this much probability; 1: all
    typical_p: float
    # Tokens whose logits are within so many standard deviations of the best; 0: all
    top_n_sigma: float
    # How often XTC leaves out all likely tokens but the least likely of them
    xtc_probability: float
    # From which probability on a token is likely for XTC
    xtc_threshold: float
    # Above 1 makes repetitions rarer
    repeat_penalty: float
    # How far back repetitions count; -1: all
    repeat_last: int
    # Taken from the logit of a token that was there before
    presence_penalty: float
    # The same for each time it was there
    frequency_penalty: float
    # ID+NUMBER or ID-NUMBER: make a token likelier or rarer; ID-inf forbids it
    logit_bias: Mapping[int, float | None]
    # GBNF grammar the answer must follow
    grammar: str
    # JSON schema the answer must fit; {}: any JSON
    json_schema: Mapping[str, Any]


class ChatOptions(GenerateOptions, total=False):
    """Options of Model.chat."""

    # Template of the conversation: a file with Jinja, or plain, chatml; default: the model's own
    template: str
    # More values for the template, as JSON
    template_values: Mapping[str, Any]


class LogitsOptions(TypedDict, total=False):
    """Options of Model.logits."""

    # f32 activations throughout
    exact: bool
    # Context length; 0: the model's
    context: int


class PerplexityOptions(TypedDict, total=False):
    """Options of Model.perplexity."""

    # f32 activations throughout
    exact: bool
    # Tokens per window
    length: int
    # Windows computed at once
    batch: int
    # Only the first windows; 0 takes all
    windows: int
    # Score every token of a window but the first, not only the second half
    full: bool
    # Where BOS stands, when the tokenizer wants one: front (of the text before it is cut, and of each
    # window), windows (of each one), none
    bos: str
