#include "model/text/pattern/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "model/text/pattern/pattern_syntax.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

constexpr uint64_t kMaxWork = 100'000'000;
constexpr size_t kMaxStates = 1024, kMaxClasses = 64;  // of a DFA

Error runaway(const std::string& text, size_t at) {
  return user_error("splitting the text with the tokenizer's pattern '{}' takes too much time or memory at byte {}",
                    text.substr(0, 200), at);
}

// The character at `p` of valid UTF-8 and its length.
inline char32_t decode(const char* p, size_t* size) {
  const auto b = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t first = b(0);
  if (first < 0x80) {
    *size = 1;
    return first;
  }
  if (first < 0xe0) {
    *size = 2;
    return (first & 0x1f) << 6 | (b(1) & 0x3f);
  }
  if (first < 0xf0) {
    *size = 3;
    return (first & 0xf) << 12 | (b(1) & 0x3f) << 6 | (b(2) & 0x3f);
  }
  *size = 4;
  return (first & 7) << 18 | (b(1) & 0x3f) << 12 | (b(2) & 0x3f) << 6 | (b(3) & 0x3f);
}

}  // namespace

// States are ordered lists of threads before the next character is read; a step resolves forks and look-ahead with that
// character, notes whether a thread accepts here (which drops all less preferred ones), and advances the others.
struct Pattern::Table {
  static constexpr uint16_t kAccepts = 0x8000, kDead = 0x7fff;

  size_t classes = 0;                // the last one is the end of the text
  std::vector<uint16_t> steps;       // [state][class]: next state, or kDead, with kAccepts
  std::array<uint8_t, 128> ascii{};  // class of a character
  std::vector<uint16_t> pages;       // [c / 256] -> block
  std::vector<uint8_t> blocks;       // [block][c % 256] -> class

  // `borders`: ascending, from 0; each starts a class at this character.
  void put_classes(const std::vector<std::pair<char32_t, uint8_t>>& borders) {
    constexpr char32_t kPage = 256;
    std::vector<uint8_t> page(kPage);
    std::map<std::vector<uint8_t>, uint16_t> known;
    size_t next = 0;       // the next border
    bool is_even = false;  // all characters of the previous page have the current class
    for (char32_t first = 0; first <= kLastCode; first += kPage) {
      const auto border = [&] { return next < borders.size() ? borders[next].first : kLastCode + 1; };
      // Most pages equal the previous one.
      if (is_even && border() >= first + kPage) {
        pages.push_back(pages.back());
        continue;
      }
      is_even = true;
      for (char32_t at = first; at < first + kPage;) {
        if (border() == at) {
          ++next;
          is_even = at == first;
        }
        const char32_t end = std::min(border(), first + kPage);
        std::fill(page.begin() + (at - first), page.begin() + (end - first), borders[next - 1].second);
        at = end;
      }
      const auto [at, fresh] = known.emplace(page, static_cast<uint16_t>(known.size()));
      if (fresh) blocks.insert(blocks.end(), page.begin(), page.end());
      pages.push_back(at->second);
    }
    for (unsigned c = 0; c < ascii.size(); ++c) ascii[c] = class_of(c);
  }

  uint8_t class_of(char32_t c) const { return blocks[size_t{pages[c >> 8]} << 8 | (c & 0xff)]; }

  // End of the match that begins at `at`, or at - 1 (wrapping) when there is none. `*looked`: number of characters
  // read.
  size_t match(std::string_view text, size_t at, size_t* looked) const {
    const char* data = text.data();
    const uint16_t* table = steps.data();
    const size_t width = classes, size = text.size();
    size_t state = 0, p = at, last = at - 1;
    for (;;) {
      size_t length = 1;
      size_t c = width - 1;
      if (p < size) {
        const auto byte = static_cast<unsigned char>(data[p]);
        c = byte < 0x80 ? ascii[byte] : class_of(decode(data + p, &length));
      }
      const uint16_t step = table[state * width + c];
      if (step & kAccepts) last = p;
      state = step & kDead;
      if (state == kDead || p == size) break;
      p += length;
    }
    *looked = p - at + 1;
    return last;
  }
};

