// Loads of bytes that need not begin at a word, as loads of whole words and shifts: for targets whose loads must be
// aligned, which would read such bytes two by two or one by one. Proved by tests/emit/gpu_test.cpp.
#pragma once

#include <llvm/IR/Function.h>

namespace lumen::emit {

// Where it is known how far into a word a load begins. Bytes beside it, of words it touches, are read too.
void load_whole_words(llvm::Function& f);

}  // namespace lumen::emit
