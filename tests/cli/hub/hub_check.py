#!/usr/bin/env python3
"""`lumen pull`, `list` and `rm` against a stand-in of the Hugging Face hub: the cache's layout, tokens, redirects, interrupted and wrong downloads,
refusals, hostile answers, two downloads at once.

Usage: tests/cli/hub/hub_check.py LUMEN
"""
import hashlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LONGEST = 120  # seconds of anything, on a machine that has much else to do
COMMIT, OTHER = "a" * 40, "b" * 40
LARGE = bytes(range(256)) * 12000  # 3 MB


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """Files by path; those in `large` are contents of the second host."""

    def __init__(self, files, commit=COMMIT, large=(".gguf", ".safetensors")):
        self.files, self.commit = files, commit
        self.large = {path for path in files if path.endswith(large)}

    def etag(self, path):
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if path in self.large else git_sha1(data)


class Server:
    """An HTTP server of this process: `answer(request)` handles GET and HEAD."""

    def __init__(self, answer):
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler):
                self.requests.append((handler.command, handler.path, dict(handler.headers)))
                try:
                    answer(handler)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            do_HEAD = do_GET

            def log_message(handler, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # clients that close connections
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def reply(handler, status, body=b"", **headers):
    handler.send_response(status)
    fields = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    for name, value in fields.items():
        if value is not None:
            handler.send_header(name, value)
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(body)


class Hub:
    """The hub and the second host that has large contents. Tests replace `on_list`, `on_file` and `on_contents`, which return whether they have answered."""

    def __init__(self, repositories):
        self.repositories = repositories
        self.on_list = self.on_file = self.on_contents = lambda *_: False
        self.hub, self.contents = Server(self.answer), Server(self.answer_contents)

    def close(self):
        self.hub.close()
        self.contents.close()

    def answer(self, handler):
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/?]+)", handler.path):
            repository = self.repositories.get(found[1])
            if self.on_list(handler, *found.groups()):
                return
            if not repository:
                return reply(handler, 401, b"{}", X_Error_Code="RepoNotFound")
            if found[2] not in ("main", repository.commit, "v1"):
                return reply(handler, 404, b"{}", X_Error_Code="RevisionNotFound")
            body = {"sha": repository.commit, "siblings": [{"rfilename": path} for path in repository.files]}
            return reply(handler, 200, json.dumps(body).encode())
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/(main|[0-9a-f]{40})/(.+)", handler.path)
        repository = self.repositories[found[1]]
        path = found[3]
        if self.on_file(handler, repository, path):
            return None
        etag, data = f'"{repository.etag(path)}"', repository.files[path]
        if path in repository.large:
            return reply(handler, 302, X_Repo_Commit=repository.commit, X_Linked_Etag=etag, X_Linked_Size=str(len(data)), ETag='"of-the-host"',
                         Location=f"{self.contents.url}/{repository.etag(path)}")
        return send_range(handler, data, X_Repo_Commit=repository.commit, ETag=etag)

    def answer_contents(self, handler):
        name = handler.path[1:].split("?")[0]
        data = next(r.files[path] for r in self.repositories.values() for path in r.large if r.etag(path) == name)
        if not self.on_contents(handler, data):
            send_range(handler, data)


def begin_of(handler):
    found = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    return int(found[1]) if found else 0


def send_range(handler, data, **headers):
    begin = begin_of(handler)
    if begin:
        reply(handler, 206, data[begin:], Content_Range=f"bytes {begin}-{len(data) - 1}/{len(data)}", **headers)
    else:
        reply(handler, 200, data, **headers)


