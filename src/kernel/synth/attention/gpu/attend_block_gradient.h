// The gradient of an attention by blocks: see attend_block_gradient.cpp, and attend_block_gradient_pipelined.cpp for
// kernels that are pipelined. Proved by tests/kernel/synth/attention/synth_attend_block_test.cpp and
// synth_attend_stream_test.cpp.
#pragma once

#include <algorithm>

#include "kernel/synth/attention/attend_rows.h"
#include "kernel/synth/attention/gpu/attend_block.h"

namespace lumen::synth {

class GradientBlock : AttendBlock {
 public:
  GradientBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                const AttentionGradient& a, bool over_keys, const std::vector<LaidOperand>& laid);

  bool has_results() const { return !results_.empty(); }
  // Finds the plan; false if there is none.
  bool plan(Scalar products);
  bool copied() const { return tiles_.copied(); }
  // Adds preceding steps that only this kernel needs.
  void prepare(Synthesis& out);
  Step run();

 private:
  const AttentionGradient::Operand& operand(int o) const { return a_.operands[o]; }
  int stationary_of(const AttentionGradient::Product& p) const { return over_keys_ ? p.rows : p.keys; }
  int streamed_of(const AttentionGradient::Product& p) const { return over_keys_ ? p.keys : p.rows; }
  static void note(std::vector<int>* list, int o) {
    if (std::find(list->begin(), list->end(), o) == list->end()) list->push_back(o);
  }
  static size_t place(const std::vector<int>& list, int o) {
    return std::find(list.begin(), list.end(), o) - list.begin();
  }
  Operand lines_of(int o) { return {operands_[o].get(), operand(o).value, operand(o).by_key, operand(o).width}; }

  // Whether one panel of a streamed operand serves products and results: where the instruction reads it transposed, or
  // lanes load it transposed and lines are whole runs.
  bool shares(int o) const {
    const auto has = [o](const std::vector<int>& list) { return std::find(list.begin(), list.end(), o) != list.end(); };
    const bool both = tiles_.loads && tiles_.result(operand(o).width).transposed(tiles_.streamed_side()) &&
                      operand(o).width * scalar_bytes(tiles_.factor) % BlockProduct::kSwizzledRow == 0;
    return (tiles_.in_shared() || both) && !tiles_.one_by_one && has(streamed_) && has(transposed_);
  }

  // The products and panels of a block.
  struct Memory {
    std::vector<std::unique_ptr<BlockProduct>> products, results;
    std::vector<BufferId> stationary, streamed, transposed, sources;
    BufferId bounds = -1;
  };
  Memory memory();
  BlockProduct* product_of(const Memory& m, int o, bool stationary) const;
  BlockProduct* result_of(const Memory& m, int o) const;
  void block(Expr tile);
  void stream_filled(Memory& m);
  void step(Memory& m, Expr streamed);

  // ---- copied: a tile of streamed lines, and the next one.
  struct StreamedTile {
    Expr line, number, next, has_next;
  };
  bool reads(graph::ValueId v, graph::ValueId of, graph::ValueId except) const;
  bool find_order();
  Expr place_of_row(const Access& a, Expr row);
  void copy_row_numbers(Expr lane, Expr line, Expr number);
  void set_row_numbers(Body& body, const StreamedTile& w, Expr along, int lanes);
  // Numbers of the stationary rows, which lanes hold in registers.
  void hold_row_numbers(Expr lane, BlockProduct& of);
  void set_held_numbers(Body& body, int line, int lanes);
  BlockProduct::Panel streamed_panel(const Memory& m, size_t k, Expr number);
  void copy_streamed(const Memory& m, Expr lane, Expr line, Expr number);
  void stream_keys(Memory& m);
  void stream_rows(Memory& m);
  void streamed_step(Memory& m, const StreamedTile& w, bool whole);
  void copied_step(Memory& m, const StreamedTile& w, bool whole);
  // Applies the maps to a tile's products: sources go to their panels or, where panels are copied, replace the
  // products' sums.
  void apply_maps(Memory& m, Expr lane, Expr streamed, const StreamedTile* copied = nullptr, bool whole = false);
  std::array<Expr, 4> rows_that_see(Expr lane, int64_t inner);
  void pipelined_step(Memory& m, const StreamedTile& w, bool whole);
  void find_source(BlockProduct& of, BlockProduct* early, Body& map, Expr lane, const StreamedTile& w, int source,
                   bool whole);

  const graph::Group& group_;
  graph::Group nothing_;
  const AttentionGradient& a_;
  const bool over_keys_;  // rows are stationary, keys streamed; otherwise the other way round
  std::vector<const AttentionGradient::Result*> results_;
  std::vector<int> sources_, stationary_, streamed_, transposed_;  // numbers of sources and operands, each once
  std::vector<std::unique_ptr<Body>> operands_, written_;
  std::unique_ptr<Body> map_, ranges_;
  Expr first_;
  std::vector<RowNumber> row_numbers_;
  std::vector<std::vector<BufferId>> held_;        // by row of a lane, by number
  const std::vector<LaidOperand>& laid_operands_;  // by operand; empty: they cannot be copied
  std::vector<Laid> laid_;
  std::vector<int64_t> streamed_bytes_;  // of one panel
  size_t first_product_ = 0;
  int early_ = -1;                         // the source that needs this product alone
  std::optional<graph::Plan> shown_plan_;  // without the mask
  std::unique_ptr<Body> shown_;            // map_ of shown_plan_
};

}  // namespace lumen::synth
