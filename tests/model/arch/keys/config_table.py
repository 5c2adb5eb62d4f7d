#!/usr/bin/env python3
"""Makes tests/model/fixtures/config_keys.json: which keys of config.json the configuration classes of transformers (PyPI, 5.24) know
for each family of models/*.lum, of which types they are, and what they make of files that lack keys or say null. The test
(config_keys_test.cpp) holds every family's text against it; it needs only the result.

usage: config_table.py OUT [MODELS]      MODELS: the folder of the families' texts

For each family: `class`; `usual`, the values of a file that says nothing; `keys`, each with the types it may have (none: any);
`cases`, pairs of what a file says and how the values differ from the usual then. Families whose class is code of their own
checkpoints are described by hand below, from that code.
"""
import dataclasses
import inspect
import json
import pathlib
import re
import sys
import typing

import torch
import transformers

NAMES = {int: "int", float: "float", bool: "bool", str: "str", list: "list", dict: "dict", type(None): "null"}
# Keys of released files that the class does not take, because it knows one value of them only.
RELEASED = {"hunyuan_dense": {"rope_parameters.alpha": {"float"}}, "hunyuan_moe": {"rope_parameters.alpha": {"float"}},
            "ministral3": {"rope_parameters.llama_4_scaling_beta": {"float"}, "rope_parameters.max_position_embeddings": {"int"}},
            "mistral4": {"rope_parameters.llama_4_scaling_beta": {"float"}, "rope_parameters.max_position_embeddings": {"int"}},
            "phimoe": {"rope_parameters.short_mscale": {"float"}, "rope_parameters.long_mscale": {"float"}},
            "kimi_linear": {"linear_attn_config.full_attn_layers": {"list"}, "linear_attn_config.kda_layers": {"list"}, "linear_attn_config.head_dim": {"int"},
                            "linear_attn_config.num_heads": {"int"}, "linear_attn_config.short_conv_kernel_size": {"int"}},
            "deepseek_v3": {"scoring_func": {"str"}}, "axk1": {"scoring_func": {"str"}}, "exaone_moe": {"scoring_func": {"str"}}}
# Configurations of transformers whose model is another family's class. The keys of the published code stand in REMOTE.
BORROWED = {"exaone": ("ExaoneConfig", "LlamaForCausalLM")}
# What files may say, all of it or nothing; what a class does not know is left out, and what it refuses.
SAYS = [
    {}, {"num_hidden_layers": 5}, {"num_attention_heads": 16}, {"num_attention_heads": 16, "num_key_value_heads": None},
    {"use_sliding_window": True}, {"use_sliding_window": True, "sliding_window": 7}, {"use_sliding_window": True, "sliding_window": None},
    {"use_sliding_window": True, "max_window_layers": 3}, {"sliding_window": 9}, {"sliding_window": 9, "sliding_window_pattern": 3},
    {"sliding_window": None, "sliding_window_pattern": None, "layer_types": ["full_attention"] * 3, "num_hidden_layers": 3},
    {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "use_sliding_window": True},
    {"num_experts": 6}, {"num_local_experts": 6}, {"n_routed_experts": 6}, {"mlp_only_layers": [1]}, {"decoder_sparse_step": 2},
    {"first_k_dense_replace": 2}, {"first_k_dense_replace": 2, "moe_layer_freq": 2}, {"n_inner": 100},
    {"rope_theta": 777.0}, {"rope_parameters": {"rope_type": "default", "rope_theta": 55.0}},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 99.0},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default", "rope_theta": 55.0}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": None, "mscale": None}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    {"rope_scaling": None, "rope_parameters": {"rope_type": "linear", "factor": 3.0}},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
]
# What classes take beside their fields: base class, old names of rotation.
EVERY = ["per_layer_config", "tie_last_hidden_states", "torch_dtype", "num_labels", "name_or_path", "output_attentions",
         "attn_implementation", "experts_implementation", "rope_scaling", "rope_theta", "partial_rotary_factor"]

# name: (keys with types and defaults, null)
REMOTE = {
    "exaone": dict(
        vocab_size=(["int"], 102400), max_position_embeddings=(["int"], 2048), hidden_size=(["int"], 2048), head_dim=(["int"], 64), num_layers=(["int"], 32),
        num_attention_heads=(["int"], 32), num_key_value_heads=(["int", "null"], 32), intermediate_size=(["int", "null"], 8192),
        activation_function=(["str"], "silu"), rope_theta=(["float", "int"], 10000.0), rope_scaling=(["dict", "null"], None),
        embed_dropout=(["float"], 0.0), attention_dropout=(["float"], 0.0), layer_norm_epsilon=(["float"], 1e-5),
        initializer_range=(["float"], 0.02), use_cache=(["bool"], True), bos_token_id=(["int"], 0), eos_token_id=(["int"], 2),
        tie_word_embeddings=(["bool"], True)),
    "solar": dict(
        vocab_size=(["int"], 32000), hidden_size=(["int"], 4096), intermediate_size=(["int"], 11008), num_hidden_layers=(["int"], 32),
        num_attention_heads=(["int"], 32), num_key_value_heads=(["int", "null"], 32), hidden_act=(["str"], "silu"),
        max_position_embeddings=(["int"], 2048), initializer_range=(["float"], 0.02), rms_norm_eps=(["float"], 1e-6),
        use_cache=(["bool"], True), pad_token_id=(["int", "null"], None), bos_token_id=(["int"], 1), eos_token_id=(["int"], 2),
        pretraining_tp=(["int"], 1), tie_word_embeddings=(["bool"], False), rope_theta=(["float", "int"], 10000.0),
        rope_scaling=(["dict", "null"], None), attention_bias=(["bool"], False), attention_dropout=(["float"], 0.0),
        mlp_bias=(["bool"], False), sliding_window=(["int"], 2047), bskcn_1=(["list"], [12, 20, 32, 44]), bskcn_2=(["list"], [20, 32]),
        bskcn_3=(["list"], [16, 24, 36, 48]), bskcn_4=(["list"], [28, 40]), bskcn_tv=(["list"], [0.9, 0.8])),
}
ROPE = {k: typing.get_args(t) for k, t in typing.get_type_hints(transformers.modeling_rope_utils.RopeParameters).items()}


