// Appends instructions to the innermost open region. Equal pure instructions of enclosing regions are shared; constants
// fold by the evaluator of number/formula/formula.h, so folding never changes a bit. Proved by
// tests/kernel/loop/loop_build_test.cpp.
#include "kernel/loop/build.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numbers>
#include <numeric>

#include "base/check.h"
#include "kernel/loop/constants.h"
#include "kernel/loop/expand.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/verify.h"

namespace lumen::loop {
namespace {

template <typename T>
void put(std::string& key, const T& x) {
  key.append(reinterpret_cast<const char*>(&x), sizeof(T));
}
template <typename T>
void put(std::string& key, const std::vector<T>& x) {
  put(key, x.size());
  key.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(T));
}

// Equal keys, equal values: everything a pure instruction depends on.
std::string content_key(const Instr& instr, VType type) {
  std::string key;
  put(key, instr.op);
  put(key, type.scalar);
  put(key, type.lanes);
  put(key, instr.scalar_op);
  put(key, instr.lane);
  put(key, instr.operands);
  put(key, instr.data);
  put(key, instr.integers);
  put(key, instr.mask);
  key += instr.row;
  return key;
}

// Bit for bit: -0 is not 0.
template <typename T>
bool all_equal(const std::vector<T>& x) {
  return std::ranges::all_of(x, [&](T v) { return std::bit_cast<uint64_t>(v) == std::bit_cast<uint64_t>(x[0]); });
}

// Value numbers of the operands that exist.
std::vector<ValueId> ids(const std::vector<Expr>& x) {
  std::vector<ValueId> out;
  for (const Expr v : x)
    if (v.exists()) out.push_back(v.id());
  return out;
}

}  // namespace

Builder::Builder(std::string name) {
  kernel.name = std::move(name);
  scopes_.push_back({&kernel.body, {}});
}

BufferId Builder::param(std::string name, int64_t bytes, bool written, int align) {
  LUMEN_CHECK(kernel.buffer_count == std::ssize(kernel.params), "params come before allocs");
  kernel.params.push_back({std::move(name), bytes, written, false, align});
  return kernel.buffer_count++;
}

BufferId Builder::alloc(int64_t bytes, int align, Space space) {
  add({.op = Op::alloc_, .buffer = kernel.buffer_count, .align = align, .space = space, .bytes = bytes});
  return kernel.buffer_count++;
}

void Builder::add(Instr instr) {
  scopes_.back().region->code.push_back(std::move(instr));
}

ValueId Builder::number(VType type) {
  kernel.value_types.push_back(type);
  constants_.emplace_back();
  return kernel.value_count++;
}

Expr Builder::append(Instr instr, VType type) {
  std::string key;
  if (is_pure(instr.op)) {
    key = content_key(instr, type);
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->known.find(key); found != scope->known.end()) return {*this, found->second};
  }
  const ValueId v = kernel.value_count++;
  kernel.value_types.push_back(type);
  constants_.emplace_back();
  if (instr.op == Op::constant_) constants_.back() = {instr.data, instr.integers};
  instr.type = type;
  instr.result = v;
  scopes_.back().region->code.push_back(std::move(instr));
  if (!key.empty()) scopes_.back().known.emplace(std::move(key), v);
  return {*this, v};
}

Expr Builder::constant(VType type, std::vector<double> data, std::vector<int64_t> integers) {
  LUMEN_CHECK(type.lanes >= 1 && type.lanes <= kMaxLanes, "{} lanes", type.lanes);
  for (double& x : data) x = round_to_scalar(type.scalar, x);
  for (int64_t& x : integers) x = wrap_to_scalar(type.scalar, x);
  if (!data.empty() && all_equal(data)) data.resize(1);
  if (!integers.empty() && all_equal(integers)) integers.resize(1);
  return append({.op = Op::constant_, .data = std::move(data), .integers = std::move(integers)}, type);
}

Expr Builder::real(double x, VType t) {
  LUMEN_CHECK(is_float(t.scalar), "{} is not a float", print(t));
  return constant(t, {x}, {});
}

Expr Builder::integer(int64_t x, VType t) {
  LUMEN_CHECK(!is_float(t.scalar), "{} is not an integer", print(t));
  return constant(t, {}, {x});
}

Expr Builder::lanes_real(std::vector<double> x, Scalar s) {
  LUMEN_CHECK(is_float(s) && !x.empty(), "{} numbers of {}", x.size(), scalar_name(s));
  const int lanes = x.size();
  return constant({s, lanes}, std::move(x), {});
}

