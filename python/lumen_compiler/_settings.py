"""Names and types of options, made from the table of options by tools/option_table.py."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class GenerateOptions(TypedDict, total=False):
    """Options of Model.generate and Model.stream."""

    # Compute activations in f32 everywhere
    exact: bool
    # Tokens to generate; -1: no limit, -2: until the context is full
    max_tokens: int
    # Context length; 0: the model's
    context: int
    # Seed of sampling; -1: a different one each time
    seed: int
    # Never generate an end token
    ignore_end: bool
    # Text that ends the answer; repeatable
    stop: Sequence[str]
    # Temperature; 0: always the most likely token
    temperature: float
    # Sample from the k most likely tokens; 0: all
    top_k: int
    # Sample from the most likely tokens whose probabilities add up to this; 1: all
    top_p: float
    # Sample from tokens with at least this share of the highest probability
    min_p: float
    # Locally typical sampling: tokens near the expected surprise, with this total probability; 1: all
    typical_p: float
    # Sample from tokens whose logits are within this many standard deviations of the highest; 0: all
    top_n_sigma: float
    # Probability of XTC, which removes all likely tokens except the least likely of them
    xtc_probability: float
    # Probability above which a token is likely for XTC
    xtc_threshold: float
    # Penalty of repeated tokens; 1: none
    repeat_penalty: float
    # Number of last tokens that penalties look at; -1: all
    repeat_last: int
    # Subtracted once from the logit of a token that occurred before
    presence_penalty: float
    # Subtracted from a token's logit for each time that it occurred
    frequency_penalty: float
    # ID+NUMBER or ID-NUMBER: add to or subtract from a token's logit; ID-inf forbids it
    logit_bias: Mapping[int, float | None]
    # GBNF grammar that the answer must follow
    grammar: str
    # JSON schema that the answer must match; {}: any JSON
    json_schema: Mapping[str, Any]


class ChatOptions(GenerateOptions, total=False):
    """Options of Model.chat."""

    # Chat template: a Jinja file, plain, or chatml; default: the model's own
    template: str
    # Additional values for the template, as JSON
    template_values: Mapping[str, Any]


class LogitsOptions(TypedDict, total=False):
    """Options of Model.logits."""

    # Compute activations in f32 everywhere
    exact: bool
    # Context length; 0: the model's
    context: int


class PerplexityOptions(TypedDict, total=False):
    """Options of Model.perplexity."""

    # Compute activations in f32 everywhere
    exact: bool
    # Tokens per window
    length: int
    # Windows computed at once
    batch: int
    # Only the first windows; 0: all
    windows: int
    # Score every token of a window but the first; by default only the second half
    full: bool
    # Position of BOS if the tokenizer adds one: front (of the whole text and of each window), windows (of
    # each window only), none
    bos: str
