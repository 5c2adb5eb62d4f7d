// Sorts letters into batch, M, N and K, merges those that are contiguous in every operand, and picks the tiled ones.
#include "graph/group/dot.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "graph/group/access.h"
#include "graph/match/codes.h"
#include "graph/match/sign.h"
#include "graph/match/uses.h"

namespace lumen::graph {
namespace {

struct Reading {
  DotSource load;
  std::vector<int64_t> strides;  // by axis of the value, or of the target it broadcasts to
};

Reading read_through(const Graph& g, ValueId v, const Access& access) {
  Reading r;
  const Node& source = g[access.source];
  r.load.value = v;
  r.load.source = access.source;
  r.load.offset = access.offset;
  r.load.scalar = source.type.element.scalar;
  r.load.elements = elements(source.type.shape).number();
  r.strides = access.strides;
  if (is_splat(source)) {
    r.load.kind = DotSource::Kind::splat;
    r.load.splat = source.attributes.data[0];
  } else if (source.op == Op::iota_) {
    r.load.kind = DotSource::Kind::iota;
  } else if (is_unpack(g, access.source)) {
    r.load.kind = DotSource::Kind::packed;
    r.load.source = source.operands[0];
    const Type& type = g[r.load.source].type;
    r.load.format = type.element.format;
    r.load.columns = type.shape.empty() ? 1 : type.shape.back().number();
    r.load.rows = r.load.elements / r.load.columns;
  } else if (source.type.element.format) {
    LUMEN_UNREACHABLE("a packed value is read without a cast");
  }
  return r;
}

// The position of a pad's operand within the padded value.
DotZeros zeros_of(const Plan& plan, const Group& group, ValueId pad) {
  const Graph& g = plan.graph;
  const Node& node = g[pad];
  const Access image = follow(plan, group, node.operands[0]);
  const std::vector<int64_t> whole = extents_of(node.type.shape), inner = extents_of(g[node.operands[0]].type.shape);
  const std::vector<int64_t> strides = dense_strides_of(whole);
  DotZeros out{pad, image.source, image.offset, elements(g[image.source].type.shape).number(), {}};
  for (size_t d = 0; d < whole.size(); ++d) {
    const PaddedAxis axis{whole[d], strides[d], image.strides[d], node.attributes.starts[d], inner[d]};
    if (axis.extent == 1) continue;
    if (!out.axes.empty() && !axis.has_zeros() && !out.axes.back().has_zeros() &&
        out.axes.back().image_stride == axis.image_stride * axis.extent) {
      const int64_t extent = out.axes.back().extent * axis.extent;
      out.axes.back() = {extent, axis.stride, axis.image_stride, 0, extent};
    } else {
      out.axes.push_back(axis);
    }
  }
  return out;
}

bool merges(const DotIndex& outer, const DotIndex& inner) {
  if (outer.result != inner.result * inner.extent) return false;
  for (size_t i = 0; i < outer.strides.size(); ++i)
    if (outer.strides[i] != inner.strides[i] * inner.extent) return false;
  return true;
}

// Drops indices of extent 1 and merges those that are contiguous in every operand.
std::vector<DotIndex> merge(std::vector<DotIndex> indices, bool by_result) {
  std::erase_if(indices, [](const DotIndex& i) { return i.extent == 1; });
  std::stable_sort(indices.begin(), indices.end(), [&](const DotIndex& x, const DotIndex& y) {
    if (by_result) return x.result > y.result;
    return std::pair(x.strides[0] + x.strides[1], x.extent) > std::pair(y.strides[0] + y.strides[1], y.extent);
  });
  std::vector<DotIndex> out;
  for (DotIndex& i : indices) {
    if (!out.empty() && merges(out.back(), i)) {
      i.extent *= out.back().extent;
      out.back() = std::move(i);
    } else {
      out.push_back(std::move(i));
    }
  }
  return out;
}

// Takes the best index out as the tiled one; `better` compares.
template <typename Better>
DotIndex take_inner(std::vector<DotIndex>& indices, size_t loads, Better better) {
  DotIndex unit;
  unit.strides.assign(loads, 0);
  if (indices.empty()) return unit;
  size_t best = 0;
  for (size_t i = 1; i < indices.size(); ++i)
    if (better(indices[i], indices[best])) best = i;
  DotIndex taken = indices[best];
  indices.erase(indices.begin() + best);
  return taken;
}

// The values a group reads, an index for every letter, and the assignment of letters to m, n and k.
class DotReader {
 public:
  DotReader(const Plan& plan, const Group& group) : plan_(plan), group_(group), g_(plan.graph), root_(g_[group.root]) {}

