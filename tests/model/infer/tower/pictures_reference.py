#!/usr/bin/env python3
"""Makes tests/model/fixtures/pictures: pictures of a few pixels, tiny models with random weights that read them, as Hugging Face
folders, and what the well-known implementation (transformers, torch and torchvision from PyPI, on the CPU) computes with them.
Only the results are needed by the tests.

usage: pictures_reference.py FOLDER [CASE ...]

Pictures: NAME.png and others, and NAME.rgb of them as Pillow reads them. Each case is a folder: config.json, model.safetensors,
tokenizer.json and preprocessor_config.json, and expected.safetensors with, for picture n of the case,
  patches.N  what the processor makes of it      rows.N  what the tower makes of it
and for the prompt of the case `tokens` with the places of pictures expanded, `positions` [3, T], `logits` [T, V], and `greedy`,
the next tokens of the largest logits.
"""
import json
import os
import sys

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers as t
from PIL import Image, ImageOps

SPECIALS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|im_end|>"]
SMALL = dict(vocab_size=264, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None, pad_token_id=None)
IDS = dict(vision_start_token_id=256, vision_end_token_id=257, image_token_id=258, video_token_id=259)
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
MORE = 8  # tokens after the prompt
CASES = {}


def case(name):
    def add(make):
        CASES[name] = make
        return make
    return add


