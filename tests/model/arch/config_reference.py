#!/usr/bin/env python3
"""Random legal configurations of every family, as tiny models of transformers (PyPI): from the same folder Lumen must compute the same
logits (of encoders, last hidden states), or refuse it by naming a key of config.json. What it then writes as GGUF, and from there as a folder, transformers must load
and compute the same with, too; so it must for the families' fixtures.

usage: config_reference.py TEST_PROGRAM [--count N] [--seed S] [--keep FOLDER] [--results FILE] [FAMILY ...]
--results: what was drawn of each family, for tools/families_table.py
LUMEN_CONFIGS=500 in the environment draws that many, also under `make test-references`
exit code 77: a library is missing, nothing was checked
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; pip install transformers torch safetensors")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "arch" / "keys"))
from config_table import families  # noqa: E402

T = 23
BOUND = 1e-4  # of the range of all logits
# Families whose code is that of their checkpoints alone.
REMOTE = {"exaone", "solar"}


def maybe(r, chance, value, otherwise=None):
    return value if r.random() < chance else otherwise


def rotation(r, half, context):
    kind = r.choice(["default", "default", "linear", "dynamic", "yarn", "longrope", "llama3"])
    p = {"rope_type": kind, "rope_theta": r.choice([10000.0, 500.0, 1e6])}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        p["factor"] = r.choice([1.0, 2.0, 3.5, 8.0])
    if kind in ("yarn", "llama3", "longrope") and (kind == "llama3" or r.random() < 0.8):
        p["original_max_position_embeddings"] = r.choice([8, 16, 32])
    if kind == "yarn":
        for key, value in (("beta_fast", 16.0), ("beta_slow", 2.0), ("attention_factor", 1.2), ("truncate", False), ("beta_fast", None)):
            if r.random() < 0.25:
                p[key] = value
        if r.random() < 0.3:
            p["mscale"], p["mscale_all_dim"] = r.choice([(0.8, 0.5), (1.0, 1.0), (0.7, 0.0)])
    if kind == "llama3":
        p["low_freq_factor"], p["high_freq_factor"] = 1.0, 4.0
    if kind == "longrope":
        for key in ("short_factor", "long_factor"):
            p[key] = [round(1 + r.random() * 4, 2) for _ in range(half)]
        for key, value in (("factor", r.choice([1.0, 2.0, 4.0])), ("attention_factor", 1.3)):
            if r.random() < 0.4:
                p[key] = value
    return p


def shape(r, fields):
    """Numbers that fit each other; those a class has no field for fall away."""
    heads = r.choice([2, 4])
    hidden = r.choice([16, 24, 32, 48])
    layers = r.randint(1, 5)
    experts = r.choice([4, 6, 8])
    groups = r.choice([1, 1, 2])
    n = dict(vocab_size=r.randint(40, 70), hidden_size=hidden, intermediate_size=r.choice([20, 28, 44]), num_hidden_layers=layers,
             num_attention_heads=heads, num_key_value_heads=r.choice([k for k in (1, 2, 4) if heads % k == 0]),
             max_position_embeddings=r.choice([16, 24, 64]), head_dim=r.choice([8, 12, 16]),
             n_embd=hidden, n_layer=layers, n_head=heads, n_positions=r.choice([24, 64]), n_inner=maybe(r, 0.5, 36),
             moe_intermediate_size=r.choice([12, 20]), shared_expert_intermediate_size=r.choice([12, 24]),
             num_experts=experts, num_local_experts=experts, n_routed_experts=experts, num_experts_per_tok=r.choice([1, 2]),
             n_shared_experts=r.choice([1, 2]), num_shared_experts=r.choice([1, 2]), n_group=groups, topk_group=r.randint(1, groups),
             kv_lora_rank=r.choice([8, 12]), q_lora_rank=r.choice([10, 14]), qk_rope_head_dim=r.choice([4, 8]), qk_nope_head_dim=r.choice([6, 8]),
             v_head_dim=r.choice([6, 10]), pad_token_id=None, bos_token_id=1, eos_token_id=2)
    if "kv_lora_rank" in fields:
        n["num_key_value_heads"] = heads
    n["rope_half"] = (n["qk_rope_head_dim"] if "kv_lora_rank" in fields else n["head_dim"] if "head_dim" in fields else hidden // heads) // 2
    return n


def drawn(r, cls):
    """A configuration: numbers that fit, and of everything else now and then another value."""
    # A class takes fields of its base away by an error in their place.
    fields = {f: cls.__dataclass_fields__[f].type for f in cls.__dataclass_fields__ if not isinstance(vars(cls).get(f), AttributeError)}
    known = set(fields) | set(cls.attribute_map)
    n = shape(r, known)
    layers, context = n["num_hidden_layers"], n["max_position_embeddings"]
    c = {k: v for k, v in n.items() if k in fields}
    if "rope_parameters" in fields:
        if isinstance((cls().rope_parameters or {}).get("full_attention"), dict):
            simple = {"full_attention": r.choice([{"rope_type": "default", "rope_theta": 5e4}, {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5}]),
                      "sliding_attention": {"rope_type": "default", "rope_theta": r.choice([1e4, 300.0])}}
            c["rope_parameters"] = simple
        else:
            c["rope_parameters"] = rotation(r, n["rope_half"], context)
    one = dict(tie_word_embeddings=lambda: r.random() < 0.4, rms_norm_eps=lambda: r.choice([1e-5, 1e-6, 1e-3]),
               layer_norm_epsilon=lambda: r.choice([1e-5, 1e-3]), sliding_window=lambda: r.choice([3, 6, 11, None]),
               use_sliding_window=lambda: r.random() < 0.6, max_window_layers=lambda: r.randint(0, layers),
               sliding_window_pattern=lambda: r.randint(2, 4), decoder_sparse_step=lambda: r.choice([1, 1, 2]),
               mlp_only_layers=lambda: r.choice([None, [], [0], [1]]), norm_topk_prob=lambda: r.random() < 0.5,
               first_k_dense_replace=lambda: r.randint(0, layers), routed_scaling_factor=lambda: r.choice([1.0, 1.7]),
               query_pre_attn_scalar=lambda: r.choice([8, 20]), attn_logit_softcapping=lambda: r.choice([1.5, None, 20.0]),
               final_logit_softcapping=lambda: r.choice([2.0, None, 30.0]), layer_types=lambda: r.choice([None, [
                   r.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]]),
               mlp_layer_types=lambda: r.choice([None, [r.choice(["sparse", "dense"]) for _ in range(layers)]]),
               hidden_act=lambda: r.choice(["silu", "silu", "gelu_pytorch_tanh", "relu", "gelu"]),
               hidden_activation=lambda: r.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "silu"]),
               activation_function=lambda: r.choice(["gelu_new", "relu", "gelu_pytorch_tanh", "gelu"]),
               embedding_multiplier=lambda: r.choice([1.0, 8.0]), residual_multiplier=lambda: r.choice([1.0, 0.6]),
               logits_scaling=lambda: r.choice([1.0, 0.25]), attention_multiplier=lambda: r.choice([None, 0.2]))
    for key, value in one.items():
        if key in fields and r.random() < 0.8:
            c[key] = value()
    # Whatever else there is that may be true or false.
    for key, kind in fields.items():
        if key not in c and kind in (bool, "bool", bool | None) and r.random() < 0.15 and key not in (
                "use_cache", "output_hidden_states", "return_dict", "is_encoder_decoder", "output_router_logits", "output_attentions"):
            c[key] = r.random() < 0.5
    if "q_lora_rank" in fields and "index_topk" not in fields and cls.__name__.startswith("Deepseek") and r.random() < 0.4:
        c["q_lora_rank"] = None
    fit(r, c, fields, n)
    fit_indexers(r, c, fields, n)
    fit_rotation(r, c, cls, n)
    return c


def fit_indexers(r, c, fields, n):
    """Indexers choose fewer keys than there are positions; of many heads, so that equal scores are rare. Kimi's delta rule."""
    layers = n["num_hidden_layers"]
    if "index_topk" in fields:
        c.pop("layer_types", None)
        c.update(index_topk=r.choice([3, 6, 40]), index_n_heads=16, index_head_dim=r.choice([8, 12]))
        if "indexer_types" in fields:
            c["indexer_types"] = ["full"] + [r.choice(["full", "shared"]) for _ in range(layers - 1)]
        if "gated_norm_rank" in fields:
            c["gated_norm_rank"] = r.choice([3, 5])
            if r.random() < 0.5:
                c.update(n_group=None, topk_group=None)
    if "linear_num_heads" in fields or "layer_group_size" in fields:  # Kimi's delta rule
        c["layer_types"] = [r.choice(["linear_attention", "full_attention"]) for _ in range(layers)]
        if "linear_num_heads" in fields:
            c.update(linear_num_heads=r.choice([2, 3]), linear_head_dim=r.choice([6, 8]), linear_conv_kernel_dim=r.choice([3, 4]))
            c["q_lora_rank"] = r.choice([None, n["q_lora_rank"]])
        else:
            c.update(layer_group_size=r.choice([2, 3]), head_dim=r.choice([6, 8]), short_conv_kernel_size=r.choice([3, 4]), kda_lower_bound=r.choice([-5.0, -2.0]))
    if "linear_allow_neg_eigval" in fields:
        # Equal sizes of queries, keys and values: the class writes their convolutions as three equal parts.
        keys, width = r.choice([1, 2]), r.choice([6, 8])
        c.update(linear_num_key_heads=keys, linear_num_value_heads=keys, linear_key_head_dim=width, linear_value_head_dim=width)
        if layers == 1:
            c["num_hidden_layers"] = layers = 2
        c["layer_types"] = r.sample(["linear_attention", "full_attention"] + [r.choice(["linear_attention", "full_attention"]) for _ in range(layers - 2)], k=layers)


