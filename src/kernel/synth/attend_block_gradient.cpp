// The gradient of an attention by blocks of lanes, in two kernels: one owns tiles of rows and walks keys, for the
// results that are sums over keys; one owns tiles of keys and walks rows, for those over rows. Both compute the scores
// anew, so every sum is one block's and its order is fixed. A tile:
//
//   panels of the walked operands;  both products;  the maps, in the lanes' registers;  what results read of them to
//   panels;  panels of the walked operands, turned;  the results
//
// Numbers: factors are rounded to the plan's type (what results read of the maps among them), everything else is f32.
// Proved by tests/kernel/synth_attend_block_test.cpp.
#include <algorithm>

#include "kernel/synth/attend_block.h"

namespace lumen::synth {

using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

class GradientBlock : AttendBlock {
 public:
  GradientBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                const AttentionGradient& a, bool over_keys)
      : AttendBlock(plan, target, a.extents, a.row_axes), group_(group), a_(a), over_keys_(over_keys) {
    nothing_.inputs = group.inputs;
    for (const AttentionGradient::Result& r : a.results) {
      if (r.over_keys != over_keys) continue;
      results_.push_back(&r);
      if (std::find(sources_.begin(), sources_.end(), r.source) == sources_.end()) sources_.push_back(r.source);
    }
    for (const AttentionGradient::Product& p : a.products) {
      note(&owned_, own_of(p));
      note(&walked_, walked_of(p));
    }
    for (const auto* r : results_) note(&turned_, r->operand);
  }

  bool has_results() const { return !results_.empty(); }

  // The plan, or false where there is none.
  bool plan(Scalar products) {
    AttendProblem problem;
    problem.own = count(!over_keys_);
    problem.walk = count(over_keys_);
    problem.heads = heads();
    for (const int o : owned_) problem.owned.push_back(operand(o).width);
    for (const int o : walked_) problem.walked.push_back(operand(o).width);
    for (const auto* r : results_) problem.results.push_back(operand(r->operand).width);
    problem.products = static_cast<int>(a_.products.size());
    problem.sources = static_cast<int>(sources_.size());
    for (const AttentionGradient::Operand& o : a_.operands)
      if (o.width == 1) return false;
    const auto found = plan_attend(target_, products, problem);
    if (found) tiles_ = *found;
    return found.has_value();
  }

  Step run() {
    for (const graph::ValueId v : group_.inputs) draft_.value(v, false);
    for (const auto* r : results_) draft_.value(r->value, true);
    const std::vector<bool> apart(extents_.size() + 1, true);
    std::vector<Body*> bodies;
    for (const AttentionGradient::Operand& o : a_.operands) {
      std::vector<int64_t> space = extents_;
      space.push_back(o.width);
      operands_.push_back(std::make_unique<Body>(draft_, plan_, nothing_, space, apart,
                                                 std::map<graph::ValueId, Access>{{o.value, o.access}}));
      bodies.push_back(operands_.back().get());
    }
    for (const auto* r : results_) {
      std::vector<int64_t> space = extents_;
      space.push_back(operand(r->operand).width);
      written_.push_back(std::make_unique<Body>(draft_, plan_, nothing_, space, apart,
                                                std::map<graph::ValueId, Access>{},
                                                std::map<graph::ValueId, Access>{{r->value, r->access}}));
      bodies.push_back(written_.back().get());
    }
    map_ = std::make_unique<Body>(draft_, plan_, group_, extents_, apart);
    ranges_ = std::make_unique<Body>(draft_, plan_, group_, extents_, apart);
    if (!over_keys_ && !row_axes_.empty()) map_->set_vector_axis(axis_of(*map_, static_cast<size_t>(row_axes_.back())));
    bodies.push_back(map_.get());
    bodies.push_back(ranges_.get());
    const int64_t tiles = (count(!over_keys_) + tiles_.own - 1) / tiles_.own;
    for_blocks(bodies, tiles, 1, [&](ValueId, ValueId tile, ValueId) {
      // Later rows see more under most masks, earlier keys are seen more: their blocks begin first.
      block(over_keys_ ? sub(b_.i64(tiles - 1), tile) : tile);
    });
    double work = 0, bytes = 0;
    for (const AttentionGradient::Product& p : a_.products) work += static_cast<double>(operand(p.rows).width);
    for (const auto* r : results_) work += static_cast<double>(operand(r->operand).width);
    for (const graph::ValueId v : group_.inputs) bytes += static_cast<double>(graph::byte_size(g_[v].type));
    for (const auto* r : results_) bytes += static_cast<double>(graph::byte_size(g_[r->value].type));
    return draft_.finish(fmt::format("attend gradient {} over {} {} results {}{} by blocks {}", shape_text(extents_),
                                     over_keys_ ? "keys" : "rows", results_.size(), map_->summary(),
                                     a_.range ? " bounded" : "", tiles_.text()),
                         2.0 * static_cast<double>(product(extents_)) * work, bytes);
  }

