// Error bounds of results. Operands are numbers that every type they pass through represents exactly (TrialNumbers), or
// are rounded by the evaluator as by the kernel (with_rounded_products, Trial::others), so that products of 16-bit and
// 8-bit operands are exact in f32 and only sums round. A sum of n terms in any order differs from the exact one by at
// most ((1 + u)^(n - 1) - 1) * (sum of magnitudes) <= 1.01 n u * (sum of magnitudes) for n u < 0.01 (Higham, "Accuracy
// and Stability of Numerical Algorithms", section 4.2). u is 2^-24 where additions are rounded to nearest and 2^-23
// where matrix units truncate or round to odd; the latter is used for all. An operation after the sum counts as one
// more term. A term that is left out, taken twice or from another place changes a sum of n terms of like size by about
// 1 / n of the sum of magnitudes, which exceeds that bound up to n = 2900. Matrix units that keep b bits of the largest
// term (14 for products of 8-bit floats on Hopper, as measured) truncate each of n terms by less than 2^(1 - b) of it,
// with its sign; so truncation errors add like random ones (Higham and Mary, "A New Approach to Probabilistic Rounding
// Error Analysis", 2019): sqrt(n) 2^(1 - b), for at most 256 products, after which kernels start a new sum.
#include "run/engine/verify/trial/trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/pipeline/pipeline.h"
#include "number/codec/codec.h"
#include "run/engine/cache/in_parallel.h"
#include "run/engine/compile/judge.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::Type;
using Tensors = std::map<std::string, Tensor>;

double uniform_of(uint32_t seed, uint64_t i) {
  return graph::uniform_random(seed, 1, i);
}

double trial_number(TrialNumbers kind, uint32_t seed, uint64_t i, int64_t table) {
  const double u = uniform_of(seed, i);
  switch (kind) {
    case TrialNumbers::digits:
      return std::floor(u * 15) - 7;
    case TrialNumbers::whole:
      if (i % 8 == 5) return u < 0.5 ? -127 : 127;
      return std::floor(u * 255) - 127;
    case TrialNumbers::normal:
      return static_cast<float>(std::sqrt(-2 * std::log(1 - u)) *
                                std::cos(2 * std::numbers::pi * uniform_of(seed + 1000, i)));
    case TrialNumbers::ties: {
      // Odd multiples of half a unit in the last place, of 8 and of 11 bits, between 1 and 2.
      if (i % 4 == 1) return (i % 8 == 1 ? -1 : 1) * (1 + (2 * std::floor(u * 128) + 1) / 256);
      if (i % 4 == 2) return (i % 8 == 2 ? -1 : 1) * (1 + (2 * std::floor(u * 1024) + 1) / 2048);
      return trial_number(TrialNumbers::normal, seed, i, table);
    }
    case TrialNumbers::present:
      return (1 + std::floor(u * 7)) / 4;
    case TrialNumbers::indices:
      return std::min<double>(std::floor(u * table), table - 1);
  }
  return 0;
}

// Bytes that decode to finite numbers, for decode-only formats: blocks with other numbers become zero.
std::vector<uint8_t> random_blob(const Format& f, int64_t rows, int64_t columns, uint32_t seed) {
  const BlobLayout layout = blob_layout(f, rows, columns);
  std::vector<uint8_t> blob(layout.total);
  const auto data = std::min<int64_t>(layout.data_bytes, layout.total);
  for (int64_t i = 0; i < data; ++i) blob[i] = std::min<int>(int(uniform_of(seed, i) * 256), 255);
  if (f.tile_bytes + f.row_bytes + f.tensor_bytes > 0 || f.block_bytes == 0) return blob;
  const std::vector<float> x = decode(f, blob, rows, columns);
  const int64_t blocks = columns / f.block;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < blocks; ++b) {
      double largest = 0;
      for (int64_t j = 0; j < f.block; ++j) {
        const double v = std::abs(x[r * columns + b * f.block + j]);
        if (!(v <= largest)) largest = v;
      }
      if (!(largest < 1e3)) std::memset(blob.data() + r * layout.row_stride + b * f.block_bytes, 0, f.block_bytes);
    }
  return blob;
}

Tensor filled(const Type& type, TrialNumbers kind, uint32_t seed, int64_t table) {
  Tensor t;
  t.type = type;
  const int64_t count = graph::elements(type.shape).number();
  if (type.element.format) {
    const Format& f = *type.element.format;
    const int64_t columns = type.shape.empty() ? 1 : type.shape.back().number();
    const int64_t rows = columns > 0 ? count / columns : 0;
    if (!f.encodes()) {
      t.blob = random_blob(f, rows, columns, seed);
      return t;
    }
    std::vector<float> x(count);
    for (int64_t i = 0; i < count; ++i) x[i] = float(trial_number(kind, seed, i, table));
    t.blob = encode(f, x, rows, columns);
    return t;
  }
  t.values.resize(count);
  for (int64_t i = 0; i < count; ++i) t.values[i] = trial_number(kind, seed, i, table);
  return t;
}

