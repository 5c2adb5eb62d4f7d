#!/usr/bin/env python3
"""Makes tests/model/fixtures/encoders: tiny encoders with random weights as Hugging Face folders, and what the well-known
implementation (transformers, tokenizers and torch, from PyPI) makes of texts: ids, and vectors of batches with padding. Only the
results are needed by the tests.

usage: encoder_reference.py FOLDER

`plain` has vocab.txt, names of tensors without a prefix and pools the mean; `masked` is a model of masked words with tokenizer.json, old
names of tensors with a prefix, GELU by tanh, and pools the first token; `offset` is of the kind of RoBERTa. NAME.json beside each: `texts`, `ids`, `decoded`;
NAME.safetensors: `pooled` [texts, hidden], of length 1, and `hidden` [tokens, hidden] of the first text.

`pairs` and `pairs_offset` are cross-encoders, of BERT with two segments and of XLM-R. NAME.json: `queries`, `documents`, `ids`, `seconds` (where
the documents begin) and `scores` of the pairs in one batch, without the sigmoid.
"""
import json
import os
import sys

import safetensors.torch
import tokenizers
import torch
import transformers as t
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ["The quick brown fox jumps over the lazy dog.", "", "안녕하세요, 서울은 대한민국의 수도이다.", "한국어와 English를 섞어 씁니다 ㅋㅋ", "中文字符测试和日本語のテスト",
         "naïve café Ünïcödé İstanbul ςΣ", "a\u0301e\u0301 \u1112\u1161\u11ab\u1100\u116e\u11a8", "!!!???... a-b_c/d\\e `x^y~z|", "x" * 100, "x" * 101, "  tabs\t\tand\n\nlines\r\n ",
         "🙂🙃👩\u200d👩\u200d👧 emoji \ufeff", "\u00a0nbsp\u3000ideo\u2009thin", "\x00null\x01ctl\x7f \ufffd", "ﬁ ① ½ ㎏ ＡＢＣ", "《书名》「引号」—…", "𠀀𪜶 𝒜𝓁 ẞ",
         "a\u00adb \u2028line\u2029 \u0085next", "don't $100 €50 ₩1000 user@example.com", "ไทย हिन्दी العربية עברית Русский Ёё", "the lazy dog jumps", "over the fox"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def trained(size, lowercase):
    tok = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer, tok.pre_tokenizer = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    # Not all of the texts: some characters shall be unknown.
    tok.train_from_iterator(TEXTS[:12] + TEXTS[18:19] * 3, trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False, limit_alphabet=120))
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tok


def expected(folder, name, tok, encoder, pool):
    encoder = encoder.eval()
    ids = [tok(x)["input_ids"] for x in TEXTS]
    with torch.no_grad():
        longest = max(map(len, ids))
        mask = torch.tensor([[1] * len(i) + [0] * (longest - len(i)) for i in ids])
        batch = torch.tensor([i + [getattr(encoder.config, "pad_token_id", 0) or 0] * (longest - len(i)) for i in ids])
        hidden = encoder(input_ids=batch, attention_mask=mask).last_hidden_state
        k = mask.unsqueeze(-1).float()
        pooled = (hidden * k).sum(1) / k.sum(1) if pool == "mean" else hidden[:, 0]
        pooled = torch.nn.functional.normalize(pooled, dim=1)
    json.dump({"texts": TEXTS, "ids": ids, "decoded": [tok.decode(i, skip_special_tokens=True) for i in ids]}, open(f"{folder}/{name}.json", "w"), indent=0)
    safetensors.torch.save_file({"pooled": pooled.contiguous(), "hidden": hidden[0, : len(ids[0])].contiguous()}, f"{folder}/{name}.safetensors")


def pooling(folder, kind):
    os.makedirs(f"{folder}/1_Pooling", exist_ok=True)
    json.dump({"word_embedding_dimension": 24, "pooling_mode_cls_token": kind == "cls", "pooling_mode_mean_tokens": kind == "mean",
               "pooling_mode_max_tokens": False}, open(f"{folder}/1_Pooling/config.json", "w"), indent=1)


def plain(folder):
    path = f"{folder}/plain"
    os.makedirs(path, exist_ok=True)
    vocabulary = trained(360, True).get_vocab()
    with open(f"{path}/vocab.txt", "w", encoding="utf-8", newline="\n") as file:
        file.writelines(w + "\n" for w in sorted(vocabulary, key=vocabulary.get))
    json.dump({"tokenizer_class": "BertTokenizer", "do_lower_case": True}, open(f"{path}/tokenizer_config.json", "w"))
    config = t.BertConfig(vocab_size=len(vocabulary), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                          max_position_embeddings=112, initializer_range=0.2)
    torch.manual_seed(1)
    model = t.BertModel(config)
    shake(model)
    model.save_pretrained(path)
    pooling(path, "mean")
    expected(folder, "plain", t.BertTokenizer.from_pretrained(path), model, "mean")


