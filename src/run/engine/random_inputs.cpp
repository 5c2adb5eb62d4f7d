#include "run/engine/random_inputs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

namespace lumen::run {
namespace {

using graph::Graph;
using graph::Op;
using graph::Role;
using graph::Type;
using graph::ValueId;

constexpr size_t kRandom = 1 << 20;  // numbers; larger tensors repeat them
constexpr float kSmall = 1e-3F;

// For each index input, the number of rows of its table; the smallest, if there are several.
std::map<std::string, int64_t> picked_rows(const Graph& inlined, const graph::Bindings& symbols) {
  std::map<std::string, int64_t> out;
  const auto pick = [&](ValueId indices, const Type& table) {
    ValueId v = indices;
    while (inlined[v].op != Op::input_ && !inlined[v].operands.empty()) v = inlined[v].operands[0];
    if (inlined[v].op != Op::input_ || table.shape.empty()) return;
    const int64_t rows = graph::bind(table, symbols).shape[0].number();
    const auto [at, fresh] = out.try_emplace(inlined[v].attributes.name, rows);
    if (!fresh) at->second = std::min(at->second, rows);
  };
  for (const graph::Node& n : inlined.nodes) {
    if (n.op == Op::gather_) pick(n.operands[1], inlined[n.operands[0]].type);
    if (n.op == Op::scatter_add_) pick(n.operands[1], n.type);
  }
  return out;
}

void put(Scalar type, float x, uint8_t* out) {
  uint64_t bits = 0;
  if (type == Scalar::f64) {
    bits = std::bit_cast<uint64_t>(static_cast<double>(x));
  } else if (type == Scalar::f32) {
    bits = std::bit_cast<uint32_t>(x);
  } else if (is_float(type)) {
    bits = type == Scalar::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  } else {
    bits = static_cast<int64_t>(x);
  }
  for (int i = 0; i < scalar_bytes(type); ++i) out[i] = bits >> (8 * i);
}

// Repeats `some` up to `count` numbers.
template <typename T>
std::vector<T> repeated(const std::vector<T>& some, size_t count) {
  std::vector<T> out(count);
  for (size_t at = 0; at < count; at += some.size())
    std::copy_n(some.begin(), std::min(some.size(), count - at), out.begin() + static_cast<std::ptrdiff_t>(at));
  return out;
}

}  // namespace

void bind_random_inputs(Engine& engine, const Graph& g, const graph::Bindings& symbols, Program& program) {
  Graph inlined = g;
  graph::inline_calls(inlined);
  const std::map<std::string, int64_t> rows = picked_rows(inlined, symbols);
  int64_t all_bytes = 0, widest = 0;  // tensors in a format start as random f32
  for (const std::string& name : program.input_names()) {
    const Type type = program.input_type(name);
    all_bytes = saturating_sum(all_bytes, graph::byte_size(type));
    if (type.element.format) widest = std::max(widest, saturating_product(graph::elements(type.shape).number(), 4));
  }
  engine.require_memory(fmt::format("'{}'", g.name), {{"inputs", all_bytes}});
  require_host_memory(fmt::format("'{}'", g.name), {{"numbers of its largest input", widest}});
  std::mt19937 chance(1);
  std::normal_distribution<float> normal;
  std::vector<float> random(kRandom);
  for (float& x : random) x = normal(chance);
  for (const std::string& name : program.input_names()) {
    const Type type = program.input_type(name);
    const ValueId v = inlined.find_input(name);
    const Role role = v < 0 ? Role::data : inlined[v].attributes.role;
    const int64_t count = graph::elements(type.shape).number();
    const int64_t columns = type.shape.empty() ? 1 : type.shape.back().number();
    const bool matrix = type.shape.size() > 1;
    const auto tensor = std::make_shared<DeviceTensor>(engine.device(), type);
    program.bind(name, tensor);
    if (role == Role::state || count == 0) continue;  // memory is zeroed
    const Scalar s = type.element.scalar;
    const auto picks = rows.find(name);
    if (!type.element.format && !is_float(s) && picks == rows.end()) continue;
    std::vector<float> some = random;
    for (float& x : some) {
      if (!type.element.format && !is_float(s)) {
        x = chance() % std::max<int64_t>(1, picks->second);
      } else if (type.shape.empty()) {
        x = kSmall;
      } else if (role == Role::parameter) {
        x = matrix ? x / std::sqrt(static_cast<float>(columns)) : 1;
      }
    }
    if (type.element.format) {
      const std::vector<float> all = repeated(some, count);
      const std::vector<uint8_t> blob = engine.encode(type.element.format, all.data(), count / columns, columns);
      tensor->upload(blob.data(), blob.size());
      continue;
    }
    std::vector<uint8_t> bytes(some.size() * scalar_bytes(s));
    if (s == Scalar::f32)
      std::memcpy(bytes.data(), some.data(), bytes.size());
    else
      for (size_t i = 0; i < some.size(); ++i) put(s, some[i], &bytes[i * scalar_bytes(s)]);
    const auto piece = std::ssize(bytes);
    for (int64_t at = 0; at < tensor->bytes(); at += piece)  // the data repeat: a tensor may be larger than host memory
      engine.device().copy_in(static_cast<uint8_t*>(tensor->data()) + at, bytes.data(),
                              std::min(piece, tensor->bytes() - at));
  }
}

}  // namespace lumen::run
