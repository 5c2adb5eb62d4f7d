#include "model/arch/adapter/adapter_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/split_weights.h"
#include "number/codec/codec.h"

namespace lumen::model::arch {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<float> floats_of(const FormatLibrary& formats, const file::StoredTensor& t, const std::string& file) {
  const FormatRef format = t.element.format ? t.element.format : format_of_scalar(formats, t.element.scalar);
  if (!format) throw user_error("{}: tensor '{}' does not hold floats", file, t.name);
  std::vector<float> values;
  if (is_plain(*format, Scalar::f32)) {
    values.resize(t.rows() * t.columns());
    const std::vector<uint8_t> blob = t.blob();
    LUMEN_CHECK(blob.size() >= values.size() * sizeof(float));
    std::memcpy(values.data(), blob.data(), values.size() * sizeof(float));
  } else {
    std::vector<uint8_t> blob = t.blob();
    blob.resize(blob_layout(*format, t.rows(), t.columns()).total);
    values = decode(*format, blob, t.rows(), t.columns());
  }
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
    throw user_error("{}: tensor '{}' holds values that are not finite", file, t.name);
  return values;
}

Weight matrix_in(const FormatLibrary& formats, const file::StoredTensor& t, const std::string& file, int64_t count) {
  const size_t axes = count > 0 ? 3 : 2;
  if (t.shape.size() != axes || t.rows() < 1 || t.columns() < 1 || (count > 0 && t.shape[0] != count))
    throw user_error("{}: tensor '{}' has shape {}, but an adapter needs {} here", file, t.name, shape_text(t.shape),
                     count > 0 ? fmt::format("{} stacked matrices", count) : "matrices");
  graph::Shape shape;
  for (const int64_t d : t.shape) shape.emplace_back(d);
  return f32_weight(shape, floats_of(formats, t, file));
}

void require_pairs(const Pairs& pairs, const std::string& file) {
  for (const auto& [target, pair] : pairs) {
    if (!pair.a || !pair.b)
      throw user_error("{}: '{}' has its {} matrix, but not its {}", file, target, pair.a ? "A" : "B",
                       pair.a ? "B" : "A");
  }
}

void put_in_pair(Pairs& pairs, const std::string& target, bool is_a, const file::StoredTensor& t, bool looked_up,
                 const std::string& file) {
  Pair& pair = pairs[target];
  const file::StoredTensor*& place = is_a ? pair.a : pair.b;
  if (place || ((pair.a || pair.b) && pair.looked_up != looked_up))
    throw user_error("{}: '{}' has conflicting tensors for one matrix, one is '{}'", file, target, t.name);
  place = &t;
  pair.looked_up = looked_up;
}

void require_shape(const Weight& w, int64_t rows, int64_t columns, const file::StoredTensor& t,
                   const std::string& file) {
  if (w.rows() != rows || w.columns() != columns) refuse_shape(t, {rows, columns}, file);
}

void refuse_shape(const file::StoredTensor& t, const std::vector<int64_t>& wanted, const std::string& file) {
  throw Error(Exit::user,
              fmt::format("{}: tensor '{}' has shape {}, but the model needs {}", file, t.name, shape_text(t.shape),
                          shape_text(wanted)),
              "the adapter was made for another model");
}

void require_matrix(const Parameter& p, const std::string& target, const std::string& file) {
  if (p.shape.size() == 2) return;
  throw user_error("{}: '{}' is not one matrix of the model (parameter {}); such targets cannot be adapted", file,
                   target, p.name);
}

void refuse_target(const Model& model, const std::string& target, const std::string& file) {
  for (const Parameter& p : all_own_parameters(model)) {
    const bool named = target == p.gguf || target + ".weight" == p.hf;
    if (named && !p.absent_if.empty() && !model.find(p.name))
      throw Error(Exit::user,
                  fmt::format("{}: '{}' is adapted, but this model has no such weight: it uses its embedding there",
                              file, target),
                  "leave that target out when training the adapter");
  }
  throw Error(Exit::user, fmt::format("{}: the model '{}' has no weight '{}'", file, model.name, target),
              "the adapter was made for another model");
}

}  // namespace lumen::model::arch
