#include "model/train/method/learned.h"

#include "base/check.h"
#include "model/train/optimizer/held.h"
#include "number/codec/codec.h"

namespace lumen::model {

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
      field.parameter.role = kRoleField;
      field.parameter.decays = false;
      field.parameter.rate = 0.1;
      fields.push_back(std::move(field));
    }
  }
  return fields;
}

std::vector<float> fitted_values(const LearnedField& learned, const Weight& weight) {
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

Weight encode_with(const FormatRef& format, const Weight& weight, const std::map<int, std::vector<float>>& fields) {
  std::vector<SuppliedField> supplied;
  for (const auto& [field, values] : fields) supplied.push_back({field, {values.begin(), values.end()}});
  Weight out;
  out.type = {weight.type.shape, {Scalar::f32, format}};
  out.bytes = encode(*format, weight.f32(), weight.rows(), weight.columns(), supplied);
  return out;
}

}  // namespace lumen::model
