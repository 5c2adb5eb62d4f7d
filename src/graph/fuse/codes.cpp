// group_codes: casts into formats of one byte a number, as values lie and transposed, take in the map of those values
// where nothing else reads it, with the maps below and the largest of all their numbers, which recipes want for later
// steps. What formats have above the numbers is at hand (separate_fits), or is found in squares of the matrix. Proved
// by tests/graph/pass/group_codes.txt and tests/graph/fuse_test.cpp.
#include "graph/match/codes.h"

#include <algorithm>
#include <cstdlib>

#include "graph/fuse/extreme_chain.h"
#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// What a kernel that writes codes would do: casts of one map, the maps that nothing else reads, and the extreme of all
// their numbers.
class Codes {
 public:
  Codes(const Partition& p, ValueId map) : p_(p), g_(p.graph()), map_(map), maps_{map} {}

  // False where casts are none or of several kinds, or something else reads the map.
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

  // Takes in the maps below that nothing else reads, where that saves more bytes than it costs.
  void take_maps() {
    const std::vector<ValueId> extreme = extreme_;
    for (size_t k = 0; k < maps_.size() && maps_.size() < kMostMaps; ++k)
      for (const ValueId o : g_[maps_[k]].operands)
        if (may_take(o)) maps_.push_back(o);
    if (pays()) return;
    maps_ = {map_};
    extreme_ = extreme;
  }

  // Takes in the extreme of what is read from memory, unless what computes it finds that on its way.
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
  // Whether codes do not wait for their own extreme, as they do where their scale is made of it.
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

  // The casts that encode the map, of which v is a view, and its extreme; false where something else reads v.
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

  // All that o reads goes on evenly over the columns of the matrix, so that they stay one axis of the kernel.
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
      int64_t next = 0, extent = 0;  // of the axis behind
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

  // Whether one of those that read v, or a view of it, is none of ours and passes `what`.
  template <class What>
  bool is_read_beside(ValueId v, const What& what) const {
    return std::ranges::any_of(p_.users()[v], [&](ValueId u) {
      if (u >= 0 && is_view(g_[u].op)) return is_read_beside(u, what);
      return u < 0 ? what(u) : !is_inside(u) && what(u);
    });
  }
  // Something would be one kernel with the maps, and reads v as well.
  bool is_shared(ValueId v) const {
    return is_read_beside(
        v, [&](ValueId u) { return u >= 0 && is_near(u) && p_.cluster_of(u) >= 0 && p_.around(u).is_row_like(); });
  }
  bool is_read_elsewhere(ValueId v) const {
    return is_read_beside(v, [](ValueId) { return true; });
  }

  // What maps write and casts read again, against what is read once more by them, and written for them alone. Maps
  // behind a reduction of their rows stay with it, and where it is all the same with the maps below: those have their
  // numbers at hand, and find extremes of them for nothing.
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

// A map that casts into bytes alone read, as it lies or transposed, joins them.
void grow_codes(Partition& p, ValueId map) {
  Codes codes(p, map);
  if (!codes.find()) return;
  Codes more = codes;
  more.take_maps();
  more.take_extreme();
  if (more.has_more() && more.is_sound() && p.attempt(more.nodes(), more.form())) return;
  // Its extreme may be what the codes' scale is made of.
  if (!codes.has_more()) p.attempt(codes.nodes(), codes.form());
}

}  // namespace

void group_codes(Partition& p) {
  for (ValueId v = 0; v < std::ssize(p.graph().nodes); ++v) {
    if (p.graph()[v].op == Op::map_) grow_codes(p, v);
  }
}

}  // namespace lumen::graph
