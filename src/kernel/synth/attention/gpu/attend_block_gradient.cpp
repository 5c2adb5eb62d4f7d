// The gradient of an attention by blocks of lanes, in two kernels: one owns tiles of rows and walks keys, for the
// results that are sums over keys; one owns tiles of keys and walks rows, for those over rows. Both compute the scores
// anew, so every sum is one block's and its order is fixed. A tile:
//
//   panels of the streamed operands;  both products;  the maps, in the lanes' registers;  those that results read go
//   to panels;  panels of the streamed operands, transposed;  the results
//
// Numbers: factors are rounded to the plan's type (including the maps that results read), everything else is f32.
// Proved by tests/kernel/synth/attention/synth_attend_block_test.cpp.
#include "kernel/synth/attention/gpu/attend_block_gradient.h"

namespace lumen::synth {

GradientBlock::GradientBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                             const AttentionGradient& a, bool over_keys, const std::vector<LaidOperand>& laid)
    : AttendBlock(plan, target, a.extents, a.row_axes),
      group_(group),
      a_(a),
      over_keys_(over_keys),
      laid_operands_(laid) {
  nothing_.inputs = group.inputs;
  for (const AttentionGradient::Result& r : a.results) {
    if (r.over_keys != over_keys) continue;
    results_.push_back(&r);
    if (std::find(sources_.begin(), sources_.end(), r.source) == sources_.end()) sources_.push_back(r.source);
  }
  for (const AttentionGradient::Product& p : a.products) {
    note(&stationary_, stationary_of(p));
    note(&streamed_, streamed_of(p));
  }
  for (const auto* r : results_) note(&transposed_, r->operand);
}

// Finds the plan; false if there is none.
bool GradientBlock::plan(Scalar products) {
  AttendProblem problem;
  problem.stationary = count(!over_keys_);
  problem.streamed = count(over_keys_);
  problem.heads = heads();
  for (const int o : stationary_) problem.stationary_widths.push_back(operand(o).width);
  for (const int o : streamed_) problem.streamed_widths.push_back(operand(o).width);
  for (const auto* r : results_) problem.results.push_back(operand(r->operand).width);
  problem.products = a_.products.size();
  problem.sources = sources_.size();
  for (const AttentionGradient::Operand& o : a_.operands)
    if (o.width == 1) return false;
  std::optional<AttendPlan> found;
  if (!laid_operands_.empty() && find_order()) found = plan_attend_pipelined(target_, products, problem);
  // Such a plan needs results to read the panels of products.
  const bool all_streamed =
      std::ranges::all_of(transposed_, [&](int o) { return place(streamed_, o) < streamed_.size(); });
  if (!found && !laid_operands_.empty() && all_streamed) found = plan_attend_copied(target_, products, problem);
  if (!found) found = plan_attend(target_, products, problem);
  if (found) tiles_ = *found;
  return found.has_value();
}

// Adds preceding steps that only this kernel needs.
void GradientBlock::prepare(Synthesis& out) {
  if (!tiles_.copied()) return;
  if (!over_keys_ || tiles_.copies) row_numbers_ = row_numbers(plan_, group_, a_);
  for (RowNumber& n : row_numbers_) {
    if (!n.divides || over_keys_) continue;
    n.scratch = out.scratch.size();
    out.steps.push_back(write_reciprocals(plan_, n.access, extents_, n.scratch, &n.access));
    out.scratch.push_back(n.count(extents_) * 4);
  }
}

