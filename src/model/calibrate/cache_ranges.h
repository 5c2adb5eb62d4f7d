// Ranges of the numbers that a model writes to its KV cache while it reads a text, for calibrating cache scales. Proved
// by tests/model/calibrate/cache_ranges_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model::calibrate {

// By layer: the largest |x| of all windows.
struct CacheRanges {
  std::vector<double> keys, values;
};

// Over windows of `length` tokens, each computed separately; the rest of the text is not read. `progress` receives the
// windows done and their total. Error for a model without keys and values, and for a text shorter than a window.
CacheRanges cache_ranges(const infer::LoadedModel& loaded, std::span<const text::TokenId> text, int64_t length,
                         const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace lumen::model::calibrate
