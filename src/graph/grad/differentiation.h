// The reverse sweep over values, shared by both ways to differentiate. Private to grad.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "graph/grad/rules.h"

namespace lumen::graph {

class Differentiation {
 public:
  Differentiation(Graph& g, ValueId loss, const std::vector<ValueId>& with_respect_to);

  // Visits values begin <= v < end in reverse; a gradient of a value in `wanted` is stored at its index in `gradients`.
  void sweep(ValueId begin, ValueId end, const std::vector<ValueId>& wanted, std::vector<ValueId>* gradients);
  // The same for values that were appended after the start. Later nodes read only `results`, of which `read` have the
  // gradients `arriving`.
  void sweep_appended(ValueId begin, ValueId end, const std::vector<ValueId>& results, const std::vector<ValueId>& read,
                      const std::vector<ValueId>& arriving);

  // Marks values begin <= v < end that depend on the inputs differentiated for, so that they get gradients.
  void spread(ValueId begin, ValueId end);

  Reverse& reverse() { return r_; }

 private:
  // Gradients of a call's or a scan's results, by their number; one may have two.
  std::vector<std::pair<int, ValueId>> arriving_at(ValueId v, const Node& node);
  void through_call(ValueId v, const Node& node);

  Graph& g_;
  Reverse r_;
  ValueId end_ = 0;                          // of the forward values that the sweep covers
  std::vector<ValueId> ends_;                // those of them with outside readers: the loss, or the results of a call
  std::map<ValueId, Attention> attentions_;  // by output
  std::map<std::pair<ValueId, int>, ValueId> by_result_;  // gradients of a call's or a scan's results
};

// Error when the loss is not one number.
void check_loss(const Graph& g, ValueId loss);
// Gradients in the callers' form: f32, zeros where there is none.
void complete_gradients(Builder& build, const std::vector<ValueId>& with_respect_to, std::vector<ValueId>* gradients);

}  // namespace lumen::graph
