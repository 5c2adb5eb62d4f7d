#!/usr/bin/env python3
"""Pages of reports in a real browser (Debian's chromium, headless), opened as files: what a run's log and the documents of a compression and a study hold is on the page, charts show values
under the cursor and to the arrow keys, names stand at dots, nothing is wider than the page at 390 and 1280 pixels, hostile names stay text, and nothing is fetched.

Usage: tests/cli/pages/report_page_check.py LUMEN             exit code 77: no chromium, nothing was checked
       tests/cli/pages/report_page_check.py LUMEN FOLDER      also keeps pictures of the pages in FOLDER
"""
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser, find_browser

EVIL = "<img src=x onerror=\"window.hacked=1\"></script><script>window.hacked=1</script>\u202e\u001b[31m'&"
RECIPE = "[run]\nbatch = 3\n"


def write_run(folder, name, loss, steps=200, text=None):
    """A run's log; `text` replaces every name in it."""
    say = (lambda s: text) if text else (lambda s: s)
    lines = [{"step": 0, "run": {"model": say("tiny"), "family": say("llama"), "parameters": 1234567, "trained": 1000, "device": say("cpu"), "steps": steps,
                                 "recipe": text or RECIPE, "optimizer": say("adamw"), "memory": [{"kind": say("weights"), "bytes": 4 << 20}, {"kind": say("moments"), "bytes": 8 << 20}],
                                 "what": [{"what": say("layers.*.wq"), "format": say("bf16"), "tensors": 2, "numbers": 77000}],
                                 "formats": [{"format": say("q4_0"), "tensors": 3, "numbers": 900, "bytes": 500}],
                                 "files": [{"path": say("/data/" + "a-long-name-" * 12 + ".txt"), "bytes": 12_000_000, "xxh3_128": say("00ff" * 8)}]}},
             {"step": 0, "samples": [{"prompt": say("Once"), "text": say(" qzx")}]}]
    for i in range(1, steps + 1):
        lines.append({"step": i, "loss": loss + 3 * math.exp(-i / 40) + 0.05 * math.sin(i), "norm": 1 / i, "lr": 1e-3 * min(1, i / 20), "seconds": 0.5, "tokens_per_second": 8192,
                      "tokens": 4096 * i, "memory": 3e8, "mfu": 0.25, "epoch": i / 100, say("aux"): 0.1})
        if i % 20 == 0:
            lines.append({"step": i, "validation_loss": loss + 0.3 + 3 * math.exp(-i / 40), "validation_rows": 64, "tasks": {say("arc"): {say("acc"): 0.5 + i / 1000}},
                          "samples": [{"prompt": say("Once"), "text": say(" upon a time")}]})
    lines += [{"step": steps, "validation_loss": loss + 0.45, "validation_rows": 512}, {"step": 80, "event": say("rollback"), "text": say("back to step 70")},
              {"step": steps, "outputs": {"files": [{"path": say("out/model.gguf"), "what": say("f32"), "bytes": 49 << 20}, {"path": say("out/adapter"), "what": say("adapter"), "bytes": 1 << 20, "kl": 2e-7}],
                                          "command": say("lumen chat -m out/model.gguf")}}]
    (folder / name).mkdir()
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / name


