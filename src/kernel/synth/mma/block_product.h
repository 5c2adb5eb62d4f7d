// Products of tiles that a block of lanes computes together: sums[m][n] += sum_k a[m][k] * b[n][k], both factors in
// shared memory, sums in the lanes' registers. By a matrix instruction of the machine, whose layouts are data
// (loop/fragment.h), or by fused multiply-adds of f32. Knows nothing of operands' formats or of what is multiplied;
// dots and attention build on it. Proved by tests/kernel/synth/block_product_test.cpp.
//
// A factor's panel holds `stage_k` numbers of each row, in units of 16 bytes along k. Where a unit lies is place()'s
// secret: lanes that fetch their shares together read memory that lies together, so no banks collide.
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
  Scalar factor = Scalar::f32;              // what panels hold; u8: codes of an 8-bit float, the row knows which
  int wave = 32;                            // lanes that execute an instruction together: a wave, or several
  int groups_m = 1, groups_n = 1;           // such groups, down and across the tile
  int tiles_m = 1, tiles_n = 1;             // instructions of a group
  int64_t stage_k = 1;                      // of a panel
  // The lanes of a wave load operands together (fragment_loads.h; BlockProduct::can_load), and panels lie so that they
  // can; of these a_beside, b_beside: rows of the panel lie beside each other.
  bool loads = false, a_beside = false, b_beside = false;
  bool swizzles = false;  // the same places of units where lanes read for themselves (BlockProduct::can_swizzle)
  // Rows of a panel hold a whole stage and follow each other without a gap (BlockProduct::can_have_whole_rows): units
  // that lanes copy together lie as the lanes do. Waves read for themselves, with `swizzles`.
  bool whole_rows = false;
  bool scales_runs = false;  // what panels give is scaled before it is added, in f32

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
  // Units of a panel's rows change places, so that those of eight rows lie in different banks.
  bool swizzled() const { return loads || swizzles || (row && row->in_shared); }
  // Sums of panels are sums of their own; where waves load together they live while they are added.
  bool has_partial() const { return row && ((row->short_sums && !loads) || scales_runs); }
  int lanes() const { return wave * groups_m * groups_n; }
  int64_t m() const { return int64_t{step_m()} * tiles_m * groups_m; }
  int64_t n() const { return int64_t{step_n()} * tiles_n * groups_n; }
};

