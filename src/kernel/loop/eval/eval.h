// Reference interpreter of kernels, with every access bounds-checked: their machine-independent semantics.
//
// May include: base, kernel/loop.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "kernel/loop/loop.h"

namespace lumen::loop {

struct Status {
  int code = kGuardNone;
  int64_t detail = 0;
};

// Meaning of instruction rows by name; machine.h provides one.
using RowLookup = std::function<const Function*(std::string_view row)>;

// buffers[i] belongs to params[i] and has its size; those of a second instance follow those of the first. Out-of-bounds
// accesses are LUMEN_CHECK failures with the instruction printed; so are, in grid kernels, accesses of several lanes to
// shared memory without a barrier between them. `wave`: lanes of a wave there.
Status eval(const Kernel& k, std::span<const std::span<uint8_t>> buffers, const RowLookup& rows, int wave = 32);

// One call of a pure function: lanes of each operand in, lanes of the result out.
std::vector<ScalarValue> eval(const Function& f, std::vector<std::vector<ScalarValue>> operands,
                              const RowLookup& rows = nullptr);

}  // namespace lumen::loop
