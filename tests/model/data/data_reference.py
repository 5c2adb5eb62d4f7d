#!/usr/bin/env python3
"""Compares `lumen data preview --json` with transformers: the tokens of chats under real templates, and which of them are
the assistant's. Templates with {% generation %} are asked by return_assistant_tokens_mask; of the others what they print of
the messages before an answer, and with it, must be beginnings of the whole, else an answer is left out.

usage: data_reference.py LUMEN FIXTURES       exit 77 where transformers is not installed
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import transformers
except ImportError:
    print("skipped: transformers is not installed")
    sys.exit(77)

CHATS = [
    [{"role": "user", "content": "안녕?"}, {"role": "assistant", "content": "안녕하세요."}],
    [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "Four.\n"},
     {"role": "user", "content": "  3+3? "}, {"role": "assistant", "content": " Six, of course: 3 + 3 = 6.\n\n```\nx\n```"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\n\nb"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"},
     {"role": "user", "content": "e"}, {"role": "assistant", "content": "f"}],
]
BLOCKS = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}"
          "{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def expected(tokenizer, chat, blocks):
    """Ids and mask; None where an answer is not found by beginnings."""
    if blocks:
        both = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        return both["input_ids"], both["assistant_masks"]
    whole = tokenizer.apply_chat_template(chat, tokenize=False)
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    mask = [0] * len(encoded["input_ids"])
    for k, message in enumerate(chat):
        if message["role"] != "assistant":
            continue
        before = tokenizer.apply_chat_template(chat[:k], tokenize=False, add_generation_prompt=True)
        upto = tokenizer.apply_chat_template(chat[:k + 1], tokenize=False)
        if not whole.startswith(before) or not whole.startswith(upto):
            return None
        end = len(upto.rstrip("\n ")) if upto.rstrip("\n ").endswith("<|im_end|>") else len(upto)
        for i, (first, last) in enumerate(encoded["offset_mapping"]):
            if first < end and last > len(before):
                mask[i] = 1
    return encoded["input_ids"], mask


def main():
    lumen, fixtures = sys.argv[1], pathlib.Path(sys.argv[2])
    source = fixtures / "tokenizers" / "qwen3-0.6b.json"
    templates = {"qwen2.5": False, "qwen3": False, "qwen3.5": False, "hyperclovax-think-vision": False, "blocks": True}
    # The fixture keeps a part of the vocabulary, and tokenizers gives added tokens other ids there: texts are compared.
    file = json.loads(source.read_text(encoding="utf-8"))
    names = {i: t for t, i in file["model"]["vocab"].items()} | {t["id"]: t["content"] for t in file["added_tokens"]}
    compared = failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = folder / "chats.jsonl"
        data.write_text("".join(json.dumps({"messages": c}, ensure_ascii=False) + "\n" for c in CHATS), encoding="utf-8")
        for name, blocks in templates.items():
            text = BLOCKS if blocks else (fixtures / "chat" / f"{name}.jinja").read_text(encoding="utf-8")
            (folder / "t.jinja").write_text(text, encoding="utf-8")
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(source), chat_template=text, eos_token="<|im_end|>")
            out = subprocess.run([lumen, "data", "preview", "-m", str(source), "--data", str(data), "-n", "100", "--json", "--cache", "off",
                                  "--chat-template", str(folder / "t.jinja")], check=True, capture_output=True, text=True)
            found = {line["line"]: line for line in map(json.loads, out.stdout.splitlines())}
            for number, chat in enumerate(CHATS, 1):
                want = expected(tokenizer, chat, blocks)
                if want is None:
                    print(f"{name}:{number}: no beginnings (marks decide)")
                    continue
                compared += 1
                got = found.get(number)
                wanted = list(zip(tokenizer.convert_ids_to_tokens(want[0]), want[1]))
                found_here = list(zip([names[i] for i in got["ids"]], got["learned"])) if got else None
                if found_here != wanted:
                    failures += 1
                    print(f"{name}:{number}: differs\n  want {wanted}\n  got {found_here}")
    print(f"{compared} chats compared, {failures} differ")
    return 1 if failures or compared < 8 else 0


sys.exit(main())
