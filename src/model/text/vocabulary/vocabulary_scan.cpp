#include "model/text/vocabulary/vocabulary_scan.h"

#include <charconv>
#include <cmath>

#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

// A position in a JSON text. Every method advances past the named element, or returns false: the position is then
// undefined.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  size_t at() const { return at_; }

  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char next() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }

  bool string(std::string& out) {
    if (!take('"')) return false;
    out.clear();
    bool ascii = true;
    while (true) {
      const size_t begin = at_;
      while (at_ < text_.size() && !is_special(text_[at_])) ascii &= static_cast<signed char>(text_[at_++]) >= 0;
      out.append(text_, begin, at_ - begin);
      if (at_ == text_.size()) return false;
      const char c = text_[at_++];
      if (c == '"') break;
      if (c != '\\' || !escape(out)) return false;  // control characters are invalid
    }
    return ascii || utf8_valid_run(out, 0) == out.size();
  }

  bool natural(uint64_t& out) {
    space();
    const size_t begin = at_;
    if (!digits() || at_ - begin > 18 || (text_[begin] == '0' && at_ - begin > 1)) return false;
    std::from_chars(text_.data() + begin, text_.data() + at_, out);
    return at_ == text_.size() || (text_[at_] != '.' && text_[at_] != 'e' && text_[at_] != 'E');
  }

  bool number(double& out) {
    space();
    const size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    const size_t whole = at_;
    if (!digits() || (text_[whole] == '0' && at_ - whole > 1)) return false;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      if (!digits()) return false;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (!digits()) return false;
    }
    const auto [end, error] = std::from_chars(text_.data() + begin, text_.data() + at_, out);
    return error == std::errc() && end == text_.data() + at_ && std::isfinite(out);
  }

  // A value of any kind; inside only strings and brackets are checked.
  bool skip() {
    int depth = 0;
    do {
      const char c = next();
      if (c == '\0') return false;
      if (c == '"') {
        if (!skip_string()) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (--depth < 0) return false;
        ++at_;
      } else if (c == ',' || c == ':') {
        if (depth == 0) return false;
        ++at_;
      } else {
        const size_t begin = at_;
        while (at_ < text_.size() && !is_end(text_[at_])) ++at_;
        if (at_ == begin) return false;  // a control character
      }
    } while (depth > 0);
    return true;
  }

  // Members of a list or object: `one` reads each.
  template <typename One>
  bool members(char open, char close, const One& one) {
    if (!take(open)) return false;
    if (take(close)) return true;
    do {
      if (!one()) return false;
    } while (take(','));
    return take(close);
  }

 private:
  static bool is_special(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }
  static bool is_end(char c) {
    return c == ',' || c == ':' || c == '}' || c == ']' || c == '"' || c == '{' || c == '[' ||
           static_cast<unsigned char>(c) <= 0x20;
  }

  bool digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin;
  }

  bool skip_string() {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\')
        ++at_;
      else if (text_[at_] == '"')
        return ++at_, true;
    }
    return false;
  }

  bool unit(uint32_t& out) {
    if (text_.size() - at_ < 4) return false;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    at_ += 4;
    return error == std::errc() && end == text_.data() + at_;
  }

  bool escape(std::string& out) {
    if (at_ == text_.size()) return false;
    constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    const char c = text_[at_++];
    if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
      out += kValues[simple];
      return true;
    }
    uint32_t high = 0, low = 0;
    if (c != 'u' || !unit(high) || (high >= 0xdc00 && high < 0xe000)) return false;
    if (high >= 0xd800 && high < 0xdc00) {
      if (text_.substr(at_, 2) != "\\u") return false;
      at_ += 2;
      if (!unit(low) || low < 0xdc00 || low >= 0xe000) return false;
      high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    utf8_append(out, static_cast<char32_t>(high));
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool scan_tokens(Scanner& in, ScannedVocabulary& out) {
  auto& tokens = out.tokens.emplace();
  std::string token;
  uint64_t id = 0;
  return in.members('{', '}', [&] {
    if (!in.string(token) || !in.take(':') || !in.natural(id)) return false;
    tokens.emplace_back(token, id);
    return true;
  });
}

bool scan_pieces(Scanner& in, ScannedVocabulary& out) {
  auto& pieces = out.pieces.emplace();
  std::string piece;
  double score = 0;
  return in.members('[', ']', [&] {
    if (!in.take('[') || !in.string(piece) || !in.take(',') || !in.number(score) || !in.take(']')) return false;
    pieces.emplace_back(piece, score);
    return true;
  });
}

// "left right" or ["left", "right"].
bool scan_merges(Scanner& in, ScannedVocabulary& out) {
  auto& merges = out.merges.emplace();
  std::string left, right;
  return in.members('[', ']', [&] {
    if (in.next() == '[') {
      if (!in.take('[') || !in.string(left) || !in.take(',') || !in.string(right) || !in.take(']')) return false;
    } else {
      if (!in.string(left)) return false;
      const size_t space = left.find(' ');
      if (space == std::string::npos || left.find(' ', space + 1) != std::string::npos) return false;
      right.assign(left, space + 1);
      left.resize(space);
    }
    merges.emplace_back(left, right);
    return true;
  });
}

}  // namespace

std::optional<ScannedVocabulary> scan_vocabulary(std::string_view text) {
  ScannedVocabulary out;
  Scanner in(text);
  std::string key;
  size_t copied = 0;
  const auto cut = [&](bool (*scan)(Scanner&, ScannedVocabulary&), std::string_view empty) {
    out.rest.append(text, copied, in.at() - copied);
    out.rest += empty;
    if (!scan(in, out)) return false;
    copied = in.at();
    return true;
  };
  const auto of_model = [&] {
    if (!in.string(key) || !in.take(':')) return false;
    const char kind = in.next();
    if (key == "vocab" && kind == '{' && !out.tokens) return cut(scan_tokens, "{}");
    if (key == "vocab" && kind == '[' && !out.pieces) return cut(scan_pieces, "[]");
    if (key == "merges" && kind == '[' && !out.merges) return cut(scan_merges, "[]");
    return in.skip();
  };
  const bool whole = in.members('{', '}', [&] {
    if (!in.string(key) || !in.take(':')) return false;
    if (key == "model" && in.next() == '{') return in.members('{', '}', of_model);
    return in.skip();
  });
  if (!whole || (!out.tokens && !out.pieces)) return std::nullopt;
  out.rest.append(text, copied);
  return out;
}

}  // namespace lumen::model::text
