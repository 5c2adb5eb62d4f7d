// Perplexity over the windows of a text, by one of two protocols whose results are not comparable:
//   half   consecutive windows of `length` tokens, each computed on its own; only the second half of a window is scored
//          (positions length/2 .. length-2), so that every scored token has at least length/2 tokens before it. The
//          protocol of P512 tables.
//   full   consecutive windows, every token but a window's first is scored. Gives higher values, closer to the training
//          loss.
// The BOS token, if the tokenizer adds one, is placed in one of three ways:
//   front    BOS and the text, without its final newline, are split into windows, and the first token of each window is
//            replaced by BOS. The protocol of published figures for GGUF files
//   windows  the text is split unchanged, and the first token of each window is replaced by BOS
//   none     no BOS
// Result: exp(mean nats per scored token) with its standard error. Proved by tests/model/infer/infer_test.cpp.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model::infer {

enum class BosPlace { front, windows, none };

// "front", "windows" and "none"; Error for any other name.
BosPlace bos_place(std::string_view name);

// The tokens that are cut into windows.
std::vector<text::TokenId> perplexity_tokens(const text::Tokenizer& tokenizer, std::string_view text, BosPlace place);

struct PerplexityOptions {
  int64_t length = 512;
  bool full = false;
  int64_t windows = 0;  // 0: all
  int64_t batch = 1;    // windows per batch
  bool exact = false;
  graph::ProductType products = {};  // rounding of product operands when logits are recorded or compared
  bool bos = false;                  // the first token of every window is replaced by the tokenizer's BOS
  std::vector<bool> counted = {};    // divergences: by token, whether the prediction after it counts; empty: all do
};

struct Perplexity {
  double value = 0, error = 0;  // error: standard error of the mean, carried through exp
  double nats = 0;              // mean nats per token
  int64_t tokens = 0, windows = 0;
  double seconds = 0;
};

// `progress` (may be empty) is called after every batch: windows done, number of windows, perplexity so far.
Perplexity perplexity(const LoadedModel& loaded, const std::vector<text::TokenId>& text,
                      const PerplexityOptions& options,
                      const std::function<void(int64_t, int64_t, double)>& progress = {});

}  // namespace lumen::model::infer
