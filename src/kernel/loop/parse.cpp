// Parses the text of loop IR into kernels. Hostile texts end in an Error with the place: nesting, lanes, sizes and
// value numbers are bounded, and the verifier checks the result. Proved by tests/kernel/loop/loop_text_test.cpp.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"
#include "kernel/loop/verify.h"

namespace lumen::loop {
namespace {

constexpr int kMaxDepth = 60;            // below the verifier's limit
constexpr int64_t kMaxNumber = 1 << 20;  // values and buffers of a kernel

class Parser {
 public:
  explicit Parser(SourceRef source) : source_(std::move(source)), text_(source_->text) {}

  Kernel kernel() {
    expect_word("kernel");
    kernel_.name = name();
    expect("(");
    if (!accept(")")) {
      list([&] { param(); });
      expect(")");
    }
    kernel_.aliased = accept_word("aliased");
    if (accept_word("instances")) kernel_.instances = int(std::clamp<int64_t>(integer(), 0, kMostInstances + 1));
    kernel_.buffer_count = kernel_.params.size();
    expect("{");
    kernel_.body.code = code(0);
    expect("}");
    end();
    finish(verify(kernel_));
    kernel_.tasks = count_tasks(kernel_);
    return std::move(kernel_);
  }

  Function function() {
    Function f;
    expect_word("func");
    f.name = name();
    expect("(");
    if (!accept(")")) {
      list([&] {
        const ValueId v = value();
        expect(":");
        define(v, type());
        f.params.push_back(v);
      });
      expect(")");
    }
    expect("->");
    const VType result = type();
    expect("{");
    kernel_.body.code = code(0);
    expect_word("return");
    f.result = value();
    expect("}");
    end();
    f.body = std::move(kernel_);
    finish(verify(f));
    if (f.body.value_types[f.result] != result) fail("the result has another type than the function");
    return f;
  }

 private:
  [[noreturn]] void fail(std::string_view message) const {
    throw error_at({source_, static_cast<uint32_t>(token_), static_cast<uint32_t>(std::max(at_, token_ + 1))}, message);
  }
  void finish(const std::string& wrong) const {
    if (!wrong.empty()) throw error_at({source_, 0, 1}, wrong);
  }

