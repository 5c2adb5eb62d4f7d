#include "model/compress/split/apply.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/function.h"
#include "model/arch/split_weights.h"

namespace lumen::model::compress {
namespace {

// Bytes of a number in a format without blocks.
int64_t bytes_of_number(const arch::Weight& w, const std::string& name) {
  if (!w.type.element.format) return scalar_bytes(w.type.element.scalar);
  for (const Scalar plain : {Scalar::f32, Scalar::f16, Scalar::bf16})
    if (arch::is_plain(*w.type.element.format, plain)) return scalar_bytes(plain);
  throw Error(Exit::user,
              fmt::format("'{}' is held as {}: columns are moved in floats", name, w.type.element.format->name),
              "start from an f32, f16 or bf16 file");
}

// Permutes columns of a weight, or elements of a vector.
arch::Weight take_columns(const arch::Weight& w, std::span<const int64_t> source, const std::string& name) {
  const int64_t size = bytes_of_number(w, name), columns = w.columns(), count = std::ssize(source);
  arch::Weight out;
  out.type = w.type;
  out.type.shape.back() = graph::Dim(count);
  arch::Room room(w.rows() * count * size);
  uint8_t* const to = room.data();
  const int64_t rows = w.rows();
  parallel_for(0, rows, {.is_worth = rows * count > 65536}, [&](int64_t r) {
    for (int64_t c = 0; c < count; ++c)
      std::memcpy(to + (r * count + c) * size, w.bytes.data() + (r * columns + source[c]) * size, size);
  });
  out.bytes = std::move(room).bytes();
  return out;
}

// Permutes the rows of each matrix alike.
arch::Weight rows_in_order(const arch::Weight& w, std::span<const int64_t> order, const std::string& name) {
  (void)bytes_of_number(w, name);
  std::vector<int64_t> source;
  const int64_t each = std::ssize(order), matrices = w.rows() / each;
  for (int64_t m = 0; m < matrices; ++m)
    for (const int64_t r : order) source.push_back(m * each + r);
  return take_rows(w, w.type.shape, source);
}

}  // namespace

arch::Model with_parts_of(const arch::Model& model, std::span<const ColumnGroup> groups,
                          std::span<const WeightParts> parts) {
  for (const char* key : {arch::kSplitColumns, arch::kSplitExperts, arch::kOnlineRotations})
    if (model.metadata.has(key))
      throw Error(Exit::user, fmt::format("'{}' has {}: its weights cannot be cut", model.name, key),
                  "start from the model as it was before");
  arch::Model out = model;
  const auto wanted = [&](const std::string& name) { return std::ranges::find(parts, name, &WeightParts::weight); };
  std::vector<graph::ColumnSplit> splits;
  std::map<std::string, std::vector<float>> orders;  // by parameter
  for (const ColumnGroup& group : groups) {
    const auto is_cut = [&](const std::string& name) { return wanted(name) != parts.end(); };
    const auto first = std::ranges::find_if(group.weights, is_cut);
    if (first == group.weights.end()) continue;
    if (group.before) {
      for (const std::string& name : group.before->rows)
        out.weights.at(name) = rows_in_order(out.weights.at(name), group.order, name);
      for (const std::string& name : group.before->elements)
        out.weights.at(name) = take_columns(out.weights.at(name), group.order, name);
      for (const std::string& name : group.weights)
        out.weights.at(name) = take_columns(out.weights.at(name), group.order, name);
    }
    std::string order;
    if (!group.before && !std::ranges::is_sorted(group.order)) {
      order = arch::order_parameter(*first);
      orders[order].assign(group.order.begin(), group.order.end());
    }
    for (const std::string& name : group.weights)
      if (is_cut(name)) splits.push_back({name, wanted(name)->columns, order});
  }
  LUMEN_CHECK(splits.size() == parts.size(), "weights to be cut that are in no group");
  // After all row permutations.
  for (const graph::ColumnSplit& s : splits) {
    const arch::Weight whole = out.weights.at(s.weight);
    out.weights.erase(s.weight);
    std::vector<int64_t> source(whole.columns());
    std::iota(source.begin(), source.end(), 0);
    if (const auto order = orders.find(s.order); order != orders.end())
      source.assign(order->second.begin(), order->second.end());
    int64_t begin = 0;
    for (size_t i = 0; i < s.columns.size(); begin += s.columns[i++])
      out.weights[graph::column_part(s.weight, i)] =
          take_columns(whole, std::span(source).subspan(begin, s.columns[i]), s.weight);
  }
  for (const auto& [name, order] : orders) out.weights[name] = arch::f32_weight({graph::Dim(std::ssize(order))}, order);
  set_column_splits(out, splits);
  out.parameters = own_parameters(out);
  for (const arch::Parameter& p : out.parameters)
    LUMEN_CHECK(out.weights.contains(p.name), "'{}' has no weight", p.name);
  return out;
}

}  // namespace lumen::model::compress
