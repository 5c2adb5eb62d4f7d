// See product_schedule.h.
#include "kernel/synth/gemm/product_schedule.h"

#include <fmt/format.h>

#include <utility>

#include "base/ordinal.h"
#include "base/round_up.h"

namespace lumen::synth {
namespace {

std::string text_of(const char* name, const ProductSchedule::Operand& o) {
  constexpr const char* kPlaces[] = {"memory", "scratch", "panel", "shared", "registers"};
  constexpr const char* kBy[] = {"", " by step", " by task", " by lanes", " by product"};
  std::string text = fmt::format(", {} {}{}", name, kPlaces[ordinal(o.place)], kBy[ordinal(o.by)]);
  if (o.stages > 1) text += fmt::format(" {} stages", o.stages);
  return text;
}

}  // namespace

ProductSchedule ProductSchedule::with(const TileCut& cut, int lanes_of_vector, const DotProblem& p) const {
  ProductSchedule out = *this;
  out.TileCut::operator=(cut);
  out.outer = p.outer_extent();
  out.lanes = lanes_of_vector;
  return out;
}

ProductSchedule ProductSchedule::with(const RowsPlan& t, const DotProblem& p) const {
  ProductSchedule out = *this;
  out.height = out.last_height = t.height;
  out.vectors = out.last_vectors = t.width;
  out.n_tiles = ceil_div(p.n.extent, t.width);
  // A wave has one group.
  out.n_task = workers == Workers::waves ? 1 : t.n_task;
  out.n_tasks = workers == Workers::waves ? out.n_tiles : t.n_tasks;
  out.stage_k = p.k.extent;
  out.is_by_column = true;
  out.outer = p.outer_extent();
  out.m_task = t.slices;
  out.outer_task = t.slices;
  out.slices = p.slices / t.slices;
  return out;
}

ProductSchedule ProductSchedule::with(const Blocks& t, const DotProblem& p) const {
  ProductSchedule out = *this;
  out.outer = p.outer_extent();
  out.height = out.last_height = int(t.rows);
  out.vectors = out.last_vectors = int(t.columns);
  out.m_tiles = out.m_tasks = t.m_tiles;
  out.n_tiles = out.n_tasks = t.n_tiles;
  out.stage_k = t.stage_k;
  out.stages = t.stages;
  out.a.stages = t.a_stages;
  out.b.stages = t.b_stages;
  return out;
}

ProductSchedule ProductSchedule::with(std::string row) const {
  ProductSchedule out = *this;
  out.instruction = std::move(row);
  return out;
}

std::string ProductSchedule::text() const {
  constexpr const char* kWorkers[] = {"tasks", "waves", "blocks"};
  std::string text = fmt::format("{} {}x{}x{} of {}x{}", kWorkers[ordinal(workers)], outer / outer_task, m_tasks,
                                 n_tasks, m_task * height, n_task * columns());
  if (slices > 1) text += fmt::format(" slices {}", slices);
  if (splits > 1) text += fmt::format(" splits {}", splits);
  if (stages > 1) text += fmt::format(", stages {}x{}", stages, stage_k);
  text += fmt::format(", tile {}x{} {}", height, columns(), instruction);
  return text + text_of("a", a) + text_of("b", b) + text_of("sums", {sums, By::none, 1});
}

}  // namespace lumen::synth
