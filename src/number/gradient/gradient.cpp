// Straight-through gradients of whole tensors, element by element: the reference for training kernels. Proved by
// tests/number/gradient_test.cpp.
#include "number/gradient/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "number/facts/facts.h"
#include "number/facts/straight.h"

namespace lumen {
namespace {

// Finds the records of an element.
class Reader {
 public:
  Reader(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns)
      : format_(f), blob_(blob), columns_(columns), layout_(blob_layout(f, rows, columns)) {
    if (std::ssize(blob) < layout_.total) {
      throw user_error("{} bytes for a tensor of {} x {} in format {}", blob.size(), rows, columns, f.name);
    }
  }

  int64_t record(Level level, int64_t row, int64_t column) const {
    switch (level) {
      case Level::block:
        return row * (columns_ / format_.block) + column / format_.block;
      case Level::row:
        return row;
      case Level::tile:
        return row / format_.tile_rows * layout_.tile_columns + column / format_.tile_columns;
      case Level::tensor:
        return 0;
    }
    LUMEN_UNREACHABLE("level");
  }

  double field(int slot, int64_t index, int64_t row, int64_t column) const {
    const Field& field = format_.fields[slot];
    const int64_t bytes[kLevels] = {format_.block_bytes, format_.row_bytes, format_.tile_bytes, format_.tensor_bytes};
    const auto level = static_cast<size_t>(field.level);
    const uint8_t* at = blob_.data() + layout_.section[level] + record(field.level, row, column) * bytes[level];
    return field_decode(field.type, field.layout.read(at, index));
  }

 private:
  const Format& format_;
  std::span<const uint8_t> blob_;
  int64_t columns_;
  BlobLayout layout_;
};

// The range of an element before scaling: the extreme values and half a step beyond.
struct Ends {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// Whether an expression reads no field except the element's own code.
bool is_of_code(const Format& f, const RoutineExpr& e) {
  const bool other =
      e.kind == RoutineExpr::Kind::field && (e.slot != f.code_field || e.args[0].kind != RoutineExpr::Kind::variable);
  return !other && std::all_of(e.args.begin(), e.args.end(), [&](const RoutineExpr& a) { return is_of_code(f, a); });
}

Ends ends_of(const Format& f, const FormatFacts& facts) {
  if (facts.affine && (!facts.affine->q_is_table || !is_of_code(f, facts.affine->q))) {
    return {facts.affine->q_min - 0.5, facts.affine->q_max + 0.5};
  }
  std::vector<double> values;
  const Routine& decode = f.decode;
  LUMEN_CHECK(decode.has_result, "decode without result");
  if (f.code_field >= 0) {
    const FieldType& type = f.fields[f.code_field].type;
    constexpr int kEnumerable = 16;
    if (type.bits > kEnumerable) {
      if (!type.is_float) return {};
      return {-type.max_finite(), type.max_finite()};
    }
    for (uint64_t code = 0; code < (uint64_t{1} << type.bits); ++code) {
      const auto value = evaluate_expression(f, facts.scaled->value, {ScalarValue{0, 0}},
                                             [&](int, int64_t) { return field_decode(type, code); });
      if (std::isfinite(value.real)) values.push_back(value.real);
    }
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() < 2) return {};
  const size_t last = values.size() - 1;
  return {values[0] - (values[1] - values[0]) / 2, values[last] + (values[last] - values[last - 1]) / 2};
}

}  // namespace

std::vector<float> straight_through_mask(const Format& f, std::span<const float> x, std::span<const uint8_t> blob,
                                         int64_t rows, int64_t columns) {
  const Reader reader(f, blob, rows, columns);
  LUMEN_CHECK(std::ssize(x) == rows * columns, "{} values", x.size());
  const FormatFacts facts = facts_of(f);
  std::vector<float> mask(x.size(), 1.0F);
  if (!facts.scaled) return mask;  // no common scale, so there is no clipping range
  const Ends ends = ends_of(f, facts);
  const ScaledForm& s = *facts.scaled;
  // Rounding of the stored scale must not clip the values it was fitted to.
  constexpr double kRounding = 1e-3;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const std::vector<ScalarValue> i = {ScalarValue{0, column % f.block}};
      auto field = [&](int slot, int64_t index) { return reader.field(slot, index, row, column); };
      const double scale = s.scale ? evaluate_expression(f, *s.scale, i, field).real : 1;
      const double offset = s.offset ? evaluate_expression(f, *s.offset, i, field).real : 0;
      const size_t at = row * columns + column;
      const double u = scale != 0 ? (x[at] - offset) / scale : 0;
      const bool inside =
          u >= ends.low - kRounding * std::fabs(ends.low) && u <= ends.high + kRounding * std::fabs(ends.high);
      mask[at] = inside ? 1.0F : 0.0F;
    }
  }
  return mask;
}

std::vector<double> field_gradient(const Format& f, int field, std::span<const float> x, std::span<const uint8_t> blob,
                                   std::span<const float> dy, int64_t rows, int64_t columns) {
  LUMEN_CHECK(field >= 0 && field < std::ssize(f.fields), "field {}", field);
  LUMEN_CHECK(x.size() == dy.size() && std::ssize(x) == rows * columns, "{} values", x.size());
  const Reader reader(f, blob, rows, columns);
  const auto fake = fake_quantize_formula(f);
  if (!fake) throw user_error("fields of format {} cannot be learned: its code is no straight line", f.name);
  const Field& wanted = f.fields[field];
  std::vector<Formula> slopes(fake->fields.size());
  for (size_t k = 0; k < slopes.size(); ++k) {
    if (fake->fields[k].field == field) slopes[k] = straight_through_derivative(fake->formula, 0, k + 1);
  }
  const int64_t last = rows > 0 && columns > 0 ? reader.record(wanted.level, rows - 1, columns - 1) + 1 : 0;
  std::vector<double> gradient(last * wanted.count, 0.0);
  std::vector<ScalarValue> inputs(fake->formula.inputs.size()), slope(1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const size_t at = row * columns + column;
      const std::vector<ScalarValue> i = {ScalarValue{0, column % f.block}};
      std::vector<int64_t> entries;
      inputs[0] = {x[at], 0};
      for (size_t k = 0; k < fake->fields.size(); ++k) {
        const ElementField& e = fake->fields[k];
        auto nested = [&](int slot, int64_t index) { return reader.field(slot, index, row, column); };
        entries.push_back(evaluate_expression(f, e.index, i, nested).integer);
        const double value = reader.field(e.field, entries.back(), row, column);
        inputs[1 + k] =
            f.fields[e.field].type.is_float ? ScalarValue{value, 0} : ScalarValue{0, static_cast<int64_t>(value)};
      }
      if (fake->uses_index) inputs.back() = i[0];
      for (size_t k = 0; k < slopes.size(); ++k) {
        if (fake->fields[k].field != field) continue;
        eval_formula(slopes[k], inputs, slope, true);
        const int64_t record = reader.record(wanted.level, row, column);
        gradient[record * wanted.count + entries[k]] += slope[0].real * dy[at];
      }
    }
  }
  return gradient;
}

}  // namespace lumen