  void skip() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size() || !std::isspace(static_cast<unsigned char>(text_[at_]))) break;
    }
    token_ = at_;
  }
  void end() {
    skip();
    if (at_ != text_.size()) fail("text after the end");
  }
  bool accept(std::string_view symbol) {
    skip();
    if (text_.substr(at_, symbol.size()) != symbol) return false;
    at_ += symbol.size();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) fail(fmt::format("expected '{}'", symbol));
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
  std::string_view peek_word() {
    skip();
    size_t stop = at_;
    while (stop < text_.size() && is_word(text_[stop])) ++stop;
    return text_.substr(at_, stop - at_);
  }
  std::string_view word() {
    const std::string_view w = peek_word();
    if (w.empty()) fail("expected a word");
    at_ += w.size();
    return w;
  }
  bool accept_word(std::string_view wanted) {
    if (peek_word() != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  void expect_word(std::string_view wanted) {
    if (!accept_word(wanted)) fail(fmt::format("expected '{}'", wanted));
  }

  std::string name() {
    if (!accept("\"")) return std::string(word());
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("the name does not end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
      } else if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\\')) {
        out += text_[at_++];
      } else {
        int code = 0;
        const auto [stop, error] =
            std::from_chars(text_.data() + at_, text_.data() + std::min(at_ + 2, text_.size()), code, 16);
        if (error != std::errc() || stop != text_.data() + at_ + 2) fail("expected two hexadecimal digits");
        out += static_cast<char>(code);
        at_ += 2;
      }
    }
  }

  template <typename T>
  T read(std::string_view wanted) {
    skip();
    T x = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), x);
    if (error != std::errc()) fail(wanted);
    at_ = stop - text_.data();
    return x;
  }
  int64_t integer() { return read<int64_t>("expected an integer that fits 64 bits"); }
  int bounded(int64_t least, int64_t most, std::string_view what) {
    const int64_t x = integer();
    if (x < least || x > most) fail(fmt::format("{} must be {}..{}", what, least, most));
    return x;
  }
  double real() {
    const auto x = read<double>("expected a number");
    return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x;
  }

  ValueId value() {
    expect("%");
    return bounded(0, kMaxNumber, "a value number");
  }
  BufferId buffer() {
    expect("@");
    return bounded(0, kMaxNumber, "a buffer number");
  }
  VType type() {
    const auto t = vtype_from_name(word());
    if (!t) fail("expected a type such as f32 or i8x32");
    return *t;
  }

  void define(ValueId v, VType t) {
    if (v >= kernel_.value_count) {
      kernel_.value_count = v + 1;
      kernel_.value_types.resize(static_cast<size_t>(v) + 1);
    }
    kernel_.value_types[v] = t;
  }

  void param() {
    const BufferId b = buffer();
    if (b != std::ssize(kernel_.params)) fail("params are numbered in order");
    BufferParam p;
    p.name = name();
    expect(":");
    p.bytes = integer();
    expect_word("bytes");
    expect_word("align");
    p.align = bounded(1, 4096, "an alignment");
    p.written = accept_word("written");
    p.constant = accept_word("constant");
    kernel_.params.push_back(std::move(p));
  }

  std::vector<Instr> code(int depth) {
    if (depth > kMaxDepth) fail(fmt::format("regions nest deeper than {}", kMaxDepth));
    std::vector<Instr> out;
    for (;;) {
      skip();
      if (at_ >= text_.size() || text_[at_] == '}' || peek_word() == "return") return out;
      out.push_back(instruction(depth));
    }
  }

  Instr instruction(int depth) {
    Instr instr{};
    skip();
    if (text_[at_] == '@') {
      instr.buffer = buffer();
      expect("=");
      kernel_.buffer_count = std::max(kernel_.buffer_count, instr.buffer + 1);
    } else if (text_[at_] == '%') {
      instr.result = value();
      expect("=");
    }
    const std::string_view what = word();
    if (const auto op = from_name<Op>(what); op && *op != Op::op_) {
      instr.op = *op;
    } else if (const auto scalar = scalar_op_from_name(what); scalar && *scalar < ScalarOp::input) {
      instr.op = Op::op_;
      instr.scalar_op = *scalar;
    } else {
      fail(fmt::format("no operation '{}'", what));
    }
    if ((instr.buffer >= 0) != (instr.op == Op::alloc_)) fail("an alloc, and nothing else, is written @N = alloc");
    if (instr.result >= 0) {
      instr.type = type();
      define(instr.result, instr.type);
    }
    for (const Piece& p : syntax_of(instr.op)) piece(instr, p, depth);
    return instr;
  }

  template <typename One>
  void list(const One& one) {
    do one();
    while (accept(","));
  }

  void piece(Instr& instr, const Piece& p, int depth) {
    using Kind = Piece::Kind;
    const auto grown = [&](auto& all) -> auto& {
      if (std::ssize(all) <= p.index) all.resize(p.index + 1);
      return all[p.index];
    };
    const auto operand = [&] { grown(instr.operands) = value(); };
    const auto place = [&](BufferId& in) {
      in = buffer();
      expect("[");
      operand();
      expect("]");
    };
    switch (p.kind) {
      case Kind::word:
        return is_word(p.word[0]) ? expect_word(p.word) : expect(p.word);
      case Kind::operand:
        return operand();
      case Kind::held:
        skip();
        return text_.substr(at_).starts_with('%') ? operand() : place(instr.buffer);
      case Kind::place:
        return place(instr.buffer);
      case Kind::from:
        return place(instr.from);
      case Kind::count:
        if (accept_word("count")) operand();
        return;
      case Kind::region: {
        Region& r = grown(instr.regions);
        if (p.index > 0 && !accept_word("else")) return;
        expect("{");
        r.code = code(depth + 1);
        return expect("}");
      }
      case Kind::operands:
        return list([&] { instr.operands.push_back(value()); });
      case Kind::numbers:
        return numbers(instr);
      case Kind::mask:
        expect("[");
        list([&] {
          if (instr.mask.size() >= kMaxLanes) fail("too many lanes");
          instr.mask.push_back(bounded(-1, 2 * kMaxLanes, "a lane"));
        });
        return expect("]");
      case Kind::counter:
        grown(instr.regions).counter = value();
        return define(instr.regions[0].counter, {Scalar::i64, 1});
      default:
        visit_field(instr, p.kind, [&](auto& x) { field(x, p.kind); });
    }
  }

  void field(std::string& row, Piece::Kind) { row = name(); }
  void field(int64_t& x, Piece::Kind) { x = integer(); }
  void field(int& x, Piece::Kind kind) { x = bounded(0, kMaxLanes, name_of(kind)); }
  void field(ScalarOp& op, Piece::Kind) {
    const auto found = scalar_op_from_name(word());
    if (!found) fail("expected add, min or max");
    op = *found;
  }
  template <typename E>
  void field(E& e, Piece::Kind) {
    const auto found = from_name<E>(word());
    if (!found) fail(fmt::format("expected one of {}", fmt::join(kNames<E>, ", ")));
    e = *found;
  }

  void numbers(Instr& instr) {
    const auto one = [&] {
      if (instr.data.size() + instr.integers.size() >= kMaxLanes) fail("too many lanes");
      if (is_float(instr.type.scalar))
        instr.data.push_back(real());
      else
        instr.integers.push_back(integer());
    };
    if (!accept("[")) return one();
    list(one);
    expect("]");
  }

  SourceRef source_;
  std::string_view text_;
  size_t at_ = 0, token_ = 0;
  Kernel kernel_;
};

}  // namespace

Kernel parse_kernel(SourceRef source) {
  return Parser(std::move(source)).kernel();
}
Function parse_function(SourceRef source) {
  return Parser(std::move(source)).function();
}

}  // namespace lumen::loop