 private:
  const AttentionGradient::Operand& operand(int o) const { return a_.operands[static_cast<size_t>(o)]; }
  int own_of(const AttentionGradient::Product& p) const { return over_keys_ ? p.rows : p.keys; }
  int walked_of(const AttentionGradient::Product& p) const { return over_keys_ ? p.keys : p.rows; }
  static void note(std::vector<int>* list, int o) {
    if (std::find(list->begin(), list->end(), o) == list->end()) list->push_back(o);
  }
  static size_t place(const std::vector<int>& list, int o) {
    return static_cast<size_t>(std::find(list.begin(), list.end(), o) - list.begin());
  }
  Operand lines_of(int o) {
    return {operands_[static_cast<size_t>(o)].get(), operand(o).value, operand(o).by_key, operand(o).width};
  }

  // Whether one panel of a walked operand serves products and results: where the instruction reads it turned.
  bool shares(int o) const {
    const auto has = [o](const std::vector<int>& list) { return std::find(list.begin(), list.end(), o) != list.end(); };
    return tiles_.in_shared() && !tiles_.one_by_one && has(walked_) && has(turned_);
  }

  // The products and panels of a block.
  struct Memory {
    std::vector<std::unique_ptr<BlockProduct>> products, results;
    std::vector<BufferId> owned, walked, turned, sources;
    BufferId bounds = -1;
  };

  Memory memory() {
    Memory m;
    const Side own = tiles_.own_side, walked = tiles_.walk_side();
    std::vector<int64_t> sizes;
    for (const AttentionGradient::Product& p : a_.products)
      m.products.push_back(std::make_unique<BlockProduct>(b_, target_, tiles_.product(operand(p.rows).width)));
    for (const auto* r : results_)
      m.results.push_back(std::make_unique<BlockProduct>(b_, target_, tiles_.result(operand(r->operand).width)));
    for (const int o : owned_) m.owned.push_back(panel(*product_of(m, o, true), own));
    for (size_t k = 0; k < sources_.size(); ++k) m.sources.push_back(panel(*m.results[0], own));
    for (const int o : walked_) sizes.push_back(product_of(m, o, false)->panel_bytes(walked));
    for (const int o : turned_) sizes.push_back(result_of(m, o)->panel_bytes(walked));
    BufferId common = -1;
    if (tiles_.one_by_one)
      common = b_.alloc(*std::max_element(sizes.begin(), sizes.end()), BlockProduct::kAlign, loop::Space::shared);
    for (size_t k = 0; k < walked_.size(); ++k)  // a panel that is read both ways has room for both
      if (shares(walked_[k])) sizes[k] = std::max(sizes[k], sizes[walked_.size() + place(turned_, walked_[k])]);
    const auto next = [&](size_t k) {
      return common >= 0 ? common : b_.alloc(sizes[k], BlockProduct::kAlign, loop::Space::shared);
    };
    for (size_t k = 0; k < walked_.size(); ++k) m.walked.push_back(next(k));
    for (size_t k = 0; k < turned_.size(); ++k)
      m.turned.push_back(shares(turned_[k]) ? m.walked[place(walked_, turned_[k])] : next(walked_.size() + k));
    if (a_.range) m.bounds = shared(kBoundsBytes);
    return m;
  }
  BlockProduct* product_of(const Memory& m, int o, bool own) const {
    for (size_t k = 0; k < a_.products.size(); ++k)
      if ((own ? own_of(a_.products[k]) : walked_of(a_.products[k])) == o) return m.products[k].get();
    return nullptr;
  }
  BlockProduct* result_of(const Memory& m, int o) const {
    for (size_t k = 0; k < results_.size(); ++k)
      if (results_[k]->operand == o) return m.results[k].get();
    return nullptr;
  }

  void block(ValueId tile) {
    const Side own = tiles_.own_side;
    Memory m = memory();
    first_ = times(tile, tiles_.own);
    lane_loop([&](ValueId lane) {
      for (size_t k = 0; k < owned_.size(); ++k)
        fill(lane, lines_of(owned_[k]), first_, *product_of(m, owned_[k], true), own, m.owned[k]);
      for (const auto& r : m.results) r->clear();
    });
    ValueId from = b_.i64(0), to = b_.i64(count(over_keys_));
    if (a_.range && over_keys_) {
      const auto [begin, end] = seen_keys(*a_.range, *ranges_, first_, tiles_.own, m.bounds);
      from = down(begin, tiles_.walk);
      to = end;
    } else {
      b_.barrier();
    }
    serial(from, to, tiles_.walk, [&](ValueId walked) {
      if (!a_.range || over_keys_) return step(m, walked);
      const auto [begin, end] = seen_keys(*a_.range, *ranges_, walked, tiles_.walk, m.bounds);
      b_.barrier();  // the next tile's bounds lie in the same place
      const ValueId some = b_.op(ScalarOp::and_, less(begin, b_.add(first_, b_.i64(tiles_.own))), less(first_, end));
      b_.branch(some, [&] { step(m, walked); });
    });
    lane_loop([&](ValueId lane) {
      for (size_t k = 0; k < results_.size(); ++k)
        write(*m.results[k], lane, *written_[k], results_[k]->value, !over_keys_, first_,
              operand(results_[k]->operand).width, [&](int, ValueId x) { return x; });
    });
  }

