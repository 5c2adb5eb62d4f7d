// group_codes: casts into formats of one byte a number, in row-major order and transposed, absorb the map they read if
// it has no other reader, together with its producer maps and the reduction to the largest number, which recipes need
// for later steps. Fields above the element level are supplied (separate_fits), or are found in squares of the matrix.
// Proved by tests/graph/pass/group_codes.txt and tests/graph/fuse_test.cpp.
#include "graph/match/codes.h"

#include <algorithm>
#include <cstdlib>

#include "graph/fuse/extreme_chain.h"
#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// The contents of a kernel that writes codes: casts of one map, the maps that only the group reads, and the extreme of
// all their numbers.
class Codes {
 public:
  Codes(const Partition& p, ValueId map) : p_(p), g_(p.graph()), map_(map), maps_{map} {}

  // False if there are no casts or casts of several kinds, or if the map has another reader.
  bool find() {
    if (!p_.is_alone(map_) || !find_casts(map_) || casts_.empty() || casts_.size() > 2) return false;
    const auto is_transposed = [&](ValueId cast) { return byte_cast(g_, cast)->transposed; };
    if (casts_.size() == 2 && is_transposed(casts_[0]) == is_transposed(casts_[1])) return false;
    is_fitted_ = fitted_square(g_, casts_[0]) > 0;
    if (is_fitted_ && (g_[map_].operands.size() != 1 || !extreme_.empty())) return false;
    return std::ranges::all_of(casts_, [&](ValueId c) {
      return g_[c].type.element == g_[casts_[0]].type.element && (fitted_square(g_, c) > 0) == is_fitted_;
    });
  }

  // Absorbs producer maps that only the group reads, where that saves more bytes than it costs.
  void take_maps() {
    const std::vector<ValueId> extreme = extreme_;
    for (size_t k = 0; k < maps_.size() && maps_.size() < kMostMaps; ++k)
      for (const ValueId o : g_[maps_[k]].operands)
        if (may_take(o)) maps_.push_back(o);
    if (pays()) return;
    maps_ = {map_};
    extreme_ = extreme;
  }

  // Absorbs the extreme of a value that is read from memory, unless the group that computes the value can find it.
  void take_extreme() {
    if (!extreme_.empty() || is_fitted_) return;
    for (const ValueId v : maps_)
      for (const ValueId o : g_[v].operands) {
        if (is_inside(o) || !extreme_.empty() || g_[o].type.shape != g_[map_].type.shape) continue;
        for (const ValueId u : p_.users()[o]) {
          if (u < 0 || !is_near(u) || g_[u].op != Op::map_) continue;
          const std::vector<ValueId> chain = extreme_chain(p_, u, g_[map_].type.shape);
          if (chain.empty()) continue;
          const bool is_found =
              p_.cluster_of(o) >= 0 && p_.around(o).is_row_like() && row_form(g_, p_.users(), {o, chain[0], chain[1]});
          if (is_found) continue;
          extreme_ = chain;
          break;
        }
      }
  }

  bool has_more() const { return maps_.size() > 1 || !extreme_.empty(); }
  // False if the codes wait for the group's own extreme, as they do when their scale is computed from it.
  bool is_sound() const {
    const auto waits = [&](ValueId v) {
      return std::ranges::any_of(g_[v].operands, [&](ValueId o) {
        const ValueId below = read_below(g_, o);
        return below >= 0 && g_[below].op == Op::reduce_ && is_inside(below);
      });
    };
    return std::ranges::none_of(casts_, waits) && std::ranges::none_of(maps_, waits);
  }
  Form form() const { return {KernelShape::move, casts_[0]}; }
  std::vector<ValueId> nodes() const {
    std::vector<ValueId> out = casts_;
    out.insert(out.end(), maps_.begin(), maps_.end());
    out.insert(out.end(), extreme_.begin(), extreme_.end());
    return out;
  }

 private:
  static constexpr size_t kMostMaps = 16;

  bool is_near(ValueId v) const { return std::abs(v - map_) <= kFar; }
  bool is_inside(ValueId v) const {
    const auto has = [&](const std::vector<ValueId>& list) { return std::ranges::find(list, v) != list.end(); };
    return has(casts_) || has(maps_) || has(extreme_);
  }

  // Collects the casts that encode the map, of which v is a view, and its extreme; false if v has another reader.
  bool find_casts(ValueId v) {
    return std::ranges::all_of(p_.users()[v], [&](ValueId u) {
      if (u < 0) return false;
      if (is_view(g_[u].op)) return find_casts(u);
      if (v == map_ && extreme_.empty() && !(extreme_ = extreme_chain(p_, u, g_[map_].type.shape)).empty()) return true;
      const auto cast = encodable_cast(g_, u);
      if (!cast || cast->source != map_) return false;
      casts_.push_back(u);
      return true;
    });
  }

