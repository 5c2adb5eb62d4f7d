// Products of tiles that a block of lanes computes together: sums[m][n] += sum_k a[m][k] * b[n][k], both factors in
// shared memory, sums in the lanes' registers. Uses a matrix instruction of the machine, whose layouts are data
// (loop/fragment.h), or fused multiply-adds of f32. Independent of operands' formats and of its users; dots and
// attention build on it. Proved by tests/kernel/synth/block_product_test.cpp.
//
// A factor's panel holds `stage_k` numbers of each row, in units of 16 bytes along k. Only place() defines where a unit
// is stored: lanes that fetch their shares together read contiguous memory, without bank conflicts.
//
//   BlockProduct p(b, machine, tile);             in the block's code
//   a = b.alloc(p.panel_bytes(a), BlockProduct::kAlign, Space::shared) ..
//   lane loop: p.clear()
//   lane loop: b.store(a, 16 bytes, p.place(Side::a, row, unit)) ..
//   barrier
//   lane loop: p.multiply(lane, a, offset, b, offset)
//   lane loop: p.each_sum(lane, [](m, n, vector along n) ..)
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/mma/fragment_digits.h"
#include "kernel/synth/mma/fragment_loads.h"

namespace lumen::synth {

// Which instruction multiplies, and how the lanes of a block share a tile. Side a counts rows (m), side b columns (n).
struct BlockTile {
  enum class Side : uint8_t { a, b };
  const machine::MatrixRow* row = nullptr;  // null: fused multiply-adds
  Scalar factor = Scalar::f32;              // type in panels; u8: codes of an 8-bit float, which the row specifies
  int wave = 32;                            // lanes that execute an instruction together: a wave, or several
  int groups_m = 1, groups_n = 1;           // such groups, down and across the tile
  int tiles_m = 1, tiles_n = 1;             // instructions of a group
  int64_t stage_k = 1;                      // of a panel
  // The lanes of a wave load operands together (fragment_loads.h; BlockProduct::can_load), and panels are laid out for
  // that. a_beside, b_beside: rows of that panel are contiguous (it is transposed).
  bool loads = false, a_beside = false, b_beside = false;
  bool swizzles = false;  // the same layout if lanes read for themselves (BlockProduct::can_swizzle)
  // Rows of a panel hold a whole stage and follow each other without padding (BlockProduct::can_have_whole_rows): units
  // that lanes copy together are in the order of lanes. Waves read for themselves, with `swizzles`.
  bool whole_rows = false;
  bool scales_runs = false;  // sums of panels are scaled before they are added, in f32

  int step_m() const;  // of one instruction
  int step_n() const;
  int step(Side side) const { return side == Side::a ? step_m() : step_n(); }
  int tiles(Side side) const { return side == Side::a ? tiles_m : tiles_n; }
  int64_t lines(Side side) const { return side == Side::a ? m() : n(); }
  int64_t group_lines(Side side) const { return int64_t{step(side)} * tiles(side); }
  bool transposed(Side side) const {
    if (loads) return side == Side::a ? a_beside : b_beside;
    return row && (side == Side::a ? row->a_transposed : row->b_transposed);
  }
  // Units of a panel's rows are swizzled, so that those of eight rows lie in different banks.
  bool swizzled() const { return loads || swizzles || (row && row->in_shared); }
  // Panels have partial sums of their own. If waves load together, these are added at once and need no memory.
  bool has_partial() const { return row && ((row->short_sums && !loads) || scales_runs); }
  int lanes() const { return wave * groups_m * groups_n; }
  int64_t m() const { return int64_t{step_m()} * tiles_m * groups_m; }
  int64_t n() const { return int64_t{step_n()} * tiles_n * groups_n; }
};

// The type in which products of such factors are added: i32 for integers, else f32.
Scalar sums_of_factor(const machine::Factor& factor);
// Types of the two sides of a product: of equal size, such as codes of two 8-bit floats.
struct Factors {
  Factors(const machine::Factor& left, const machine::Factor& right) : a(left), b(right) {}
  machine::Factor a, b;
};
// The instruction that multiplies numbers of these types into those sums; null if the machine has none. `shared`: one
// that reads its factors from shared memory, of `n` columns; `a_in_registers`: the first one from registers. With one
// factor, both sides have its type.
const machine::MatrixRow* find_matrix(const machine::Machine& m, const Factors& factors, int size);
const machine::MatrixRow* find_matrix(const machine::Machine& m, const machine::Factor& factor, int size);
const machine::MatrixRow* find_shared_matrix(const machine::Machine& m, const Factors& factors, int n,
                                             bool a_transposed = false, bool b_transposed = false,
                                             bool a_in_registers = false);
const machine::MatrixRow* find_shared_matrix(const machine::Machine& m, const machine::Factor& factor, int n,
                                             bool a_transposed = false, bool b_transposed = false,
                                             bool a_in_registers = false);

class BlockProduct {
 public:
  using Side = BlockTile::Side;
  static constexpr int kAlign = 1024;                                            // of panels
  static constexpr int64_t kUnit = 16;                                           // bytes
  static constexpr int64_t kSwizzledRow = 128, kSwizzle = kSwizzledRow / kUnit;  // rows after which the swizzle repeats

