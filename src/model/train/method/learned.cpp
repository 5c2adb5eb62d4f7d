#include "model/train/method/learned.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/round_up.h"
#include "model/recipe/optimizer/held.h"
#include "number/codec/codec.h"

namespace lumen::model::train {

std::vector<LearnedField> learned_fields(const graph::Graph& g,
                                         const std::vector<graph::FormatAssignment>& assignments) {
  std::vector<LearnedField> fields;
  for (const graph::FormatAssignment& a : assignments) {
    if (a.source != FieldSource::learned) continue;
    for (size_t k = 0; k < a.format->fields.size(); ++k) {
      const graph::ValueId input = g.find_input(a.value + "." + a.format->fields[k].name);
      if (input < 0) continue;  // the codes themselves
      LearnedField field;
      field.weight = a.value;
      field.format = a.format;
      field.field = k;
      field.parameter.name = g[input].attributes.name;
      field.parameter.shape = g[input].type.shape;
      field.parameter.role = recipe::kRoleField;
      field.parameter.decays = false;
      field.parameter.rate = 0.1;
      fields.push_back(std::move(field));
    }
  }
  return fields;
}

std::vector<float> fitted_values(const LearnedField& learned, const arch::Weight& weight) {
  const Format& f = *learned.format;
  const Field& field = f.fields[learned.field];
  const int64_t rows = weight.rows(), columns = weight.columns();
  const std::vector<uint8_t> blob = encode(f, weight.f32(), rows, columns);
  const BlobLayout layout = blob_layout(f, rows, columns);
  const int64_t record_bytes[kLevels] = {f.block_bytes, f.row_bytes, f.tile_bytes, f.tensor_bytes};
  const auto level = static_cast<size_t>(field.level);
  std::vector<float> values(learned.parameter.count());
  const int64_t records = std::ssize(values) / field.count;
  for (int64_t r = 0; r < records; ++r) {
    // Blocks of a row follow each other; rows begin at multiples of the row's stride.
    const int64_t per_row = columns / f.block;
    const int64_t offset = field.level == Level::block ? r / per_row * layout.row_stride + r % per_row * f.block_bytes
                                                       : r * record_bytes[level];
    for (int64_t i = 0; i < field.count; ++i) {
      const uint64_t bits = field.layout.read(blob.data() + layout.section[level] + offset, i);
      values[r * field.count + i] = static_cast<float>(field_decode(field.type, bits));
    }
  }
  return values;
}

namespace {

// Rows are padded with zeros to whole blocks.
int64_t encoded_columns(const graph::LearnedScale& scale) {
  const int64_t block = scale.format->block;
  return round_up(scale.columns, block);
}
arch::Weight as_encoded(const graph::LearnedScale& scale, std::span<const float> weight, float instead_of_zero) {
  LUMEN_CHECK(std::ssize(weight) == scale.rows * scale.columns, "{}: {} numbers", scale.name, weight.size());
  const int64_t wide = encoded_columns(scale);
  std::vector<float> padded(scale.rows * wide, 0.0F);
  for (int64_t r = 0; r < scale.rows; ++r)
    for (int64_t c = 0; c < scale.columns; ++c) {
      const float v = weight[r * scale.columns + c];
      padded[r * wide + c] = v == 0 ? instead_of_zero : v;
    }
  return arch::f32_weight({scale.rows, wide}, padded);
}

}  // namespace

std::vector<float> fitted_values(const graph::LearnedScale& scale, std::span<const float> weight) {
  LearnedField field;
  field.format = scale.format;
  field.field = scale.field;
  field.parameter.shape = scale.shape;
  std::vector<float> out = fitted_values(field, as_encoded(scale, weight, 0));
  if (std::find(out.begin(), out.end(), 0.0F) == out.end()) return out;
  const float usual_size = 1 / std::sqrt(float(scale.columns));
  const std::vector<float> usual = fitted_values(field, as_encoded(scale, weight, usual_size));
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] == 0) out[i] = usual[i];
  return out;
}

std::vector<float> values_under(const graph::LearnedScale& scale, std::span<const float> weight,
                                const std::map<int, std::vector<float>>& fields) {
  const arch::Weight codes = encode_with(scale.format, as_encoded(scale, weight, 0), fields);
  const int64_t wide = encoded_columns(scale);
  const std::vector<float> padded = decode(*scale.format, codes.bytes, scale.rows, wide);
  std::vector<float> out(weight.size());
  for (int64_t r = 0; r < scale.rows; ++r)
    std::copy_n(padded.begin() + r * wide, scale.columns, out.begin() + r * scale.columns);
  return out;
}

arch::Weight encode_with(const FormatRef& format, const arch::Weight& weight,
                         const std::map<int, std::vector<float>>& fields) {
  std::vector<SuppliedField> supplied;
  for (const auto& [field, values] : fields) supplied.push_back({field, {values.begin(), values.end()}});
  arch::Weight out;
  out.type = {weight.type.shape, {Scalar::f32, format}};
  out.bytes = encode(*format, weight.f32(), weight.rows(), weight.columns(), supplied);
  return out;
}

}  // namespace lumen::model::train
