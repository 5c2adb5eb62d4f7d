// Propagates a change of a value to everything else that must change so that the results of a graph stay: codes of
// elements go from value to value, backward and forward, until they end at products with weights (whose rows and
// columns take them), norms and biases. Under the law of scales a code is a class of channels (classes.h); under the
// law of rotations it is a position in a block that is rotated as a whole. Proved by tests/graph/equivalence.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/equivalence/classes.h"
#include "graph/match/uses.h"

namespace lumen::graph {

// The codes of a value's elements; 0: none yet. With `pick`, whose axes are the value's first ones, those axes are
// replaced by one of `matrices`: an element's code depends on the matrix the index selects.
struct Marks {
  ValueId pick = -1;
  std::vector<int32_t> codes;
};
// The codes of a weight [N, K] or [E, N, K] that products read: `rows` of all axes but the last, `columns` of all but
// the one before.
struct WeightMarks {
  std::vector<int32_t> rows, columns;
};

// Rows and columns of a product with a weight.
struct WeightProduct {
  ValueId weight = -1, x = -1;
  int side = 1;             // the weight's operand
  bool transposed = false;  // x is multiplied along the axis before the last
};
bool is_weight(const Graph& g, ValueId v);  // a parameter of 2 or 3 axes
// weight is -1 when v is no product of a weight and an activation along one of the weight's last two axes.
WeightProduct weight_product(const Graph& g, ValueId v);

class Propagation {
 public:
  enum class Law { scale, rotation };
  // `block`: positions of a rotated block; code 2 + b * block + i is position i of block b.
  Propagation(const Graph& g, const Users& users, Law law, int64_t block = 1)
      : g_(g), users_(users), law_(law), block_(block) {}

  int32_t fresh() { return s_.classes.fresh(); }
  void mark(ValueId v, Marks marks);
  void know(ValueId index, int64_t matrices) { matrices_.try_emplace(index, matrices); }
  // Runs to the fixed point. Where a value can be scaled through either of several operands, chooses the one that
  // leaves most classes free.
  void run();

  bool failed() const { return s_.failed || (law_ == Law::scale && s_.classes.free() == 0); }
  const std::string& reason() const { return s_.reason; }
  const Classes& classes() const { return s_.classes; }
  const std::map<ValueId, Marks>& marks() const { return s_.marks; }
  const std::map<ValueId, WeightMarks>& weights() const { return s_.weights; }
  // Constants added to a parameter before it is scaled.
  double offset(ValueId parameter) const {
    const auto found = s_.offsets.find(parameter);
    return found == s_.offsets.end() ? 0 : found->second;
  }
  // Rotations: maps that multiply by a per-channel parameter, which must be 1 everywhere; by the map.
  const std::map<ValueId, ValueId>& gains() const { return s_.gains; }

 private:
  struct State {
    Classes classes;
    std::map<ValueId, Marks> marks;
    std::map<ValueId, WeightMarks> weights;
    std::map<ValueId, double> offsets;
    std::map<ValueId, ValueId> gains;
    std::set<ValueId> todo;
    std::string reason;
    bool failed = false;
  };
  using Choice = std::vector<bool>;  // operands that are scaled
  struct Part;

  // --- codes
  void unite(int32_t a, int32_t b);
  bool pair(int32_t* a, int32_t* b, int32_t sign);  // true when one of them had no code
  void touch(ValueId v);
  bool is_marked(ValueId v) const { return s_.marks.contains(v); }
  Marks& marks_of(ValueId v);  // created if absent
  Marks& dense(ValueId v);     // without a pick
  void fix(ValueId v, const std::string& why);
  void fix(const std::vector<int32_t>& codes, std::string why);
  void fix_weight(ValueId v, const std::string& why);
  void stop(const std::string& why);
  int64_t matrices(ValueId pick) const { return matrices_.at(pick); }
  WeightMarks& weight(ValueId v);

  // --- relations between a node's operands and its result
  void relate(ValueId v);
  void relate_view(ValueId v);
  void relate_concat(ValueId v);
  void relate_reduce(ValueId v);
  void relate_gather(ValueId v);
  void relate_map(ValueId v);
  void relate_parts(ValueId v, const Choice& choice);
  std::vector<Part> parts_of(ValueId v, const Choice& choice, bool picked) const;
  bool check_multipliers(ValueId v, const Choice& choice);
  std::vector<Choice> choices_of(ValueId v);
  bool relate_square(ValueId v);
  void relate_contract(ValueId v);
  void relate_product(ValueId v, const WeightProduct& p);
  void relate_picked(ValueId v);
  void relate_picked_side(ValueId v, bool result);
  void pass_contract(ValueId v, int side);
  void cancel_contract(ValueId v);
  bool varies_inside(ValueId operand, const std::string& letters, const std::string& kept) const;
  void choose(ValueId v, const std::vector<Choice>& choices);

  const Graph& g_;
  const Users& users_;
  Law law_;
  int64_t block_;
  std::map<ValueId, int64_t> matrices_;  // by index: the number of matrices it selects from
  std::map<ValueId, Choice> chosen_;
  State s_;
  std::string why_;  // the relation being processed, for error messages
};

int64_t count_of(const std::vector<int64_t>& extents);  // of elements

}  // namespace lumen::graph
