#!/usr/bin/env python3
"""Pictures in requests to `lumen serve`, with the tiny models of tests/model/fixtures/pictures: each API and each way to name a picture
gives the text of `lumen run --image`; sequences with pictures run among others; equal pictures share a prefix and different ones do not;
and whatever a stranger sends instead of a picture is refused with its place.

usage: pictures_check.py LUMEN
"""
import base64
import concurrent.futures
import http.server
import json
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

from serve_check import Served

LUMEN = str(Path(sys.argv[1]).resolve())
FIXTURES = Path(__file__).resolve().parents[2] / "model/fixtures"
PICTURES, SHOWN = FIXTURES / "pictures", FIXTURES / "pictures/shown"
MARK = "<|vision_start|><|image_pad|><|vision_end|>"
TYPES = {"png": "image/png", "jpg": "image/jpeg", "webp": "image/webp", "bmp": "image/bmp"}
MORE = 12  # tokens of an answer

# Takes lists of parts, as templates of models that see do; and strings.
SEEING = """{% for m in messages %}[{{ m['role'] }}] {% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] %}\
{% if p['type'] == 'image' or 'image_url' in p %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in p %}{{ p['text'] }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""
BLIND = """{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""


def b64(data):
    return base64.b64encode(data).decode()


def data_url(name):
    return f"data:{TYPES[name.rsplit('.')[-1]]};base64,{b64((SHOWN / name).read_bytes())}"


def part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def text(words):
    return {"type": "text", "text": words}


def chat(content, **more):
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": MORE, **more}


def answer(server, content, **more):
    out = server.json("/v1/chat/completions", chat(content, **more))
    return out["choices"][0]["message"]["content"], out["usage"]


def run_text(model, prompt, *pictures):
    """What `lumen run` writes for the prompt that the template makes."""
    images = [word for name in pictures for word in ("--image", str(SHOWN / name))]
    done = subprocess.run([LUMEN, "run", "-m", str(model), "--exact", "--temp", "0", "-n", str(MORE), "--threads", "1",
                           "--no-display-prompt", "--no-markdown", "-p", prompt, *images], capture_output=True, stdin=subprocess.DEVNULL,
                          timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.endswith(b"\n")
    return done.stdout[:-1].decode(errors="replace")


def png_of(width, height, rows=b"", kind=2):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def same_text_as_run(server, model):
    content = [text("What is "), part(data_url("wide.png")), text(" and "), part(data_url("tall.webp")), text("? ")]
    prompt = f"[user] What is {MARK} and {MARK}? <|im_end|>\n[assistant] "
    want = run_text(model, prompt, "wide.png", "tall.webp")
    got, usage = answer(server, content)
    assert got == want and want, (model.name, got, want)
    # Each place is as many tokens as the picture has rows; the words are single bytes here, and names of tokens one token.
    words = len(prompt.replace(MARK, "ab").replace("<|im_end|>", "c"))
    assert usage["prompt_tokens"] > words + 30, (usage, words)
    counted = server.json("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [
        text("What is "), image_block("wide.png"), text(" and "), image_block("tall.webp"), text("? ")]}]})
    assert counted["input_tokens"] == usage["prompt_tokens"], (counted, usage)
    # The order of parts is kept: pictures behind the text, and the other way round.
    for order, names in ((f"ab{MARK}{MARK}", ("wide.png", "tall.jpg")), (f"{MARK}ab{MARK}", ("tall.jpg", "wide.bmp"))):
        pieces, rest = [], list(names)
        for piece in order.replace(MARK, "\0|\0").split("\0"):
            pieces += [part(data_url(rest.pop(0)))] if piece == "|" else [text(piece)] if piece else []
        want = run_text(model, f"[user] {order}<|im_end|>\n[assistant] ", *names)
        got = answer(server, pieces)[0]
        assert got == want, (model.name, order, got, want)
    # Words of a user that look like a place are words.
    got = answer(server, [text(MARK), part(data_url("wide.png"))])
    assert got[1]["prompt_tokens"] > answer(server, [part(data_url("wide.png"))])[1]["prompt_tokens"] + 30
    assert server.json("/apply-template", chat(content))["prompt"] == prompt


def image_block(name):
    return {"type": "image", "source": {"type": "base64", "media_type": TYPES[name.rsplit(".")[-1]], "data": b64((SHOWN / name).read_bytes())}}


