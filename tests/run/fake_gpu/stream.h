// What the stand-in's other libraries use of its driver.
#pragma once

#include <functional>

#include "fake_gpu.h"

namespace lumen::fake {

Gpu& gpu();
int enter(const char* symbol);                  // every function begins with it; not 0: fails with that
char* view(const void* address, size_t bytes);  // the host's view of device memory; null: there is none
constexpr int kBlocked = -1;                    // of work: it cannot be done yet
void advance_others();                          // where somebody waits: other streams do what they can
int push(void* stream, double milliseconds, std::function<int()> work);  // may be captured

}  // namespace lumen::fake
