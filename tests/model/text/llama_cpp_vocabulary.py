#!/usr/bin/env python3
"""Vocabularies that a model's embedding is longer than, and the ends of texts, exported by Lumen and read by llama.cpp
(llama-cpp-python from PyPI): the file loads, texts become the same ids, and texts end at the same tokens.

usage: llama_cpp_vocabulary.py LUMEN FIXTURES      exit code 77: a library is missing, nothing was checked
FIXTURES is tests/model/fixtures.
"""
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import llama_cpp as l
    import numpy as np
    import safetensors.numpy
except ImportError as missing:
    print(f"skipped: {missing}; pip install llama-cpp-python safetensors numpy")
    sys.exit(77)

TEXTS = ["Hello, world! It's 12345 o'clock.", "나랏말싸미 듕귁에 달아", "  two\n\n lines\r\n\t tab ", "x = y + 1;\n    return x", "ÉCOLE naïve ١٢٣", "日本語と中文 mixed"]
# What llama.cpp 0.3.36 cuts in another way by itself: it normalises nothing, and these texts need nothing normalised.
VOCABULARIES = ["qwen3-0.6b.json", "qwen3.5-0.8b.json", "ax-3.1-light.json", "solar-10.7b.json", "deepseek_v3", "ranks/llama"]
DEEPSEEK = ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def tokenizer_of(fixtures, name):
    """The text of a tokenizer.json, and its number of ids."""
    if name == "deepseek_v3":  # the cuts of that model, written with characters where others write escapes
        text = json.loads((fixtures / "tokenizers/qwen3-0.6b.json").read_text())
        text["normalizer"] = {"type": "Sequence", "normalizers": []}
        level = text["pre_tokenizer"]["pretokenizers"][-1]
        text["pre_tokenizer"]["pretokenizers"] = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in DEEPSEEK] + [level]
    else:
        text = json.loads((fixtures / "tokenizers" / name).read_text())
    ids = list(text["model"]["vocab"].values()) + [t["id"] for t in text["added_tokens"]]
    return json.dumps(text), max(ids) + 1


def write_model(folder, vocabulary, ends):
    hidden, ffn, rng = 32, 32, np.random.default_rng(1)
    def matrix(*shape):
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)
    tensors = {"model.embed_tokens.weight": matrix(vocabulary, hidden), "model.norm.weight": np.ones(hidden, np.float32), "lm_head.weight": matrix(vocabulary, hidden)}
    base = "model.layers.0."
    for name, shape in {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (32, 32), "self_attn.v_proj": (32, 32), "self_attn.o_proj": (32, 32),
                        "mlp.gate_proj": (ffn, 32), "mlp.up_proj": (ffn, 32), "mlp.down_proj": (32, ffn)}.items():
        tensors[f"{base}{name}.weight"] = matrix(*shape)
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{base}{name}.weight"] = np.ones(hidden, np.float32)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": ffn, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "eos_token_id": ends}
    (folder / "config.json").write_text(json.dumps(config))


def lumen(*args, **options):
    run = subprocess.run([str(a) for a in args], capture_output=True, text=True, **options)
    assert run.returncode == 0, (args, run.stderr)
    return run


def main():
    program, fixtures = sys.argv[1], Path(sys.argv[2])
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    l.llama_log_set(quiet, ctypes.c_void_p(0))
    l.llama_backend_init()
    wrong = []
    for name in VOCABULARIES:
        with tempfile.TemporaryDirectory() as work:
            folder, file = Path(work) / "model", Path(work) / "model.gguf"
            folder.mkdir()
            if name.startswith("ranks/"):
                (folder / "tokenizer.model").write_bytes((fixtures / name / "tokenizer.model").read_bytes())
                size = 600 + 256
            else:
                text, size = tokenizer_of(fixtures, name)
                (folder / "tokenizer.json").write_text(text)
            ends = [size - 1, size + 3, 5, 6]  # one of them padding
            write_model(folder, size + 29, ends)
            notes = lumen(program, "export", folder, file).stderr
            parameters = l.llama_model_default_params()
            parameters.n_gpu_layers = 0
            model = l.llama_model_load_from_file(str(file).encode(), parameters)
            if not model:
                wrong.append(name)
                print(f"{name}: llama.cpp does not load it; {notes.strip()}")
                continue
            vocab = l.llama_model_get_vocab(model)
            faults = []
            if l.llama_vocab_n_tokens(vocab) != size + 29:
                faults.append(f"{l.llama_vocab_n_tokens(vocab)} tokens")
            if l.llama_vocab_get_text(vocab, size + 7).decode() != f"[PAD{size + 7}]":
                faults.append("padding is called otherwise")
            faults += [f"{end} is no end" for end in ends[:3] if not l.llama_vocab_is_eog(vocab, end)]
            lines = "\n".join(json.dumps(t) for t in TEXTS) + "\n"
            ours = [json.loads(line)["ids"] for line in lumen(program, "tokenize", "-m", file, "--json-lines", "--plain", input=lines).stdout.splitlines()]
            for text, want in zip(TEXTS, ours, strict=True):
                raw, room = text.encode(), (l.llama_token * 256)()
                count = l.llama_tokenize(vocab, raw, len(raw), room, 256, False, False)
                if list(room[:count]) != want:
                    faults.append(f"{text!r}: {list(room[:count])} instead of {want}")
            l.llama_model_free(model)
            print(f"{name:20} {size:6} of {size + 29} ids: " + ("alike" if not faults else "; ".join(faults)))
            wrong += [name] if faults else []
    sys.exit(1 if wrong else 0)


main()