  DotGroup dot() {
    p_.contract = group_.root;
    p_.sum = is_float(root_.type.element.scalar) ? Scalar::f32 : root_.type.element.scalar;
    for (const ValueId v : group_.results) add_result(v);
    read();
    sort_letters();
    for (Reading& r : readings_) p_.sources.push_back(std::move(r.load));
    if (!scatters_) batch_ = merge(std::move(batch_), true);
    m_ = merge(std::move(m_), true);
    n_ = merge(std::move(n_), true);
    k_ = merge(std::move(k_), false);
    put_vectors_on_n();
    take_inner_indices();
    return std::move(p_);
  }

 private:
  void add_result(ValueId v) {
    const Type& type = g_[v].type;
    if (g_[v].op == Op::reduce_) {
      ValueId of = v;
      while (g_[of].op == Op::reduce_) of = g_[of].operands[0];
      p_.extremes.push_back({v, of});
    } else if (const auto cast = byte_cast(g_, v)) {
      auto codes = std::ranges::find(p_.codes, cast->source, &DotCodes::map);
      if (codes == p_.codes.end()) codes = p_.codes.insert(codes, {cast->source});
      (cast->transposed ? codes->transposed : codes->straight) = v;
    } else {
      LUMEN_CHECK(p_.result < 0 && type.shape == root_.type.shape && !type.element.format);
      p_.result = v;
      p_.result_scalar = type.element.scalar;
      p_.result_bytes = byte_size(type);
    }
  }

  // Operands, then the values the epilogue reads in addition to the contraction: operands of the group's maps,
  // including masks that do not read the contraction. Shapes align at the right, so a value that broadcasts to a mask's
  // shape reads the same elements when it broadcasts to the result's.
  void read() {
    std::set<ValueId> computed{group_.root};
    for (ValueId v : group_.nodes)
      if (g_[v].op == Op::map_) {
        computed.insert(v);
        p_.epilogue.push_back(v);
      }
    for (int side = 0; side < 2; ++side) {
      readings_.push_back(read_through(g_, root_.operands[side], follow(plan_, group_, root_.operands[side])));
      DotSource& load = readings_.back().load;
      if (g_[load.source].op == Op::pad_ && !reads_memory(group_, load.source))
        load.zeros = zeros_of(plan_, group_, load.source);
    }
    std::set<ValueId> seen;
    for (ValueId map : p_.epilogue)
      for (ValueId operand : g_[map].operands) {
        if (computed.count(operand) || !seen.insert(operand).second) continue;
        readings_.push_back(read_through(g_, operand, follow_to(plan_, group_, operand, extents_of(root_.type.shape))));
      }
    if (!picks()) return;
    p_.pick = DotPick{};
    p_.pick->scatters = scatters_;
    p_.pick->some = !is_never_negative(g_, root_.operands[2]);
    p_.pick->load = readings_.size();
    readings_.push_back(read_through(g_, root_.operands[2], follow(plan_, group_, root_.operands[2])));
    readings_.back().load.value = -1;  // not an operand of maps
  }

  DotIndex index_of(char c) const {
    DotIndex index;
    index.strides.assign(readings_.size(), 0);
    const auto walk = [&](const std::string& text, size_t load, ValueId operand) {
      for (size_t axis = 0; axis < text.size(); ++axis)
        if (text[axis] == c) {
          index.strides[load] += readings_[load].strides[axis];
          index.extent = g_[operand].type.shape[axis].number();
        }
    };
    walk(letters(0), 0, root_.operands[0]);
    walk(letters(1), 1, root_.operands[1]);
    if (p_.pick) walk(letters(2), p_.pick->load, root_.operands[2]);
    const std::string& result = root_.attributes.indices.back();
    const size_t at = result.find(c);
    if (at == std::string::npos) return index;
    index.result = dense_strides_of(extents_of(root_.type.shape))[at];
    index.extent = root_.type.shape[at].number();
    const size_t epilogue_end = p_.pick ? p_.pick->load : readings_.size();
    for (size_t i = 2; i < epilogue_end; ++i) index.strides[i] = readings_[i].strides[at];
    return index;
  }

