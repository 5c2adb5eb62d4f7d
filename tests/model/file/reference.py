#!/usr/bin/env python3
"""Checks Lumen's files against the libraries of others: gguf, safetensors, tokenizers (from PyPI, in a virtual environment).

usage: reference.py TEST_PROGRAM      exit code 77: a library is missing, nothing was checked
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import safetensors.numpy
    import tokenizers
except ImportError as missing:
    print(f"skipped: {missing}; pip install gguf safetensors tokenizers numpy")
    sys.exit(77)


def run(program, test, folder):
    # Each test of the other half must have run and passed, not been skipped.
    out = subprocess.run([program, f"--gtest_filter={test}"], env={**os.environ, "LUMEN_EXCHANGE_DIR": folder},
                         capture_output=True, text=True)
    print(out.stdout[-3000:], out.stderr[-2000:])
    assert out.returncode == 0 and f"[       OK ] {test}" in out.stdout, test


def field(reader, key):
    return reader.get_field(key).contents()


def check_gguf(path):
    reader = gguf.GGUFReader(path)
    assert field(reader, "general.architecture") == "test"
    assert field(reader, "test.u8") == 200
    assert field(reader, "test.i64") == -5000000000
    assert field(reader, "test.f64") == 0.1
    assert field(reader, "test.flag") is True
    assert field(reader, "test.text") == "안녕"
    assert field(reader, "test.texts") == ["a", "", "ㅋ"]
    assert field(reader, "test.numbers") == [1.5, -2.25]
    tensors = {t.name: t for t in reader.tensors}
    wave = np.array([np.sin(i * 0.37) * (1 + i % 7) for i in range(3 * 512)], dtype=np.float32).reshape(3, 512)
    assert np.allclose(tensors["f32"].data, wave)
    assert tensors["i32"].data.tolist() == [[[1, -2, 3]], [[4, 5, 6]]]
    assert tensors["f64"].data.tolist() == [0.1, -1e300]
    checked, unknown = [], []
    for name, t in tensors.items():
        if not name.endswith(".blocks"):
            continue
        ours = tensors[name.replace(".blocks", ".values")].data
        try:
            theirs = gguf.quants.dequantize(t.data, t.tensor_type)
        except NotImplementedError:
            unknown.append(name)
            continue
        assert np.array_equal(theirs.reshape(ours.shape), ours), (name, np.abs(theirs.reshape(ours.shape) - ours).max())
        checked.append(name.replace(".blocks", ""))
    print("decoded alike:", " ".join(checked), "| not in their library:", " ".join(unknown))
    assert len(checked) > 10


def check_safetensors(path):
    t = safetensors.numpy.load_file(path)
    assert set(t) == set("abcde")
    assert t["a"].shape == (2, 3) and abs(t["a"][0, 1] - np.sin(0.37) * 2) < 1e-6
    assert t["b"].tolist() == [1, -2, 1 << 40, 0]
    assert t["c"].shape == () and t["c"] == 0.5 and t["c"].dtype == np.float16
    assert t["d"].tolist() == [True, False, True]
    assert t["e"].shape == (0, 2)


def check_tokenizers(folder):
    text = open(f"{folder}/text.txt", encoding="utf-8", newline="").read()
    for name in ("trained", "characters"):
        theirs = tokenizers.Tokenizer.from_file(f"{folder}/{name}.json")
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ids == json.load(open(f"{folder}/{name}.ids")), name
        assert theirs.decode(ids) == text, name
    # The same training by the other library learns the same merges.
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([text], tokenizers.trainers.BpeTrainer(
        vocab_size=600, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    theirs, ours = json.loads(t.to_str())["model"], json.load(open(f"{folder}/trained.json"))["model"]
    assert theirs["vocab"] == ours["vocab"]
    assert [tuple(m) for m in theirs["merges"]] == [tuple(m) for m in ours["merges"]]


def lay_out(folder):
    random = np.random.default_rng(1)
    expected = {"gguf": {}, "safetensors": {}, "ids": {}}

    def note(kind, name, values):
        expected[kind][name] = {"shape": list(values.shape), "values": [float(v) for v in values.astype(np.float32).ravel()]}

    w = gguf.GGUFWriter(f"{folder}/theirs.gguf", "test")
    w.add_string("test.text", "안녕")
    w.add_array("test.ints", [1, 2, 3])
    w.add_array("test.texts", ["x", "y"])
    w.add_float32("test.float", 1.5)
    w.add_bool("test.flag", True)
    x = random.standard_normal((3, 256)).astype(np.float32)
    w.add_tensor("plain", x)
    note("gguf", "plain", x)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q5_1):
        q = gguf.quants.quantize(x, kind)
        w.add_tensor(kind.name, q, raw_dtype=kind)
        note("gguf", kind.name, gguf.quants.dequantize(q, kind))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    arrays = {"a": x, "b": x[:2, :3].copy(), "scalar": np.array(2.5, dtype=np.float32)}
    safetensors.numpy.save_file(arrays, f"{folder}/theirs.safetensors", metadata={"format": "np"})
    for name, values in arrays.items():
        note("safetensors", name, values)

    text = open(f"{folder}/text.txt", encoding="utf-8", newline="").read()
    for name, pre in (("theirs_gpt.json", tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)),
                      ("theirs_split.json", tokenizers.pre_tokenizers.Sequence([
                          tokenizers.pre_tokenizers.Digits(individual_digits=True),
                          tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\s+(?!\S)|[^\r\n\p{L}\p{N}]?\p{L}+"), "merged_with_previous"),
                          tokenizers.pre_tokenizers.Punctuation("contiguous"),
                          tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)]))):
        t = tokenizers.Tokenizer(tokenizers.models.BPE())
        t.normalizer = tokenizers.normalizers.NFC()
        t.pre_tokenizer = pre
        t.decoder = tokenizers.decoders.ByteLevel()
        t.train_from_iterator([text], tokenizers.trainers.BpeTrainer(
            vocab_size=500, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        t.add_tokens(["First Citizen", tokenizers.AddedToken("the", single_word=True, lstrip=True)])
        t.save(f"{folder}/{name}")
        expected["ids"][name] = t.encode(text, add_special_tokens=False).ids
    json.dump(expected, open(f"{folder}/theirs.json", "w"))


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        run(program, "Exchange.Write", folder)
        check_gguf(f"{folder}/ours.gguf")
        check_safetensors(f"{folder}/ours.safetensors")
        check_tokenizers(folder)
        lay_out(folder)
        run(program, "Exchange.Read", folder)
    print("all alike")


main()
