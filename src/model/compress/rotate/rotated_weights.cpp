#include "model/compress/rotate/rotated_weights.h"

#include <algorithm>

#include "base/check.h"
#include "graph/ir/build.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kMostLines = 16384;  // in one product

graph::Type matrix(int64_t rows, int64_t columns) {
  return {{graph::Dim(rows), graph::Dim(columns)}, {}};
}

}  // namespace

RotatedWeights::RotatedWeights(run::Engine& engine, const arch::Model& model, std::vector<graph::RotationSite> sites)
    : engine_(engine), model_(model), sites_(std::move(sites)) {
  for (size_t s = 0; s < sites_.size(); ++s) {
    const graph::RotationSite& site = sites_[s];
    LUMEN_CHECK(site.reason.empty(), "'{}' cannot be rotated: {}", site.value, site.reason);
    first_.push_back(spaces_.size());
    for (int64_t b = 0; b < site.blocks; ++b) spaces_.push_back({s, b, site.width});
    for (const graph::RotatedParameter& change : site.changes) {
      const arch::Weight& w = model.weights.at(change.parameter);
      LUMEN_CHECK(w.is_f32(), "'{}' is not f32", change.parameter);
      turns_[change.parameter].push_back({s, change.along, RotatedLines(change, w.type.shape, site.width)});
    }
  }
  rotations_.resize(spaces_.size());
  on_device_.resize(spaces_.size());
  clear_gradients();
}

void RotatedWeights::clear_gradients() {
  gradients_.resize(spaces_.size());
  for (size_t s = 0; s < spaces_.size(); ++s) gradients_[s].assign(spaces_[s].width * spaces_[s].width, 0);
}

void RotatedWeights::set(size_t space, std::vector<double> rotation) {
  const int64_t n = spaces_[space].width;
  LUMEN_CHECK(std::ssize(rotation) == n * n);
  on_device_[space] = upload(std::vector<float>(rotation.begin(), rotation.end()), n, n);
  rotations_[space] = std::move(rotation);
}

run::DeviceTensorRef RotatedWeights::upload(std::span<const float> x, int64_t rows, int64_t width) {
  auto tensor = std::make_shared<run::DeviceTensor>(engine_.device(), matrix(rows, width));
  LUMEN_CHECK(std::ssize(x) == rows * width, "{} numbers of {} x {}", x.size(), rows, width);
  tensor->upload(x.data(), x.size_bytes());
  return tensor;
}

run::Program& RotatedWeights::program(int64_t rows, int64_t width, bool outer) {
  std::shared_ptr<run::Program>& slot = programs_[{rows, width, outer}];
  if (!slot) {
    graph::Graph g;
    graph::Builder b(g);
    const auto x = b.input("x", graph::Role::data, matrix(rows, width));
    const auto y = b.input("y", graph::Role::data, outer ? matrix(rows, width) : matrix(width, width));
    g.results = {outer ? b.contract(x, y, "rk", "rj", "kj") : b.contract(x, y, "rk", "kj", "rj")};
    g.result_names = {"product"};
    run::CompileOptions options;
    options.exact = true;
    slot = engine_.compile(g, options);
  }
  return *slot;
}

std::vector<float> RotatedWeights::product(std::span<const float> x, int64_t rows, int64_t width,
                                           const run::DeviceTensorRef& r) {
  run::Program& p = program(rows, width, false);
  p.bind("x", upload(x, rows, width));
  p.bind("y", r);
  p.run();
  std::vector<float> out(rows * width);
  p.result("product")->download(out.data(), out.size() * sizeof(float));
  return out;
}

std::vector<float> RotatedWeights::outer(std::span<const float> x, std::span<const float> y, int64_t rows,
                                         int64_t width) {
  run::Program& p = program(rows, width, true);
  p.bind("x", upload(x, rows, width));
  p.bind("y", upload(y, rows, width));
  p.run();
  std::vector<float> out(width * width);
  p.result("product")->download(out.data(), out.size() * sizeof(float));
  return out;
}

void RotatedWeights::turn(std::vector<float>& values, const Turned& t) {
  const int64_t width = t.turn.width();
  for (const RotatedLines::Panel& p : t.turn.panels())
    for (int64_t first = 0; first < p.lines; first += kMostLines) {
      const int64_t count = std::min(kMostLines, p.lines - first);
      std::vector<float> lines(count * width);
      t.turn.take<float>(p, first, count, values, lines);
      lines = product(lines, count, width, on_device_[space_of(t.site, p.block)]);
      t.turn.put<float>(p, first, count, lines, values);
    }
}

