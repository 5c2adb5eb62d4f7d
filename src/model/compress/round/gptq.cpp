#include "model/compress/round/gptq.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/build.h"

namespace lumen::model {
namespace {

graph::Type matrix(int64_t rows, int64_t columns) {
  return {{graph::Dim(rows), graph::Dim(columns)}, {}};
}

// From x [rows, columns] and h [columns, columns]: x h, or what x h x^T has on its diagonal.
std::shared_ptr<run::Program> product_program(run::Engine& engine, int64_t rows, int64_t columns, bool measures) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", graph::Role::data, matrix(rows, columns));
  const auto h = b.input("h", graph::Role::data, matrix(columns, columns));
  const auto product = b.contract(x, h, "rk", "kj", "rj");
  g.results = {measures ? b.reduce(b.mul(product, x), graph::Reduction::sum, {1}) : product};
  g.result_names = {"product"};
  run::CompileOptions options;
  options.exact = true;
  return engine.compile(g, options);
}

run::DeviceTensorRef upload(run::Engine& engine, std::span<const float> x, int64_t rows, int64_t columns) {
  auto tensor = std::make_shared<run::DeviceTensor>(engine.device(), matrix(rows, columns));
  tensor->upload(x.data(), tensor->bytes());
  return tensor;
}

std::vector<float> download(const run::DeviceTensorRef& tensor) {
  std::vector<float> out(tensor->bytes() / 4);
  tensor->download(out.data(), tensor->bytes());
  return out;
}

std::shared_ptr<run::Program>& known(std::shared_ptr<run::Program>& slot, run::Engine& engine, int64_t rows,
                                     int64_t columns, bool measures) {
  if (!slot) slot = product_program(engine, rows, columns, measures);
  return slot;
}

}  // namespace

Gptq::~Gptq() = default;

std::vector<double> Gptq::errors(const std::vector<float>& target, std::span<const float> values, int64_t rows,
                                 Moments& moments) {
  const int64_t columns = moments.columns();
  std::vector<float> lost(target.size());
  for (size_t k = 0; k < lost.size(); ++k) lost[k] = target[k] - values[k];
  run::Program& program = *known(programs_[{rows, columns, true}], engine_, rows, columns, true);
  program.bind("x", upload(engine_, lost, rows, columns));
  program.bind("h", moments.on_device(engine_));
  program.run();
  const std::vector<float> by_row = download(program.result("product"));
  return {by_row.begin(), by_row.end()};
}

std::vector<float> Gptq::moved(std::span<const float> w, int64_t rows, Moments& moments,
                               std::span<const float> difference) {
  const int64_t columns = moments.columns();
  LUMEN_CHECK(std::ssize(difference) == columns * columns, "{} differences for {} columns", difference.size(), columns);
  for (int64_t k = 0; k < std::ssize(difference); ++k)
    if (!std::isfinite(difference[k]))
      throw Error(Exit::numeric, fmt::format("the difference of activations at row {}, column {} is {}", k / columns,
                                             k % columns, difference[k]));
  run::Program& program = *known(programs_[{rows, columns, false}], engine_, rows, columns, false);
  std::vector<float> x(w.begin(), w.end());
  const auto multiply = [&](const run::DeviceTensorRef& h) {
    program.bind("x", upload(engine_, x, rows, columns));
    program.bind("h", h);
    program.run();
    x = download(program.result("product"));
  };
  multiply(upload(engine_, difference, columns, columns));
  multiply(moments.inverse_over_d(engine_));
  multiply(moments.inverse_factor(engine_));
  for (size_t k = 0; k < x.size(); ++k) x[k] += w[k];
  return x;
}

GptqResult Gptq::round(const FormatRef& format, std::span<const float> w, int64_t rows, Moments& moments,
                       const GptqOptions& options) {
  const int64_t columns = moments.columns();
  LUMEN_CHECK(std::ssize(w) == rows * columns, "{} weights for {} x {}", w.size(), rows, columns);
  GptqResult out;
  std::vector<float> target(w.begin(), w.end());
  for (const int64_t c : moments.dead())
    for (int64_t r = 0; r < rows; ++r) target[r * columns + c] = 0;
  if (!options.difference.empty()) target = moved(target, rows, moments, options.difference);
  for (const int64_t c : moments.dead())
    for (int64_t r = 0; r < rows; ++r) target[r * columns + c] = 0;

  const bool weighs = options.weighs && format->weighs();
  const run::FeedbackOptions how{weighs, !moments.order().empty()};
  auto& rounder = rounders_[{format->hash.hex(), rows, columns, how.weighs, how.in_order}];
  if (!rounder) rounder = std::make_unique<run::FeedbackRounder>(engine_, format, rows, columns, how);
  const std::vector<float> importance = weighs ? moments.diagonal() : std::vector<float>{};
  std::vector<uint8_t> nearest;
  std::vector<float> nearest_values;
  const auto sum = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  if (options.measures) {
    nearest = engine_.encode(format, target.data(), rows, columns, importance);
    nearest_values = engine_.decode(format, nearest.data(), rows, columns);
    out.before_rows = errors(target, nearest_values, rows, moments);
    out.before = sum(out.before_rows);
  }
  run::RoundedMatrix rounded =
      rounder->run({.w = target, .importance = importance, .order = moments.order(), .rounded = nearest},
                   moments.feedback(engine_, rounder->tiling()));
  out.blob = std::move(rounded.blob);
  out.values = std::move(rounded.values);
  if (options.measures) {
    out.after_rows = errors(target, out.values, rows, moments);
    out.after = sum(out.after_rows);
    if (out.is_nearest = out.after >= out.before && out.before > 0; out.is_nearest) {
      out.blob = std::move(nearest);
      out.values = std::move(nearest_values);
      out.after_rows = out.before_rows;
      out.after = out.before;
    }
  }
  if (!options.by_rows) {
    out.before_rows.clear();
    out.after_rows.clear();
  }
  if (!options.difference.empty()) out.target = std::move(target);
  return out;
}

}  // namespace lumen::model
