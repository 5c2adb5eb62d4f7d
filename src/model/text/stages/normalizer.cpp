#include "model/text/stages/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "model/text/unicode/code_set.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

// Calls `valid` for runs of valid UTF-8; other bytes are copied.
template <typename Valid>
std::string over_valid(std::string_view text, const Valid& valid) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t good = utf8_valid_run(text, at);
    if (good != 0) valid(text.substr(at, good), out);
    at += good;
    if (at == text.size()) break;
    const size_t bad = utf8_invalid_run(text, at);
    out.append(text.substr(at, bad));
    at += bad;
  }
  return out;
}

// Calls `each` with every character and its bytes.
template <typename Each>
std::string over_characters(std::string_view text, const Each& each) {
  return over_valid(text, [&](std::string_view run, std::string& out) {
    for (size_t at = 0; at < run.size();) {
      char32_t c;
      const size_t n = utf8_char(run, at, &c);
      each(c, run.substr(at, n), out);
      at += n;
    }
  });
}

std::string normal_form(std::string_view text, int options) {
  return over_valid(text, [&](std::string_view run, std::string& out) {
    utf8proc_uint8_t* mapped = nullptr;
    const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()), run.size(),
                                               &mapped, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
    if (size < 0) throw user_error("cannot normalize a text: {}", utf8proc_errmsg(size));
    out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
    std::free(mapped);
  });
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(c);
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

void lower(char32_t c, std::string& out) {
  if (c == 0x130) {  // the one letter whose lowercase is two characters
    out += "i\xcc\x87";
    return;
  }
  utf8_append(out, static_cast<char32_t>(utf8proc_tolower(c)));
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string strip(std::string_view text, bool left, bool right) {
  char32_t c;
  if (left) {
    for (size_t n; !text.empty() && (n = utf8_char(text, 0, &c)) != 0 && is_white_space(c);) text.remove_prefix(n);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    if (utf8_char(text, begin, &c) != text.size() - begin || !is_white_space(c)) break;
    text.remove_suffix(text.size() - begin);
  }
  return std::string(text);
}

std::string replace(const NormalStep& step, std::string_view text) {
  return over_valid(text, [&](std::string_view run, std::string& out) {
    Match match;
    uint64_t work = 0;
    size_t end = 0;
    while (step.pattern->find(run, end, &match, &work)) {
      out.append(run.substr(end, match.begin - end));
      out += step.text;
      end = match.end;
    }
    out.append(run.substr(end));
  });
}

std::string map_prefixes(const CharacterMap& map, std::string_view text) {
  return over_valid(text, [&](std::string_view run, std::string& out) {
    for (size_t at = 0; at < run.size();) {
      std::string_view becomes;
      size_t n = map.longest(run.substr(at), &becomes);
      if (n == 0) {
        char32_t c;
        n = utf8_char(run, at, &c);
        becomes = run.substr(at, n);
      }
      out += becomes;
      at += n;
    }
  });
}

std::string map_graphemes(const CharacterMap& map, std::string_view text) {
  return over_valid(text, [&](std::string_view run, std::string& out) {
    const auto grapheme = [&](std::string_view g) {
      std::string_view becomes;
      if (g.size() < 6 && map.shortest(g, &becomes) != 0) {
        out += becomes;
        return;
      }
      for (size_t at = 0; at < g.size();) {
        char32_t c;
        const size_t n = utf8_char(g, at, &c);
        out += map.shortest(g.substr(at, n), &becomes) != 0 ? becomes : g.substr(at, n);
        at += n;
      }
    };
    size_t begin = 0;
    utf8proc_int32_t state = 0, before = -1;
    for (size_t at = 0; at < run.size();) {
      char32_t c;
      const size_t n = utf8_char(run, at, &c);
      const utf8proc_int32_t code = c;
      if (before >= 0 && utf8proc_grapheme_break_stateful(before, code, &state) != 0) {
        grapheme(run.substr(begin, at - begin));
        begin = at;
      }
      before = code;
      at += n;
    }
    if (begin < run.size()) grapheme(run.substr(begin));
  });
}

std::string clean(std::string_view text) {
  return over_characters(text, [](char32_t c, std::string_view bytes, std::string& out) {
    if (c == '\t' || c == '\n' || c == '\r') {
      out += ' ';
      return;
    }
    const auto k = category(c);
    if (c == 0 || c == 0xfffd || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO)
      return;
    if (is_white_space(c)) {
      out += ' ';
    } else {
      out += bytes;
    }
  });
}

std::string nmt(std::string_view text) {
  return over_characters(text, [](char32_t c, std::string_view bytes, std::string& out) {
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) return;
    if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
        c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd) {
      out += ' ';
    } else {
      out += bytes;
    }
  });
}