Tensors inputs_of(const Trial& trial) {
  Tensors inputs;
  uint32_t seed = 1;
  for (const graph::ValueId v : trial.graph.inputs()) {
    const graph::Node& n = trial.graph[v];
    const auto kind = trial.numbers.find(n.attributes.name);
    inputs[n.attributes.name] =
        filled(n.type, kind == trial.numbers.end() ? TrialNumbers::digits : kind->second, ++seed, trial.table);
  }
  return inputs;
}

// The evaluator's results after all runs, with states carried over.
std::vector<Tensor> evaluated(const Graph& g, Tensors inputs, int64_t runs) {
  std::vector<Tensor> results;
  for (int64_t i = 0; i < runs; ++i) {
    Tensors states;
    results = graph::eval(g, inputs, {}, &states);
    for (auto& [name, t] : states) inputs[name] = std::move(t);
  }
  return results;
}

Graph as_rounded(const Graph& g, const CompileOptions& options) {
  if (options.products.scalar == Scalar::f32 && !options.products.has_formats()) return g;
  return graph::with_rounded_products(g, options.assignments, options.symbols, options.products);
}

// The largest difference, as a multiple of the bound, and its text for the user.
struct Compared {
  double excess = 0;
  std::string text;
};

Compared compare_bytes(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) {
  size_t wrong = 0, first = want.size();
  for (size_t i = 0; i < want.size(); ++i) {
    if (i < got.size() && got[i] == want[i]) continue;
    first = std::min(first, i);
    ++wrong;
  }
  if (wrong == 0) return {0, fmt::format("{} bytes, all equal", want.size())};
  return {1e9, fmt::format("{} of {} bytes differ from the evaluator's, the first at {}", wrong, want.size(), first)};
}

Compared compare_numbers(const std::vector<uint8_t>& bytes, const Tensor& want, const Tensor& magnitude, double units) {
  Compared out;
  double worst = 0;
  const Scalar s = want.type.element.scalar;
  size_t place = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    double got = 0;
    if (is_float(s)) {
      float x = 0;
      std::memcpy(&x, bytes.data() + 4 * i, 4);
      got = x;
    } else {
      int32_t x = 0;
      std::memcpy(&x, bytes.data() + 4 * i, 4);
      got = x;
    }
    const double difference = std::abs(got - want.values[i]);
    const double allowed = units * std::abs(magnitude.values[i % magnitude.values.size()]) + 1e-37;
    const double excess = difference / allowed;
    if (!(excess <= out.excess)) out.excess = std::isnan(excess) ? 1e9 : excess, worst = difference, place = i;
  }
  out.text = fmt::format("largest difference {:.2e} ({:.2f} of what is allowed{})", worst, out.excess,
                         out.excess <= 1 ? "" : fmt::format(", element {} of {}", place, want.values.size()));
  return out;
}

DistinctKernels kernels_of(const machine::Machine& machine, const Trial& trial) {
  const graph::Pipeline pipeline = run_pipeline(trial.graph, trial.options, machine);
  return synthesize_distinct(
      pipeline.plan, machine,
      {trial.options.exact, trial.options.candidate, trial.options.products.scalar, trial.options.invariant});
}

std::shared_ptr<Program> compiled(const CompileContext& context, const Trial& trial) {
  return make_program(context.device, context.cache, compile(context, trial.graph, trial.options), false);
}

// Runs the trial and returns the bytes of every result.
std::vector<std::vector<uint8_t>> executed(const CompileContext& context, const Trial& trial, const Tensors& inputs,
                                           double* seconds) {
  const std::shared_ptr<Program> program = compiled(context, trial);
  for (const std::string& name : program->input_names()) {
    const Tensor& t = inputs.at(name);
    const auto device = std::make_shared<DeviceTensor>(*context.device, t.type);
    const std::vector<uint8_t> bytes = device_bytes(t);
    device->upload(bytes.data(), bytes.size());
    program->bind(name, device);
  }
  const Stopwatch watch;
  for (int64_t i = 0; i < trial.runs; ++i) program->run();
  context.device->synchronize();
  *seconds = watch.seconds() / double(trial.runs);
  std::vector<std::vector<uint8_t>> out;
  for (const std::string& name : trial.graph.result_names) {
    const DeviceTensorRef result = program->result(name);
    out.emplace_back(result->bytes());
    result->download(out.back().data(), result->bytes());
  }
  return out;
}

