#!/usr/bin/env python3
"""Requests as programs send them (clients/*.json, written by hand from their public sources): each gets status 200 and an answer in the
form of its API.

Usage: tests/cli/serve/clients_check.py LUMEN
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import serve_check

RECORDED = Path(__file__).resolve().parent / "clients"


def check_events(text):
    """OpenAI's, Anthropic's or llama.cpp's events up to the last one."""
    datas = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert datas and text.endswith("\n\n"), text[-200:]
    events = [json.loads(data) for data in datas if data != "[DONE]"]
    kinds = [event.get("type") for event in events]
    if kinds[-1] is None and "choices" in events[-1]:
        assert datas[-1] == "[DONE]", datas[-1]
        assert [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]], events[-2:]
    elif kinds[-1] is None:
        assert events[-1]["stop"] is True and "timings" in events[-1], events[-1]
    else:
        assert kinds[-1] in ("message_stop", "response.completed", "response.incomplete"), kinds[-3:]


def check_lines(text):
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True], text[-300:]
    assert lines[-1]["eval_count"] > 0 and lines[-1]["total_duration"] > 0, lines[-1]


MEMBERS = {"/v1/models": "data", "/api/version": "version", "/api/tags": "models", "/api/ps": "models", "/api/show": "model_info", "/api/embed": "embeddings",
           "/v1/embeddings": "data", "/v1/rerank": "results", "/v1/chat/completions": "choices", "/v1/messages/count_tokens": "input_tokens"}


def check_answer(path, headers, text):
    kind = headers["Content-Type"].partition(";")[0]
    if kind == "text/event-stream":
        check_events(text)
    elif kind == "application/x-ndjson":
        check_lines(text)
    else:
        assert MEMBERS[path.partition("?")[0]] in json.loads(text), text[:300]


def check(s, is_tolerant):
    """The numbers of requests that were answered, and of those that need fields to be tolerated."""
    answered = left = 0
    for file in sorted(RECORDED.glob("*.json")):
        recorded = json.loads(file.read_text())
        for request in recorded["requests"]:
            body = request.get("body")
            streams = request["path"].startswith("/api/") or (body or {}).get("stream")
            status, headers, text = s.ask(request["path"], body, headers=request.get("headers"))
            about = (file.name, request["path"], status, text[:400])
            if "needs" in request and not is_tolerant:
                assert status == 400, about
                left += 1
                continue
            assert status == 200 and text, about
            assert not streams or body is None or headers["Content-Type"] != "application/json" or "messages" not in body or body.get("stream") is False, about
            check_answer(request["path"], headers, text)
            answered += 1
    return answered, left


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-clients-") as folder:
        work = Path(folder)
        serve_check.make_model(lumen, work)
        (work / "calls.jinja").write_text(serve_check.TEMPLATE)
        # Programs ask for long answers, which the model of random weights would write.
        s = serve_check.Served(lumen, work, "-m", "served.gguf", "--chat-template", "calls.jinja", "--seconds", "1")
        # Fields that change no output are tolerated by programs that can also refuse them.
        options = subprocess.run([lumen, "serve", "--help"], capture_output=True, text=True, timeout=serve_check.LONGEST).stdout
        try:
            answered, left = check(s, "--strict" in options)
        finally:
            s.process.kill()
    assert answered > 20, answered
    print(f"clients: {answered} requests are answered; {left} need fields that are not tolerated yet")


if __name__ == "__main__":
    main()
