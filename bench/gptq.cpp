// Rounding a layer with error feedback (GPTQ), stage by stage: factors of second moments, panels and products, what it
// costs to measure errors. Shapes are those of an 8B model; moments are made up, weights are random.
//   bench_gptq [FORMAT] [--device cuda] [--threads N] [--small] [--act-order] [--no-measure] [--layers N]
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "model/compress/round/round.h"
#include "number/library/library.h"

namespace lumen {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Product {
  const char* name;
  int64_t rows;
};
struct Group {  // weights that read the same activations
  int64_t columns;
  std::vector<Product> products;
};

// Positive definite without a product of matrices: a common part, and uneven columns.
std::vector<float> moments(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> size(n), phase(n), h(n * n);
  for (float& s : size) s = std::exp(normal(random));
  for (float& p : phase) p = normal(random);
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      h[i * n + j] = size[i] * size[j] *
                     (0.6F * std::exp(-0.5F * (phase[i] - phase[j]) * (phase[i] - phase[j])) + (i == j ? 0.4F : 0.0F));
  return h;
}

std::vector<float> weights(int64_t count, uint64_t seed) {
  std::minstd_rand random(seed);
  std::vector<float> w(count);
  for (float& x : w) {
    float sum = -2;
    for (int k = 0; k < 4; ++k) sum += random() / 2147483648.0F;
    x = 0.035F * sum;
  }
  return w;
}

void time_layers(const std::string& name, run::Engine& engine, const model::compress::MomentsOptions& how,
                 const model::compress::GptqOptions& options, bool small, int layers) {
  const FormatRef format = FormatLibrary::builtin().get(name);
  const int64_t hidden = small ? 1024 : 4096, wide = small ? 3584 : 14336, keys = hidden / 4;
  const std::vector<Group> groups = {{hidden, {{"q", hidden}, {"k", keys}, {"v", keys}}},
                                     {hidden, {{"o", hidden}}},
                                     {hidden, {{"gate", wide}, {"up", wide}}},
                                     {wide, {{"down", hidden}}}};
  fmt::print("{}, {} threads, {}{}\n", engine.device().describe(), engine.threads(), name,
             how.act_order ? ", act-order" : "");
  fmt::print("{:>6} {:>6} x {:>6} {:>9} {:>10}\n", "", "rows", "columns", "seconds", "of nearest");
  model::compress::Gptq gptq(engine);
  for (int layer = 0; layer < layers; ++layer) {
    double total = 0;
    for (const Group& group : groups) {
      const std::vector<float> h = moments(group.columns, group.columns);
      Clock::time_point start = Clock::now();
      model::compress::Moments m(engine, h, group.columns, how);
      double seconds = since(start);
      total += seconds;
      fmt::print("{:>6} {:>6} x {:>6} {:>9.3f}\n", "factor", group.columns, group.columns, seconds);
      for (const Product& p : group.products) {
        const std::vector<float> w = weights(p.rows * group.columns, p.rows + 1);
        start = Clock::now();
        const model::compress::GptqResult r = gptq.round(format, w, p.rows, m, options);
        seconds = since(start);
        total += seconds;
        fmt::print("{:>6} {:>6} x {:>6} {:>9.3f} {:>10.4f}\n", p.name, p.rows, group.columns, seconds,
                   r.before > 0 ? r.after / r.before : 0.0);
      }
    }
    fmt::print("layer {}: {:.2f} s; {:.0f} s for 32 of them\n", layer, total, 32 * total);
  }
}

}  // namespace
}  // namespace lumen

int main(int argc, char** argv) {
  using namespace lumen;
  run::Engine::Options engine;
  model::compress::MomentsOptions how;
  model::compress::GptqOptions options;
  std::string format = "int4_g128_asym";
  bool small = false;
  int layers = 1;
  for (int k = 1; k < argc; ++k) {
    const std::string a = argv[k];
    const bool more = k + 1 < argc;
    if (a == "--device" && more) {
      engine.device = argv[++k];
    } else if (a == "--threads" && more) {
      engine.threads = std::atoi(argv[++k]);
    } else if (a == "--layers" && more) {
      layers = std::atoi(argv[++k]);
    } else if (a == "--small") {
      small = true;
    } else if (a == "--act-order") {
      how.act_order = true;
    } else if (a == "--no-measure") {
      options.measures = false;
    } else {
      format = a;
    }
  }
  try {
    run::Engine opened(engine);
    time_layers(format, opened, how, options, small, layers);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return exit_code(e.code());
  }
}
