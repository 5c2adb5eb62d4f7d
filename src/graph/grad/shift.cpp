// Softmax and log-sum-exp subtract a maximum only to keep exp in range; mathematically the result does not depend on
// it. This tracks the effect of shifting the maximum by d on every value computed from it. Proved by
// tests/graph/grad/grad_test.cpp.
#include <algorithm>
#include <map>
#include <optional>

#include "graph/grad/rules.h"

namespace lumen::graph {

namespace {

// The effect of the shift on a value.
enum class Answer { none, plus, minus, scaled };  // unchanged, + d, - d, times exp(-d)

std::optional<Answer> answer_of(ScalarOp op, Answer a, Answer b) {
  using enum Answer;
  if (a == none && (b == none)) return none;
  switch (op) {
    case ScalarOp::add_:
      if (a == none) return b == scaled ? std::nullopt : std::optional(b);
      if (b == none) return a == scaled ? std::nullopt : std::optional(a);
      return (a == plus && b == minus) || (a == minus && b == plus) ? std::optional(none) : std::nullopt;
    case ScalarOp::sub_:
      if (b == none) return a == scaled ? std::nullopt : std::optional(a);
      if (a == none) return b == plus ? std::optional(minus) : b == minus ? std::optional(plus) : std::nullopt;
      return a == b && a != scaled ? std::optional(none) : std::nullopt;
    case ScalarOp::mul_:
      return (a == scaled) != (b == scaled) && (a == none || b == none) ? std::optional(scaled) : std::nullopt;
    case ScalarOp::div_:
      if (a == scaled) return b == none ? std::optional(scaled) : b == scaled ? std::optional(none) : std::nullopt;
      return std::nullopt;
    case ScalarOp::exp_:
      return a == minus ? std::optional(scaled) : std::nullopt;
    case ScalarOp::log_:
      return a == scaled ? std::optional(minus) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Answer> answer_of(const Formula& f, const std::vector<Answer>& inputs) {
  std::vector<Answer> answers;
  for (const ScalarNode& n : f.nodes) {
    if (n.op == ScalarOp::input) {
      answers.push_back(inputs[n.index]);
    } else if (n.op == ScalarOp::constant) {
      answers.push_back(Answer::none);
    } else {
      std::array<Answer, 3> a{};
      for (int k = 0; k < 3; ++k) a[k] = n.args[k] >= 0 ? answers[n.args[k]] : Answer::none;
      const auto answer = a[2] == Answer::none ? answer_of(n.op, a[0], a[1]) : std::nullopt;
      if (!answer) return std::nullopt;
      answers.push_back(*answer);
    }
  }
  return answers[f.outputs[0]];
}

std::optional<Answer> answer_of(const Node& node, const std::vector<Answer>& inputs) {
  switch (node.op) {
    case Op::map_:
      return answer_of(node.attributes.formula, inputs);
    case Op::contract_:
      return answer_of(ScalarOp::mul_, inputs[0], inputs[1]);
    case Op::reduce_:
      return node.attributes.reduction == Reduction::sum && inputs[0] != Answer::scaled ? std::nullopt
                                                                                        : std::optional(inputs[0]);
    case Op::reshape_:
    case Op::permute_:
    case Op::broadcast_:
    case Op::slice_:
    case Op::windows_:
      return inputs[0];
    default:
      return std::nullopt;
  }
}

}  // namespace

bool shift_cancels(const Graph& g, ValueId v, ValueId end, const std::vector<ValueId>& ends) {
  std::map<ValueId, Answer> answers{{v, Answer::plus}};
  for (ValueId u = v; u < end; ++u) {
    const Node& node = g[u];
    if (u != v) {
      std::vector<Answer> inputs;
      bool touched = false;
      for (ValueId o : node.operands) {
        const auto found = answers.find(o);
        inputs.push_back(found == answers.end() ? Answer::none : found->second);
        touched = touched || inputs.back() != Answer::none;
      }
      if (!touched) continue;
      const auto answer = answer_of(node, inputs);
      if (!answer) return false;
      answers[u] = *answer;
    }
    const bool read_outside = std::find(ends.begin(), ends.end(), u) != ends.end();
    if (read_outside && answers[u] != Answer::none) return false;
  }
  return true;
}

}  // namespace lumen::graph
