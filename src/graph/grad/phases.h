// Windows that move by a stride s read the elements of an axis by turns: those of one residue of s are met by every
// s-th element of a window alone. So the gradient of an axis is a window of stride 1 over the gradient of the windows
// for each of the s classes, none of which multiplies a zero between. Inside of grad. Proved by
// tests/graph/grad/phases_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

// An axis of the operand of windows: what moves along it.
struct Movement {
  int index = -1;  // of the result
  int64_t stride = 0;
};
struct Axis {
  int64_t start = 0;
  Movement main;                      // index -1: read at one place
  std::vector<Movement> inside;       // of a window
  int64_t end(const Shape& to) const  // how far a window reaches
  {
    int64_t way = 0;
    for (const Movement& w : inside) way += w.stride * (to[w.index].number() - 1);
    return way;
  }
};
// By axis of the operand; no index walks along two of them (has_diagonal).
std::vector<std::vector<Movement>> movements_of(const Node& windows);
bool has_diagonal(const std::vector<std::vector<Movement>>& movements);

// For each window that meets an element of an axis, and each class of elements: which element of the window it is; -1:
// none. Without classes (1) windows are met one after another, from the last of their elements to the first.
struct Taps {
  int64_t count = 1, classes = 1;
  std::vector<int64_t> element;  // [count, classes]
  bool has_none() const;
};
Taps backwards(int64_t count);

// Element l of an axis is number r of place q where l + shift = stride q + r, and is met by the windows
// q + first + step t with 0 <= t < taps.count.
struct Phases {
  int64_t stride = 1, shift = 0, places = 0, first = 0, step = 1;
  Taps taps;
};
// An axis of `extent` elements of which windows read  start + stride m + d i, i < count. Nothing where tables of s x
// count numbers would be no small thing, or no window meets any.
std::optional<Phases> phases_of(int64_t start, int64_t stride, int64_t d, int64_t count, int64_t extent);
// The same where it multiplies less than a window over the gradient with zeros between its elements does: one index
// inside of a window, a stride, extents that are numbers. Elements of a window that lie apart can leave classes with
// windows that are not the same number of places away, of which most would be none.
std::optional<Phases> lean_phases(const Axis& axis, int64_t start, const Shape& to, const Dim& extent);

// v [elements of windows.., between.., rest..] as [taps.., between.., classes.., rest..], zeros where there is none.
// One of `taps` for each of the first axes; classes of 1 have no axis.
ValueId by_taps(Builder& b, ValueId v, const std::vector<Taps>& taps, size_t between);

// One axis of v that windows are counted along, with zeros around, as they are asked for: number k of `to` is at k
// step.
struct Placed {
  int64_t begin = 0;   // of place 0, within what was padded
  int64_t start = 0;   // of v's first
  int64_t extent = 0;  // of what was padded
};
Placed placed_windows(const Phases& p, int64_t windows);

}  // namespace lumen::graph