Expr Builder::lanes_integer(std::vector<int64_t> x, Scalar s) {
  LUMEN_CHECK(!is_float(s) && !x.empty(), "{} numbers of {}", x.size(), scalar_name(s));
  const int lanes = x.size();
  return constant({s, lanes}, {}, std::move(x));
}

Expr Builder::constants(const std::vector<ScalarValue>& x, Scalar s) {
  std::vector<double> data;
  std::vector<int64_t> integers;
  for (const ScalarValue& v : x) is_float(s) ? data.push_back(v.real) : integers.push_back(v.integer);
  const int lanes = x.size();
  return constant({s, lanes}, std::move(data), std::move(integers));
}

Expr Builder::lane_steps(int lanes, int64_t step) {
  std::vector<int64_t> x;
  for (int l = 0; l < lanes; ++l) x.push_back(l * step);
  return lanes_integer(std::move(x), Scalar::i64);
}

std::optional<int64_t> Builder::known_integer(Expr v) const {
  if (!v.exists() || constants_[v.id()].integers.size() != 1) return std::nullopt;
  return constants_[v.id()].integers[0];
}

// A constant or an existing value equal to the operation; no value if it does not simplify.
Expr Builder::simplify(ScalarOp op, const std::vector<Expr>& operands, VType t) {
  const VType from = type(operands[0]);
  const auto known = [&](size_t i) { return i < operands.size() ? known_integer(operands[i]) : std::nullopt; };
  if (op == ScalarOp::cast_ && from == t) return operands[0];
  if (op == ScalarOp::select_)
    if (const auto c = known(0)) return operands[*c != 0 ? 1 : 2];
  if (!is_float(t.scalar) && t == from && operands.size() == 2) {  // exact in wrapping integers
    const auto a = known(0), b = known(1);
    if (op == ScalarOp::add_ && a == 0) return operands[1];
    if ((op == ScalarOp::add_ || op == ScalarOp::sub_) && b == 0) return operands[0];
    if (op == ScalarOp::mul_ && a == 1) return operands[1];
    if ((op == ScalarOp::mul_ || op == ScalarOp::div_) && b == 1) return operands[0];
    if (op == ScalarOp::mul_ && (a == 0 || b == 0)) return integer(0, t);
    if (op == ScalarOp::rem_ && b == 1) return integer(0, t);
  }
  if (is_transcendental(op)) return {};  // left to expand
  size_t width = 1;
  for (const Expr v : operands) {
    if (constants_[v.id()].empty()) return {};
    width = std::max({width, constants_[v.id()].data.size(), constants_[v.id()].integers.size()});
  }
  const ScalarNode node{.op = op, .type = t.scalar};
  std::vector<ScalarValue> lanes;
  for (size_t lane = 0; lane < width; ++lane) {
    ScalarValue args[3];
    for (size_t i = 0; i < operands.size(); ++i) {
      const Constant& c = constants_[operands[i].id()];
      if (!c.data.empty()) args[i].real = c.data[c.data.size() == 1 ? 0 : lane];
      if (!c.integers.empty()) args[i].integer = c.integers[c.integers.size() == 1 ? 0 : lane];
    }
    lanes.push_back(eval_scalar_op(node, from.scalar, args[0], args[1], args[2]));
  }
  return width == 1 ? constant(lanes[0], t) : constants(lanes, t.scalar);
}

Expr Builder::shortcut(const std::string& row, Expr x, Expr y) {
  const VType t = type(x), one{t.scalar, 1};
  const auto lane = [&](int l) {
    std::vector<Expr> operands{t.lanes == 1 ? x : extract(x, l)};
    if (y.exists()) operands.push_back(t.lanes == 1 ? y : extract(y, l));
    return inst(row, one, operands);
  };
  if (t.lanes == 1) return lane(0);
  Expr out = real(0, t);
  for (int l = 0; l < t.lanes; ++l) out = insert(out, lane(l), l);
  return out;
}

Expr Builder::power2(Expr x) {
  if (!fast_math_.power2.empty()) return shortcut(fast_math_.power2, x);
  return op(ScalarOp::exp_, x * std::numbers::ln2);
}

