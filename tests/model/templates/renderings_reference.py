#!/usr/bin/env python3
"""Compares the renderings of chat templates with jinja2's, set up as transformers does: every template with conversations of
every kind (system, turns, tools, results, thinking, empty and missing contents). Where jinja2 refuses a conversation, Lumen
must refuse it, too. The templates of the tests' fixtures are compared, and those given.

usage: renderings_reference.py TEST_MODEL [TEMPLATE.jinja ...]       exit 77 where jinja2 is not installed
"""
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("skipped: jinja2 is not installed")
    sys.exit(77)

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "chat"
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)


class Generation(jinja2.ext.Extension):
    """{% generation %}, as transformers has it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_printed"), [], [], body).set_lineno(line)

    def _printed(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


def user(text):
    return {"role": "user", "content": text}


def answer(text, **more):
    return {"role": "assistant", "content": text, **more}


def calls(arguments):
    return [{"id": "callabc12", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]


def results(content, arguments):
    return [SYSTEM, user("날씨?"), answer(content, tool_calls=calls(arguments)), RESULT, answer("3도"), user("고마워")]


SYSTEM = {"role": "system", "content": "짧게 답해.\nBe brief."}
RESULT = {"role": "tool", "tool_call_id": "callabc12", "name": "get_weather", "content": "{\"t\": 3}"}
ARGUMENTS = {"city": "서울", "days": 2, "parts": ["a", "b"]}
TOOLS = {"tools": [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather <of> a city & more",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "도시"}, "days": {"type": "integer", "enum": [1, 2]},
            "parts": {"type": "array", "items": {"type": "string"}}}}}},
    {"type": "function", "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}}}]}
CONVERSATIONS = {
    "system": ([SYSTEM, user("hello")], {}),
    "user only": ([user("hello")], {}),
    "turns": ([SYSTEM, user(" 1+1? "), answer("2\n"), user("2+2?")], {}),
    "closed": ([user("1+1?"), answer("2")], {"add_generation_prompt": False}),
    "tools": ([SYSTEM, user("날씨?")], TOOLS),
    "tools without system": ([user("날씨?")], TOOLS),
    "results": (results("", ARGUMENTS), TOOLS),
    "results, arguments as text": (results("", json.dumps(ARGUMENTS, ensure_ascii=False)), TOOLS),
    "results, content none": (results(None, ARGUMENTS), TOOLS),
    "a result at the end": ([user("날씨?"), answer("I look", tool_calls=calls(ARGUMENTS)), RESULT], TOOLS),
    "thinking": ([user("2+2?"), answer("<think>\nhm\n</think>\n\n4"), user("3+3?")], {"enable_thinking": True}),
    "no thinking": ([SYSTEM, user("2+2?"), answer("4", reasoning_content="hm"), user("3+3?")], {"enable_thinking": False}),
    "reasoning": ([user("2+2?"), answer("4", reasoning_content="hm", reasoning="hm", thinking="hm"), user("3+3?"),
                   answer("6", reasoning_content="hm 2", thinking="hm 2")], {"add_generation_prompt": False}),
    "empty content": ([user("a"), answer(""), user("b")], {}),
    "content none": ([user("a"), answer(None), user("b")], {}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}], {}),
    "developer": ([{"role": "developer", "content": "be kind"}, user("x")], {}),
    "documents": ([user("q")], {"documents": [{"title": "t", "text": "body", "doc_id": "1"}]}),
}


def rendered(path, context):
    try:
        # A copy, because a template can change what it is given where the sandbox fails to see it.
        return {"rendered": environment().from_string(path.read_text(encoding="utf-8")).render(**json.loads(json.dumps(context)))}
    except Exception as error:  # whatever a template causes is a refusal
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    templates = sorted(FIXTURES.glob("*.jinja")) + [pathlib.Path(p) for p in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "chat"
        (folder / "templates").mkdir(parents=True)
        with open(folder / "cases.jsonl", "w", encoding="utf-8") as cases:
            for i, path in enumerate(templates):
                own = f"{i}-{path.stem}"
                shutil.copyfile(path, folder / "templates" / f"{own}.jinja")
                for case, (messages, more) in CONVERSATIONS.items():
                    context = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **more}
                    made = {"template": own, "case": case, "messages": messages, "kwargs": context}
                    made.update(rendered(path, {"messages": messages, **context}))
                    cases.write(json.dumps(made, ensure_ascii=False) + "\n")
        done = subprocess.run([sys.argv[1], "--gtest_filter=Template.TemplatesOfAFolder"], capture_output=True, text=True,
                              env={**os.environ, "LUMEN_VOCAB_DIR": name})
        count = len(templates) * len(CONVERSATIONS)
        said = f"{count} of {count} renderings are equal"
        print(*[line for line in done.stdout.splitlines() if "renderings are equal" in line])
        if done.returncode != 0 or said not in done.stdout:
            print(done.stdout[-4000:], done.stderr[-1000:])
            sys.exit(1)


main()
