#!/usr/bin/env python3
"""`lumen run --image` and `/image` of `lumen chat` with the tiny models of tests/model/fixtures/pictures: the most likely tokens are those of transformers, pictures
stand before a prompt that has no places for them, and what cannot be read is refused by name.

usage: pictures_check.py LUMEN
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LUMEN = sys.argv[1]
FIXTURES = Path(__file__).resolve().parents[2] / "model/fixtures"
PICTURES, SHOWN = FIXTURES / "pictures", FIXTURES / "pictures/shown"
MARK = "<|vision_start|><|image_pad|><|vision_end|>"


def run(model, *words):
    return subprocess.run([LUMEN, "run", "-m", str(model), "--exact", "--temp", "0", "-n", "8", "--no-display-prompt", "--no-markdown",
                           *map(str, words)], capture_output=True, stdin=subprocess.DEVNULL, timeout=300)


# One template that knows pictures, and one that does not.
SEEING = """{% for m in messages %}[{{ m['role'] }}] {% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] %}\
{% if p['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""
BLIND = """{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""


def chat(model, template, lines, *words):
    return subprocess.run([LUMEN, "chat", "-m", str(model), "--exact", "--temp", "0", "-n", "8", "--no-markdown", "--chat-template", str(template),
                           *map(str, words)], capture_output=True, input="".join(line + "\n" for line in lines).encode(), timeout=300)


def chats(model, folder):
    wide, tall = SHOWN / "wide.png", SHOWN / "tall.webp"
    kept = Path(folder) / "kept.json"
    for name, text in (("seeing", SEEING), ("blind", BLIND)):
        template = Path(folder) / f"{name}.jinja"
        template.write_text(text)
        want = run(model, "-p", f"[user] {MARK}{MARK}both?<|im_end|>\n[assistant] ", "--image", wide, "--image", tall)
        done = chat(model, template, [f"/image {wide}", f"/image {tall}", "both?", f"/save {kept}", "/undo", "both?"])
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout.startswith(want.stdout) and want.stdout.strip(), (done.stdout, want.stdout)
        blind = run(model, "-p", "[user] both?<|im_end|>\n[assistant] ")
        assert done.stdout == want.stdout + blind.stdout, "a picture stayed after its question was taken back"
        # A kept conversation has its pictures; another answer to the question is the same one.
        again = chat(model, template, ["/regenerate", "/history"], "--load", kept)
        assert again.returncode == 0 and again.stdout == want.stdout, (again.stderr.decode(), again.stdout)
        assert f"[{wide}]" in again.stderr.decode(), again.stderr.decode()
    said(chat(model, template, [f"/image {folder}/missing.png"]), "missing.png")
    said(chat(model, template, [f"/image {SHOWN / 'wide.png.rgb'}"]), "no picture that can be read")


def said(done, text):
    assert done.returncode != 0 and text in done.stderr.decode(), (text, done.returncode, done.stderr.decode())


def greedy(folder):
    """The bytes of the expected tokens: ids below 256 are letters of the byte-level alphabet, in the tokenizer's order."""
    data = (folder / "expected.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])["greedy"]["data_offsets"]
    ids = struct.unpack(f"<{(end - begin) // 4}i", data[8 + size + begin:8 + size + end])
    words = {i: word for word, i in json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"].items()}
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in plain)}
    return b"".join(bytes(letters[c] for c in words.get(i, "")) for i in ids)


def main():
    models = sorted(p for p in PICTURES.iterdir() if p != SHOWN)
    assert len(models) >= 3
    two = ["--image", SHOWN / "wide.png", "--image", SHOWN / "tall.webp"]
    for model in models:
        done = run(model, "-p", f"What is {MARK} and {MARK}? ", *two)
        assert done.returncode == 0, done.stderr.decode()
        want = greedy(model).decode(errors="replace")
        assert done.stdout.decode(errors="replace").rstrip("\n") == want.rstrip("\n"), (model.name, done.stdout, want)
    model = models[0]
    before, marked = run(model, "-p", "hello", *two), run(model, "-p", MARK + MARK + "hello", *two)
    assert before.returncode == 0 and before.stdout == marked.stdout
    assert before.stdout != run(model, "-p", "hello", *two[2:], *two[:2]).stdout, "the order of pictures changes nothing"
    said(run(model, "-p", MARK, *two), "1 places for pictures")
    said(run(model, "-p", "hello", "--image", SHOWN / "wide.png.rgb"), "wide.png.rgb: this is no picture that can be read")
    said(run(model, "--image", SHOWN / "wide.png"), "--image goes with the prompt")
    said(run(FIXTURES / "families/llama", "-p", "a", "--image", SHOWN / "wide.png"), "tokenizer")
    with tempfile.TemporaryDirectory() as folder:
        blind = Path(folder) / "blind"
        blind.mkdir()
        for file in (FIXTURES / "families/llama").iterdir():
            (blind / file.name).write_bytes(file.read_bytes())
        (blind / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
        said(run(blind, "-p", "a", "--image", SHOWN / "wide.png"), "reads no pictures")
        chats(model, folder)
        said(chat(blind, Path(folder) / "blind.jinja", [f"/image {SHOWN / 'wide.png'}"]), "reads no pictures")
        cut = Path(folder) / "cut.jpg"
        cut.write_bytes((SHOWN / "tall.jpg").read_bytes()[:700])
        said(run(model, "-p", "a", "--image", cut), "cut.jpg: the JPEG data is damaged")
    print("pictures: as transformers sees them")


main()
