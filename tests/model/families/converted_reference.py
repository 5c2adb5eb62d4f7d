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

FAMILIES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "families"
# Not: what GGUF has no words for there (other scalings of positions and of scores, windows of the llama architecture or in another
# order than the released ones), and what the converter cannot do (layers without experts between others, partial rotation).
CASES = ["llama", "llama_linear", "llama_llama3", "llama_yarn", "llama_tied_bias", "llama_old_config", "kanana15", "qwen2", "qwen3",
         "gemma2_even", "gemma3_period", "exaone", "exaone4", "exaone4_global", "mixtral", "qwen3_moe", "kanana2", "deepseek_v3_even",
         "solar_open", "exaone_moe", "gpt2", "smollm3", "olmo2", "granite", "phi3", "gpt_oss_mxfp4"]


def complete(folder):
    """What the converter asks for and these folders lack: a length by its old name, a count of words."""
    config = json.loads((folder / "config.json").read_text())
    if "n_positions" in config:
        config["n_ctx"] = config["n_positions"]
        (folder / "config.json").write_text(json.dumps(config))
    words = {str(i): i for i in range(config["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))


def with_words(root, out):
    """Folders with a tokenizer, made here, and what the converter makes of them, in the folder FOLDER_words."""
    import gguf
    import tokenizers
    import transformers
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    texts = [json.loads(line)["text"] for line in (FAMILIES.parent / "tokenizers" / "qwen3.jsonl").open(encoding="utf-8")]
    small = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                 max_position_embeddings=64, tie_word_embeddings=True)
    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.normalizer = tokenizers.normalizers.NFC()
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    words.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(split), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    words.decoder = tokenizers.decoders.ByteLevel()
    words.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    pieces = FAMILIES.parent / "tokenizers" / "pieces-bpe.model"
    import sentencepiece
    count = sentencepiece.SentencePieceProcessor(model_file=str(pieces)).vocab_size()
    words_out = out.with_name(out.name + "_words")
    for name in ("pairs", "pieces"):
        folder = words_out / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(11)
        if name == "pairs":
            config = transformers.Qwen2Config(**small, vocab_size=424, bos_token_id=0, eos_token_id=2)
            model = transformers.Qwen2ForCausalLM(config)
            words.save(str(folder / "tokenizer.json"))
            (folder / "tokenizer_config.json").write_text(json.dumps({
                "tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None,
                "add_bos_token": False, "chat_template": template}, indent=1))
        else:
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, vocab_size=count, bos_token_id=1, eos_token_id=2))
            shutil.copy(pieces, folder / "tokenizer.model")
            (folder / "tokenizer_config.json").write_text(json.dumps({
                "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
                "add_eos_token": False, "legacy": True, "chat_template": template}, indent=1))
        model.to(torch.bfloat16).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        kind = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT))
        # It knows tokenizers by what they make of a text, and has never seen this one.
        kind.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
        with torch.inference_mode():
            kind(folder, gguf.LlamaFileType.MOSTLY_BF16, words_out / f"{name}.gguf").write()
        print(name, os.path.getsize(words_out / f"{name}.gguf"), "bytes")


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

    if not sys.argv[3:]:
        with_words(root, out)
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