class Case:
    """A stand-in and an empty cache for one test."""

    def __init__(self, lumen, work, repositories=None):
        self.lumen, self.work = lumen, Path(tempfile.mkdtemp(dir=work))
        self.hub = Hub(repositories if repositories is not None else {"user/small": usual()})
        self.cache = self.work / "cache"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "LUMEN_", "HUGGING", "TRANSFORMERS_"))}
        self.environment = {**kept, "HF_ENDPOINT": self.hub.hub.url, "HF_HUB_CACHE": str(self.cache), "HOME": str(self.work), "LUMEN_CACHE": "off",
                            "XDG_CONFIG_HOME": str(self.work / "config"), "XDG_CACHE_HOME": str(self.work / "xdg")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.close()

    def start(self, *words):
        return subprocess.Popen([self.lumen, *words], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *words, code=0):
        process = self.start(*words)
        out, error = process.communicate(timeout=LONGEST)
        assert process.returncode == code, (words, process.returncode, out, error)
        return out if code == 0 else error

    def refused(self, words, *parts, code=1):
        error = self.run(*words, code=code)
        for part in parts:
            assert part in error, (words, part, error)
        assert not list(self.work.glob("etc")) and not (self.work / "escaped").exists()
        return error

    def folder(self, name="user/small"):
        return self.cache / ("models--" + name.replace("/", "--"))

    def blobs(self, name="user/small"):
        return {path.name: path.read_bytes() for path in (self.folder(name) / "blobs").glob("*")}


def usual():
    return Repository({
        "README.md": b"words\n", "small-Q4_K_M.gguf": LARGE, "small-Q8_0.gguf": LARGE[:-1], "mmproj-small-f16.gguf": b"projector",
        "big/small-BF16-00001-of-00002.gguf": LARGE[:1000], "big/small-BF16-00002-of-00002.gguf": LARGE[:2000]})


def check_layout(lumen, work):
    with Case(lumen, work) as case:
        listed = case.run("pull", "hf:user/small", "--dry-run")
        assert "small-Q4_K_M.gguf" in listed and not case.blobs(), listed
        path = Path(case.run("pull", "hf:user/small").strip())
        digest = hashlib.sha256(LARGE).hexdigest()
        assert path == case.folder() / "snapshots" / COMMIT / "small-Q4_K_M.gguf", path
        assert path.read_bytes() == LARGE and os.readlink(path) == f"../../blobs/{digest}"
        assert (case.folder() / "refs/main").read_text() == COMMIT
        assert set(case.blobs()) == {digest}
        case.run("pull", "user/small:bf16@v1")
        part = case.folder() / "snapshots" / COMMIT / "big/small-BF16-00002-of-00002.gguf"
        assert part.read_bytes() == LARGE[:2000] and os.readlink(part).startswith("../../../blobs/")
        assert (case.folder() / "refs/v1").read_text() == COMMIT
        case.run("pull", "user/small/small-Q8_0.gguf")
        assert len(case.blobs()) == 4
        before = len(case.hub.contents.requests)
        case.run("pull", "user/small", "user/small:q8_0")
        assert len(case.hub.contents.requests) == before, "downloaded again"
        case.refused(["pull", "user/small:Q5_0"], "does not select one file", "Q4_K_M")
        case.refused(["pull", "user/small/absent.gguf"], "no file absent.gguf")
        case.refused(["pull", "user/small@v2"], "has no revision 'v2'")
        case.refused(["pull", "user"], "USER/REPO", code=2)
        # Commands find it under each of its names; this file is no model, which they report with its path.
        for name in ("hf:user/small:Q4_K_M", "user/small", "small:q4_k_m"):
            case.refused(["inspect", name], str(path))
        case.refused(["run", "-m", "hf:user/absent", "-p", "x"], "is not in the local cache", "lumen pull user/absent")
        assert not any("absent" in asked for _, asked, _ in case.hub.hub.requests), "run has asked the hub"


def check_safetensors(lumen, work):
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    files = {"config.json": b"{}", "tokenizer.json": b"{ }", "model-00001-of-00002.safetensors": b"one", "model-00002-of-00002.safetensors": b"two",
             "model.safetensors.index.json": json.dumps(index).encode(), "pytorch_model.bin": b"program", "README.md": b""}
    lacking = {path: data for path, data in files.items() if "00002-of" not in path or path.endswith("json")}
    hostile = {**files, "model.safetensors.index.json": json.dumps({"weight_map": {"a": "../../../escaped"}}).encode()}
    pickled = {"config.json": b"{}", "pytorch_model.bin": b"program"}
    repositories = {"user/folder": Repository(files), "user/lacking": Repository(lacking), "user/hostile": Repository(hostile),
                    "user/pickled": Repository(pickled), "user/data": Repository({"README.md": b""})}
    with Case(lumen, work, repositories) as case:
        snapshot = Path(case.run("pull", "user/folder").strip())
        assert {path.name for path in snapshot.iterdir()} == set(files) - {"pytorch_model.bin", "README.md"}
        assert os.readlink(snapshot / "config.json") == f"../../blobs/{git_sha1(b'{}')}"
        case.refused(["pull", "user/folder:Q4_K_M"], "no GGUF files")
        case.refused(["pull", "user/lacking"], "lacks model-00002-of-00002.safetensors")
        case.refused(["pull", "user/hostile"], "is in no file of the repository")
        case.refused(["pull", "user/pickled"], "pickled", "programs")
        case.refused(["pull", "user/data"], "neither safetensors nor GGUF")


def check_tokens(lumen, work):
    def sent(server):
        return {headers.get("Authorization") for _, _, headers in server.requests}

    with Case(lumen, work) as case:
        case.environment["HF_TOKEN"] = "hf_secret"
        case.run("pull", "user/small")
        assert sent(case.hub.hub) == {"Bearer hf_secret"} and sent(case.hub.contents) == {None}
        case.environment["HF_TOKEN"] = "two words"
        case.refused(["pull", "user/small"], "HF_TOKEN holds no token")
    with Case(lumen, work) as case:
        case.environment["HF_HOME"] = str(case.work / "home")
        (case.work / "home").mkdir()
        (case.work / "home/token").write_text("hf_stored\n")
        case.run("pull", "user/small")
        assert sent(case.hub.hub) == {"Bearer hf_stored"}
        case.hub.on_list = lambda handler, *_: reply(handler, 401, b"", X_Error_Message="Invalid credentials") or True
        case.refused(["pull", "user/small"], "refuses the token", "Invalid credentials")


def cut_after(times, bytes_sent, counts):
    """Contents whose connection ends early the first times."""
    def answer(handler, data):
        counts.append(begin_of(handler))
        if len(counts) > times:
            return False
        begin = begin_of(handler)
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Length", str(len(data) - begin))
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        handler.wfile.write(data[begin:begin + bytes_sent])
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.shutdown(2)
        return True
    return answer


def check_resume(lumen, work):
    with Case(lumen, work) as case:
        counts = []
        case.hub.on_contents = cut_after(2, 500_000, counts)
        case.run("pull", "user/small")
        assert counts == [0, 500_000, 1_000_000], counts
    with Case(lumen, work) as case:  # a failure keeps the part, from which the next start continues
        counts = []
        case.hub.on_contents = cut_after(1, 700_000, counts)
        case.refused(["pull", "user/small", "--retries", "0"], "the connection ended")
        assert [len(data) for data in case.blobs().values()] == [700_000]
        case.run("pull", "user/small")
        assert counts == [0, 700_000] and set(case.blobs()) == {hashlib.sha256(LARGE).hexdigest()}
    with Case(lumen, work) as case:  # a host without ranges sends the whole file
        part = case.folder() / "blobs" / (hashlib.sha256(LARGE).hexdigest() + ".incomplete")
        part.parent.mkdir(parents=True)
        part.write_bytes(LARGE[:1000])
        case.hub.on_contents = lambda handler, data: reply(handler, 200, data) or True
        assert Path(case.run("pull", "user/small").strip()).read_bytes() == LARGE
    with Case(lumen, work) as case:  # a part with other contents is found by the hash, and the download starts again
        part = case.folder() / "blobs" / (hashlib.sha256(LARGE).hexdigest() + ".incomplete")
        part.parent.mkdir(parents=True)
        part.write_bytes(b"x" * 1000)
        assert Path(case.run("pull", "user/small").strip()).read_bytes() == LARGE
        part.write_bytes(b"x" * (len(LARGE) + 5))  # longer than the file
        (case.folder() / "blobs" / hashlib.sha256(LARGE).hexdigest()).unlink()
        assert Path(case.run("pull", "user/small").strip()).read_bytes() == LARGE


def check_interrupt(lumen, work):
    with Case(lumen, work) as case:
        started = threading.Event()

        def slow(handler, data):
            if started.is_set():
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:600_000])
            handler.wfile.flush()
            started.set()
            time.sleep(LONGEST)
            return True

        case.hub.on_contents = slow
        process = case.start("pull", "user/small")
        assert started.wait(LONGEST)
        until = time.time() + LONGEST
        while sum(map(len, case.blobs().values())) < 600_000 and time.time() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130, process.returncode
        assert [len(data) for data in case.blobs().values()] == [600_000]
        before = len(case.hub.contents.requests)
        case.run("pull", "user/small")
        assert case.hub.contents.requests[before][2]["Range"] == "bytes=600000-"