  void sort_letters() {
    const std::string &a = letters(0), &b = letters(1), &result = root_.attributes.indices.back();
    std::set<char> left(a.begin(), a.end());
    left.insert(b.begin(), b.end());
    if (picks())
      for (const char c : letters(2)) {
        left.erase(c);
        (scatters_ ? p_.pick->rows : batch_).push_back(index_of(c));
      }
    if (gathers_) {  // no index runs over the gathered axis
      left.erase(b[0]);
      p_.pick->stride = readings_[1].strides[0];
      p_.pick->count = g_[root_.operands[1]].type.shape[0].number();
    }
    if (scatters_) {
      batch_.push_back(index_of(result[0]));
      p_.pick->count = batch_.back().extent;
    }
    for (const char c : left) {
      const bool in_a = a.find(c) != std::string::npos, in_b = b.find(c) != std::string::npos;
      const bool summed = result.find(c) == std::string::npos;
      (summed ? k_ : in_a && in_b ? batch_ : in_a ? m_ : n_).push_back(index_of(c));
    }
  }

  // The vector side is the one that is contiguous in the result; if neither side is, the longer one.
  void put_vectors_on_n() {
    const auto unit = [](const std::vector<DotIndex>& side) {
      return std::any_of(side.begin(), side.end(), [](const DotIndex& i) { return i.result == 1; });
    };
    const auto longest = [](const std::vector<DotIndex>& side) {
      int64_t e = 1;
      for (const DotIndex& i : side) e = std::max(e, i.extent);
      return e;
    };
    if (unit(m_) || (!unit(n_) && longest(m_) > longest(n_))) {
      p_.swapped = true;
      std::swap(m_, n_);
      std::swap(p_.sources[0], p_.sources[1]);
      for (auto* side : {&batch_, &m_, &n_, &k_})
        for (DotIndex& i : *side) std::swap(i.strides[0], i.strides[1]);
    }
    if (gathers_) p_.pick->rows = batch_;
    if (scatters_ && p_.swapped)
      for (DotIndex& i : p_.pick->rows) std::swap(i.strides[0], i.strides[1]);
  }

  void take_inner_indices() {
    const size_t loads = p_.sources.size();
    p_.m = take_inner(m_, loads, [](const DotIndex& x, const DotIndex& y) { return x.extent > y.extent; });
    p_.n = take_inner(n_, loads, [](const DotIndex& x, const DotIndex& y) {
      return std::pair(x.result == 1, x.extent) > std::pair(y.result == 1, y.extent);
    });
    // Among equals, integers that are contiguous in memory go first: dot instructions take adjacent elements.
    const bool in_runs = !is_float(p_.sum);
    p_.k = take_inner(k_, loads, [in_runs](const DotIndex& x, const DotIndex& y) {
      const auto units = [](const DotIndex& i) { return (i.strides[0] == 1) + (i.strides[1] == 1); };
      // Neighbours along K are close in both operands, so that not every element touches another page.
      const auto reach = [](const DotIndex& i) { return std::max(i.strides[0], i.strides[1]); };
      const bool alike = in_runs && x.extent == y.extent;
      if (std::min(x.extent, y.extent) < 8 && !alike) return x.extent > y.extent;
      if (units(x) == 0 && units(y) == 0 && reach(x) != reach(y)) return reach(x) < reach(y);
      return std::pair(units(x), x.extent) > std::pair(units(y), y.extent);
    });
    p_.outer = std::move(batch_);
    p_.outer.insert(p_.outer.end(), m_.begin(), m_.end());
    p_.outer.insert(p_.outer.end(), n_.begin(), n_.end());
    p_.outer_k = std::move(k_);
  }

  bool picks() const { return gathers_ || scatters_; }
  const std::string& letters(size_t operand) const { return root_.attributes.indices[operand]; }

  const Plan& plan_;
  const Group& group_;
  const Graph& g_;
  const Node& root_;
  const bool gathers_ = root_.op == Op::contract_gather_, scatters_ = root_.op == Op::contract_scatter_;
  DotGroup p_;
  std::vector<Reading> readings_;
  std::vector<DotIndex> batch_, m_, n_, k_;
};

}  // namespace

int64_t count_of(const std::vector<DotIndex>& indices) {
  int64_t total = 1;
  for (const DotIndex& i : indices) total *= i.extent;
  return total;
}

DotGroup read_dot(const Plan& plan, const Group& group) {
  LUMEN_CHECK(group.shape == KernelShape::dot && group.root >= 0 && !group.results.empty());
  LUMEN_CHECK(is_product(plan.graph[group.root].op));
  DotGroup out = DotReader(plan, group).dot();
  LUMEN_CHECK(out.result >= 0 || !out.codes.empty(), "a product without a result");
  return out;
}

}  // namespace lumen::graph