Step GradientBlock::run() {
  for (const graph::ValueId v : group_.inputs) builder_.value(v, false);
  for (const auto* r : results_) builder_.value(r->value, true);
  for (RowNumber& n : row_numbers_)
    n.source = n.scratch < 0 ? builder_.value(n.access.source, false)
                             : builder_.scratch(n.scratch, n.count(extents_) * 4, false);
  if (tiles_.copied())
    for (size_t k = 0; k < laid_operands_.size(); ++k)
      laid_.push_back(declare(laid_operands_[k], a_.operands[k].by_key));
  const std::vector<bool> apart(extents_.size() + 1, true);
  std::vector<Body*> bodies;
  for (const AttentionGradient::Operand& o : a_.operands) {
    std::vector<int64_t> space = extents_;
    space.push_back(o.width);
    operands_.push_back(std::make_unique<Body>(builder_, plan_, nothing_, space, apart,
                                               std::map<graph::ValueId, Access>{{o.value, o.access}}));
    bodies.push_back(operands_.back().get());
  }
  for (const auto* r : results_) {
    std::vector<int64_t> space = extents_;
    space.push_back(operand(r->operand).width);
    written_.push_back(std::make_unique<Body>(builder_, plan_, nothing_, space, apart,
                                              std::map<graph::ValueId, Access>{},
                                              std::map<graph::ValueId, Access>{{r->value, r->access}}));
    bodies.push_back(written_.back().get());
  }
  map_ = std::make_unique<Body>(builder_, plan_, group_, extents_, apart);
  ranges_ = std::make_unique<Body>(builder_, plan_, group_, extents_, apart);
  if (tiles_.copied() && a_.range) {
    shown_plan_ = a_.range->without_mask();
    shown_ = std::make_unique<Body>(builder_, *shown_plan_, group_, extents_, apart);
    bodies.push_back(shown_.get());
  }
  for (Body* map : {map_.get(), shown_.get()})
    if (map && !over_keys_ && !row_axes_.empty()) map->set_vector_axis(axis_of(*map, row_axes_.back()));
  bodies.push_back(map_.get());
  bodies.push_back(ranges_.get());
  const int64_t tiles = (count(!over_keys_) + tiles_.stationary - 1) / tiles_.stationary;
  // Later rows see more under most masks, earlier keys are seen more: their blocks begin first.
  const auto of_tile = [&](Expr, Expr tile, Expr) { block(over_keys_ ? tiles - 1 - tile : tile); };
  for_blocks(bodies, tiles, 1, of_tile, tiles_.copies && a_.range);
  double work = 0, bytes = 0;
  for (const AttentionGradient::Product& p : a_.products) work += operand(p.rows).width;
  for (const auto* r : results_) work += operand(r->operand).width;
  for (const graph::ValueId v : group_.inputs) bytes += graph::byte_size(g_[v].type);
  for (const auto* r : results_) bytes += graph::byte_size(g_[r->value].type);
  return builder_.finish(fmt::format("attend gradient {} over {} {} results {}{} by blocks {}", shape_text(extents_),
                                     over_keys_ ? "keys" : "rows", results_.size(), map_->summary(),
                                     a_.range ? " bounded" : "", tiles_.text()),
                         2.0 * product(extents_) * work, bytes);
}

GradientBlock::Memory GradientBlock::memory() {
  Memory m;
  const Side stationary = tiles_.stationary_side, streamed = tiles_.streamed_side();
  std::vector<int64_t> sizes;
  for (const AttentionGradient::Product& p : a_.products)
    m.products.push_back(std::make_unique<BlockProduct>(b_, target_, tiles_.product(operand(p.rows).width)));
  for (const auto* r : results_)
    m.results.push_back(std::make_unique<BlockProduct>(b_, target_, tiles_.result(operand(r->operand).width)));
  for (const int o : stationary_) m.stationary.push_back(panel(*product_of(m, o, true), stationary));
  for (size_t k = 0; k < sources_.size() && !tiles_.copied(); ++k)
    m.sources.push_back(panel(*m.results[0], stationary));
  for (const int o : streamed_) sizes.push_back(product_of(m, o, false)->panel_bytes(streamed));
  for (const int o : transposed_) sizes.push_back(result_of(m, o)->panel_bytes(streamed));
  BufferId common = -1;
  if (tiles_.one_by_one)
    common = b_.alloc(*std::max_element(sizes.begin(), sizes.end()), BlockProduct::kAlign, loop::Space::shared);
  for (size_t k = 0; k < streamed_.size(); ++k)  // a panel with both uses has room for both
    if (shares(streamed_[k])) sizes[k] = std::max(sizes[k], sizes[streamed_.size() + place(transposed_, streamed_[k])]);
  const auto next = [&](size_t k) {
    return common >= 0 ? common : b_.alloc(panels() * sizes[k], BlockProduct::kAlign, loop::Space::shared);
  };
  for (size_t k = 0; k < streamed_.size(); ++k) m.streamed.push_back(next(k));
  for (size_t k = 0; k < transposed_.size(); ++k)
    m.transposed.push_back(shares(transposed_[k]) ? m.streamed[place(streamed_, transposed_[k])]
                                                  : next(streamed_.size() + k));
  streamed_bytes_ = sizes;
  if (a_.range || tiles_.copied()) m.bounds = shared(kBoundsBytes);
  for (RowNumber& n : row_numbers_)
    if (!over_keys_) n.panel = shared(panels() * tiles_.streamed * 4);
  held_.assign(over_keys_ && !row_numbers_.empty() ? m.products[0]->lines(stationary) : 0, {});
  for (auto& of_line : held_)
    for (size_t k = 0; k < row_numbers_.size(); ++k) of_line.push_back(b_.alloc(4, 4));
  return m;
}
BlockProduct* GradientBlock::product_of(const Memory& m, int o, bool stationary) const {
  for (size_t k = 0; k < a_.products.size(); ++k)
    if ((stationary ? stationary_of(a_.products[k]) : streamed_of(a_.products[k])) == o) return m.products[k].get();
  return nullptr;
}
BlockProduct* GradientBlock::result_of(const Memory& m, int o) const {
  for (size_t k = 0; k < results_.size(); ++k)
    if (results_[k]->operand == o) return m.results[k].get();
  return nullptr;
}

