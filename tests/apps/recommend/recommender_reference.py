#!/usr/bin/env python3
"""Recommenders of models/*.lum against PyTorch, with planned channels and without: scores, who a user is (a GRU and two layers), both
losses and their gradients by every trained parameter, within 1e-4 of their range.

usage: recommender_reference.py TEST_PROGRAM      exit code 77: torch is missing, nothing was checked
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


class Recommender:
    """What both families share; `pick` [B, 4, channels] weighs the four sizes of each channel, None: products as they are."""

    def __init__(self, p):
        self.p, self.width = p, p["embed"].shape[1]
        self.layers = 1 + max(int(name.split(".")[1]) for name in p if name.startswith("layers."))

    def sized(self, x, bank, pick):
        four = torch.einsum("btk,sck->btsc", x, bank)
        return (four * pick[:, None]).sum(2)

    def profile(self, recent):
        p, d = self.p, self.width
        order = torch.cat([torch.arange(d, 2 * d), torch.arange(d), torch.arange(2 * d, 3 * d)])  # PyTorch: reset, keep, next
        w, u, b = (p[name][order] for name in ("gru_x", "gru_h", "gru_b"))
        h = torch.zeros(len(recent), d, dtype=w.dtype)
        for t in range(recent.shape[1]):
            item = recent[:, t]
            after = torch.gru_cell(p["embed"][item] * d**0.5, h, w, u, b, torch.zeros_like(b))
            h = torch.where((item != 0)[:, None], after, h)
        return F.linear(torch.tanh(F.linear(h, p["mlp_1"], p["mlp_1b"])), p["mlp_2"], p["mlp_2b"])

    def importance(self, z, u, ub, v, vb, w):
        us, vs = torch.einsum("bd,lcrd->blcr", z, u) + ub, torch.einsum("bd,lkrd->blkr", z, v) + vb
        elements = torch.sigmoid(torch.einsum("blcr,blkr->blck", us, vs) / u.shape[2] ** 0.5)
        f = (elements * w.abs() / (w.abs().sum(-1, keepdim=True) + 1e-12)).sum(-1)
        apart = f - f.mean(-1, keepdim=True)
        return F.softplus(apart / (((apart**2).mean(-1, keepdim=True) + 1e-12).sqrt() + 1e-6))

    def shares(self, z):
        return torch.softmax(F.linear(z, self.p["hyper_g"], self.p["hyper_gb"]), -1)

    def choice(self, recent, tau, bits):
        z = self.profile(recent)
        importance, weight = self.units(z), self.weight()
        users, units = importance.shape
        at = torch.arange(units)
        before = (importance[:, None, :] < importance[:, :, None]) | ((importance[:, None, :] == importance[:, :, None]) & (at[None, :] < at[:, None]))
        place = (before * weight).sum(-1) / weight.sum()
        classes = sum((place >= x).long() for x in (0.1, 0.5, 0.85))
        hard = F.one_hot(classes, 4).movedim(-1, 1).to(z.dtype)
        apart = importance - importance.mean(-1, keepdim=True)
        level = apart / ((apart**2).mean(-1, keepdim=True) + 1e-12).sqrt()
        usual = torch.tensor([-1.755, -0.5585, 0.4737, 1.5544], dtype=z.dtype)[:, None]
        soft = torch.softmax(-(level[:, None] - usual).abs() / tau, 1)
        off = ((soft * bits[:, None]).sum(1) * weight / weight.sum()).sum(-1).mean() - (bits * torch.tensor([0.1, 0.4, 0.35, 0.15], dtype=bits.dtype)).sum()
        g = self.shares(z)
        more = 0.5 * off**2 + 0.2 * (g * torch.log(g + 1e-12)).sum(-1).mean()
        return self.spread((hard + soft - soft.detach()).reshape(users * 4, units)).reshape(users, 4, -1), more

    def pair_loss(self, states, i, counts):
        table, level = self.table()
        score = lambda items: (states * table[items]).sum(-1) + level[items]
        return -((F.logsigmoid(score(i["targets"])) + F.logsigmoid(-score(i["negatives"]))) * counts).sum() / counts.sum()

    def candidate_loss(self, states, i, counts):
        table, level = self.table()
        own = states.reshape(-1, self.width)[i["rows"]]
        good = (own * table[i["answers"]]).sum(-1) + level[i["answers"]]
        others = F.linear(own, table[i["candidates"]]) + level[i["candidates"]]
        others = others.masked_fill(i["candidates"][None] == i["answers"][:, None], float("-inf"))
        all_of_them = torch.cat([good[:, None], others], 1)
        return (F.cross_entropy(all_of_them, torch.zeros(len(own), dtype=torch.long), reduction="none") * counts).sum() / counts.sum()


class Attention(Recommender):
    def table(self):
        return self.p["embed"], torch.zeros(len(self.p["embed"]), dtype=torch.float64)

    def product(self, x, at, pick):
        if pick is None:
            return F.linear(x, self.p["matrices"][at])
        return self.sized(x, self.p["matrices_bank"][at], pick[:, :, at * self.width:(at + 1) * self.width])

    def states(self, items, pick):
        p, d = self.p, self.width
        is_item = (items != 0).double()[..., None]
        x = (p["embed"][items] * d**0.5 + p["position"]) * is_item
        seen = torch.tril(torch.ones(items.shape[1], items.shape[1], dtype=torch.bool))[None] & (items != 0)[:, None]
        for i in range(self.layers):
            own = lambda name: p[f"layers.{i}.{name}"]
            a = F.layer_norm(x, (d,), own("norm"), own("norm_level"), 1e-8)
            q, k, v = (self.product(a, 6 * i + j, pick) for j in range(3))
            scores = (q @ k.mT * d**-0.5).masked_fill(~seen, -1e30)
            x = x + self.product(torch.softmax(scores, -1) @ v, 6 * i + 3, pick)
            a = F.layer_norm(x, (d,), own("ffn_norm"), own("ffn_norm_level"), 1e-8)
            up = F.relu(self.product(a, 6 * i + 4, pick) + own("up_level"))
            x = (x + self.product(up, 6 * i + 5, pick) + own("down_level")) * is_item
        return F.layer_norm(x, (d,), p["last_norm"], p["last_level"], 1e-8)

    def candidate_states(self, items, pick):
        return self.states(items, pick)

    def last(self, items, pick):
        return self.states(items, pick)[:, -1]

    def units(self, z):
        p = self.p
        f = self.importance(z, p["hyper_u"], p["hyper_ub"], p["hyper_v"], p["hyper_vb"], p["matrices"])
        i = (f * (self.shares(z) * 6 * self.layers)[..., None]).reshape(len(z), self.layers, 6, self.width)
        return torch.cat([(i[:, :, :1] + i[:, :, 1:2]) / 2, i[:, :, 2:]], 2).reshape(len(z), -1)

    def weight(self):
        kinds = torch.tensor([2.0, 1, 1, 1, 1], dtype=torch.float64) * self.width
        return kinds[None, :, None].expand(self.layers, 5, self.width).reshape(-1)

    def spread(self, u):
        five = u.reshape(len(u), self.layers, 5, self.width)
        return torch.cat([five[:, :, :1], five], 2).reshape(len(u), -1)


class Filters(Recommender):
    def __init__(self, p):
        super().__init__(p)
        self.down, self.across = len(p["vertical"]), len(p["layers.0.filters"])

    def table(self):
        return self.p["out_table"], self.p["out_level"]

    def product(self, x, name, first, pick):
        if pick is None:
            return F.linear(x, self.p[name])
        bank = self.p[name + "_bank"]
        return self.sized(x, bank, pick[:, :, first:first + bank.shape[1]])

    def candidate_states(self, items, pick):
        p, length = self.p, items.shape[1]
        x = p["embed"][items] * (items != 0).double()[..., None]
        found = [self.product(x.mT, "vertical", 0, pick).flatten(1)]
        for i in range(length):
            windows = torch.cat([x[:, j:j + length - i] for j in range(i + 1)], 2)
            y = self.product(windows, f"layers.{i}.filters", self.down + self.width + i * self.across, pick)
            found.append(F.relu(y + p[f"layers.{i}.filters_level"]).amax(1))
        dense = self.product(torch.cat(found, 1)[:, None], "dense", self.down, pick)
        return F.relu(dense + p["dense_level"])

    def states(self, items, pick):
        return self.candidate_states(items, pick).expand(-1, 3, -1)

    def last(self, items, pick):
        return self.candidate_states(items, pick)[:, 0]

    def names(self):
        return ["vertical", "dense"] + [f"layers.{i}.filters" for i in range(self.layers)]

    def units(self, z):
        shares, out = self.shares(z), []
        for at, name in enumerate(self.names()):
            factors = (self.p[f"{name}_{part}"] for part in ("u", "ub", "v", "vb"))
            out.append(self.importance(z, *factors, self.p[name][None])[:, 0] * shares[:, at:at + 1] * len(self.names()))
        return torch.cat(out, 1)

    def weight(self):
        return torch.cat([torch.full((len(self.p[name]),), float(self.p[name].shape[1]), dtype=torch.float64) for name in self.names()])

    def spread(self, u):
        return u


def off(name, ours, theirs):
    assert ours.numel() == theirs.numel(), f"{name} has {ours.numel()} numbers, not {theirs.numel()}"
    error = float((ours - theirs.reshape(ours.shape)).abs().max() / max(float(theirs.abs().max()), 1e-6))
    if not error <= BOUND:
        print(f"  {name}: off by {error:.2e} of its range")
    return error


def check(case):
    tensor = lambda values: torch.tensor(values, dtype=torch.float64)
    i = {name: torch.tensor(values) for name, values in case["integers"].items()}
    numbers = {name: tensor(values) for name, values in case.get("numbers", {}).items()}
    users = 5
    by_user = {name: x if name in ("rows", "answers", "candidates") else x.reshape(users, -1) for name, x in i.items()}
    worst, gradients = 0.0, 0
    for loss in ("loss_pairs", "loss_candidates"):
        written = case[loss]
        p = {name: tensor(t["values"]).reshape(t["shape"]).requires_grad_(name in written["gradients"]) for name, t in case["parameters"].items()}
        model = (Filters if "vertical" in p else Attention)(p)
        is_planned = "tau" in numbers
        if loss == "loss_pairs":
            classes = F.one_hot(by_user["classes"], 4).movedim(-1, 1).double() if is_planned else None
            table, level = model.table()
            scores = F.linear(model.last(by_user["items"], classes), table, level)
            worst = max(worst, off("scores", tensor(case["scores"]), scores.detach().flatten()))
            if is_planned:
                worst = max(worst, off("profile", tensor(case["profile"]), model.profile(by_user["recent"]).detach().flatten()))
        pick, more = model.choice(by_user["recent"], numbers["tau"], numbers["bits"]) if is_planned else (None, 0.0)
        counts = tensor(written["counts"])
        if loss == "loss_pairs":
            value = model.pair_loss(model.states(by_user["items"], pick), by_user, counts.reshape(users, -1))
        else:
            value = model.candidate_loss(model.candidate_states(by_user["items"], pick), by_user, counts)
        value = value + more
        worst = max(worst, off(loss, tensor([written["loss"]]), value.detach()))
        value.backward()
        for name, gradient in written["gradients"].items():
            grad = torch.zeros_like(p[name]) if p[name].grad is None else p[name].grad
            worst = max(worst, off(f"{loss} by {name}", tensor(gradient["values"]), grad.flatten()))
        gradients += len(written["gradients"])
    print(f"{case['family']}: {gradients} gradients, at most {worst:.2e} of a range off")
    return worst <= BOUND


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.argv[1], "--gtest_filter=RecommendExchange.*"]
        subprocess.run(program, env={**os.environ, "LUMEN_EXCHANGE_DIR": folder}, check=True, stdout=subprocess.DEVNULL)
        files = sorted(Path(folder).glob("*.json"))
        assert len(files) == 4, "the test program wrote nothing"
        good = [check(json.loads(file.read_text())) for file in files]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