namespace {

// Equivalence classes of characters with respect to the pattern's sets, with the sets that contain each class.
struct Partition {
  std::vector<std::vector<bool>> members;             // [class][set]
  std::vector<std::pair<char32_t, uint8_t>> borders;  // ascending: from this character on, this class
};

std::optional<Partition> partition(const std::vector<CodeSet>& sets, size_t max_classes) {
  std::vector<char32_t> starts{0};
  for (const CodeSet& s : sets) {
    for (const auto& [first, last] : s.ranges()) {
      starts.push_back(first);
      if (last < kLastCode) starts.push_back(last + 1);
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  Partition out;
  std::map<std::vector<bool>, uint8_t> known;
  std::vector<size_t> place(sets.size(), 0);
  for (const char32_t c : starts) {
    std::vector<bool> in(sets.size());
    for (size_t s = 0; s < sets.size(); ++s) {
      const auto& ranges = sets[s].ranges();
      while (place[s] < ranges.size() && ranges[place[s]].second < c) ++place[s];
      in[s] = place[s] < ranges.size() && ranges[place[s]].first <= c;
    }
    const auto [at, fresh] = known.emplace(in, static_cast<uint8_t>(out.members.size()));
    if (fresh) out.members.push_back(in);
    if (out.members.size() + 1 > max_classes) return std::nullopt;
    out.borders.emplace_back(c, at->second);
  }
  return out;
}

class Stepper {
 public:
  Stepper(const PatternGraph& graph, const Partition& classes) : graph_(graph), classes_(classes) {}

  // One step of `threads` with a class (or the end: classes.size()). True when a thread accepts.
  bool step(const std::vector<int32_t>& threads, size_t of, std::vector<int32_t>* next) {
    next->clear();
    seen_.assign(graph_.nodes.size(), false);
    queued_.assign(graph_.nodes.size(), false);
    for (const int32_t thread : threads) {
      if (follow(thread, of, next)) return true;
    }
    return false;
  }

 private:
  bool holds(int32_t set, size_t of) const { return of < classes_.members.size() && classes_.members[of][set]; }

  bool follow(int32_t from, size_t of, std::vector<int32_t>* next) {
    std::vector<int32_t> stack{from};
    while (!stack.empty()) {
      const size_t at = stack.back();
      stack.pop_back();
      if (seen_[at]) continue;
      seen_[at] = true;
      const PatternNode& n = graph_.nodes[at];
      switch (n.kind) {
        case PatternNode::Kind::accept:
          return true;
        case PatternNode::Kind::fork:
          stack.push_back(n.other);
          stack.push_back(n.next);
          break;
        case PatternNode::Kind::ahead:
          if (of == classes_.members.size() ? n.end_allowed : holds(n.set, of)) stack.push_back(n.next);
          break;
        case PatternNode::Kind::set:
          if (holds(n.set, of) && !queued_[n.next]) {
            queued_[n.next] = true;
            next->push_back(n.next);
          }
          break;
      }
    }
    return false;
  }

  const PatternGraph& graph_;
  const Partition& classes_;
  std::vector<bool> seen_, queued_;
};

// The ranges of a set as the contents of a bracket expression.
std::string in_brackets(const CodeSet& set) {
  std::string out;
  for (const auto& [first, last] : set.ranges())
    out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", uint32_t{first}, uint32_t{last});
  return out;
}

// Rewrites constructs whose meaning in PCRE2 differs from the tokenizers' dialect: \s differs in one character, \w and
// \b in many, \h and \v are unrelated.
class Translation {
 public:
  static std::string of(std::string_view text) {
    std::string out;
    bool inside = false;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\\' && i + 1 < text.size()) {
        out += inside ? escape_inside(text[++i]) : escape(text[++i]);
      } else if (c == '[' && !inside) {
        inside = true;
        out += c;
        if (i + 1 < text.size() && text[i + 1] == '^') out += text[++i];
        if (i + 1 < text.size() && text[i + 1] == ']') out += text[++i];
      } else if (const size_t end = inside ? text.find(":]", i) : std::string_view::npos;
                 end != std::string_view::npos && text.substr(i).starts_with("[:")) {
        out += named_class(text.substr(i, end + 2 - i));
        i = end + 1;
      } else {
        if (c == ']') inside = false;
        out += c;
      }
    }
    return out;
  }

 private:
  static constexpr std::string_view kSpace =
      "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
  // From our own tables: those of PCRE2 have another Unicode version.
  static const std::string& word(bool inside) {
    static const std::string in = in_brackets(CodeSet::pattern_word(true)),
                             out = in_brackets(CodeSet::pattern_word(false));
    return inside ? in : out;
  }
  static const std::string& digits() {
    static const std::string all = in_brackets(*CodeSet::property("Nd"));
    return all;
  }
  // Alphabetic in Unicode 16 but not in 14, the version of Debian 12's PCRE2 (DerivedCoreProperties.txt).
  static constexpr std::string_view kNewLetters =
      "\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}-\\x{1c8a}\\x{1dd3}-\\x{1de6}"
      "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}\\x{10d69}"
      "\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}-\\x{11081}\\x{1123f}-\\x{11241}"
      "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}"
      "\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}"
      "\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1342f}\\x{13441}-\\x{13446}"
      "\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612e}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}"
      "\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}"
      "\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";

  static std::string escape(char c) {
    switch (c) {
      case 's':
        return fmt::format("[{}]", kSpace);
      case 'S':
        return fmt::format("[^{}]", kSpace);
      case 'w':
        return fmt::format("[{}]", word(false));
      case 'W':
        return fmt::format("[^{}]", word(false));
      case 'b':
        return fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word(false));
      case 'B':
        return fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word(false));
      case 'd':
        return fmt::format("[{}]", digits());
      case 'D':
        return fmt::format("[^{}]", digits());
      case 'h':
        return "[0-9A-Fa-f]";
      case 'H':
        return "[^0-9A-Fa-f]";
      default:
        return plain(c);
    }
  }
  static std::string escape_inside(char c) {
    switch (c) {
      case 's':
        return std::string(kSpace);
      case 'S':
        return in_brackets(CodeSet::white_space().complement());
      case 'w':
        return word(true);
      case 'W':
        return in_brackets(CodeSet::pattern_word(true).complement());
      case 'd':
        return digits();
      case 'D':
        return in_brackets(CodeSet::property("Nd")->complement());
      case 'h':
        return "0-9A-Fa-f";
      case 'H':
        return in_brackets(CodeSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}.complement());
      default:
        return plain(c);
    }
  }
  static std::string plain(char c) { return c == 'v' ? "\\x{0b}" : std::string{'\\', c}; }
  static std::string named_class(std::string_view name) {
    if (name == "[:word:]") return word(true);
    if (name == "[:space:]") return std::string(kSpace);
    if (name == "[:alpha:]") return fmt::format("\\p{{Alphabetic}}{}", kNewLetters);
    if (name == "[:alnum:]") return fmt::format("\\p{{Alphabetic}}{}{}", kNewLetters, digits());
    return std::string(name);
  }
};

