// Predicts a session's memory before it is allocated: weights, KV caches, and the intermediate values of every step it
// may compile. Proved by tests/model/infer/forecast_test.cpp, which compares it with what the process takes.
#pragma once

#include "model/infer/session/session.h"
#include "model/infer/session/step_plan.h"

namespace lumen::model::infer {

struct MemoryForecast {
  int64_t weights = 0;  // of the model and its adapters
  int64_t cache = 0;    // keys and values of the whole context
  int64_t work = 0;     // intermediate values and inputs of the steps, and logits
  int64_t total() const { return weights + cache + work; }
  MemoryForecast& operator+=(const MemoryForecast& other);
  std::string text() const;  // "1.25 GiB of weights, 0.50 GiB of cache, 0.10 GiB of values: 1.85 GiB"
};

// The memory of a Session that verifies up to `draft` draft tokens in one step (Session::feed_all). It is planned, not
// compiled.
MemoryForecast forecast(const LoadedModel& loaded, const SessionOptions& options, int64_t draft = 0);
// The memory of a ManySession.
MemoryForecast forecast_many(const LoadedModel& loaded, const SessionOptions& options, ManyLimits limits = {});

// What looking again at so many rows of logits takes, which stay on the device (FurtherRows). It is counted in `work`.
int64_t further_bytes(const LoadedModel& loaded, const Narrowing& narrowing, int64_t rows);

// Bytes of a graph's states (KV caches).
int64_t state_bytes(const graph::Graph& step, const run::CompileOptions& options);
// Error (exit 3) if the device's memory is too small: for the caches, unless `cache_is_there` (already allocated), and
// for `work`, which is allocated already.
void require_session(const LoadedModel& loaded, int64_t cache, int64_t work, const SessionOptions& options,
                     bool cache_is_there = false);

}  // namespace lumen::model::infer