  void step(Memory& m, ValueId walked) {
    const bool together = !tiles_.one_by_one;
    const auto load = [&](ValueId lane, size_t k) {
      fill(lane, lines_of(walked_[k]), walked, *product_of(m, walked_[k], false), tiles_.walk_side(), m.walked[k]);
    };
    const auto load_turned = [&](ValueId lane, size_t k) {
      fill_turned(lane, lines_of(turned_[k]), walked, *result_of(m, turned_[k]), m.turned[k]);
    };
    const auto multiply_with = [&](ValueId lane, size_t panel) {
      for (size_t k = 0; k < a_.products.size(); ++k) {
        if (walked_of(a_.products[k]) != walked_[panel]) continue;
        m.products[k]->clear();
        multiply(*m.products[k], lane, m.owned[place(owned_, own_of(a_.products[k]))], m.walked[panel]);
      }
    };
    const auto add_with = [&](ValueId lane, size_t panel) {
      for (size_t k = 0; k < results_.size(); ++k)
        if (results_[k]->operand == turned_[panel])
          multiply(*m.results[k], lane, m.sources[place(sources_, results_[k]->source)], m.turned[panel]);
    };
    if (together) {
      lane_loop([&](ValueId lane) {
        for (size_t k = 0; k < walked_.size(); ++k) load(lane, k);
        for (size_t k = 0; k < turned_.size(); ++k)
          if (!shares(turned_[k])) load_turned(lane, k);
      });
      b_.barrier();
      lane_loop([&](ValueId lane) {
        for (size_t k = 0; k < walked_.size(); ++k) multiply_with(lane, k);
        apply_maps(m, lane, walked);
      });
      b_.barrier();
      lane_loop([&](ValueId lane) {
        for (size_t k = 0; k < turned_.size(); ++k) add_with(lane, k);
      });
      b_.barrier();
      return;
    }
    for (size_t k = 0; k < walked_.size(); ++k) {
      lane_loop([&](ValueId lane) { load(lane, k); });
      b_.barrier();
      lane_loop([&](ValueId lane) {
        multiply_with(lane, k);
        if (k + 1 == walked_.size()) apply_maps(m, lane, walked);
      });
      b_.barrier();
    }
    for (size_t k = 0; k < turned_.size(); ++k) {
      lane_loop([&](ValueId lane) { load_turned(lane, k); });
      b_.barrier();
      lane_loop([&](ValueId lane) { add_with(lane, k); });
      b_.barrier();
    }
  }

  void apply_maps(Memory& m, ValueId lane, ValueId walked) {
    const Side own = tiles_.own_side;
    for (int r = 0; r < m.products[0]->lines(own); ++r) {
      const ValueId line = m.products[0]->line(own, lane, r);
      std::vector<ValueId> along;
      std::vector<std::vector<ValueId>> sums;  // by vector, by product
      for (size_t k = 0; k < m.products.size(); ++k) {
        size_t number = 0;
        m.products[k]->change_line(own, lane, r, [&](ValueId at, ValueId x) {
          if (k == 0) {
            along.push_back(at);
            sums.emplace_back();
          }
          sums[number++].push_back(x);
          return -1;
        });
      }
      const int opened = open_line(*map_, !over_keys_, b_.add(first_, line));
      for (size_t v = 0; v < along.size(); ++v) {
        const std::vector<ValueId> x =
            at_walked(*map_, over_keys_, b_.add(walked, along[v]), sums[v], 0, [&](Body& map, const auto& of) {
              for (size_t k = 0; k < of.size(); ++k) map.set(a_.products[k].value, of[k]);
              std::vector<ValueId> out;
              for (const int s : sources_) out.push_back(map.value(a_.sources[static_cast<size_t>(s)]));
              return out;
            });
        for (size_t k = 0; k < x.size(); ++k) put(*m.results[0], line, along[v], x[k], m.sources[k]);
      }
      close(*map_, opened);
    }
  }

  const graph::Group& group_;
  graph::Group nothing_;
  const AttentionGradient& a_;
  const bool over_keys_;  // own rows and walk keys; otherwise the other way round
  std::vector<const AttentionGradient::Result*> results_;
  std::vector<int> sources_, owned_, walked_, turned_;  // numbers of sources and operands, each once
  std::vector<std::unique_ptr<Body>> operands_, written_;
  std::unique_ptr<Body> map_, ranges_;
  ValueId first_ = -1;
};

}  // namespace

std::optional<Synthesis> attend_gradient_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                                   const machine::Machine& target, Scalar products) {
  if (target.wave <= 1) return std::nullopt;
  const AttentionGradient a(plan, group);
  Synthesis out;
  for (const bool over_keys : {true, false}) {
    GradientBlock kernel(plan, group, target, a, over_keys);
    if (!kernel.has_results()) continue;
    if (!kernel.plan(products)) return std::nullopt;
    out.steps.push_back(kernel.run());
  }
  return out;
}

}  // namespace lumen::synth
