// The expected result of a panel: rows are independent, so some rows are computed, and the others are copies of them.
// They are computed by the kernel for a machine without vectors and special instructions, executed by the evaluator of
// kernels; tests/kernel/synth/synth_feedback_test.cpp compares that with the format's routines.
#include "run/engine/feedback/feedback_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/check.h"
#include "kernel/loop/eval/eval.h"
#include "number/codec/codec.h"
#include "run/engine/verify/launch_trial/held_operand.h"

namespace lumen::run {
namespace {

using Bytes = std::vector<uint8_t>;
enum Value : uint8_t { place, x, w, u, blob, d, importance, whole, order, count };  // values of synthesize_feedback

template <typename T>
Bytes bytes_of(const std::vector<T>& numbers) {
  Bytes out(numbers.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

std::vector<float> normals(int64_t many, float size, uint64_t seed) {
  std::mt19937_64 chance(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> out(many);
  for (float& one : out) one = normal(chance);
  return out;
}

// Expands `some` rows to all rows, by repetition.
Bytes with_all_rows(const Bytes& lines, int64_t some, int64_t rows) {
  const int64_t many = std::ssize(lines) / (some * 4);
  Bytes out(many * rows * 4);
  for (int64_t line = 0; line < many; ++line)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(&out[(line * rows + r) * 4], &lines[(line * some + r % some) * 4], 4);
  return out;
}

// The panel of the example: the second, if there is one.
std::vector<int64_t> place_of(const synth::FeedbackShape& shape) {
  const int64_t first = shape.columns > shape.panel ? shape.panel : 0;
  return {first, std::min(shape.panel, shape.columns - first)};
}

// Inputs for some rows.
std::vector<Bytes> given_to(const Format& f, const synth::FeedbackShape& shape) {
  constexpr float kPassedOn = 0.05F, kLostBefore = 0.1F;
  const int64_t rows = shape.rows, columns = shape.columns;
  const std::vector<float> matrix = normals(rows * columns, 1, 1), moved = normals(shape.panel * rows, kLostBefore, 2);
  std::vector<int32_t> all(columns);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(3));
  const std::vector<int64_t> at = place_of(shape);
  const bool given = shape.order == synth::FeedbackOrder::given;
  std::vector<float> lines(columns * rows), panel(shape.panel * rows), changed(shape.panel * rows);
  std::vector<int32_t> columns_of_panel(shape.panel);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) lines[c * rows + r] = matrix[r * columns + c];
  for (int64_t j = 0; j < at[1]; ++j) {
    columns_of_panel[j] = all[at[0] + j];
    const int64_t column = given ? all[at[0] + j] : at[0] + j;
    for (int64_t k = j * rows; k < (j + 1) * rows; ++k) {
      panel[k] = lines[column * rows + k % rows];
      changed[k] = panel[k] + moved[k];
    }
  }
  std::vector<float> weights = normals(columns, 1, 4);
  for (float& one : weights) one = std::abs(one) + 0.01F;
  std::vector<Bytes> out(Value::count);
  out[Value::place] = bytes_of(at);
  out[Value::x] = bytes_of(changed);
  out[Value::w] = bytes_of(panel);
  out[Value::u] = bytes_of(normals(shape.panel * shape.panel, kPassedOn, 5));
  out[Value::blob] = encode(f, matrix, rows, columns);
  out[Value::d] = Bytes(shape.panel * rows * 4, 0);
  out[Value::importance] = bytes_of(weights);
  out[Value::whole] = bytes_of(lines);
  out[Value::order] = bytes_of(columns_of_panel);
  return out;
}

KernelExample example_of(const Format& f, const synth::FeedbackShape& shape) {
  constexpr int64_t kSomeRows = 7;
  KernelExample out;
  synth::FeedbackShape few = shape;
  few.rows = std::min({shape.rows, kSomeRows, f.tile_bytes > 0 ? f.tile_rows : kSomeRows});
  machine::Machine plain;
  plain.vector_bits = 32;
  const synth::Synthesis steps = synth::synthesize_feedback(f, few, plain);
  std::vector<Bytes> values = given_to(f, few);
  const auto repeat = [&](int value) {
    const Bytes& some = values[value];
    if (value == Value::blob) return repeated_rows(f, some, few.rows, shape.rows, shape.columns);
    const bool by_row = value == Value::x || value == Value::w || value == Value::d || value == Value::whole;
    return by_row ? with_all_rows(some, few.rows, shape.rows) : some;
  };
  for (int v = 0; v < Value::count; ++v) out.given.push_back(repeat(v));
  for (const synth::Step& step : steps.steps) {
    std::vector<std::span<uint8_t>> buffers;
    for (const synth::Argument& a : step.arguments) buffers.emplace_back(values.at(a.index));
    const loop::Status status = loop::eval(step.kernel, buffers, [](std::string_view) { return nullptr; });
    LUMEN_CHECK(status.code == 0, "guard {} of a panel of {}", status.code, f.name);
  }
  for (const int v : {int{Value::blob}, int{Value::d}}) out.expected[v] = repeat(v);
  return out;
}

}  // namespace

LoneSteps feedback_steps(const FormatRef& f, const synth::FeedbackShape& shape) {
  LoneSteps out;
  out.meaning =
      fmt::format("feedback {}x{} panel {} {} {}{}{}", shape.rows, shape.columns, shape.panel, f->name, f->hash.hex(),
                  shape.weighs ? " weighted" : "", shape.order == synth::FeedbackOrder::given ? " in order" : "");
  out.synthesize = [=](const machine::Machine& m) { return synth::synthesize_feedback(*f, shape, m); };
  out.example = [=] { return example_of(*f, shape); };
  return out;
}

}  // namespace lumen::run
