"""A page in a real browser: Debian's chromium, headless, driven over its DevTools protocol."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

LONGEST = 180
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


class Browser:
    """A page, asked through a pair of pipes."""

    def __init__(self, program, folder):
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def wire():  # the protocol is spoken at 3 and 4
            os.dup2(to_read, 13), os.dup2(to_write, 14)
            os.dup2(13, 3), os.dup2(14, 4)
        self.process = subprocess.Popen([program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
                                         "--hide-scrollbars", "--lang=en-US", f"--user-data-dir={folder}", "about:blank"], preexec_fn=wire, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.number, self.heard, self.events, self.session = 0, b"", [], None
        target = self.ask("Target.createTarget", url="about:blank", width=1000, height=640, newWindow=True)["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def hear(self, until):
        while b"\0" not in self.heard:
            assert select.select([self.back], [], [], max(0.01, until - time.time()))[0], "the browser says nothing"
            some = os.read(self.back, 1 << 20)
            assert some, "the browser has ended"
            self.heard += some
        one, self.heard = self.heard.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **values):
        self.number += 1
        message = {"id": self.number, "method": method, "params": values, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.time() + LONGEST
        while True:
            said = self.hear(until)
            if said.get("id") == self.number:
                assert "error" not in said, (method, said)
                return said["result"]
            self.events.append(said)

    def js(self, text):
        said = self.ask("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, (text, said)
        return said["result"].get("value")

    def wait(self, text):
        until = time.time() + LONGEST
        while not self.js(text):
            assert time.time() < until, (text, self.js("document.body.innerText"))
            time.sleep(0.05)

    def press(self, key, code, number, modifiers=0, text=""):
        same = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **same)

    def picture(self, file, most=150_000, **values):
        data = base64.b64decode(self.ask("Page.captureScreenshot", format="png", **values)["data"])
        assert 5000 < len(data) < most, len(data)
        file.write_bytes(data)

    def close(self):
        self.process.kill()
        self.process.wait()


def find_browser():
    """The path of a browser, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
