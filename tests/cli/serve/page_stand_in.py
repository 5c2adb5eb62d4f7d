"""A server in place of `lumen serve` for tests of its page: the page itself with its headers is lumen's, the answers are scripted, so that streams can be
slow, break off, be refused or hold what no small model writes."""
import json
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MARKDOWN = r"""## 정렬과 표

한국어 **굵은 글씨**와 *기울임*, `코드`, ~~취소~~. Water is H<sub>2</sub>O. Prices of $5 and $10 stay prices.

| 이름 | 값 |
|:-----|---:|
| 첫째 | 1.25 |
| 둘째 | 20 |

1. one
2. two
   - nested **item**
- [x] done
- [ ] open

```python
def greet(name: str) -> str:
    # 인사
	return f"안녕, {name}! {1 + 2}"
```

Inline $e^{i\pi} + 1 = 0$ and \(a^2\), and a block:

$$\int_0^1 x^2\,dx = \frac{1}{3}$$

> A quotation with [a link](https://example.org/a?b=1&c=2).
"""
HOSTILE = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 1"> <svg onload="window.hacked=1"></svg>

<iframe src="javascript:parent.hacked=1"></iframe>
<style>body { display: none }</style>

[one](javascript:window.hacked=1) [two](JaVaScRiPt&#58;window.hacked=1) [three](data:text/html,<script>hacked=1</script>) [four](vbscript:x)
![picture](https://evil.example/leak.png) ![x](javascript:hacked=1) <a href="javascript:hacked=1">five</a> <https://good.example/>

[java
script:window.hacked=1]: x "y"

$\\href{javascript:window.hacked=1}{x}$ $\\includegraphics{https://evil.example/b.png}$ $\\htmlData{a=b}{x}$

```"><img src=x onerror=window.hacked=1>
</code></pre><script>window.hacked = 1</script>
```

| a |
|---|
| <img src=x onerror=window.hacked=1> |

<b onclick="window.hacked=1">bold</b> <details open ontoggle="window.hacked=1">d</details>
"""
# For the pictures of docs/guide/serving.md.
PICTURES = {
    "How does binary search work?": ("The list is sorted, so a comparison can rule out half of it.", r"""Binary search compares with the **middle** and keeps one half, so it needs at most
$\lceil \log_2 (n + 1) \rceil$ comparisons.

```python
def find(values: list[int], wanted: int) -> int | None:
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if values[low:low + 1] == [wanted] else None
```

| values | comparisons |
|-------:|------------:|
| 1,000 | 10 |
| 1,000,000 | 20 |
"""),
    "이분 탐색은 왜 빠른가요?": ("목록이 정렬되어 있으니 한 번 비교할 때마다 절반을 버릴 수 있다.", r"""**가운데 값**과 비교해서 한쪽 절반만 남기기 때문에, 비교 횟수는 아무리 많아도 다음과 같습니다.

$$\lceil \log_2 (n + 1) \rceil$$

| 값의 개수 | 비교 횟수 |
|---------:|---------:|
| 1,000 | 10 |
| 1,000,000 | 20 |

1. 목록은 `정렬`되어 있어야 합니다.
2. 매번 절반이 남습니다.
"""),
}
CALL = {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]}


def tokens_of(text, size=4):
    return [text[i:i + size] for i in range(0, len(text), size)]


class StandIn:
    def __init__(self, page, headers):
        stand_in = self
        self.page, self.headers = page, headers
        self.requests, self.left, self.is_down, self.key = [], 0, False, None
        self.gate = threading.Event()  # "gated" answers stop after their first half until it is set

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, status, data, kind="application/json", headers=()):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                if self.path == "/":
                    return self.answer(200, stand_in.page, "text/html; charset=utf-8", stand_in.headers)
                if stand_in.is_down:
                    return self.connection.close()
                if stand_in.key and self.headers.get("Authorization") != "Bearer " + stand_in.key:
                    return self.answer(401, b'{"error": {"message": "a key is needed"}}')
                if self.path == "/metrics":
                    return self.answer(200, b"process_resident_memory_bytes 104857600\nlumen_requests_running{model=\"m\"} 0\n", "text/plain")
                self.answer(200, json.dumps({"data": [{"id": "base"}, {"id": "base-한국어"}]}).encode())

            def event(self, delta, reason=None, **more):
                body = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason, **more}]}
                self.wfile.write(f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode())
                self.wfile.flush()

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stand_in.requests.append(body)
                stand_in.authorization = self.headers.get("Authorization")
                if any("refuse" in (m.get("content") or "") for m in body["messages"] if m["role"] == "user"):
                    return self.answer(400, json.dumps({"error": {"message": "this prompt is too long"}}).encode())
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    count = stand_in.write(self, body)
                    if count is None:
                        return
                    self.wfile.write(f'data: {json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": count}})}\n\ndata: [DONE]\n\n'.encode())
                except (BrokenPipeError, ConnectionError):
                    stand_in.left += 1

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request, address):
                if not isinstance(sys.exc_info()[1], ConnectionError):  # a page that is left ends its requests
                    super().handle_error(request, address)

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def of_lumen(port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as reply:
            kept = [(k, v) for k, v in reply.headers.items() if k.lower() not in ("content-length", "content-type", "connection", "keep-alive", "date", "server")]
            return StandIn(reply.read(), kept)

    def write(self, to, body):
        """Streams an answer to the last message; the number of its tokens, or None where the stream is to break off."""
        last = body["messages"][-1]
        asked = last["content"].rsplit("\n", 1)[-1] if last["role"] == "user" else ""
        text, thought = f"Echo {len(self.requests)}: {asked[:200]}", ""
        if last["role"] == "assistant":
            text = " and the rest"
        elif last["role"] == "tool":
            text = f"It is {last['content']}."
        elif asked == "markdown":
            text = MARKDOWN
        elif asked == "hostile":
            text = HOSTILE
        elif asked == "think":
            text, thought = "The answer is **4**.", "Two and two.\n\nThat is four."
        elif asked.startswith("slow to parse"):
            text = {"slow to parse 1": "> " * 20000, "slow to parse 2": "*a " * 20000, "slow to parse 3": "- " * 9000}[asked] + "end"
        elif asked in PICTURES:
            thought, text = PICTURES[asked]
        elif asked == "tagged":
            text = "<think>생각을 먼저 합니다.</think>\n\n답은 **5**입니다."
        elif asked == "tools":
            to.event(CALL)
            for piece in tokens_of('{"city": "서울", "days": 3}'):
                to.event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            to.event({}, "tool_calls")
            return 9
        elif asked == "fail":
            to.event({"content": "Half of"})
            time.sleep(0.1)
            to.close_connection = True
            return None
        elif asked == "cut":
            to.event({"content": "Cut here"})
            to.event({}, "length")
            return 2
        elif asked == "long":
            text = "\n\n".join(f"Paragraph {i} with **bold** and `code` and 한국어 문장입니다." for i in range(900))
        elif asked == "slow":
            for i in range(3000):
                to.event({"content": f"line {i}\n\n"})
                time.sleep(0.01)
        elif asked == "gated":
            text = "first half, " + "second half"
            to.event({"content": "first half, "})
            assert self.gate.wait(60)
            to.event({"content": "second half"})
            to.event({}, "stop")
            return 4
        for piece in tokens_of(thought):
            if asked in PICTURES:
                time.sleep(0.05)
            to.event({"reasoning_content": piece})
        pieces = tokens_of(text)
        for piece in pieces:
            if asked in PICTURES:
                time.sleep(0.01)  # a speed that a reader would believe
            to.event({"content": piece})
        to.event({}, "stop")
        return len(pieces)
