#include "run/engine/verify/launch_trial/operands.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <set>

#include "graph/match/uses.h"
#include "run/engine/verify/launch_trial/held_operand.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::Op;
using graph::Type;
using graph::ValueId;

constexpr int64_t kPrime = 65521;  // numbers; prime, so that rows and tiles of usual sizes start at different ones

// The distribution of an element.
enum class Kind : uint8_t {
  normal,
  positive,  // 1/4 .. 7/4
  digits,    // multiples of 1/8 below 1: exact in 16 bits, and so are their products' sums in f32
  eighth,    // multiples of 1/128, most of them 127/128: unchanged by rounding to 8 bits
  below,     // integers, 0 .. limit - 1
  places,    // multiples of `step` below the limit, all distinct up to their number
};

struct Wanted {
  Kind kind = Kind::normal;
  int64_t limit = std::numeric_limits<int64_t>::max(), step = 1;
};

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void put(Scalar type, double x, uint8_t* to) {
  uint64_t bits = 0;
  if (type == Scalar::f64) {
    bits = std::bit_cast<uint64_t>(x);
  } else if (type == Scalar::f32) {
    bits = std::bit_cast<uint32_t>(float(x));
  } else if (is_float(type)) {
    bits = type == Scalar::bf16 ? f32_to_bf16(float(x)) : f32_to_f16(float(x));
  } else {
    bits = uint64_t(int64_t(x));
  }
  std::memcpy(to, &bits, size_t(scalar_bytes(type)));
}

class Numbers : public Operand {
 public:
  Numbers(Scalar type, std::vector<double> numbers) : type_(type), numbers_(std::move(numbers)) {
    const int width = scalar_bytes(type);
    bytes_.resize(numbers_.size() * width);
    for (size_t i = 0; i < numbers_.size(); ++i) put(type, numbers_[i], &bytes_[i * width]);
  }
  double number(int64_t element) const override { return numbers_[element % std::ssize(numbers_)]; }
  int64_t piece() const override { return std::ssize(bytes_); }
  void write(int64_t, int64_t bytes, uint8_t* to) const override {
    for (int64_t at = 0; at < bytes; at += piece()) std::memcpy(to + at, bytes_.data(), std::min(piece(), bytes - at));
  }

 private:
  Scalar type_;
  std::vector<double> numbers_;
  std::vector<uint8_t> bytes_;
};

double number_of(const Wanted& wanted, Scalar type, uint64_t seed, int64_t i) {
  const uint64_t bits = mixed(seed * 0x100000001b3 + uint64_t(i));
  const double u = double(bits >> 40) * 0x1p-24, other = double(bits & 0xffffff) * 0x1p-24;
  switch (wanted.kind) {
    case Kind::normal:
      return round_to_scalar(type, std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * other));
    case Kind::positive:
      return (1 + std::floor(u * 7)) / 4;
    case Kind::digits:
      return (std::floor(u * 15) - 7) / 8;
    case Kind::eighth:
      return (other < 0.75 ? (u < 0.5 ? -127 : 127) : std::floor(u * 255) - 127) / 128;
    case Kind::below:
      return std::min(std::floor(u * double(wanted.limit)), double(wanted.limit - 1));
    case Kind::places:
      return double(i % std::max<int64_t>(1, wanted.limit / wanted.step) * wanted.step);
  }
  return 0;
}

std::unique_ptr<Operand> numbers_operand(const Type& type, Wanted wanted, uint64_t seed) {
  const Scalar s = type.element.scalar;
  int64_t count = std::min(graph::elements(type.shape).number(), kPrime);
  if (wanted.kind == Kind::places) count = std::max<int64_t>(1, wanted.limit / wanted.step);
  if (!is_float(s) && wanted.kind != Kind::places) {
    wanted.kind = Kind::below;
    const int64_t largest = s == Scalar::boolean ? 2 : s == Scalar::i8 ? 128 : 256;
    if (scalar_bits(s) <= 8) wanted.limit = std::min(wanted.limit, largest);
  }
  std::vector<double> numbers(std::max<int64_t>(count, 1));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(wanted, s, seed, int64_t(i));
  return std::make_unique<Numbers>(s, std::move(numbers));
}

