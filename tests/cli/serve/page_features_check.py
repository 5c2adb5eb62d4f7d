#!/usr/bin/env python3
"""The page of `lumen serve` with scripted answers (page_stand_in.py), in a real browser, wide in English and light, and as narrow as a phone in Korean and dark:
Markdown, code, formulas, hostile output, thinking, tool calls, alternatives, edits, history, files, settings, refused and broken answers, scrolling, keys.

Usage: tests/cli/serve/page_features_check.py LUMEN            exit code 77: no chromium, nothing was checked
       tests/cli/serve/page_features_check.py LUMEN FOLDER     makes page-light.png and page-dark.png in FOLDER, for docs/guide/serving.md
"""
import json
import sys
import tempfile
import time
from pathlib import Path

import serve_check
from page_stand_in import MARKDOWN, PICTURES, StandIn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pages"))
from browser import Browser, find_browser  # noqa: E402

LAST = "[...document.querySelectorAll('.said')].at(-1)"


class Page:
    def __init__(self, browser, stand_in, width, height, tongue, theme):
        self.b, self.s, self.tongue, self.theme = browser, stand_in, tongue, theme
        self.is_narrow = width < 960
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=self.is_narrow)
        self.load(f"#lang={tongue}&theme={theme}")

    def load(self, after=""):
        self.b.ask("Page.navigate", url="about:blank")
        self.b.ask("Page.navigate", url=self.s.address + "/" + after)
        self.b.wait("document.body?.dataset.ready === '1' && document.getElementById('model').options.length === 2")

    def js(self, text):
        return self.b.js(text)

    def set(self, name, value):
        text = json.dumps(value)
        self.js(f"{{ const e = document.getElementById('{name}'); if (e.type === 'checkbox') e.checked = {text}; else e.value = {text};"
                "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); }")

    def type(self, text):
        self.js("document.getElementById('ask').focus()")
        self.b.ask("Input.insertText", text=text)

    def enter(self, **more):
        self.b.press("Enter", "Enter", 13, text="\r", **more)

    def answers(self):
        return int(self.js("document.body.dataset.answers || '0'"))

    def after(self, action):
        """Runs an action, and waits for the answer that it asks for."""
        count = self.answers()
        action()
        self.b.wait(f"Number(document.body.dataset.answers) === {count + 1}")

    def send(self, text):
        self.type(text)
        self.after(self.enter)

    def fresh(self):
        self.b.press("n", "KeyN", 78, modifiers=1)
        assert self.said() == []

    def said(self):
        return self.js("[...document.querySelectorAll('.said .body')].map((e) => e.innerText.trim())")

    def click(self, action, which=-1):
        self.js(f"[...document.querySelectorAll('#messages [data-action={action}]')].at({which}).click()")

    def remove(self, which=-1):
        self.click("remove", which)  # asks once more
        self.click("remove", which)

    def last(self, selector, what="textContent"):
        return self.js(f"{LAST}.querySelector({json.dumps(selector)})?.{what}")

    def count(self, selector):
        return self.js(f"document.querySelectorAll({json.dumps(selector)}).length")

    def sent(self):
        return self.s.requests[-1]


