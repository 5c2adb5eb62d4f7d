// What one client may have: connections of an address, and requests a second of a key or an address. Proved by
// tests/cli/serve/clients_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace lumen::cli {

class ClientCounts {
 public:
  explicit ClientCounts(int64_t most) : most_(most) {}  // 0: as many as come
  bool enter(const std::string& client);
  void leave(const std::string& client);

 private:
  const int64_t most_;
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

// A client may ask `rate` times a second on average, and twice that at once. Who has not asked for long is forgotten.
class ClientRates {
 public:
  explicit ClientRates(double rate) : rate_(rate) {}  // 0: as often as it likes
  // Seconds to wait, or 0: it may. `now`: seconds of a clock that does not go back.
  double ask(const std::string& client, double now);

 private:
  struct Budget {
    double left = 0, at = 0;
  };
  void forget_idle(double now);

  const double rate_;
  std::mutex mutex_;
  std::map<std::string, Budget> budgets_;
};

}  // namespace lumen::cli