def check_wrong_contents(lumen, work):
    wrong = b"x" * len(LARGE)
    with Case(lumen, work) as case:
        case.hub.on_contents = lambda handler, data: reply(handler, 200, wrong) or True
        case.refused(["pull", "user/small"], "do not have the hash", code=5)
        assert not any(case.blobs().values()) and not list(case.folder().glob("snapshots/*/*"))
        case.hub.on_contents = lambda handler, data: reply(handler, 200, LARGE + b"more") or True
        case.refused(["pull", "user/small"], "announces")
        case.hub.on_contents = lambda handler, data: reply(handler, 200, LARGE + b"more", Content_Length=None, Connection="close") or True
        case.refused(["pull", "user/small"], "sends more than")
        case.hub.on_contents = lambda handler, data: reply(handler, 206, data, Content_Range=f"bytes 5-{len(data) - 1}/{len(data)}") or True
        case.refused(["pull", "user/small"], "range")
    with Case(lumen, work, {"user/small": Repository({"config.json": b"{}", "model.safetensors": b"x"})}) as case:
        good = case.hub.repositories["user/small"]
        case.hub.on_file = lambda handler, repository, path: path == "config.json" and handler.command == "GET" and (
            reply(handler, 200, b"[]", X_Repo_Commit=COMMIT, ETag=f'"{good.etag(path)}"') or True)
        case.refused(["pull", "user/small"], "config.json: the contents do not have the hash", code=5)