  // In the code of a block: allocates the sums.
  BlockProduct(Builder& b, const machine::Machine& m, BlockTile tile);

  // K of a panel is a multiple of this.
  static int64_t step_k(const machine::Machine& m, const BlockTile& tile);

  // Whether the machine loads both operands of a tile's instruction together; contiguous rows only if a panel has whole
  // runs of them.
  static bool can_load(const machine::Machine& m, const BlockTile& tile);
  // Whether a lane's rows of a factor keep their places within a swizzle from instruction to instruction.
  static bool can_swizzle(const machine::Machine& m, const BlockTile& tile);

  // The same for a panel of whole rows: they must not be longer than the swizzle.
  static bool can_have_whole_rows(const machine::Machine& m, const BlockTile& tile);

  static int64_t panel_bytes(const machine::Machine& m, const BlockTile& tile, Side side);
  int64_t panel_bytes(Side side) const;
  int64_t unit_elements() const { return kUnit / scalar_bytes(tile_.factor); }
  // Rows (of a transposed factor: k) that are n * kSwizzle apart are n * kSwizzle * row_bytes apart in memory.
  int64_t row_bytes(Side side) const { return is_transposed(side) ? kSwizzledRow : factor(side).row_bytes; }
  int64_t units() const { return tile_.stage_k / unit_elements(); }  // of a row
  // Byte of a panel where unit `unit` of row `row` lies.
  Expr place(Side side, Expr row, Expr unit);
  // The same for `further` units after one whose number is a multiple of `run` > further: at a constant distance if
  // possible, so that lanes keep one address for all of them.
  Expr place(Side side, Expr row, Expr unit, int64_t further, int64_t run);
  // In whole rows: the unit of `row` that is stored `number` units after the start of the row.
  Expr unit_at(Side side, Expr row, Expr number) { return number ^ swizzle_of(factor(side), row); }
  // The place in a factor that the instruction takes transposed: 16 bytes of rows, `unit` such units down, at k.
  Expr transposed_place(Side side, Expr unit, Expr k);
  bool is_transposed(Side side) const { return tile_.transposed(side); }

