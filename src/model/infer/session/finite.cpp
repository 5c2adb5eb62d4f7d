#include "model/infer/session/finite.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kAtOnce = int64_t{1} << 22;  // numbers decoded at once
constexpr size_t kSmall = size_t{1} << 20;     // bytes of weights that are always checked

// "holds nan in row 2, column 5" for the first non-finite value; the values start at the tensor's row `first`.
std::string place_of_fault(std::span<const float> values, int64_t columns, int64_t first) {
  if (all_finite(values)) return "";
  const auto bad = std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  const int64_t at = bad - values.begin();
  return fmt::format("holds {} in row {}, column {}", *bad, first + at / columns, at % columns);
}

// Checks a weight row by row, or as a whole if rows share fields.
std::string fault_of(run::Engine& engine, const graph::Type& type, std::span<const uint8_t> bytes, int64_t rows,
                     int64_t columns) {
  const FormatRef& f = type.element.format;
  if (!f) return place_of_fault({reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4}, columns, 0);
  const bool apart = f->row_bytes == 0 && f->tile_bytes == 0 && f->tensor_bytes == 0;
  const int64_t step = apart ? std::max<int64_t>(1, kAtOnce / columns) : rows;
  const int64_t row_bytes = columns / f->block * f->block_bytes;
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t count = std::min(step, rows - r);
    // Blobs are padded at their end; slices of them are not.
    std::vector<uint8_t> part(bytes.begin() + r * row_bytes,
                              apart ? bytes.begin() + (r + count) * row_bytes : bytes.end());
    part.resize(std::max<size_t>(part.size(), blob_layout(*f, count, columns).total));
    const std::string fault = place_of_fault(engine.decode(f, part.data(), count, columns), columns, r);
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace

bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000U;
  const float* const x = values.data();
  int bad = 0;
#pragma omp simd reduction(| : bad)
  for (size_t i = 0; i < values.size(); ++i) bad |= (std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent ? 1 : 0;
  return bad == 0;
}

std::string broken_weight(const LoadedModel& loaded) {
  run::Engine& engine = loaded.engine();
  for (const arch::Parameter& p : loaded.model().parameters) {
    const arch::Weight& w = loaded.model().weights.at(p.name);
    const std::string fault =
        fault_of(engine, w.type, {w.bytes.data(), w.bytes.size()}, w.rows(), std::max<int64_t>(1, w.columns()));
    if (!fault.empty()) return fmt::format("'{}' {}", p.gguf.empty() ? p.name : p.gguf, fault);
  }
  for (const auto& [name, tensor] : loaded.weights()) {
    if (loaded.model().weights.contains(name) || tensor->type().element.format) continue;
    std::vector<float> values(tensor->bytes() / sizeof(float));
    tensor->download(values.data(), tensor->bytes());
    const std::string fault = place_of_fault(values, tensor->type().shape.back().number(), 0);
    if (!fault.empty()) return fmt::format("an adapter's '{}' {}", name, fault);
  }
  return "";
}

void require_finite_vectors(const arch::Model& model) {
  for (const arch::Parameter& p : model.parameters) {
    const arch::Weight& w = model.weights.at(p.name);
    if (!w.is_f32() || w.bytes.size() > kSmall) continue;
    const std::string fault = place_of_fault(w.f32(), std::max<int64_t>(1, w.columns()), 0);
    if (fault.empty()) continue;
    throw Error(Exit::numeric, fmt::format("'{}' {}", p.gguf.empty() ? p.name : p.gguf, fault),
                "get the file again, or find the step that damaged its weights");
  }
}

void require_finite(const LoadedModel& loaded, std::span<const float> values, std::string_view what) {
  if (all_finite(values)) return;
  const std::string fault = broken_weight(loaded);
  if (fault.empty()) {
    throw Error(Exit::numeric, fmt::format("the model's {} are not finite, although every weight is", what),
                "a sum overflowed f32 or the format of the KV cache (-ctk, -ctv): see whether f32 weights and "
                "an f32 cache give the same");
  }
  throw Error(Exit::numeric, fmt::format("the model's {} are not finite: {}", what, fault),
              "get the file again, or find the step that damaged its weights; `lumen quantize` names the same place");
}

}  // namespace lumen::model::infer
