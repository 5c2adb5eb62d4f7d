// The forward kernel of attention by blocks: see attend_block_forward.cpp, and attend_block_stream.cpp for those that
// stream. Proved by tests/kernel/synth/attention/synth_attend_block_test.cpp and synth_attend_stream_test.cpp.
#pragma once

#include "kernel/synth/attention/gpu/attend_block.h"

namespace lumen::synth {

class ForwardBlock : AttendBlock {
 public:
  ForwardBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, Attention attention);

  // Nothing where there is no plan.
  std::optional<Synthesis> run(Scalar products, const AttendEnough& enough);

 private:
  static constexpr loop::VType kOne{Scalar::f32, 1};

  // Queries, keys and values as blocks that stream read them; nothing where they cannot.
  std::vector<LaidOperand> lay(Scalar products) const;
  void prepare(std::vector<LaidOperand> laid, Synthesis& out);
  void split_keys(int64_t blocks);
  void block(Expr head, Expr tile, Expr part);
  Expr statistic(Expr across, Expr line) { return bytes(times(across, tiles_.own) + line, 1); }
  void score(BlockProduct& s, Expr lane, Expr key);
  void soften(BlockProduct& s, BlockProduct& o, Expr lane, Expr key, loop::BufferId probabilities);
  void finish(BlockProduct& o, Expr head, Expr part);
  void once(BlockProduct& o, Expr lane, size_t r, const std::function<void(Expr line)>& body);
  void keep(BlockProduct& o, Expr lane, Expr head, Expr part, const std::vector<Expr>& row_sums);

  // ---- streaming: a block's products and panels, of keys and values two each.
  struct Stream {
    BlockProduct s, o, v;  // scores; sums of values; v lays their panels
    loop::BufferId queries = -1, keys = -1, values = -1;
    Expr from = {}, to = {}, all_from = {}, all_to = {};  // keys that some row sees, and that all do
  };
  using Held = BlockProduct::Held;
  void stream(Expr head, Expr tile, Expr part);
  void begin_block(Stream& t, Expr part);
  BlockProduct::Panel keys_at(Stream& t, Expr key);
  BlockProduct::Panel values_at(Stream& t, Expr key);
  void copy_tile(Stream& t, Expr lane, Expr key);
  void wait_for_copies(int groups);
  Held held();
  void hold(const Held& x);
  void hold_until_here(const Held& before);
  void begin_scores(Stream& t, Expr lane, Expr key);
  void begin_sums(Stream& t, Expr lane, const Held& probabilities, Expr key);
  // Only the group of `any_lane` is read.
  void multiply_and_find(Stream& t, Expr lane, Expr any_lane, Expr key, bool whole);
  void step(Stream& t, Expr key, bool whole);
  bool takes_turns() const { return tiles_.down > 1; }
  Expr is_first(Expr lane);
  void turn(Stream& t, Expr key, bool whole);
  void find_probabilities(Stream& t, Expr lane, Expr key, bool whole);
  void walk(Stream& t);
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
  loop::BufferId statistics_ = -1;
  std::vector<loop::BufferId> row_max_, bases_, row_sum_, scales_;  // of a lane's rows
  std::vector<loop::BufferId> probabilities_;                       // of the tile before, held
  std::vector<Laid> laid_;                                          // queries, keys, values
  std::optional<graph::Plan> shown_plan_;                           // without the mask
  std::unique_ptr<Body> shown_;                                     // map_ of that
  std::vector<Expr> found_;                                         // maxima of the tile of keys at hand, by row
  Expr first_;
};

}  // namespace lumen::synth
