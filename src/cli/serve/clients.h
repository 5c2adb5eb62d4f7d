// Limits per client: connections of an address, and requests per second of a key or an address. Proved by
// tests/cli/serve/clients_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace lumen::cli {

class ClientCounts {
 public:
  explicit ClientCounts(int64_t most) : most_(most) {}  // 0: no limit
  bool enter(const std::string& client);
  void leave(const std::string& client);

 private:
  const int64_t most_;
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

// Token bucket: a client may send `rate` requests per second on average, in bursts of twice that. Clients that have
// been idle for long are dropped.
class ClientRates {
 public:
  explicit ClientRates(double rate) : rate_(rate) {}  // 0: no limit
  // Seconds that the client has to wait, or 0 when the request is allowed. `now`: seconds of a monotonic clock.
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
