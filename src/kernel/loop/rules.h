// Names of the loop IR's words and the typing rules builder, parser and verifier share.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/loop/loop.h"

namespace lumen::loop {

std::string_view op_name(Op op);
std::optional<Op> op_from_name(std::string_view name);
bool has_effect(Op op);  // the effect column of op.def
std::string_view kind_name(LoopKind kind);
std::optional<LoopKind> kind_from_name(std::string_view name);
std::string_view space_name(Space space);
std::optional<Space> space_from_name(std::string_view name);
std::string_view flow_name(Flow flow);
std::optional<Flow> flow_from_name(std::string_view name);
std::string_view guard_name(int code);  // "index", "update", "finite"
std::optional<int> guard_from_name(std::string_view name);

constexpr int kMaxLanes = 4096;
std::string print(VType type);  // "f32", "f32x16"
std::optional<VType> vtype_from_name(std::string_view name);

// What a scalar operation over `operands` yields. `to` is the written type of cast, bitcast and exponent.
struct Typing {
  VType type;
  std::string error;  // empty when well typed
};
Typing type_of(ScalarOp op, std::span<const VType> operands, std::optional<Scalar> to = std::nullopt);

// Iterations of a loop from `from` to `to`; checked against overflow.
int64_t trip_count(int64_t from, int64_t to, int64_t step);

constexpr int kMostGroups = 7;  // that wait may leave under way

// A grid kernel's lanes of a block, and bytes of its shared buffers one after the other (16 byte boundaries or as
// aligned).
int64_t block_lanes(const Kernel& k);
struct SharedPlace {
  BufferId buffer = -1;
  int64_t offset = 0, bytes = 0;
};
std::vector<SharedPlace> shared_places(const Kernel& k);
int64_t shared_bytes(const Kernel& k);

// The parallel or grid loop a kernel consists of; null when the body is straight code.
const Instr* top_loop(const Kernel& k);
// Trip count of the top loop, whose bounds must be constants; 1 without one.
int64_t count_tasks(const Kernel& k);

}  // namespace lumen::loop
