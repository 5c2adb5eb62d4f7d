#!/usr/bin/env python3
"""Renders templates with jinja2 (3.1.6, from PyPI), set up as transformers does, for the conversations that
tests/model/fixtures/chat/cases.jsonl has. Only the results are needed by the tests.

usage: chat_reference.py TEMPLATE.jinja ...      cases of these templates are made anew, those of others stay
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

CASES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "chat" / "cases.jsonl"
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)
# Beyond what the conversations bring: what only some templates look at.
MORE = [("reasoning", [{"role": "user", "content": "2+2?"}, {"role": "assistant", "reasoning": "둘에 둘", "content": "4"}, {"role": "user", "content": "3+3?"},
                       {"role": "assistant", "reasoning": "셋에 셋", "content": "6"}], {"thoughts": "all"}),
        ("latest", [{"role": "user", "content": "2+2?"}, {"role": "assistant", "reasoning": "둘에 둘", "content": "4"}, {"role": "user", "content": "3+3?"},
                    {"role": "assistant", "reasoning": "셋에 셋", "content": "6"}], {"add_generation_prompt": False}),
        ("little", [{"role": "user", "content": "?"}], {"reasoning_effort": "little", "dated": False, "add_generation_prompt": True})]


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


def main():
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    names = [pathlib.Path(p).stem for p in sys.argv[1:]]
    model = cases[0]["template"]
    plain = [(c["case"], c["messages"], c["kwargs"]) for c in cases if c["template"] == model]
    kept = [c for c in cases if c["template"] not in names]
    for path, name in zip(sys.argv[1:], names):
        template = environment().from_string(pathlib.Path(path).read_text(encoding="utf-8"))
        for case, messages, given in plain + MORE:
            made = {"template": name, "case": case, "messages": messages, "kwargs": {**given, "bos_token": "<s>", "eos_token": "</s>"}}
            try:
                made["rendered"] = template.render(messages=messages, **made["kwargs"])
            except jinja2.exceptions.TemplateError as error:
                made["error"] = f"{type(error).__name__}: {error}"
            kept.append(made)
            print(name, case, made.get("error", ""))
    CASES.write_text("".join(json.dumps(c, ensure_ascii=False) + "\n" for c in kept), encoding="utf-8")


main()
