#!/usr/bin/env python3
"""The page of `lumen serve` in a real browser (Debian's chromium, headless, driven over its DevTools protocol): a chat with the keyboard alone, streaming,
probabilities of tokens, another language and theme, nothing asked of any other host, no error in its console, no markup out of a model's text.

What needs a certain answer is in page_features_check.py.

Usage: tests/cli/serve/page_check.py LUMEN     exit code 77: no chromium, nothing was checked
"""
import json
import re
import sys
import tempfile
import time
from pathlib import Path

import serve_check

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pages"))
from browser import Browser, find_browser  # noqa: E402


def set_to(b, name, value):
    text = json.dumps(value)
    b.js(f"{{ const e = document.getElementById('{name}'); if (e.type === 'checkbox') e.checked = {text}; else e.value = {text}; e.dispatchEvent(new Event('input')); }}")


def chat(b, text, answers):
    b.js("document.getElementById('ask').focus()")
    b.ask("Input.insertText", text=text)
    b.press("Enter", "Enter", 13, text="\r")
    b.wait(f"document.body.dataset.answers === '{answers}'")
    return b.js("[...document.querySelectorAll('.said .body')].map((e) => e.innerText)")


def check(b, address, work):
    b.ask("Page.navigate", url=address + "/#lang=en&theme=light")
    b.wait("document.body?.dataset.ready && document.getElementById('model').options.length === 1")
    # Keys alone: the message has the focus, Enter sends it.
    assert b.js("document.activeElement.id") == "ask"
    set_to(b, "max_tokens", "24"), set_to(b, "seed", "1"), set_to(b, "odds", True)
    question = "<img src=x onerror=alert(1)> Say something."
    said = chat(b, question, 1)
    assert said[0] == question and len(said[1]) > 3, said
    assert b.js("document.querySelectorAll('main img, main script').length") == 0
    count = b.js("document.querySelectorAll('.token').length")
    assert count > 3, count
    b.js("document.querySelectorAll('.token')[1].focus()")
    b.press("ArrowRight", "ArrowRight", 39)
    assert b.js("document.activeElement === document.querySelectorAll('.token')[2]")
    chances = b.js("[...document.querySelectorAll('#token td:last-child')].map((e) => parseFloat(e.textContent))")
    assert len(chances) >= 5 and chances == sorted(chances, reverse=True) and sum(chances) <= 100.1, chances
    assert b.js("(() => { const r = document.getElementById('card').getBoundingClientRect(); return r.width > 50 && r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; })()")
    b.wait("document.getElementById('memory').textContent.includes('MiB') && document.getElementById('running').textContent === '0'")
    speed = b.js("document.querySelector('.said.assistant .speed').textContent")
    assert re.fullmatch(r"[0-9.]+ tokens/s · \d+ tokens · first token [0-9.]+ s", speed), speed
    assert b.js("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"
    # The same answer as formatted text, and back.
    b.js("document.querySelector('[data-action=odds]').click()")
    assert b.js("document.querySelector('.tokens').hidden") is True
    b.js("document.querySelector('[data-action=odds]').click()")
    assert b.js("document.querySelector('.tokens').hidden") is False and b.js("document.querySelectorAll('.token').length") == count
    b.picture(work / "light.png")

    # Another language, the other theme, a second turn, a new chat, by keys.
    b.press("l", "KeyL", 76, modifiers=1)
    b.press("t", "KeyT", 84, modifiers=1)
    assert b.js("document.documentElement.lang") == "ko" and b.js("document.getElementById('send').textContent") == "보내기"
    assert b.js("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    assert len(chat(b, "안녕하세요?", 2)) == 4
    b.picture(work / "dark.png")
    # A long answer is stopped with Escape.
    set_to(b, "max_tokens", "3000"), set_to(b, "odds", False)
    b.ask("Input.insertText", text="Long")
    b.press("Enter", "Enter", 13, text="\r")
    b.wait("document.querySelectorAll('.said').length === 6 && document.querySelectorAll('.said')[5].querySelector('.markdown:not(.thoughts *)').textContent.length > 5")
    b.press("Escape", "Escape", 27)
    b.wait("document.body.dataset.answers === '3'")
    # A message that is longer than the model's context is refused, and the chat goes on.
    set_to(b, "max_tokens", "8")
    assert len(chat(b, "a b c d e f g h " * 2000, 4)) == 8
    assert b.js("[...document.querySelectorAll('.said .note.wrong')].at(-1).hidden") is False
    assert len(chat(b, "다시", 5)) == 10 and b.js("[...document.querySelectorAll('.said .note.wrong')].length") == 1
    b.press("n", "KeyN", 78, modifiers=1)
    assert b.js("document.querySelectorAll('.said').length") == 0
    # Everything that can be worked has a name.
    unnamed = b.js("[...document.querySelectorAll('button, input, select, textarea')].filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || "
                   "e.closest('label')?.textContent.trim())).map((e) => e.outerHTML)")
    assert unnamed == [], unnamed

    b.js("1")
    wrong = [e for e in b.events if e.get("method") == "Runtime.exceptionThrown" or e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] != "verbose"]
    wrong = [e for e in wrong if "status of 400" not in json.dumps(e)]  # the refused message
    assert not wrong, wrong[:3]
    asked = {e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"}
    assert asked and all(url.startswith((address + "/", "data:", "about:")) for url in asked), asked


def main():
    program = find_browser()
    if not program:
        print("skipped: no chromium here (Debian: chromium-headless-shell)")
        sys.exit(77)
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-page-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        begin = time.time()
        serve_check.make_model(lumen, work)
        s = serve_check.Served(lumen, work, "-m", "served.gguf")
        b = None
        try:
            b = Browser(program, work / "browser")
            check(b, f"http://127.0.0.1:{s.port}", work)
        finally:
            if b:
                b.close()
            s.process.kill()
        print(f"page: all is as it should be, {time.time() - begin:.1f} s")


if __name__ == "__main__":
    main()
