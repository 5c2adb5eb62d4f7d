// Storage of a tile of rows and a block of keys in the gradient of an attention, and its products: by vectors of f32,
// or by the tiles of a matrix unit, whose factors are 16-bit floats. attend_gradient.cpp walks over tiles and blocks
// and fixes the order of steps. Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

// An operand of products or results: lines of numbers, one for each row of a tile or key of a block.
struct GradientOperand {
  bool by_key = false;
  int64_t width = 1;
  bool meets_rows = false, meets_keys = false;  // a factor of scores, as their rows or as their keys
  bool is_summed = false;                       // a result sums over its lines
};
struct GradientResult {
  int source = -1, operand = -1;  // sum over lines of `operand`, times that source
  bool over_keys = false;
};
struct GradientParts {
  std::vector<GradientOperand> operands;
  std::vector<GradientResult> results;
  std::vector<std::pair<int, int>> products;  // operands that give scores: by row, by key
  size_t sources = 0;                         // values of the scores' shape that results read
  int64_t tile = 1, tiles = 1, block = 1;     // rows of a tile, tiles of a head, keys of a block
};

class GradientPanels {
 public:
  virtual ~GradientPanels() = default;

  // For the choice of parts.tile and block: their granularity, the maximum number of rows, and the padded width of an
  // operand's line.
  virtual int64_t rows_together() const = 0;
  virtual int64_t keys_together() const = 0;
  virtual int64_t most_rows() const = 0;
  virtual int64_t padded(int64_t width) const = 0;
  virtual std::string describe() const = 0;

  void set_parts(const GradientParts& parts) { parts_ = &parts; }  // they must outlive this
  // In a task's region.
  virtual void begin() = 0;
  // Stores numbers of an operand's line from column `at` (a multiple of the lanes) on; `count` of them exist (no value:
  // all).
  virtual void clear_line(int operand, Expr line) = 0;
  virtual void put(int operand, Expr line, Expr at, Expr numbers, Expr count) = 0;
  // Called when all lines up to `count` are stored.
  virtual void finish(int operand, Expr count) = 0;

  struct Place {
    BufferId buffer = -1;
    Expr byte;
  };
  // Place of the f32 numbers of product, or source, `number`, for a row of the tile and lanes of keys of the block.
  virtual Place square(size_t number, Expr row, Expr key) = 0;
  // Whether the padding of squares is read and has to be zero: keys that a row does not see, lanes that do not exist.
  virtual bool reads_beside() const = 0;
  // Computes product k: rows below `rows`, keys from .. to - 1 of the block.
  virtual void multiply(size_t k, Expr rows, Expr from, Expr to) = 0;
  // Called when the sources are in the squares.
  virtual void take_sources(Expr rows, Expr from, Expr to) = 0;

  // Sums of a result: over keys, f32 of a head's rows in scratch; over rows, of a block's keys.
  int64_t head_bytes(size_t number) const { return parts_->tiles * parts_->tile * sum_width(number) * 4; }
  void set_scratch(size_t number, BufferId scratch) {
    sums_.resize(parts_->results.size(), -1);
    sums_[number] = scratch;
  }
  void enter_head(Expr head) { head_ = head; }
  virtual void clear_sums(size_t result) = 0;
  virtual void add(size_t result, Expr first, Expr rows, Expr from, Expr to) = 0;
  virtual Place sum(size_t result, Expr line, Expr column) = 0;

 protected:
  const GradientOperand& operand(int number) const { return parts_->operands[number]; }
  const GradientResult& result(size_t number) const { return parts_->results[number]; }
  int64_t sum_width(size_t number) const { return padded(operand(result(number).operand).width); }
  const GradientParts* parts_ = nullptr;
  std::vector<BufferId> sums_;  // by result
  Expr head_;
};

std::unique_ptr<GradientPanels> vector_panels(Builder& b, const graph::Graph& g, graph::ValueId root,
                                              const machine::Machine& target);
// Null if the machine has no tiles for products of such 16-bit floats.
std::unique_ptr<GradientPanels> unit_panels(Builder& b, const machine::Machine& target, Scalar factor);

}  // namespace lumen::synth
