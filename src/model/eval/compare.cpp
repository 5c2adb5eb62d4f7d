#include "model/eval/compare.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <functional>
#include <new>

#include "base/error.h"
#include "model/text/pattern/pattern.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::eval {
namespace {

constexpr const char* kInvalid = "[invalid]";
constexpr const char* kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

// A regular expression with Python's semantics, except for rare constructs.
class Expression {
 public:
  Expression(const std::string& text, const std::string& where) : text_(text) {
    int code = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &code, &at,
                              nullptr));
    if (!code_) {
      if (code == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
      throw user_error("{}: the pattern '{}', character {}: {}", where, text, at, text::pattern_mistake(code));
    }
    limits_.reset(pcre2_match_context_create(nullptr));
    if (!limits_) throw std::bad_alloc();
    pcre2_set_match_limit(limits_.get(), 10'000'000);
  }

  // Groups of every match, in order; group 0 is the whole match.
  using Groups = std::vector<std::pair<size_t, size_t>>;  // npos for groups that did not participate
  void each(const std::string& text, const std::function<void(const Groups&)>& found) const {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr), pcre2_match_data_free);
    if (!data) throw std::bad_alloc();
    size_t at = 0;
    bool not_empty = false;  // an empty match at this position has been reported
    while (at <= text.size()) {
      const uint32_t options = not_empty ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
      const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options,
                                    data.get(), limits_.get());
      if (count == PCRE2_ERROR_NOMATCH) {
        if (!not_empty) return;
        not_empty = false;
        ++at;
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
        continue;
      }
      if (count < 0)
        throw user_error("the pattern '{}' exceeds the limits of matching on a text of {} bytes", text_, text.size());
      const PCRE2_SIZE* places = pcre2_get_ovector_pointer(data.get());
      Groups groups;
      for (uint32_t g = 0; g < pcre2_get_ovector_count(data.get()); ++g) {
        const bool took_part = static_cast<int>(g) < count && places[2 * g] != PCRE2_UNSET;
        groups.emplace_back(took_part ? places[2 * g] : std::string::npos,
                            took_part ? places[2 * g + 1] : std::string::npos);
      }
      found(groups);
      not_empty = groups[0].first == groups[0].second;
      at = std::max(groups[0].second, at);
    }
  }

  std::string without(const std::string& text) const {
    std::string out;
    size_t from = 0;
    each(text, [&](const Groups& g) {
      out.append(text, from, g[0].first - from);
      from = g[0].second;
    });
    return out.append(text, from);
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::string text_;
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_context, Free> limits_;
};

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n\r\f\v");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n\r\f\v") - first + 1);
}

std::string lower(const std::string& text) {
  return text::each_character(
      text, [](char32_t c, std::string& out) { text::utf8_append(out, static_cast<char32_t>(utf8proc_tolower(c))); });
}

}  // namespace

struct Comparison::Patterns {
  std::vector<std::unique_ptr<Expression>> extract;  // null: the whole text
  std::vector<Expression> ignore;
};

Comparison::Comparison(const Task& task) : task_(task) {
  auto patterns = std::make_unique<Patterns>();
  const std::string where = fmt::format("task '{}'", task.name);
  for (const Extraction& e : task.extractions)
    patterns->extract.push_back(e.pattern.empty() ? nullptr : std::make_unique<Expression>(e.pattern, where));
  for (const std::string& pattern : task.ignore) patterns->ignore.emplace_back(pattern, where);
  patterns_ = std::move(patterns);
}
Comparison::~Comparison() = default;

std::string Comparison::extract(size_t which, const std::string& text) const {
  const auto& expression = patterns_->extract.at(which);
  if (!expression) return text;
  std::vector<std::string> found;
  expression->each(text, [&](const Expression::Groups& groups) {
    // If the pattern has groups: the first non-empty group, without the whole match.
    std::string one;
    for (size_t g = groups.size() > 1 ? 1 : 0; g < groups.size() && one.empty(); ++g)
      if (groups[g].first != std::string::npos) one = text.substr(groups[g].first, groups[g].second - groups[g].first);
    found.push_back(one.empty() && groups.size() > 2 ? kInvalid : one);
  });
  const int64_t select = task_.extractions[which].select, count = found.size();
  const int64_t at = select < 0 ? count + select : select;
  if (count == 0) return kInvalid;
  if (at < 0 || at >= count) return kInvalid;
  return stripped(found[at]);
}

bool Comparison::equal(const std::string& written, const std::string& right) const {
  const auto plain = [&](std::string text) {
    for (const Expression& e : patterns_->ignore) text = e.without(text);
    if (task_.ignore_case) text = lower(text);
    if (task_.ignore_punctuation)
      std::erase_if(
          text, [](char c) { return c != '\0' && std::string_view(kPunctuation).find(c) != std::string_view::npos; });
    return text;
  };
  return plain(written) == plain(right);
}

}  // namespace lumen::model::eval