// Match limits and JIT stack; one per thread.
struct MatchContext {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);

  MatchContext() {
    if (!context || !data) {
      release();
      throw std::bad_alloc();
    }
    pcre2_set_match_limit(context, 50'000'000);
    pcre2_set_heap_limit(context, 256 * 1024);  // KiB
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchContext(const MatchContext&) = delete;
  MatchContext& operator=(const MatchContext&) = delete;
  ~MatchContext() { release(); }

 private:
  void release() {
    if (stack) pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

}  // namespace

std::string pattern_mistake(int error) {
  switch (error) {
    case PCRE2_ERROR_END_BACKSLASH:
      return "a backslash at the end";
    case PCRE2_ERROR_UNKNOWN_ESCAPE:
      return "an unknown escape";
    case PCRE2_ERROR_QUANTIFIER_OUT_OF_ORDER:
    case PCRE2_ERROR_QUANTIFIER_TOO_BIG:
      return "repeat counts that are too large or in the wrong order";
    case PCRE2_ERROR_MISSING_SQUARE_BRACKET:
      return "a character class without its closing ]";
    case PCRE2_ERROR_CLASS_RANGE_ORDER:
      return "a character range whose end is before its start";
    case PCRE2_ERROR_QUANTIFIER_INVALID:
      return "a quantifier with nothing to repeat";
    case PCRE2_ERROR_MISSING_CLOSING_PARENTHESIS:
      return "a group without its closing )";
    case PCRE2_ERROR_UNMATCHED_CLOSING_PARENTHESIS:
      return "a closing ) without its group";
    case PCRE2_ERROR_BAD_SUBPATTERN_REFERENCE:
      return "a reference to a group that does not exist";
    case PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH:
      return "a look-behind without a fixed length";
    case PCRE2_ERROR_UNKNOWN_UNICODE_PROPERTY:
    case PCRE2_ERROR_MALFORMED_UNICODE_PROPERTY:
      return "an unknown Unicode property";
    default:
      return "not a supported regular expression";
  }
}

struct Pattern::Backtracking {
  pcre2_code* code = nullptr;

  Backtracking(const std::string& text, const std::string& where) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string translated = Translation::of(text);
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error, &offset,
                         nullptr);
    if (!code) {
      if (error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
      throw user_error("{}: pattern '{}', character {}: {}", where, text.substr(0, 200), offset,
                       pattern_mistake(error));
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT support, matching is interpreted
  }
  Backtracking(const Backtracking&) = delete;
  Backtracking& operator=(const Backtracking&) = delete;
  ~Backtracking() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& text, const std::string& where, Engine engine) : text_(text) {
  if (engine != Engine::backtracking) {
    if (const auto graph = parse_pattern(text)) {
      if (const auto classes = partition(graph->sets, kMaxClasses)) {
        auto table = std::make_unique<Table>();
        const size_t width = table->classes = classes->members.size() + 1;
        std::vector<std::vector<int32_t>> states{{graph->start}};
        std::map<std::vector<int32_t>, uint16_t> known{{states[0], 0}};
        Stepper stepper(*graph, *classes);
        std::vector<int32_t> next;
        for (size_t s = 0; s < states.size() && states.size() <= kMaxStates; ++s) {
          for (size_t c = 0; c < width; ++c) {
            uint16_t step = stepper.step(states[s], c, &next) ? Table::kAccepts : uint16_t{0};
            if (next.empty()) {
              step |= Table::kDead;
            } else {
              const auto [at, fresh] = known.emplace(next, static_cast<uint16_t>(states.size()));
              if (fresh) states.push_back(next);
              step |= at->second;
            }
            table->steps.push_back(step);
          }
        }
        if (states.size() <= kMaxStates) {
          table->put_classes(classes->borders);
          table_ = std::move(table);
        }
      }
    }
    if (table_) return;
    if (engine == Engine::table)
      throw user_error("{}: pattern '{}' cannot be compiled to a table", where, text.substr(0, 200));
  }
  backtracking_ = std::make_unique<Backtracking>(text, where);
}

Pattern Pattern::literal(std::string text) {
  Pattern out;
  out.text_ = out.literal_ = std::move(text);
  return out;
}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

bool Pattern::is_table() const {
  return table_ != nullptr;
}

bool Pattern::find(std::string_view text, size_t from, Match* out, uint64_t* work) const {
  if (table_) {
    for (size_t at = from; at < text.size();) {
      size_t looked = 0;
      const size_t end = table_->match(text, at, &looked);
      if (end != at - 1 && end > at) {
        *out = {at, end};
        return true;
      }
      *work += looked;
      if (*work > kMaxWork) throw runaway(text_, at);
      size_t size;
      decode(text.data() + at, &size);
      at += size;
    }
    return false;
  }
  if (!backtracking_) {
    if (literal_.empty()) return false;
    const size_t at = text.find(literal_, from);
    if (at == std::string_view::npos) return false;
    *out = {at, at + literal_.size()};
    return true;
  }
  static thread_local MatchContext limits;
  for (size_t at = from; at <= text.size();) {
    // The text is known to be valid UTF-8, so PCRE2 must not check it again for every match (which would take quadratic
    // time).
    const auto match = [&](uint32_t options) {
      return pcre2_match(backtracking_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options,
                         limits.data, limits.context);
    };
    int found = match(PCRE2_NO_UTF_CHECK);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) throw runaway(text_, at);
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(limits.data);
    if (ends[1] > ends[0] && ends[0] >= at) {  // \K could move the start back
      *out = {ends[0], ends[1]};
      return true;
    }
    const size_t behind = std::max<size_t>(at, ends[1]);
    size_t size = 1;
    if (behind < text.size()) decode(text.data() + behind, &size);
    at = behind + size;
  }
  return false;
}