Compared compare_all(const Trial& trial, const Tensors& inputs, const std::vector<std::vector<uint8_t>>& got,
                     const Graph& right, double units) {
  const std::vector<Tensor> want = evaluated(right, inputs, trial.runs);
  std::vector<Tensor> magnitudes = want;
  if (!trial.magnitude.results.empty()) magnitudes = graph::eval(trial.magnitude, inputs);
  Compared worst;
  for (size_t r = 0; r < want.size(); ++r) {
    const Compared one = want[r].type.element.format
                             ? compare_bytes(got[r], want[r].blob)
                             : compare_numbers(got[r], want[r], magnitudes[std::min(r, magnitudes.size() - 1)], units);
    if (worst.text.empty() || !(one.excess <= worst.excess)) worst = one;
  }
  return worst;
}

}  // namespace

std::vector<uint8_t> device_bytes(const Tensor& t) {
  if (t.type.element.format) return t.blob;
  const int width = scalar_bytes(t.type.element.scalar);
  std::vector<uint8_t> out(t.values.size() * width);
  for (size_t i = 0; i < t.values.size(); ++i) {
    const auto number = int64_t(t.values[i]);
    const auto real = float(t.values[i]);
    std::memcpy(out.data() + i * width, is_float(t.type.element.scalar) ? static_cast<const void*>(&real) : &number,
                width);
  }
  return out;
}

double units_of_sum(int64_t additions) {
  return 1.01 * double(additions) * 0x1p-23;
}

double units_of_short_sum(int64_t products) {
  constexpr double kMost = 256;
  const auto n = double(products);
  return 0x1p-13 * std::min(std::sqrt(n), kMost / std::sqrt(std::max(1.0, n)));
}

bool has_short_sums(const machine::Machine& machine, const std::set<std::string>& rows) {
  return std::any_of(machine.matrices.begin(), machine.matrices.end(),
                     [&](const machine::MatrixRow& r) { return r.short_sums && rows.contains(r.row); });
}

double units_of(Scalar s) {
  return s == Scalar::bf16 ? 0x1p-8 : s == Scalar::f16 ? 0x1p-11 : 0x1p-24;
}

TrialPlan plan_of(const machine::Machine& machine, const Trial& trial) {
  const DistinctKernels kernels = kernels_of(machine, trial);
  TrialPlan out;
  std::vector<std::pair<double, std::string>> plans;
  for (const Synthesized& s : kernels.distinct) {
    out.candidates = std::max(out.candidates, s.candidates);
    for (const synth::Step& step : s.steps) {
      add_rows_of(step.kernel.body, &out.rows);
      plans.emplace_back(-step.flops, step.plan);
    }
  }
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [flops, plan] : plans) out.plans.push_back(std::move(plan));
  return out;
}

std::vector<std::vector<uint8_t>> outcome_of(const CompileContext& context, const Trial& trial) {
  double seconds = 0;
  return executed(context, trial, inputs_of(trial), &seconds);
}

void find_kernels(const CompileContext& context, std::span<const Trial* const> trials) {
  std::vector<DistinctKernels> made(trials.size());
  in_parallel(trials.size(), context.threads, [&](size_t i) {
    try {
      made[i] = kernels_of(context.device->machine(), *trials[i]);
    } catch (const Error&) {  // not for this machine
    }
  });
  std::vector<const loop::Kernel*> kernels;
  std::vector<std::string> texts;
  for (const DistinctKernels& m : made)
    for (const Synthesized& s : m.distinct) {
      for (const synth::Step& step : s.steps) kernels.push_back(&step.kernel);
      texts.insert(texts.end(), s.texts.begin(), s.texts.end());
    }
  try {
    CompileReport report;
    context.cache->get(kernels, context.threads, &report, texts);
  } catch (const Error& error) {
    verbose(fmt::format("kernels of trials are compiled one trial after the other: {}", error.what()));
  }
}

CheckLine try_out(const CompileContext& context, const Trial& trial) {
  CheckLine line{trial.what, context.device->machine().name};
  try {
    const TrialPlan plan = plan_of(context.device->machine(), trial);
    line.plan = fmt::format("{}", fmt::join(plan.plans, "; "));
    line.rows.assign(plan.rows.begin(), plan.rows.end());
    if (!trial.wanted.empty() && !plan.rows.contains(trial.wanted)) {
      line.chosen = line.ran = false;
      line.ok = true;
      line.detail = fmt::format("no plan has {}", trial.wanted);
      return line;
    }
    const Tensors inputs = inputs_of(trial);
    const auto got = executed(context, trial, inputs, &line.seconds);
    const bool is_short = has_short_sums(context.device->machine(), plan.rows);
    const double units = trial.units + (is_short ? units_of_short_sum(trial.products) : 0);
    Compared best = compare_all(trial, inputs, got, as_rounded(trial.graph, trial.options), units);
    for (const Graph& other : trial.others) {
      if (best.excess <= 1) break;
      const Compared next = compare_all(trial, inputs, got, other, units);
      if (next.excess < best.excess) best = next;
    }
    line.ok = best.excess <= 1;
    line.detail = best.text;
  } catch (const Error& error) {
    line.ok = line.ran = false;
    line.detail = error.what();
  }
  return line;
}

}  // namespace lumen::run
