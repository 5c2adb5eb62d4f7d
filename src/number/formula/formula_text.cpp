// Formulas as one line of text and back:  (%0: f32, %1: f32) { %2 = mul f32 %0, %1; %3 = const f32 1.5 } -> %2
// %n is node n; an input without a node is written `_`; several outputs are in parentheses: -> (%2, %3). Invariant:
// parse(print(f)) == f. The text may be hostile: every mistake is an Error with its place. Proved by
// tests/number/formula/formula_test.cpp.
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "number/formula/formula.h"

namespace lumen {
namespace {

constexpr size_t kMaxNodes = 1 << 20;

std::string print_constant(const ScalarNode& node) {
  if (!is_float(node.type)) {
    if (node.type == Scalar::u64) return fmt::format("{}", node.integer);
    return fmt::format("{}", node.integer);
  }
  return fmt::format("{}", node.real);  // shortest text that parses to the same value
}

class FormulaParser {
 public:
  FormulaParser(SourceRef source, size_t position) : source_(std::move(source)), at_(position) {}

  Formula parse() {
    parse_inputs();
    expect("{");
    while (!accept("}")) {
      parse_node();
      if (accept(";")) continue;
      expect("}");
      break;
    }
    expect("->");
    parse_outputs();
    place_nodes();
    return std::move(formula_);
  }
  size_t position() const { return at_; }

 private:
  struct Pending {
    size_t number = 0;
    ScalarNode node{ScalarOp::constant, Scalar::f32};
    Place place;
  };

  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const {
    throw error_at(here(), message, hint);
  }
  Place here() const {
    const uint32_t begin = std::min(at_, source_->text.size());
    return {source_, begin, static_cast<uint32_t>(std::min<size_t>(begin + 1, source_->text.size()))};
  }
  char peek() const { return at_ < source_->text.size() ? source_->text[at_] : '\0'; }
  void skip_blank() {
    while (at_ < source_->text.size() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }
  bool accept(std::string_view word) {
    skip_blank();
    if (source_->text.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) fail(fmt::format("expected '{}' in a formula", word));
  }
  std::string_view word() {
    skip_blank();
    const size_t begin = at_;
    auto part = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
             c == '-' || c == '+';
    };
    while (at_ < source_->text.size() && part(peek())) ++at_;
    if (begin == at_) fail("expected a word in a formula");
    return std::string_view(source_->text).substr(begin, at_ - begin);
  }
  size_t node_number() {
    expect("%");
    const std::string_view digits = word();
    size_t number = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (status != std::errc() || end != digits.data() + digits.size() || number >= kMaxNodes) {
      fail(fmt::format("'%{}' is no node", digits));
    }
    return number;
  }
  Scalar type() {
    const std::string_view name = word();
    const auto scalar = scalar_from_name(name);
    if (!scalar)
      fail(fmt::format("'{}' is no scalar type", name), "one of bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64");
    return *scalar;
  }

  void parse_inputs() {
    expect("(");
    if (accept(")")) return;
    do {
      Pending pending;
      pending.place = here();
      const bool unused = accept("_");
      if (!unused) pending.number = node_number();
      expect(":");
      const Scalar scalar = type();
      pending.node = ScalarNode{ScalarOp::input, scalar};
      pending.node.index = formula_.inputs.size();
      formula_.inputs.push_back(scalar);
      if (formula_.inputs.size() > kMaxNodes) fail("too many inputs");
      if (!unused) pending_.push_back(pending);
    } while (accept(","));
    expect(")");
  }

  void parse_node() {
    Pending pending;
    skip_blank();
    pending.place = here();
    pending.number = node_number();
    expect("=");
    const std::string_view name = word();
    const auto op = scalar_op_from_name(name);
    if (!op || *op == ScalarOp::input) fail(fmt::format("'{}' is no scalar operation", name));
    pending.node = ScalarNode{*op, type()};
    if (*op == ScalarOp::constant) {
      parse_constant(pending.node);
    } else {
      for (int k = 0; k < scalar_op_info(*op).arity; ++k) {
        if (k > 0) expect(",");
        pending.node.args[k] = node_number();
      }
    }
    pending_.push_back(pending);
    if (pending_.size() > kMaxNodes) fail("too many nodes");
  }

