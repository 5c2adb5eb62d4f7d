// The end of the process by a signal: its handler removes what is being written (base/file/temporary.h) and exits. What
// other threads do meanwhile fails, because their files are gone; they must not report that, but wait for the end.
// Proved by tests/base/error_test.cpp.
#pragma once

namespace lumen {

// Called by code that ends the process: from now on wait_if_ending() waits for that end. Async-signal-safe.
void begin_ending() noexcept;
// Waits for the end of the process if it has begun. Every Error does so when it is made.
void wait_if_ending() noexcept;

}  // namespace lumen
