#include "graph/transform/split_experts/split_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"
#include "graph/transform/split_columns.h"

namespace lumen::graph {
namespace {

bool is_stacked(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter && g[v].type.shape.size() == 3;
}

bool picks_from(const Graph& g, ValueId user, ValueId weight) {
  return user >= 0 && g[user].op == Op::contract_gather_ && g[user].operands[1] == weight &&
         std::ranges::count(g[user].operands, weight) == 1;
}

class Splitter {
 public:
  Splitter(const Graph& g, const std::vector<ExpertSplit>& splits) : r_(g) {
    const Users users = users_of(g);
    for (const ExpertSplit& s : splits) {
      const ValueId v = g.find_input(s.weight);
      if (v < 0) continue;
      check(users, v, s);
      LUMEN_CHECK(!splits_.contains(v), "'{}' is split twice", s.weight);
      splits_[v] = {&s, {}};
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (const auto split = splits_.find(v); split != splits_.end()) {
        add_parts(v, split->second);
        continue;
      }
      const Node& node = r_.from[v];
      const auto split = node.op == Op::contract_gather_ ? splits_.find(node.operands[1]) : splits_.end();
      if (split != splits_.end())
        r_.replace(v, sum(v, split->second));
      else
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  struct Parts {
    const ExpertSplit* what = nullptr;
    std::vector<ValueId> weights;
  };

  void check(const Users& users, ValueId v, const ExpertSplit& s) const {
    const Graph& g = r_.from;
    if (!is_stacked(g, v)) throw user_error("'{}' is no stacked weight whose experts could be split", s.weight);
    check_part_sizes(s.weight, s.experts, g[v].type.shape.front().number(), "experts");
    for (const ValueId user : users[v])
      if (!picks_from(g, user, v))
        throw user_error("the experts of '{}' cannot be split: it is read by more than products that pick them",
                         s.weight);
  }

  // Appended in place of the weight, so that inputs precede their readers.
  void add_parts(ValueId v, Parts& parts) {
    Type type = r_.from[v].type;
    for (size_t i = 0; i < parts.what->experts.size(); ++i) {
      type.shape.front() = Dim(parts.what->experts[i]);
      parts.weights.push_back(r_.build.input(expert_part(parts.what->weight, i), Role::parameter, type));
    }
    if (const std::string& order = parts.what->order; !order.empty() && !orders_.contains(order))
      orders_[order] = r_.build.input(order, Role::parameter, {{r_.from[v].type.shape.front()}, {}});
  }

  // The integers for a part: those of later parts become -1, those of earlier parts are negative.
  ValueId shifted(ValueId index, const Parts& parts, size_t part) {
    const std::vector<int64_t>& experts = parts.what->experts;
    const int64_t start = std::accumulate(experts.begin(), experts.begin() + part, int64_t{0});
    const bool last = part + 1 == experts.size();
    const auto [known, fresh] = shifted_.try_emplace({index, start, last ? -1 : experts[part], parts.what->order}, -1);
    if (!fresh) return known->second;
    const ValueId from = ordered(index, parts.what->order);
    const Scalar type = r_.build.type(from).element.scalar;
    Formula f;
    f.inputs = {type};
    int x = f.input(0);
    if (start > 0) x = f.op(ScalarOp::sub_, x, f.integer(type, start));
    if (!last)
      x = f.op(ScalarOp::select_, f.op(ScalarOp::lt_, x, f.integer(type, experts[part])), x, f.integer(type, -1));
    f.outputs = {x};
    return known->second = r_.build.map(f, {from});
  }

  ValueId ordered(ValueId index, const std::string& order) {
    if (order.empty()) return r_.build.convert(r_[index], Scalar::i32);
    const auto [known, fresh] = ordered_.try_emplace({index, order}, -1);
    if (fresh) known->second = r_.build.gather(r_.build.convert(orders_.at(order), Scalar::i32), r_[index]);
    return known->second;
  }

  ValueId sum(ValueId v, const Parts& parts) {
    const Node node = r_.from[v];
    const std::vector<std::string>& i = node.attributes.indices;
    ValueId all = -1;
    for (size_t k = 0; k < parts.weights.size(); ++k) {
      const ValueId one = r_.build.contract_gather(r_[node.operands[0]], parts.weights[k],
                                                   shifted(node.operands[2], parts, k), i[0], i[1], i[2]);
      all = all < 0 ? one : r_.build.add(all, one);
    }
    LUMEN_CHECK(r_.build.type(all).shape == node.type.shape, "the sum of the parts of '{}' has another shape",
                parts.what->weight);
    r_.to[all].label = node.label;
    return all;
  }

  Rewriter r_;
  std::map<ValueId, Parts> splits_;
  std::map<std::string, ValueId> orders_;
  std::map<std::tuple<ValueId, int64_t, int64_t, std::string>, ValueId> shifted_;  // by begin and end of a part
  std::map<std::pair<ValueId, std::string>, ValueId> ordered_;
};

}  // namespace

std::string expert_part(const std::string& weight, size_t i) {
  return fmt::format("{}.{}", weight, i);
}

Graph split_experts(Graph g, const std::vector<ExpertSplit>& splits) {
  if (splits.empty()) return g;
  inline_calls(g);
  simplify(g);
  return Splitter(g, splits).run();
}

std::vector<StackedExperts> stacked_experts(Graph g) {
  inline_calls(g);
  simplify(g);
  const Users users = users_of(g);
  std::vector<StackedExperts> out;
  std::map<std::set<ValueId>, size_t> known;  // by the index
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (!is_stacked(g, v) || users[v].empty()) continue;
    if (!std::ranges::all_of(users[v], [&](ValueId user) { return picks_from(g, user, v); })) continue;
    std::set<ValueId> picks;
    for (const ValueId user : users[v]) picks.insert(g[user].operands[2]);
    const auto [found, fresh] = known.emplace(picks, out.size());
    if (fresh) out.push_back({{}, g[v].type.shape.front().number()});
    out[found->second].weights.push_back(g[v].attributes.name);
  }
  return out;
}

}  // namespace lumen::graph