  void parse_constant(ScalarNode& node) {
    const std::string text(word());
    const char* begin = text.data();
    const char* end = begin + text.size();
    bool good = false;
    if (is_float(node.type)) {
      const auto [stop, status] = std::from_chars(begin, end, node.real);
      good = status == std::errc() && stop == end;
      if (std::isnan(node.real)) node.real = std::numeric_limits<double>::quiet_NaN();
      if (good && !std::isnan(node.real)) good = round_to_scalar(node.type, node.real) == node.real;
    } else if (node.type == Scalar::u64) {
      uint64_t value = 0;
      const auto [stop, status] = std::from_chars(begin, end, value);
      good = status == std::errc() && stop == end;
      node.integer = value;
    } else {
      const auto [stop, status] = std::from_chars(begin, end, node.integer);
      good = status == std::errc() && stop == end && wrap_to_scalar(node.type, node.integer) == node.integer;
    }
    if (!good) fail(fmt::format("'{}' is no constant of type {}", text, scalar_name(node.type)));
  }

  void parse_outputs() {
    if (accept("(")) {
      if (accept(")")) return;
      do {
        formula_.outputs.push_back(node_number());
        if (formula_.outputs.size() > kMaxNodes) fail("too many outputs");
      } while (accept(","));
      expect(")");
    } else {
      formula_.outputs.push_back(node_number());
    }
  }

  void place_nodes() {
    std::vector<const Pending*> order(pending_.size(), nullptr);
    for (const Pending& pending : pending_) {
      if (pending.number >= order.size() || order[pending.number]) {
        throw error_at(pending.place, fmt::format("node %{} is defined twice or leaves a gap", pending.number),
                       "nodes are numbered 0, 1, 2, ... without gaps");
      }
      order[pending.number] = &pending;
    }
    for (const Pending* pending : order) {
      const ScalarNode& node = pending->node;
      for (int argument : node.args) {
        if (argument >= std::ssize(formula_.nodes)) {
          throw error_at(pending->place, fmt::format("%{} is used before it is defined", argument));
        }
      }
      if (const auto mistake = scalar_op_mistake(node, formula_)) throw error_at(pending->place, *mistake);
      formula_.nodes.push_back(node);
    }
    for (int output : formula_.outputs) {
      if (output >= std::ssize(formula_.nodes)) fail(fmt::format("output %{} is not defined", output));
    }
  }

  SourceRef source_;
  size_t at_;
  Formula formula_;
  std::vector<Pending> pending_;
};

}  // namespace

std::string print_formula(const Formula& f) {
  std::vector<int> node_of_input(f.inputs.size(), -1);
  std::vector<bool> in_head(f.nodes.size(), false);
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const ScalarNode& node = f.nodes[i];
    if (node.op != ScalarOp::input) continue;
    int& slot = node_of_input[node.index];
    LUMEN_CHECK(slot < 0, "input {} has two nodes", node.index);
    slot = i;
    in_head[i] = true;
  }
  std::string text = "(";
  for (size_t k = 0; k < f.inputs.size(); ++k) {
    if (k > 0) text += ", ";
    text += node_of_input[k] < 0 ? "_" : fmt::format("%{}", node_of_input[k]);
    text += fmt::format(": {}", scalar_name(f.inputs[k]));
  }
  text += ") {";
  bool first = true;
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const ScalarNode& node = f.nodes[i];
    if (in_head[i]) continue;
    text += fmt::format("{} %{} = {} {}", first ? "" : ";", i, scalar_op_info(node.op).name, scalar_name(node.type));
    first = false;
    if (node.op == ScalarOp::constant) text += " " + print_constant(node);
    for (int k = 0; k < scalar_op_info(node.op).arity; ++k) text += fmt::format("{} %{}", k ? "," : "", node.args[k]);
  }
  text += " } -> ";
  if (f.outputs.size() == 1) return text + fmt::format("%{}", f.outputs[0]);
  text += "(";
  for (size_t k = 0; k < f.outputs.size(); ++k) text += fmt::format("{}%{}", k ? ", " : "", f.outputs[k]);
  return text + ")";
}

Formula parse_formula(SourceRef source, size_t* position) {
  FormulaParser parser(std::move(source), *position);
  Formula f = parser.parse();
  *position = parser.position();
  return f;
}

}  // namespace lumen