void GradientBlock::block(Expr tile) {
  const Side stationary = tiles_.stationary_side;
  Memory m = memory();
  first_ = tile * tiles_.stationary;
  lane_loop([&](Expr lane) {
    for (size_t k = 0; k < stationary_.size(); ++k) {
      const int o = stationary_[k];
      if (tiles_.copied())
        copy_lines(lane, laid_[o], first_, *product_of(m, o, true), stationary, {m.stationary[k], b_.i64(0)});
      else
        fill(lane, lines_of(o), first_, *product_of(m, o, true), stationary, m.stationary[k]);
    }
    if (over_keys_) hold_row_numbers(lane, *m.products[0]);
    for (const auto& r : m.results) r->clear();
  });
  if (!tiles_.copied())
    stream_filled(m);
  else
    over_keys_ ? stream_keys(m) : stream_rows(m);
  lane_loop([&](Expr lane) {
    for (size_t k = 0; k < results_.size(); ++k)
      write(*m.results[k], lane, *written_[k], results_[k]->value, !over_keys_, first_,
            operand(results_[k]->operand).width, [&](int, Expr x) { return x; });
  });
}

void GradientBlock::stream_filled(Memory& m) {
  Expr from = b_.i64(0), to = b_.i64(count(over_keys_));
  if (a_.range && over_keys_) {
    const Seen seen = seen_keys(*a_.range, *ranges_, first_, tiles_.stationary, m.bounds);
    from = down(seen.first, tiles_.streamed);
    to = seen.end;
  } else {
    b_.barrier();
  }
  serial(from, to, tiles_.streamed, [&](Expr streamed) {
    if (!a_.range || over_keys_) return step(m, streamed);
    const Seen seen = seen_keys(*a_.range, *ranges_, streamed, tiles_.streamed, m.bounds);
    b_.barrier();  // the next tile's bounds go to the same place
    const Expr some = (seen.first < first_ + tiles_.stationary) & (first_ < seen.end);
    b_.branch(some, [&] { step(m, streamed); });
  });
}

// Panels are filled all together, or one after the other.
void GradientBlock::step(Memory& m, Expr streamed) {
  const auto load = [&](Expr lane, size_t k) {
    fill(lane, lines_of(streamed_[k]), streamed, *product_of(m, streamed_[k], false), tiles_.streamed_side(),
         m.streamed[k]);
  };
  const auto load_transposed = [&](Expr lane, size_t k) {
    fill_transposed(lane, lines_of(transposed_[k]), streamed, *result_of(m, transposed_[k]), m.transposed[k]);
  };
  const auto multiply_with = [&](Expr lane, size_t panel) {
    for (size_t k = 0; k < a_.products.size(); ++k) {
      if (streamed_of(a_.products[k]) != streamed_[panel]) continue;
      m.products[k]->clear();
      multiply(*m.products[k], lane, m.stationary[place(stationary_, stationary_of(a_.products[k]))],
               m.streamed[panel]);
    }
    if (panel + 1 == streamed_.size()) apply_maps(m, lane, streamed);
  };
  const auto add_with = [&](Expr lane, size_t panel) {
    for (size_t k = 0; k < results_.size(); ++k)
      if (results_[k]->operand == transposed_[panel])
        multiply(*m.results[k], lane, m.sources[place(sources_, results_[k]->source)], m.transposed[panel]);
  };
  const size_t products = streamed_.size(), results = transposed_.size();
  if (tiles_.one_by_one) {
    for (size_t k = 0; k < products; ++k)
      pipeline().step({.begin = [&](Expr lane) { load(lane, k); }, .use = [&](Expr lane) { multiply_with(lane, k); }});
    for (size_t k = 0; k < results; ++k)
      pipeline().step(
          {.begin = [&](Expr lane) { load_transposed(lane, k); }, .use = [&](Expr lane) { add_with(lane, k); }});
    return;
  }
  const auto fill_all = [&](Expr lane) {
    for (size_t k = 0; k < products; ++k) load(lane, k);
    for (size_t k = 0; k < results; ++k)
      if (!shares(transposed_[k])) load_transposed(lane, k);
  };
  const auto multiply_all = [&](Expr lane) {
    for (size_t k = 0; k < products; ++k) multiply_with(lane, k);
  };
  const auto add_all = [&](Expr lane) {
    for (size_t k = 0; k < results; ++k) add_with(lane, k);
  };
  pipeline().step({.begin = fill_all, .use = multiply_all});
  pipeline().step({.use = add_all});
}