def markdown(p, _):
    p.send("markdown")
    assert p.last("h4") == "정렬과 표" and p.last("strong") == "굵은 글씨" and p.last("em") == "기울임" and p.last("del") == "취소"
    assert p.last("p") == "한국어 굵은 글씨와 기울임, 코드, 취소. Water is H2O. Prices of $5 and $10 stay prices.", p.last("p")
    assert p.js(f"getComputedStyle({LAST}.querySelectorAll('td')[1]).textAlign") == "right"
    assert p.count(".said ol > li ul > li strong") == 1 and p.js("[...document.querySelectorAll('.said input[type=checkbox]')].map((e) => e.checked)") == [True, False]
    assert p.last(".hljs-keyword") == "def" and p.js(f"getComputedStyle({LAST}.querySelector('.hljs-keyword')).color") != p.js("getComputedStyle(document.body).color")
    code = MARKDOWN.split("```")[1].removeprefix("python\n").rstrip("\n")
    assert p.last("pre code") == code, "the code is as the model wrote it, tabs included"
    assert p.count(".said math") == 3 and p.count(".said .formula.block math mfrac") == 1
    assert p.last("blockquote a", "href") == "https://example.org/a?b=1&c=2" and "noopener" in p.last("blockquote a", "rel")
    p.js("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    p.js(f"{LAST}.querySelector('.copycode').click()")
    assert p.js("window.copied") == code
    p.click("copy")
    assert p.js("window.copied") == MARKDOWN
    # Without the clipboard's interface, as over plain HTTP.
    p.js("navigator.clipboard.writeText = async () => { throw new Error('none'); }; document.execCommand = () => { window.selected = document.activeElement.value; return true; }")
    p.js(f"{LAST}.querySelector('.copycode').click()")
    p.b.wait(f"window.selected === {json.dumps(code)}")


def hostile(p, _):
    p.send("hostile")
    assert p.count("#messages :is(script, img, iframe, svg, style, object, embed, link)") == 0
    assert p.js("[...document.querySelectorAll('#messages *')].flatMap((e) => [...e.attributes]).filter((a) => a.name.startsWith('on') || /javascript:/i.test(a.value)).length") == 0
    links = p.js(f"[...{LAST}.querySelectorAll('a')].map((e) => e.href)")
    assert links == ["https://evil.example/leak.png", "https://good.example/"], links
    text = p.last(".body", "innerText")
    assert "<script>window.hacked = 1</script>" in text and "<img src=x" in text and "(javascript:window.hacked=1)" in text
    time.sleep(0.2)
    assert p.js("window.hacked") is None and p.js("getComputedStyle(document.body).display") == "grid"
    # The browser itself refuses HTML from text, so that a mistake here cannot become an attack.
    assert p.js("(() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return 'taken'; } catch (e) { return e.name; } })()") == "TypeError"
    for i in (1, 2, 3):
        begin = time.time()
        p.send(f"slow to parse {i}")
        assert p.last(".asis").endswith("end") and time.time() - begin < 30, (i, time.time() - begin)
    p.type("<img src=x onerror=alert(1)>")
    p.after(p.enter)
    assert p.count("#messages img") == 0 and p.said()[-2] == "<img src=x onerror=alert(1)>"


def thinking_and_tools(p, _):
    for name, answer, thought in (("think", "The answer is 4.", "Two and two.\n\nThat is four."), ("tagged", "답은 5입니다.", "생각을 먼저 합니다.")):
        p.send(name)
        assert p.last("details.thoughts", "open") is False and p.last(".body > .markdown") == answer and p.last("details strong") is None
        p.js(f"{LAST}.querySelector('summary').click()")
        p.b.wait(f"{LAST}.querySelector('details.thoughts > div').innerText.trim() === {json.dumps(thought)}")
    p.set("tools", '[{"type": "function", "function": {"name": "weather"}}]')
    p.send("tools")
    assert p.sent()["tools"][0]["function"]["name"] == "weather"
    assert "weather" in p.last("details.call summary") and json.loads(p.last("details.call code")) == {"city": "서울", "days": 3}
    p.js(f"{LAST}.querySelector('.results textarea').value = '맑음'")
    p.after(lambda: p.js(f"{LAST}.querySelector('.results button').click()"))
    call, result = p.sent()["messages"][-2:]
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "맑음"} and call["tool_calls"][0]["function"]["name"] == "weather"
    assert p.said()[-1] == "It is 맑음." and p.count(".results") == 0
    p.set("tools", "{")
    p.send("with tools that are no JSON")
    assert p.js(f"{LAST}.querySelector('.note.wrong').hidden") is False
    p.set("tools", "")