  bool may_take(ValueId o) {
    const bool is_map = g_[o].op == Op::map_ || g_[o].op == Op::random_;
    if (!is_map || p_.cluster_of(o) < 0 || g_[o].type.shape != g_[map_].type.shape) return false;
    if (!p_.is_alone(o) || is_inside(o) || !is_near(o) || !walks_as_columns(o)) return false;
    std::vector<ValueId> extreme = extreme_;
    for (const ValueId u : p_.users()[o]) {
      if (u < 0) return false;
      if (is_inside(u)) continue;
      if (!extreme.empty() && extreme[0] == u) continue;
      if (!extreme.empty() || is_fitted_ || (extreme = extreme_chain(p_, u, g_[map_].type.shape)).empty()) return false;
    }
    extreme_ = extreme;
    return true;
  }

  // The strides of all operands of o are uniform over the columns of the matrix, so that the columns stay one kernel
  // axis.
  bool walks_as_columns(ValueId o) const {
    const Shape& shape = g_[map_].type.shape;
    const ByteCast cast = *byte_cast(g_, casts_[0]);
    const int64_t columns = cast.transposed ? cast.rows : cast.columns;
    size_t first = shape.size();
    for (int64_t behind = 1; first > 0 && behind < columns;) behind *= shape[--first].number();
    return std::ranges::all_of(g_[o].operands, [&](ValueId v) {
      const auto access = affine_access(g_, v);
      if (!access) return false;
      const Shape& own = g_[v].type.shape;
      const size_t ahead = shape.size() - own.size();
      int64_t next = 0, extent = 0;  // of the next inner axis
      for (size_t d = shape.size(); d-- > first;) {
        if (shape[d] == Dim(1)) continue;
        const int64_t stride = d < ahead || own[d - ahead] == Dim(1) ? 0 : access->strides[d - ahead];
        if (extent > 0 ? stride != next * extent : stride > 1) return false;
        next = stride;
        extent = shape[d].number();
      }
      return true;
    });
  }

  // Whether a reader of v, or of a view of it, is outside the group and satisfies `what`.
  template <class What>
  bool is_read_beside(ValueId v, const What& what) const {
    return std::ranges::any_of(p_.users()[v], [&](ValueId u) {
      if (u >= 0 && is_view(g_[u].op)) return is_read_beside(u, what);
      return u < 0 ? what(u) : !is_inside(u) && what(u);
    });
  }
  // Whether a group that could be merged with the maps also reads v.
  bool is_shared(ValueId v) const {
    return is_read_beside(
        v, [&](ValueId u) { return u >= 0 && is_near(u) && p_.cluster_of(u) >= 0 && p_.around(u).is_row_like(); });
  }
  bool is_read_elsewhere(ValueId v) const {
    return is_read_beside(v, [](ValueId) { return true; });
  }

  // Compares the bytes of intermediates that fusion saves with the bytes it reads again and writes only for that. A map
  // that follows a reduction of its rows stays with the reduction, and on a tie with its producer maps: those have its
  // numbers in registers and find extremes of them for free.
  bool pays() const {
    int64_t saved = 0, spent = 0;
    std::vector<ValueId> seen;
    const Shape& shape = g_[map_].type.shape;
    for (const ValueId o : g_[map_].operands)
      if (is_inside(o)) saved += 2 * byte_size(g_[o].type);
    for (const ValueId v : maps_)
      for (const ValueId o : g_[v].operands) {
        const ValueId below = is_inside(o) ? -1 : read_below(g_, o);
        if (below < 0 || std::ranges::find(seen, below) != seen.end()) continue;
        seen.push_back(below);
        const bool joins = p_.cluster_of(below) >= 0 && p_.around(below).is_row_like();
        const Dim number = elements(g_[below].type.shape);
        const int64_t bytes = byte_size(g_[below].type);
        if (number == elements(shape)) {
          if (joins) spent += (is_read_elsewhere(below) ? bytes : 2 * bytes) + 1;
          if (!joins && is_shared(below)) spent += bytes;
        } else if (joins && number != Dim(1) && g_[o].type.shape.back() == Dim(1)) {
          return false;
        }
      }
    return spent <= saved;
  }

  const Partition& p_;
  const Graph& g_;
  ValueId map_;
  std::vector<ValueId> casts_, maps_, extreme_;
  bool is_fitted_ = false;
};

// A map that is read only by casts into bytes, in row-major order or transposed, joins them.
void grow_codes(Partition& p, ValueId map) {
  Codes codes(p, map);
  if (!codes.find()) return;
  Codes more = codes;
  more.take_maps();
  more.take_extreme();
  if (more.has_more() && more.is_sound() && p.attempt(more.nodes(), more.form())) return;
  // The extreme may be what the codes' scale is computed from.
  if (!codes.has_more()) p.attempt(codes.nodes(), codes.form());
}

}  // namespace

void group_codes(Partition& p) {
  for (ValueId v = 0; v < std::ssize(p.graph().nodes); ++v) {
    if (p.graph()[v].op == Op::map_) grow_codes(p, v);
  }
}

}  // namespace lumen::graph
