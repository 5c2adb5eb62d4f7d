#!/usr/bin/env python3
"""`lumen chat` and `lumen run` on a terminal (a pty) and without one: editing, columns of Hangul, paste, history, completion,
/set, /stats, Ctrl-C and Ctrl-D; and that pipes are read and written as bytes.

Usage: tests/cli/terminal/terminal_check.py LUMEN
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

BOUND = 120  # seconds for any answer of the program, on machines that have much else to do
UP, CTRL_A, CTRL_C, CTRL_D, CTRL_R, TAB = "\x1b[A", "\x01", "\x03", "\x04", "\x12", "\t"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[@A-Za-z]|\x1b[=>()][0-9A-Za-z]?")


class Screen:
    """What a terminal of 80 columns shows, as far as the cursor matters: lines of cells, and Hangul takes two."""

    def __init__(self):
        self.cells, self.column = [], 0

    def show(self, text):
        at = 0
        while at < len(text):
            escape = re.compile(r"\x1b\[([0-9;?]*)([@A-Za-z])").match(text, at)
            if escape:
                count = int(escape[1]) if escape[1].isdigit() else 1
                if escape[2] == "D":
                    self.column = max(0, self.column - count)
                elif escape[2] == "C":
                    self.column += count
                elif escape[2] == "G":
                    self.column = count - 1
                elif escape[2] == "K":
                    del self.cells[self.column:]
                elif escape[2] == "P":
                    del self.cells[self.column:self.column + count]
                elif escape[2] == "@":
                    self.cells[self.column:self.column] = [" "] * count
                at = escape.end()
                continue
            c = text[at]
            at += 1
            if c == "\n":
                self.cells, self.column = [], 0
            elif c == "\r":
                self.column = 0
            elif c == "\b":
                self.column = max(0, self.column - 1)
            elif c >= " ":
                width = 2 if 0x1100 <= ord(c) <= 0xffdc else 1
                self.cells += [" "] * (self.column + width - len(self.cells))
                self.cells[self.column:self.column + width] = [c] + [""] * (width - 1)
                self.column += width

    @property
    def line(self):
        return "".join(self.cells).rstrip()


class Session:
    """A command on a pty."""

    def __init__(self, lumen, words, home, **more):
        self.process, self.seen, self.read_to = None, "", 0
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "HOME": str(home), **more}
        environment.pop("XDG_STATE_HOME", None)
        self.process = subprocess.Popen([lumen, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.ours = ours

    def type(self, text):
        os.write(self.ours, text.encode())

    def _more(self, seconds):
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self.ours, 65536)
        except OSError:
            return False
        self.seen += part.decode(errors="replace")
        return bool(part)

    def wait(self, text):
        """What is shown up to `text`, from where the last wait ended."""
        end = time.monotonic() + BOUND
        while True:
            plain = self.seen[self.read_to:]
            at = plain.find(text)
            if at >= 0:
                self.read_to += at + len(text)
                return plain[:at + len(text)]
            assert time.monotonic() < end, f"{text!r} does not come: {plain[-2000:]!r}"
            assert self._more(1) or self.process.poll() is None, f"ended before {text!r}: {plain[-2000:]!r}"

    def prompt(self):
        """Waits until a line can be typed."""
        shown = self.wait("\x1b[?2004h") + self.wait("> ")
        time.sleep(0.1)  # libedit shows the prompt before it reads keys one by one
        return shown

    def settle(self):
        """What was shown since the last wait, once nothing more comes."""
        while self._more(0.7):
            pass
        out, self.read_to = self.seen[self.read_to:], len(self.seen)
        return out

    def line(self):
        """The line of the prompt as the terminal shows it, and the cursor's column."""
        self.settle()
        screen = Screen()
        screen.show(self.seen[self.seen.rfind("\x1b[?2004h"):])
        return screen.line, screen.column

    def end(self):
        end = time.monotonic() + BOUND
        while self.process.poll() is None:
            assert time.monotonic() < end, f"does not end: {self.seen[-500:]!r}"
            self._more(0.2)
        while self._more(0.1):
            pass
        os.close(self.ours)
        return self.process.returncode


def messages_of(session, file):
    session.type(f"/save {file}\r")
    session.wait("messages written to")
    session.prompt()
    return [m["content"] for m in json.loads(Path(file).read_text())["messages"] if m["role"] == "user"]