def fit_rotation(r, c, cls, n):
    """Keys of rotation that single classes demand."""
    if cls.__name__ in ("Ministral3Config", "Mistral4Config") and r.random() < 0.7:
        c["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": r.choice([2.0, 4.0]), "original_max_position_embeddings": r.choice([4, 8]), "beta_fast": 32.0,
                                "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": r.choice([0.1, 0.3])}
    if cls.__name__ == "PhimoeConfig" and c.get("rope_parameters", {}).get("rope_type") != "default":
        rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64, "short_mscale": 1.2, "long_mscale": r.choice([1.2, 1.4])}
        for key in ("short_factor", "long_factor"):
            rope[key] = [round(1 + r.random() * 4, 2) for _ in range(c["hidden_size"] // c["num_attention_heads"] // 2)]
        c["rope_parameters"] = rope
    if cls.__name__ == "OlmoHybridConfig":
        c["rope_parameters"] = {"rope_type": "default", "rope_theta": r.choice([None, 1e4, 500.0])}
    if cls.__name__ == "MiMoV2FlashConfig":
        c.update(num_attention_heads=4, num_key_value_heads=r.choice([1, 2]), head_dim=r.choice([12, 16]), v_head_dim=r.choice([6, 8]), attention_value_scale=r.choice([0.707, None, 1.3]),
                 layer_types=[r.choice(["sliding_attention", "full_attention"]) for _ in range(n["num_hidden_layers"])], sliding_window=r.choice([3, 6, 11]),
                 rope_parameters={k: {"rope_type": "default", "rope_theta": r.choice([1e4, 300.0]), "partial_rotary_factor": 0.334} for k in ("full_attention", "sliding_attention")})


def fit(r, c, fields, n):
    """Kinds of layers other than those with a window, and numbers of recurrent layers and encoders, which depend on each other."""
    hidden, layers, heads = n["hidden_size"], n["num_hidden_layers"], n["num_attention_heads"]
    inner, groups = r.choice([(4, 8), (8, 4), (8, 8)]), r.choice([1, 2, 4])

    def kinds(*names):
        return [r.choice(names) for _ in range(layers)]
    if "mamba_n_heads" in fields:
        c.update(mamba_n_heads=inner[0], mamba_d_head=inner[1], mamba_n_groups=groups, mamba_d_state=r.choice([4, 5]), mamba_expand=2, hidden_size=inner[0] * inner[1] // 2,
                 mamba_chunk_size=8, num_local_experts=0, position_embedding_type=r.choice([None, "rope"]), layer_types=kinds("linear_attention", "full_attention"),
                 shared_intermediate_size=r.choice([20, 36]), head_dim=8, attention_multiplier=0.3)
        c.pop("head_dim") if "head_dim" not in fields else None
        if c["hidden_size"] % heads or (c["hidden_size"] // heads) % 2:
            c.update(num_attention_heads=2, num_key_value_heads=r.choice([1, 2]))
    elif "mamba_num_heads" in fields:
        c.update(mamba_num_heads=inner[0], mamba_head_dim=inner[1], n_groups=groups, ssm_state_size=r.choice([4, 5]), chunk_size=8, layers_block_type=[
            r.choice(["linear_attention", "full_attention", "mlp"]) for _ in range(layers)])
        c.pop("num_hidden_layers", None)
    elif "state_size" in fields:
        c.update(num_heads=inner[0], head_dim=inner[1], n_groups=groups, state_size=r.choice([4, 5]), expand=2, hidden_size=inner[0] * inner[1] // 2, chunk_size=8)
    elif "conv_L_cache" in fields:
        c.update(layer_types=kinds("conv", "full_attention"), conv_L_cache=r.choice([3, 4]))
        if "num_dense_layers" in fields:
            c["num_dense_layers"] = r.randint(0, layers)
    elif "linear_num_key_heads" in fields:
        keys = r.choice([1, 2])
        c.update(layer_types=kinds("linear_attention", "full_attention"), linear_num_key_heads=keys, linear_num_value_heads=keys * r.choice([1, 2]),
                 linear_key_head_dim=r.choice([6, 8]), linear_value_head_dim=r.choice([4, 8]), linear_conv_kernel_dim=r.choice([3, 4]), head_dim=16)
        c["rope_parameters"] = {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": r.choice([0.25, 0.5, 1.0])}
    if "n_heads" in fields and "dim" in fields:  # DistilBERT
        c.update(dim=hidden, n_layers=layers, n_heads=heads, hidden_dim=n["intermediate_size"], activation=r.choice(["gelu", "relu"]))
    if "type_vocab_size" in fields or "sinusoidal_pos_embds" in fields or "local_attention" in fields:  # encoders
        c.update(pad_token_id=1, max_position_embeddings=64)
        for key, values in dict(type_vocab_size=(1, 2), layer_norm_eps=(1e-12, 1e-5), norm_eps=(1e-5, 1e-3), local_attention=(4, 7, 16), embedding_size=(hidden, 16),
                                hidden_activation=("gelu", "silu"), hidden_act=("gelu", "relu", "gelu_new")).items():
            if key in fields:
                c[key] = r.choice(values)
        if "local_attention" in fields and "rope_parameters" in c:
            c["rope_parameters"] = {k: {"rope_type": "default", "rope_theta": r.choice([1e4, 300.0])} for k in ("full_attention", "sliding_attention")}


def changed(r, config, known):
    """A config.json that says things otherwise: keys left out or null, old names, keys nobody knows."""
    config = dict(config)
    for key in r.sample(sorted(config), k=min(len(config), r.choice([0, 0, 1, 2, 4]))):
        if key not in ("architectures", "model_type", "vocab_size"):
            config.pop(key)
    if r.random() < 0.25:
        config[r.choice(sorted(config))] = None
    rope = config.get("rope_parameters")
    if rope and not any(isinstance(v, dict) for v in rope.values()) and r.random() < 0.3:
        rope = dict(config.pop("rope_parameters"))
        config["rope_theta"] = rope.pop("rope_theta", None)
        if rope.get("rope_type") != "default" or r.random() < 0.3:
            if r.random() < 0.5:
                rope["type"] = rope.pop("rope_type", "default")
            config["rope_scaling"] = rope
    for key, value in (("attention_bias", True), ("mlp_bias", True), ("sliding_window", 5), ("layer_types", ["full_attention"]), ("head_dim", None),
                       ("max_window_layers", 1), ("partial_rotary_factor", 0.5), ("some_key", 3), ("use_bidirectional_attention", True),
                       ("per_layer_config", {"0": {"sliding_window": 3}}), ("num_nextn_predict_layers", 0), ("moe_layer_freq", 2)):
        if key not in known and r.random() < 0.06:
            config[key] = value
    return config


def settle(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=generator) * (0.35 if p.dim() > 1 else 0.3)
            p.copy_(values + 1 if p.dim() == 1 and name.endswith("weight") and (p - 1).abs().max() < 1e-3 else values)
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name or "expert_bias" in name:
                b.copy_(torch.randn(b.shape, generator=generator) * 0.2)


def encodes(kind):
    return kind.__name__.endswith("Model") and "LMHead" not in kind.__name__


def logits_of(kind, folder, tokens):
    model, told = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    # An encoder's pooler reads the last hidden states, and is not compared.
    told = {k: [x for x in v if not (encodes(kind) and x.startswith("pooler."))] for k, v in told.items()}
    bad = {k: sorted(v) for k, v in told.items() if v and k in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs")}
    assert not bad, bad
    with torch.no_grad():
        said = model.eval()(tokens, **({} if encodes(kind) else {"use_cache": False}))
        return (said.last_hidden_state if encodes(kind) else said.logits).to(torch.float32)


def make(r, architecture, folder, seed):
    """A folder with a model and what it computes; None where the library itself refuses the configuration."""
    kind = getattr(transformers, architecture)
    cls = kind.config_class
    config = drawn(r, cls)
    if kind.__name__ == "Gemma3TextModel":
        config["use_bidirectional_attention"] = True
    try:
        model = kind(cls(**json.loads(json.dumps(config)))).to(torch.float32).eval()
        settle(model, seed)
        model.save_pretrained(folder)
        path = folder / "config.json"
        known = set(cls.__dataclass_fields__) | set(cls.attribute_map)
        path.write_text(json.dumps(changed(r, json.loads(path.read_text()), known), indent=1))
        # Without the padding token, which some encoders look for.
        tokens = torch.randint(2, model.config.vocab_size, (2, T), generator=torch.Generator().manual_seed(seed))
        logits = logits_of(kind, folder, tokens)
        assert torch.isfinite(logits).all() and logits.max() > logits.min()
    except Exception as refused:
        shutil.rmtree(folder, ignore_errors=True)
        return f"{type(refused).__name__}: {str(refused)[:100]}"
    (folder / "generation_config.json").unlink(missing_ok=True)
    safetensors.torch.save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous(),
                                 **({"encodes": torch.ones(1)} if encodes(kind) else {})}, folder / "expected.safetensors")
    return None


def judge(program, folder, kinds, tell):
    """What Lumen says of the folders, and what transformers says of what it wrote; wrong ones by name."""
    ran = subprocess.run([program, "--gtest_filter=ConfigExchange.Folders"], env={**os.environ, "LUMEN_CONFIGS_DIR": str(folder)},
                         capture_output=True, text=True)
    assert ran.returncode == 0 and "[       OK ] ConfigExchange.Folders" in ran.stdout, ran.stdout[-2000:] + ran.stderr[-2000:]
    said = json.loads((folder / "judged.json").read_text())
    wrong, refusals = [], collections.Counter()
    for name, result in sorted(said.items()):
        config = json.loads((folder / name / "config.json").read_text())
        if "refused" in result:
            # A key may be wrong by its absence: a default that does not fit the others.
            known = getattr(getattr(transformers, kinds[name], None), "config_class", None)
            named = [k for k in [*getattr(known, "__dataclass_fields__", ()), *keys_in(config)] if f'"{k}"' in result["refused"]]
            if not named or "config.json" not in result["refused"]:
                wrong.append((name, "refused without naming a key: " + result["refused"]))
            else:
                refusals[f"{kinds[name]} {named[-1]}"] += 1
            continue
        if not result["off"] < BOUND:
            wrong.append((name, f"logits off by {result['off']:.2e} of the range"))
            continue
        expected = safetensors.torch.load_file(folder / name / "expected.safetensors")
        if not hasattr(transformers, kinds[name]) or config.get("model_type") in REMOTE:
            continue
        try:
            back = logits_of(getattr(transformers, kinds[name]), folder / name / "back", expected["tokens"].to(torch.int64))
        except Exception as failure:
            wrong.append((name, f"what we wrote does not load: {type(failure).__name__}: {str(failure)[:300]}"))
            continue
        want = expected["logits"]
        off = ((back - want).abs().max() / (want.max() - want.min())).item()
        if not off < BOUND:
            wrong.append((name, f"what we wrote computes logits that are off by {off:.2e}"))
    print(f"{tell}: {len(said)} folders, {sum(refusals.values())} refused by name, {len(wrong)} wrong")
    for key, count in sorted(refusals.items()):
        print(f"  refused {count:3} times: {key}")
    return wrong


def keys_in(config, inside=""):
    for key, value in config.items():
        yield inside + key
        if isinstance(value, dict):
            yield from keys_in(value, inside + key + ".")


def record(path, folder, wrong):
    """How many configurations of each family were exact, refused and wrong."""
    bad = {name for name, _ in wrong}
    counts = {}
    for name, result in json.loads((folder / "judged.json").read_text()).items():
        one = counts.setdefault(name.rsplit("_", 2)[0], {"exact": 0, "refused": 0, "wrong": 0})
        one["wrong" if name in bad else "refused" if "refused" in result else "exact"] += 1
    path.write_text(json.dumps({"transformers": transformers.__version__, "families": counts}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=54)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep")
    parser.add_argument("--results")
    parser.add_argument("families", nargs="*")
    a = parser.parse_intermixed_args()
    a.count = int(os.environ.get("LUMEN_CONFIGS", a.count))
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    known = [(n, next((x for x in archs if hasattr(transformers, x)), archs[0])) for n, archs in families(HERE.parents[1] / "models")]
    # Those that predict tokens, whose logits are compared, and encoders.
    chosen = [(n, x) for n, x in known if (not a.families or n in a.families) and n not in REMOTE and re.search("CausalLM|LMHead|Model$", x)]
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(a.keep or temporary)
        # Fixtures: as they are.
        folder = root / "fixtures"
        kinds = {}
        for source in sorted((HERE / "fixtures" / "families").iterdir()):
            architecture = json.loads((source / "config.json").read_text())["architectures"][0]
            if not any(architecture == x for n, x in known if not a.families or n in a.families) or "lumen_config" in (source / "config.json").read_text():
                continue
            shutil.copytree(source, folder / source.name)
            kinds[source.name] = architecture
        if kinds:
            wrong += judge(a.program, folder, kinds, "fixtures")
        folder, kinds, refused = root / "drawn", {}, collections.Counter()
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(a.count):
            family, architecture = chosen[i % len(chosen)]
            for attempt in range(20):
                name = f"{family}_{a.seed}_{i}"
                why = make(random.Random(f"{a.seed} {i} {attempt}"), architecture, folder / name, a.seed * 1000 + i)
                if why is None:
                    kinds[name] = architecture
                    break
                refused[f"{family}: {why}"] += 1
            else:
                print(f"{family}: no configuration in 20 that transformers takes: " + "; ".join(k for k in refused if k.startswith(family + ":"))[:600])
                wrong.append((family, "none drawn"))
        drawn_wrong = judge(a.program, folder, kinds, f"drawn with seed {a.seed}")
        wrong += drawn_wrong
        if a.results:
            record(pathlib.Path(a.results), folder, drawn_wrong)
    for name, what in wrong:
        print(f"{name}: {what}")
    if wrong:
        sys.exit(1)
    print("all alike")


main()