  // In lane loops:
  void clear();
  // Scales of panels (scales_runs): one for each of the lines(Side) that a lane holds parts of; empty: 1.
  struct Scales {
    std::vector<Expr> rows, columns;
  };
  // Multiplies the first `k` (-1: all) of the panels that begin at these bytes.
  void multiply(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k = -1,
                const Scales* scales = nullptr);
  // The same for whole rows step by step of k, as read_step() and multiply_step(): lanes hold the operands of one step
  // and those that are read for the next. hold_steps(): in the block's code, once. The number of steps is even: a
  // stage's first step may be read while the previous stage's last one is multiplied.
  static int64_t steps(const machine::Machine& m, const BlockTile& tile);
  void hold_steps();
  struct Panel {
    BufferId buffer = -1;
    Expr from;
  };
  void read_step(Expr lane, Panel a, Panel b, int64_t step);
  void multiply_step(int64_t step);
  // The same in two parts, for an instruction that reads shared memory: begin(), then ready() after a wait for it.
  // `fresh`: the sums begin at zero. For instructions that keep few digits, and for scaled panels, ready() adds the
  // partial sums since the last fresh panel.
  void begin(Expr lane, Panel a, Panel b, bool fresh = false);
  // a in registers of the lanes: an operand for each step of k, made by hold() from the sums of `of`, whose columns are
  // this product's k. They must be kept until the products are ready: ready(a).
  using RegisterOperand = std::vector<Expr>;
  RegisterOperand hold(const BlockProduct& of);
  // Whether hold() is possible for lanes that load b together. Each tile of `of` down the group has its operands after
  // the previous tile's.
  static bool holds(const BlockTile& tile, const BlockTile& of);
  bool holds(const BlockProduct& of) const { return holds(tile_, of.tile_); }
  void multiply(Expr lane, const RegisterOperand& a, BufferId b, Expr b_from);
  void begin(Expr lane, const RegisterOperand& a, Panel b);
  void ready(const Scales* scales = nullptr);
  void ready(const RegisterOperand& a_operand);
  // Visits sums lane by lane: vectors of neighbours along n. `change` returns new ones for the same places.
  using Visit = std::function<void(Expr m, Expr n, Expr sums)>;
  using Change = std::function<Expr(Expr m, Expr n, Expr sums)>;
  void each_sum(Expr lane, const Visit& visit);
  void change_sums(Expr lane, const Change& change);
  int run() const { return run_; }  // length of those vectors

  // The same line by line: rows of the tile (Side::a) or columns (Side::b). A lane holds a part of a line, other lanes
  // of its group and groups across the tile hold the rest.
  int lines(Side side) const { return tile_.tiles(side) * parts(side).size(); }  // that a lane holds parts of
  Expr line(Side side, Expr lane, int number);
  int run(Side side) const { return side == Side::a ? run_ : column_run_; }  // length of vectors along a line
  // Lines number * n .. number * n + n - 1 that a lane holds parts of are neighbours, and the first is a multiple of n.
  int lines_beside(Side side) const { return run(other(side)); }
  // `change` gets the position along the line at which a vector begins.
  using ChangeLine = std::function<Expr(Expr along, Expr sums)>;
  void change_line(Side side, Expr lane, int number, const ChangeLine& change);
  // Reduces a line over the lanes of a group that hold it, by op (associative, commutative): all get the same bits.
  Expr fold_line(Side side, ScalarOp op, Expr x);
  static int lanes_of_line(const BlockTile& tile, Side side);  // of a group
  Expr leads_line(Side side, Expr lane);                       // true for one of these lanes
  Expr group_across(Side side, Expr lane) const;               // the lane's group among those that share lines

  // If adjacent lanes hold neighbouring runs of a row, and the next such runs are apart_beside() columns further: the
  // number of such lanes (a power of two; 1: it is not so), and the lane's number among `lanes` of them.
  int lanes_beside() const;
  int64_t apart_beside() const { return int64_t{run_} * acc_.columns[acc_.columns.size() - 2].extent; }
  Expr number_beside(Expr lane, int lanes);
  // Exchanges values, of any type, of successive runs of a line, as many as lanes: the i-th lane gets the i-th value of
  // all these lanes, in words.
  Expr pass_beside(Expr lane, std::vector<Expr> runs);

  const BlockTile& tile() const { return tile_; }

 private:
  using Digit = FragmentDigits::Digit;
  using Part = FragmentDigits::Part;
  Expr number_of(const FragmentDigits::Digits& digits, Expr lane) { return FragmentDigits::number(b_, digits, lane); }
  Expr group_of(const FragmentDigits::Digits& digits, Expr lane) { return FragmentDigits::group(b_, digits, lane); }

