#!/usr/bin/env python3
"""Makes tests/model/fixtures/embed: what the last layer of the tiny models of fixtures/families says about texts, as the
well-known implementation (transformers and torch, from PyPI) computes it. Only the results are needed by the tests.

usage: embed_reference.py FAMILIES FOLDER

Each file NAME.safetensors, NAME a family, holds `tokens` [T] and `hidden` [T, hidden] in f32.
"""
import os
import sys

import safetensors.torch
import torch
import transformers as t

LENGTHS = {"llama": 23, "qwen3": 5, "gemma3": 16, "gpt2": 17, "hyperclovax": 9, "mistral": 20}


def main():
    families, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for name, length in LENGTHS.items():
        model = t.AutoModelForCausalLM.from_pretrained(f"{families}/{name}", dtype=torch.float32, attn_implementation="eager")
        tokens = torch.randint(0, model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(9))
        with torch.no_grad():
            hidden = model.base_model(tokens, use_cache=False).last_hidden_state
        safetensors.torch.save_file({"tokens": tokens[0].to(torch.int32), "hidden": hidden[0].clone()},
                                    f"{folder}/{name}.safetensors")


main()
