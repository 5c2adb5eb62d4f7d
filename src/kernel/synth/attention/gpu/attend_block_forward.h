// The forward kernel of attention by blocks: see attend_block_forward.cpp, and attend_block_pipelined.cpp for pipelined
// ones. Proved by tests/kernel/synth/attention/synth_attend_block_test.cpp and synth_attend_stream_test.cpp.
#pragma once

#include "kernel/synth/attention/gpu/attend_block.h"

namespace lumen::synth {

class ForwardBlock : AttendBlock {
 public:
  ForwardBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, Attention attention);

  // nullopt if there is no plan.
  std::optional<Synthesis> run(Scalar products, const AttendEnough& enough);

 private:
  static constexpr VType kOne{Scalar::f32, 1};

  // Queries, keys and values in the layout of pipelined blocks; empty if they cannot have it.
  std::vector<LaidOperand> lay(Scalar products) const;
  void prepare(std::vector<LaidOperand> laid, Synthesis& out);
  void split_keys(int64_t blocks);
  // A block's products and panels, and the keys it streams.
  struct Tiles {
    BlockProduct s, o;                   // scores; sums of values
    std::optional<BlockProduct> v = {};  // pipelined: layout of the panels of values
    BufferId queries = -1, keys = -1, values = -1, probabilities = -1;
    Expr from = {}, to = {}, all_from = {}, all_to = {};  // keys that some row sees, and that all rows see
  };
  // Lanes hold a tile's probabilities in registers as the factor of its sums, instead of in a panel.
  bool keeps_probabilities(const Tiles& t) const { return tiles_.across == 1 && !tiles_.one_by_one && t.o.holds(t.s); }
  void block(Expr head, Expr tile, Expr part);
  void reserve(Tiles& t);
  void keys_of_part(Tiles& t, Expr part);
  void keys_seen(Tiles& t);  // narrows them to those that some row sees
  void begin_queries(Tiles& t);
  void stream_filled(Tiles& t);
  Expr statistic(Expr across, Expr line) { return bytes(across * tiles_.stationary + line, 1); }
  Expr number(BufferId of_row) { return b_.load(of_row, kOne, b_.i64(0), 4); }
  void set(BufferId of_row, Expr x) { b_.store(of_row, x, b_.i64(0), 4); }
  // Computes a row's scores, in place, unless they are the sums times a constant; returns their maximum.
  Expr score(BlockProduct& s, Expr lane, int r, Expr key, bool whole, bool in_place);
  // Returns a row's sum so far times `scale`, plus the probabilities that `weigh` computes from scores; `keep` receives
  // them.
  Expr add_up(BlockProduct& s, Expr lane, int r, Expr key, bool whole, Expr scale,
              const std::function<Expr(Expr score)>& weigh, const BlockProduct::ChangeLine& keep);
  void share_maxima(BlockProduct& s, Expr lane, Expr key);
  void soften(Tiles& t, Expr lane, Expr key);
  void finish(BlockProduct& o, Expr head, Expr part);
  void once(BlockProduct& o, Expr lane, size_t r, const std::function<void(Expr line)>& body);
  Expr number_of(Expr head, Expr part, Expr line);
  void keep(BlockProduct& o, Expr lane, Expr head, Expr part, const std::vector<Expr>& row_sums);

  // ---- pipelined
  using RegisterOperand = BlockProduct::RegisterOperand;
  BlockProduct::Panel panel_at(const BlockProduct& p, BufferId panels_of_lines, Expr key);
  void copy_tile(Tiles& t, Expr lane, Expr key);
  RegisterOperand probabilities_operand();
  void hold(const RegisterOperand& x);
  void hold_until_here(const RegisterOperand& before);
  void begin_scores(Tiles& t, Expr lane, Expr key);
  void begin_sums(Tiles& t, Expr lane, const RegisterOperand& probabilities, Expr key);
  // `any_lane` only selects the group.
  void multiply_and_find(Tiles& t, Expr lane, Expr any_lane, Expr key, bool whole);
  bool takes_turns() const { return tiles_.down > 1; }
  Expr is_first(Expr lane);
  void take_turn(Tiles& t, Expr lane, Expr key, Expr before, bool whole);
  void find_probabilities(Tiles& t, Expr lane, Expr key, bool whole);
  void stream_copied(Tiles& t);
  void weigh(BlockProduct& s, Expr lane, Expr key, bool whole);
  void rescale(BlockProduct& o, Expr lane);
  void return_to_row_max(BlockProduct& o, Expr lane);

  const graph::Group& group_;
  graph::Group nothing_;  // the same memory, no nodes: for bodies that only read what they are given
  Attention a_;
  KeyRange range_;
  std::unique_ptr<Body> dot_, queries_, map_,
      pick_;  // over (rows, keys, depth) twice, (rows, keys), (rows, keys, width)
  int64_t parts_ = 1, part_ = 0;
  BufferId statistics_ = -1;
  std::vector<BufferId> row_max_, bases_, row_sum_, scales_;  // of a lane's rows
  std::vector<BufferId> probabilities_;                       // of the previous tile, in registers
  std::vector<Laid> laid_;                                    // queries, keys, values
  std::optional<graph::Plan> shown_plan_;                     // without the mask
  std::unique_ptr<Body> shown_;                               // map_ of shown_plan_
  Expr first_;
};

}  // namespace lumen::synth