def all_apis(server):
    want = answer(server, [part(data_url("wide.png")), text("hello")])[0]
    said = server.json("/v1/messages", {"messages": [{"role": "user", "content": [image_block("wide.png"), text("hello")]}],
                                        "max_tokens": MORE, "temperature": 0})
    assert said["content"][0]["text"] == want, (said, want)
    said = server.json("/v1/responses", {"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": data_url("wide.png")}, {"type": "input_text", "text": "hello"}]}],
        "max_output_tokens": MORE, "temperature": 0})
    assert said["output"][0]["content"][0]["text"] == want, (said, want)
    # The next turn of a stored response has the picture, too.
    more = server.json("/v1/responses", {"input": "and?", "previous_response_id": said["id"], "max_output_tokens": MORE, "temperature": 0})
    assert more["usage"]["input_tokens"] > said["usage"]["input_tokens"], (said["usage"], more["usage"])
    plain = {"temperature": 0, "num_predict": MORE, "repeat_penalty": 1.0}
    picture = b64((SHOWN / "wide.png").read_bytes())
    said = server.json("/api/chat", {"messages": [{"role": "user", "content": "hello", "images": [picture]}], "stream": False, "options": plain})
    assert said["message"]["content"] == want, (said, want)
    said = server.json("/api/generate", {"prompt": "hello", "images": [picture], "stream": False, "options": plain})
    assert said["response"] == want, (said, want)
    # Streams have the same text.
    status, _, lines = server.ask("/v1/chat/completions", chat([part(data_url("wide.png")), text("hello")], stream=True))
    events = [json.loads(line[6:]) for line in lines.splitlines() if line.startswith("data: {")]
    assert status == 200 and "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]) == want
    # Results of tools may be pictures.
    calls = [{"role": "user", "content": "look"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "see", "input": {}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [image_block("wide.png")]}]}]
    counted = server.json("/v1/messages/count_tokens", {"messages": calls})["input_tokens"]
    calls[2]["content"][0]["content"] = ""
    assert counted > server.json("/v1/messages/count_tokens", {"messages": calls})["input_tokens"] + 10


def told(server):
    assert server.json("/props")["modalities"]["vision"] is True
    assert server.json("/v1/models")["data"][0]["input_modalities"] == ["text", "image"]
    assert "vision" in server.json("/api/show", {"model": ""})["capabilities"]


def together(server):
    """Answers do not depend on what else runs."""
    asks = []
    for i, name in enumerate(["wide.png", "tall.webp", "tall.jpg", "wide.bmp"] * 3):
        asks.append([text(f"{i} "), part(data_url(name)), text(" what?")])
        asks.append(f"{i} only words")
        asks.append([part(data_url(name)), part(data_url("wide.png")), text("both")])
    alone = [answer(server, ask)[0] for ask in asks]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        both = list(pool.map(lambda ask: answer(server, ask)[0], asks))
    for ask, one, many in zip(asks, alone, both):
        assert one == many, (ask if isinstance(ask, str) else ask[-1], one, many)


