// Sorts letters into batch, M, N and K, merges those that lie one after another everywhere, and picks the tiled ones.
#include "kernel/synth/gemm/dot_problem.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/match/access.h"
#include "kernel/synth/step/access.h"

namespace lumen::synth {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

struct Reading {
  DotLoad load;
  std::vector<int64_t> strides;  // by axis of the value, or of the target it broadcasts to
};

Reading read_through(const Graph& g, ValueId v, const Access& access) {
  Reading r;
  const Node& source = g[access.source];
  r.load.value = v;
  r.load.source = access.source;
  r.load.offset = access.offset;
  r.load.scalar = source.type.element.scalar;
  r.load.elements = graph::elements(source.type.shape).number();
  r.strides = access.strides;
  if (graph::is_splat(source)) {
    r.load.kind = DotLoad::Kind::splat;
    r.load.splat = source.attributes.data[0];
  } else if (source.op == graph::Op::iota_) {
    r.load.kind = DotLoad::Kind::iota;
  } else if (graph::is_unpack(g, access.source)) {
    r.load.kind = DotLoad::Kind::packed;
    r.load.source = source.operands[0];
    const graph::Type& type = g[r.load.source].type;
    r.load.format = type.element.format;
    r.load.columns = type.shape.empty() ? 1 : type.shape.back().number();
    r.load.rows = r.load.elements / r.load.columns;
  } else if (source.type.element.format) {
    LUMEN_UNREACHABLE("a packed value is read without a cast");
  }
  return r;
}

bool merges(const DotIndex& outer, const DotIndex& inner) {
  if (outer.result != inner.result * inner.extent) return false;
  for (size_t i = 0; i < outer.strides.size(); ++i)
    if (outer.strides[i] != inner.strides[i] * inner.extent) return false;
  return true;
}

// Drops extents of one and joins what is laid out one after another in every operand.
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
  indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(best));
  return taken;
}

}  // namespace

int64_t DotPick::row_count() const {
  int64_t total = 1;
  for (const DotIndex& i : rows) total *= i.extent;
  return total;
}

int64_t DotProblem::outer_extent() const {
  int64_t total = 1;
  for (const DotIndex& i : outer) total *= i.extent;
  return total;
}

int64_t DotProblem::rows_of_a() const {
  return blocks ? blocks->rows : outer_extent() * m.extent;
}

DotProblem DotProblem::only_a() const {
  DotProblem p = *this;
  if (blocks) {  // one row after the other, of whatever block
    p.outer.clear();
    p.m.extent = blocks->rows;
  }
  p.loads.resize(1);
  p.pick.reset();
  p.blocks.reset();
  p.runs.reset();
  p.epilogue.clear();
  p.result = -1;
  return p;
}

int64_t DotProblem::k_total() const {
  int64_t total = k.extent;
  for (const DotIndex& i : outer_k) total *= i.extent;
  return total;
}

double DotProblem::flops() const {
  const double all = 2.0 * static_cast<double>(outer_extent()) * static_cast<double>(m.extent) *
                     static_cast<double>(n.extent) * static_cast<double>(k_total());
  if (runs) return all / static_cast<double>(pick->count);
  if (!blocks) return all;
  return all * static_cast<double>(pick->row_count()) / static_cast<double>(blocks->blocks * m.extent);
}

