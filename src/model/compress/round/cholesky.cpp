// Orders up to kMostExact in f64 as a whole; larger ones by tiles on the engine's device, while the processor factors
// and inverts the diagonal blocks.
#include "model/compress/round/cholesky.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/threads/team.h"
#include "graph/ir/build.h"
#include "model/compress/round/triangle.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kTile = 1024;
// Pivots below this times the mean of the diagonal are rounding noise.
constexpr double kLeastExact = 1e-13, kLeastTiles = 1e-6;

double mean_diagonal(std::span<const float> h, int64_t n, double damping) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += h[i * n + i] + damping;
  return sum / n;
}

// Columns of r [n, n], divided by their diagonal elements, into u at (row, column) of a factor.
void normalise(const double* r, int64_t n, Factor& out, int64_t at) {
  for (int64_t k = 0; k < n; ++k) out.d[at + k] = r[k * n + k] * r[k * n + k];
  parallel_for(0, n, {.is_worth = n > 256}, [&](int64_t i) {
    for (int64_t k = i + 1; k < n; ++k) out.u[(at + i) * out.order + at + k] = r[i * n + k] / r[k * n + k];
  });
}

// All threads zero the pages, which are new.
Factor empty_factor(int64_t n) {
  Factor out{n, {}, std::vector<double>(n), std::shared_ptr<float[]>(new float[n * n])};
  out.u = {out.memory.get(), static_cast<size_t>(n * n)};
  parallel_for(0, n, {.is_worth = n > 256}, [&](int64_t i) { std::fill_n(out.u.data() + i * n, n, 0.0F); });
  return out;
}

std::optional<Factor> by_processor(std::span<const float> h, int64_t n, double damping) {
  run::require_host_memory("factoring second moments", {{"in f64", n * n * 8}, {"the factor", n * n * 4}});
  std::vector<double> a(h.begin(), h.end());
  for (int64_t i = 0; i < n; ++i) a[i * n + i] += damping;
  if (!reverse_cholesky(a.data(), n, kLeastExact * mean_diagonal(h, n, damping))) return std::nullopt;
  Factor out = empty_factor(n);
  normalise(a.data(), n, out, 0);
  return out;
}

graph::Type square() {
  return {{graph::Dim(kTile), graph::Dim(kTile)}, {}};
}

// Updates the state x to x - a b^T, or computes a b.
std::shared_ptr<run::Program> tile_program(run::Engine& engine, bool subtracts) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", graph::Role::state, square());
  const auto left = b.input("a", graph::Role::data, square()), right = b.input("b", graph::Role::data, square());
  const auto product = b.contract(left, right, "ik", subtracts ? "jk" : "kj", "ij");
  g.results = {b.update(x, subtracts ? b.sub(x, product) : product)};
  g.result_names = {"x"};
  run::CompileOptions options;
  options.exact = true;
  return engine.compile(g, options);
}

class Tiles {
 public:
  Tiles(run::Engine& engine, std::span<const float> h, int64_t n, double damping)
      : engine_(engine), h_(h), n_(n), count_((n + kTile - 1) / kTile), damping_(damping), tiles_(count_ * count_) {
    const int64_t bytes = (count_ * (count_ + 1) / 2 + count_ + 1) * kTile * kTile * 4;
    engine.require_memory("factoring second moments", {{"tiles of them", bytes}});
    run::require_host_memory("factoring second moments", {{"the factor", n * n * 4}, {"tiles", kTile * kTile * 24}});
    for (int64_t s = 0; s < count_; ++s)
      for (int64_t t = s; t < count_; ++t) tiles_[s * count_ + t] = upload(s, t);
    subtract_ = tile_program(engine, true);
    multiply_ = tile_program(engine, false);
  }

