#include "model/text/unicode/code_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>

namespace lumen::model::text {
namespace {

// Ranges of each of the general categories, computed once.
const std::array<std::vector<CodeSet::Range>, 30>& category_ranges() {
  static const auto table = [] {
    std::array<std::vector<CodeSet::Range>, 30> out;
    for (char32_t c = 0; c <= kLastCode; ++c) {
      auto& ranges = out.at(static_cast<size_t>(utf8proc_category(c)));
      if (!ranges.empty() && ranges.back().second + 1 == c) {
        ranges.back().second = c;
      } else {
        ranges.emplace_back(c, c);
      }
    }
    return out;
  }();
  return table;
}

constexpr std::string_view kCategories[30] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                              "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                              "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// East Asian scripts; no known tokenizer uses others.
const CodeSet* script(std::string_view name) {
  static const CodeSet han{{0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},
                           {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},
                           {0x4e00, 0x9fff},   {0xf900, 0xfa6d},   {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3},
                           {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739}, {0x2b740, 0x2b81d},
                           {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2f800, 0x2fa1d}, {0x30000, 0x3134a},
                           {0x31350, 0x323af}};
  static const CodeSet hangul{{0x1100, 0x11ff}, {0x302e, 0x302f}, {0x3131, 0x318e}, {0x3200, 0x321e}, {0x3260, 0x327e},
                              {0xa960, 0xa97c}, {0xac00, 0xd7a3}, {0xd7b0, 0xd7c6}, {0xd7cb, 0xd7fb}, {0xffa0, 0xffbe},
                              {0xffc2, 0xffc7}, {0xffca, 0xffcf}, {0xffd2, 0xffd7}, {0xffda, 0xffdc}};
  static const CodeSet hiragana{{0x3041, 0x3096},   {0x309d, 0x309f},   {0x1b001, 0x1b11f},
                                {0x1b132, 0x1b132}, {0x1b150, 0x1b152}, {0x1f200, 0x1f200}};
  static const CodeSet katakana{{0x30a1, 0x30fa},   {0x30fd, 0x30ff},   {0x31f0, 0x31ff},   {0x32d0, 0x32fe},
                                {0x3300, 0x3357},   {0xff66, 0xff6f},   {0xff71, 0xff9d},   {0x1aff0, 0x1aff3},
                                {0x1aff5, 0x1affb}, {0x1affd, 0x1affe}, {0x1b000, 0x1b000}, {0x1b120, 0x1b122},
                                {0x1b155, 0x1b155}, {0x1b164, 0x1b167}};
  if (name == "Han") return &han;
  if (name == "Hangul") return &hangul;
  if (name == "Hiragana") return &hiragana;
  if (name == "Katakana") return &katakana;
  return nullptr;
}

}  // namespace

CodeSet::CodeSet(std::initializer_list<Range> ranges) : CodeSet(std::vector<Range>(ranges)) {}

CodeSet::CodeSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (const Range& r : ranges) {
    if (!ranges_.empty() && r.first <= ranges_.back().second + 1) {
      ranges_.back().second = std::max(ranges_.back().second, r.second);
    } else {
      ranges_.push_back(r);
    }
  }
}

bool CodeSet::contains(char32_t c) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), c, [](char32_t x, const Range& r) { return x < r.first; });
  return after != ranges_.begin() && c <= std::prev(after)->second;
}

CodeSet CodeSet::complement() const {
  CodeSet out;
  char32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= kLastCode) out.ranges_.emplace_back(next, kLastCode);
  return out;
}

CodeSet CodeSet::unite(const CodeSet& other) const {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(all));
}

CodeSet CodeSet::intersect(const CodeSet& other) const {
  return complement().unite(other.complement()).complement();
}

std::optional<CodeSet> CodeSet::property(std::string_view name) {
  if (name == "Any") return CodeSet{{0, kLastCode}};
  if (const CodeSet* s = script(name)) return *s;
  if (name.empty() || name.size() > 2) return std::nullopt;
  std::vector<Range> ranges;
  bool found = false;
  for (size_t i = 0; i < std::size(kCategories); ++i) {
    if (name != kCategories[i].substr(0, name.size())) continue;
    found = true;
    const auto& more = category_ranges()[i];
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  if (!found) return std::nullopt;
  return CodeSet(std::move(ranges));
}

const CodeSet& CodeSet::white_space() {
  static const CodeSet set{{9, 13},          {' ', ' '},       {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
                           {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
  return set;
}

const CodeSet& CodeSet::word() {
  static const CodeSet set = pattern_word(true).unite({{0x200c, 0x200d}});
  return set;
}

const CodeSet& CodeSet::pattern_word(bool in_brackets) {
  // Other_Alphabetic outside the marks: letters in circles and squares.
  static const CodeSet inside = CodeSet{{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}}
                                    .unite(*property("L"))
                                    .unite(*property("M"))
                                    .unite(*property("Nd"))
                                    .unite(*property("Nl"))
                                    .unite(*property("Pc"));
  static const CodeSet outside = inside.unite({{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}});
  return in_brackets ? inside : outside;
}

const CodeSet& CodeSet::punctuation() {
  static const CodeSet set = CodeSet{{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}.unite(*property("P"));
  return set;
}

}  // namespace lumen::model::text
