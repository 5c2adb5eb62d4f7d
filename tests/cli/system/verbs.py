"""The smallest command of every verb that writes, for checks of what the system does to the program as a whole."""
import os
import re
import subprocess
from pathlib import Path


class Verbs:
    """A folder with a model, what is made of it, data of each kind, and a cache of kernels."""

    def __init__(self, lumen, work):
        self.lumen, self.work = str(Path(lumen).resolve()), Path(work)
        self.environment = {**os.environ, "LUMEN_CACHE": str(self.work / "cache"), "OMP_NUM_THREADS": "3"}
        for name in ("LUMEN_TEST_THREADS", "LD_PRELOAD"):
            self.environment.pop(name, None)
        (self.work / "text.txt").write_text("To be, or not to be, that is the question:\n" * 60)
        self.commands = set(re.findall(r"^  ([\w-]+)(?:, [\w-]+)*  ", self.run(["--help"])[1], re.M))
        assert self.has("train") and self.has("run"), self.commands
        self.do("train", "--shape", "tiny", "--steps", "2", "--eval-every", "0", "-o", "m", "-q")
        self.do("quantize", "m/model.gguf", "small.gguf", "q4_0", "-q")

    def start(self, words, environment=None, **options):
        return subprocess.Popen([self.lumen, *map(str, words)], cwd=self.work, env={**self.environment, **(environment or {})}, **options)

    def run(self, words, environment=None, timeout=600, **options):
        process = self.start(words, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        out, error = process.communicate(timeout=timeout)
        return process.returncode, out.decode(errors="replace"), error.decode(errors="replace")

    def has(self, command):
        """Whether the program was built with it: LUMEN_APPS=OFF leaves the applications out."""
        return command in self.commands

    def do(self, *words):
        code, out, error = self.run(words)
        assert code == 0, (words, code, out[-500:], error[-2000:])

    def writing(self, out):
        """(name, words, what it writes into the folder `out`) of each."""
        model, text = "m/model.gguf", "text.txt"
        all_of_them = [
            ("train", ["train", "--shape", "tiny", "--steps", "2", "--eval-every", "0", "-o", f"{out}/m"], "m/model.gguf"),
            ("export", ["export", model, f"{out}/e.gguf", "--type", "bf16"], "e.gguf"),
            ("export to a folder", ["export", model, f"{out}/folder"], "folder/model.safetensors"),
            ("quantize", ["quantize", model, f"{out}/q.gguf", "q8_0"], "q.gguf"),
            ("imatrix", ["imatrix", "-m", model, "-f", text, "--chunks", "1", "-o", f"{out}/i.gguf"], "i.gguf"),
            ("rewrite", ["rewrite", model, f"{out}/r.gguf", "--rotate", "stream"], "r.gguf"),
            ("correct", ["correct", model, "small.gguf", "-o", f"{out}/c.gguf", "--rank", "2", "-f", text], "c.gguf"),
            ("recover", ["recover", model, "small.gguf", "-o", f"{out}/rec.gguf", "-f", text, "--steps", "1"], "rec.gguf"),
            ("perplexity", ["perplexity", "-m", model, "-f", text, "--record-logits", f"{out}/base.kl"], "base.kl"),
            ("compare", ["compare", model, "small.gguf", "-f", text, "--chunks", "1", "--html", f"{out}/c.html"], "c.html"),
            ("report", ["report", "m", "-o", f"{out}/report.html"], "report.html"),
            ("tokenize", ["tokenize", "--train", text, "--vocabulary", "280", "-o", f"{out}/tokenizer.json"], "tokenizer.json"),
            ("recommend", ["recommend", "sample", "-o", f"{out}/interactions"], "interactions"),
            ("diffuse", ["diffuse", "data", "-o", f"{out}/shapes", "--count", "60", "--size", "12"], "shapes/train-images-idx3-ubyte"),
        ]
        return [one for one in all_of_them if self.has(one[1][0])]
