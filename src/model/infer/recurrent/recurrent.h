// Recurrent states of a family's step: they have no axis of positions, so each token replaces what they hold, and they
// cannot be truncated as a KV cache can. Copies of them (marks) are kept at some lengths of a sequence instead: a
// rewind goes back to the last mark before it, or to zeros, and the tokens behind are computed again. Proved by
// tests/model/infer/recurrent/recurrent_test.cpp and tests/model/infer/recurrent/hybrid_test.cpp.
//
// May include: base, graph/ir, run/engine/program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "run/engine/program/tensor.h"

namespace lumen::model::infer {

inline constexpr const char* kCount = "count";    // input of `step`: how many of the chunk's tokens are real
inline constexpr const char* kCounts = "counts";  // input of `step_many`: the same of each sequence
inline constexpr const char* kSlots = "slots";    // input of `step_many`: the row of each sequence's states, or -1
inline constexpr const char* kSlotAxis = "Q";     // the second axis of recurrent states of `step_many`

// Names of the recurrent states: those without an axis of positions or pages (S, C or W).
std::vector<std::string> recurrent_states(const graph::Graph& step);

// Error unless what the step writes into each recurrent state depends on the number of real tokens: otherwise padding
// would enter the state. `many`: of several sequences, whose states must have an axis of slots. All calls must be
// inlined.
void require_counts(const std::string& family, const graph::Graph& step, const std::vector<std::string>& recurrent,
                    bool many);

using RecurrentStates = std::map<std::string, run::DeviceTensorRef>;  // [layers, slots, ..] each

// The values of one slot in all states, as bytes.
std::string copy_slot(run::Device& device, const RecurrentStates& states, int64_t slot);
void set_slot(run::Device& device, const RecurrentStates& states, int64_t slot, const std::string& bytes);
void clear_slot(run::Device& device, const RecurrentStates& states, int64_t slot);

// The marks of one sequence, which sequences with a common prefix may share.
class StateMarks {
 public:
  static constexpr size_t kMost = 8;

  struct Mark {
    int64_t length;
    std::shared_ptr<const std::string> bytes;
  };
  bool has(int64_t length) const;
  // Adds the states behind `length` tokens, later than all marks so far. Of more than kMost the one is dropped whose
  // neighbours are closest; the latest two stay.
  void add(int64_t length, std::shared_ptr<const std::string> bytes);
  // The last mark that is not behind `length`; null if there is none.
  const Mark* before(int64_t length) const;
  void drop_behind(int64_t length);
  void keep_only(int64_t length);  // drops all others
  void clear() { marks_.clear(); }
  const std::vector<Mark>& all() const { return marks_; }

 private:
  std::vector<Mark> marks_;  // ascending
};

}  // namespace lumen::model::infer
