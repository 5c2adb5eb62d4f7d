#!/usr/bin/env python3
"""The page of `lumen serve` in a real browser (Debian's chromium, headless, driven over its DevTools protocol): a chat with the keyboard alone, streaming,
probabilities of tokens, another language and theme, nothing asked of any other host, no error in its console, no markup out of a model's text.

Usage: tests/cli/serve/page_check.py LUMEN                  exit code 77: no chromium, nothing was checked
       tests/cli/serve/page_check.py LUMEN MODEL FOLDER     makes page-light.png and page-dark.png of a chat with MODEL in FOLDER
"""
import sys
import tempfile
import time
from pathlib import Path

import serve_check

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pages"))
from browser import Browser, find_browser  # noqa: E402


def chat(b, text, answers):
    b.js("document.getElementById('ask').focus()")
    b.ask("Input.insertText", text=text)
    b.press("Enter", "Enter", 13, text="\r")
    b.wait(f"document.body.dataset.answers === '{answers}'")
    return b.js("[...document.querySelectorAll('.said')].map((e) => e.lastChild.textContent)")


def check(b, address, work):
    b.ask("Page.navigate", url=address + "/#lang=en&theme=light")
    b.wait("document.getElementById('model')?.options.length === 1")
    # Keys alone: the message has the focus, Enter sends it.
    assert b.js("document.activeElement.id") == "ask"
    b.js("document.getElementById('max_tokens').value = 24; document.getElementById('seed').value = 1; document.getElementById('odds').checked = true")
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
    b.wait("document.getElementById('memory').textContent.includes('MiB') && document.getElementById('running').textContent === '0'")
    assert b.js("document.getElementById('first').textContent").endswith(" s")
    assert b.js("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"
    b.picture(work / "light.png")

    # Another language, the other theme, a second turn, a new chat, by keys.
    b.press("l", "KeyL", 76, modifiers=1)
    b.press("t", "KeyT", 84, modifiers=1)
    assert b.js("document.documentElement.lang") == "ko" and b.js("document.getElementById('send').textContent") == "보내기"
    assert b.js("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    assert len(chat(b, "안녕하세요?", 2)) == 4
    b.picture(work / "dark.png")
    # A long answer is stopped with Escape.
    b.js("document.getElementById('max_tokens').value = 3000; document.getElementById('odds').checked = false")
    b.ask("Input.insertText", text="Long")
    b.press("Enter", "Enter", 13, text="\r")
    b.wait("document.querySelectorAll('.said').length === 6 && document.querySelectorAll('.said')[5].lastChild.textContent.length > 5")
    b.press("Escape", "Escape", 27)
    b.wait("document.body.dataset.answers === '3'")
    b.press("n", "KeyN", 78, modifiers=1)
    assert b.js("document.querySelectorAll('.said').length") == 0
    # Everything that can be worked has a name.
    unnamed = b.js("[...document.querySelectorAll('button, input, select, textarea')].filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || "
                   "e.closest('label')?.textContent.trim())).map((e) => e.outerHTML)")
    assert unnamed == [], unnamed

    b.js("1")
    wrong = [e for e in b.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert not wrong, wrong[:3]
    asked = {e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"}
    assert asked and all(url.startswith((address + "/", "data:", "about:")) for url in asked), asked


def draw(b, address, folder):
    for tongue, theme in (("ko", "dark"), ("en", "light")):
        b.ask("Page.navigate", url="about:blank")
        b.ask("Page.navigate", url=f"{address}/#lang={tongue}&theme={theme}")
        b.wait("document.getElementById('model')?.options.length === 1")
        b.js("document.getElementById('max_tokens').value = 120; document.getElementById('seed').value = 3; document.getElementById('odds').checked = true")
        chat(b, "JULIET: Who is there?", 1)
        chat(b, "ROMEO: I am.", 2)
        b.js("[...document.querySelectorAll('.token')].at(-8).focus(); document.querySelector('aside').scrollTop = 1000")
        b.wait("document.getElementById('memory').textContent.includes('MiB') && document.getElementById('all').textContent.includes('/s')")
        b.picture(folder / f"page-{theme}.png")


def main():
    program = find_browser()
    if not program:
        print("skipped: no chromium here (Debian: chromium-headless-shell)")
        sys.exit(77)
    lumen, given = str(Path(sys.argv[1]).resolve()), [Path(word).resolve() for word in sys.argv[2:4]]
    with tempfile.TemporaryDirectory(prefix="lumen-page-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        begin = time.time()
        if not given:
            serve_check.make_model(lumen, work)
        s = serve_check.Served(lumen, work, "-m", given[0] if given else "served.gguf")
        b = None
        try:
            b = Browser(program, work / "browser")
            address = f"http://127.0.0.1:{s.port}"
            draw(b, address, given[1]) if given else check(b, address, work)
        finally:
            if b:
                b.close()
            s.process.kill()
        print(f"page: all is as it should be, {time.time() - begin:.1f} s")


if __name__ == "__main__":
    main()
