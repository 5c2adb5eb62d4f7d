// Common parts of the attention kernels of blocks (docs/decisions/0007): a block owns a tile of lines, queries or keys,
// and streams tiles of the others. Lines are stored in panels of shared memory, in the type of the factors; streamed
// lines that are the contracted axis are transposed on their way there. Lines beyond the last one repeat it. Proved by
// tests/kernel/synth/attention/synth_attend_block_test.cpp.
#pragma once

#include <array>

#include "kernel/synth/attention/attend.h"
#include "kernel/synth/attention/gpu/attend_block_plan.h"
#include "kernel/synth/attention/gpu/attend_lay.h"
#include "kernel/synth/step/software_pipeline.h"

namespace lumen::synth {

// nullopt if the machine has no waves, or there is no plan for such an attention.
std::optional<Synthesis> attend_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                          const machine::Machine& target, Scalar products,
                                          const AttendEnough& enough = {});
// Type that factors of an attention may be rounded to: `products`, or where keys and values have at most 16 bits a
// number, as KV caches do, a 16-bit float that a matrix instruction multiplies: bf16 if numbers or scales exceed the
// exponents of f16, else f16, which rounds queries and probabilities to 11 bits. Sums stay f32.
Scalar attention_factors(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         Scalar products);
std::optional<Synthesis> attend_gradient_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                                   const machine::Machine& target, Scalar products);

class AttendBlock : protected AttendWriter {
 protected:
  using Side = BlockProduct::Side;

  // `extents` of the scores; `row_axes` of them, outermost first, are a tile's rows, the others belong to heads.
  AttendBlock(const graph::Plan& plan, const machine::Machine& target, std::vector<int64_t> extents,
              std::vector<int> row_axes);

  // An operand read line by line; its body's last axis is the line.
  struct Operand {
    Body* body = nullptr;
    graph::ValueId value = -1;
    bool by_key = false;
    int64_t width = 1;
    const Attention::Found* found = nullptr;  // keys are found by a table
  };

  int64_t keys() const { return extents_.back(); }
  int64_t rows() const { return rows_; }
  int64_t count(bool by_key) const { return by_key ? keys() : rows_; }
  int64_t heads() const;
  std::vector<int64_t> head_extents() const;  // of the scores' row axes; 1 for those of the tile

  // Emits the code of all blocks: a head and two numbers below `first` and `second`; bodies are open at the head.
  // `by_first`: over all heads, blocks of smaller `first` begin earlier. If those have more work, the last blocks to
  // end are short.
  void for_blocks(const std::vector<Body*>& bodies, int64_t first, int64_t second,
                  const std::function<void(Expr head, Expr first, Expr second)>& block, bool by_first = false);
  int64_t panels() const { return tiles_.copied() ? 2 : 1; }  // of each streamed operand
  // Streamed lines come in panels: two (double buffering: one is copied while the other is multiplied), or one that
  // lanes fill.
  SoftwarePipeline pipeline() {
    return {b_, {.lanes = tiles_.lanes(), .buffers = panels(), .copies = tiles_.copied()}};
  }
  void lane_loop(const std::function<void(Expr lane)>& body) { pipeline().lanes(body); }

  // In lane loops. Opens the axes of a line; returns how many, for close(body, ..).
  int open_line(Body& body, bool by_key, Expr number);
  int open_line(const Operand& o, Expr number);  // also where a table finds it
  // Fills a panel with lines first .. .
  void fill(Expr lane, const Operand& o, Expr first, BlockProduct& p, Side side, BufferId to);
  // The same for the plan's streamed lines as the contracted axis: rows of the panel are the operand's numbers.
  void fill_transposed(Expr lane, const Operand& o, Expr first, BlockProduct& p, BufferId to);
  // Stores numbers of a stationary line in the panel that a result multiplies.
  void put(BlockProduct& p, Expr line, Expr along, Expr x, BufferId to);
  void multiply(BlockProduct& p, Expr lane, BufferId stationary, BufferId streamed);
  BufferId panel(const BlockProduct& p, Side side);
  BufferId shared(int64_t bytes);

  // Applies `maps`, of the scores' shape, to the sums `x` of products, for one stationary line (open in `map`), from
  // streamed line `number` on; numbers of lines that do not exist are replaced by `hidden`. `whole`: all exist.
  using Maps = std::function<std::vector<Expr>(Body& map, const std::vector<Expr>& x)>;
  std::vector<Expr> at_streamed(Body& map, bool streams_keys, Expr number, const std::vector<Expr>& x, double hidden,
                                const Maps& maps, bool whole = false);
  // Truth values: which lines of a vector from line `number` on exist; no value: all.
  Expr exists(bool by_key, Expr number, int lanes);

  // The range of keys that some row of first .. first + lines - 1 sees, and that all see; `bounds` is shared memory.
  // Contains a barrier.
  struct Seen {
    Expr first, end, all_first, all_end;
  };
  Seen seen_keys(const KeyRange& range, Body& map, Expr first, int64_t lines, BufferId bounds);
  static constexpr int64_t kBoundsBytes = 32 * 16;  // for up to 32 waves
  // Reduces four numbers of all lanes by min, max, max, min, for the block's code; contains a barrier.
  std::array<Expr, 4> block_range(const std::function<std::array<Expr, 4>(Expr lane)>& numbers, BufferId bounds);

  // Between these calls, math is only as accurate as rounded factors need.
  void begin_fast_math() {
    const char* greatest = "greatest.f32";
    b_.use_fast_math({target_.power2, target_.reciprocal, target_.find_row(greatest) ? greatest : ""});
  }
  void end_fast_math() { b_.use_fast_math({}); }
  bool rounds_factors() const { return is_float(tiles_.factor) && scalar_bytes(tiles_.factor) == 2; }

  // Operands whose panels are copied (attend_lay.h), and the declaration of one; its scratch is `number`.
  struct Laid {
    LaidOperand operand;
    BufferId buffer = -1;
    bool by_key = false;
  };
  Laid declare(const LaidOperand& o, bool by_key);
  // Begins copies of lines first .. to the panel of `p` at byte `from` of `to`.
  void copy_lines(Expr lane, const Laid& o, Expr first, BlockProduct& p, Side side, BlockProduct::Panel to);

  // Writes the sums of stationary lines as a result; `change` gets the number of the lane's line and its sums.
  using Last = std::function<Expr(int line, Expr x)>;
  void write(BlockProduct& p, Expr lane, Body& body, graph::ValueId result, bool by_key, Expr first, int64_t width,
             const Last& change);

  const graph::Plan& plan_;
  const machine::Machine& target_;
  std::vector<int64_t> extents_;
  std::vector<int> row_axes_;
  std::vector<int64_t> row_extents_;
  int64_t rows_ = 1;
  AttendPlan tiles_;
  std::vector<Expr> head_;  // the block's place along the scores' axes, 0 along a tile's rows

 private:
  using Place = std::function<Expr(Expr line, Expr unit)>;
  void fill_units(Expr lane, const Operand& o, Expr first, int64_t lines, int64_t units, int unit, const Place& place,
                  BufferId to);
  void each(Expr lane, int64_t outer, int64_t inner, int64_t reads,
            const std::function<void(Expr outer, Expr inner)>& body);
  Expr as_factor(Expr x) { return b_.type(x).scalar == tiles_.factor ? x : cast(x, tiles_.factor); }
  Expr join(const std::vector<Expr>& parts, int lanes, Scalar type);
};

}  // namespace lumen::synth