  std::optional<Factor> run() {
    Factor out = empty_factor(n_);
    std::vector<double> block(kTile * kTile), inverted(kTile * kTile);
    std::vector<float> tile(kTile * kTile);
    std::vector<run::DeviceTensorRef> column(count_);
    for (run::DeviceTensorRef& t : column) t = fresh();
    const run::DeviceTensorRef turned = fresh();
    const double least = kLeastTiles * mean_diagonal(h_, n_, damping_);
    for (int64_t k = count_ - 1; k >= 0; --k) {
      tiles_[k * count_ + k]->download(tile.data(), kTile * kTile * 4);
      parallel_for(0, kTile * kTile, [&](int64_t i) { block[i] = tile[i]; });
      if (!reverse_cholesky(block.data(), kTile, least)) return std::nullopt;
      const int64_t wide = std::min(kTile, n_ - k * kTile);
      for (int64_t c = 0; c < wide; ++c) out.d[k * kTile + c] = block[c * kTile + c] * block[c * kTile + c];
      std::vector<double> diagonal(kTile);
      for (int64_t c = 0; c < kTile; ++c) diagonal[c] = block[c * kTile + c];
      parallel_for(0, wide, [&](int64_t i) {
        for (int64_t c = i + 1; c < wide; ++c)
          out.u[(k * kTile + i) * n_ + k * kTile + c] = block[i * kTile + c] / diagonal[c];
      });
      if (k == 0) break;
      invert_upper(block.data(), inverted.data(), kTile);
      parallel_for(0, kTile, [&](int64_t c) {
        for (int64_t i = 0; i < kTile; ++i) tile[c * kTile + i] = inverted[i * kTile + c];
      });
      turned->upload(tile.data(), kTile * kTile * 4);
      for (int64_t s = 0; s < k; ++s) {
        apply(*multiply_, column[s], tiles_[s * count_ + k], turned);
        keep(column[s], s, k, diagonal, tile, out);
        tiles_[s * count_ + k] = nullptr;
      }
      for (int64_t s = 0; s < k; ++s)
        for (int64_t t = s; t < k; ++t) apply(*subtract_, tiles_[s * count_ + t], column[s], column[t]);
    }
    return out;
  }

 private:
  run::DeviceTensorRef fresh() { return std::make_shared<run::DeviceTensor>(engine_.device(), square()); }

  // Padding after the last column continues the matrix as the identity.
  run::DeviceTensorRef upload(int64_t s, int64_t t) {
    std::vector<float>& tile = uploaded_;
    tile.resize(kTile * kTile);
    parallel_for(0, kTile, [&](int64_t i) {
      for (int64_t j = 0; j < kTile; ++j) {
        const int64_t row = s * kTile + i, column = t * kTile + j;
        double x = row == column;
        if (row < n_ && column < n_) x = h_[std::min(row, column) * n_ + std::max(row, column)] + x * damping_;
        tile[i * kTile + j] = x;
      }
    });
    run::DeviceTensorRef out = fresh();
    out->upload(tile.data(), kTile * kTile * 4);
    return out;
  }

  static void apply(run::Program& p, const run::DeviceTensorRef& x, const run::DeviceTensorRef& a,
                    const run::DeviceTensorRef& b) {
    p.bind("x", x);
    p.bind("a", a);
    p.bind("b", b);
    p.run();
  }

  // Stores rows of tile s of R, in the columns of tile k, normalised.
  void keep(const run::DeviceTensorRef& from, int64_t s, int64_t k, const std::vector<double>& diagonal,
            std::vector<float>& tile, Factor& out) const {
    from->download(tile.data(), kTile * kTile * 4);
    const int64_t wide = std::min(kTile, n_ - k * kTile);
    parallel_for(0, kTile, [&](int64_t i) {
      for (int64_t c = 0; c < wide; ++c)
        out.u[(s * kTile + i) * n_ + k * kTile + c] = tile[i * kTile + c] / diagonal[c];
    });
  }

  run::Engine& engine_;
  std::span<const float> h_;
  int64_t n_, count_;
  double damping_;
  std::vector<run::DeviceTensorRef> tiles_;
  std::vector<float> uploaded_;  // staging of a tile for the device
  std::shared_ptr<run::Program> subtract_, multiply_;
};

}  // namespace

std::optional<Factor> factorize(run::Engine& engine, std::span<const float> h, int64_t order, double damping,
                                FactorMethod method) {
  LUMEN_CHECK(std::ssize(h) == order * order, "{} numbers for a matrix of order {}", h.size(), order);
  const int64_t most = engine.device().reads_host_memory() ? kMostExact : kTile;
  const bool exact = method == FactorMethod::exact || (method == FactorMethod::automatic && order <= most);
  return exact ? by_processor(h, order, damping) : Tiles(engine, h, order, damping).run();
}

std::vector<float> inverse(const Factor& factor) {
  const int64_t n = factor.order;
  run::require_host_memory("inverting a factor", {{"in f64", n * n * 16}});
  std::vector<double> r(factor.u.begin(), factor.u.end()), x(n * n);
  for (int64_t i = 0; i < n; ++i) r[i * n + i] = 1;
  invert_upper(r.data(), x.data(), n);
  return {x.begin(), x.end()};
}

}  // namespace lumen::model::compress
