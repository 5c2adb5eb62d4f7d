// Many texts at once over one cache of keys and values. A place of the cache holds one token of one or several texts:
// texts that begin alike share places. Tokens of all texts go through the model together. Nothing here knows the
// family: it needs a function `step_many`. Proved by tests/model/session_many_test.cpp.
#pragma once

#include "model/infer/session.h"

namespace lumen::model {

class ManySession {
 public:
  static constexpr int kMostTexts = 31;  // a place's owners are bits

  // How many tokens its steps may compute at once.
  static std::vector<int64_t> widths(const SessionOptions& options);
  // options.context: places of the cache, for all texts together. `longest`: what a text may become, for scalings of
  // positions that depend on it; 0: all places, or the model's context where that is less.
  ManySession(const LoadedModel& loaded, SessionOptions options, int64_t longest = 0);

  // A new, empty text; Error when there are too many. Its number stays until it is closed.
  int open();
  void close(int text);
  // `to`, an empty text, begins with the first `count` tokens of `from`; nothing is computed.
  void share(int from, int to, int64_t count);
  // The text ends behind `length` tokens.
  void rewind(int text, int64_t length);

  struct Part {
    int text;
    std::span<const TokenId> tokens;
  };
  // Appends tokens to texts; returns for each part the logits behind its last token. Error when the cache is full; then
  // nothing was appended.
  std::vector<std::vector<float>> feed(std::span<const Part> parts);

  int64_t length(int text) const { return static_cast<int64_t>(texts_.at(static_cast<size_t>(text)).tokens.size()); }
  const std::vector<TokenId>& tokens(int text) const { return texts_.at(static_cast<size_t>(text)).tokens; }
  int64_t free_places() const;

 private:
  struct Width {
    int64_t tokens;
    std::shared_ptr<run::Program> program;
    std::map<std::string, run::DeviceTensorRef> in;
  };
  struct Text {
    bool is_open = false;
    std::vector<TokenId> tokens;
  };
  struct Item {  // a token to be computed
    TokenId id;
    int32_t position, owners;
    int64_t part;  // whose last token it is, or -1
  };
  const Width& width(int64_t tokens);
  int64_t find_place(int64_t count) const;  // of a run of empty places, or -1
  void run(std::span<const Item> items, std::vector<std::vector<float>>& logits);
  void check_open(int text) const;

  const LoadedModel& loaded_;
  SessionOptions options_;
  int64_t longest_;
  graph::Graph graph_;
  std::map<std::string, run::DeviceTensorRef> states_;
  std::deque<Width> widths_;
  int64_t cache_bytes_ = 0, work_bytes_ = 0;
  std::vector<Text> texts_;
  std::vector<int32_t> positions_, owners_;  // of each place
};

}  // namespace lumen::model
