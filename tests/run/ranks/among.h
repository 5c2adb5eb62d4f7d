// Ranks as threads of a test, by shared memory or by TCP.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "run/ranks/ranks.h"
#include "run/ranks/shared_memory.h"
#include "run/ranks/tcp.h"

namespace lumen::run {

// Runs `rank` in as many threads; what each threw, by rank ("" nothing).
inline std::vector<std::string> among(int size, const std::function<std::unique_ptr<Transport>(int)>& join,
                                      const std::function<void(Communicator&)>& rank) {
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        Communicator own({r, size, r, size}, join(r));
        try {
          rank(own);
        } catch (const std::exception& error) {
          own.abort(error.what());
          throw;
        }
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

inline std::vector<std::string> among_shared(int size, const std::function<void(Communicator&)>& rank) {
  const auto memory = std::make_shared<SharedMemory>(size);
  return among(size, [&](int r) { return join_shared_memory(memory, r); }, rank);
}

inline std::vector<std::string> among_tcp(int size, int port, const std::function<void(Communicator&)>& rank) {
  return among(size, [&](int r) { return join_tcp({"127.0.0.1", port, "token", 20}, r, size); }, rank);
}

inline const std::vector<std::string> kNoErrors1(1), kNoErrors2(2), kNoErrors3(3), kNoErrors4(4);

}  // namespace lumen::run