def alternatives(p, _):
    p.fresh()
    p.send("한 번")
    first = p.said()[1]
    p.after(lambda: p.click("again"))
    second = p.said()[1]
    assert first != second and p.sent()["messages"] == [{"role": "user", "content": "한 번"}]
    assert p.js(f"{LAST}.querySelector('.branch').innerText").replace("\n", "") == "‹2/2›"
    p.click("previous")
    assert p.said()[1] == first
    p.send("more")
    assert [m["content"] for m in p.sent()["messages"]] == ["한 번", first, "more"]
    p.click("next", 0)  # the other answer has nothing after it
    assert p.said()[1:] == [second]
    p.click("previous")
    assert len(p.said()) == 4
    # An edited message is an alternative as well, and its answer is new.
    p.click("edit", 0)
    p.js("{ const e = document.querySelector('.edits textarea'); e.value = '두 번'; }")
    p.after(lambda: p.js("document.querySelector('.edits .strong').click()"))
    assert [m["content"] for m in p.sent()["messages"]] == ["두 번"] and p.said()[0] == "두 번" and len(p.said()) == 2
    # An edited answer is what later requests hold.
    p.click("edit")
    p.js("document.querySelector('.edits textarea').value = 'My own answer'")
    p.js("document.querySelector('.edits .strong').click()")
    assert p.said()[1] == "My own answer"
    p.after(lambda: p.click("onward"))
    assert p.sent()["continue_final_message"] is True and p.sent()["messages"][-1] == {"role": "assistant", "content": "My own answer"}
    assert p.said()[1] == "My own answer and the rest"
    p.remove(0)  # the message that was edited is shown again, with all that followed
    assert p.said()[0] == "한 번" and len(p.said()) == 4
    p.remove()
    assert len(p.said()) == 3
    p.fresh()
    p.send("cut")
    assert p.last(".note", "hidden") is False and p.js(f"{LAST}.querySelectorAll('[data-action=onward]').length") == 1


def refusals(p, _):
    p.fresh()
    p.send("good")
    p.send("refuse this")
    assert "this prompt is too long" in p.last(".note.wrong")
    p.send("after it")
    assert [m["content"] for m in p.sent()["messages"] if m["role"] == "user"] == ["good", "after it"]
    assert p.said()[-1].endswith("after it")
    p.send("fail")
    assert p.last(".body > .markdown") == "Half of" and p.last(".note.wrong", "hidden") is False
    p.send("once more")
    assert p.sent()["messages"][-2]["content"] == "Half of" and p.said()[-1].endswith("once more")
    # A server with a key asks for it; it goes with requests, and is not in the settings that are kept.
    p.s.key = "sesame"
    p.b.wait("!document.getElementById('keyrow').hidden")
    p.set("key", "sesame")
    p.js("document.getElementById('ask').focus()")
    p.send("with the key")
    assert p.s.authorization == "Bearer sesame" and "sesame" not in p.js("JSON.stringify(localStorage)")
    p.s.key = None
    if p.is_narrow:
        p.b.press("Escape", "Escape", 27)
    p.s.is_down = True
    p.b.wait("document.getElementById('state').classList.contains('wrong')")
    p.s.is_down = False
    p.b.wait("document.getElementById('state').textContent === ''")


