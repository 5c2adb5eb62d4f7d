// The ways in which a layer's rounding is learned, each a file. All begin with what the format's own fit gives, look at
// the objective over all windows now and then, and hand back the best they have seen: never worse than where they began
// on the windows they learned from. Same seed, same bits, at any thread count. Proved by
// tests/model/compress/recover/learn_test.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/compress/recover/objective.h"

namespace lumen::model {

// A weight of the layer, in the objective's order.
struct LearnedWeight {
  std::string name;  // for messages
  FormatRef format;
  int64_t rows = 0, columns = 0;
  std::span<const float> values;
  std::vector<float> importance;  // of columns or elements, for formats whose fit looks at it; may be empty
};

struct LearnOptions {
  int steps = 0;        // 0: what the way usually takes
  double rate = 0;      // 0: likewise
  int64_t windows = 8;  // of a step
  uint64_t seed = 0;
};

struct LearnedBlock {
  std::vector<std::vector<uint8_t>> blobs;  // by weight
  double before = 0, after = 0;             // the objective over all windows: rounded to nearest, and learned
};

// Called with steps done, and how many there are.
using LearnProgress = std::function<void(int64_t, int64_t)>;

// Values go to one of their two neighbours, and groups have factors of their ranges; both by the signs of gradients
// with a rate that falls to 0 (Cheng et al. 2023, arXiv 2309.05516).
LearnedBlock learn_by_signs(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                            const LearnOptions& options, const LearnProgress& progress = {});
// Values lie between their neighbours and are driven apart, under the format's own fields (Nagel et al. 2020, arXiv
// 2004.10568).
LearnedBlock learn_soft_rounding(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                                 const LearnOptions& options, const LearnProgress& progress = {});
// Factors of ranges alone, values to nearest (OmniQuant's learnable weight clipping, Shao et al. 2023, arXiv
// 2308.13137).
LearnedBlock learn_clipping(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                            const LearnOptions& options, const LearnProgress& progress = {});
// The values themselves, straight through their rounding, and factors of ranges (EfficientQAT's Block-AP, Chen et al.
// 2024, arXiv 2407.11062). Formats without codes of elements are encoded anew at each step, without factors.
LearnedBlock learn_values(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                          const LearnOptions& options, const LearnProgress& progress = {});

}  // namespace lumen::model
