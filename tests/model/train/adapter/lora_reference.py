#!/usr/bin/env python3
"""Five steps of AdamW on adapters against peft, from the same beginnings and batches: losses, A, B and magnitudes.

usage: lora_reference.py TEST_PROGRAM      exit code 77: a library is missing, nothing was checked
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers peft")
    sys.exit(77)

TOLERANCE = 1e-4  # of a tensor's range


def compare(folder, case):
    base = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/base", dtype=torch.float32,
                                                             attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(base, f"{folder}/{case['name']}/begin", is_trainable=True)
    model.train()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    fast = [p for n, p in trained.items() if "lora_B" in n or "lora_embedding_B" in n]
    slow = [p for p in trained.values() if all(p is not f for f in fast)]
    rate = case["rate"]
    optimizer = torch.optim.AdamW([{"params": slow, "lr": rate}, {"params": fast, "lr": rate * case["b_rate"]}],
                                  betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    shape = (case["rows"], case["length"])
    for step, (tokens, targets, ours) in enumerate(zip(case["tokens"], case["targets"], case["losses"])):
        logits = model(torch.tensor(tokens).reshape(shape), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), torch.tensor(targets))
        assert abs(loss.item() - ours) <= TOLERANCE * abs(ours), (case["name"], step, loss.item(), ours)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(trained.values()), 1.0)
        optimizer.step()
    ours = safetensors.torch.load_file(f"{folder}/{case['name']}/end/adapter_model.safetensors")
    before = safetensors.torch.load_file(f"{folder}/{case['name']}/begin/adapter_model.safetensors")
    theirs = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    worst = 0.0
    for name, tensor in theirs.items():
        tensor = tensor.detach()
        off = ((ours[name] - tensor).abs().max() / (tensor.max() - tensor.min())).item()
        assert off <= TOLERANCE, (case["name"], name, off)
        assert (tensor - before[name]).abs().max() > 1e-4, (case["name"], name)
        worst = max(worst, off)
    print(f"{case['name']}: {len(theirs)} tensors, worst difference {worst:.1e} of the range, last loss {loss.item():.4f}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([program, "--gtest_filter=LoraExchange.WritesFiveSteps"],
                             env={**os.environ, "LUMEN_EXCHANGE_DIR": folder}, capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(out.stdout + out.stderr)
        for case in json.load(open(f"{folder}/cases.json", encoding="utf-8")):
            compare(folder, case)


main()
