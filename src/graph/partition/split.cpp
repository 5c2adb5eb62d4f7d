#include "graph/partition/split.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// Axes [begin, end) with the same elements in both shapes, including the given axis of `from`.
struct Run {
  size_t from_begin = 0, from_end = 0, to_begin = 0, to_end = 0;
};
Run run_of(const std::vector<int64_t>& from, size_t axis, const std::vector<int64_t>& to) {
  Run run;
  for (;;) {
    run.from_begin = run.from_end;
    run.to_begin = run.to_end;
    LUMEN_CHECK(run.from_begin < from.size(), "a reshape changes the number of elements");
    int64_t theirs = from[run.from_end++], ours = 1;
    while (ours != theirs) {
      if (ours < theirs)
        ours *= to.at(run.to_end++);
      else
        theirs *= from.at(run.from_end++);
    }
    if (run.from_end > axis) return run;
  }
}

int64_t product(const std::vector<int64_t>& extents, size_t begin, size_t end) {
  return std::accumulate(extents.begin() + begin, extents.begin() + end, int64_t{1}, std::multiplies<>());
}

}  // namespace

Split whole_axis(const Shape& shape, int axis) {
  return {axis, {shape.at(axis).number()}};
}

bool deals(const Split& split, int ranks) {
  return std::all_of(split.sections.begin(), split.sections.end(), [&](int64_t s) { return s % ranks == 0; });
}

Shape local_shape(const Shape& shape, const Split& split, int ranks) {
  Shape local = shape;
  local.at(split.axis) = Dim(shape[split.axis].number() / ranks);
  return local;
}

std::optional<Reshaped> through_reshape(const Shape& from_shape, const Split& split, const Shape& to_shape, int ranks) {
  const std::vector<int64_t> from = extents_of(from_shape), to = extents_of(to_shape);
  const Run run = run_of(from, split.axis, to);
  // The sections repeated for each index of the axes before, in elements.
  const int64_t before = product(from, run.from_begin, split.axis),
                behind = product(from, split.axis + 1, run.from_end);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < before; ++i)
    for (const int64_t s : split.sections) all.push_back(s * behind);
  std::optional<Reshaped> found;
  const int end = run.to_end;
  for (int k = run.to_begin; k < end; ++k) {
    const int64_t repeats = product(to, run.to_begin, k), inner = product(to, k + 1, run.to_end);
    if (to[k] == 1 || std::ssize(all) % repeats != 0) continue;
    const size_t count = all.size() / repeats;
    Reshaped one{{k, {}}, true};
    bool fits = true;
    for (size_t i = 0; i < all.size() && fits; ++i) {
      fits = all[i] == all[i % count] && all[i] % inner == 0 && all[i] / inner > 1;
      if (i >= count || !fits) continue;
      one.split.sections.push_back(all[i] / inner);
      one.divides = one.divides && all[i] / inner % ranks == 0;
    }
    fits = fits && std::accumulate(one.split.sections.begin(), one.split.sections.end(), int64_t{0}) == to[k];
    if (!fits) continue;
    if (one.divides) return one;
    if (!found) found = std::move(one);
  }
  return found;
}

std::optional<std::vector<int64_t>> sections_in(const std::vector<int64_t>& sections, int64_t start, int64_t count) {
  std::vector<int64_t> out;
  int64_t at = 0;
  for (const int64_t s : sections) {
    if (at >= start && at + s <= start + count)
      out.push_back(s);
    else if (at < start + count && at + s > start)
      return std::nullopt;
    at += s;
  }
  return out;
}

}  // namespace lumen::graph
