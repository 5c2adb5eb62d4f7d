#!/usr/bin/env python3
"""What `lumen quantize --strategy` keeps in its work folder, after a kill: whatever file of it is damaged or gone, the file
in the end has the very bytes of a run left alone, and a warning says what was computed again. A model that was touched or
moved meanwhile is the same one; another one of equal size and time is not.

Usage: tests/cli/convert/kept_work_check.py LUMEN
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


class Quantization:
    def __init__(self, lumen, place):
        self.lumen, self.place = lumen, place
        self.model, self.out, self.work = place / "m/model.gguf", place / "out.gguf", place / "out.gguf.work"
        self.call("train", "--shape", "char", "--steps", "2", "--eval-every", "0", "-o", str(place / "m"))
        assert self.run().returncode == 0
        self.whole = self.out.read_bytes()
        self.out.unlink()

    def words(self, *more):
        return [self.lumen, *more, "-t", "1", "--cache", str(self.place / "cache")]

    def call(self, *more):
        subprocess.run(self.words(*more), check=True, capture_output=True)

    def quantize(self):
        # gptaq carries what goes through the layers unrounded, too
        return self.words("quantize", str(self.model), str(self.out), "q4_0", "--strategy", "gptaq", "-c", "32",
                          "--chunks", "4", "--fallback", "f32")

    def run(self):
        return subprocess.run(self.quantize(), capture_output=True, text=True, timeout=300)

    def kill_behind(self, part):
        """A work folder with the parts before this one."""
        for _ in range(50):
            shutil.rmtree(self.work, ignore_errors=True)
            process = subprocess.Popen(self.quantize(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not list(self.work.glob(f"user-*/work/part-{part:05}")):
                time.sleep(0.001)
            process.kill()
            process.wait()
            if self.work.is_dir() and not self.out.exists():
                return
            self.out.unlink(missing_ok=True)
        raise AssertionError("every run ended before it was killed")

    def goes_on(self, what, warns=False):
        done = self.run()
        assert done.returncode == 0, f"{what}: {done.stderr}"
        assert self.out.read_bytes() == self.whole, f"{what}: other bytes"
        assert not self.work.exists(), f"{what}: the folder stays"
        assert not warns or "warning" in done.stderr, f"{what}: nothing is said: {done.stderr}"
        self.out.unlink()


def main():
    with tempfile.TemporaryDirectory() as folder:
        q = Quantization(sys.argv[1], Path(folder))
        q.kill_behind(3)
        kept = Path(folder) / "kept"
        shutil.copytree(q.work, kept)
        q.goes_on("left alone")
        files = sorted(f.relative_to(kept) for f in kept.rglob("*") if f.is_file())
        assert len(files) >= 7, files  # the key, the journal, three parts, values of both kinds
        for number, file in enumerate(files):
            # What was written behind the last part that counts is of no use, and nothing is said of it.
            counts = file.name in ("key", "journal") or "0000" in file.name and int(file.name[-5:]) < 3
            for gone in (False, True) if counts else (number % 2 == 0,):
                shutil.copytree(kept, q.work)
                if gone:
                    (q.work / file).unlink()
                else:
                    content = bytearray((q.work / file).read_bytes())
                    content[len(content) // 3] ^= 1
                    (q.work / file).write_bytes(content)
                q.goes_on(f"{file}, {'gone' if gone else 'one bit'}", counts)
        shutil.copytree(kept, q.work)
        os.utime(q.model)
        (Path(folder) / "m").rename(Path(folder) / "moved")
        q.model = Path(folder) / "moved/model.gguf"
        done = q.run()
        assert done.returncode == 0 and "going on with part" in done.stderr, done.stderr
        assert q.out.read_bytes() == q.whole
        q.out.unlink()
        shutil.copytree(kept, q.work)
        before = q.model.stat()
        content = bytearray(q.model.read_bytes())
        for at in range(len(content) // 2, len(content) // 2 + 40000, 4):
            content[at] ^= 1
        q.model.write_bytes(content)
        os.utime(q.model, ns=(before.st_atime_ns, before.st_mtime_ns))
        done = q.run()
        assert done.returncode == 1 and "another model" in done.stderr, done.stderr
        assert not q.out.exists()
        print(f"{len(files)} files of a work folder damaged and removed: equal bytes")


main()
