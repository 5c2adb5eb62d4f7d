// Attention found by its structure. Used by passes, and by grad, whose rule for it keeps no scores in memory.
#pragma once

#include <set>

#include "graph/match/uses.h"

namespace lumen::graph {

// p = softmax over the last axis of scores; output = contract(p, v). See `attend` in fuse/plan.h.
struct Attention {
  ValueId output = -1, probability = -1;
  ValueId score = -1;  // the softmax's operand
  ValueId maximum = -1, sum = -1;
  std::vector<ValueId> nodes;  // all of it, in graph order; the last is the output
  bool is_shared = false;      // scores, powers or probabilities are used elsewhere, too
};

// Attentions whose output is a value from `begin` on. `alone`: only the output is used elsewhere; otherwise other uses
// come after the output.
std::vector<Attention> find_attention(const Graph& g, const Users& users, ValueId begin, bool alone);

// The operands of a graph's attentions and of their gradients that do not have the scores' shape: queries, keys, values
// and gradients of the outputs, below reshapes and permutes.
std::set<ValueId> attention_operands(const Graph& g, const Users& users);
ValueId below_order(const Graph& g, ValueId v);  // below reshapes and permutes

// The gradient of an attention with all products that need its scores:
//   dot = contract(q, k), .., p = exp(s - m) / l;  dp = contract(do, v);  maps of the scores' shape;
//   results: contracts of such a map with an operand of either product, over the keys or over the rows.
struct AttentionGradient {
  ValueId root = -1;           // a product of the scores' shape
  std::vector<ValueId> nodes;  // in graph order
};
std::vector<AttentionGradient> find_attention_gradients(const Graph& g, const Users& users);

}  // namespace lumen::graph
