// Windows with stride s read the elements of an axis in turns: elements with one residue modulo s are read only by
// every s-th element of a window. So the gradient of an axis is a window of stride 1 over the gradient of the windows
// for each of the s classes, and none multiplies inserted zeros. Private to grad. Proved by
// tests/graph/grad/phases_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

// An axis of the operand of windows: an index that strides along it.
struct Movement {
  int index = -1;  // of the result
  int64_t stride = 0;
};
struct Axis {
  int64_t start = 0;
  Movement main;                      // index -1: read at one position
  std::vector<Movement> inside;       // of a window
  int64_t end(const Shape& to) const  // extent of a window minus 1
  {
    int64_t way = 0;
    for (const Movement& w : inside) way += w.stride * (to[w.index].number() - 1);
    return way;
  }
};
// By axis of the operand; no index strides along two of them (has_diagonal).
std::vector<std::vector<Movement>> movements_of(const Node& windows);
bool has_diagonal(const std::vector<std::vector<Movement>>& movements);

// For each window that meets an element of an axis, and each class of elements: the index of the element in the window;
// -1: none. Without classes (1) windows are in order of the element's index, from the last to the first.
struct Taps {
  int64_t count = 1, classes = 1;
  std::vector<int64_t> element;  // [count, classes]
  bool has_none() const;
};
Taps backwards(int64_t count);

// Element l of an axis is number r of place q where l + shift = stride q + r, and is read by the windows
// q + first + step t with 0 <= t < taps.count.
struct Phases {
  int64_t stride = 1, shift = 0, places = 0, first = 0, step = 1;
  Taps taps;
};
// An axis of `extent` elements of which windows read start + stride m + d i, i < count. nullopt where tables of s x
// count numbers would be too large, or no window reads any element.
std::optional<Phases> phases_of(int64_t start, int64_t stride, int64_t d, int64_t count, int64_t extent);
// The same if it multiplies less than a window over the gradient with inserted zeros: requires one index inside of a
// window, a stride, and numeric extents. With dilation, windows of a class can be unevenly spaced, so that most taps
// would be none.
std::optional<Phases> lean_phases(const Axis& axis, int64_t start, const Shape& to, const Dim& extent);

// v [elements of windows.., between.., rest..] as [taps.., between.., classes.., rest..], zeros where there is none.
// One of `taps` for each leading axis; classes of 1 have no axis.
ValueId by_taps(Builder& b, ValueId v, const std::vector<Taps>& taps, size_t between);

// The padding and slicing of an axis of v that counts windows: window number k of `to` is at k * step.
struct Placed {
  int64_t begin = 0;   // of place 0, within the padded axis
  int64_t start = 0;   // of v's first
  int64_t extent = 0;  // of the padded axis
};
Placed placed_windows(const Phases& p, int64_t windows);

}  // namespace lumen::graph
