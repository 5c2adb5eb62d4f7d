#!/usr/bin/env python3
"""lm-evaluation-harness asks `lumen serve` (`lm_eval --model local-completions`): likelihoods of choices and of whole texts, and texts to be written, with the
server's own tokenizer, one request at a time and several, prompts as tokens and as texts. Likelihoods and texts are those of `lumen eval`, which reads the same
rows from the same file.

usage: lm_eval_reference.py LUMEN      exit code 77: the package is missing, nothing was checked
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

try:
    import lm_eval  # noqa: F401
    import tenacity  # noqa: F401  (lm_eval[api])
except ImportError as missing:
    print(f"skipped: {missing}; pip install 'lm_eval[api]'")
    sys.exit(77)

import serve_check

WORDS = "good day to you all the king shall speak of love and war but not now my lord so say we here is a man".split()
PROMPT = "Question: {{question}}\nAnswer:"
OURS = 'name = "{name}"\nkind = "{kind}"\ndata = "rows.jsonl"\nprompt = {prompt}\nanswer = "{{{{answer}}}}"\n{more}\n'
MOST = 12


def rows(chance, count):
    text = lambda low, high: " ".join(chance.choice(WORDS) for _ in range(chance.randint(low, high)))
    made = []
    for _ in range(count):
        choices = list(dict.fromkeys(text(1, 6) for _ in range(4)))
        made.append({"question": text(2, 12), "choices": choices, "answer": chance.randrange(len(choices)), "text": text(5, 40)})
    return made


def write_tasks(work):
    """The same tasks in both programs' words. Harness: JSON is YAML."""
    (work / "tasks").mkdir()
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(work / "rows.jsonl")}}, "test_split": "test", "num_fewshot": 0}
    metric = lambda name: {"metric": name, "aggregation": "mean", "higher_is_better": True}
    tasks = {
        "choice": {"doc_to_text": PROMPT, "doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}", "output_type": "multiple_choice",
                   "metric_list": [metric("acc"), metric("acc_norm")]},
        "written": {"doc_to_text": PROMPT, "doc_to_target": "{{answer}}", "output_type": "generate_until", "metric_list": [metric("exact_match")],
                    "generation_kwargs": {"until": ["\n", "day"], "max_gen_toks": MOST, "do_sample": False, "temperature": 0}},
        "whole": {"doc_to_text": "", "doc_to_target": "{{text}}", "output_type": "loglikelihood_rolling",
                  "metric_list": [{"metric": "word_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False}]}}
    for name, task in tasks.items():
        (work / "tasks" / f"{name}.yaml").write_text(json.dumps({"task": name, **common, **task}))
    choice = 'choices = "choices"\nmetrics = ["acc", "acc_norm"]'
    written = f'until = ["\\n", "day"]\nmost = {MOST}\n[[extract]]\nname = "first"\npattern = "(.*)"'
    (work / "choice.toml").write_text(OURS.format(name="choice", kind="choice", prompt=json.dumps(PROMPT), more=choice))
    (work / "written.toml").write_text(OURS.format(name="written", kind="generate", prompt=json.dumps(PROMPT), more=written))


def own_answers(lumen, work, environment):
    """Figures, and what was answered, by rows."""
    subprocess.run([lumen, "eval", "-m", "served.gguf", "--task-file", "choice.toml", "--task-file", "written.toml", "--tasks", "choice,written", "-o", "own.json",
                    "--log-samples", "own.jsonl", "--exact", "-q"], cwd=work, check=True, timeout=serve_check.LONGEST, env=environment)
    samples = [json.loads(line) for line in (work / "own.jsonl").read_text().splitlines()]
    return json.loads((work / "own.json").read_text())["results"], {name: [s for s in samples if s["task"] == name] for name in ("choice", "written")}


def their_answers(work, port, name, tasks, environment, **more):
    arguments = {"model": "served", "base_url": f"http://127.0.0.1:{port}/v1/completions", "max_retries": 1, "max_length": 2048, **more}
    words = ["--model", "local-completions", "--tasks", ",".join(tasks), "--include_path", "tasks", "--output_path", name, "--log_samples", "--batch_size",
             str(more.pop("batch_size", 1)), "--model_args", ",".join(f"{k}={v}" for k, v in arguments.items() if k != "batch_size")]
    done = subprocess.run([sys.executable, "-m", "lm_eval", "run", *words], cwd=work, capture_output=True, text=True, timeout=serve_check.LONGEST, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(next((work / name).rglob("results_*.json")).read_text())["results"]
    samples = {}
    for task in tasks:
        lines = next((work / name).rglob(f"samples_{task}_*.jsonl")).read_text().splitlines()
        samples[task] = sorted((json.loads(line) for line in lines), key=lambda s: s["doc_id"])
    return results, samples


def check(lumen, work):
    serve_check.make_model(lumen, work)
    made = rows(random.Random(11), 12)
    (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    write_tasks(work)
    s = serve_check.Served(lumen, work, "-m", "served.gguf", "--exact")
    environment = {**s.environment, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(work / "hub"), "TOKENIZERS_PARALLELISM": "false"}
    try:
        results, own = own_answers(lumen, work, environment)
        worst, likelihoods = 0.0, 0
        bos = s.json("/tokenizer_info")["bos_token"]
        first = s.json("/tokenize", {"prompt": bos or "\n", "add_special_tokens": False})["tokens"][0]
        for name, tasks, more in (("together", ["choice", "written", "whole"], {"batch_size": 4, "num_concurrent": 3}),
                                  ("texts", ["choice", "written"], {"tokenized_requests": False})):
            figures, samples = their_answers(work, s.port, name, tasks, environment, custom_prefix_token_id=first, **more)
            for mine, theirs in zip(own["choice"], samples["choice"], strict=True):
                asked = theirs["arguments"]["gen_args_0"]["arg_0"] if isinstance(theirs["arguments"], dict) else theirs["arguments"][0][0]
                assert mine["prompt"] == asked, (mine["prompt"], asked)
                for choice, answer in zip(mine["choices"], theirs["filtered_resps"], strict=True):
                    worst = max(worst, abs(choice["nats"] - float(answer[0])))
                    likelihoods += 1
            for metric in ("acc", "acc_norm"):
                assert abs(results["choice"][metric] - figures["choice"][f"{metric},none"]) < 1e-9, (name, metric, results, figures)
            for mine, theirs in zip(own["written"], samples["written"], strict=True):
                assert mine["written"] == theirs["resps"][0][0], (name, mine["written"], theirs["resps"])
            for row, theirs in zip(made, samples.get("whole", [])):  # what the server says of the same tokens
                tokens = [first] + s.json("/tokenize", {"prompt": row["text"], "add_special_tokens": False})["tokens"]
                told = s.json("/v1/completions", {"prompt": tokens, "echo": True, "logprobs": 0, "max_tokens": 0})["choices"][0]["logprobs"]
                value = theirs["filtered_resps"][0]
                nats = float(value[0] if isinstance(value, list) else value)
                assert math.isclose(nats, sum(told["token_logprobs"][1:]), abs_tol=1e-3), (row, nats, told)
        assert worst < 1e-3, worst
        return f"lm_eval {version('lm_eval')}: {likelihoods} likelihoods within {worst:.1e} nats of those of `lumen eval`, texts equal"
    finally:
        s.process.kill()


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-lm-eval-") as folder:
        print(check(lumen, Path(folder)))


if __name__ == "__main__":
    main()
