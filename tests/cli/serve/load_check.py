#!/usr/bin/env python3
"""bench/serve.py with a peer, which is the same server once more: both get the same requests in turns, a table and JSON tell of both, and a
peer that does not start is an error that names it.

Usage: tests/cli/serve/load_check.py LUMEN
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import serve_check

BENCH = Path(__file__).resolve().parents[3] / "bench" / "serve.py"


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-load-") as folder:
        work = Path(folder)
        serve_check.make_model(lumen, work)
        load = [sys.executable, BENCH, "-m", "served.gguf", "--lumen", lumen, "--flags", "--threads 1", "--prompt", "6", "--generate", "5", "--vocabulary", "300,1100", "--clients", "1,2",
                "--requests", "4", "--rounds", "2", "--json", "load.json"]
        run = lambda *words: subprocess.run([*load, *words], cwd=work, capture_output=True, text=True, timeout=4 * serve_check.LONGEST)
        peer = f"{lumen} serve -m model={{model}} --port {{port}} --parallel {{parallel}} --ctx-size {{context}} --threads 1"
        done = run("--peer", f"twin={peer}")
        assert done.returncode == 0, done.stderr
        table = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ") and "server" not in line]
        assert [(row[0].strip(), row[1].strip()) for row in table] == [("1", "lumen"), ("1", "twin"), ("2", "lumen"), ("2", "twin")], done.stdout
        rows = json.loads((work / "load.json").read_text())
        for row in rows:
            assert len(row["rounds"]) == 2 and not row["errors"] and row["tokens_per_second"] > 0 and 0 < row["first_p50"] <= row["first_p99"], row
        assert all(("ratio" in row) == (row["server"] == "twin") for row in rows), rows
        for wrong, told in (("twin", "has no program"), (f"twin={lumen} nothing {{port}}", "ended with")):
            done = run("--peer", wrong)
            assert done.returncode != 0 and told in done.stderr, (wrong, done.returncode, done.stderr)
    print("bench/serve.py: two servers in turns, and peers that do not start")


if __name__ == "__main__":
    main()
