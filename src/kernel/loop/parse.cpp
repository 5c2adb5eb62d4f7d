// The text of loop IR back into kernels. Hostile texts end in an Error with the place: nesting, lanes, sizes and value
// numbers are bounded, and the verifier has the last word. Proved by tests/kernel/loop/loop_text_test.cpp.
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
      do {
        param();
      } while (accept(","));
      expect(")");
    }
    kernel_.aliased = accept_word("aliased");
    kernel_.buffer_count = kernel_.params.size();
    expect("{");
    kernel_.body = region(0);
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
      do {
        const ValueId v = value();
        expect(":");
        define(v, type());
        f.params.push_back(v);
      } while (accept(","));
      expect(")");
    }
    expect("->");
    const VType result = type();
    expect("{");
    kernel_.body = region(0);
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
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else {
        break;
      }
    }
    token_ = at_;
  }
  void end() {
    skip();
    if (at_ != text_.size()) fail("text behind the end");
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

  int64_t integer() {
    skip();
    int64_t x = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), x);
    if (error != std::errc()) fail("expected an integer that fits 64 bits");
    at_ = stop - text_.data();
    return x;
  }
  int bounded(int64_t least, int64_t most, std::string_view what) {
    const int64_t x = integer();
    if (x < least || x > most) fail(fmt::format("{} must be {}..{}", what, least, most));
    return x;
  }
  double real() {
    skip();
    double x = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), x);
    if (error != std::errc()) fail("expected a number");
    at_ = stop - text_.data();
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
  int alignment() {
    expect_word("align");
    return bounded(1, 4096, "an alignment");
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
    p.align = alignment();
    p.written = accept_word("written");
    p.constant = accept_word("constant");
    kernel_.params.push_back(std::move(p));
  }

  Region region(int depth) {
    if (depth > kMaxDepth) fail(fmt::format("regions nest deeper than {}", kMaxDepth));
    Region r;
    for (;;) {
      skip();
      if (at_ >= text_.size() || text_[at_] == '}' || peek_word() == "return") return r;
      r.code.push_back(instruction(depth));
    }
  }

  void operands(Instr& instr) {
    do {
      instr.operands.push_back(value());
    } while (accept(","));
  }
  void place(Instr& instr) {
    instr.buffer = buffer();
    expect("[");
    instr.operands.push_back(value());
    expect("]");
  }

  Instr instruction(int depth) {
    Instr instr{};
    skip();
    if (text_[at_] == '@') {
      instr.buffer = buffer();
      expect("=");
      expect_word("alloc");
      return alloc(std::move(instr));
    }
    if (text_[at_] == '%') {
      instr.result = value();
      expect("=");
    }
    const std::string_view what = word();
    if (const auto op = op_from_name(what); op && *op != Op::op_) {
      instr.op = *op;
    } else if (const auto scalar = scalar_op_from_name(what); scalar && *scalar < ScalarOp::input) {
      instr.op = Op::op_;
      instr.scalar_op = *scalar;
    } else {
      fail(fmt::format("no operation '{}'", what));
    }
    if (instr.result >= 0) {
      instr.type = type();
      define(instr.result, instr.type);
    }
    attributes(instr, depth);
    return instr;
  }

  Instr alloc(Instr instr) {
    instr.op = Op::alloc_;
    const auto space = space_from_name(word());
    if (!space) fail("expected private or shared");
    instr.space = *space;
    instr.bytes = integer();
    expect_word("bytes");
    instr.align = alignment();
    kernel_.buffer_count = std::max(kernel_.buffer_count, instr.buffer + 1);
    return instr;
  }

  void shuffle(Instr& instr) {
    operands(instr);
    expect("[");
    do {
      if (instr.mask.size() >= kMaxLanes) fail("too many lanes");
      instr.mask.push_back(bounded(-1, 2 * kMaxLanes, "a lane"));
    } while (accept(","));
    expect("]");
  }

  void product(Instr& instr) {
    instr.row = name();
    instr.operands.push_back(value());
    expect(",");
    skip();
    if (text_.substr(at_).starts_with('%')) {
      instr.operands.push_back(value());
      instr.buffer = -1;
    } else {
      place(instr);
    }
    expect(",");
    second_place(instr);
  }

  void attributes(Instr& instr, int depth) {
    switch (instr.op) {
      case Op::constant_:
        return constant(instr);
      case Op::op_:
      case Op::splat_:
        return operands(instr);
      case Op::extract_:
      case Op::insert_:
        operands(instr);
        expect_word("lane");
        instr.lane = bounded(0, kMaxLanes, "a lane");
        return;
      case Op::shuffle_:
        return shuffle(instr);
      case Op::fold_: {
        const auto op = scalar_op_from_name(word());
        if (!op) fail("expected add, min or max");
        instr.scalar_op = *op;
        return operands(instr);
      }
      case Op::load_:
        place(instr);
        instr.align = alignment();
        if (accept_word("count")) instr.operands.push_back(value());
        return;
      case Op::store_:
        place(instr);
        instr.operands.insert(instr.operands.begin(), value());
        instr.align = alignment();
        if (accept_word("count")) instr.operands.push_back(value());
        return;
      case Op::gather_:
        return place(instr);
      case Op::scatter_:
        place(instr);
        instr.operands.insert(instr.operands.begin(), value());
        return;
      case Op::alloc_:
        fail("an alloc is written @N = alloc");
      case Op::inst_:
        instr.row = name();
        return operands(instr);
      case Op::loop_:
        return loop(instr, depth);
      case Op::branch_:
        instr.operands.push_back(value());
        instr.regions.resize(2);
        block(instr.regions[0], depth);
        if (accept_word("else")) block(instr.regions[1], depth);
        return;
      case Op::guard_: {
        const auto code = guard_from_name(word());
        if (!code) fail("expected index, update or finite");
        instr.code = *code;
        return operands(instr);
      }
      case Op::wave_shuffle_:
        instr.operands.push_back(value());
        expect_word("from");
        instr.operands.push_back(value());
        return;
      case Op::copy_:
        place(instr);
        expect_word("from");
        second_place(instr);
        instr.bytes = integer();
        expect_word("bytes");
        return;
      case Op::product_:
        return product(instr);
      case Op::ready_:
        instr.operands.push_back(value());
        return;
      case Op::commit_:
        instr.flow = flow();
        return;
      case Op::wait_:
        instr.flow = flow();
        instr.groups = bounded(0, kMostGroups, "a number of groups");
        return;
      case Op::barrier_:
      case Op::wave_barrier_:
      case Op::lane_id_:
        return;
    }
  }

  Flow flow() {
    const auto f = flow_from_name(word());
    if (!f) fail("expected copies, products or kernels");
    return *f;
  }
  void second_place(Instr& instr) {
    instr.from = buffer();
    expect("[");
    instr.operands.push_back(value());
    expect("]");
  }

  void loop(Instr& instr, int depth) {
    const auto kind = kind_from_name(word());
    if (!kind) fail("expected serial, unroll, parallel, grid or lane");
    instr.kind = *kind;
    const ValueId counter = value();
    define(counter, {Scalar::i64, 1});
    expect_word("from");
    instr.operands.push_back(value());
    expect_word("to");
    instr.operands.push_back(value());
    expect_word("step");
    instr.step = integer();
    instr.regions.resize(1);
    block(instr.regions[0], depth);
    instr.regions[0].counter = counter;
  }

  void block(Region& r, int depth) {
    expect("{");
    r = region(depth + 1);
    expect("}");
  }

  void constant(Instr& instr) {
    const auto one = [&] {
      if (is_float(instr.type.scalar)) {
        instr.data.push_back(real());
      } else {
        instr.integers.push_back(integer());
      }
    };
    if (!accept("[")) return one();
    do {
      if (instr.data.size() + instr.integers.size() >= kMaxLanes) fail("too many lanes");
      one();
    } while (accept(","));
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
