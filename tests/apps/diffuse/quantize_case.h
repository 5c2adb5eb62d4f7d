// A small diffusion transformer whose weights are all of some size, as trained ones are.
#pragma once

#include <cmath>

#include "apps/diffuse/quantize.h"
#include "apps/draws/draws.h"
#include "tests/model/tiny.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

inline std::unique_ptr<apps::Network> small_transformer() {
  apps::NetworkSettings s;
  s.family = "dit";
  s.config = {{"size", 12}, {"patch", 4}, {"classes", 4}, {"layers", 2}, {"hidden", 32}, {"heads", 2}};
  auto out = std::make_unique<apps::Network>(engine(), *test_library(), s);
  uint64_t number = 0;
  for (const model::arch::Parameter& p : out->parameters()) {
    std::vector<float> w = out->read(p.name);
    Draws draws(5, 77, number++);
    const bool is_modulation = p.name.find("modulation") != std::string::npos;
    for (size_t i = 0; i < w.size(); ++i) {
      // Segments of modulations differ, as shifts, scales and gates do.
      const double part =
          is_modulation ? std::pow(0.3, double(i / (w.size() / (p.name.starts_with("last") ? 2 : 6)) % 3)) : 1;
      if (p.shape.size() == 2) w[i] += float(0.15 * part * draws.normal());
    }
    out->write(p.name, w);
  }
  return out;
}

inline std::vector<ProductReads> small_reads(apps::Network& network) {
  return collect_reads(network, {0, 1, 2, 3, 0, 1}, {.steps = 6, .guidance = 2, .seed = 9, .batch = 3}, {120, 1});
}

}  // namespace lumen::diffuse
