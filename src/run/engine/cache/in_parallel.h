// Work in independent parts: kernels to be loaded or compiled, groups to be synthesized.
#pragma once

#include <cstddef>
#include <functional>

namespace lumen::run {

// Calls work(0) .. work(count - 1) once each, in any order, on up to `threads` threads; nested calls use the calling
// thread only. All calls are made even if some fail; then one exception is rethrown.
void in_parallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace lumen::run