def write_compression(file, text=None):
    say = (lambda s: text) if text else (lambda s: s)
    roles = ("attention_q", "attention_k", "attention_v", "attention_output", "ffn_gate", "ffn_up", "ffn_down")
    document = {
        "lumen_compression": 1, "model": say("tiny"), "created": say("2026-11-23"), "text": say("the built-in text"), "budget": say("4.2bpw"), "device": say("cpu"),
        "base": {"name": say("tiny-f16.gguf"), "bytes": 160_000_000, "bits": 16, "ppl": 5.5},
        "result": {"name": say("tiny mixed.gguf"), "bytes": 42_000_000, "bits": 4.2, "ppl": 5.75, "ppl_error": 0.01, "kl": 0.0225, "kl_error": 0.0005, "same_top": 0.9375},
        "predicted": 0.021, "bound": 0.021, "proved": True,
        "points": [{"label": say(label), "strategy": say(strategy), "bytes": int(1e7 * bits), "bits": bits, "kl": kl, "chosen": label == "mixed"}
                   for label, strategy, bits, kl in (("five", "plain", 5.5, 0.01), ("mixed", "measured", 4.2, 0.0225), ("two", "rtn", 2.1, 1.5))],
        "front": [{"bytes": 21_000_000, "bits": 2.1, "score": 0.9}, {"bytes": 42_000_000, "bits": 4.2, "score": 0.021}], "front_exact": True,
        "tensors": [{"name": say(f"blk.{layer}.{role}"), "layer": layer, "role": say(role), "format": say("wide" if layer % 2 else "narrow"), "strategy": say("rtn"), "bytes": 800, "bits": 8,
                     "error": 0.05 * (layer + 1), "reason": say("its error is spread evenly"), "candidates": [{"format": say("narrow"), "bytes": 400, "score": 0.004}],
                     **({"histogram": {"edges": [-1, 0, 0.5, 1], "before": [3, 5, 2], "after": [4, 4, 2]}} if layer == 2 else {})} for layer in range(7) for role in roles] +
                   [{"name": say("output.weight"), "layer": -1, "role": say("output"), "format": say("wide"), "bytes": 900, "bits": 8}],
        "spikes": [{"name": say("blk.0.ffn_down"), "ratio": 12, "kept": False}, {"name": say("blk.1.ffn_down"), "ratio": 480, "kept": True}],
        "experts": [{"layer": 0, "expert": 3, "format": say("narrow"), "bits": 4, "share": 0.25, "spread": 0.01, "margin": 0.5, "rows": 12345, "shares": [0.25]}],
        "tasks": [{"model": say("tiny mixed.gguf"), "task": say("pairs"), "figure": say("acc"), "value": 0.625, "error": 0.01}],
        "stages": [{"name": say("calibrate"), "seconds": 62}], "notes": [say("one row was left as it is")]}
    file.write_text(json.dumps(document))
    return file


def write_study(file, text=None):
    say = (lambda s: text) if text else (lambda s: s)
    line = {"color": 0, "faint": False, "dots": True, "line": True, "large": False, "labels": []}
    chart = {"title": say("Size and error"), "unit": say("nats"), "across": say("bits"), "logarithmic": True, "zero": False, "whole": False,
             "series": [{**line, "name": say("plain"), "points": [[2, 1.5], [4, 0.1], [8, 0.001]], "labels": [say("two"), say("four"), say("eight")]},
                        {**line, "name": say("chosen"), "color": 1, "points": [[3, 0.2], [6, 0.01]]}]}
    table = {"head": [say("method"), *(say(f"figure {i}") for i in range(14))], "texts": 1, "rows": [[say(f"method {r}"), *(say("49152" if i == 0 else f"{r}.{i}01") for i in range(14))] for r in range(3)]}
    file.write_text(json.dumps({"lumen_report": 1, "title": say("Ways of rounding"), "study": {
        "text": say("Three seeds."), "tiles": [{"name": say("images"), "value": say("1,234"), "remark": say("of a folder")}],
        "sections": [{"title": say("Compared"), "text": say("Means."), "tables": [table], "charts": [chart]}]}}))
    return file