def check_statuses(lumen, work):
    def answers(status, count, **headers):
        left = [count]

        def answer(handler, *_):
            left[0] -= 1
            return left[0] >= 0 and (reply(handler, status, b"{}", **headers) or True)
        return answer

    with Case(lumen, work) as case:
        case.refused(["pull", "user/absent"], "no public repository 'user/absent'", "HF_TOKEN")
        case.hub.on_list = answers(403, 9, X_Error_Code="GatedRepo", X_Error_Message="Access to it\x1b[31m is restricted")
        error = case.refused(["pull", "user/small"], "terms are accepted", "/user/small")
        assert "\x1b" not in error
        case.hub.on_list = answers(403, 9)
        case.refused(["pull", "user/small"], "forbids access")
        case.hub.on_list = answers(404, 9)
        case.refused(["pull", "user/small"], "no public repository")
        case.hub.on_list = answers(429, 9)
        case.refused(["pull", "user/small", "--retries", "1"], "too many requests")
        case.hub.on_list = answers(503, 9)
        case.refused(["pull", "user/small", "--retries", "0"], "fails (status 503)")
        case.hub.on_list = answers(429, 1, Retry_After="1")
        case.hub.on_contents = answers(503, 1)
        case.run("pull", "user/small")
        case.environment["HF_ENDPOINT"] = "ftp://host"
        case.refused(["pull", "user/small"], "HF_ENDPOINT")
        closed = Server(lambda handler: None)
        closed.close()
        case.environment["HF_ENDPOINT"] = closed.url
        case.refused(["pull", "user/small"], "cannot be reached", "--offline")
        case.environment["HF_ENDPOINT"] = case.hub.hub.url.replace("http:", "https:")
        case.refused(["pull", "user/small"], "is not trusted")
    with Case(lumen, work) as case:  # an address of contents that has expired is asked for again
        case.hub.on_contents = answers(403, 1)
        case.run("pull", "user/small")


