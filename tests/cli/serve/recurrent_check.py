#!/usr/bin/env python3
"""`lumen serve` on families with recurrent states: the same text alone, from shared prefixes, among neighbours, and from
prefixes in files after a restart.

Usage: tests/cli/serve/recurrent_check.py LUMEN
"""
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import serve_check

FIXTURES = Path(__file__).resolve().parents[2] / "model" / "fixtures"
FAMILIES = ("qwen3_5", "lfm2", "granite_h", "mamba2", "nemotron_h")
REQUESTS = 8


def look(lumen, work, family):
    shutil.copytree(FIXTURES / "families" / family, work / family)
    shutil.copy(FIXTURES / "encoders" / "pairs" / "tokenizer.json", work / family)  # requests are numbers; a server needs one
    config = json.loads((work / family / "config.json").read_text())
    config["max_position_embeddings"] = 256  # the fixtures' 64 is less than a few blocks of the prefix cache
    (work / family / "config.json").write_text(json.dumps(config))
    flags = ("-m", family, "--parallel", 4, "--ctx-size", 1024, "--batch-invariant", "--prefix-cache", work / f"{family}-cache")
    s = serve_check.Served(lumen, work, *flags)

    def ask(seed):
        prompt = [3 + (7 * j + seed % 3) % 50 for j in range(60 + 29 * (seed % 3))]
        return s.json("/v1/completions", {"prompt": prompt, "temperature": 1, "seed": seed, "max_tokens": 24, "ignore_eos": True})["choices"][0]["text"]

    try:
        alone = [ask(seed) for seed in range(REQUESTS)]
        assert len(set(alone)) == REQUESTS
        assert alone == [ask(seed) for seed in range(REQUESTS)], "from shared prefixes"
        together = [None] * REQUESTS

        def fill(seed):
            together[seed] = ask(seed)

        threads = [threading.Thread(target=fill, args=(seed,)) for seed in range(REQUESTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert alone == together, (alone, together)
        cached = s.metric("lumen_prompt_tokens_cached_total")
        assert cached > 0
        assert s.end() == 143
        s = serve_check.Served(lumen, work, *flags)
        assert alone == [ask(seed) for seed in range(REQUESTS)], "from files"
        read = s.metric("lumen_prefix_cache_read_total")
        assert read > 0
        assert s.end() == 143
        print(f"serve: {family}: {4 * REQUESTS} answers, {cached:.0f} tokens from shared prefixes, {read:.0f} files read", flush=True)
    finally:
        s.process.kill()


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-recurrent-") as folder:
        for family in FAMILIES:
            look(lumen, Path(folder), family)


if __name__ == "__main__":
    main()
