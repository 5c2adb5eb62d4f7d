// Perplexity over the windows of a text, by one of two protocols that must not be compared with each other:
//   half   windows of `length` tokens end to end, each computed on its own; only the second half of a window is scored
//   (positions
//          length/2 .. length-2), so that every scored token has at least length/2 tokens before it. The protocol of
//          P512 tables.
//   full   windows end to end, every token but a window's first is scored. Harder, and closer to the training loss.
// Each with BOS in one of three places, where the tokenizer wants it at all:
//   front    the text without the end of its last line, BOS in front of it, is cut into windows, and the first token of
//            each is replaced by BOS. The protocol of the figures GGUF files are published with
//   windows  the text is cut as it is, and the first token of each window is replaced by BOS
//   none     no BOS
// Result: exp(mean nats per scored token) with its standard error. Proved by tests/model/infer/infer_test.cpp.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model {

enum class BosPlace { front, windows, none };

// "front", "windows" and "none"; Error for another text.
BosPlace bos_place(std::string_view name);

// The tokens that are cut into windows.
std::vector<TokenId> perplexity_tokens(const Tokenizer& tokenizer, std::string_view text, BosPlace place);

struct PerplexityOptions {
  int64_t length = 512;
  bool full = false;
  int64_t windows = 0;  // 0: all
  int64_t batch = 1;    // windows computed at once
  bool exact = false;
  graph::ProductType products = {};  // what records of logits and their comparison round operands of products to
  bool bos = false;                  // the first token of every window is replaced by the tokenizer's BOS
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
