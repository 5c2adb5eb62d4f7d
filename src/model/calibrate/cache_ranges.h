// How large the numbers are that a model puts into its caches of keys and values while it reads a text: what scales of
// caches are calibrated by. Proved by tests/model/calibrate/cache_ranges_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model {

// By layer: the largest |x| of all windows.
struct CacheRanges {
  std::vector<double> keys, values;
};

// Over windows of `length` tokens, each computed on its own; what is left of the text is not read. `progress` is told
// how many windows are done, of how many. Error for a model that keeps no keys and values, and for a text without a
// window.
CacheRanges cache_ranges(const LoadedModel& loaded, std::span<const TokenId> text, int64_t length,
                         const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace lumen::model