// 1 - 2 / (1 + e^2x) by the approximations, to seventeen bits; small numbers, where that cancels, by the first terms of
// the series.
Expr Builder::fast_tanh(Expr x) {
  constexpr double kSmall = 1.0 / 64;
  const Expr size = op(ScalarOp::abs_, x);
  const Expr power = power2(size * (-2 * std::numbers::log2e));
  const Expr far = (1 - power) * shortcut(fast_math_.reciprocal, power + 1);
  const Expr near = size - size * size * size * (1.0 / 3);
  const Expr magnitude = select(size < kSmall, near, far);
  return select(x < 0, -magnitude, magnitude);
}

Expr Builder::op(ScalarOp op, Expr a, Expr b, Expr c) {
  if (op == ScalarOp::tanh_ && !fast_math_.power2.empty() && !fast_math_.reciprocal.empty() &&
      type(a).scalar == Scalar::f32)
    return fast_tanh(a);
  if (op == ScalarOp::exp_ && !fast_math_.power2.empty() && type(a).scalar == Scalar::f32)
    return power2(a * std::numbers::log2e);
  if (op == ScalarOp::div_ && reciprocals_.contains(b.id())) return a * reciprocals_.at(b.id());
  if (op == ScalarOp::div_ && !fast_math_.reciprocal.empty() && type(a).scalar == Scalar::f32)
    return a * shortcut(fast_math_.reciprocal, b);
  if (op == ScalarOp::max_ && !fast_math_.greatest.empty() && type(a).scalar == Scalar::f32)
    return shortcut(fast_math_.greatest, a, b);
  std::vector<Expr> operands{a};
  if (b.exists()) operands.push_back(b);
  if (c.exists()) operands.push_back(c);
  return compute(op, operands);
}

Expr Builder::compute(ScalarOp op, const std::vector<Expr>& operands, std::optional<Scalar> to) {
  std::vector<VType> types;
  for (const Expr v : operands) types.push_back(type(v));
  const Typing typing = type_of(op, types, to);
  LUMEN_CHECK(typing.error.empty(), "{}", typing.error);
  if (const Expr v = simplify(op, operands, typing.type); v.exists()) return v;
  return append({.op = Op::op_, .operands = ids(operands), .scalar_op = op}, typing.type);
}

Expr Builder::splat(Expr a, int lanes) {
  LUMEN_CHECK(type(a).lanes == 1, "splat of {}", print(type(a)));
  if (lanes == 1) return a;
  const VType to{type(a).scalar, lanes};
  if (!constants_[a.id()].empty()) return constant(to, constants_[a.id()].data, constants_[a.id()].integers);
  return append({.op = Op::splat_, .operands = ids({a})}, to);
}

Expr Builder::extract(Expr a, int lane) {
  const VType from = type(a);
  LUMEN_CHECK(lane >= 0 && lane < from.lanes, "lane {} of {}", lane, print(from));
  if (from.lanes == 1) return a;
  return append({.op = Op::extract_, .operands = ids({a}), .lane = lane}, {from.scalar, 1});
}

Expr Builder::insert(Expr a, Expr x, int lane) {
  const VType t = type(a);
  LUMEN_CHECK(lane >= 0 && lane < t.lanes, "lane {} of {}", lane, print(t));
  LUMEN_CHECK(type(x) == (VType{t.scalar, 1}), "insert of {} into {}", print(type(x)), print(t));
  if (t.lanes == 1) return x;
  return append({.op = Op::insert_, .operands = ids({a, x}), .lane = lane}, t);
}

Expr Builder::shuffle(std::vector<Expr> a, std::vector<int> mask) {
  LUMEN_CHECK(a.size() == 1 || a.size() == 2, "shuffle of {} vectors", a.size());
  const VType t = type(a[0]);
  LUMEN_CHECK(a.size() == 1 || type(a[1]) == t, "shuffle of {} and {}", print(t), print(type(a.back())));
  const int limit = t.lanes * a.size();
  for (const int lane : mask) LUMEN_CHECK(lane >= -1 && lane < limit, "lane {} of {}", lane, limit);
  const VType to{t.scalar, static_cast<int>(mask.size())};
  LUMEN_CHECK(to.lanes >= 1 && to.lanes <= kMaxLanes, "{} lanes", to.lanes);
  bool identity = to == t;
  for (int i = 0; i < to.lanes; ++i) identity = identity && mask[i] == i;
  if (identity) return a[0];
  return append({.op = Op::shuffle_, .operands = ids(a), .mask = std::move(mask)}, to);
}

