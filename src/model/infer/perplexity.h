// Perplexity over the windows of a text, by one of two protocols that must not be compared with each other:
//   half   windows of `length` tokens end to end, each computed on its own; only the second half of a window is scored
//   (positions
//          length/2 .. length-2), so that every scored token has at least length/2 tokens before it. The protocol of
//          P512 tables.
//   full   windows end to end, every token but a window's first is scored. Harder, and closer to the training loss.
// Result: exp(mean nats per scored token) with its standard error. Proved by tests/model/infer_test.cpp.
#pragma once

#include <functional>

#include "model/infer/session.h"

namespace lumen::model {

struct PerplexityOptions {
  int64_t length = 512;
  bool full = false;
  int64_t windows = 0;  // 0: all
  int64_t batch = 1;    // windows computed at once
  bool exact = false;
  bool bos = false;  // the first token of every window is replaced by the tokenizer's BOS
};

struct Perplexity {
  double value = 0, error = 0;  // error: standard error of the mean, carried through exp
  double nats = 0;              // mean nats per token
  int64_t tokens = 0, windows = 0;
  double seconds = 0;
};

// `progress` (may be empty) hears about every finished batch: windows done, windows in all, value so far.
Perplexity perplexity(const LoadedModel& loaded, const std::vector<TokenId>& text, const PerplexityOptions& options,
                      const std::function<void(int64_t, int64_t, double)>& progress = {});

}  // namespace lumen::model