// Required distribution of each value that the group reads, derived from its uses.
class Wishes {
 public:
  Wishes(const Graph& g, const graph::Group& group, bool positive) : g_(g), group_(group) {
    for (const ValueId v : group.inputs) {
      const Type& type = g[v].type;
      const bool squares = positive || g[v].attributes.role == graph::Role::state;
      wanted_[v].kind = squares ? Kind::positive : Kind::normal;
      if (!is_float(type.element.scalar)) wanted_[v].limit = default_limit();
    }
    const bool attends =
        group.shape == graph::KernelShape::attend || group.shape == graph::KernelShape::attend_gradient;
    for (const ValueId v : group.nodes) {
      const graph::Node& n = g[v];
      if (graph::is_product(n.op))
        for (size_t side = 0; side < 2; ++side) factor(n.operands[side], attends || !has_format());
      if (n.op == Op::gather_) limit(n.operands[1], rows(g[n.operands[0]].type));
      if (n.op == Op::scatter_add_) limit(n.operands[1], rows(n.type));
      if (n.op == Op::contract_gather_) limit(n.operands[2], rows(g[n.operands[1]].type));
      if (n.op == Op::contract_scatter_) limit(n.operands[2], rows(n.type));
      if (n.op == Op::update_) starts(n);
      if (n.op == Op::cast_)  // supplied scales
        for (size_t k = 1; k < n.operands.size(); ++k)
          if (const ValueId scale = below(n.operands[k]); scale >= 0) wanted_[scale].kind = Kind::positive;
    }
  }
  const Wanted& operator[](ValueId v) const { return wanted_.at(v); }

 private:
  static int64_t rows(const Type& t) { return t.shape.at(0).number(); }

  // Integers that are not indices are compared with positions or with each other: use the largest extent.
  int64_t default_limit() const {
    int64_t most = 2;
    for (const ValueId v : group_.nodes)
      for (const graph::Dim& d : g_[v].type.shape) most = std::max(most, d.number());
    return std::min<int64_t>(most, 1 << 20);
  }
  bool has_format() const {
    return std::any_of(group_.inputs.begin(), group_.inputs.end(),
                       [&](ValueId v) { return g_[v].type.element.format != nullptr; });
  }
  // The value in memory under views; -1: there is none.
  ValueId below(ValueId v) const {
    const ValueId source = graph::read_below(g_, v);
    return source >= 0 && wanted_.contains(source) ? source : -1;
  }
  void factor(ValueId v, bool digits) {
    const ValueId source = below(v);
    if (source < 0 || !is_float(g_[source].type.element.scalar)) return;
    wanted_[source].kind = digits ? Kind::digits : Kind::eighth;
  }
  void limit(ValueId v, int64_t count) {
    const ValueId source = below(v);
    if (source >= 0) wanted_[source].limit = std::min(wanted_[source].limit, count);
  }
  void starts(const graph::Node& n) {
    const Type &state = n.type, &value = g_[n.operands[1]].type;
    const size_t lead = value.shape.size() - state.shape.size();
    int64_t parts = 1;
    for (size_t d = 0; d < lead; ++d) parts *= value.shape[d].number();
    bool apart = parts == 1;
    for (size_t d = 0; d + 2 < n.operands.size(); ++d) {
      const int64_t extent = state.shape[d].number(), part = value.shape[lead + d].number();
      const ValueId source = below(n.operands[d + 2]);
      if (source < 0) continue;
      Wanted& wanted = wanted_[source];
      if (!apart && part > 0 && extent / part >= parts) {
        wanted = {Kind::places, std::min(wanted.limit, extent / part * part), part};
        apart = true;
      } else if (wanted.kind != Kind::places) {
        wanted.limit = std::min(wanted.limit, extent - part + 1);
      }
    }
    if (!apart) throw CannotTry{"no places are known for all parts of an update"};
  }

  const Graph& g_;
  const graph::Group& group_;
  std::map<ValueId, Wanted> wanted_;
};

}  // namespace

Operands::Operands(const Graph& g, const graph::Group& group, bool positive) {
  const Wishes wishes(g, group, positive);
  for (const ValueId v : group.inputs) {
    const graph::Node& n = g[v];
    const uint64_t seed = operands_.size() + 1;
    if (n.op == Op::constant_)
      operands_[v] = std::make_unique<Numbers>(n.type.element.scalar, n.attributes.data);
    else if (n.type.element.format)
      operands_[v] = held_operand(n.type, wishes[v].kind == Kind::positive, seed);
    else
      operands_[v] = numbers_operand(n.type, wishes[v], seed);
  }
}

void upload(Device& device, const Operand& operand, int64_t bytes, void* to) {
  constexpr int64_t kAtOnce = 4 << 20;
  const int64_t piece = operand.piece(), step = std::max<int64_t>(1, kAtOnce / piece) * piece;
  std::vector<uint8_t> chunk(std::min(step, bytes));
  for (int64_t at = 0; at < bytes; at += step) {
    const int64_t count = std::min(step, bytes - at);
    operand.write(at, count, chunk.data());
    device.copy_in(reinterpret_cast<std::byte*>(to) + at, chunk.data(), count);
  }
}

}  // namespace lumen::run