def opened(b, page, width, theme, keep=None):
    """Opens a page, and checks what holds for every page."""
    b.events.clear()
    b.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    b.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    b.ask("Page.navigate", url="about:blank")
    b.ask("Page.navigate", url=page.as_uri())
    b.wait("document.body?.dataset.drawn === 'yes'")
    if keep:
        high = b.js("document.documentElement.scrollHeight")
        b.picture(keep / f"{page.stem}-{width}-{theme}.png", 1e8, captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": width, "height": min(high, 6000), "scale": 1})
    assert b.js("getComputedStyle(document.body).backgroundColor") == ("rgb(18, 21, 26)" if theme == "dark" else "rgb(246, 247, 249)")
    b.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    b.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")
    assert b.js("document.documentElement.scrollWidth") <= width, (page, width, b.js("document.documentElement.scrollWidth"))
    wide = b.js("[...document.querySelectorAll('.box')].filter((e) => !e.querySelector('.map') && e.scrollWidth > e.clientWidth).map((e) => e.textContent.slice(0, 60))")
    assert wide == [], (page, width, wide)
    outside = b.js("[...document.querySelectorAll('body *')].filter((e) => !e.closest('svg, script, noscript') && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.map'))"
                   ".map((e) => e.outerHTML.slice(0, 80))")
    assert outside == [], (page, width, outside)
    assert b.js("window.hacked") is None and b.js("document.images.length") == 0 and b.js("document.scripts.length") == 2, page
    wrong = [e for e in b.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]
    assert not wrong, wrong[:3]
    asked = {e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"}
    assert all(url.startswith(("about:", "data:")) or url == page.as_uri() for url in asked), asked


def shows(b, *parts):
    text = b.js("document.body.innerText")
    for part in parts:
        assert part in text, (part, text)


def figure(b, title):
    return f"[...document.querySelectorAll('figure')].find((f) => f.querySelector('figcaption b')?.textContent === {json.dumps(title)})"


def move_to(b, title, across, up):
    """Moves the mouse over a chart, to shares of its width and height; returns the text under it."""
    x, y = b.js(f"(() => {{ const p = {figure(b, title)}.querySelector('svg'); p.scrollIntoView({{ block: 'center' }}); const r = p.getBoundingClientRect(); "
                f"return [r.x + r.width * {across}, r.y + r.height * {up}]; }})()")
    b.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    return b.js(f"(() => {{ const t = {figure(b, title)}.querySelector('.tip'); return t.hidden ? '' : t.innerText; }})()")


def check_run(b, page):
    opened(b, page, 1280, "light")
    shows(b, "one", "What came out", "lumen chat -m out/model.gguf", "49.00 MiB", "2e-7", "before training", "after step 200", "run.batch", "1,234,567", "on 512 rows", "best of the curve",
          "8,192", "25.0 %", "back to step 70", "layers.*.wq", "12.00 MiB")
    titles = b.js("[...document.querySelectorAll('figcaption b')].map((e) => e.textContent)")
    assert titles == ["Loss", "Gradient norm", "Learning rate", "Speed of each step", "MFU of each step", "Memory", "aux", "arc.acc"], titles
    keys = b.js(f"[...{figure(b, 'Loss')}.querySelectorAll('.key')].map((e) => e.textContent)")
    assert keys == ["training", "validation, 64 rows", "validation, 512 rows"], keys
    # The recipe's differences are unfolded, and the rest is folded.
    b.js("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    assert b.js("[...document.querySelectorAll('details pre')].some((p) => p.textContent.includes('batch = 3')) && document.body.innerText.includes('run.batch')")
    # Values under the cursor, and by keys.
    for title in titles:
        tip = move_to(b, title, 0.6, 0.5)
        assert tip.startswith("step 1"), (title, tip)
    assert "0.5" in move_to(b, "arc.acc", 0.1, 0.5)
    b.js(f"{figure(b, 'Gradient norm')}.querySelector('svg').focus()")
    for _ in range(2):
        b.press("ArrowRight", "ArrowRight", 39)
    tip = b.js(f"{figure(b, 'Gradient norm')}.querySelector('.tip').innerText")
    assert tip.startswith("step 2") and "0.5" in tip, tip
    # A logarithmic scale on and off.
    ticks = f"[...{figure(b, 'Gradient norm')}.querySelectorAll('svg text.end')].map((e) => e.textContent)"
    before = b.js(ticks)
    assert "0.1" in before and "0.01" in before, before
    b.js(f"{figure(b, 'Gradient norm')}.querySelector('.scale').click()")
    assert b.js(ticks) != before and b.js(f"{figure(b, 'Gradient norm')}.querySelector('.scale').getAttribute('aria-pressed')") == "false"
    # A curve that is hidden gives its range to the others.
    b.js(f"[...{figure(b, 'Loss')}.querySelectorAll('.key')].forEach((k) => k.textContent === 'training' || k.click())")
    assert b.js(f"{figure(b, 'Loss')}.querySelectorAll('circle.dot').length") == 0


def check_compression(b, page):
    opened(b, page, 1280, "light")
    shows(b, "tiny", "lumen chat -m 'tiny mixed.gguf'", "40.05 MiB", "3.81 times smaller", "0.0225 ± 0.0005", "93.75 %", "the least possible within the budget", "pairs", "0.6250",
          "its error is spread evenly", "narrow 400 bytes: 0.004", "1 min 02 s", "one row was left as it is", "kept at a high precision", "layer 0, expert 3", "all that can be had")
    names = b.js(f"[...{figure(b, 'Size against quality')}.querySelectorAll('svg text.name')].map((e) => e.textContent)")
    assert sorted(names) == ["five", "mixed", "two"], names
    place = b.js(f"(() => {{ const f = {figure(b, 'Size against quality')}, s = f.querySelector('svg').getBoundingClientRect(), d = f.querySelector('circle.dot.c0').getBoundingClientRect(); "
                 "return [(d.x + d.width / 2 - s.x) / s.width, (d.y + d.height / 2 - s.y) / s.height]; })()")
    tip = move_to(b, "Size against quality", *place)
    assert tip.startswith("five") and "5.5" in tip and "0.01" in tip, tip
    tip = move_to(b, "blk.2.attention_q", 0.65, 0.5)
    assert tip.startswith("0 to 0.5") and "5" in tip and "4" in tip, tip
    assert b.js("document.querySelectorAll('.map th[scope=row]').length") == 8
    bits = b.js("[...document.querySelectorAll('.map td[title]')].map((e) => e.style.getPropertyValue('--bits'))")
    assert set(bits) == {"8"} and len(bits) == 50, bits


def check_study(b, page):
    opened(b, page, 1280, "light")
    shows(b, "Ways of rounding", "Three seeds.", "1,234", "of a folder", "Compared", "Means.", "figure 13", "method 2", "49,152")
    assert b.js(f"[...{figure(b, 'Size and error')}.querySelectorAll('svg text.name')].map((e) => e.textContent)") == ["two", "four", "eight"]
    scale = f"{figure(b, 'Size and error')}.querySelector('.scale').getAttribute('aria-pressed')"
    assert b.js(scale) == "true"
    b.js(f"{figure(b, 'Size and error')}.querySelector('svg').focus()")
    b.press("ArrowRight", "ArrowRight", 39)
    tip = b.js(f"{figure(b, 'Size and error')}.querySelector('.tip').innerText")
    assert tip.startswith("two") and "1.5" in tip, tip


def main():
    program = find_browser()
    if not program:
        print("skipped: no chromium here (Debian: chromium-headless-shell)")
        sys.exit(77)
    lumen = str(Path(sys.argv[1]).resolve())
    keep = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    begin = time.time()
    with tempfile.TemporaryDirectory(prefix="lumen-report-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)

        def report(name, *runs):
            subprocess.run([lumen, "report", *map(str, runs), "-o", str(work / name), "-q"], check=True, stdout=subprocess.DEVNULL)
            return work / name
        one, two = write_run(work, "one", 1), write_run(work, "two", 1.5, 400)
        pages = {"run": report("run.html", one), "comparison": report("comparison.html", one, two), "compression": report("compression.html", write_compression(work / "c.json")),
                 "study": report("study.html", write_study(work / "s.json")), "evil study": report("evil-study.html", write_study(work / "evil-s.json", EVIL)),
                 "evil run": report("evil-run.html", write_run(work, "evil", 1, 40, EVIL)), "evil comparison": report("evil-comparison.html", work / "evil", one),
                 "evil compression": report("evil-compression.html", write_compression(work / "evil.json", EVIL))}
        b = Browser(program, work / "browser")
        try:
            check_run(b, pages["run"])
            check_compression(b, pages["compression"])
            check_study(b, pages["study"])
            for page in pages.values():
                for width, theme in ((1280, "light"), (1280, "dark"), (390, "light")):
                    opened(b, page, width, theme, keep)
            assert "onerror" in b.js("document.body.innerText") and "\\u202e" in b.js("document.body.innerText")
        finally:
            b.close()
        print(f"pages of reports: all is as it should be, {time.time() - begin:.1f} s")


if __name__ == "__main__":
    main()