def streams(p, _):
    # A new chat while an answer is written: the answer goes on where it belongs.
    p.s.gate.clear()
    p.fresh()
    p.type("gated")
    p.enter()
    p.b.wait(f"{LAST}?.innerText.includes('first half')")
    p.fresh()
    count = p.answers()
    p.s.gate.set()
    p.b.wait(f"Number(document.body.dataset.answers) === {count + 1}")
    assert p.said() == [] and p.js("document.getElementById('stop').hidden") is True
    p.js("[...document.querySelectorAll('#chats .open')].find((e) => e.textContent === 'gated').click()")
    p.b.wait(f"{LAST}?.innerText.includes('first half, second half')")

    # Scrolling up stays, and Escape stops the answer and with it the request.
    p.fresh()
    left = p.s.left
    p.type("slow")
    p.enter()
    p.b.wait("document.getElementById('talk').scrollHeight > 3000")
    assert p.js("(() => { const t = document.getElementById('talk'); return t.scrollHeight - t.scrollTop - t.clientHeight; })()") < 200
    p.js("document.getElementById('talk').scrollTop = 300")
    height = p.js("document.getElementById('talk').scrollHeight")
    p.b.wait(f"document.getElementById('talk').scrollHeight > {height + 300} && !document.getElementById('latest').hidden")
    assert p.js("document.getElementById('talk').scrollTop") == 300
    p.js("document.getElementById('latest').click()")
    height = p.js("document.getElementById('talk').scrollHeight")
    p.b.wait(f"document.getElementById('talk').scrollHeight > {height + 300}")
    assert p.js("document.getElementById('talk').scrollTop") > height - 900
    p.after(lambda: p.b.press("Escape", "Escape", 27))
    assert p.last(".note", "hidden") is False
    until = time.time() + 20
    while p.s.left == left:
        assert time.time() < until, "the request of a stopped answer is still open"
        time.sleep(0.05)

    # A long answer: blocks that are complete are not made again.
    p.fresh()
    p.js("new MutationObserver(() => { const e = document.querySelector('.said.assistant .markdown > p'); if (e && document.querySelectorAll('.said.assistant .markdown > p').length > 2 && !window.early) "
         "window.early = e; }).observe(document.getElementById('messages'), { childList: true, subtree: true })")
    begin = time.time()
    p.send("long")
    assert p.count(".said.assistant p") >= 900 and p.js("window.early.isConnected") is True
    print(f"    an answer of 57,000 characters in pieces of 4: {time.time() - begin:.1f} s")


def history(p, work):
    p.fresh()
    p.send("고래는 어디에 사나요?")
    p.fresh()
    p.send("Another chat")
    p.b.wait("[...document.querySelectorAll('#chats .open')].filter((e) => /고래|Another chat/.test(e.textContent)).length === 2")
    p.load()
    assert p.js("document.documentElement.lang") == p.tongue and p.js("document.documentElement.dataset.theme") == p.theme
    p.b.wait("document.querySelectorAll('#chats .open').length >= 2")
    p.set("find", "고래는")
    p.b.wait("document.querySelectorAll('#chats .open').length === 1")
    p.js("document.querySelector('#chats .open').click()")
    p.b.wait("document.querySelectorAll('.said').length === 2")
    assert p.said()[0] == "고래는 어디에 사나요?" and p.said()[1].endswith("고래는 어디에 사나요?")
    if p.is_narrow:
        assert p.js("getComputedStyle(document.getElementById('list')).display") == "none"
        p.js("document.getElementById('listbutton').click()")
    p.js("document.querySelector('#chats [data-action=rename]').click()")
    p.js("{ const e = document.querySelector('#chats input'); e.value = '고래 이야기'; }")
    p.enter()
    p.b.wait("document.querySelector('#chats .open')?.textContent === '고래 이야기'")

    p.js("window.blobs = []; const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.blobs.push(blob); return make.call(URL, blob); }; HTMLAnchorElement.prototype.click = () => {}")
    p.js("document.querySelector('#chats [data-action=json]').click(); document.querySelector('#chats [data-action=markdown]').click()")
    as_json, as_markdown = p.js("Promise.all(window.blobs.map((blob) => blob.text()))")
    assert as_markdown.startswith("# 고래 이야기\n") and "고래는 어디에" in as_markdown
    assert json.loads(as_json)["chats"][0]["title"] == "고래 이야기"
    p.js("window.blobs = []; document.getElementById('exportall').click()")
    p.b.wait("window.blobs.length === 1")
    whole = p.js("window.blobs[0].text()")
    count = len(json.loads(whole)["chats"])
    assert count >= 2

    p.js("document.querySelector('#chats [data-action=remove]').click(); document.querySelector('#chats [data-action=remove]').click()")
    p.b.wait("document.querySelectorAll('#chats .open').length === 0")
    bad, good = work / "bad.json", work / "good.json"
    bad.write_text('{"chats": [{"title": "x", "nodes": [{"id": "a", "parent": "", "role": "user"}, {"id": "a", "parent": "a", "role": "user"}]}]}')  # a circle
    good.write_text(as_json)
    box = p.b.ask("Runtime.evaluate", expression="document.getElementById('importfile')")["result"]["objectId"]
    p.b.ask("DOM.setFileInputFiles", files=[str(bad)], objectId=box)
    p.b.wait("document.getElementById('notices').textContent.includes('bad.json')")
    p.b.ask("DOM.setFileInputFiles", files=[str(good)], objectId=box)
    p.set("find", "고래는")
    p.b.wait("document.querySelector('#chats .open')?.textContent === '고래 이야기'")
    p.set("find", "")

    # A full history says so, keeps what it has, and works again with more room.
    p.set("history", "0.0001")
    p.fresh()
    p.send("too much")
    p.b.wait("document.getElementById('notices').textContent.includes('0.0001 MiB')")
    p.set("history", "64")
    p.send("now it fits")
    p.b.wait("document.getElementById('notices').textContent === ''")
    assert p.said()[0] == "too much"


