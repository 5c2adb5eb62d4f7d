// The loop IR: how one step is computed. Structured control flow, SSA numbers and vectors, byte-addressed buffers in
// address spaces. Mutable variables are private allocs (the emitter turns them into registers). Read op.def first.
// Invariants (verify.h): values are defined before use in an enclosing or the same region; offsets are i64; a kernel's
// body is ONE loop of kind parallel or grid (its trip count, `tasks`, is constant), optionally after pure instructions;
// parallel iterations do not communicate, so any split over threads gives the same bits. A grid kernel
// (docs/decisions/0007): each iteration of its grid loop is a block. A block's code is the same for all lanes (its
// values, loops and branches are uniform) and has no effects but lane loops, barriers and allocs. A lane loop (from 0
// to the block's number of lanes, the same in the whole kernel) is the code of each lane; lanes run at any pace until a
// barrier, which is only allowed between lane loops. No value leaves a lane loop: a lane's own state is private memory
// of the block (each lane has its own); lanes communicate through shared memory, shuffles, and the instructions that a
// wave executes together.
//
// May include: base, number/format, number/formula.
// Offers: build.h, expand.h, fragment.h, names.h, rules.h, text.h, verify.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "number/formula/formula.h"
#include "number/formula/scalar.h"

namespace lumen::loop {

struct VType {
  Scalar scalar = Scalar::f32;
  int lanes = 1;
  friend bool operator==(const VType&, const VType&) = default;
};

enum class Op : uint8_t {
#define X(name, result, operands, effect, syntax, text) name##_,
#include "kernel/loop/op.def"
#undef X
};

enum class LoopKind : uint8_t { serial, unroll, parallel, grid, lane };
enum class Space : uint8_t { global, shared, priv };
enum class Flow : uint8_t { copies, products, kernels };  // asynchronous operations to wait for

// The cache level that a prefetch brings a line to; `once`: past the caches, for data that is read once.
enum class Cache : uint8_t { first, second, third, once };

using ValueId = int;
using BufferId = int;

struct Instr;
struct Region {
  ValueId counter = -1;  // loops: the induction variable (i64)
  std::vector<Instr> code;
};

// What a failed guard means; the engine turns it into an Error.
enum GuardCode : int { kGuardNone = 0, kGuardIndex = 1, kGuardUpdate = 2, kGuardFinite = 3 };

struct Instr {
  Op op = Op::constant_;
  VType type = {};      // of the result
  ValueId result = -1;  // -1: none
  std::vector<ValueId> operands = {};
  ScalarOp scalar_op = ScalarOp::add_;
  std::vector<double> data = {};       // constant (floats)
  std::vector<int64_t> integers = {};  // constant (integers, truth values)
  std::vector<int> mask = {};          // shuffle
  int lane = 0;                        // extract, insert
  BufferId buffer = -1;        // load, store, gather, scatter, prefetch, alloc, copy (to), product (a; -1: held)
  BufferId from = -1;          // copy, product (b)
  Flow flow = Flow::copies;    // commit, wait
  int groups = 0;              // wait
  int align = 1;               // bytes
  Space space = Space::priv;   // alloc
  int64_t bytes = 0;           // alloc, copy
  Cache cache = Cache::first;  // prefetch
  LoopKind kind = LoopKind::serial;
  int64_t step = 1;
  GuardCode code = kGuardNone;
  std::string row = {};  // inst, product, load_matrix
  std::vector<Region> regions = {};
};

struct BufferParam {
  std::string name;
  int64_t bytes = 0;  // the evaluator checks bounds with it
  bool written = false;
  bool constant = false;  // no kernel of the program writes it: it may be read before earlier kernels have ended
  int align = 64;
};

inline constexpr int kMostInstances = 16;

struct Kernel {
  std::string name;                 // the plan printed in one line, made into a symbol
  std::vector<BufferParam> params;  // buffers 0..n-1, address space global; allocs continue the numbering
  int buffer_count = 0;             // params and allocs
  int value_count = 0;
  std::vector<VType> value_types;  // by ValueId
  Region body;
  int64_t tasks = 1;  // trip count of the top parallel/grid loop; 1 without one
  bool aliased =
      false;          // a written param may share memory with another one (in-place steps); otherwise all are disjoint
  int instances = 1;  // concurrent runs in one launch, each with its own buffers: those of the first, then those of the
                      // second, ..; none reads what another writes
};

// A pure function over values: the meaning of an instruction row. With a collective it is the meaning of one element of
// a product: acc, row of a, row of b (and more of either) -> acc.
struct Collective;
struct Function {
  std::string name;
  std::vector<ValueId> params;
  Kernel body;  // params empty; value_types as in kernels
  ValueId result = -1;
  std::shared_ptr<const Collective> collective;
};

}  // namespace lumen::loop