  struct Factor {
    FragmentDigits holding;
    std::optional<FragmentLoads> loads;
    int64_t rows = 1;         // of the panel
    int64_t chunk_bytes = 0;  // from one chunk to the next
    int64_t row_bytes = 0;    // of a chunk
  };
  const Factor& factor(Side side) const { return side == Side::a ? a_ : c_; }
  const std::vector<Part>& parts(Side side) const { return side == Side::a ? acc_.row_parts : acc_.column_parts; }
  const FragmentDigits::Digits& digits(Side side) const { return side == Side::a ? acc_.rows : acc_.columns; }
  static constexpr Side other(Side side) { return side == Side::a ? Side::b : Side::a; }
  Expr own_group(Side side, Expr lane) const;
  void prepare(Factor& f, const loop::Fragment& fragment, int64_t rows);
  std::vector<Expr> lane_places(Side side, Expr lane, int64_t step = 0);
  Expr swizzle_of(const Factor& f, Expr row);
  Expr first_line(Side side, Expr lane);
  struct Shares {
    BufferId buffer = -1;
    std::vector<Expr> from;  // bytes, of the units of a share, or of all of them if they are contiguous
    template <class T>
    Shares further(const T& bytes) const {
      Shares out = *this;
      for (Expr& place : out.from) place = place + bytes;
      return out;
    }
  };
  Shares shares(Side side, Expr lane, Panel panel, int64_t step = 0);
  void multiply_rows(const Shares& a, const Shares& b, int64_t chunks);
  BufferId held(Side side, int tile, size_t part, int64_t step) const;
  static int64_t chunk_of(const machine::Machine& m, const BlockTile& tile);  // of k
  void multiply_loaded(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k);
  Expr loads_from(Side side, Expr lane);
  std::vector<Expr> load(Side side, BufferId buffer, Expr from, Expr lane_place, int64_t step);
  void multiply_short(const std::vector<std::vector<Expr>>& left, const std::vector<std::vector<Expr>>& right);
  const FragmentLoads& loads(Side side) const { return side == Side::a ? *a_.loads : *c_.loads; }
  void multiply_shared(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k, const Scales* scales);
  void begin(Expr lane, const RegisterOperand* a_operand, Panel a, Panel b, bool fresh, int64_t k);
  using Runs = std::vector<Expr>;  // a lane's of one instruction, or of several consecutive ones
  void multiply_chunk(const Shares& a, const Shares& b);
  void add_products(int i, int j, int64_t step, const Runs& left, const Runs& right);
  Runs fetch(const Factor& f, const Shares& shares, int64_t row);
  Expr operand(const Factor& f, const std::vector<Expr>& runs, size_t index, int64_t step);
  BufferId sum(int i, int j) const { return sums_[i * tile_.tiles_n + j]; }

  Builder& b_;
  BlockTile tile_;
  Factor a_, c_;
  FragmentDigits acc_;
  int acc_elements_ = 1, run_ = 1, column_run_ = 1;
  int64_t together_ = 1;  // instructions fed by one fetch
  int64_t chunk_k_ = 1;
  // Where instructions add to: the sums, or the partial sums of a panel (short_sums).
  BufferId product(int i, int j) const { return partial_.empty() ? sum(i, j) : partial_[i * tile_.tiles_n + j]; }
  void add_partial(const Scales* scales);
  Expr scales_of(const Scales& scales, int i, int j);
  // Types of a lane's sums of one instruction as it adds them, and as they are stored; readers get f32.
  VType products_type() const { return {tile_.row ? tile_.row->acc : Scalar::f32, acc_elements_}; }
  VType sums_type() const { return {tile_.scales_runs ? Scalar::f32 : products_type().scalar, acc_elements_}; }
  Expr zero(VType type);
  int64_t step_apart(int runs) const;
  std::vector<BufferId> sums_, partial_;
  std::vector<BufferId> held_;  // operands of two steps: those of a, then of b; parts of a row follow each other
};

}  // namespace lumen::synth
