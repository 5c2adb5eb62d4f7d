// Keywords of the loop IR, and the typing rules that builder, parser and verifier share.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordinal.h"
#include "kernel/loop/loop.h"

namespace lumen::loop {

// The status of a failed guard is {code, detail}; instance i of a kernel adds i times this to the code.
inline constexpr int kInstanceCodes = 256;

// The keywords of the text form by enumerator: of Op, LoopKind, Space, Flow, Cache, GuardCode and Piece::Kind.
template <typename E>
inline constexpr auto kNames = nullptr;
template <>
inline constexpr auto kNames<Op> = std::to_array<std::string_view>({
#define X(name, ...) #name,
#include "kernel/loop/op.def"
#undef X
});
template <>
inline constexpr auto kNames<LoopKind> =
    std::to_array<std::string_view>({"serial", "unroll", "parallel", "grid", "lane"});
template <>
inline constexpr auto kNames<Space> = std::to_array<std::string_view>({"global", "shared", "private"});
template <>
inline constexpr auto kNames<Flow> = std::to_array<std::string_view>({"copies", "products", "kernels"});
template <>
inline constexpr auto kNames<Cache> = std::to_array<std::string_view>({"first", "second", "third", "once"});
template <>
inline constexpr auto kNames<GuardCode> = std::to_array<std::string_view>({"none", "index", "update", "finite"});

template <typename E>
std::string_view name_of(E e) {
  return kNames<E>.at(ordinal(e));
}
template <typename E>
std::optional<E> from_name(std::string_view name) {
  const auto found = std::ranges::find(kNames<E>, name);
  return found == kNames<E>.end() ? std::nullopt : std::optional(static_cast<E>(found - kNames<E>.begin()));
}

// A row of op.def.
struct OpInfo {
  bool yields;
  std::string_view operands;
  bool effect;
};
const OpInfo& op_info(Op op);
bool is_pure(Op op);  // no effect, and does not read memory that effects change

// Fields of Instr that are printed as one word, number or name.
#define LUMEN_FIELDS(X) \
  X(row) X(lane) X(align) X(bytes) X(step) X(groups) X(scalar_op) X(kind) X(space) X(flow) X(cache) X(code)

// One piece of the syntax after an operation's name and type: op.def, column syntax.
struct Piece {
#define X(field) field,
  enum class Kind : uint8_t {
    word,
    operand,
    place,
    from,
    held,
    count,
    region,  // the kinds up to here have a sign in op.def
    operands,
    numbers,
    mask,
    counter,
    LUMEN_FIELDS(X)
  } kind = Kind::word;
#undef X
  int index = 0;               // of the operand or region
  std::string_view word = {};  // verbatim
};
template <>
inline constexpr auto kNames<Piece::Kind> = std::to_array<std::string_view>(
#define X(field) #field,
    {"", "%", "@", "&", "~", "?", "{", "operands", "numbers", "mask", "counter", LUMEN_FIELDS(X)});
#undef X
// visit(instr.row) for Kind::row, and so on.
template <typename AnInstr, typename Visit>
void visit_field(AnInstr& instr, Piece::Kind kind, const Visit& visit) {
#define X(field) \
  if (kind == Piece::Kind::field) visit(instr.field);
  LUMEN_FIELDS(X)
#undef X
#undef LUMEN_FIELDS
}
const std::vector<Piece>& syntax_of(Op op);

constexpr int kMaxLanes = 4096;
std::string print(VType type);  // "f32", "f32x16"
std::optional<VType> vtype_from_name(std::string_view name);

// Result type of a scalar operation over `operands`. `to` is the written type of cast, bitcast and exponent.
struct Typing {
  VType type;
  std::string error;  // empty when well typed
};
Typing type_of(ScalarOp op, std::span<const VType> operands, std::optional<Scalar> to = std::nullopt);

// Iterations of a loop from `from` to `to`; checked against overflow.
int64_t trip_count(int64_t from, int64_t to, int64_t step);

constexpr int kMostGroups = 7;  // that wait may leave in flight

// The lanes of a grid kernel's block, and the places of its shared buffers, one after the other (aligned to 16 bytes,
// or as declared).
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