bool same_matches(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto one = parse_pattern(a);
  auto other = parse_pattern(b);
  if (!one || !other) return false;
  std::vector<CodeSet> sets = one->sets;
  sets.insert(sets.end(), other->sets.begin(), other->sets.end());
  for (PatternNode& n : other->nodes)
    if (n.set >= 0) n.set += one->sets.size();
  const auto classes = partition(sets, kMaxClasses);
  if (!classes) return false;
  // A walk over the product automaton; both must accept at the same steps.
  using Pair = std::pair<std::vector<int32_t>, std::vector<int32_t>>;
  std::vector<Pair> states{{{one->start}, {other->start}}};
  std::set<Pair> known(states.begin(), states.end());
  Stepper first(*one, *classes), second(*other, *classes);
  for (size_t s = 0; s < states.size(); ++s) {
    for (size_t c = 0; c <= classes->members.size(); ++c) {
      Pair next;
      if (first.step(states[s].first, c, &next.first) != second.step(states[s].second, c, &next.second)) return false;
      if ((next.first.empty() && next.second.empty()) || !known.insert(next).second) continue;
      if (states.size() == kMaxStates) return false;
      states.push_back(std::move(next));
    }
  }
  return true;
}

bool leaves_no_gaps(const std::string& pattern) {
  const auto graph = parse_pattern(pattern);
  if (!graph) return false;
  const auto classes = partition(graph->sets, kMaxClasses);
  if (!classes) return false;
  std::vector<std::vector<int32_t>> states{{graph->start}};
  std::set<std::vector<int32_t>> known;  // an empty match at the start does not count
  Stepper stepper(*graph, *classes);
  const size_t end = classes->members.size();
  for (size_t s = 0; s < states.size(); ++s) {
    for (size_t c = 0; c < end + (s > 0 ? 1 : 0); ++c) {
      std::vector<int32_t> next;
      if (stepper.step(states[s], c, &next) && s > 0) continue;
      if (next.empty()) return false;
      if (!known.insert(next).second) continue;
      if (states.size() == kMaxStates) return false;
      states.push_back(std::move(next));
    }
  }
  return true;
}

}  // namespace lumen::model::text
