#!/usr/bin/env python3
"""A system that gives few threads, or none: every verb goes on with fewer and writes the same bytes, or ends with exit 3 and
words. Nothing else, whichever thread is the one that is not given.

Usage: tests/cli/system/threads_check.py LUMEN NO_THREADS_LIBRARY [--all]
"""
import os
import sys
import tempfile
from pathlib import Path

from descriptors_check import contents
from verbs import Verbs


def main():
    library = str(Path(sys.argv[2]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-threads-") as folder:
        verbs = Verbs(sys.argv[1], folder)
        os.mkdir(verbs.work / "given")
        given = {}
        for name, words, made in verbs.writing("given"):
            verbs.do(*words)
            given[name] = contents(Path(folder, "given", made))
        # None at all; then each of the first alone that is not given.
        limits = ["0", "0+", "1+", "2+", *(["3+", "5+", "8+"] if "--all" in sys.argv else [])]
        runs = ended = 0
        for limit in limits:
            out = f"limit-{limit}"
            os.mkdir(verbs.work / out)
            for name, words, made in verbs.writing(out):
                code, _, error = verbs.run(words, {"LD_PRELOAD": library, "LUMEN_TEST_THREADS": limit})
                runs += 1
                if code == 3:
                    assert "no thread" in error, (name, limit, error)
                    assert not Path(folder, out, made).exists(), (name, limit, "an output of a run that has ended with 3")
                    ended += 1
                    continue
                assert code == 0, (name, limit, code, error[-1000:])
                if name not in ("report", "compare"):
                    assert contents(Path(folder, out, made)) == given[name], f"{name}: other bytes with threads {limit}"
        print(f"{runs} runs with threads that are not given: the same bytes, or exit 3 ({ended})")

        # Without the threads it lives by a server says so; one that has them turns clients away where it gets no more.
        code, _, error = verbs.run(["serve", "-m", "m/model.gguf", "--port", "0"], {"LD_PRELOAD": library, "LUMEN_TEST_THREADS": "0"})
        assert code == 3 and "no thread" in error, (code, error)
        print("serve: exit 3")


if __name__ == "__main__":
    main()
