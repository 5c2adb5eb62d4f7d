// Metrics of a server, in Prometheus' text format 0.0.4. Proved by tests/model/serve/reply_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "model/infer/prefixes/prefixes.h"

namespace lumen::model::serve {

// A histogram of durations.
class TimeHistogram {
 public:
  void add(double seconds);
  std::string text(const std::string& name, const std::string& labels) const;  // lines of the format

 private:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   60};
  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

// Metrics of one model.
struct ServeNumbers {
  int64_t running = 0, waiting = 0;  // sequences
  int64_t pages = 0, free_pages = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, disk_tokens = 0, generation_tokens = 0, embedded_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // tokens proposed by drafts, and those accepted
  int64_t put_back = 0, cancelled = 0, out_of_time = 0, failed = 0;
  TimeHistogram first_token, each_token, whole;  // seconds: time to first token, time per later token, time per request
};

// Requests by path and status.
class RequestCounts {
 public:
  void add(const std::string& path, int status);
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> counts_;
};

// Metrics of the prefix cache on disk, shared by all models.
std::string prefix_metrics(const infer::PrefixNumbers& numbers);
std::string metrics_text(const std::map<std::string, ServeNumbers>& by_model, const RequestCounts& requests);

}  // namespace lumen::model::serve
