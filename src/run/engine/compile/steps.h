// Steps of a synthesis as launches: their machine code, their scratch, their addresses. Proved by
// tests/run/engine/compile_test.cpp.
#pragma once

#include <functional>
#include <span>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {

// Machine code of every step, by synthesis: from memory, from disk, or compiled.
std::vector<std::vector<void*>> find_functions(const CompileContext& shop, std::span<const synth::Synthesis> parts,
                                               CompileReport* report);

// The steps of a group. `value`: where an argument of the group is; `scratch`: where its scratch buffers are;
// `is_done`, by step: left out, because another group has prepared the same.
void list_steps(const CompileContext& shop, const synth::Synthesis& s, const std::vector<void*>& functions,
                const std::function<BufferAddress(int)>& value, const std::vector<BufferAddress>& scratch,
                const std::vector<bool>& is_done, std::vector<Launch>* out);

}  // namespace lumen::run