def types_of(annotation):
    """The JSON types an annotation allows."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return {"str"}
    if origin in NAMES:
        return {NAMES[origin]}
    if annotation in NAMES:
        return {NAMES[annotation]}
    if getattr(annotation, "__total__", None) is not None:  # a TypedDict
        return {"dict"}
    if origin is typing.Annotated:
        return types_of(typing.get_args(annotation)[0])
    out = set()
    for part in typing.get_args(annotation):
        out |= types_of(part)
    return out


def families(folder):
    """Names of families and their architectures; without parts, and without families that have no Hugging Face folder."""
    for path in sorted(folder.glob("*.lum")):
        header = re.search(r"^model (\w+)\(cfg\) :(.*?)\{\s*$", path.read_text(), re.M | re.S)
        if not header or re.search(r"\bpart\b", header[2]):
            continue
        found = re.search(r'\bhf ((?:"[^"]+" ?)+)', header[2])
        if not found:
            continue
        yield header[1], re.findall(r'"([^"]+)"', found[1])


def finite(x):
    """JSON has no infinity: as transformers writes it."""
    if isinstance(x, dict):
        return {k: finite(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [finite(v) for v in x]
    return {"__float__": "Infinity"} if x == float("inf") else x


def plain(values):
    return json.loads(json.dumps(finite(values), default=str))


def keys_of(cls, module):
    """Keys the class takes or the computation asks for, and their annotations where there are any."""
    hints = typing.get_type_hints(cls, localns={"torch": torch}, include_extras=True)
    keys = {f.name: types_of(hints[f.name]) for f in dataclasses.fields(cls)}
    keys["model_type"] = {"str"}
    known = keys.copy()
    for other, own in cls.attribute_map.items():
        keys.setdefault(other, known.get(own, set()))
        keys.setdefault(own, known.get(other, set()))
    text = inspect.getsource(cls)
    for name in re.findall(r'kwargs\.(?:get|pop)\("(\w+)"', text) + EVERY:
        keys.setdefault(name, set())
    computed = inspect.getsource(module)
    for name in re.findall(r'(?:getattr|hasattr)\((?:self\.)?config, "(\w+)"', computed) + re.findall(r"\bconfig\.(\w+)", computed):
        if not name.startswith("_") and not callable(getattr(cls, name, None)) and not isinstance(getattr(cls, name, None), property):
            keys.setdefault(name, set())
    return keys


def described(name, architectures):
    cls = next((getattr(transformers, a).config_class for a in architectures if hasattr(transformers, a)), None)
    if name in BORROWED:
        cls, architectures = getattr(transformers, BORROWED[name][0]), BORROWED[name][1:]
    if cls is None:
        entry = {k: sorted(types) for k, (types, _) in REMOTE[name].items()}
        return {"class": None, "usual": {k: v for k, (_, v) in REMOTE[name].items()}, "keys": entry, "cases": [[{}, {}]]}
    model = next(getattr(transformers, a) for a in architectures if hasattr(transformers, a))
    usual = plain(cls().to_dict())
    found = {k: set(types) for k, (types, _) in REMOTE.get(name, {}).items()} | keys_of(cls, inspect.getmodule(model)) | RELEASED.get(name, {})
    keys = {key: sorted(types) for key, types in found.items()}
    cases = []
    for says in SAYS + [{key: None} for key in sorted(keys)]:
        if not set(says) <= set(keys) or "torch_dtype" in says or "dtype" in says:
            continue
        try:
            means = plain(cls(**json.loads(json.dumps(says))).to_dict())
        except Exception:  # it refuses that
            continue
        if (means.get("num_key_value_heads") or 1) > means.get("num_attention_heads", 1):  # no program computes it
            continue
        differs = {k: v for k, v in means.items() if k not in usual or usual[k] != v}
        if differs or len(says) != 1 or None not in says.values():
            cases.append([says, differs])
    if "rope_parameters" in keys:
        nested = isinstance((usual.get("rope_parameters") or {}).get("full_attention"), dict)
        for key, types in ROPE.items():
            for place in ("full_attention.", "sliding_attention.") if nested else ("",):
                keys[f"rope_parameters.{place}{key}"] = sorted(set().union(*map(types_of, types)))
    return {"class": cls.__name__, "usual": usual, "keys": keys, "cases": cases}


def main():
    out = sys.argv[1]
    folder = pathlib.Path(sys.argv[2]) if sys.argv[2:] else pathlib.Path(__file__).resolve().parents[4] / "models"
    table = {"transformers": transformers.__version__, "families": {n: described(n, a) for n, a in families(folder)}}
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    text = text.replace('],"', '],\n"').replace("}],[{", "}],\n[{")
    pathlib.Path(out).write_text(text + "\n")
    for name, entry in table["families"].items():
        print(f"{name:16} {entry['class']}: {len(entry['keys'])} keys")


if __name__ == "__main__":
    main()
