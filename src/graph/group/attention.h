// The parts of attention groups and of their gradients, and the memory access of each. Proved by
// tests/kernel/synth/attention/synth_attend_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/group/key_range.h"

namespace lumen::graph {

// The parts of an attention group; see `attend` in graph/fuse/plan.h.
struct AttentionParts {
  AttentionParts(const Plan& plan, const Group& group);

  // scores = contract(q, k), .., s = score; m = top of s; l = sum of exp(s - m); o = last = contract(p, v).
  ValueId scores = -1, score = -1, top = -1, sum = -1, last = -1;
  ValueId written = -1;  // o, or its rounded value
  ValueId q = -1, k = -1, v = -1;
  std::vector<int64_t> extents;  // of the scores: row axes, then keys
  int64_t keys = 1, depth = 1, width = 1;
  std::vector<int64_t> row_extents() const { return {extents.begin(), extents.end() - 1}; }
  std::vector<int64_t> dot_space() const;   // the scores' axes and the letter summed in the first dot
  std::vector<int64_t> pick_space() const;  // the scores' axes and the letter only the second dot has
  Access q_access, k_access;                // over dot_space
  Access v_access, result_access;           // over pick_space; the result does not vary along keys

  // Keys or values in a table (paged KV cache): each is (number - own number) * stride elements away from its access,
  // where `number` is its entry of the index.
  struct Found {
    ValueId index = -1;
    Access access;       // over the same space
    int64_t stride = 0;  // of the access along the keys, too
    int64_t count = 0;   // exclusive bound of the numbers
  };
  std::optional<Found> k_found, v_found;
  bool is_found() const { return k_found || v_found; }
  // Whether rows along axis d of the scores read the same keys and values.
  bool shares_keys(size_t d) const;

 private:
  Access key_access(const Plan& plan, const Group& group, ValueId operand, const std::string& own,
                    const std::string& space, std::optional<Found>& found) const;
};

// The parts of an attention_gradient group; see `attend_gradient` in graph/fuse/plan.h.
struct AttentionGradientParts {
  AttentionGradientParts(const Plan& plan, const Group& group);

  struct Operand {
    ValueId value = -1;
    Access access;        // over the scores' axes and its own
    bool by_key = false;  // varies along keys, otherwise along rows
    int64_t width = 1;
  };
  struct Product {
    ValueId value = -1;
    int rows = -1, keys = -1;  // operands
  };
  struct Result {
    ValueId value = -1;
    int source = -1;  // index into `sources`
    int operand = -1;
    bool over_keys = false;  // summed over keys, otherwise over all rows
    Access access;           // over the scores' axes and its own
  };
  std::vector<int64_t> extents;  // of the scores
  std::vector<int> row_axes;     // of them
  std::vector<Operand> operands;
  std::vector<Product> products;
  std::vector<Result> results;
  std::vector<ValueId> sources;     // values of the scores' shape that results read
  std::unique_ptr<KeyRange> range;  // of a mask under which all sources are 0
};

// Strides of an operand over the axes named by the letters of `space`; `own` are the operand's letters.
Access by_letters(const Access& a, const std::string& own, const std::string& space);
// The same for a result: element numbers of a dense tensor.
Access result_by_letters(const Graph& g, ValueId result, const std::string& own, const std::string& space,
                         const std::vector<int64_t>& extents);
// The letters of one operand that are absent from another.
std::string own_letters(const std::string& of, const std::string& absent_from);

}  // namespace lumen::graph
