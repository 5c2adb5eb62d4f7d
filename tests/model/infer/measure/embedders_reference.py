#!/usr/bin/env python3
"""Makes tests/model/fixtures/embedders: tiny embedding models with random weights as folders of sentence-transformers, and the vectors
that sentence-transformers (from PyPI, with transformers and torch) computes of texts. Only the results are needed by the tests.

usage: embedders_reference.py FOLDER [NAME ...]

Each NAME is a folder with a tokenizer, modules.json and what that names. NAME.json: `texts`, `ids` of the tokens, and `prompts`: names of
prompts ("": none) with the vectors' file key. NAME.safetensors: for each prompt `vectors.PROMPT` [texts, numbers], of length 1.
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers as t

import encoder_reference as reference

CASES = {}


def case(name, pooling, dense=(), prompts=None, normalize=True, longest=None):
    def add(make):
        CASES[name] = (make, pooling, dense, prompts, normalize, longest)
        return make
    return add


MODERN = dict(hidden_size=24, num_hidden_layers=5, num_attention_heads=3, intermediate_size=20, max_position_embeddings=160, initializer_range=0.2,
              local_attention=8, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3)
case("modern", "cls")(lambda n: t.ModernBertModel(t.ModernBertConfig(vocab_size=n, **MODERN, rope_parameters={
    "full_attention": dict(rope_type="default", rope_theta=2000.0), "sliding_attention": dict(rope_type="default", rope_theta=100.0)})))
case("modern_biases", "mean", normalize=False)(lambda n: t.ModernBertModel(t.ModernBertConfig(
    vocab_size=n, **{**MODERN, "num_hidden_layers": 3, "local_attention": 5}, attention_bias=True, mlp_bias=True, norm_bias=True, hidden_activation="silu",
    layer_types=["sliding_attention", "full_attention", "sliding_attention"])))
case("gemma", "mean", dense=((24, 40, False, "torch.nn.modules.linear.Identity"), (40, 24, False, "torch.nn.modules.linear.Identity")),
     prompts={"query": "the query | ", "document": "the lazy | "})(lambda n: t.Gemma3TextModel(t.Gemma3TextConfig(
         vocab_size=n, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=8, intermediate_size=20, query_pre_attn_scalar=8,
         max_position_embeddings=160, sliding_window=8, use_bidirectional_attention=True, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
         pad_token_id=0, bos_token_id=2, eos_token_id=3)))
ELECTRA = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=160, initializer_range=0.2)
case("electra", "mean", dense=((24, 16, True, "torch.nn.modules.activation.Tanh"),))(lambda n: t.ElectraModel(t.ElectraConfig(vocab_size=n, embedding_size=16, **ELECTRA)))
case("electra_wide", "weightedmean")(lambda n: t.ElectraModel(t.ElectraConfig(vocab_size=n, embedding_size=24, **ELECTRA)))
case("distil", "max", longest=12)(lambda n: t.DistilBertModel(t.DistilBertConfig(
    vocab_size=n, dim=24, n_layers=2, n_heads=3, hidden_dim=40, max_position_embeddings=160, initializer_range=0.2)))
case("last", "lasttoken", prompts={"query": "Instruct: over the fox\nQuery:", "document": ""})(lambda n: t.Qwen3Model(t.Qwen3Config(
    vocab_size=n, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=40, max_position_embeddings=160,
    bos_token_id=2, eos_token_id=3)))


def write(path, what):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8")


def make(name, root):
    build, pooling, dense, prompts, normalize, longest = CASES[name]
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    tok = reference.trained(300, True)
    tok.save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"})
    torch.manual_seed(len(name))
    model = build(tok.get_vocab_size())
    with torch.no_grad():
        for p in model.parameters():
            p.add_((0.3 if p.dim() == 1 else 0.15) * torch.randn(p.shape))
            p.copy_(p.to(torch.bfloat16))
    model.to(torch.bfloat16).save_pretrained(folder)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    width = getattr(model.config, "hidden_size", 24)
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": width, "pooling_mode_mean_tokens": False, "pooling_mode_" + {
        "mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}[pooling]: True,
        "include_prompt": True})
    for i, (inside, outside, bias, activation) in enumerate(dense):
        own = f"{i + 2}_Dense"
        modules.append((own, "Dense"))
        write(folder / own / "config.json", {"in_features": inside, "out_features": outside, "bias": bias, "activation_function": activation})
        weights = {"linear.weight": torch.randn(outside, inside) * 0.3, **({"linear.bias": torch.randn(outside) * 0.3} if bias else {})}
        safetensors.torch.save_file({k: v.to(torch.bfloat16) for k, v in weights.items()}, folder / own / "model.safetensors")
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        (folder / modules[-1][0]).mkdir(exist_ok=True)
    write(folder / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(modules)])
    if prompts:
        write(folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"})
    write(folder / "sentence_bert_config.json", {"max_seq_length": longest or 150, "do_lower_case": False})
    import sentence_transformers
    whole = sentence_transformers.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
    texts = [x for x in reference.TEXTS if x and (longest is None or len(tok.encode(x).ids) <= longest)]
    vectors = {}
    for prompt in ["", *(prompts or {})]:
        got = whole.encode(texts, prompt_name=prompt or None, convert_to_tensor=True, batch_size=8)
        vectors["vectors." + prompt] = torch.nn.functional.normalize(got.float(), dim=1).contiguous()
    write(root / f"{name}.json", {"texts": texts, "ids": [tok.encode(x).ids for x in texts], "prompts": ["", *(prompts or {})]})
    safetensors.torch.save_file(vectors, root / f"{name}.safetensors")
    print(name, {k: tuple(v.shape) for k, v in vectors.items()})


def main():
    root = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or CASES:
        make(name, root)


main()
