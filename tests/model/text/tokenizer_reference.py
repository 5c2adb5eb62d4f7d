#!/usr/bin/env python3
"""Compares tokenizers with the packages they come from, token by token, on random texts.

For each vocabulary: random Unicode strings, random strings near what it was made for, and random bytes (repaired for the
reference; as they are for the way there and back). By hand on whole vocabularies, and with few texts as an optional test on those
of the fixtures: exits with 77 without the packages `tokenizers` and `sentencepiece`.

usage: tokenizer_reference.py LUMEN [--count N] [--seed N] [VOCABULARY_FOLDER]     (default: $LUMEN_VOCAB_DIR)
The folder is looked through for tokenizer.json files (*.tokenizer.json), *.gguf vocabularies with an HF twin, and .model files.
Vocabularies of the kinds that no file there has are trained here, small, from the texts of the tests.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

try:
    import sentencepiece
    import tokenizers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "tokenizers"
# Characters whose properties are not the same in all versions of Unicode that are about: unassigned in Unicode 9.
STABLE = unicodedata.ucd_3_2_0


def assigned(c):
    return STABLE.category(c) not in ("Cn", "Cs") and STABLE.category(c) == unicodedata.category(c)


POOLS = [
    [chr(c) for c in range(0x20, 0x7F)],
    [chr(c) for c in range(0xAC00, 0xD7A4)],
    [chr(c) for c in list(range(0x1100, 0x1113)) + list(range(0x1161, 0x1176)) + list(range(0x11A8, 0x11C3))],
    [chr(c) for c in range(0x3131, 0x318F) if assigned(chr(c))],
    [chr(c) for c in range(0x4E00, 0x9FA5)],
    [chr(c) for c in range(0xA1, 0x600) if assigned(chr(c))],
    list(" \t\n\r\u00a0\u2009\u3000\u0085\u200b\u2581\ufeff"),
    list("0123456789½①Ⅳ٣.,!?'\"-_()[]{}<>/\\|@#$%^&*+=~`"),
    [chr(c) for c in range(0x300, 0x370)],
    [chr(c) for c in list(range(0x1F300, 0x1F650)) + [0x200D, 0xFE0F, 0x1F1F0, 0x1F1F7]],
    [chr(c) for c in range(0x600, 0x10000) if assigned(chr(c))],
    [chr(c) for c in range(0x10000, 0x2FFFF, 7) if assigned(chr(c))],
    ["'s", "'S", "'ll", "n't", "don't", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "[CLS]", "[MASK]", "  ", "   ", "\n\n", "한국", "대한민국", "the", "hello", "\u0130", "ſ", "ß"],
]


def random_text(rng):
    out = []
    for _ in range(rng.randint(0, 12)):
        pool = rng.choice(POOLS)
        out += [rng.choice(pool) for _ in range(rng.randint(1, 6))]
        if rng.random() < 0.4:
            out.append(" ")
    return "".join(out)


def random_bytes(rng):
    if rng.random() < 0.5:
        return bytes(rng.randrange(256) for _ in range(rng.randint(0, 40)))
    b = bytearray(random_text(rng).encode())
    for _ in range(rng.randint(1, 3)):
        if b:
            b[rng.randrange(len(b))] = rng.randrange(256)
    return bytes(b)


def lumen_lines(program, path, lines, plain=False):
    flags = ["--plain"] if plain else []
    run = subprocess.run([program, "tokenize", "-m", str(path), "--json-lines", *flags], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{path}: lumen failed: {run.stderr.strip()}")
    return [json.loads(line) for line in run.stdout.split("\n") if line]


class Report:
    def __init__(self):
        self.failed = 0

    def compare(self, name, texts, ours, ids, decoded, specials={}):
        """`specials`: control tokens, their texts by id. Ours never makes one of pieces: it stands in the text, or is none."""
        bad, made = [], 0
        for text, mine, want, back in zip(texts, ours, ids, decoded):
            if mine.get("ids") == want and (back is None or mine["text"] == back):
                continue
            counts = {i: (want.count(i), mine.get("ids", []).count(i), text.count(t)) for i, t in specials.items() if i in want}
            if any(theirs > own == there for theirs, own, there in counts.values()):
                made += 1
            else:
                bad.append((text, mine, want, back))
        print(f"{name}: {len(texts)} texts, {len(bad)} differ" + (f", {made} where the reference makes control tokens of pieces" if made else ""))
        for text, mine, want, back in bad[:3]:
            print(f"   {text!r}\n     ours {mine}\n     want {want} {back!r}")
        self.failed += len(bad)


def check_json(report, program, path, name, texts, byte_strings):
    reference = Tokenizer.from_file(str(path))
    repaired = ["".join(c if assigned(c) else "?" for c in b.decode("utf-8", "replace")) for b in byte_strings]
    all_texts = texts + repaired
    encoded = [reference.encode(t, add_special_tokens=False) for t in all_texts]
    ids = [e.ids for e in encoded]
    decoded = [reference.decode(i, skip_special_tokens=False) for i in ids]
    # In vocabularies with gaps the library numbers added tokens anew.
    spec = json.loads(Path(path).read_text())
    own = {reference.token_to_id(t["content"]): t["id"] for t in spec["added_tokens"]}
    ids = [[own.get(i, i) for i in line] for line in ids]
    ours = lumen_lines(program, path, [json.dumps(t) for t in all_texts])
    # Where the reference marks broken bytes one by one or loses characters, ours keeps them: compared where it is whole.
    decoded = [None if "\ufffd" in d else d for d in decoded]
    specials = {t["id"]: t["content"] for t in spec["added_tokens"] if t["special"]}
    report.compare(name, all_texts, ours, ids, decoded, specials)
    # The way there and back for any bytes, where nothing normalises and every byte has a token.
    model = spec["model"]
    lossless = (model.get("byte_fallback") or (spec["pre_tokenizer"] and "ByteLevel" in json.dumps(spec["pre_tokenizer"]))) and model["type"] == "BPE" and not (
        spec["normalizer"] and "NF" in json.dumps(spec["normalizer"])) and "Removed" not in json.dumps(spec["pre_tokenizer"]) and '"add_prefix_space": true' not in json.dumps(spec["pre_tokenizer"]) and not any(
        t["lstrip"] or t["rstrip"] or (model.get("byte_fallback") and not t["special"]) for t in spec["added_tokens"])
    if lossless:
        back = lumen_lines(program, path, [json.dumps({"bytes": b.hex()}) for b in byte_strings], plain=True)
        # A character that stands for the space in the vocabulary comes back as one.
        wrong = [(b, o) for b, o in zip(byte_strings, back) if "error" not in o and bytes.fromhex(o["bytes"]) != b and b"\xe2\x96\x81" not in b]
        refused = sum("error" in o for o in back)
        print(f"{name}: {len(back)} byte strings there and back, {len(wrong)} differ, {refused} refused")
        for b, o in wrong[:3]:
            print("  ", b, bytes.fromhex(o["bytes"]))
        report.failed += len(wrong)


def check_sentencepiece(report, program, path, name, texts):
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = [t for t in texts if "\0" not in t]
    ids = [reference.encode(t) for t in texts]
    decoded = [reference.decode(i) for i in ids]
    ours = lumen_lines(program, path, [json.dumps(t) for t in texts], plain=True)
    unknown = reference.unk_id()
    decoded = [None if unknown in i or "\ufffd" in d else d for i, d in zip(ids, decoded)]
    report.compare(name, texts, ours, ids, decoded)


def training_texts():
    texts = []
    for name in ("ax-3.1-light", "ax-3.1", "polyglot-ko", "qwen3.5", "qwen3"):  # the trainers of the library fail on some other sets
        texts += [json.loads(line)["text"] for line in (FIXTURES / f"{name}.jsonl").open(encoding="utf-8")]
    texts += (FIXTURES.parent / "prune.py").read_text().splitlines()
    source = Path(__file__).resolve().parents[3] / "data/tinyshakespeare/input.txt"
    texts += source.read_text().splitlines()[:3000]
    return texts


def trained(folder):
    """Small tokenizers of the kinds that no file has, by name."""
    texts, out = training_texts(), {}

    def put(name, t):
        path = folder / f"{name}.tokenizer.json"
        t.save(str(path))
        out[name] = path

    def unigram(name, normalizer, pre, decoder, **more):
        t = Tokenizer(models.Unigram())
        t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
        t.train_from_iterator(texts, trainers.UnigramTrainer(show_progress=False, vocab_size=1500, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", **more))
        put(name, t)

    unigram("unigram-first", normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Metaspace(prepend_scheme="first"))
    unigram("unigram-always", normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()]),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), decoders.Metaspace())
    unigram("unigram-never", normalizers.Sequence([normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]),
            pre_tokenizers.Metaspace(prepend_scheme="never", split=False), decoders.Metaspace(prepend_scheme="never"))
    for name, normal in (("word-piece", normalizers.BertNormalizer()), ("word-piece-cased", normalizers.BertNormalizer(lowercase=False, strip_accents=True))):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
        t.normalizer, t.pre_tokenizer, t.decoder = normal, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        t.train_from_iterator(texts, trainers.WordPieceTrainer(show_progress=False, vocab_size=2500, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]))
        t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
        put(name, t)
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=True)])
    t.train_from_iterator(texts, trainers.WordLevelTrainer(show_progress=False, vocab_size=2000, special_tokens=["[UNK]"]))
    put("word-level", t)
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.Split(tokenizers.Regex(r"\d+"), "merged_with_previous")])
    t.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, vocab_size=1500, special_tokens=["<unk>"], continuing_subword_prefix="##", limit_alphabet=300))
    put("bpe-continuing", t)
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Lowercase()
    t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder(suffix="</w>")
    t.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, vocab_size=1500, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=300))
    put("bpe-word-end", t)
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator([x for x in texts if len(x) < 200], trainers.BpeTrainer(show_progress=False, vocab_size=1500, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=300))
    t.add_tokens([tokenizers.AddedToken("안녕", lstrip=True, rstrip=True), tokenizers.AddedToken("hello", single_word=True, normalized=False)])
    put("bpe-fallback", t)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"]))
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    put("bpe-prefix", t)
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.UnigramTrainer(show_progress=False, vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    put("unigram-bytes", t)
    return out


def trained_pieces(folder):
    texts, out = [t for t in training_texts() if t.strip() and "\0" not in t], {}
    source = folder / "texts.txt"
    source.write_text("\n".join(t.replace("\n", " ") for t in texts))
    for name, more in {
        "sp-bpe": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        "sp-bpe-nfkc": {"model_type": "bpe", "user_defined_symbols": ["<u>", "한국"]},
        "sp-unigram": {"model_type": "unigram"},
        "sp-unigram-bytes": {"model_type": "unigram", "byte_fallback": True, "normalization_rule_name": "nmt_nfkc_cf"},
        "sp-unigram-plain": {"model_type": "unigram", "add_dummy_prefix": False, "normalization_rule_name": "identity"},
    }.items():
        sentencepiece.SentencePieceTrainer.train(input=str(source), model_prefix=str(folder / name), vocab_size=1500, minloglevel=2, hard_vocab_limit=False,
                                                 character_coverage=0.985, **more)
        out[name] = folder / f"{name}.model"
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", metavar="LUMEN [VOCABULARY_FOLDER]")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_intermixed_args()
    args.lumen, args.folder = (args.paths + [os.environ.get("LUMEN_VOCAB_DIR")])[:2]
    rng = random.Random(args.seed)
    texts = [random_text(rng) for _ in range(args.count)]
    byte_strings = [random_bytes(rng) for _ in range(args.count)]
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = trained(folder)
        if args.folder:
            found |= {p.name.split(".tokenizer")[0]: p for p in sorted(Path(args.folder).glob("hf/*.tokenizer.json"))}
        else:  # those of the tests, cut down
            found |= {p.stem: p for p in sorted(FIXTURES.glob("*.json"))}
        for name, path in found.items():
            if args.only in name:
                check_json(report, args.lumen, path, name, texts, byte_strings)
        for name, path in trained_pieces(folder).items():
            if args.only in name:
                check_sentencepiece(report, args.lumen, path, name, texts)
    print("all alike" if report.failed == 0 else f"{report.failed} differ")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