def check_offline(lumen, work):
    with Case(lumen, work) as case:
        case.refused(["pull", "user/small", "--offline"], "not in the local cache", "--offline")
        assert not case.hub.hub.requests
        path = case.run("pull", "user/small")
        before = len(case.hub.hub.requests)
        assert case.run("pull", "user/small", "--offline") == path
        case.environment["HF_HUB_OFFLINE"] = "1"
        assert case.run("pull", "user/small") == path
        assert len(case.hub.hub.requests) == before
    with Case(lumen, work) as case:
        case.environment["LUMEN_CURL_LIBRARY"] = "/absent/libcurl.so"
        case.refused(["pull", "user/small"], "libcurl", code=3)
        case.run("list")


def check_hostile(lumen, work):
    with Case(lumen, work) as case:
        def lists(body):
            case.hub.on_list = lambda handler, *_: reply(handler, 200, body if isinstance(body, bytes) else json.dumps(body).encode()) or True

        for name in ("../../escaped.gguf", "/etc/escaped.gguf", "a/../../../escaped.gguf", "a//b.gguf", "a\nb.gguf", "..", ""):
            lists({"sha": COMMIT, "siblings": [{"rfilename": name}]})
            case.refused(["pull", "user/small"], "is refused", "it names a file")
        for body in (b"", b"<html>", b"[]", b'{"sha": 1}', {"sha": "../../etc", "siblings": []}, {"sha": COMMIT, "siblings": {}},
                     {"sha": COMMIT, "siblings": [1]}, b'{"a":' * 5000, b"\xff"):
            lists(body)
            case.refused(["pull", "user/small"], "is refused")
        lists(b'{"a": "' + b"x" * (33 << 20) + b'"}')
        case.refused(["pull", "user/small"], "is refused", "longer than")
        for location in (case.hub.hub.url + "/api/models/user/small/revision/main", "file:///etc/passwd", "", "http://a b/"):
            case.hub.on_list = lambda handler, *_, to=location: reply(handler, 302, Location=to) or True
            case.refused(["pull", "user/small"], "redirects")
        case.hub.on_list = lambda handler, *_: reply(handler, 200, b"{}", **{f"X-{i}": "y" * 8000 for i in range(20)}) or True
        case.refused(["pull", "user/small"], "head is longer")
        case.hub.on_list = lambda *_: False
        digest = hashlib.sha256(LARGE).hexdigest()
        right = {"X_Repo_Commit": COMMIT, "X_Linked_Etag": digest, "X_Linked_Size": str(len(LARGE)), "Location": case.hub.contents.url + "/" + digest}
        for change, words in (({"X_Linked_Etag": "../../escaped"}, "no ETag"), ({"X_Linked_Etag": "a/b"}, "no ETag"), ({"X_Linked_Size": "-1"}, "no size"),
                              ({"X_Linked_Size": "99999999999999999999"}, "no size"), ({"X_Repo_Commit": OTHER}, "another commit"),
                              ({"Location": "file:///etc/passwd"}, "redirects to no http")):
            case.hub.on_file = lambda handler, *_, answer={**right, **change}: reply(handler, 302, **answer) or True
            case.refused(["pull", "user/small"], words)
        case.hub.on_file = lambda handler, *_: reply(handler, 302, **{**right, "X_Linked_Size": str(1 << 43)}) or True
        case.refused(["pull", "user/small"], "are needed", code=3)
        case.hub.on_file = lambda *_: False
        case.hub.on_contents = lambda handler, _: reply(handler, 302, Location=case.hub.contents.url + handler.path) or True
        case.refused(["pull", "user/small"], "redirects more than")

        def dribble(handler, data):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            for at in range(200):
                handler.wfile.write(data[at:at + 1])
                handler.wfile.flush()
                time.sleep(0.1)
            return True

        case.hub.on_contents = dribble
        begin = time.time()
        case.refused(["pull", "user/small", "--timeout", "2", "--retries", "0"], "the connection ended")
        assert time.time() - begin < 18
        assert not list(case.folder().glob("snapshots/*/*"))


