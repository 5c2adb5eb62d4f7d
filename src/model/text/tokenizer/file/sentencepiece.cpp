// Tokenizers from SentencePiece files: a protocol buffers message, of which these fields are read.
//   1 piece*: 1 text, 2 score (f32), 3 type (as in TokenKind)
//   2 trainer: 3 model (1 unigram, 2 BPE), 24 white space as suffix, 35 byte fallback, 40 unknown, 41 BOS, 42 EOS
//   3 normalizer: 2 map of characters, 3 dummy prefix, 4 remove extra spaces, 5 escape spaces
// Proved by tests/model/text/sentencepiece_test.cpp, tokenizer_reference.py and tests/fuzz/sentencepiece_fuzz.cpp.
#include <cstring>

#include "base/error.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

// Iterates over the fields of a message.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint32_t number = 0;    // of the field
  uint64_t value = 0;     // of a varint or a fixed number
  std::string_view text;  // of a length-delimited field
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 } wire = Wire::varint;

  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    number = std::min<uint64_t>(key >> 3, ~uint32_t{0});
    switch (key & 7) {
      case 0:
        wire = Wire::varint;
        value = varint();
        break;
      case 1:
        wire = Wire::fixed64;
        fixed(8);
        break;
      case 2: {
        wire = Wire::bytes;
        const uint64_t size = varint();
        if (size > bytes_.size() - at_) throw broken();
        text = bytes_.substr(at_, size);
        at_ += size;
        break;
      }
      case 5:
        wire = Wire::fixed32;
        fixed(4);
        break;
      default:
        throw broken();
    }
    return true;
  }

  bool flag() const { return wire == Wire::varint && value != 0; }
  int64_t integer() const { return wire == Wire::varint ? static_cast<int64_t>(value) : -1; }

 private:
  Error broken() const {
    return user_error("{}: not a SentencePiece model: a malformed field at byte {}", where_, at_);
  }

  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) throw broken();
      const auto b = static_cast<unsigned char>(bytes_[at_++]);
      out |= uint64_t{b & 0x7fu} << shift;
      if (b < 0x80) return out;
    }
    throw broken();
  }

  void fixed(size_t size) {
    if (bytes_.size() - at_ < size) throw broken();
    value = 0;
    std::memcpy(&value, bytes_.data() + at_, size);
    at_ += size;
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

void read_piece(Message piece, const std::string& where, TokenizerParts& p) {
  std::string text;
  float score = 0;
  int64_t type = 1;
  while (piece.next()) {
    if (piece.number == 1) text = piece.text;
    if (piece.number == 2 && piece.wire == Message::Wire::fixed32) {
      const uint32_t bits = piece.value;
      std::memcpy(&score, &bits, 4);
    }
    if (piece.number == 3) type = piece.integer();
  }
  if (type < 1 || type > 6) throw user_error("{}: piece {} has the unknown type {}", where, p.tokens.size(), type);
  if (utf8_valid_run(text, 0) != text.size())
    throw user_error("{}: piece {} is not valid UTF-8", where, p.tokens.size());
  if (score != score) throw user_error("{}: the score of piece {} is not a number", where, p.tokens.size());
  if (std::ssize(p.tokens) >= kMaxVocabulary) throw user_error("{}: too many pieces", where);
  p.tokens.push_back(std::move(text));
  p.scores.push_back(score);
  p.kinds.push_back(static_cast<TokenKind>(type));
}

}  // namespace

Tokenizer Tokenizer::from_sentencepiece(std::string_view bytes, const std::string& name, std::string_view config) {
  auto parts = std::make_shared<TokenizerParts>();
  TokenizerParts& p = *parts;
  SpaceOptions spaces{.remove_extra = true};
  int64_t model = 1, unknown = 0, bos = 1, eos = 2;
  bool suffix = false;
  Message file(bytes, name);
  while (file.next()) {
    if (file.wire != Message::Wire::bytes) continue;
    Message part(file.text, name);
    if (file.number == 1) read_piece(part, name, p);
    while (file.number == 2 && part.next()) {
      if (part.number == 3) model = part.integer();
      if (part.number == 24) suffix = part.flag();
      if (part.number == 35) p.byte_fallback = part.flag();
      if (part.number == 40) unknown = part.integer();
      if (part.number == 41) bos = part.integer();
      if (part.number == 42) eos = part.integer();
    }
    while (file.number == 3 && part.next()) {
      if (part.number == 2 && part.wire == Message::Wire::bytes) spaces.character_map = part.text;
      if (part.number == 3) spaces.dummy_prefix = part.flag();
      if (part.number == 4) spaces.remove_extra = part.flag();
      if (part.number == 5) spaces.escape = part.flag();
    }
  }
  if (model != 1 && model != 2)
    throw Error(Exit::user, fmt::format("{}: SentencePiece models of type {} are not supported", name, model),
                "unigram and BPE are supported");
  if (suffix) throw user_error("{}: white space as a suffix is not supported", name);
  p.kind = model == 1 ? VocabularyKind::unigram : VocabularyKind::scored_pairs;
  p.fuse_unknown = p.single_precision = true;
  p.verbatim.assign(p.tokens.size(), false);
  space_stages(spaces, p, name);
  const auto id = [&](int64_t i) {
    return i >= 0 && i < std::ssize(p.tokens) ? std::optional(static_cast<TokenId>(i)) : std::nullopt;
  };
  p.unknown = id(unknown);
  p.bos = id(bos);
  p.eos = id(eos);
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    const TokenKind k = p.kinds[i];
    if (k != TokenKind::control && k != TokenKind::unknown && k != TokenKind::user_defined) continue;
    p.verbatim[i] = true;
    AddedToken token{.id = static_cast<TokenId>(i), .content = p.tokens[i], .control = k != TokenKind::user_defined};
    // User-defined symbols are matched in the normalized text.
    token.normalized = !token.control;
    (token.normalized ? p.added_normalized : p.added_raw).add(std::move(token));
  }
  // Without tokenizer_config.json, BPE models get BOS and unigram models EOS, as is usual for such models.
  if (p.kind == VocabularyKind::scored_pairs && p.bos) p.prefix = {*p.bos};
  if (p.kind == VocabularyKind::unigram && p.eos) p.suffix = {*p.eos};
  if (!config.empty()) {
    p.prefix.clear();
    p.suffix.clear();
    read_tokenizer_config(config, "tokenizer_config.json next to " + name, p);
  }
  finish_tokenizer(p, name);
  return Tokenizer(std::move(parts));
}

}  // namespace lumen::model::text
