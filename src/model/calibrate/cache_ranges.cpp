#include "model/calibrate/cache_ranges.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lumen::model::calibrate {
namespace {

void raise(std::vector<double>& largest, const std::vector<double>& seen) {
  largest.resize(seen.size());
  for (size_t layer = 0; layer < seen.size(); ++layer) {
    if (!std::isfinite(seen[layer]))
      throw Error(Exit::numeric, fmt::format("layer {} puts a number that is not finite into its cache", layer),
                  "look for the weight that is broken with `lumen inspect --stats`");
    largest[layer] = std::max(largest[layer], seen[layer]);
  }
}

}  // namespace

CacheRanges cache_ranges(const infer::LoadedModel& loaded, std::span<const text::TokenId> text, int64_t length,
                         const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t windows = std::ssize(text) / length;
  if (windows < 1) throw user_error("the text has no window of {} tokens: it has {}", length, text.size());
  infer::check_tokens(loaded.model(), text);
  // The whole window as one chunk: a padded chunk would add the keys of its padding.
  infer::Session session(loaded, {.context = length, .chunk = length});
  CacheRanges out;
  for (int64_t w = 0; w < windows; ++w) {
    session.rewind(0);
    (void)session.feed(text.subspan(w * length, length));
    raise(out.keys, session.largest_kept("keys"));
    raise(out.values, session.largest_kept("values"));
    if (progress) progress(w + 1, windows);
  }
  if (out.keys.empty() || out.values.empty())
    throw user_error("'{}' keeps no keys and values that scales could be calibrated for", loaded.model().name);
  return out;
}

}  // namespace lumen::model::calibrate