// What products of such factors are added in: i32 for integers, else f32.
Scalar sums_of_factor(const machine::Factor& factor);
// What the two sides of a product are: of as many bytes, such as codes of two 8-bit floats.
struct Factors {
  Factors(const machine::Factor& left, const machine::Factor& right) : a(left), b(right) {}
  machine::Factor a, b;
};
// The instruction to multiply numbers of these types with, in those sums; null when the machine has none. `shared`:
// those that read their factors from shared memory, of `n` columns, are meant; `a_in_registers`: the first one from
// registers. Of one type: both sides are.
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
  static constexpr int64_t kSwizzledRow = 128, kSwizzle = kSwizzledRow / kUnit;  // rows after which units lie alike

  // Allocates the sums: in the code of a block.
  BlockProduct(Builder& b, const machine::Machine& m, BlockTile tile);

  // K of a panel is a multiple of this.
  static int64_t step_k(const machine::Machine& m, const BlockTile& tile);

  // Whether the machine loads both operands of a tile's instruction together; rows that lie beside each other only
  // where a panel has whole runs of them.
  static bool can_load(const machine::Machine& m, const BlockTile& tile);
  // Whether a lane's rows of a factor keep their places within a swizzle from instruction to instruction.
  static bool can_swizzle(const machine::Machine& m, const BlockTile& tile);

  // The same of a panel of whole rows: they are no longer than a swizzle is.
  static bool can_have_whole_rows(const machine::Machine& m, const BlockTile& tile);

  static int64_t panel_bytes(const machine::Machine& m, const BlockTile& tile, Side side);
  int64_t panel_bytes(Side side) const;
  int64_t unit_elements() const { return kUnit / scalar_bytes(tile_.factor); }
  // Rows (of a transposed factor: k) a multiple of kSwizzle apart lie as many times this apart.
  int64_t row_bytes(Side side) const { return is_transposed(side) ? kSwizzledRow : factor(side).row_bytes; }
  int64_t units() const { return tile_.stage_k / unit_elements(); }  // of a row
  // Byte of a panel where unit `unit` of row `row` lies.
  Expr place(Side side, Expr row, Expr unit);
  // The same for `further` units behind one whose number is a multiple of `run` > further: a constant further where it
  // can be, so that lanes keep one address for all of them.
  Expr place(Side side, Expr row, Expr unit, int64_t further, int64_t run);
  // In whole rows: the unit of `row` that lies `number` units behind the row's begin.
  Expr unit_at(Side side, Expr row, Expr number) { return number ^ swizzle_of(factor(side), row); }
  // The place in a factor that the instruction wants transposed: 16 bytes of rows, `unit` such units down, at
  // k.
  Expr transposed_place(Side side, Expr unit, Expr k);
  bool is_transposed(Side side) const { return tile_.transposed(side); }

  // In lane loops:
  void clear();
  // Scales of panels (scales_runs): of each of the lines(Side) that a lane holds parts of; none: 1.
  struct Scales {
    std::vector<Expr> rows, columns;
  };
  // The first `k` (-1: all) of the panels that begin at these bytes.
  void multiply(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k = -1,
                const Scales* scales = nullptr);
  // The same of whole rows step by step of k, each in two: lanes hold the operands of one step and those that are read
  // for the next. hold_steps(): in the block's code, once. An even number of steps: the first one of a stage may be
  // read while the last one of the stage before is multiplied.
  static int64_t steps(const machine::Machine& m, const BlockTile& tile);
  void hold_steps();
  struct Panel {
    BufferId buffer = -1;
    Expr from;
  };
  void read_step(Expr lane, Panel a, Panel b, int64_t step);
  void multiply_step(int64_t step);
  // The same in two, by an instruction that reads shared memory: begun; ready() behind a wait for it. `fresh`: the sums
  // begin at zero. Of instructions that keep few digits, and of scaled panels, ready() adds what panels gave since the
  // last fresh one.
  void begin(Expr lane, Panel a, Panel b, bool fresh = false);
  // a held by the lanes: an operand for each step of k, as hold() makes them of the sums of `of`, whose columns are
  // this one's k. They must be kept until the products are ready: ready(a).
  using RegisterOperand = std::vector<Expr>;
  RegisterOperand hold(const BlockProduct& of);
  // The same by lanes that load b together; of tiles of `of` down the group each has its operands behind the last
  // one's.
  static bool holds(const BlockTile& tile, const BlockTile& of);
  bool holds(const BlockProduct& of) const { return holds(tile_, of.tile_); }
  void multiply(Expr lane, const RegisterOperand& a, BufferId b, Expr b_from);
  void begin(Expr lane, const RegisterOperand& a, Panel b);
  void ready(const Scales* scales = nullptr);
  void ready(const RegisterOperand& a_operand);
  // Sums lane by lane: vectors of neighbours along n. `change` gives new ones for the same places.
  using Visit = std::function<void(Expr m, Expr n, Expr sums)>;
  using Change = std::function<Expr(Expr m, Expr n, Expr sums)>;
  void each_sum(Expr lane, const Visit& visit);
  void change_sums(Expr lane, const Change& change);
  int run() const { return run_; }  // length of those vectors

  // The same line by line: rows of the tile (Side::a) or columns (Side::b). Of a line a lane holds a part, other lanes
  // of its group and groups across the tile hold the others.
  int lines(Side side) const { return tile_.tiles(side) * parts(side).size(); }  // that a lane holds parts of
  Expr line(Side side, Expr lane, int number);
  int run(Side side) const { return side == Side::a ? run_ : column_run_; }  // length of vectors along a line
  // Lines number * n .. number * n + n - 1 that a lane holds parts of are neighbours, and the first a multiple of n.
  int lines_beside(Side side) const { return run(other(side)); }
  // `change` gets how far along the line a vector begins.
  using ChangeLine = std::function<Expr(Expr along, Expr sums)>;
  void change_line(Side side, Expr lane, int number, const ChangeLine& change);
  // What the lanes of a group that hold the same line have, by op (associative, commutative): all get the same bits.
  Expr fold_line(Side side, ScalarOp op, Expr x);
  static int lanes_of_line(const BlockTile& tile, Side side);  // of a group
  Expr leads_line(Side side, Expr lane);                       // truth: one of these lanes
  Expr group_across(Side side, Expr lane) const;               // the lane's group among those that share lines

  // Where lanes beside each other hold neighbouring runs of a row, and the next such runs lie apart_beside() columns
  // on: how many lanes (a power of two; 1: it is not so), and the lane's number among `lanes` of them.
  int lanes_beside() const;
  int64_t apart_beside() const { return int64_t{run_} * acc_.columns[acc_.columns.size() - 2].extent; }
  Expr number_beside(Expr lane, int lanes);
  // Something of each of as many successive runs of a line, of any type: each lane gets what they all have for the run
  // of its number, in words.
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
    std::vector<Expr> from;  // bytes, of the units of a share, or of all of them as they lie behind each other
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
  using Runs = std::vector<Expr>;  // a lane's of one instruction, or of several behind each other
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
  // Where instructions add to: the sums, or those of a panel (short_sums).
  BufferId product(int i, int j) const { return partial_.empty() ? sum(i, j) : partial_[i * tile_.tiles_n + j]; }
  void add_partial(const Scales* scales);
  Expr scales_of(const Scales& scales, int i, int j);
  // A lane's sums of one instruction as it adds them, and as they are held; those who read them get f32.
  VType products_type() const { return {tile_.row ? tile_.row->acc : Scalar::f32, acc_elements_}; }
  VType sums_type() const { return {tile_.scales_runs ? Scalar::f32 : products_type().scalar, acc_elements_}; }
  Expr zero(VType type);
  int64_t step_apart(int runs) const;
  std::vector<BufferId> sums_, partial_;
  std::vector<BufferId> held_;  // operands of two steps: those of a first, then of b, each part of a row behind another
};

}  // namespace lumen::synth
