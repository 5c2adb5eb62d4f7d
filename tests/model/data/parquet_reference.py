#!/usr/bin/env python3
"""Compares the rows that are read from Parquet files with those of pyarrow: random tables of nested types, written with random
codecs, encodings, versions and sizes of pages. With --write it makes the files of fixtures/parquet instead.

usage: parquet_reference.py TEST_PROGRAM [--count N] [--seed S]       exit 77 where pyarrow is not installed
       parquet_reference.py --write FOLDER
"""
import argparse
import datetime
import decimal
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    print("skipped: pyarrow is not installed")
    sys.exit(77)

EPOCH = datetime.date(1970, 1, 1)
CODECS = ["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"]
WORDS = ["", "a", "안녕하세요", "The river rises in the mountains.", "The river rises", "x" * 300, "ß€𝄞", "line\nline", "\0"]


def as_row(value, type_, top=False):
    """What docs/guide/finetune-data.md says a value is in a row."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {f.name: as_row(value[f.name], f.type) for f in type_ if top or value[f.name] is not None}
    if pa.types.is_map(type_):
        return [{"key": as_row(k, type_.key_type)} | ({} if v is None else {"value": as_row(v, type_.item_type)}) for k, v in value]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return [as_row(v, type_.value_type) for v in value]
    if isinstance(value, datetime.datetime):
        return round((value - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return (value - EPOCH).days
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": list(value), "subtype": None}
    return value


def as_rows(table):
    type_ = pa.struct(list(table.schema))
    return [as_row(row, type_, True) for row in table.to_pylist()]


PRIMITIVES = [pa.string(), pa.large_string(), pa.binary(), pa.binary(5), pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(),
              pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal128(30, 4), pa.date32(), pa.timestamp("us"), pa.null()]


def draw_field(r, name, depth):
    type_ = draw_type(r, depth)
    return pa.field(name, type_, nullable=pa.types.is_null(type_) or r.random() < 0.7)


def draw_type(r, depth):
    kind = r.random()
    if depth == 0 or kind < 0.45:
        return r.choice(PRIMITIVES)
    if kind < 0.65:
        return pa.struct([draw_field(r, f"f{i}", depth - 1) for i in range(r.randint(1, 3))])
    if kind < 0.95:
        make = r.choice([pa.list_, pa.large_list])
        return make(draw_field(r, "item", depth - 1))
    return pa.map_(pa.string(), draw_type(r, depth - 1))


def draw_value(r, type_, nullable):
    t = pa.types
    if t.is_null(type_) or (nullable and r.random() < 0.2):
        return None
    if t.is_struct(type_):
        return {f.name: draw_value(r, f.type, f.nullable) for f in type_}
    if t.is_map(type_):
        return [(r.choice(WORDS) + str(i), draw_value(r, type_.item_type, True)) for i in range(r.randint(0, 3))]
    if t.is_list(type_) or t.is_large_list(type_):
        return [draw_value(r, type_.value_type, type_.value_field.nullable) for _ in range(r.choice([0, 1, 2, 5]))]
    if t.is_string(type_) or t.is_large_string(type_):
        return r.choice(WORDS) if r.random() < 0.7 else "".join(r.choices("abcdef 가나", k=r.randint(0, 40)))
    if t.is_fixed_size_binary(type_) and not t.is_decimal(type_):
        return r.randbytes(type_.byte_width)
    if t.is_binary(type_):
        return r.randbytes(r.randint(0, 9))
    if t.is_boolean(type_):
        return r.random() < 0.5
    if t.is_integer(type_):
        low, high = (0, 2**type_.bit_width - 1) if t.is_unsigned_integer(type_) else (-(2**(type_.bit_width - 1)), 2**(type_.bit_width - 1) - 1)
        return r.choice([low, high, 0, r.randint(low, high), min(high, r.randint(0, 100))])
    if t.is_float16(type_):
        return r.choice([0.0, 1.5, -2.0, 6.103515625e-05, 5.960464477539063e-08, 65504.0, math.inf])
    if t.is_float32(type_):
        return float(r.randint(-2**20, 2**20)) / 64
    if t.is_floating(type_):
        return r.choice([r.uniform(-1e9, 1e9), 0.1, math.nan])
    if t.is_decimal(type_):
        return decimal.Decimal(r.randint(-10**7, 10**7)).scaleb(-type_.scale)
    if t.is_date(type_):
        return EPOCH + datetime.timedelta(days=r.randint(-1000, 30000))
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=r.randint(0, 2**50))


def draw_table(r):
    fields = [draw_field(r, f"c{i}", 3) for i in range(r.randint(1, 4))]
    rows = r.choice([0, 1, 7, 60, 400])
    if r.random() < 0.3:  # long runs
        few = [{f.name: draw_value(r, f.type, f.nullable) for f in fields} for _ in range(3)]
        data = sorted((r.randint(0, 2) for _ in range(rows)))
        data = [few[i] for i in data]
    else:
        data = [{f.name: draw_value(r, f.type, f.nullable) for f in fields} for _ in range(rows)]
    return pa.Table.from_pylist(data, schema=pa.schema(fields))


def leaves(table, path):
    """Encodings beside the plain one that each column may have."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "x.parquet"
        pq.write_table(table.slice(0, 0), file, use_compliant_nested_type=path)
        schema = pq.ParquetFile(file).schema
        more = {"INT32": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"], "INT64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
                "FLOAT": ["BYTE_STREAM_SPLIT"], "DOUBLE": ["BYTE_STREAM_SPLIT"], "BYTE_ARRAY": ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
                "FIXED_LEN_BYTE_ARRAY": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"], "BOOLEAN": ["RLE"]}
        return {schema.column(i).path: ["PLAIN"] + more.get(schema.column(i).physical_type, []) for i in range(len(schema))}


def draw_options(r, table):
    compliant = r.random() < 0.8
    options = {"compression": r.choice(CODECS), "data_page_version": r.choice(["1.0", "2.0"]), "use_compliant_nested_type": compliant,
               "row_group_size": r.choice([5, 50, 10000]), "data_page_size": r.choice([64, 1000, 1 << 20]), "write_batch_size": r.choice([3, 1024]),
               "write_page_checksum": r.random() < 0.3, "version": r.choice(["1.0", "2.4", "2.6"]), "use_dictionary": r.random() < 0.5,
               "dictionary_pagesize_limit": r.choice([64, 1 << 20])}
    if not options["use_dictionary"] and r.random() < 0.8:
        options["column_encoding"] = {name: r.choice(all_) for name, all_ in leaves(table, compliant).items()}
    return options


CHAT = pa.schema([("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())]))), ("source", pa.string()),
                  ("score", pa.float64())])
VALUES = pa.schema([("text", pa.string()), ("id", pa.int64()), ("small", pa.int32()), ("flag", pa.bool_()), ("rate", pa.float32()), ("raw", pa.binary(4)),
                    ("tags", pa.list_(pa.list_(pa.int32()))), ("scores", pa.map_(pa.string(), pa.float64()))])


def chat_table(r, rows):
    data = []
    for i in range(rows):
        turns = [{"role": "system", "content": "Be short.", "name": None}] if i % 3 == 0 else []
        for _ in range(r.randint(1, 3)):
            turns += [{"role": "user", "content": f"What is {r.randint(0, 99)} + {r.randint(0, 99)}? {r.choice(WORDS)}", "name": r.choice([None, "kim"])},
                      {"role": "assistant", "content": f"{r.choice(WORDS)} {r.randint(0, 198)}.", "name": None}]
        data.append({"messages": turns, "source": r.choice(["web", "book", None]), "score": r.choice([0.5, None])})
    return pa.Table.from_pylist(data, schema=CHAT)


def value_table(r, rows):
    return pa.Table.from_pylist([{f.name: draw_value(r, f.type, i > 0) for f in VALUES} for i in range(rows)], schema=VALUES)


def write_fixtures(folder):
    r = random.Random(1)
    pairs = pa.table({"prompt": ["2+2?", "3+3?"], "chosen": ["Four.", "Six."], "rejected": ["Five.", "Nine."]})
    # As Sequence features of Hugging Face store a list of objects.
    talks = pa.table({"conversations": [{"from": ["human", "gpt"], "value": ["2+2?", "Four."]}, {"from": ["human", "gpt"], "value": ["3+3?", "Six."]}]})
    encodings = {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "flag": "RLE", "rate": "BYTE_STREAM_SPLIT",
                 "raw": "DELTA_BYTE_ARRAY", "tags.list.element.list.element": "PLAIN", "scores.key_value.key": "DELTA_LENGTH_BYTE_ARRAY",
                 "scores.key_value.value": "PLAIN"}
    files = {
        "chats_snappy": (chat_table(r, 12), {"compression": "SNAPPY", "data_page_version": "1.0"}),
        "chats_zstd": (chat_table(r, 12), {"compression": "ZSTD", "data_page_version": "2.0", "row_group_size": 5, "data_page_size": 64,
                                           "write_batch_size": 2, "write_page_checksum": True}),
        "values_gzip": (value_table(r, 20), {"compression": "GZIP", "data_page_version": "2.0", "use_dictionary": False, "column_encoding": encodings}),
        "values_plain": (value_table(r, 10), {"compression": "NONE", "use_dictionary": False}),
        "values_lz4": (value_table(r, 20), {"compression": "LZ4", "data_page_size": 64, "write_batch_size": 4}),
        "pairs": (pairs, {"compression": "SNAPPY"}),
        "sequence_brotli": (talks, {"compression": "BROTLI"}),
    }
    expected = {}
    for name, (table, options) in files.items():
        pq.write_table(table, folder / f"{name}.parquet", store_schema=False, **options)
        expected[name] = as_rows(table)
    lines = [f"{json.dumps(n)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]" for n, rows in expected.items()]
    (folder / "rows.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()
    if args.write:
        return write_fixtures(args.write)
    wanted = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for i in range(args.count):
            r = random.Random(args.seed * 1000003 + i)
            table = draw_table(r)
            options = draw_options(r, table)
            pq.write_table(table, folder / f"{i}.parquet", **options)
            wanted[i] = (as_rows(table), options, table.schema)
        subprocess.run([args.program, "--gtest_filter=ParquetExchange.Rows", "--gtest_brief=1"], check=True, env=dict(os.environ, LUMEN_EXCHANGE_DIR=name))
        rows = 0
        for i, (want, options, schema) in wanted.items():
            got = [json.loads(line) for line in (folder / f"{i}.rows").read_text(encoding="utf-8").splitlines()]
            assert got == want, f"seed {args.seed}, table {i}: {options}\n{schema}\n" + next(
                (f"row {k + 1}\nwant {w}\ngot  {g}" for k, (w, g) in enumerate(zip(want, got)) if w != g), f"{len(want)} rows, got {len(got)}")
            rows += len(want)
    print(f"{args.count} tables, {rows} rows are as pyarrow has them")


if __name__ == "__main__":
    sys.exit(main())
