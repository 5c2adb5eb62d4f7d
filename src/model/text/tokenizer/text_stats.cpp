#include "model/text/tokenizer/text_stats.h"

#include <fmt/format.h>

#include "base/structured/json.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

bool is_syllable(char32_t c) {
  return c >= 0xac00 && c <= 0xd7a3;
}

bool is_hangul(char32_t c) {
  return is_syllable(c) || (c >= 0x1100 && c <= 0x11ff) || (c >= 0x3131 && c <= 0x318e);
}

// Calls `each` with every character and its position.
template <typename Each>
void characters(std::string_view text, const Each& each) {
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0xfffd;
    const size_t n = utf8_char(text, at, &c);
    each(n == 0 ? char32_t{0xfffd} : c, at);
    at += n == 0 ? 1 : n;
  }
}

double per(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / static_cast<double>(b);
}

}  // namespace

TextStats text_stats(const Tokenizer& t, std::string_view text) {
  TextStats out;
  // Language of each byte's word: 0 neither, 1 Korean, 2 English. Spaces belong to the word after them.
  std::vector<uint8_t> language(text.size(), 0);
  std::vector<uint8_t> begins(text.size(), 0);
  size_t from = 0;
  bool in_word = false, hangul = false, latin = false;
  const auto end_word = [&](size_t at) {
    if (!in_word) return;
    const uint8_t kind = hangul ? 1 : latin ? 2 : 0;
    std::fill(language.begin() + from, language.begin() + at, kind);
    ++out.all.words;
    if (kind == 1) ++out.korean.words;
    if (kind == 2) ++out.english.words;
    from = at;
    in_word = hangul = latin = false;
  };
  characters(text, [&](char32_t c, size_t at) {
    if (is_white_space(c)) {
      end_word(at);
      return;
    }
    in_word = true;
    hangul |= is_hangul(c);
    latin |= c < 0x80 && std::isalpha(c) != 0;
  });
  end_word(text.size());
  characters(text, [&](char32_t c, size_t at) {
    ++out.all.characters;
    if (language[at] == 1) ++out.korean.characters;
    if (language[at] == 2) ++out.english.characters;
    if (is_syllable(c)) {
      ++out.syllables;
      begins[at] = 1;
    }
  });
  for (size_t i = 0; i < text.size(); ++i) {
    ++out.all.bytes;
    if (language[i] == 1) ++out.korean.bytes;
    if (language[i] == 2) ++out.english.bytes;
  }
  const std::vector<TokenId> ids = t.encode(text);
  out.all.tokens = ids.size();
  // While the concatenated tokens equal the text, each token is assigned to its word; a tokenizer that changes the text
  // is only measured as a whole.
  size_t at = 0;
  bool joined = true;
  std::vector<uint8_t> whole(text.size(), 0);
  for (const TokenId id : ids) {
    std::string bytes = t.bytes(id);
    if (at == 0 && text.substr(0, bytes.size()) != bytes) bytes = t.decode({&id, 1}, false);
    if (text.substr(at, bytes.size()) != bytes) {
      joined = false;
      break;
    }
    if (!bytes.empty()) {
      const uint8_t kind = language[at + bytes.size() - 1];
      if (kind == 1) ++out.korean.tokens;
      if (kind == 2) ++out.english.tokens;
    }
    for (size_t i = at; i + 3 <= at + bytes.size(); ++i) whole[i] = 1;
    at += bytes.size();
  }
  if (joined) {
    for (size_t i = 0; i < text.size(); ++i) out.broken_syllables += begins[i] != 0 && whole[i] == 0;
  } else {
    out.korean.tokens = out.english.tokens = out.broken_syllables = -1;
  }
  out.vocabulary = t.size();
  for (TokenId id = 0; id < t.size(); ++id) {
    if (t.kind(id) == TokenKind::control || t.kind(id) == TokenKind::unused) continue;
    const std::string bytes = t.bytes(id);
    int64_t hanguls = 0, others = 0;
    characters(bytes, [&](char32_t c, size_t) {
      if (is_hangul(c)) {
        ++hanguls;
      } else if (!is_white_space(c)) {
        ++others;
      }
    });
    out.hangul_tokens += hanguls > 0;
    out.single_syllables += hanguls == 1 && others == 0 && bytes.size() == 3;
  }
  return out;
}

std::string TextStats::table() const {
  std::string out = fmt::format("{:<9} {:>10} {:>10} {:>10} {:>10} {:>11} {:>11} {:>11}\n", "", "bytes", "characters",
                                "words", "tokens", "tokens/char", "tokens/word", "tokens/byte");
  const auto row = [&](const char* name, const TextCounts& c) {
    if (c.words == 0) return;
    if (c.tokens < 0) {
      out += fmt::format("{:<9} {:>10} {:>10} {:>10} {:>10}\n", name, c.bytes, c.characters, c.words, "-");
      return;
    }
    out += fmt::format("{:<9} {:>10} {:>10} {:>10} {:>10} {:>11.4f} {:>11.4f} {:>11.4f}\n", name, c.bytes, c.characters,
                       c.words, c.tokens, per(c.tokens, c.characters), per(c.tokens, c.words), per(c.tokens, c.bytes));
  };
  row("all", all);
  row("Korean", korean);
  row("English", english);
  if (syllables > 0 && broken_syllables >= 0)
    out += fmt::format("{} of {} Hangul syllables ({:.2f} %) are cut into pieces\n", broken_syllables, syllables,
                       100 * per(broken_syllables, syllables));
  out += fmt::format("vocabulary: {} tokens, {} with Hangul, {} single syllables\n", vocabulary, hangul_tokens,
                     single_syllables);
  return out;
}

std::string TextStats::json() const {
  const auto counts = [](const TextCounts& c) {
    nlohmann::ordered_json out = {{"bytes", c.bytes}, {"characters", c.characters}, {"words", c.words}};
    if (c.tokens < 0) return out;
    out["tokens"] = c.tokens;
    out["tokens_per_character"] = per(c.tokens, c.characters);
    out["tokens_per_word"] = per(c.tokens, c.words);
    out["tokens_per_byte"] = per(c.tokens, c.bytes);
    return out;
  };
  nlohmann::ordered_json out = {{"all", counts(all)}, {"korean", counts(korean)}, {"english", counts(english)}};
  out["syllables"] = syllables;
  if (broken_syllables >= 0) out["broken_syllables"] = broken_syllables;
  out["vocabulary"] = vocabulary;
  out["hangul_tokens"] = hangul_tokens;
  out["single_syllables"] = single_syllables;
  return out.dump() + "\n";
}

}  // namespace lumen::model::text