void GradientBlock::apply_maps(Memory& m, Expr lane, Expr streamed, const StreamedTile* copied, bool whole) {
  const Side stationary = tiles_.stationary_side;
  Body& map = whole && shown_ ? *shown_ : *map_;
  if (rounds_factors()) begin_fast_math();
  for (int r = 0; r < m.products[0]->lines(stationary); ++r) {
    const Expr line = m.products[0]->line(stationary, lane, r);
    std::vector<Expr> along;
    std::vector<std::vector<Expr>> sums;  // by vector, by product
    for (size_t k = 0; k < m.products.size(); ++k) {
      size_t number = 0;
      m.products[k]->change_line(stationary, lane, r, [&](Expr at, Expr x) {
        if (k == 0) {
          along.push_back(at);
          sums.emplace_back();
        }
        sums[number++].push_back(x);
        return Expr{};
      });
    }
    const int opened = open_line(map, !over_keys_, first_ + line);
    std::vector<std::vector<Expr>> found;  // by vector, by source
    for (size_t v = 0; v < along.size(); ++v) {
      const auto become = [&](Body& body, const std::vector<Expr>& of) {
        const int lanes = b_.type(of[0]).lanes;
        if (copied) over_keys_ ? set_held_numbers(body, r, lanes) : set_row_numbers(body, *copied, along[v], lanes);
        for (size_t k = 0; k < of.size(); ++k) body.set(a_.products[k].value, of[k]);
        std::vector<Expr> out;
        for (const int s : sources_) out.push_back(body.value(a_.sources[s]));
        return out;
      };
      found.push_back(at_streamed(map, over_keys_, streamed + along[v], sums[v], 0, become, whole));
      for (size_t k = 0; k < sources_.size() && !copied; ++k)
        put(*m.results[0], line, along[v], found[v][k], m.sources[k]);
    }
    close(map, opened);
    for (size_t k = 0; k < sources_.size() && copied; ++k) {
      size_t number = 0;
      m.products[k]->change_line(stationary, lane, r, [&](Expr, Expr) { return as_f32(found[number++][k]); });
    }
  }
  end_fast_math();
}

std::optional<Synthesis> attend_gradient_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                                   const machine::Machine& target, Scalar products) {
  if (target.wave <= 1) return std::nullopt;
  const AttentionGradient a(plan, group);
  Synthesis out;
  int64_t unit = pipelined_unit(target, products);
  if (unit == 0) unit = copied_unit(target, products);
  std::vector<LaidOperand> laid = lay_operands(plan, group, a, products, unit);
  for (LaidOperand& o : laid)
    if (o.scratch >= 0) {
      o.scratch = out.scratch.size();
      out.scratch.push_back(o.elements * scalar_bytes(o.scalar));
    }
  std::vector<std::unique_ptr<GradientBlock>> kernels;
  bool copied = false;
  for (const bool over_keys : {true, false}) {
    auto kernel = std::make_unique<GradientBlock>(plan, group, target, a, over_keys, laid);
    if (!kernel->has_results()) continue;
    if (!kernel->plan(products)) return std::nullopt;
    copied = copied || kernel->copied();
    kernels.push_back(std::move(kernel));
  }
  if (!copied) out.scratch.clear();
  for (const LaidOperand& o : laid)
    if (copied && o.scratch >= 0) out.steps.push_back(write_laid(plan, o, a.extents, "attend gradient"));
  for (auto& kernel : kernels) {
    kernel->prepare(out);
    out.steps.push_back(kernel->run());
  }
  return out;
}

}  // namespace lumen::synth
