#!/usr/bin/env python3
"""Five steps of every optimizer against PyTorch's (torch.optim), from the same beginnings and gradients.

usage: optimizer_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch")
    sys.exit(77)

TOLERANCE = 1e-4  # of a tensor's range


class Lion(torch.optim.Optimizer):
    """The published formula; torch has none."""

    def __init__(self, params, lr, weight_decay):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                p.data.add_((0.9 * m + 0.1 * p.grad).sign(), alpha=-group["lr"])
                m.mul_(0.99).add_(p.grad, alpha=0.01)


def adamw(params, rate, decay):
    return torch.optim.AdamW(params, lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)


def muon(params, rate, decay):
    if hasattr(torch.optim, "Muon"):
        return torch.optim.Muon(params, lr=rate, weight_decay=decay)
    print("torch.optim.Muon is missing: not compared")
    return None


MAKERS = {
    "adamw": adamw,
    "lion": Lion,
    "sgd": lambda params, rate, decay: torch.optim.SGD(params, lr=rate, momentum=0.9, weight_decay=decay),
    "nesterov": lambda params, rate, decay: torch.optim.SGD(params, lr=rate, momentum=0.9, weight_decay=decay, nesterov=True),
    "adafactor": lambda params, rate, decay: torch.optim.Adafactor(params, lr=rate, weight_decay=decay),
    "muon": muon,
}


def compare(name, case):
    worst = 0.0
    for tensor_name, tensor in case["tensors"].items():
        shape = tensor["shape"]
        begin = torch.tensor(tensor["begin"]).reshape(shape)
        gradients = [torch.tensor(g).reshape(shape) for g in tensor["gradients"]]
        decay = case["decay"] if len(shape) > 1 else 0.0
        make = MAKERS[name]
        if name == "muon" and (len(shape) < 2 or tensor["role"] == "embedding"):
            make = adamw
        # Muon's are single matrices.
        parts = range(shape[0]) if make is muon and len(shape) == 3 else [slice(None)]
        params = [begin[part].clone().requires_grad_() for part in parts]
        optimizer = make(params, case["rate"], decay)
        if optimizer is None:
            return
        for g in gradients:
            for p, part in zip(params, parts):
                p.grad = g[part].clone()
            optimizer.step()
        theirs = torch.stack([p.detach() for p in params]).reshape(shape) if make is muon else params[0].detach()
        ours = torch.tensor(tensor["end"]).reshape(shape)
        off = ((ours - theirs).abs().max() / (theirs.max() - theirs.min())).item()
        worst = max(worst, off)
        assert off <= TOLERANCE, (name, tensor_name, off)
        assert (theirs - begin).abs().mean() > 1e-4, (name, tensor_name)
    print(f"{name}: {len(case['tensors'])} tensors, worst difference {worst:.1e} of the range")


def main():
    program = sys.argv[1]
    test = "OptimizerExchange.WritesFiveSteps"
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([program, f"--gtest_filter={test}"], env={**os.environ, "LUMEN_EXCHANGE_DIR": folder},
                             capture_output=True, text=True)
        assert out.returncode == 0 and f"[       OK ] {test}" in out.stdout, out.stdout[-3000:] + out.stderr[-2000:]
        with open(os.path.join(folder, "optimizers.json"), encoding="utf-8") as file:
            cases = json.load(file)
    assert set(cases) == set(MAKERS), sorted(cases)
    # torch's Muon rounds its iteration to bf16; the formula is compared in f32.
    torch.bfloat16 = torch.float32
    torch.Tensor.bfloat16 = lambda self: self.clone()
    for name, case in cases.items():
        compare(name, case)


if __name__ == "__main__":
    main()
