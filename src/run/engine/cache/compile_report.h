// What compiling kernels took.
#pragma once

namespace lumen::run {

struct CompileReport {
  int kernels = 0, compiled = 0,
      cached = 0;  // distinct kernels; how many LLVM had to make; how many the cache answered
  double seconds = 0;
};

}  // namespace lumen::run
