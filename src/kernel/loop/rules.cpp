// See rules.h. Proved by tests/kernel/loop/loop_build_test.cpp.
#include "kernel/loop/rules.h"

#include <charconv>
#include <ranges>

#include "base/check.h"
#include "base/round_up.h"

namespace lumen::loop {
namespace {

constexpr bool yes = true, no = false;
constexpr OpInfo kOps[] = {
#define X(name, result, operands, effect, syntax, text) {result, operands, effect},
#include "kernel/loop/op.def"
#undef X
};
constexpr std::string_view kSyntax[] = {
#define X(name, result, operands, effect, syntax, text) syntax,
#include "kernel/loop/op.def"
#undef X
};

std::vector<Piece> pieces_of(std::string_view syntax) {
  std::vector<Piece> out;
  for (const auto part : std::views::split(syntax, ' ')) {
    const std::string_view text(part.begin(), part.end());
    if (text.empty()) continue;
    const auto kind = from_name<Piece::Kind>(text[0] == '$' ? text.substr(1) : text.substr(0, 1));
    if (!kind)
      out.push_back({.word = text});
    else
      out.push_back({*kind, text[0] == '$' ? 0 : text[1] - '0', {}});
  }
  return out;
}

bool in_domain(std::string_view domain, Scalar s, ScalarOp op) {
  if (domain == "any") return true;
  if (domain == "flt") return is_float(s);
  if (domain == "bool") return s == Scalar::boolean;
  if (s == Scalar::boolean)
    return op == ScalarOp::and_ || op == ScalarOp::or_ || op == ScalarOp::xor_ || op == ScalarOp::not_;
  return domain == "num" || !is_float(s);
}

}  // namespace

const OpInfo& op_info(Op op) {
  return kOps[ordinal(op)];
}

bool is_pure(Op op) {
  return !op_info(op).effect && op != Op::load_ && op != Op::gather_;
}

const std::vector<Piece>& syntax_of(Op op) {
  static const std::vector<std::vector<Piece>> all = [] {
    std::vector<std::vector<Piece>> out;
    for (const std::string_view syntax : kSyntax) out.push_back(pieces_of(syntax));
    return out;
  }();
  return all[ordinal(op)];
}

std::string print(VType type) {
  std::string out(scalar_name(type.scalar));
  if (type.lanes != 1) out += fmt::format("x{}", type.lanes);
  return out;
}

std::optional<VType> vtype_from_name(std::string_view name) {
  const size_t x = name.rfind('x');
  VType type;
  if (x != std::string_view::npos) {
    const std::string_view digits = name.substr(x + 1);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), type.lanes);
    if (code != std::errc() || end != digits.data() + digits.size() || digits[0] == '0') return std::nullopt;
    if (type.lanes < 2 || type.lanes > kMaxLanes) return std::nullopt;
    name = name.substr(0, x);
  }
  const auto scalar = scalar_from_name(name);
  if (!scalar) return std::nullopt;
  type.scalar = *scalar;
  return type;
}

Typing type_of(ScalarOp op, std::span<const VType> operands, std::optional<Scalar> to) {
  if (op == ScalarOp::input || op == ScalarOp::constant) return {{}, "not an operation of kernels"};
  const ScalarOpInfo& info = scalar_op_info(op);
  const auto fail = [&](std::string what) { return Typing{{}, fmt::format("{}: {}", info.name, what)}; };
  if (std::ssize(operands) != info.arity) return fail(fmt::format("{} operands, not {}", info.arity, operands.size()));
  for (const VType& t : operands)
    if (t.lanes != operands[0].lanes) return fail("operands differ in lanes");
  const int lanes = operands[0].lanes;
  const Scalar first = operands[0].scalar;
  if (op == ScalarOp::select_) {
    if (first != Scalar::boolean) return fail("the condition must be a truth value");
    if (operands[1] != operands[2]) return fail(fmt::format("{} and {}", print(operands[1]), print(operands[2])));
    return {operands[1], {}};
  }
  if (!in_domain(info.domain, first, op)) return fail(fmt::format("not defined for {}", scalar_name(first)));
  if (op == ScalarOp::ldexp_) {
    if (operands[1].scalar != Scalar::i32) return fail("the exponent must be i32");
    return {operands[0], {}};
  }
  if (info.result == "cast") {
    if (!to) return fail("needs a written type");
    if (op == ScalarOp::exponent_ && *to != Scalar::i32) return fail("yields i32");
    if (op == ScalarOp::bitcast_ && (scalar_bits(first) != scalar_bits(*to)))
      return fail(fmt::format("{} and {} differ in width", scalar_name(first), scalar_name(*to)));
    return {{*to, lanes}, {}};
  }
  for (const VType& t : operands)
    if (t != operands[0]) return fail(fmt::format("operands differ: {} and {}", print(operands[0]), print(t)));
  return {{info.result == "bool" ? Scalar::boolean : first, lanes}, {}};
}

int64_t trip_count(int64_t from, int64_t to, int64_t step) {
  LUMEN_CHECK(step > 0, "step {}", step);
  if (to <= from) return 0;
  const uint64_t length = to - from;
  return (length - 1) / step + 1;
}

namespace {

// Visits every instruction of a region and of nested regions.
template <typename Visit>
void each(const Region& r, const Visit& visit) {
  for (const Instr& instr : r.code) {
    visit(instr);
    for (const Region& inner : instr.regions) each(inner, visit);
  }
}

}  // namespace

int64_t block_lanes(const Kernel& k) {
  std::vector<int64_t> constants(k.value_count, 0);
  int64_t lanes = 1;
  each(k.body, [&](const Instr& instr) {
    if (instr.op == Op::constant_ && instr.integers.size() == 1) constants[instr.result] = instr.integers[0];
    if (instr.op == Op::loop_ && instr.kind == LoopKind::lane) lanes = constants[instr.operands[1]];
  });
  return lanes;
}

std::vector<SharedPlace> shared_places(const Kernel& k) {
  constexpr int64_t kLeast = 16;
  std::vector<SharedPlace> places;
  int64_t at = 0;
  each(k.body, [&](const Instr& instr) {
    if (instr.op != Op::alloc_ || instr.space != Space::shared) return;
    const int64_t align = std::max<int64_t>(instr.align, kLeast);
    at = round_up(at, align);
    places.push_back({instr.buffer, at, instr.bytes});
    at += instr.bytes;
  });
  return places;
}

int64_t shared_bytes(const Kernel& k) {
  const std::vector<SharedPlace> places = shared_places(k);
  return places.empty() ? 0 : places.back().offset + places.back().bytes;
}

const Instr* top_loop(const Kernel& k) {
  if (k.body.code.empty()) return nullptr;
  const Instr& last = k.body.code.back();
  if (last.op != Op::loop_ || (last.kind != LoopKind::parallel && last.kind != LoopKind::grid)) return nullptr;
  return &last;
}

int64_t count_tasks(const Kernel& k) {
  const Instr* loop = top_loop(k);
  if (!loop) return 1;
  std::optional<int64_t> bounds[2];
  for (const Instr& instr : k.body.code)
    for (int i = 0; i < 2; ++i)
      if (instr.op == Op::constant_ && instr.result == loop->operands[i]) bounds[i] = instr.integers[0];
  LUMEN_CHECK(bounds[0] && bounds[1], "the bounds of the top loop are not constants");
  return trip_count(*bounds[0], *bounds[1], loop->step);
}

}  // namespace lumen::loop
