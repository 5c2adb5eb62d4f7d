#!/usr/bin/env python3
"""The objectives of recipes/objectives against their formulas as trl has them, written in PyTorch by hand: losses, metrics, and
gradients by every token's loss (or logit), within 1e-4 of their range.

usage: objective_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch")
    sys.exit(77)

BOUND = 1e-4


class Rows:
    """What trl's trainers compute of a batch: summed log probabilities of answers, and their lengths."""

    def __init__(self, inputs, losses):
        self.mask = inputs["weights"] > 0
        self.logps = -(losses * self.mask).sum(-1)
        self.lengths = self.mask.sum(-1).clamp(min=1)
        self.reference = inputs["reference"]
        self.labels = inputs["labels"]
        self.divergence = inputs["divergence"]
        self.chosen, self.rejected = self.logps[0::2], self.logps[1::2]
        self.chosen_length, self.rejected_length = self.lengths[0::2], self.lengths[1::2]
        self.reference_chosen, self.reference_rejected = self.reference[0::2], self.reference[1::2]


def rewards(chosen, rejected):
    return {
        "rewards_chosen": chosen.mean(),
        "rewards_rejected": rejected.mean(),
        "rewards_margin": (chosen - rejected).mean(),
        "rewards_accuracy": (chosen > rejected).float().mean(),
    }


def dpo_logits(r):
    return (r.chosen - r.rejected) - (r.reference_chosen - r.reference_rejected)


def dpo(r, s):
    logits, beta, smooth = dpo_logits(r), s["beta"], s["label_smoothing"]
    losses = -F.logsigmoid(beta * logits) * (1 - smooth) - F.logsigmoid(-beta * logits) * smooth
    return losses.mean(), rewards(beta * (r.chosen - r.reference_chosen), beta * (r.rejected - r.reference_rejected))


def dpo_hinge(r, s):
    beta = s["beta"]
    return (torch.relu(1 - beta * dpo_logits(r)).mean(),
            rewards(beta * (r.chosen - r.reference_chosen), beta * (r.rejected - r.reference_rejected)))


def ipo(r, s):
    chosen = (r.chosen - r.reference_chosen) / r.chosen_length
    rejected = (r.rejected - r.reference_rejected) / r.rejected_length
    beta = s["beta"]
    return ((chosen - rejected - 1 / (2 * beta)) ** 2).mean(), rewards(beta * chosen, beta * rejected)


def simpo(r, s):
    chosen, rejected = r.chosen / r.chosen_length, r.rejected / r.rejected_length
    beta, smooth = s["beta"], s["label_smoothing"]
    logits = chosen - rejected - s["gamma"] / beta
    losses = -F.logsigmoid(beta * logits) * (1 - smooth) - F.logsigmoid(-beta * logits) * smooth
    return losses.mean(), rewards(beta * chosen, beta * rejected)


def orpo(r, s):
    chosen, rejected = r.chosen / r.chosen_length, r.rejected / r.rejected_length
    log_odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    # The answer's own loss is over the answer's tokens (trl takes the prompt's along).
    nll = -r.chosen.sum() / r.chosen_length.sum()
    beta = s["beta"]
    values = rewards(beta * chosen, beta * rejected)
    del values["rewards_margin"]
    return nll - (beta * F.logsigmoid(log_odds)).mean(), {**values, "chosen_loss": nll, "log_odds_chosen": log_odds.mean()}


def kto(r, s):
    beta, wanted = s["beta"], r.labels > 0.5
    ratios = r.logps - r.reference
    desirable = 1 - torch.sigmoid(beta * (ratios[wanted] - r.divergence))
    undesirable = 1 - torch.sigmoid(beta * (r.divergence - ratios[~wanted]))
    losses = torch.cat((s["desirable"] * desirable, s["undesirable"] * undesirable))
    return losses.mean(), {"kl": r.divergence, "rewards_chosen": beta * ratios[wanted].mean(),
                           "rewards_rejected": beta * ratios[~wanted].mean()}


def next_token(inputs, losses, s):
    return (inputs["weights"] * losses).sum(), {}


def distillation(inputs, scores, s):
    t = s["temperature"]
    own, other = F.log_softmax(scores / t, -1), F.log_softmax(inputs["theirs"] / t, -1)
    far = F.kl_div(own, other, reduction="none", log_target=True).sum(-1) * t * t
    own_loss = F.cross_entropy(scores.flatten(0, 1), inputs["targets"].long().flatten(), reduction="none").view(far.shape)
    return (inputs["weights"] * (s["share"] * far + (1 - s["share"]) * own_loss)).sum(), {}


OF_ROWS = {f.__name__: f for f in (dpo, dpo_hinge, ipo, simpo, orpo, kto)}
OF_TOKENS = {f.__name__: f for f in (next_token, distillation)}


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([sys.argv[1], "--gtest_filter=ObjectiveExchange.Write"], capture_output=True, text=True,
                             env={**os.environ, "LUMEN_EXCHANGE_DIR": folder})
        assert out.returncode == 0 and "[       OK ] ObjectiveExchange.Write" in out.stdout, out.stdout + out.stderr
        told = json.loads((Path(folder) / "objectives.json").read_text())
    rows, length, vocabulary = told["rows"], told["length"], told["vocabulary"]
    shapes = {"reference": (rows,), "labels": (rows,), "divergence": ()}
    inputs = {}
    for name, values in told["inputs"].items():
        shape = shapes.get(name, (rows, length, vocabulary) if name in ("scores", "theirs") else (rows, length))
        inputs[name] = torch.tensor(values, dtype=torch.float64).reshape(shape)
    checked = set()
    for case in told["objectives"]:
        name = case["objective"]
        by = inputs[case["by"]].clone().requires_grad_()
        if name in OF_ROWS:
            loss, values = OF_ROWS[name](Rows(inputs, by), case["settings"])
        else:
            loss, values = OF_TOKENS[name](inputs, by, case["settings"])
        loss.backward()
        for what, ours in case["values"].items():
            theirs = (loss if what == "loss" else values[what]).item()
            assert abs(ours - theirs) <= BOUND * max(1, abs(theirs)), (name, case["settings"], what, ours, theirs)
        ours = torch.tensor(case["gradient"], dtype=torch.float64).reshape(by.shape)
        size = (by.grad.max() - by.grad.min()).item()
        off = (ours - by.grad).abs().max().item()
        assert size > 0 and off <= BOUND * size, (name, case["settings"], off, size)
        checked.add(name)
    assert checked == set(OF_ROWS) | set(OF_TOKENS), checked
    print(f"{len(told['objectives'])} cases of {len(checked)} objectives: losses, metrics and gradients as in PyTorch")


if __name__ == "__main__":
    main()
