#!/usr/bin/env python3
"""`lumen serve` by OpenAI's own client: models, completions, chats, streams, embeddings, errors.

usage: serve_reference.py LUMEN      exit code 77: the library is missing, nothing was checked
"""
import json
import math
import sys
import tempfile
from pathlib import Path

try:
    import openai
except ImportError as missing:
    print(f"skipped: {missing}; pip install openai")
    sys.exit(77)

import serve_check


def check(client):
    assert [m.id for m in client.models.list()] == ["served"]
    same = dict(model="served", prompt="Once upon a time", max_tokens=12, seed=5, extra_body={"ignore_eos": True})
    whole = client.completions.create(**same)
    pieces = list(client.completions.create(**same, stream=True, stream_options={"include_usage": True}))
    assert whole.choices[0].text == "".join(p.choices[0].text for p in pieces if p.choices)
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
    told = client.completions.create(**{**same, "max_tokens": 0}, echo=True, logprobs=2).choices[0]
    assert told.text == "Once upon a time" and len(told.logprobs.tokens) == whole.usage.prompt_tokens
    assert told.logprobs.token_logprobs[0] is None and all(len(top) in (2, 3) for top in told.logprobs.top_logprobs[1:])

    chat = dict(model="served", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
                max_completion_tokens=8, seed=1, logprobs=True, top_logprobs=3, n=2, logit_bias={"5": -100})
    answer = client.chat.completions.create(**chat)
    streams = ["", ""]
    for piece in client.chat.completions.create(**chat, stream=True):
        for choice in piece.choices:
            streams[choice.index] += choice.delta.content or ""
    assert [c.message.content for c in answer.choices] == streams
    first = answer.choices[0].logprobs.content[0]
    assert len(first.top_logprobs) == 3 and first.logprob <= first.top_logprobs[0].logprob
    formed = client.chat.completions.create(model="served", messages=chat["messages"], temperature=0, max_tokens=30, response_format={
        "type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": {"enum": ["yes", "no"]}}}).choices[0]
    assert json.loads(formed.message.content) in ("yes", "no") and formed.finish_reason == "stop", formed

    # The client asks for base64 by itself; both forms are the same vectors.
    packed = [d.embedding for d in client.embeddings.create(model="served", input=["one", "two"]).data]
    plain = [d.embedding for d in client.embeddings.create(model="served", input=["one", "two"], encoding_format="float").data]
    assert all(math.isclose(a, b, abs_tol=1e-6) for x, y in zip(packed, plain) for a, b in zip(x, y)) and len(packed) == 2

    for error, ask in [(openai.NotFoundError, {"model": "other"}), (openai.BadRequestError, {"temperature": -1}),
                       (openai.BadRequestError, {"max_tokens": -1})]:
        try:
            client.completions.create(**{**same, **ask})
            raise AssertionError(f"{ask} was taken")
        except error as told:
            assert told.body["param"] == list(ask)[0], told.body
    try:
        client.with_options(api_key="wrong").models.list()
        raise AssertionError("a wrong key was taken")
    except openai.AuthenticationError:
        pass


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-openai-") as folder:
        work = Path(folder)
        serve_check.make_model(lumen, work)
        served = serve_check.Served(lumen, work, "-m", "served.gguf", "--api-key", "sesame")
        try:
            check(openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="sesame", max_retries=0))
        finally:
            served.process.kill()
    print(f"serve: what openai {openai.__version__} asks is answered")


if __name__ == "__main__":
    main()