def editing(lumen, model, home):
    chat = Session(lumen, ["chat", "-m", model, "-n", "4", "-c", "2048", "--temp", "0"], home)
    chat.prompt()
    # Hangul takes two columns, and backspace takes a syllable away.
    chat.type("한국어")
    assert chat.line() == ("> 한국어", 8), chat.line()
    chat.type("\x7f")
    assert chat.line() == ("> 한국", 6), chat.line()
    chat.type(CTRL_A + "a")
    assert chat.line() == ("> a한국", 3), chat.line()
    chat.type("\r")
    shown = chat.prompt()
    assert re.search(r"\(\d+ tokens, [\d.]+ tokens/s\)", shown), shown
    # A pasted text of several lines is one message.
    chat.type("\x1b[200~first\rsecond\n셋째\x1b[201~ end\r")
    chat.prompt()
    # So are a block, and lines that end in a backslash.
    chat.type('"""one\r')
    chat.wait(". ")
    chat.type('two"""\r')
    chat.prompt()
    chat.type("three\\\r")
    chat.wait(". ")
    chat.type("four\r")
    chat.prompt()
    said = messages_of(chat, home / "said.json")
    assert said == ["a한국", "first\nsecond\n셋째 end", "one\ntwo", "three\nfour"], said
    # Ctrl-C drops a line that was begun; Ctrl-D after another one ends.
    chat.type("never sent")
    assert chat.line()[0] == "> never sent", chat.line()
    chat.type(CTRL_C)
    chat.wait("once more ends")
    chat.prompt()
    chat.type("/undo\r")
    chat.wait("taken back")
    chat.prompt()
    assert messages_of(chat, home / "said.json") == said[:3]
    chat.type(CTRL_C)
    chat.wait("once more ends")
    chat.prompt()
    chat.type(CTRL_D)
    assert chat.end() == 130
    file = home / ".local/state/lumen/chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, oct(file.stat().st_mode)
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert kept[:4] == said and "never sent" not in kept, kept


def history(lumen, model, home):
    file = home / ".local/state/lumen/chat_history"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(f"old {i}") + "\n" for i in range(1500)) + json.dumps("한글 하나") + "\n")
    chat = Session(lumen, ["chat", "-m", model, "-n", "2", "--temp", "0"], home)
    chat.prompt()
    chat.type(UP)
    assert chat.line()[0] == "> 한글 하나", chat.line()
    chat.type(UP + UP)
    assert chat.line()[0] == "> old 1498", chat.line()
    chat.type(CTRL_C)
    chat.wait("once more ends")
    chat.prompt()
    chat.type("/stats\r")
    chat.wait("answers")
    chat.prompt()
    chat.type(CTRL_R + "old 77")
    chat.settle()
    chat.type("\x1b")  # ends the search, and keeps the line that it found
    chat.settle()
    chat.type("\r")
    chat.prompt()
    chat.type("/exit\r")
    assert chat.end() == 0
    kept = file.read_text().splitlines()
    assert 1000 <= len(kept) < 1005 and json.loads(kept[999]) == "한글 하나", len(kept)
    assert json.loads(kept[-2]) == "old 779", kept[-3:]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()
    chat = Session(lumen, ["chat", "-m", model, "-n", "2", "--no-history"], home)
    chat.prompt()
    chat.type("secret\r")
    chat.prompt()
    chat.type(CTRL_D)
    assert chat.end() == 0 and not file.exists()


def commands(lumen, model, other, home):
    chat = Session(lumen, ["chat", "-m", model, "-n", "3", "--temp", "0"], home)
    chat.prompt()
    chat.type("/st" + TAB)
    assert chat.line()[0] == "> /stats", chat.line()
    chat.type("\r")
    chat.wait("0 answers")
    chat.prompt()
    chat.type("/s" + TAB)
    shown = chat.settle()
    assert all(name in shown for name in ("/save", "/set", "/stats", "/system")), shown
    chat.type("et top-k 1\r")
    chat.wait("top-k is 1 from now on")
    chat.prompt()
    chat.type("/set predi" + TAB)
    assert chat.line()[0] == "> /set predict", chat.line()
    chat.type("1\r")
    chat.wait("predict is 1 from now on")
    chat.prompt()
    chat.type("hello\r")
    chat.wait("(1 tokens, ")
    chat.prompt()
    for words, said in (("/set parameter num_ctx 5", "is no option of generation"), ("/set temp abc", "--temp"),
                        ("/set top_p 2", "--top-p"), ("/set temp", "0: always the most likely token"), ("/set ignore-eos", "from now on"),
                        ("/set", "top-p typical"), ("/stats", "1 answers | prompts: "), ("/wrong", "unknown command"),
                        (f"/model {home}/none.gguf", "none.gguf"), (f"/model {other}", "answers from now on"),
                        ("/clear", "begins anew"), ("again", "tokens/s)"), ("/stats", "1 answers")):
        chat.type(words + "\r")
        chat.wait(said)
        chat.prompt()
    assert messages_of(chat, home / "said.json") == ["again"]
    chat.type("/exit\r")
    assert chat.end() == 0