Expr Builder::concat(Expr a, Expr b) {
  std::vector<int> mask(size_t{2} * type(a).lanes);
  std::iota(mask.begin(), mask.end(), 0);
  return shuffle({a, b}, std::move(mask));
}

Expr Builder::fold(ScalarOp op, Expr a) {
  if (type(a).lanes == 1) return a;
  return append({.op = Op::fold_, .operands = ids({a}), .scalar_op = op}, {type(a).scalar, 1});
}

void Builder::check_access(BufferId b, Expr offset, Expr count, int lanes) const {
  LUMEN_CHECK(b >= 0 && b < kernel.buffer_count, "buffer {}", b);
  LUMEN_CHECK(type(offset).lanes == lanes, "offset is {}", print(type(offset)));
  LUMEN_CHECK(!count.exists() || type(count) == (VType{Scalar::i64, 1}), "count is not i64");
}

Expr Builder::load(BufferId b, VType t, Expr offset, int align, Expr count) {
  check_access(b, offset, count, 1);
  return append({.op = Op::load_, .operands = ids({offset, count}), .buffer = b, .align = align}, t);
}

void Builder::store(BufferId b, Expr value, Expr offset, int align, Expr count) {
  check_access(b, offset, count, 1);
  add({.op = Op::store_, .operands = ids({value, offset, count}), .buffer = b, .align = align});
}

Expr Builder::gather(BufferId b, Scalar s, Expr offsets) {
  check_access(b, offsets, {}, type(offsets).lanes);
  return append({.op = Op::gather_, .operands = ids({offsets}), .buffer = b}, {s, type(offsets).lanes});
}

void Builder::scatter(BufferId b, Expr value, Expr offsets) {
  check_access(b, offsets, {}, type(value).lanes);
  add({.op = Op::scatter_, .operands = ids({value, offsets}), .buffer = b});
}

void Builder::prefetch(BufferId b, Expr offset, Cache into) {
  check_access(b, offset, {}, 1);
  add({.op = Op::prefetch_, .operands = ids({offset}), .buffer = b, .cache = into});
}

Expr Builder::inst(const std::string& row, VType result, std::vector<Expr> operands) {
  return append({.op = Op::inst_, .operands = ids(operands), .row = row}, result);
}

void Builder::guard(Expr ok, Expr detail, GuardCode code) {
  if (const auto c = known_integer(ok); c && *c != 0) return;
  add({.op = Op::guard_, .operands = ids({ok, detail}), .code = code});
}

Expr Builder::wave_shuffle(Expr value, Expr lane) {
  return append({.op = Op::wave_shuffle_, .operands = ids({value, lane})}, type(value));
}

Expr Builder::fold_wave(ScalarOp scalar_op, Expr value, int wave) {
  const Expr lane = lane_id();
  for (int64_t apart = wave / 2; apart > 0; apart /= 2) value = op(scalar_op, value, wave_shuffle(value, lane ^ apart));
  return value;
}

Expr Builder::load_matrix(const std::string& row, VType t, BufferId b, Expr offset) {
  check_access(b, offset, {}, 1);
  return append({.op = Op::load_matrix_, .operands = ids({offset}), .buffer = b, .row = row}, t);
}

void Builder::copy(BufferId to, Expr to_offset, BufferId from, Expr from_offset, int64_t bytes, Expr count) {
  check_access(to, to_offset, {}, 1);
  check_access(from, from_offset, {}, 1);
  std::vector<Expr> operands{to_offset, from_offset};
  if (count.exists()) operands.push_back(count);
  add({.op = Op::copy_, .operands = ids(operands), .buffer = to, .from = from, .bytes = bytes});
}

void Builder::copy_together(BufferId to, Expr to_offset, BufferId from, Expr from_offset, int64_t bytes) {
  check_access(to, to_offset, {}, 1);
  check_access(from, from_offset, {}, 1);
  add({.op = Op::copy_together_,
       .operands = ids({to_offset, from_offset}),
       .buffer = to,
       .from = from,
       .bytes = bytes});
}

Expr Builder::product(const std::string& row, Expr acc, BufferId a, Expr a_offset, BufferId b, Expr b_offset) {
  check_access(a, a_offset, {}, 1);
  check_access(b, b_offset, {}, 1);
  return append({.op = Op::product_, .operands = ids({acc, a_offset, b_offset}), .buffer = a, .from = b, .row = row},
                type(acc));
}

