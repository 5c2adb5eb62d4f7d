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
#include "kernel/synth/attend_rows.h"

namespace lumen::synth {

using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

class GradientBlock : AttendBlock {
 public:
  GradientBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
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
    std::optional<AttendPlan> found;
    if (!laid_operands_.empty() && find_order()) found = plan_attend_stream(target_, products, problem);
    if (!found) found = plan_attend(target_, products, problem);
    if (found) tiles_ = *found;
    return found.has_value();
  }
  bool streams() const { return tiles_.streams; }
  // Steps before, for this kernel alone.
  void prepare(Synthesis& out) {
    if (!tiles_.streams) return;
    if (!over_keys_) row_numbers_ = row_numbers(plan_, group_, a_);
    for (RowNumber& n : row_numbers_) {
      if (!n.divides) continue;
      n.scratch = static_cast<int>(out.scratch.size());
      out.steps.push_back(write_reciprocals(plan_, n.access, extents_, n.scratch, &n.access));
      out.scratch.push_back(n.count(extents_) * 4);
    }
  }

  Step run() {
    for (const graph::ValueId v : group_.inputs) draft_.value(v, false);
    for (const auto* r : results_) draft_.value(r->value, true);
    for (RowNumber& n : row_numbers_)
      n.source = n.scratch < 0 ? draft_.value(n.access.source, false)
                               : draft_.scratch(n.scratch, n.count(extents_) * 4, false);
    if (tiles_.streams)
      for (size_t k = 0; k < laid_operands_.size(); ++k)
        laid_.push_back(declare(laid_operands_[k], a_.operands[k].by_key));
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
    if (tiles_.streams && a_.range) {
      shown_plan_ = a_.range->without_mask();
      shown_ = std::make_unique<Body>(draft_, *shown_plan_, group_, extents_, apart);
      bodies.push_back(shown_.get());
    }
    for (Body* map : {map_.get(), shown_.get()})
      if (map && !over_keys_ && !row_axes_.empty())
        map->set_vector_axis(axis_of(*map, static_cast<size_t>(row_axes_.back())));
    bodies.push_back(map_.get());
    bodies.push_back(ranges_.get());
    const int64_t tiles = (count(!over_keys_) + tiles_.own - 1) / tiles_.own;
    for_blocks(bodies, tiles, 1, [&](ValueId, ValueId tile, ValueId) {
      // Later rows see more under most masks, earlier keys are seen more: their blocks begin first.
      const ValueId number = over_keys_ ? sub(b_.i64(tiles - 1), tile) : tile;
      tiles_.streams ? stream(number) : block(number);
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
      const Seen seen = seen_keys(*a_.range, *ranges_, first_, tiles_.own, m.bounds);
      from = down(seen.first, tiles_.walk);
      to = seen.end;
    } else {
      b_.barrier();
    }
    serial(from, to, tiles_.walk, [&](ValueId walked) {
      if (!a_.range || over_keys_) return step(m, walked);
      const Seen seen = seen_keys(*a_.range, *ranges_, walked, tiles_.walk, m.bounds);
      b_.barrier();  // the next tile's bounds lie in the same place
      const ValueId some =
          b_.op(ScalarOp::and_, less(seen.first, b_.add(first_, b_.i64(tiles_.own))), less(first_, seen.end));
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

  // ---- streaming

  bool reads(graph::ValueId v, graph::ValueId of, graph::ValueId except) const {
    if (v == of) return true;
    if (v == except || is_load(plan_, group_, v)) return false;
    const auto& operands = g_[v].operands;
    return std::any_of(operands.begin(), operands.end(), [&](graph::ValueId o) { return reads(o, of, except); });
  }

  // Which product comes first, and the source that needs no other one; false where sources do not come one after the
  // other, or results read what no product does.
  bool find_order() {
    for (const auto* r : results_)
      if (std::find(walked_.begin(), walked_.end(), r->operand) == walked_.end()) return false;
    for (const AttentionGradient::Product& p : a_.products)
      if (operand(p.rows).width != operand(p.keys).width) return false;
    if (a_.products.size() != 2) return false;
    for (const size_t first : {size_t{0}, size_t{1}}) {
      const graph::ValueId late = a_.products[1 - first].value;
      for (size_t s = 0; s < a_.sources.size(); ++s) {
        const graph::ValueId early = a_.sources[s];
        if (reads(early, late, -1) || g_[early].type.element.scalar != Scalar::f32) continue;
        size_t others = 0;
        bool apart = true;
        for (const int o : sources_) {
          if (o == static_cast<int>(s)) continue;
          ++others;
          apart = apart && !reads(a_.sources[static_cast<size_t>(o)], a_.products[first].value, early);
        }
        if (!apart || others > 1) continue;
        first_product_ = first;
        early_ = static_cast<int>(s);
        return true;
      }
    }
    return false;
  }

  // A tile of walked lines, and what comes behind it.
  struct Walked {
    ValueId line = -1, number = -1, next = -1, has_next = -1;
  };

  // Panels of the next tile are on their way while this one is multiplied.
  void stream(ValueId tile) {
    const Side own = tiles_.own_side, walked = tiles_.walk_side();
    Memory m;
    for (const AttentionGradient::Product& p : a_.products)
      m.products.push_back(std::make_unique<BlockProduct>(b_, target_, tiles_.product(operand(p.rows).width)));
    for (const auto* r : results_)
      m.results.push_back(std::make_unique<BlockProduct>(b_, target_, tiles_.result(operand(r->operand).width)));
    for (const int o : owned_) m.owned.push_back(panel(*product_of(m, o, true), own));
    walked_bytes_.clear();
    for (const int o : walked_) {
      const BlockProduct* result = result_of(m, o);
      walked_bytes_.push_back(
          std::max(product_of(m, o, false)->panel_bytes(walked), result ? result->panel_bytes(walked) : 0));
      m.walked.push_back(b_.alloc(2 * walked_bytes_.back(), BlockProduct::kAlign, loop::Space::shared));
    }
    m.bounds = shared(kBoundsBytes);
    for (RowNumber& n : row_numbers_) n.panel = shared(2 * tiles_.walk * 4);
    first_ = times(tile, tiles_.own);
    lane_loop([&](ValueId lane) {
      for (size_t k = 0; k < owned_.size(); ++k)
        copy_lines(lane, laid_[static_cast<size_t>(owned_[k])], first_, *product_of(m, owned_[k], true), own,
                   {m.owned[k], b_.i64(0)});
      for (const auto& r : m.results) r->clear();
    });
    over_keys_ ? walk_keys(m) : walk_rows(m);
    lane_loop([&](ValueId lane) {
      for (size_t k = 0; k < results_.size(); ++k)
        write(*m.results[k], lane, *written_[k], results_[k]->value, !over_keys_, first_,
              operand(results_[k]->operand).width, [&](int, ValueId x) { return x; });
    });
  }

  ValueId place_of_row(const Access& a, ValueId row) {
    ValueId at = b_.i64(a.offset);
    for (size_t d = 0; d < head_.size(); ++d) at = b_.add(at, times(head_[d], a.strides[d]));
    const std::vector<ValueId> digit = digits(b_, least(row, b_.i64(rows_ - 1)), row_extents_);
    for (size_t k = 0; k < digit.size(); ++k)
      at = b_.add(at, times(digit[k], a.strides[static_cast<size_t>(row_axes_[k])]));
    return at;
  }

  void copy_row_numbers(ValueId lane, ValueId line, ValueId number) {
    if (row_numbers_.empty()) return;
    b_.branch(less(lane, b_.i64(tiles_.walk)), [&] {
      const ValueId to = bytes(b_.add(times(b_.op(ScalarOp::rem_, number, b_.i64(2)), tiles_.walk), lane), 1);
      for (const RowNumber& n : row_numbers_)
        b_.copy(n.panel, to, n.source, bytes(place_of_row(n.access, b_.add(line, lane)), 1), 4);
    });
  }

  // Those of `lanes` walked lines from `along` of the tile on, for a map.
  void set_row_numbers(Body& body, const Walked& w, ValueId along, int lanes) {
    const ValueId at = bytes(b_.add(times(b_.op(ScalarOp::rem_, w.number, b_.i64(2)), tiles_.walk), along), 1);
    for (const RowNumber& n : row_numbers_) {
      const ValueId x = b_.load(n.panel, {Scalar::f32, lanes}, at, lanes * 4);
      body.set(n.value, x);
      if (n.divides) b_.know_reciprocal(x, x);
    }
  }

  BlockProduct::Panel walked_panel(const Memory& m, size_t k, ValueId number) {
    return {m.walked[k], times(b_.op(ScalarOp::rem_, number, b_.i64(2)), walked_bytes_[k])};
  }

  void copy_walked(const Memory& m, ValueId lane, ValueId line, ValueId number) {
    copy_row_numbers(lane, line, number);
    for (size_t k = 0; k < walked_.size(); ++k)
      copy_lines(lane, laid_[static_cast<size_t>(walked_[k])], line, *product_of(m, walked_[k], false),
                 tiles_.walk_side(), walked_panel(m, k, number));
    b_.commit(loop::Flow::copies);
  }

  void walk_keys(Memory& m) {
    const int64_t walk = tiles_.walk;
    ValueId from = b_.i64(0), to = b_.i64(keys()), clear = from, end = down(to, walk);
    if (a_.range) {
      const Seen seen = seen_keys(*a_.range, *ranges_, first_, tiles_.own, m.bounds);
      from = down(seen.first, walk);
      to = seen.end;
      clear = least(most(down(b_.add(seen.all_first, b_.i64(walk - 1)), walk), from), most(to, from));
      end = most(least(down(most(seen.all_end, b_.i64(0)), walk), to), clear);
    }
    const auto tiles = [&](ValueId begin, ValueId stop, bool whole) {
      serial(begin, stop, walk, [&](ValueId key) {
        const ValueId next = b_.add(key, b_.i64(walk));
        stream_step(m, {key, b_.op(ScalarOp::div_, sub(key, from), b_.i64(walk)), next, less(next, to)}, whole);
      });
    };
    lane_loop([&](ValueId lane) { copy_walked(m, lane, from, b_.i64(0)); });
    if (a_.range && a_.range->hides_first()) tiles(from, clear, false);
    tiles(clear, end, true);
    tiles(end, to, false);
  }

  // Rows along the innermost axis, from the first to the last one that sees a key of this block; once for each of the
  // others.
  void walk_rows(Memory& m) {
    const int64_t walk = tiles_.walk;
    int64_t inner = rows_, outer = 1;
    if (row_extents_.size() > 1 && row_extents_.back() % walk == 0) {
      inner = row_extents_.back();
      outer = rows_ / inner;
    }
    ValueId from = b_.i64(0), to = b_.i64(inner), clear = from;
    if (a_.range) {
      const auto [begin, end, hidden, unused] =
          meet([&](ValueId lane) { return rows_that_see(lane, inner); }, m.bounds);
      from = down(begin, walk);
      to = end;
      clear = hidden;
    }
    const ValueId stop = down(b_.add(to, b_.i64(walk - 1)), walk);
    clear = most(least(down(b_.add(clear, b_.i64(walk - 1)), walk), stop), from);
    const ValueId whole_end = rows_ % walk == 0 ? stop : most(least(stop, b_.i64(rows_ / walk * walk)), clear);
    const ValueId each = b_.op(ScalarOp::div_, sub(stop, from), b_.i64(walk));
    b_.branch(less(from, stop), [&] {
      lane_loop([&](ValueId lane) { copy_walked(m, lane, from, b_.i64(0)); });
      serial(b_.i64(0), b_.i64(outer), 1, [&](ValueId o) {
        const auto tiles = [&](ValueId begin, ValueId end, bool whole) {
          serial(begin, end, walk, [&](ValueId t) {
            const ValueId line = b_.add(times(o, inner), t), behind = b_.add(t, b_.i64(walk));
            const ValueId number = b_.add(b_.mul(o, each), b_.op(ScalarOp::div_, sub(t, from), b_.i64(walk)));
            const ValueId here = less(behind, stop);
            const ValueId next = b_.op(ScalarOp::select_, here, b_.add(line, b_.i64(walk)),
                                       b_.add(times(b_.add(o, b_.i64(1)), inner), from));
            const ValueId more = b_.op(ScalarOp::or_, here, less(b_.add(o, b_.i64(1)), b_.i64(outer)));
            stream_step(m, {line, number, next, more}, whole);
          });
        };
        tiles(from, clear, false);
        tiles(clear, whole_end, true);
        if (rows_ % walk != 0) tiles(whole_end, stop, false);
      });
    });
  }

  // Of rows along the innermost axis, by a lane's share of them: the first that sees a key of this block, the one
  // behind the last that does, and the one behind the last that does not see all of them.
  std::array<ValueId, 4> rows_that_see(ValueId lane, int64_t inner) {
    bool varies = false;
    for (size_t k = 0; k + 1 < row_axes_.size(); ++k)
      varies = varies || a_.range->varies(static_cast<size_t>(row_axes_[k]));
    const VType i64{Scalar::i64, 1};
    const BufferId found = b_.alloc(24, 8);
    const auto at = [&](int which) { return b_.i64(which * 8); };
    b_.store(found, b_.i64(inner), at(0), 8);
    b_.store(found, b_.i64(0), at(1), 8);
    b_.store(found, b_.i64(0), at(2), 8);
    const ValueId last = least(b_.add(first_, b_.i64(tiles_.own)), b_.i64(keys()));
    serial(lane, b_.i64(varies ? rows_ : inner), tiles_.lanes(), [&](ValueId row) {
      const int opened = open_line(*ranges_, false, row);
      const auto [sees, sees_end] = a_.range->of_row(b_, *ranges_);
      const auto [shown, shown_end] = a_.range->shown_to_row(b_, *ranges_);
      close(*ranges_, opened);
      const ValueId number = b_.op(ScalarOp::rem_, row, b_.i64(inner)), behind = b_.add(number, b_.i64(1));
      const ValueId some = b_.op(ScalarOp::and_, less(sees, last), less(first_, sees_end)),
                    part = b_.op(ScalarOp::or_, less(first_, shown), less(shown_end, last));
      const auto change = [&](int which, ScalarOp op, ValueId x, ValueId where) {
        const ValueId now = b_.load(found, i64, at(which), 8);
        b_.store(found, b_.op(ScalarOp::select_, where, b_.op(op, now, x), now), at(which), 8);
      };
      change(0, ScalarOp::min_, number, some);
      change(1, ScalarOp::max_, behind, some);
      change(2, ScalarOp::max_, behind, part);
    });
    return {b_.load(found, i64, at(0), 8), b_.load(found, i64, at(1), 8), b_.load(found, i64, at(2), 8), b_.i64(0)};
  }

  // Results that read the early source are under way while the late one is found.
  void stream_step(Memory& m, const Walked& w, bool whole) {
    lane_loop([&](ValueId) { b_.wait(loop::Flow::copies, 0); });
    b_.barrier();
    lane_loop([&](ValueId lane) {
      b_.branch(w.has_next, [&] { copy_walked(m, lane, w.next, b_.add(w.number, b_.i64(1))); });
      BlockProduct &first = *m.products[first_product_], &second = *m.products[1 - first_product_];
      for (const size_t k : {first_product_, 1 - first_product_}) {
        m.products[k]->begin(lane, {m.owned[place(owned_, own_of(a_.products[k]))], b_.i64(0)},
                             walked_panel(m, place(walked_, walked_of(a_.products[k])), w.number), true);
        b_.commit(loop::Flow::products);
      }
      std::vector<std::pair<BlockProduct*, BlockProduct::Held>> held;
      const auto begin_results = [&](bool early) {
        bool any = false;
        for (size_t k = 0; k < results_.size(); ++k) {
          if ((results_[k]->source == early_) != early) continue;
          held.emplace_back(m.results[k].get(), m.results[k]->hold(early ? first : second));
          m.results[k]->begin(lane, held.back().second,
                              walked_panel(m, place(walked_, results_[k]->operand), w.number));
          any = true;
        }
        if (any) b_.commit(loop::Flow::products);
        return any;
      };
      Body& map = whole && shown_ ? *shown_ : *map_;
      begin_rough();
      b_.wait(loop::Flow::products, 1);
      first.ready();
      find_source(first, nullptr, map, lane, w, early_, whole);
      const bool early = begin_results(true);
      b_.wait(loop::Flow::products, early ? 1 : 0);
      second.ready();
      for (const int s : sources_)
        if (s != early_) find_source(second, &first, map, lane, w, s, whole);
      end_rough();
      begin_results(false);
      b_.wait(loop::Flow::products, 0);
      for (auto& [result, x] : held) {
        result->ready();
        result->ready(x);
      }
    });
  }

  // The sums of `of` become a source; `early` holds the other one.
  void find_source(BlockProduct& of, BlockProduct* early, Body& map, ValueId lane, const Walked& w, int source,
                   bool whole) {
    const Side own = tiles_.own_side;
    const size_t product = early ? 1 - first_product_ : first_product_;
    for (int r = 0; r < of.lines(own); ++r) {
      std::vector<ValueId> known;
      if (early)
        early->change_line(own, lane, r, [&](ValueId, ValueId x) {
          known.push_back(x);
          return -1;
        });
      const int opened = open_line(map, !over_keys_, b_.add(first_, of.line(own, lane, r)));
      size_t number = 0;
      of.change_line(own, lane, r, [&](ValueId along, ValueId x) {
        std::vector<ValueId> given{x};
        if (early) given.push_back(known[number++]);
        const auto become = [&](Body& body, const std::vector<ValueId>& sums) {
          set_row_numbers(body, w, along, b_.type(sums[0]).lanes);
          body.set(a_.products[product].value, sums[0]);
          if (early) body.set(a_.sources[static_cast<size_t>(early_)], sums[1]);
          return std::vector<ValueId>{as_f32(body.value(a_.sources[static_cast<size_t>(source)]))};
        };
        return at_walked(map, over_keys_, b_.add(w.line, along), given, 0, become, whole)[0];
      });
      close(map, opened);
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
  std::vector<RowNumber> row_numbers_;
  const std::vector<LaidOperand>& laid_operands_;  // by operand; empty: they cannot be copied
  std::vector<Laid> laid_;
  std::vector<int64_t> walked_bytes_;  // of one panel
  size_t first_product_ = 0;
  int early_ = -1;                         // the source that needs this product alone
  std::optional<graph::Plan> shown_plan_;  // without the mask
  std::unique_ptr<Body> shown_;            // map_ of that
};

}  // namespace

std::optional<Synthesis> attend_gradient_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                                   const machine::Machine& target, Scalar products) {
  if (target.wave <= 1) return std::nullopt;
  const AttentionGradient a(plan, group);
  Synthesis out;
  std::vector<LaidOperand> laid = lay_operands(plan, group, a, products, stream_unit(target, products));
  for (LaidOperand& o : laid)
    if (o.scratch >= 0) {
      o.scratch = static_cast<int>(out.scratch.size());
      out.scratch.push_back(o.elements * scalar_bytes(o.scalar));
    }
  std::vector<std::unique_ptr<GradientBlock>> kernels;
  bool streams = false;
  for (const bool over_keys : {true, false}) {
    auto kernel = std::make_unique<GradientBlock>(plan, group, target, a, over_keys, laid);
    if (!kernel->has_results()) continue;
    if (!kernel->plan(products)) return std::nullopt;
    streams = streams || kernel->streams();
    kernels.push_back(std::move(kernel));
  }
  if (!streams) out.scratch.clear();
  for (const LaidOperand& o : laid)
    if (streams && o.scratch >= 0) out.steps.push_back(write_laid(plan, o, a.extents, "attend gradient"));
  for (auto& kernel : kernels) {
    kernel->prepare(out);
    out.steps.push_back(kernel->run());
  }
  return out;
}

}  // namespace lumen::synth
