#!/usr/bin/env python3
"""Makes tests/model/fixtures/converted: the folders of the families' fixtures as GGUF, by llama.cpp's own converter. Only the
results are needed by the tests. The weights are our random ones, exact in bf16.

usage: converted_reference.py LLAMA_CPP FOLDER [CASE ...]

LLAMA_CPP: a source folder of llama.cpp, for instance vendor/llama.cpp of llama-cpp-python's source archive (PyPI, 0.3.36); torch,
transformers, numpy and sentencepiece are needed, too. Folders without a tokenizer are converted without one: the converter would
refuse them.
"""
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

import torch

FAMILIES = pathlib.Path(__file__).resolve().parent / "fixtures" / "families"
# Not: what GGUF has no words for there (other scalings of positions and of scores, windows of the llama architecture or in another
# order than the released ones), and what the converter cannot do (layers without experts between others, partial rotation).
CASES = ["llama", "llama_linear", "llama_llama3", "llama_yarn", "llama_tied_bias", "llama_old_config", "kanana15", "qwen2", "qwen3",
         "gemma2_even", "gemma3_period", "exaone", "exaone4", "exaone4_global", "mixtral", "qwen3_moe", "kanana2", "deepseek_v3_even",
         "solar_open", "exaone_moe", "gpt2"]


def complete(folder):
    """What the converter asks for and these folders lack: a length by its old name, a count of words."""
    config = json.loads((folder / "config.json").read_text())
    if "n_positions" in config:
        config["n_ctx"] = config["n_positions"]
        (folder / "config.json").write_text(json.dumps(config))
    words = {str(i): i for i in range(config["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    sys.path[1:1] = [str(root), str(root / "gguf-py")]
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    logging.basicConfig(level=logging.ERROR)
    out.mkdir(parents=True, exist_ok=True)

    def no_vocabulary(self):
        self._set_vocab_none()
        if self.gguf_writer.arch not in ("llama", "deepseek2", "exaone4", "exaone-moe"):  # those say it themselves
            self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

    for name in sys.argv[3:] or CASES:
        target = out / f"{name}.gguf"
        with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
            folder = pathlib.Path(temporary) / name
            shutil.copytree(FAMILIES / name, folder)
            os.remove(folder / "expected.safetensors")
            complete(folder)
            config = ModelBase.load_hparams(folder, False)
            kind = get_model_class(get_model_architecture(config, ModelType.TEXT))
            kind.set_vocab = no_vocabulary
            kind(folder, gguf.LlamaFileType.MOSTLY_BF16, target).write()
        print(f"{name:20} {os.path.getsize(target)} bytes")


main()
