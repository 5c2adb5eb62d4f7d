// Parses tool calls in a growing output, and emits text and calls as soon as possible. Proved by
// tests/model/serve/tools_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/serve/tools/call_grammar.h"

namespace lumen::model::serve {

// New output: text of the answer, the beginning of a call (its name), more of its arguments (JSON text), or reasoning,
// which this reader never returns (see conversation/reasoning.h).
struct CallPiece {
  enum class Kind { text, begin, arguments, reasoning } kind = Kind::text;
  std::string text;  // text, or the name of the function
};

class CallReader {
 public:
  explicit CallReader(std::shared_ptr<const CallPlan> plan) : plan_(std::move(plan)) {}

  std::vector<CallPiece> push(const std::string& text);
  std::vector<CallPiece> finish();  // emits the text held back

 private:
  enum class State { start, text, name, object, pairs, close, bare_close };
  bool go_on(std::vector<CallPiece>* out);
  const char* bare_close() const { return is_fenced_ ? "}```" : "}"; }
  bool read_start(std::vector<CallPiece>* out);
  bool read_text(std::vector<CallPiece>* out);
  bool read_name(std::vector<CallPiece>* out);
  bool read_object(std::vector<CallPiece>* out);
  bool read_pairs(std::vector<CallPiece>* out);
  void put_text(std::string text, std::vector<CallPiece>* out) const;

  std::shared_ptr<const CallPlan> plan_;
  State state_ = State::start;
  std::string held_;
  size_t tool_ = 0;
  int64_t depth_ = 0;  // nesting depth within the object
  bool in_string_ = false, is_escaped_ = false, is_bare_ = false, is_fenced_ = false;
};

}  // namespace lumen::model::serve
