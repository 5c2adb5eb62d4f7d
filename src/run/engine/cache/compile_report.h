// Statistics of compiling kernels.
#pragma once

namespace lumen::run {

struct CompileReport {
  int kernels = 0, compiled = 0,
      cached = 0;  // distinct kernels; compiled by LLVM; found in the cache
  double seconds = 0;
};

}  // namespace lumen::run
