#!/usr/bin/env python3
"""`lumen serve` on cross-encoders: scores of pairs over HTTP are those of transformers (recorded beside the fixtures), from a folder and from a
GGUF file made of it.

Usage: tests/cli/serve/rerank_check.py LUMEN
"""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import serve_check

FIXTURES = Path(__file__).resolve().parents[2] / "model" / "fixtures" / "encoders"


def scores(lumen, work, model, told):
    s = serve_check.Served(lumen, work, "-m", model)
    try:
        off = 0
        for query, document, want in list(zip(told["queries"], told["documents"], told["scores"]))[:12]:
            if not query or not document:
                continue
            ask = {"query": query, "documents": [document, document]}
            raw = s.json("/v1/rerank", {**ask, "raw_scores": True})["results"]
            soft = s.json("/v1/rerank", ask)["results"]
            assert len(raw) == len(soft) == 2 and raw[0]["relevance_score"] == raw[1]["relevance_score"], raw
            off = max(off, abs(raw[0]["relevance_score"] - want))
            assert abs(soft[0]["relevance_score"] - 1 / (1 + math.exp(-want))) < 1e-3, (query, document, soft, want)
        assert off < 1e-3, off
        pair = s.json("/v1/score", {"text_1": told["queries"][0], "text_2": [d for d in told["documents"][1:4]]})["data"]
        assert [p["index"] for p in pair] == [0, 1, 2] and all(0 < p["score"] < 1 for p in pair), pair
        refused = s.json("/v1/rerank", {"query": told["queries"][0], "documents": ["a " * 4000]}, status=400)["error"]
        assert "documents" in json.dumps(refused), refused
        assert s.end() == 143
        return off
    finally:
        s.process.kill()


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-rerank-") as folder:
        work = Path(folder)
        for name in ("pairs", "pairs_offset"):
            told = json.loads((FIXTURES / f"{name}.json").read_text())
            subprocess.run([lumen, "quantize", FIXTURES / name, f"{name}.gguf", "f32", "-q"], cwd=work, check=True, capture_output=True,
                           timeout=serve_check.LONGEST)
            for model in (FIXTURES / name, f"{name}.gguf"):
                print(f"rerank: {Path(model).name}: within {scores(lumen, work, model, told):.1e} of transformers", flush=True)


if __name__ == "__main__":
    main()