def pixels(width, height, seed):
    """Smooth colours with some noise: what a filter does shows in them."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / (3 + c) + seed) + np.cos(y / (5 - c)) for c in range(3)], -1)
    noise = np.random.default_rng(seed).normal(size=waves.shape)
    return np.clip(128 + 60 * waves + 12 * noise, 0, 255).astype(np.uint8)


def pictures(folder):
    wide, tall = Image.fromarray(pixels(50, 33, 1)), Image.fromarray(pixels(29, 71, 2))
    wide.save(f"{folder}/wide.png")
    tall.save(f"{folder}/tall.jpg", quality=92)
    tall.save(f"{folder}/tall.webp", lossless=True)
    wide.save(f"{folder}/wide.bmp")
    small = wide.resize((16, 9))
    small.convert("L").save(f"{folder}/grey.png")
    small.convert("P", palette=Image.Palette.ADAPTIVE, colors=7).save(f"{folder}/palette.png")
    small.convert("P", palette=Image.Palette.ADAPTIVE, colors=7).save(f"{folder}/palette.bmp")
    small.convert("1").save(f"{folder}/bits.bmp")
    seen = small.convert("RGBA")
    seen.putalpha(small.convert("L"))
    seen.save(f"{folder}/alpha.png")
    small.convert("CMYK").save(f"{folder}/print.jpg", quality=95)
    small.save(f"{folder}/progressive.jpg", progressive=True, quality=80)
    for turn in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        small.save(f"{folder}/turned{turn}.jpg", exif=exif, quality=95, subsampling=0)
    exif = Image.Exif()
    exif[0x0112] = 6
    small.save(f"{folder}/turned6.png", exif=exif)
    small.save(f"{folder}/turned6.webp", exif=exif, lossless=True)
    for name in sorted(os.listdir(folder)):
        if name.rsplit(".")[-1] not in ("png", "jpg", "webp", "bmp"):
            continue
        image = ImageOps.exif_transpose(Image.open(f"{folder}/{name}")).convert("RGB")
        with open(f"{folder}/{name}.rgb", "wb") as out:
            out.write(np.array(image.size, dtype="<u4").tobytes() + np.array(image).tobytes())


def seeing(cls, config, text, vision, **more):
    return cls(config(text_config={k: v for k, v in text.items() if k not in ("bos_token_id", "eos_token_id")}, vision_config=vision, **IDS, **more))


def rope(section, **more):
    return dict(rope_theta=1000.0, rope_type="default", mrope_section=section, **more)


VISION = dict(depth=3, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
AREA = dict(patch_size=4, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 256, "longest_edge": 2048})


@case("qwen2_vl")
def qwen2_vl():
    model = seeing(t.Qwen2VLForConditionalGeneration, t.Qwen2VLConfig, {**SMALL, "rope_parameters": rope([1, 1, 2])},
                   {**VISION, "embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2})
    return model, t.Qwen2VLImageProcessor(**AREA)


@case("qwen2_5_vl")
def qwen2_5_vl():
    model = seeing(t.Qwen2_5_VLForConditionalGeneration, t.Qwen2_5_VLConfig, {**SMALL, "rope_parameters": rope([2, 1, 1])},
                   {**VISION, "hidden_size": 16, "intermediate_size": 20, "out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 16})
    return model, t.Qwen2VLImageProcessor(**AREA)


@case("qwen3_vl")
def qwen3_vl():
    model = seeing(t.Qwen3VLForConditionalGeneration, t.Qwen3VLConfig,
                   {**SMALL, "num_hidden_layers": 4, "head_dim": 16, "rope_parameters": rope([4, 2, 2], mrope_interleaved=True)},
                   {**VISION, "depth": 4, "hidden_size": 16, "intermediate_size": 20, "out_hidden_size": 32, "num_position_embeddings": 36,
                    "deepstack_visual_indexes": [0, 2, 3]})
    return model, t.Qwen2VLImageProcessor(**AREA, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def tokenizer():
    byte = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(byte)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(SPECIALS)
    return made


def make(name, folder, shown):
    torch.manual_seed(len(name))
    model, processor = CASES[name]()
    model = model.eval()
    with torch.no_grad():
        for p in model.parameters():  # as if trained: nothing is as it began
            p.copy_((p + 0.2 * torch.randn_like(p)).bfloat16().float())
    path = f"{folder}/{name}"
    os.makedirs(path, exist_ok=True)
    model.bfloat16().save_pretrained(path)
    # Read again: frequencies were rounded, too.
    model = type(model).from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    processor.save_pretrained(path)
    words = tokenizer()
    words.save(f"{path}/tokenizer.json")
    expected = {}
    images = [Image.open(f"{shown}/{n}").convert("RGB") for n in ("wide.png", "tall.webp")]
    each = [processor(image, return_tensors="pt") for image in images]
    with torch.no_grad():
        for n, got in enumerate(each):
            expected[f"patches.{n}"] = got["pixel_values"].float()
            rows = model.model.get_image_features(got["pixel_values"], got["image_grid_thw"])
            expected[f"rows.{n}"] = torch.cat([torch.cat(list(rows.pooler_output))] + [torch.cat(list(d)) for d in getattr(rows, "deepstack_features", [])], -1).float()
        prompt = f"What is {PICTURE} and {PICTURE}? "
        ids = []
        counts = iter([len(expected[f"rows.{n}"]) for n in range(len(images))])
        for i in words.encode(prompt).ids:
            ids += [i] * (next(counts) if i == IDS["image_token_id"] else 1)
        grids = torch.cat([g["image_grid_thw"] for g in each])
        values = torch.cat([g["pixel_values"] for g in each])

        def run(ids):
            tokens = torch.tensor([ids])
            kinds = (tokens == IDS["image_token_id"]).int()
            out = model(input_ids=tokens, pixel_values=values, image_grid_thw=grids, mm_token_type_ids=kinds)
            places = model.model.get_rope_index(tokens, mm_token_type_ids=kinds, image_grid_thw=grids)[0]
            return out.logits[0].float(), places[:, 0].int()

        expected["tokens"] = torch.tensor(ids, dtype=torch.int32)
        expected["logits"], expected["positions"] = run(ids)
        greedy = []
        for _ in range(MORE):
            greedy.append(int(run(ids + greedy)[0][-1].argmax()))
        expected["greedy"] = torch.tensor(greedy, dtype=torch.int32)
    safetensors.torch.save_file({k: v.contiguous() for k, v in expected.items()}, f"{path}/expected.safetensors")
    for file in ("generation_config.json",):
        if os.path.exists(f"{path}/{file}"):
            os.remove(f"{path}/{file}")
    print(name, {k: tuple(v.shape) for k, v in expected.items()})


def main():
    folder, names = sys.argv[1], sys.argv[2:] or CASES
    os.makedirs(f"{folder}/shown", exist_ok=True)
    pictures(f"{folder}/shown")
    for name in names:
        make(name, folder, f"{folder}/shown")


main()
