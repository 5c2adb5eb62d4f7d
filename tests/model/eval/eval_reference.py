#!/usr/bin/env python3
"""`lumen eval` beside lm-evaluation-harness on the same tiny model, the same rows and the same prompts: figures, and the
likelihood of every choice.

usage: eval_reference.py LUMEN FIXTURES      exit code 77: a library is missing, nothing was checked
"""
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
try:
    import datasets
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM
except ImportError as missing:
    print(f"skipped: {missing}; pip install lm_eval torch transformers")
    sys.exit(77)

WORDS = "good day to you all the king shall speak of love and war but not now my lord so say we here is a man 나라 사랑 그리고".split()


def rows(chance, count):
    def text(low, high):
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(low, high)))

    made = []
    for _ in range(count):
        choices = list(dict.fromkeys(text(1, 6) for _ in range(4)))
        made.append({"question": text(2, 12), "choices": choices, "answer": chance.randrange(len(choices))})
    return made


def write(path, lines):
    with open(path, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


CHOICE = dict(doc_to_text="Question: {{question}}\nAnswer:", doc_to_choice="{{choices}}", doc_to_target="{{answer}}", output_type="multiple_choice",
              metric_list=[dict(metric=m, aggregation="mean", higher_is_better=True) for m in ("acc", "acc_norm", "acc_bytes")])
WRITTEN = dict(doc_to_text="{{question}}", doc_to_target="{{answer}}", output_type="generate_until",
               generation_kwargs=dict(until=["\n", "day"], max_gen_toks=12, do_sample=False),
               filter_list=[dict(name="first", filter=[dict(function="regex", regex_pattern=r"(\w+)"), dict(function="take_first")])],
               metric_list=[dict(metric="exact_match", aggregation="mean", higher_is_better=True, ignore_case=True)])
OURS = '''name = "{name}"
kind = "{kind}"
data = "{data}"
{examples}
prompt = {prompt}
answer = "{{{{answer}}}}"
fewshot = {shots}
{more}
'''


def ours(folder, name, kind, prompt, shots, more, data="test.jsonl", examples=""):
    text = OURS.format(name=name, kind=kind, data=data, prompt=json.dumps(prompt), shots=shots, more=more, examples=f'examples = "{examples}"' if examples else "")
    with open(f"{folder}/{name}.toml", "w", encoding="utf-8") as out:
        out.write(text)
    return f"{folder}/{name}.toml"


def main():
    lumen, fixtures = sys.argv[1:3]
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        test, train = rows(chance, 60), rows(chance, 50)
        write(f"{folder}/test.jsonl", test)
        write(f"{folder}/train.jsonl", train)
        model = f"{fixtures}/converted_words/pairs"
        theirs = HFLM(pretrained=model, device="cpu", dtype="float32", batch_size=1)
        files = dict(test=f"{folder}/test.jsonl", train=f"{folder}/train.jsonl")
        common = dict(dataset_path="json", dataset_kwargs=dict(data_files=files), test_split="test")
        both = dict(fewshot_split="train", training_split="train")
        tasks = [dict(task="plain", num_fewshot=0, **common, **CHOICE), dict(task="shots", num_fewshot=3, **common, **both, **CHOICE),
                 dict(task="itself", num_fewshot=2, fewshot_split="test", **common, **CHOICE),
                 dict(task="written", num_fewshot=0, **common, **WRITTEN)]
        found = lm_eval.simple_evaluate(model=theirs, tasks=tasks, fewshot_random_seed=1234, log_samples=True, bootstrap_iters=0)
        choice = 'choices = "choices"\nmetrics = ["acc", "acc_norm", "acc_bytes"]'
        prompt = CHOICE["doc_to_text"]
        written = 'until = ["\\n", "day"]\nmost = 12\nignore_case = true\n[[extract]]\nname = "first"\npattern = "(\\\\w+)"'
        made = [ours(folder, "plain", "choice", prompt, 0, choice), ours(folder, "shots", "choice", prompt, 3, choice, examples="train.jsonl"),
                ours(folder, "itself", "choice", prompt, 2, choice), ours(folder, "written", "generate", "{{question}}", 0, written)]
        words = [lumen, "eval", "-m", model, "--tasks", "plain,shots,itself,written", "-o", f"{folder}/out.json", "--log-samples", f"{folder}/samples.jsonl", "--exact", "-q"]
        for file in made:
            words += ["--task-file", file]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        mine = json.load(open(f"{folder}/out.json"))["results"]
        samples = [json.loads(line) for line in open(f"{folder}/samples.jsonl", encoding="utf-8")]
        worst = 0.0
        for name in ("plain", "shots", "itself"):
            own = [s for s in samples if s["task"] == name]
            for a, b in zip(own, sorted(found["samples"][name], key=lambda s: s["doc_id"])):
                assert b["arguments"][0][0] == a["prompt"], (name, a["prompt"], b["arguments"][0][0])
                for c, (theirs_nats, _) in zip(a["choices"], [r[0] for r in b["resps"]]):
                    worst = max(worst, abs(c["nats"] - float(theirs_nats)))
            for metric in ("acc", "acc_norm", "acc_bytes"):
                value, error = found["results"][name][f"{metric},none"], found["results"][name][f"{metric}_stderr,none"]
                assert abs(mine[name][metric] - value) < 1e-9, (name, metric, mine[name][metric], value)
                assert error == "N/A" or abs(mine[name][f"{metric}_stderr"] - error) < 1e-9, (name, metric, error)
        assert worst < 1e-3, worst
        value = found["results"]["written"]["exact_match,first"]
        assert abs(mine["written"]["exact_match,first"] - value) < 1e-9, (mine["written"], value)
        texts = sorted(found["samples"]["written"], key=lambda s: s["doc_id"])
        for a, b in zip([s for s in samples if s["task"] == "written"], texts):
            assert a["written"] == b["resps"][0][0], (a["written"], b["resps"][0][0])
        print(f"lm_eval {lm_eval.__version__}: figures equal, {sum(len(s['choices']) for s in samples if 'choices' in s)} likelihoods within {worst:.1e} nats")


main()