def masked(folder):
    path = f"{folder}/masked"
    os.makedirs(path, exist_ok=True)
    tok = trained(300, False)
    tok.save(f"{path}/tokenizer.json")
    config = t.BertConfig(vocab_size=tok.get_vocab_size(), hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                          max_position_embeddings=112, hidden_act="gelu_new", layer_norm_eps=1e-5, type_vocab_size=1, initializer_range=0.2)
    torch.manual_seed(2)
    model = t.BertForMaskedLM(config)
    shake(model)
    config.architectures = ["BertForMaskedLM"]
    config.save_pretrained(path)
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): p.clone().contiguous()
           for n, p in model.state_dict().items() if n != "cls.predictions.decoder.weight"}
    safetensors.torch.save_file(old, f"{path}/model.safetensors", {"format": "pt"})
    pooling(path, "cls")
    expected(folder, "masked", t.PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]"), model.bert, "cls")


def offset(folder):
    """As Korean RoBERTas are: the padding token is number 1, and positions begin behind it."""
    path = f"{folder}/offset"
    os.makedirs(path, exist_ok=True)
    tok = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer, tok.pre_tokenizer = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    order = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    tok.train_from_iterator(TEXTS[:12] + TEXTS[18:19] * 3, trainers.WordPieceTrainer(vocab_size=300, special_tokens=order, show_progress=False, limit_alphabet=120))
    tok.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 0))
    tok.save(f"{path}/tokenizer.json")
    config = t.RobertaConfig(vocab_size=tok.get_vocab_size(), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                             max_position_embeddings=114, layer_norm_eps=1e-5, type_vocab_size=1, initializer_range=0.2, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    torch.manual_seed(4)
    model = t.RobertaModel(config)
    shake(model)
    model.save_pretrained(path)
    pooling(path, "cls")
    expected(folder, "offset", t.PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]"), model, "cls")


def score_pairs(folder, name, tok, model):
    """Every text with the next one, and with an empty one."""
    queries = TEXTS + TEXTS[:2]
    documents = TEXTS[1:] + TEXTS[:1] + ["", TEXTS[0]]
    said = tok(queries, documents, padding=True, return_tensors="pt", return_token_type_ids=True)
    segments = model.config.type_vocab_size > 1
    with torch.no_grad():
        scores = model.eval()(input_ids=said["input_ids"], attention_mask=said["attention_mask"], **({"token_type_ids": said["token_type_ids"]} if segments else {})).logits[:, 0]
    ids = tok(queries, documents)["input_ids"]  # in a list, an empty document is one
    seconds = [e.sequence_ids.index(1) if 1 in e.sequence_ids else len(e.ids) - 1 for e in (tok._tokenizer.encode(q, d) for q, d in zip(queries, documents))]
    json.dump({"queries": queries, "documents": documents, "ids": ids, "seconds": seconds, "scores": [float(x) for x in scores]}, open(f"{folder}/{name}.json", "w"), indent=0)


def pairs(folder):
    path = f"{folder}/pairs"
    os.makedirs(path, exist_ok=True)
    tok = trained(360, True)
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tok.save(f"{path}/tokenizer.json")
    config = t.BertConfig(vocab_size=tok.get_vocab_size(), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                          max_position_embeddings=220, initializer_range=0.2, num_labels=1)
    torch.manual_seed(5)
    model = t.BertForSequenceClassification(config)
    shake(model)
    model.save_pretrained(path)
    score_pairs(folder, "pairs", t.PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]"), model)


def pairs_offset(folder):
    path = f"{folder}/pairs_offset"
    os.makedirs(path, exist_ok=True)
    tok = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=100))
    tok.normalizer, tok.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    order = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tok.train_from_iterator(TEXTS[:12] + TEXTS[18:19] * 3, trainers.WordPieceTrainer(vocab_size=300, special_tokens=order, show_progress=False, limit_alphabet=120))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tok.save(f"{path}/tokenizer.json")
    config = t.XLMRobertaConfig(vocab_size=tok.get_vocab_size(), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                                max_position_embeddings=222, layer_norm_eps=1e-5, type_vocab_size=1, initializer_range=0.2, pad_token_id=1, bos_token_id=0, eos_token_id=2, num_labels=1)
    torch.manual_seed(6)
    model = t.XLMRobertaForSequenceClassification(config)
    shake(model)
    model.save_pretrained(path)
    score_pairs(folder, "pairs_offset", t.PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", unk_token="<unk>"), model)


def shake(model):
    """Biases and norms are no zeros and ones."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.3 * torch.randn(p.shape, generator=generator))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    plain(folder)
    masked(folder)
    offset(folder)
    pairs(folder)
    pairs_offset(folder)


if __name__ == "__main__":
    main()
