#include "run/engine/verify/lone_steps/conversion.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "graph/ir/build.h"
#include "number/codec/codec.h"
#include "run/engine/verify/launch_trial/held_operand.h"

namespace lumen::run {
namespace {

constexpr int64_t kMostEncoded = 1 << 17;  // numbers of an example; the codec is slow
constexpr int64_t kMostCopied = 1 << 26;   // with all copies
constexpr int64_t kSomeRows = 7;           // distinct rows; the others are copies

// A graph of one cast. Its values are those of the conversion's kernels.
std::shared_ptr<const graph::Plan> plan_of_cast(const graph::Element& from, const graph::Element& to, int64_t rows,
                                                int64_t columns) {
  auto plan = std::make_shared<graph::Plan>();
  graph::Builder b(plan->graph);
  const graph::ValueId x = b.input("x", graph::Role::data, {{graph::Dim(rows), graph::Dim(columns)}, from});
  const graph::ValueId y = b.cast(x, to);
  plan->graph.results = {y};
  plan->graph.result_names = {"y"};
  graph::Group& group = plan->groups.emplace_back();
  group.shape = graph::KernelShape::move;
  group.nodes = {y};
  group.inputs = {x};
  group.results = {y};
  group.root = y;
  return plan;
}

bool has_rows_apart(const Format& f) {
  return f.tile_bytes + f.tensor_bytes == 0;
}

std::vector<uint8_t> bytes_of(std::span<const float> x) {
  const auto bytes = std::as_bytes(x);
  std::vector<uint8_t> out(bytes.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Random numbers distributed like weights; some importances are zero.
std::vector<float> random_numbers(int64_t count, bool importance) {
  std::mt19937_64 chance(importance ? 2 : 1);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> out(count);
  for (float& x : out) {
    x = normal(chance);
    if (importance) x = chance() % 16 == 0 ? 0 : std::abs(x) + 0.01F;
  }
  return out;
}

// Row r is row r % some of x.
std::vector<uint8_t> repeated(const std::vector<float>& x, int64_t some, int64_t rows, int64_t columns) {
  std::vector<float> all(rows * columns);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(x.begin() + r % some * columns, columns, all.begin() + r * columns);
  return bytes_of(all);
}

int64_t some_rows(int64_t rows, int64_t columns) {
  return std::min({rows, kSomeRows, std::max<int64_t>(2, kMostEncoded / columns)});
}

// Some rows and the codec's result for them, repeated; the whole matrix if fields span rows.
KernelExample encode_example(const Format& f, int64_t rows, int64_t columns, synth::Importance importance) {
  const int64_t some = has_rows_apart(f) ? some_rows(rows, columns) : rows;
  KernelExample out;
  if (some * columns > kMostEncoded) {
    out.why_not = fmt::format("too much is encoded in {} at once", f.name);
    return out;
  }
  const bool by_column = importance == synth::Importance::columns;
  const std::vector<float> part = random_numbers(some * columns, false);
  const std::vector<float> weights = random_numbers(by_column ? columns : some * columns, true);
  const std::vector<uint8_t> blob = importance == synth::Importance::none
                                        ? encode(f, part, some, columns)
                                        : encode_weighted(f, part, some, columns, weights);
  out.expected[1] = repeated_rows(f, blob, some, rows, columns);
  out.given = {repeated(part, some, rows, columns), std::vector<uint8_t>(out.expected[1].size(), 0xff)};
  if (importance != synth::Importance::none)
    out.given.push_back(by_column ? bytes_of(weights) : repeated(weights, some, rows, columns));
  return out;
}

KernelExample decode_example(const Format& f, int64_t rows, int64_t columns) {
  int64_t some = some_rows(rows, columns);
  if (f.tile_bytes > 0) some = std::min(some, f.tile_rows);
  KernelExample out;
  if (some * columns > kMostEncoded) {
    out.why_not = fmt::format("rows of {} are too long to be made", f.name);
    return out;
  }
  const std::vector<uint8_t> blob = encode(f, random_numbers(some * columns, false), some, columns);
  out.expected[1] = repeated(decode(f, blob, some, columns), some, rows, columns);
  out.given = {repeated_rows(f, blob, some, rows, columns), std::vector<uint8_t>(out.expected[1].size(), 0xff)};
  return out;
}

const char* text_of(synth::Importance importance) {
  return importance == synth::Importance::none      ? ""
         : importance == synth::Importance::columns ? " by columns"
                                                    : " by elements";
}

}  // namespace

LoneSteps encode_steps(const FormatRef& f, int64_t rows, int64_t columns, synth::Importance importance) {
  if (!f->weighs()) importance = synth::Importance::none;
  LoneSteps out;
  out.meaning = fmt::format("encode {}x{} {} {}{}", rows, columns, f->name, f->hash.hex(), text_of(importance));
  out.synthesize = [=](const machine::Machine& m) {
    return synth::synthesize_encode(*f, rows, columns, m, importance);
  };
  // Large matrices are sampled; smaller ones, too, if fields span rows.
  const int64_t most = has_rows_apart(*f) ? kMostCopied : kMostEncoded;
  if (importance == synth::Importance::none && rows * columns > most)
    out.plan = plan_of_cast({}, {Scalar::f32, f}, rows, columns);
  else
    out.example = [=] { return encode_example(*f, rows, columns, importance); };
  out.evaluate = [=](std::span<void* const> values) {
    const std::span<const float> x(reinterpret_cast<const float*>(values[0]), rows * columns);
    const int64_t weights = importance == synth::Importance::columns ? columns : rows * columns;
    const std::vector<uint8_t> blob =
        importance == synth::Importance::none
            ? encode(*f, x, rows, columns)
            : encode_weighted(*f, x, rows, columns, {reinterpret_cast<const float*>(values[2]), size_t(weights)});
    std::memcpy(values[1], blob.data(), blob.size());
  };
  return out;
}

LoneSteps decode_steps(const FormatRef& f, int64_t rows, int64_t columns) {
  LoneSteps out;
  out.meaning = fmt::format("decode {}x{} {} {}", rows, columns, f->name, f->hash.hex());
  out.synthesize = [=](const machine::Machine& m) { return synth::synthesize_decode(*f, rows, columns, m); };
  if (f->encodes() && rows * columns <= kMostCopied)
    out.example = [=] { return decode_example(*f, rows, columns); };
  else
    out.plan = plan_of_cast({Scalar::f32, f}, {}, rows, columns);
  out.evaluate = [=](std::span<void* const> values) {
    const std::span<const uint8_t> blob(reinterpret_cast<const uint8_t*>(values[0]),
                                        blob_layout(*f, rows, columns).total);
    const std::vector<float> x = decode(*f, blob, rows, columns);
    std::memcpy(values[1], x.data(), x.size() * sizeof(float));
  };
  return out;
}

}  // namespace lumen::run
