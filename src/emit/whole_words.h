// Turns unaligned byte loads into loads of whole words and shifts: for targets whose loads must be aligned, which would
// otherwise load one or two bytes at a time. Proved by tests/emit/gpu_test.cpp.
#pragma once

#include <llvm/IR/Function.h>

namespace lumen::emit {

// Applies to loads with a known offset in the word. Other bytes of the words are read, too.
void load_whole_words(llvm::Function& f);

}  // namespace lumen::emit
