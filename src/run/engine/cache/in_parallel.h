// Work that splits into parts of its own: kernels to be found or compiled, groups to be synthesized.
#pragma once

#include <cstddef>
#include <functional>

namespace lumen::run {

// work(0) .. work(count - 1), each once, in any order, on as many threads; within such work the calling thread alone.
// All are done even where some fail; then one failure is thrown.
void in_parallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace lumen::run