DotProblem normalise_dot(const graph::Plan& plan, const graph::Group& group) {
  const Graph& g = plan.graph;
  LUMEN_CHECK(group.shape == graph::KernelShape::dot && group.root >= 0 && group.results.size() == 1);
  const Node& root = g[group.root];
  const bool gathers = root.op == graph::Op::contract_gather_, scatters = root.op == graph::Op::contract_scatter_;
  LUMEN_CHECK(root.op == graph::Op::contract_ || gathers || scatters);
  DotProblem p;
  p.contract = group.root;
  p.result = group.results[0];
  const graph::Type& result_type = g[p.result].type;
  LUMEN_CHECK(result_type.shape == root.type.shape && !result_type.element.format);
  p.result_scalar = result_type.element.scalar;
  p.result_bytes = graph::byte_size(result_type);

  // Epilogue: the maps of the group, masks beside the contraction among them, and what they read besides it. Shapes
  // align at the right, so what broadcasts to a mask's shape reads the same elements when it broadcasts to the
  // result's.
  std::set<ValueId> computed{group.root};
  for (ValueId v : group.nodes)
    if (g[v].op == graph::Op::map_) {
      computed.insert(v);
      p.epilogue.push_back(v);
    }
  std::vector<Reading> readings;
  for (int side = 0; side < 2; ++side) {
    readings.push_back(read_through(g, root.operands[side], follow(plan, group, root.operands[side])));
  }
  std::map<ValueId, int> seen;
  for (ValueId map : p.epilogue)
    for (ValueId operand : g[map].operands) {
      if (computed.count(operand) || seen.count(operand)) continue;
      seen[operand] = static_cast<int>(readings.size());
      readings.push_back(read_through(g, operand, follow_to(plan, group, operand, extents_of(root.type.shape))));
    }

  const std::string& ia = root.attributes.indices[0];
  const std::string& ib = root.attributes.indices[1];
  const std::string& ir = root.attributes.indices.back();
  const std::string ii = gathers || scatters ? root.attributes.indices[2] : "";
  if (!ii.empty() || gathers || scatters) {
    p.pick = DotPick{};
    p.pick->scatters = scatters;
    p.pick->load = readings.size();
    readings.push_back(read_through(g, root.operands[2], follow(plan, group, root.operands[2])));
    readings.back().load.value = -1;  // no operand of maps
  }
  const std::vector<int64_t> dense = dense_strides_of(extents_of(root.type.shape));
  const size_t epilogue_end = p.pick ? p.pick->load : readings.size();
  auto index_of = [&](char c) {
    DotIndex index;
    index.strides.assign(readings.size(), 0);
    auto walk = [&](const std::string& text, size_t load, ValueId operand) {
      for (size_t axis = 0; axis < text.size(); ++axis)
        if (text[axis] == c) {
          index.strides[load] += readings[load].strides[axis];
          index.extent = g[operand].type.shape[axis].number();
        }
    };
    walk(ia, 0, root.operands[0]);
    walk(ib, 1, root.operands[1]);
    if (p.pick) walk(ii, p.pick->load, root.operands[2]);
    const size_t at = ir.find(c);
    if (at == std::string::npos) return index;
    index.result = dense[at];
    index.extent = root.type.shape[at].number();
    for (size_t i = 2; i < epilogue_end; ++i) index.strides[i] = readings[i].strides[at];
    return index;
  };
  std::set<char> letters(ia.begin(), ia.end());
  letters.insert(ib.begin(), ib.end());
  std::vector<DotIndex> batch, m, n, k;
  for (char c : ii) {
    letters.erase(c);
    (scatters ? p.pick->rows : batch).push_back(index_of(c));
  }
  if (gathers) {  // the picked axis is walked by no index
    letters.erase(ib[0]);
    p.pick->stride = readings[1].strides[0];
    p.pick->count = g[root.operands[1]].type.shape[0].number();
  }
  if (scatters) {
    batch.push_back(index_of(ir[0]));
    p.pick->count = batch.back().extent;
  }
  for (char c : letters) {
    const DotIndex index = index_of(c);
    const bool in_a = ia.find(c) != std::string::npos, in_b = ib.find(c) != std::string::npos;
    if (ir.find(c) == std::string::npos)
      k.push_back(index);
    else if (in_a && in_b)
      batch.push_back(index);
    else if (in_a)
      m.push_back(index);
    else
      n.push_back(index);
  }
  for (Reading& r : readings) p.loads.push_back(std::move(r.load));

  if (!scatters) batch = merge(std::move(batch), true);
  m = merge(std::move(m), true);
  n = merge(std::move(n), true);
  k = merge(std::move(k), false);
  // The vector side: where the result's neighbours are; a result without such a side prefers the longer one.
  auto unit = [](const std::vector<DotIndex>& side) {
    return std::any_of(side.begin(), side.end(), [](const DotIndex& i) { return i.result == 1; });
  };
  auto longest = [](const std::vector<DotIndex>& side) {
    int64_t e = 1;
    for (const DotIndex& i : side) e = std::max(e, i.extent);
    return e;
  };
  if (unit(m) || (!unit(n) && longest(m) > longest(n))) {
    p.swapped = true;
    std::swap(m, n);
    std::swap(p.loads[0], p.loads[1]);
    for (auto* side : {&batch, &m, &n, &k})
      for (DotIndex& i : *side) std::swap(i.strides[0], i.strides[1]);
  }
  const size_t loads = p.loads.size();
  if (gathers) p.pick->rows = batch;
  if (scatters && p.swapped)
    for (DotIndex& i : p.pick->rows) std::swap(i.strides[0], i.strides[1]);
  p.m = take_inner(m, loads, [](const DotIndex& x, const DotIndex& y) { return x.extent > y.extent; });
  p.n = take_inner(n, loads, [](const DotIndex& x, const DotIndex& y) {
    return std::pair(x.result == 1, x.extent) > std::pair(y.result == 1, y.extent);
  });
  p.k = take_inner(k, loads, [](const DotIndex& x, const DotIndex& y) {
    auto units = [](const DotIndex& i) { return (i.strides[0] == 1) + (i.strides[1] == 1); };
    if (std::min(x.extent, y.extent) < 8) return x.extent > y.extent;
    return std::pair(units(x), x.extent) > std::pair(units(y), y.extent);
  });
  p.outer = std::move(batch);
  p.outer.insert(p.outer.end(), m.begin(), m.end());
  p.outer.insert(p.outer.end(), n.begin(), n.end());
  p.outer_k = std::move(k);
  return p;
}

std::string describe(const DotProblem& p) {
  auto index = [](const DotIndex& i) { return fmt::format("{}:{}:{}", i.extent, fmt::join(i.strides, ","), i.result); };
  std::string text = fmt::format("m {} n {} k {}", index(p.m), index(p.n), index(p.k));
  for (const DotIndex& i : p.outer) text += " o " + index(i);
  for (const DotIndex& i : p.outer_k) text += " ok " + index(i);
  if (p.pick) text += fmt::format(" pick {} {} {}", p.pick->load, p.pick->stride, p.pick->count);
  for (const DotLoad& l : p.loads)
    text += fmt::format(" load {} {} {} {} {}", static_cast<int>(l.kind), scalar_name(l.scalar),
                        l.format ? l.format->hash.hex() : "", l.offset, l.splat);
  return text;
}

}  // namespace lumen::synth
