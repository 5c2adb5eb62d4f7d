// The loop IR: how one step is computed. Structured control flow, SSA numbers and vectors, byte-addressed buffers in
// address spaces. Mutable variables are private allocs (the emitter turns them into registers). Read op.def first.
// Invariants (verify.h): values are defined before use in an enclosing or the same region; offsets are i64; a kernel's body
// is ONE loop of kind parallel or grid (its trip count, `tasks`, is constant), optionally after pure instructions; parallel iterations do
// not communicate, so any split over threads gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "number/formula.h"
#include "number/scalar.h"

namespace lumen::loop {

struct VType {
  Scalar scalar = Scalar::f32;
  int lanes = 1;
  friend bool operator==(const VType&, const VType&) = default;
};

enum class Op : uint8_t {
#define X(name, operands, attributes, regions, effect, text) name##_,
#include "kernel/loop/op.def"
#undef X
};

enum class LoopKind : uint8_t { serial, unroll, parallel, grid, lane };
enum class Space : uint8_t { global, shared, priv };

using ValueId = int;
using BufferId = int;

struct Instr;
struct Region {
  ValueId counter = -1;            // loops: the induction variable (i64)
  std::vector<Instr> code;
};

struct Instr {
  Op op;
  VType type;                      // of the result
  ValueId result = -1;             // -1: none
  std::vector<ValueId> operands;
  ScalarOp scalar_op = ScalarOp::add_;
  std::vector<double> data;        // constant (floats)
  std::vector<int64_t> integers;   // constant (integers, truth values)
  std::vector<int> mask;           // shuffle
  int lane = 0;                    // extract, insert
  BufferId buffer = -1;            // load, store, gather, scatter, alloc
  int align = 1;                   // bytes
  Space space = Space::priv;       // alloc
  int64_t bytes = 0;               // alloc
  LoopKind kind = LoopKind::serial;
  int64_t step = 1;
  int code = 0;                    // guard: GuardCode
  std::string row;                 // inst
  std::vector<Region> regions;
};

// What a failed guard means; the engine turns it into an Error.
enum GuardCode : int { kGuardNone = 0, kGuardIndex = 1, kGuardUpdate = 2, kGuardFinite = 3 };

struct BufferParam {
  std::string name;
  int64_t bytes = 0;               // the evaluator checks bounds with it
  bool written = false;
  int align = 64;
};

struct Kernel {
  std::string name;                // the plan printed in one line, made into a symbol
  std::vector<BufferParam> params; // buffers 0..n-1, address space global; allocs continue the numbering
  int buffer_count = 0;            // params and allocs
  int value_count = 0;
  std::vector<VType> value_types;  // by ValueId
  Region body;
  int64_t tasks = 1;               // trip count of the top parallel/grid loop; 1 without one
  bool aliased = false;            // a written param may share memory with another one (in-place steps); otherwise all are disjoint
};

// A pure function over values: what an instruction row means.
struct Function {
  std::string name;
  std::vector<ValueId> params;
  Kernel body;                     // params empty; value_types as in kernels
  ValueId result = -1;
};

}  // namespace lumen::loop