// One bit per character: NFC changes neither it nor the characters before it.
const std::vector<uint64_t>& nfc_stable() {
  static const auto bits = [] {
    std::vector<uint64_t> out((kLastCode >> 6) + 1, ~uint64_t{0});
    const auto unsure = [&](char32_t c) { out[c >> 6] &= ~(uint64_t{1} << (c & 63)); };
    for (char32_t c = 0; c <= kLastCode; ++c) {
      const utf8proc_property_t* p = utf8proc_get_property(c);
      if (p->combining_class != 0) unsure(c);
      if (p->decomp_seqindex == UINT16_MAX || p->decomp_type != 0) continue;
      // With a canonical decomposition: stable when it composes back to itself; its second part may compose with the
      // preceding character.
      utf8proc_int32_t parts[8];
      const auto n = utf8proc_decompose_char(c, parts, 8, UTF8PROC_STABLE, nullptr);
      for (utf8proc_ssize_t i = 1; i < n && i < 8; ++i) unsure(static_cast<char32_t>(parts[i]));
      std::string before, after;
      utf8_append(before, c);
      after = normal_form(before, UTF8PROC_COMPOSE);
      if (before != after) unsure(c);
    }
    for (char32_t c = 0x1161; c <= 0x1175; ++c) unsure(c);
    for (char32_t c = 0x11a7; c <= 0x11c2; ++c) unsure(c);
    return out;
  }();
  return bits;
}

}  // namespace

CharacterMap::CharacterMap(std::string_view blob, const std::string& where) {
  uint32_t size = 0;
  if (blob.size() >= 4) std::memcpy(&size, blob.data(), 4);
  if (blob.size() < 4 || size % 4 != 0 || size < 4 || size > blob.size() - 4)
    throw user_error("{}: the character map (precompiled_charsmap) is malformed", where);
  units_.resize(size / 4);
  std::memcpy(units_.data(), blob.data() + 4, size);
  replacements_ = blob.substr(4 + size);
}

size_t CharacterMap::find(std::string_view text, bool longest, std::string_view* out) const {
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  size_t node = offset(units_[0]), best = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xff)) != byte) break;
    node ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= units_.size()) break;
    const size_t at = units_[node] & 0x7fffffff;
    if (at >= replacements_.size()) break;
    best = i + 1;
    *out = std::string_view(replacements_).substr(at, replacements_.find('\0', at) - at);
    if (!longest) break;
  }
  return best;
}

size_t CharacterMap::longest(std::string_view text, std::string_view* out) const {
  return find(text, true, out);
}
size_t CharacterMap::shortest(std::string_view text, std::string_view* out) const {
  return find(text, false, out);
}

bool surely_nfc(std::string_view text) {
  const auto& stable = nfc_stable();
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    char32_t c;
    const size_t n = utf8_char(text, at, &c);
    if (n == 0 || (stable[c >> 6] >> (c & 63) & 1) == 0) return false;
    at += n;
  }
  return true;
}

bool Normalizer::leaves(std::string_view text) const {
  return steps_.empty() || (is_nfc() && surely_nfc(text));
}

std::string Normalizer::apply(std::string_view input) const {
  std::string text(input);
  for (const NormalStep& step : steps_) {
    switch (step.kind) {
      case NormalStep::Kind::nfc:
        if (!surely_nfc(text)) text = normal_form(text, UTF8PROC_COMPOSE);
        break;
      case NormalStep::Kind::nfd:
        text = normal_form(text, UTF8PROC_DECOMPOSE);
        break;
      case NormalStep::Kind::nfkc:
        text = normal_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
        break;
      case NormalStep::Kind::nfkd:
        text = normal_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
        break;
      case NormalStep::Kind::lowercase:
        text = over_characters(text, [](char32_t c, std::string_view, std::string& out) { lower(c, out); });
        break;
      case NormalStep::Kind::strip_accents:
        text = over_characters(text, [](char32_t c, std::string_view bytes, std::string& out) {
          if (!is_mark(c)) out += bytes;
        });
        break;
      case NormalStep::Kind::strip_nonspacing:
        text = over_characters(text, [](char32_t c, std::string_view bytes, std::string& out) {
          if (category(c) != UTF8PROC_CATEGORY_MN) out += bytes;
        });
        break;
      case NormalStep::Kind::strip:
        text = strip(text, step.left, step.right);
        break;
      case NormalStep::Kind::replace:
        text = replace(step, text);
        break;
      case NormalStep::Kind::prepend:
        if (!text.empty()) text.insert(0, step.text);
        break;
      case NormalStep::Kind::map_graphemes:
        text = map_graphemes(*step.map, text);
        break;
      case NormalStep::Kind::map_prefixes:
        text = map_prefixes(*step.map, text);
        break;
      case NormalStep::Kind::clean:
        text = clean(text);
        break;
      case NormalStep::Kind::nmt:
        text = nmt(text);
        break;
      case NormalStep::Kind::pad_ideographs:
        text = over_characters(text, [](char32_t c, std::string_view bytes, std::string& out) {
          const bool pad = is_ideograph(c);
          if (pad) out += ' ';
          out += bytes;
          if (pad) out += ' ';
        });
        break;
      case NormalStep::Kind::alphabet:
        text = to_alphabet(text);
        break;
    }
  }
  return text;
}

}  // namespace lumen::model::text