def interrupted(lumen, model, home):
    chat = Session(lumen, ["chat", "-m", model, "-n", "1000000", "-c", "4096", "--ignore-eos", "--context-shift"], home)
    chat.prompt()
    chat.type("go on\r")
    chat.wait("go on")
    time.sleep(1)
    chat.process.send_signal(signal.SIGINT)
    chat.wait("(stopped)")
    chat.prompt()
    chat.type("/set predict 2\r")
    chat.prompt()
    chat.type("/clear\r")
    chat.prompt()
    chat.type("and now\r")
    chat.wait("(2 tokens")
    chat.prompt()
    chat.type(CTRL_D)
    assert chat.end() == 0
    run = Session(lumen, ["run", "-m", model, "-n", "1000000", "-c", "4096", "--ignore-eos", "--context-shift"], home)
    run.prompt()
    run.type("go on\r")
    run.wait("go on")
    time.sleep(1)
    run.process.send_signal(signal.SIGINT)
    run.wait("(stopped)")
    run.prompt()
    run.type(CTRL_D)
    assert run.end() == 0


def plain(lumen, model, home):
    """Without a terminal: bytes in, bytes out, no history."""
    environment = {**os.environ, "HOME": str(home), "TERM": "xterm"}
    environment.pop("XDG_STATE_HOME", None)

    def do(*words, given=b"", code=0):
        done = subprocess.run([lumen, *words], input=given, capture_output=True, env=environment)
        assert done.returncode == code, (words, done.returncode, done.stderr)
        return done.stdout

    few = ["-n", "6", "--temp", "0", "-q", "--exact"]
    for file in (home / ".local/state/lumen").glob("*"):
        file.unlink()
    one = do("chat", "-m", model, *few, given="안녕?\n".encode())
    assert one.endswith(b"\n") and b"\x1b" not in one and b"> " not in one, one
    block = do("chat", "-m", model, *few, given='"""안녕?\n"""\r\n'.encode())
    assert block != b"" and do("chat", "-m", model, *few, given=b"/help\n/exit\nnever\n") == b""
    assert not list((home / ".local/state/lumen").glob("*"))
    # The prompt of run: -p, an argument, standard input, or -p and what follows it there.
    whole = do("run", "-m", model, "-p", "ROMEO:\nJULIET:", *few)
    assert whole.startswith(b"ROMEO:\nJULIET:") and b"\x1b" not in whole, whole
    assert do("run", model, "ROMEO:\nJULIET:", *few) == whole
    assert do("run", "-m", model, "ROMEO:\nJULIET:", *few) == whole
    assert do("run", "-m", model, "-p", "-", *few, given=b"ROMEO:\nJULIET:") == whole
    assert do("run", "-m", model, "-p", "ROMEO:", *few, given=b"JULIET:") == whole
    text = home / "text.txt"
    text.write_bytes(b"JULIET:")
    with open(text, "rb") as file:
        done = subprocess.run([lumen, "run", "-m", model, "-p", "ROMEO:", *few], stdin=file, capture_output=True, env=environment)
    assert done.stdout == whole, done
    done = subprocess.run([lumen, "run", "-m", model, "-p", "ROMEO:\nJULIET:", *few], stdin=subprocess.DEVNULL, capture_output=True)
    assert done.stdout == whole, done
    lines = do("run", "-m", model, *few, given=b"ROMEO:\n")
    assert lines == do("run", "-m", model, "-p", "ROMEO:\n", "--no-display-prompt", *few), lines


def colours(lumen, model, home):
    """Taking the colours away leaves the text, and NO_COLOR and --no-markdown give none."""
    words = ["run", model, "# A **b** `c`\n", "-n", "60", "--temp", "1.2", "--seed", "3", "-q"]
    out = []
    for more, variables in ((["--no-markdown"], {}), ([], {"NO_COLOR": "1"}), ([], {"NO_COLOR": ""})):
        run = Session(lumen, words + more, home, **variables)
        assert run.end() == 0
        out.append(run.seen)
    assert out[0] == out[1] and "\x1b" not in out[0], out
    assert ESCAPES.sub("", out[2]) == out[0], out


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-terminal-") as name:
        home = Path(name)
        os.environ["LUMEN_CACHE"] = str(home / "cache")
        for folder in ("m", "other"):
            subprocess.run([lumen, "train", "--shape", "tiny", "--steps", "2", "--eval-every", "0", "--tokenizer", "bytes:300",
                            "-o", home / folder, "-q"],
                           check=True, stdin=subprocess.DEVNULL)
        model, other = str(home / "m/model.gguf"), str(home / "other/model.gguf")
        parts = {"editing": editing, "history": history, "interrupted": interrupted, "plain": plain, "colours": colours,
                 "commands": lambda *a: commands(a[0], a[1], other, a[2])}
        for part in sys.argv[2:] or parts:
            parts[part](lumen, model, home)
            print(f"{part}: ok", flush=True)


main()
