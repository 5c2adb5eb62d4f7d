// Methods that learn a layer's rounding, each in its own file. All start from the format's own fit, evaluate the
// objective over all windows at intervals, and return the best state found: never worse than the start on the windows
// they learned from. Same seed, same bits, at any thread count. Proved by
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/compress/reconstruction/objective.h"

namespace lumen::model::compress {

// A weight of the layer, in the objective's order.
struct LearnedWeight {
  std::string name;  // for messages
  FormatRef format;
  int64_t rows = 0, columns = 0;
  std::span<const float> values;
  std::vector<float> importance;  // of columns or elements, for formats whose fit looks at it; may be empty
};

struct LearnOptions {
  int steps = 0;        // 0: the method's default
  double rate = 0;      // 0: likewise
  int64_t windows = 8;  // per step
  uint64_t seed = 0;
};

struct LearnedBlock {
  std::vector<std::vector<uint8_t>> blobs;  // by weight
  double before = 0, after = 0;             // the objective over all windows: rounded to nearest, and learned
};

// Called with the steps done and their total.
using LearnProgress = std::function<void(int64_t, int64_t)>;

// Each value is rounded to one of its two neighbours, and groups have range factors; both are updated by the signs of
// gradients, with a rate that falls to 0 (Cheng et al. 2023, arXiv 2309.05516).
LearnedBlock learn_by_signs(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                            const LearnOptions& options, const LearnProgress& progress = {});
// Values lie between their neighbours and a regularizer pushes them to one, under the format's own fields (Nagel et al.
// 2020, arXiv 2004.10568).
LearnedBlock learn_soft_rounding(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                                 const LearnOptions& options, const LearnProgress& progress = {});
// Range factors alone, values to nearest (OmniQuant's learnable weight clipping, Shao et al. 2023, arXiv 2308.13137).
LearnedBlock learn_clipping(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                            const LearnOptions& options, const LearnProgress& progress = {});
// The values themselves, with a straight-through estimator, and range factors (EfficientQAT's Block-AP, Chen et al.
// 2024, arXiv 2407.11062). Formats without a code per element are encoded again at each step, without factors.
LearnedBlock learn_values(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                          const LearnOptions& options, const LearnProgress& progress = {});

}  // namespace lumen::model::compress