def prefixes(server):
    """Cached positions are those of equal pictures."""
    def cached(content):
        return answer(server, content)[1]["prompt_tokens_details"]["cached_tokens"]
    words = text("x" * 40)
    content = [words, part(data_url("tall.webp")), text("y" * 40)]
    first = answer(server, content)
    again = answer(server, content)
    assert first[0] == again[0]
    whole = again[1]["prompt_tokens"]
    assert again[1]["prompt_tokens_details"]["cached_tokens"] >= whole - 16, again
    # The same pixels in another kind of file are the same picture.
    other = (SHOWN / "tall.webp.rgb").read_bytes()
    width, height = struct.unpack("<II", other[:8])
    rows = b"".join(b"\0" + other[8 + y * width * 3:8 + (y + 1) * width * 3] for y in range(height))
    assert cached([words, part(f"data:image/png;base64,{b64(png_of(width, height, rows))}"), text("y" * 40)]) >= whole - 16
    # Another picture of the same size: only what stands before it.
    changed = bytearray(rows)
    changed[len(changed) // 2] ^= 0x55
    got = cached([words, part(f"data:image/png;base64,{b64(png_of(width, height, bytes(changed)))}"), text("y" * 40)])
    assert got <= len("[user] ") + 40 + 1, got
    # And the answer is that of a server that has seen nothing before: the caller compares.
    return [words, part(f"data:image/png;base64,{b64(png_of(width, height, bytes(changed)))}"), text("y" * 40)]


def refused(server, content, words, status=400, param="messages[0].content[0]", **more):
    error = server.json("/v1/chat/completions", chat(content, **more), status=status)["error"]
    assert words in error["message"], (words, error)
    assert error["param"] == param, (param, error)


def hostile(server):
    good = (SHOWN / "wide.png").read_bytes()
    url = "data:image/png;base64,"
    refused(server, [part(url + "%%%")], "base64")
    refused(server, [part(url + b64(good)[:-400])], "damaged")
    refused(server, [part(url + b64(good)[:-3])], "base64")
    refused(server, [part(url)], "no data")
    refused(server, [part("data:image/png," + b64(good))], "base64")
    refused(server, [part("data:image/png")], "comma")
    refused(server, [part(url + b64(good[:300]))], "damaged")
    refused(server, [part(url + b64(b"GIF89a" + bytes(40)))], "no picture that can be read")
    refused(server, [part("data:image/gif;base64," + b64(b"GIF89a" + bytes(40)))], "media type 'image/gif'")
    refused(server, [part("data:text/html;base64," + b64(b"<html>"))], "media type 'text/html'")
    refused(server, [part("data:image/svg+xml;base64," + b64(b"<svg/>"))], "media type 'image/svg+xml'")
    # Few bytes that say that they are many pixels; and many equal rows.
    refused(server, [part(url + b64(png_of(60000, 60000, bytes(1 << 20))))], "pixels")
    refused(server, [part(url + b64(png_of(65535, 900, bytes(65536 * 900 // 3))))], "")
    refused(server, [part(url + b64(png_of(2000, 2, bytes(2 * 6001))))], "times the other")
    refused(server, [part(url + b64(png_of(0, 0)))], "")
    refused(server, [text("a"), part("ftp://127.0.0.1/a.png")], "no address that is read", param="messages[0].content[1]")
    refused(server, [part("javascript:alert(1)")], "no address that is read")
    # What this server was not allowed to read.
    refused(server, [part("http://127.0.0.1:1/a.png")], "fetches no pictures", status=403)
    refused(server, [part("file:///etc/passwd")], "reads no files", status=403)
    refused(server, [part("/etc/passwd")], "reads no files", status=403)
    # Parts that are wrong.
    refused(server, [{"type": "image_url"}], "image_url", param="messages")
    refused(server, [{"type": "image_url", "image_url": {"url": 7}}], "image_url", param="messages")
    refused(server, [{"type": "image"}], "image_url", param="messages")
    refused(server, [{"type": "input_audio", "input_audio": {}}], "other than text", param="messages")
    refused(server, [part(data_url("wide.png"))] * 17, "may have 16", param="messages[0].content[16]")
    for path, body in (("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["%"]}]}),
                       ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": "x"}]}),
                       ("/api/generate", {"prompt": "a", "images": [7]}),
                       ("/v1/messages", {"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}]}),
                       ("/v1/messages", {"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]}),
                       ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]})):
        server.json(path, body, status=400)
    # The server still answers.
    assert answer(server, "hello")[0] == answer(server, "hello")[0]


def files(server, media):
    want = answer(server, [part(data_url("wide.png"))])[0]
    for address in (f"file://{media}/wide.png", f"{media}/wide.png", "wide.png", "file:wide.png", "file://wide.png", "in/../wide.png",
                    f"file://localhost{media}/in/a%20b.png"):
        assert answer(server, [part(address)])[0] == want, address
    for address in ("file:///etc/passwd", "/etc/passwd", "../secret.png", "in/../../secret.png", "link.png", "linked/secret.png", "in",
                    "missing.png", "file://%2e%2e/secret.png", "a%00b", f"{media}2/secret.png", ""):
        refused(server, [part(address)], "--media-path", status=403)
    refused(server, [part("file://%zz")], "no address of a file")
    refused(server, [part("large.png")], "cannot be read")
    refused(server, [part("words.png")], "no picture that can be read")


class Web(http.server.BaseHTTPRequestHandler):
    seen = []

    def do_GET(self):
        Web.seen.append(self.path)
        good = (SHOWN / "wide.png").read_bytes()
        if self.path == "/wide.png":
            self.reply(good, "image/png")
        elif self.path == "/html":
            self.reply(b"<html>", "text/html")
        elif self.path.startswith("/loop"):
            self.move("/loop2" if self.path == "/loop" else "/loop")
        elif self.path == "/once":
            self.move("/wide.png")
        elif self.path == "/away":
            self.move("file:///etc/passwd")
        elif self.path == "/missing":
            self.send_error(404)
        elif self.path == "/large":
            self.reply(good + bytes(4 << 20), "image/png")
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                pass
        elif self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(200):
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.2)
            except OSError:
                pass

    def reply(self, data, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            pass

    def move(self, to):
        self.send_response(302)
        self.send_header("Location", to)
        self.end_headers()

    def log_message(self, *_):
        pass


def urls(server, web, is_private):
    if not is_private:
        before = len(Web.seen)
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1"):
            refused(server, [part(f"http://{host}:{web}/wide.png")], "cannot be fetched")
        assert len(Web.seen) == before, "a private address was asked"
        return
    want = answer(server, [part(data_url("wide.png"))])[0]
    place = f"http://127.0.0.1:{web}"
    assert answer(server, [part(place + "/wide.png")])[0] == want
    assert answer(server, [part(place + "/once")])[0] == want
    refused(server, [part(place + "/loop")], "more than 3 times")
    refused(server, [part(place + "/away")], "leads to no address")
    refused(server, [part(place + "/missing")], "answers 404")
    refused(server, [part(place + "/large")], "longer than")
    refused(server, [part(place + "/endless")], "longer than")
    refused(server, [part(place + "/html")], "media type 'text/html'")
    refused(server, [part("http://")], "no address of a picture")
    begin = time.time()
    refused(server, [part(place + "/slow")], "cannot be fetched")
    assert time.time() - begin < 25, "a slow server was waited for"


def main():
    models = sorted(p for p in PICTURES.iterdir() if p != SHOWN)
    with tempfile.TemporaryDirectory(prefix="lumen-pictures-") as folder:
        work = Path(folder).resolve()
        (work / "seeing.jinja").write_text(SEEING)
        (work / "blind.jinja").write_text(BLIND)
        for model in models:
            server = Served(LUMEN, work, "-m", model, "--exact", "--chat-template", "seeing.jinja", "--ctx-size", "2048")
            try:
                same_text_as_run(server, model)
                if model != models[0]:
                    continue
                all_apis(server)
                told(server)
                together(server)
                changed = prefixes(server)
                after = answer(server, changed)[0]
                hostile(server)
            finally:
                server.process.kill()
            # A template without pictures: they stand where their parts do. And a server that has seen nothing.
            server = Served(LUMEN, work, "-m", model, "--exact", "--chat-template", "blind.jinja", "--ctx-size", "2048", "--keep-sequences", "0")
            try:
                same_text_as_run(server, model)
                assert answer(server, changed)[0] == after, "an answer was made from another picture's rows"
            finally:
                server.process.kill()
        model = models[0]
        media = work / "media"
        (media / "in").mkdir(parents=True)
        for name in ("wide.png", "in/a b.png"):
            (media / name).write_bytes((SHOWN / "wide.png").read_bytes())
        for name in ("secret.png", "media2/secret.png"):
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_bytes((SHOWN / "wide.png").read_bytes())
        (media / "link.png").symlink_to(work / "secret.png")
        (media / "linked").symlink_to(work)
        (media / "large.png").write_bytes(bytes(2 << 20))
        (media / "words.png").write_bytes(b"no picture")
        web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
        threading.Thread(target=web.serve_forever, daemon=True).start()
        port = web.server_address[1]
        server = Served(LUMEN, work, "-m", model, "--exact", "--chat-template", "seeing.jinja", "--media-path", media, "--image-urls", "on",
                        "--image-size", "1M", "--strict")
        try:
            files(server, media)
            urls(server, port, False)
            refused(server, [part("data:image/jpeg;base64," + b64((SHOWN / "wide.png").read_bytes()))], "not that of the picture's data")
        finally:
            server.process.kill()
        server = Served(LUMEN, work, "-m", model, "--exact", "--chat-template", "seeing.jinja", "--image-urls", "any", "--image-size", "1M",
                        "--ctx-size", "64")
        try:
            urls(server, port, True)
            # Rows of pictures fill the context: the picture that has no room is named.
            error = server.json("/v1/chat/completions", chat([part(data_url("wide.png"))] * 5), status=400)["error"]
            assert error["code"] == "context_length_exceeded" and error["param"] == "messages[0].content[2]", error
            # Programs often name the wrong kind: the data decides, and the answer says so.
            said = server.json("/v1/chat/completions", chat([part("data:image/jpeg;base64," + b64((SHOWN / "wide.png").read_bytes()))]))
            assert "media type" in said["warnings"][0], said
        finally:
            server.process.kill()
        # Models, and servers, that read no pictures.
        for words in (["-m", model, "--no-pictures"], ["-m", blind(work, model)]):
            server = Served(LUMEN, work, *words, "--chat-template", "seeing.jinja")
            try:
                refused(server, [part(data_url("wide.png"))], "reads no pictures")
                assert server.json("/props")["modalities"]["vision"] is False
                assert server.json("/v1/models")["data"][0]["input_modalities"] == ["text"]
                if "--no-pictures" in words:
                    assert answer(server, "hello")[1]["prompt_tokens"] > 5
            finally:
                server.process.kill()
    print("pictures in requests: as `lumen run` reads them, and strangers are refused")


def blind(work, model):
    """A model of text, with the tokenizer of one that sees."""
    folder = work / "blind"
    folder.mkdir()
    for file in (FIXTURES / "families/llama").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    return folder


if __name__ == "__main__":
    main()