def check_two_at_once(lumen, work):
    with Case(lumen, work) as case:
        first = threading.Event()

        def slow(handler, data):
            first.set()
            time.sleep(1.5)
            return False

        case.hub.on_contents = slow
        one = case.start("pull", "user/small")
        assert first.wait(LONGEST)
        two = case.start("pull", "user/small")
        outputs = [process.communicate(timeout=LONGEST) for process in (one, two)]
        assert one.returncode == two.returncode == 0, outputs
        assert outputs[0][0] == outputs[1][0] and len(case.hub.contents.requests) == 1, case.hub.contents.requests


def check_list_and_remove(lumen, work):
    with Case(lumen, work) as case:
        assert "holds no models" in case.run("list")
        for name in ("user/small", "user/small:Q8_0", "user/small:BF16"):
            case.run("pull", name)
        case.hub.repositories["user/small"].commit = OTHER
        case.run("pull", "user/small")
        models = json.loads(case.run("list", "--json"))["models"]
        names = [model["name"] for model in models]
        assert {model["modified"][:4] for model in models} <= {str(time.gmtime(at).tm_year) for at in (time.time(), time.time() - 3600)}, models
        assert {model["type"] for model in models} == {"Q4_K_M", "Q8_0", "BF16"} and max(model["bytes"] for model in models) == len(LARGE), models
        old = "@" + COMMIT[:12]
        assert sorted(names) == sorted(["user/small:Q4_K_M", "user/small:Q4_K_M" + old, "user/small:Q8_0" + old, "user/small:BF16" + old]), names
        assert "user/small:Q4_K_M" in case.run("list") and len(case.blobs()) == 4
        case.refused(["rm", "user/small:Q8_0" + old], "--yes", code=2)
        case.refused(["rm", "--yes", "user/small:Q8_0"], "Q8_0")
        case.refused(["rm", "--yes", "../cache"], "USER/REPO", code=2)
        case.refused(["rm", "--yes", "absent"], "no model 'absent'")
        case.run("rm", "--yes", "user/small:Q8_0" + old)
        assert len(case.blobs()) == 3
        case.run("rm", "--yes", "user/small@" + COMMIT)  # its Q4_K_M is also in the other snapshot
        assert set(case.blobs()) == {hashlib.sha256(LARGE).hexdigest()}
        (case.work / "kept").mkdir()
        (case.work / "kept/blob").write_text("x")
        (case.folder() / "snapshots" / OTHER / "out.gguf").symlink_to("../../../../kept/blob")
        case.run("rm", "-y", "small")
        assert not case.folder().exists() and (case.work / "kept/blob").exists()
        (case.work / "elsewhere/snapshots" / COMMIT).mkdir(parents=True)
        case.folder("user/linked").symlink_to(case.work / "elsewhere")
        case.refused(["rm", "--yes", "user/linked"], "is a link")
        assert (case.work / "elsewhere/snapshots" / COMMIT).exists()


CHECKS = [check_layout, check_safetensors, check_tokens, check_resume, check_interrupt, check_wrong_contents, check_statuses, check_offline, check_hostile,
          check_two_at_once, check_list_and_remove]


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory(prefix="lumen-hub-", ignore_cleanup_errors=True) as work:
        for check in CHECKS:
            if wanted in check.__name__:
                begin = time.time()
                check(lumen, Path(work))
                print(f"{check.__name__}: {time.time() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