def settings_and_files(p, _):
    p.set("temperature", "0.3")
    p.set("system", "짧게 답하세요.")
    p.set("think", "off")
    p.set("model", "base-한국어")
    p.load()
    p.send("with settings")
    sent = p.sent()
    assert sent["temperature"] == 0.3 and sent["messages"][0] == {"role": "system", "content": "짧게 답하세요."} and sent["model"] == "base-한국어"
    assert sent["chat_template_kwargs"] == {"enable_thinking": False} and sent["max_tokens"] == 2048 and p.last(".who") == "base-한국어"
    speed = p.last(".speed")
    assert "/s" in speed or "토큰/초" in speed and " s" in speed, speed
    p.js("document.getElementById('reset').click()")
    p.send("without")
    assert p.sent()["temperature"] == 0.8 and p.sent()["messages"][0]["role"] == "user"

    drop = ("{ const data = new DataTransfer(); for (const [name, text] of %s) data.items.add(new File([text], name));"
            "document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })); }")
    p.js(drop % json.dumps([["메모.py", "print('안녕')\n```\n"], ["binary.bin", "a\0b"], ["large.txt", "x" * 300_000]]))
    p.b.wait("document.querySelectorAll('.chip').length === 1 && document.getElementById('notices').textContent.includes('large.txt')")
    assert "binary.bin" in p.js("document.getElementById('notices').textContent")
    p.js("{ const data = new DataTransfer(); data.items.add(new File(['second'], 'b.txt')); document.getElementById('ask').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }")
    p.b.wait("document.querySelectorAll('.chip').length === 2")
    p.send("Explain these.")
    assert p.sent()["messages"][-1]["content"] == "File 메모.py:\n````py\nprint('안녕')\n```\n````\n\nFile b.txt:\n```txt\nsecond\n```\n\nExplain these.", p.sent()["messages"][-1]
    assert p.count(".chip") == 0 and "메모.py" in p.said()[-2] and p.js("document.getElementById('notices').textContent") == ""


def keys(p, _):
    p.fresh()
    count = len(p.s.requests)
    p.js("document.getElementById('ask').focus()")
    # The Enter that ends the composition of a syllable.
    p.b.ask("Input.imeSetComposition", text="한", selectionStart=1, selectionEnd=1)
    p.b.press("Process", "Enter", 229)
    p.js("document.getElementById('ask').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true, cancelable: true }))")
    p.js("document.getElementById('ask').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true }))")
    assert len(p.s.requests) == count and p.said() == []
    p.b.ask("Input.insertText", text="한")
    p.enter(modifiers=8)
    p.b.ask("Input.insertText", text="글")
    assert p.js("document.getElementById('ask').value") == "한\n글" and len(p.s.requests) == count
    p.after(p.enter)
    assert p.sent()["messages"][-1]["content"] == "한\n글"
    p.b.press("k", "KeyK", 75, modifiers=1)
    assert p.js("document.activeElement.id") == "find"
    if p.is_narrow:
        p.b.press("Escape", "Escape", 27)
        assert p.js("getComputedStyle(document.getElementById('list')).display") == "none"