std::vector<float> RotatedWeights::values(const std::string& name) {
  const std::span<const float> numbers = model_.weights.at(name).f32();
  std::vector<float> out(numbers.begin(), numbers.end());
  if (const auto found = turns_.find(name); found != turns_.end())
    for (const Turned& t : found->second) turn(out, t);
  return out;
}

void RotatedWeights::pull(const std::string& name, std::span<const float> gradient) {
  const auto found = turns_.find(name);
  if (found == turns_.end()) return;
  for (const Turned& mine : found->second) {
    const std::span<const float> numbers = model_.weights.at(name).f32();
    std::vector<float> values(numbers.begin(), numbers.end());
    for (const Turned& other : found->second)
      if (&other != &mine) turn(values, other);
    const int64_t width = mine.turn.width();
    for (const RotatedLines::Panel& p : mine.turn.panels())
      for (int64_t first = 0; first < p.lines; first += kMostLines) {
        const int64_t count = std::min(kMostLines, p.lines - first);
        std::vector<float> lines(count * width), slopes(count * width);
        mine.turn.take<float>(p, first, count, values, lines);
        mine.turn.take<float>(p, first, count, gradient, slopes);
        const std::vector<float> part = outer(lines, slopes, count, width);
        std::vector<double>& to = gradients_[space_of(mine.site, p.block)];
        for (size_t i = 0; i < part.size(); ++i) to[i] += part[i];
      }
  }
}

bool RotatedWeights::reads_turned(const std::string& name) const {
  const auto found = turns_.find(name);
  return found != turns_.end() &&
         std::ranges::count(found->second, graph::Along::columns, [](const Turned& t) { return t.along; }) == 1;
}

const RotatedWeights::Turned& RotatedWeights::columns_of(const std::string& name) const {
  LUMEN_CHECK(reads_turned(name), "the input of '{}' has not one rotation", name);
  return *std::ranges::find(turns_.at(name), graph::Along::columns, [](const Turned& t) { return t.along; });
}

// A panel's element offsets give the columns and the matrix of a block.
RotatedWeights::Moments RotatedWeights::moments(const std::string& name, std::span<const float> gram, int64_t columns) {
  const Turned& t = columns_of(name);
  const int64_t width = t.turn.width();
  const graph::Shape& shape = model_.weights.at(name).type.shape;
  const int64_t size = shape[shape.size() - 2].number() * columns, matrices = std::ssize(gram) / (columns * columns);
  Moments out;
  for (int64_t m = 0; m < matrices; ++m)
    for (int64_t c = 0; c < columns; ++c) out.diagonal.push_back(gram[(m * columns + c) * columns + c]);
  for (const RotatedLines::Panel& p : t.turn.panels()) {
    const int64_t m = p.places[0] / size;
    std::vector<float> h(width * width);
    for (int64_t i = 0; i < width; ++i)
      for (int64_t k = 0; k < width; ++k)
        h[i * width + k] = gram[(m * columns + p.places[i] % columns) * columns + p.places[k] % columns];
    const size_t space = space_of(t.site, p.block);
    h = product(h, width, width, on_device_[space]);
    for (int64_t k = 0; k < width; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += rotations_[space][i * width + k] * h[i * width + k];
      out.diagonal[m * columns + p.places[k] % columns] = std::max(sum, 0.0);
    }
    out.turned.push_back(std::move(h));
  }
  return out;
}

void RotatedWeights::pull_moments(const std::string& name, const Moments& moments, std::span<const double> weight,
                                  int64_t columns) {
  const Turned& t = columns_of(name);
  const int64_t width = t.turn.width();
  const graph::Shape& shape = model_.weights.at(name).type.shape;
  const int64_t size = shape[shape.size() - 2].number() * columns;
  for (size_t k = 0; k < t.turn.panels().size(); ++k) {
    const RotatedLines::Panel& p = t.turn.panels()[k];
    std::vector<double>& to = gradients_[space_of(t.site, p.block)];
    for (int64_t i = 0; i < width; ++i)
      for (int64_t j = 0; j < width; ++j)
        to[i * width + j] +=
            2 * moments.turned[k][i * width + j] * weight[p.places[0] / size * columns + p.places[j] % columns];
  }
}

}  // namespace lumen::model::compress
