// One thread of execution of a kernel or function: values, private memory, and the semantics of every instruction of a
// single lane. eval.cpp runs tasks with it, eval_grid.cpp has one for each lane of a block.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernel/loop/eval/eval.h"

namespace lumen::loop {

using Lanes = std::vector<ScalarValue>;

ScalarValue read_scalar(Scalar s, const uint8_t* p);
void write_scalar(Scalar s, uint8_t* p, const ScalarValue& v);

// Block barriers that a lane has passed, and wave barriers since the last of them.
struct Epoch {
  int64_t block = 0, wave = 0;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

// Which lane wrote and read each byte since the last barrier of the block, or of its wave: detects data races between
// lanes.
class Traces {
 public:
  Traces(size_t bytes, int wave) : marks_(bytes), wave_(wave) {}
  // The race that this access causes, or empty.
  std::string touch(int64_t offset, int64_t bytes, bool writes, int lane, Epoch epoch);

 private:
  static constexpr int kNone = -1, kSeveral = -2;
  struct Mark {
    Epoch write_epoch, read_epoch;
    int writer = kNone, reader = kNone, read_wave = kNone;
  };
  bool apart(Epoch a, int wave, Epoch b, int other) const {
    return a.block != b.block || (wave == other && a.wave != b.wave);
  }
  std::vector<Mark> marks_;
  int wave_;
};

class Evaluator {
 public:
  Evaluator(const Kernel& k, const RowLookup& rows, int lane = 0);

  Lanes call(const Function& f, std::vector<Lanes> operands);
  void bind(std::span<const std::span<uint8_t>> buffers);
  void region(const Region& r);
  void step(const Instr& instr);

  int64_t integer(ValueId v) const { return values_[v][0].integer; }
  Lanes& value(ValueId v) { return values_[v]; }
  const Function& meaning(const Instr& instr) const;  // of the instruction's row
  // The bytes of an access, checked.
  uint8_t* access(const Instr& instr, BufferId buffer, int64_t offset, int64_t bytes, int align, bool writes);
  // Memory shared by lanes, with traces of its accesses.
  void share(BufferId buffer, std::span<uint8_t> bytes, Traces* traces);

  Status status;
  Epoch epoch;

 private:
  void loop(const Instr& instr);
  void store(const Instr& instr);
  Lanes compute(const Instr& instr);
  void scalar(const Instr& instr);
  Lanes fold(const Instr& instr);
  int64_t touched(const Instr& instr, size_t operand, int lanes) const;

  const Kernel& k_;
  const RowLookup& rows_;
  const int lane_;
  std::vector<Lanes> values_;
  std::vector<std::span<uint8_t>> buffers_;
  std::vector<std::vector<uint8_t>> storage_;
  std::vector<Traces*> traces_;
};

// A grid kernel, block after block, all lanes in lockstep; `wave` lanes are one wave.
Status eval_grid(const Kernel& k, std::span<const std::span<uint8_t>> buffers, const RowLookup& rows, int wave);

}  // namespace lumen::loop
