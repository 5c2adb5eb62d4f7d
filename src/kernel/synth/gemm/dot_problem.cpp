#include "kernel/synth/gemm/dot_problem.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lumen::synth {

namespace {

// One index over all of `indices`, slowest first.
DotIndex joined_index(const std::vector<DotIndex>& indices) {
  DotIndex out = indices.back();
  const auto stride = [&](const auto& of) {
    int64_t extent = 1;
    for (size_t d = indices.size(); d-- > 0; extent *= indices[d].extent)
      if (of(indices[d]) != of(indices.back()) * extent) return int64_t{0};
    return of(indices.back());
  };
  for (size_t load = 0; load < out.strides.size(); ++load)
    out.strides[load] = stride([&](const DotIndex& i) { return i.strides[load]; });
  out.result = stride([](const DotIndex& i) { return i.result; });
  out.extent = graph::count_of(indices);
  return out;
}

}  // namespace

DotProblem normalise_dot(const graph::Plan& plan, const graph::Group& group) {
  const graph::DotGroup dot = graph::read_dot(plan, group);
  DotProblem p{dot, {}, {}, {}};
  if (!p.codes.empty()) p.encoded = {&plan, &group};
  for (const graph::DotSource& source : dot.sources) p.loads.push_back({source, -1, {}});
  return p;
}

DotProblem DotProblem::only_a() const {
  DotProblem p = *this;
  if (blocks) {  // the rows in order, regardless of blocks
    p.outer.clear();
    p.m.extent = blocks->rows;
  }
  p.loads.resize(1);
  p.pick.reset();
  p.blocks.reset();
  p.runs.reset();
  p.epilogue.clear();
  p.codes.clear();
  p.extremes.clear();
  p.row_scales.clear();
  p.run_scales = {};
  p.result = -1;
  return p;
}

void DotProblem::swap_operands() {
  std::swap(m, n);
  std::swap(loads[0], loads[1]);
  swapped = !swapped;
  for (auto* indices : {&outer, &outer_k})
    for (DotIndex& i : *indices) std::swap(i.strides[0], i.strides[1]);
  for (DotIndex* i : {&m, &n, &k}) std::swap(i->strides[0], i->strides[1]);
}

bool DotProblem::reads_zeros() const {
  return std::ranges::any_of(loads, [](const DotLoad& l) { return l.zeros.has_value(); });
}

bool DotProblem::is_plain() const {
  return !pick && !blocks && !runs && row_scales.empty() && !adds_runs();
}

DotProblem DotProblem::with_near_rows() const {
  constexpr int64_t kPage = 4096, kRows = 14;  // bytes; rows of a register tile
  DotProblem p = *this;
  if (!is_plain() || (!are_whole() && m.strides[0] * 4 < kPage)) return p;
  const int64_t rows = are_whole() ? std::min(kRows, m.extent) : kRows;
  for (DotIndex& i : p.outer)
    if (i.extent >= rows && i.strides[1] == 0 && i.strides[0] > 0 && i.strides[0] < p.m.strides[0]) std::swap(i, p.m);
  return p;
}

DotProblem DotProblem::with_sharing_last() const {
  DotProblem p = *this;
  if (is_plain())
    std::stable_partition(p.outer.begin(), p.outer.end(), [](const DotIndex& i) { return i.strides[1] != 0; });
  return p;
}

DotProblem DotProblem::in_slices() const {
  constexpr int64_t kMost = 4;  // rows whose sums stay in registers
  DotProblem p = *this;
  int64_t rows = std::min(kMost, m.extent);
  while (m.extent % rows != 0) --rows;
  if (rows == m.extent) return p;
  DotIndex count{m.extent / rows, m.strides, m.result * rows};
  for (int64_t& stride : count.strides) stride *= rows;
  p.m.extent = rows;
  p.outer.push_back(count);
  p.slices = count.extent;
  return p;
}

std::optional<DotProblem> DotProblem::along_batch() const {
  if (!is_plain() || (m.extent > 1 && n.extent > 1)) return {};
  DotProblem p = *this;
  if (n.extent > 1) p.swap_operands();
  const auto batch = [&] {
    return std::find_if(p.outer.begin(), p.outer.end(),
                        [](const DotIndex& i) { return i.extent > 1 && i.strides[0] == 1 && i.strides[1] != 0; });
  };
  if (batch() == p.outer.end() && m.extent == 1 && n.extent == 1) p.swap_operands();
  if (batch() == p.outer.end()) return {};
  p.n = *batch();
  p.outer.erase(batch());
  // Rows of a tile are those that are adjacent in a.
  for (DotIndex& i : p.outer)
    if (i.extent > 1 && i.strides[1] == 0 && (p.m.extent == 1 || i.strides[0] < p.m.strides[0])) std::swap(i, p.m);
  return p;
}

std::optional<DotProblem> DotProblem::with_joint_m() const {
  constexpr int64_t kMost = int64_t{1} << 30;  // row numbers are computed in 32 bits
  if (!is_plain() || is_along_batch() || !joint_m.empty()) return {};
  DotProblem p = *this;
  p.joint_m = {m};
  std::erase_if(p.outer, [&](const DotIndex& i) {
    const bool joins = i.strides[1] == 0 && i.strides[0] != 0;
    if (joins) p.joint_m.push_back(i);
    return joins;
  });
  std::stable_sort(p.joint_m.begin(), p.joint_m.end(),
                   [](const DotIndex& x, const DotIndex& y) { return x.result > y.result; });
  std::erase_if(p.joint_m, [](const DotIndex& i) { return i.extent == 1; });
  p.m = p.joint_m.empty() ? m : joined_index(p.joint_m);
  if (p.joint_m.size() < 2 || p.m.extent >= kMost) return {};
  return p;
}

std::optional<DotProblem> DotProblem::with_joint_k() const {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (!is_plain() || is_along_batch() || !joint_k.empty() || outer_k.empty() || k_total() >= kMost) return {};
  DotProblem p = *this;
  p.joint_k = outer_k;
  p.joint_k.push_back(k);
  std::stable_sort(p.joint_k.begin(), p.joint_k.end(), [](const DotIndex& x, const DotIndex& y) {
    return x.strides[0] + x.strides[1] > y.strides[0] + y.strides[1];
  });
  p.outer_k.clear();
  p.k = joined_index(p.joint_k);
  return p;
}

int64_t DotProblem::run_k() const {
  int64_t run = 0;
  for (const auto& scales : run_scales)
    if (scales) run = std::gcd(run, scales->run);
  return run;
}

double DotProblem::flops() const {
  const double numbers = word > 1 ? k_numbers * count_of(outer_k) : k_total();
  const double all = 2.0 * outer_extent() * m.extent * n.extent * numbers;
  if (runs) return all / pick->count;
  if (!blocks) return all;
  return all * pick->row_count() / (blocks->blocks * m.extent);
}

}  // namespace lumen::synth
