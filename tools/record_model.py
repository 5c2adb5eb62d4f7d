#!/usr/bin/env python3
"""Records what each part of a model computes, as transformers and torch (from PyPI) run it, for `lumen compile --check-family`.

usage: record_model.py FOLDER OUT [--tokens N] [--texts N] [--layers-only] [--seed S]

FOLDER is a Hugging Face folder of any model that transformers can load. Random tokens go through it. OUT becomes a folder:

  recording.safetensors   tokens [texts, N]; `embedding`, the input of the first layer; `result`, the logits, or the last hidden
                          state of a model without them; and under the name of each module of the model its output, in f32
  recording.json          the model's folder, relative to OUT; its class; the versions of the programs; and the modules in the
                          order in which they finish. `layer` is the number of a module that is a whole layer

Modules that run more than once, or whose output does not begin with the axes of texts and tokens, are left out.
"""
import argparse
import json
import os
import sys

VERSION = 1


def arguments():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    p.add_argument("folder")
    p.add_argument("out")
    p.add_argument("--tokens", type=int, default=16, help="tokens of each text")
    p.add_argument("--texts", type=int, default=2)
    p.add_argument("--layers-only", action="store_true", help="leave out what is inside of layers: for large models")
    p.add_argument("--seed", type=int, default=1)
    given = p.parse_args()
    if given.tokens < 1 or given.texts < 1:
        p.error("at least one token of one text is needed")
    return given


def load(transformers, torch, folder):
    """The class that config.json names, or the one without a head."""
    config = transformers.AutoConfig.from_pretrained(folder)
    named = [getattr(transformers, name, None) for name in (config.architectures or [])]
    for kind in [k for k in named if k is not None] + [transformers.AutoModelForCausalLM, transformers.AutoModel]:
        try:
            return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        except (ValueError, AttributeError, TypeError) as wrong:
            last = wrong
    raise last


def layers_of(model, torch):
    """The longest list of modules, of equal ones the least deep: the layers. Towers for pictures and sound have other names."""
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) > 0
             and not any(word in name for word in ("vision", "visual", "audio", "experts"))]
    if not lists:
        raise SystemExit("this model has no list of layers")
    wanted = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    fitting = [pair for pair in lists if len(pair[1]) == wanted] or lists
    return min(fitting, key=lambda pair: (-len(pair[1]), pair[0].count(".")))


def main():
    given = arguments()
    try:
        import safetensors.torch
        import torch
        import transformers
    except ImportError as missing:
        raise SystemExit(f"{missing}; pip install torch transformers safetensors")
    model = load(transformers, torch, given.folder)
    prefix, layers = layers_of(model, torch)
    vocabulary = model.config.get_text_config().vocab_size
    tokens = torch.randint(0, vocabulary, (given.texts, given.tokens), generator=torch.Generator().manual_seed(given.seed))
    outputs, order, again = {}, [], set()

    def fitting(value):
        """The tensor of an output, as [texts, tokens, ..] in f32."""
        while isinstance(value, (tuple, list)) and value:
            value = value[0]
        if not torch.is_tensor(value) or not value.is_floating_point() or value.dim() < 2:
            return None
        if value.shape[:2] == tokens.shape and value.dim() > 2:
            return value.detach().float().clone()
        if value.shape[0] == tokens.numel():
            return value.detach().float().reshape(*tokens.shape, *value.shape[1:]).clone()
        return None

    def record(name):
        def hook(module, inputs, value):
            if name in outputs:
                again.add(name)
            tensor = fitting(value)
            if tensor is not None:
                outputs[name] = tensor
                order.append((name, type(module).__name__))
        return hook

    def enter(module, inputs, named):
        value = fitting(inputs[0] if inputs else named.get("hidden_states"))
        if value is not None and "embedding" not in outputs:
            outputs["embedding"] = value

    layers[0].register_forward_pre_hook(enter, with_kwargs=True)
    numbers = {f"{prefix}.{i}": i for i in range(len(layers))}
    for name, module in model.named_modules():
        inside = name.startswith(prefix + ".") and name not in numbers
        if name and not (inside and given.layers_only):
            module.register_forward_hook(record(name))
    with torch.no_grad():
        said = model(input_ids=tokens, **({"use_cache": False} if hasattr(model.config, "use_cache") else {}))
    result = said.logits if getattr(said, "logits", None) is not None else said.last_hidden_state
    outputs["result"] = result.detach().float().clone()
    modules = [{"name": name, "class": kind, **({"layer": numbers[name]} if name in numbers else {})}
               for name, kind in order if name not in again]
    kept = {m["name"] for m in modules} | {"embedding", "result"}
    os.makedirs(given.out, exist_ok=True)
    tensors = {name: value.contiguous() for name, value in outputs.items() if name in kept}
    safetensors.torch.save_file({"tokens": tokens.to(torch.int32), **tensors}, os.path.join(given.out, "recording.safetensors"))
    about = {"lumen_recording": VERSION, "model": os.path.relpath(given.folder, given.out), "class": type(model).__name__,
             "transformers": transformers.__version__, "torch": torch.__version__, "layers": len(layers),
             "logits": getattr(said, "logits", None) is not None, "modules": modules}
    with open(os.path.join(given.out, "recording.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
        file.write("\n")
    print(f"{given.out}: {len(tensors)} outputs of {type(model).__name__}, {len(layers)} layers, {given.texts} texts of {given.tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