Expr Builder::product(const std::string& row, Expr acc, Expr a, BufferId b, Expr b_offset) {
  check_access(b, b_offset, {}, 1);
  return append({.op = Op::product_, .operands = ids({acc, a, b_offset}), .from = b, .row = row}, type(acc));
}

Expr Builder::ready(Expr sums) {
  return append({.op = Op::ready_, .operands = ids({sums})}, type(sums));
}

void Builder::loop(LoopKind kind, Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body) {
  constexpr VType kI64{Scalar::i64, 1};
  LUMEN_CHECK(type(from) == kI64 && type(to) == kI64 && step > 0, "loop bounds are i64, steps positive");
  Instr instr{.op = Op::loop_, .operands = ids({from, to}), .kind = kind, .step = step};
  const ValueId counter = number(kI64);
  fill(instr.regions.emplace_back(), [&] { body({*this, counter}); });
  instr.regions[0].counter = counter;
  add(std::move(instr));
}

void Builder::fill(Region& region, const std::function<void()>& body) {
  scopes_.push_back({&region, {}});
  body();
  scopes_.pop_back();
}

void Builder::branch(Expr condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  if (const auto c = known_integer(condition)) {
    if (*c != 0 || otherwise) (*c != 0 ? then : otherwise)();
    return;
  }
  Instr instr{.op = Op::branch_, .operands = ids({condition}), .regions = std::vector<Region>(2)};
  fill(instr.regions[0], then);
  if (otherwise) fill(instr.regions[1], otherwise);
  add(std::move(instr));
}

std::vector<Expr> Builder::apply(const Formula& f, const std::vector<Expr>& inputs) {
  LUMEN_CHECK(inputs.size() == f.inputs.size(), "{} inputs, not {}", f.inputs.size(), inputs.size());
  const int lanes = inputs.empty() ? 1 : type(inputs[0]).lanes;
  std::vector<Expr> values;
  values.reserve(f.nodes.size());
  for (const ScalarNode& node : f.nodes) {
    const auto arg = [&](int i) { return node.args[i] < 0 ? Expr{} : values[node.args[i]]; };
    if (node.op == ScalarOp::input) {
      const Expr v = inputs[node.index];
      LUMEN_CHECK(type(v) == (VType{node.type, lanes}), "input {} is {}", node.index, print(type(v)));
      values.push_back(v);
    } else if (node.op == ScalarOp::constant) {
      values.push_back(constant({node.real, node.integer}, {node.type, lanes}));
    } else if (scalar_op_info(node.op).result == "cast") {
      values.push_back(convert(node.op, node.type, arg(0)));
    } else {
      values.push_back(op(node.op, arg(0), arg(1), arg(2)));
    }
  }
  std::vector<Expr> outputs;
  for (const int output : f.outputs) outputs.push_back(values[output]);
  return outputs;
}

Kernel Builder::finish() {
  LUMEN_CHECK(scopes_.size() == 1, "finish inside a region");
  place_constants(kernel);
  const std::string wrong = verify(kernel);
  LUMEN_CHECK(wrong.empty(), "kernel {}: {}", kernel.name, wrong);
  kernel.tasks = count_tasks(kernel);
  return std::move(kernel);
}

// Operators of expressions (expr.h).
Builder& Expr::builder() const {
  LUMEN_CHECK(exists(), "a formula of no value");
  return *builder_;
}

Expr Expr::apply(ScalarOp op) const {
  return builder().op(op, *this);
}

Expr Expr::apply(ScalarOp op, Expr y) const {
  return builder().op(op, *this, y);
}

Expr Expr::number(int64_t x) const {
  const VType t = builder().type(*this);
  return is_float(t.scalar) ? builder_->real(x, t) : builder_->integer(x, t);
}

Expr Expr::number(double x) const {
  return builder().real(x, builder_->type(*this));
}

Expr fma(Expr x, Expr y, Expr z) {
  return x.builder().op(ScalarOp::fma_, x, y, z);
}

Expr cast(Expr x, Scalar to) {
  return x.builder().convert(ScalarOp::cast_, to, x);
}

Expr bitcast(Expr x, Scalar to) {
  return x.builder().convert(ScalarOp::bitcast_, to, x);
}

Expr select(Expr condition, Expr x, Expr y) {
  return condition.builder().op(ScalarOp::select_, condition, x, y);
}

}  // namespace lumen::loop