CONTRAST = """(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((x) => { x /= 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c.startsWith('rgb(')) return c; } };
  return [...document.querySelectorAll('button, summary, p, h2, span, td, th, code, code span, a, dt, dd')].filter((e) => e.offsetParent && !e.disabled && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => { const a = light(getComputedStyle(e).color), b = light(back(e)); return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 80)]; }).filter((one) => one[0] < 4.5);
})()"""


def looks(p, work):
    """Both themes at this width: contrast, names, and nothing wider than the page."""
    p.fresh()
    p.send("markdown")
    for _ in range(2):
        if not p.is_narrow:
            assert p.js("document.getElementById('panel').offsetWidth") > 200
        faint = p.js(CONTRAST)
        assert faint == [], faint[:5]
        for action in ("0", "document.getElementById('listbutton').click()", "document.getElementById('panelbutton').click()") if p.is_narrow else ("0",):
            p.js(action)
            assert p.js(CONTRAST) == []
            assert p.js("document.documentElement.scrollWidth <= innerWidth && document.getElementById('talk').scrollWidth <= document.getElementById('talk').clientWidth")
        p.b.press("Escape", "Escape", 27)
        box = p.js("(() => { const r = document.getElementById('send').getBoundingClientRect(); return [r.left >= 0, r.right <= innerWidth, r.bottom <= innerHeight, r.width > 30]; })()")
        assert box == [True] * 4, box
        p.b.picture(work / f"{p.theme}.png", most=1_000_000)
        p.b.press("t", "KeyT", 84, modifiers=1)
    unnamed = p.js("[...document.querySelectorAll('button, input, select, textarea, nav, aside')].filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || "
                   "e.closest('label')?.textContent.trim())).map((e) => e.outerHTML)")
    assert unnamed == [], unnamed
    assert p.js("document.body.innerText.includes('undefined')") is False and p.count("#about pre") == 3


def check(p, work):
    for one in (markdown, hostile, thinking_and_tools, alternatives, refusals, streams, keys, settings_and_files, history, looks):
        begin = time.time()
        one(p, work)
        print(f"  {one.__name__}: {time.time() - begin:.1f} s", flush=True)
    p.js("1")
    wrong = [e for e in p.b.events if e.get("method") == "Runtime.exceptionThrown" or e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] in ("error", "warning")]
    # Those that the tests cause: a refusal, a server that is gone, and the try to set innerHTML.
    wrong = [e for e in wrong if not any(word in json.dumps(e) for word in ("status of 400", "status of 401", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION", "TrustedHTML", "Trusted Type"))]
    assert not wrong, wrong[:3]
    asked = {e["params"]["request"]["url"] for e in p.b.events if e.get("method") == "Network.requestWillBeSent"}
    assert asked and all(url.startswith((p.s.address + "/", "data:", "about:", f"blob:{p.s.address}/")) for url in asked), asked


def draw(b, stand_in, folder):
    for (question, _), (width, height, tongue, theme) in zip(PICTURES.items(), ((1120, 700, "en", "light"), (390, 700, "ko", "dark"))):
        p = Page(b, stand_in, width, height, tongue, theme)
        p.send(question)
        p.js("document.activeElement.blur()")
        b.picture(folder / f"page-{theme}.png")


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
        served = serve_check.Served(lumen, work, "-m", "served.gguf")
        try:
            pages = [StandIn.of_lumen(served.port) for _ in range(2)]
        finally:
            served.process.kill()
        if len(sys.argv) > 2:
            b = Browser(program, work / "browser")
            try:
                draw(b, pages[0], Path(sys.argv[2]))
            finally:
                b.close()
            return
        for i, (width, height, tongue, theme) in enumerate(((1280, 800, "en", "light"), (390, 844, "ko", "dark"))):
            print(f"{width} pixels, {tongue}, {theme}")
            b = Browser(program, work / f"browser-{i}")
            try:
                check(Page(b, pages[i], width, height, tongue, theme), work)
            finally:
                b.close()
        print(f"page: all is as it should be, {time.time() - begin:.1f} s")


if __name__ == "__main__":
    main()
