// find_partition: see partition.h. Proved by tests/graph/partition/partition_test.cpp and
// tests/model/families/partition_test.cpp.
#include <algorithm>

#include "base/error.h"
#include "graph/partition/closure.h"
#include "graph/partition/partition.h"

namespace lumen::graph {

namespace {

// A product that could sum over parts of its weight's columns, and the inputs split with them.
struct Pair {
  std::string weight;
  Closure closure;
  int64_t numbers = 0;  // of its matrices, for a stack those of one
};

// Pairs this much smaller than the largest are not worth an exchange: an adapter's own two matrices.
constexpr int64_t kWorthwhile = 64;

bool is_matrix(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter && g[v].type.shape.size() >= 2;
}

class Search {
 public:
  Search(const Graph& g, int ranks, const std::function<bool(const std::string&)>& may_split)
      : g_(g), users_(users_of(g)), may_split_(may_split) {
    out_.ranks = ranks;
    for (const ValueId v : g.inputs()) {
      const Shape& shape = g[v].type.shape;
      if (shape.size() >= 2)
        numbers_[g[v].attributes.name] = shape[shape.size() - 1].number() * shape[shape.size() - 2].number();
    }
  }

  TensorSplit run() {
    std::vector<Pair> pairs = find_pairs();
    int64_t most = 0;
    for (const Pair& p : pairs) most = std::max(most, p.numbers);
    std::erase_if(pairs, [&](const Pair& p) { return p.numbers * kWorthwhile < most; });
    // Fewer inner reductions first, then more split numbers; each pair has one sum.
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      return a.closure.inner != b.closure.inner ? a.closure.inner < b.closure.inner : a.numbers > b.numbers;
    });
    std::vector<Pair> taken;
    for (Pair& p : pairs) {
      if (!agrees(p.closure)) continue;
      if (p.closure.undivided > 0) refuse(p);
      take(p.closure);
      taken.push_back(std::move(p));
    }
    if (cost(out_).gathers > 0) retake(taken);
    if (taken.empty() || out_.inputs.empty())
      throw Error(Exit::usage,
                  fmt::format("{} ranks cannot share this model's matrices: it has no pair of products with "
                              "nothing but elementwise work, or work by heads, between them",
                              out_.ranks),
                  "leave out --tensor-parallel: --shard divides the tensors of any model among the ranks");
    split_tables();
    return std::move(out_);
  }

 private:
  std::vector<Pair> find_pairs() {
    std::vector<Pair> pairs;
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      const Node& node = g_[v];
      if (node.op != Op::contract_ && node.op != Op::contract_gather_) continue;
      for (int i = 0; i < 2; ++i)
        if (is_matrix(g_, node.operands[i]) && !is_matrix(g_, node.operands[1 - i])) add_pairs(node, i, &pairs);
    }
    return pairs;
  }

  // The weight is operand `side`.
  void add_pairs(const Node& node, int side, std::vector<Pair>* pairs) {
    const std::vector<std::string>& letters = node.attributes.indices;
    const std::string &own = letters[side], &other = letters[1 - side];
    const std::string& name = g_[node.operands[side]].attributes.name;
    for (size_t at = 0; at < own.size(); ++at) {
      const size_t there = other.find(own[at]);
      if (there == std::string::npos || letters.back().find(own[at]) != std::string::npos) continue;
      const ValueId x = node.operands[1 - side];
      const auto found = closure_of(g_, users_, x, whole_axis(g_[x].type.shape, there), out_.ranks);
      if (!found || found->rows == 0) continue;
      Pair pair{name, *found};
      const Split columns = whole_axis(g_[node.operands[side]].type.shape, at);
      if (!pair.closure.inputs.try_emplace(name, columns).second) continue;
      const bool may = std::all_of(pair.closure.inputs.begin(), pair.closure.inputs.end(),
                                   [&](const auto& input) { return may_split_(input.first); });
      if (!may) continue;
      for (const auto& [input, split] : pair.closure.inputs) pair.numbers += numbers_[input];
      pairs->push_back(std::move(pair));
    }
  }

  [[noreturn]] void refuse(const Pair& pair) const {
    throw Error(
        Exit::usage,
        fmt::format("{} ranks do not divide the product of '{}': it has {} parts (heads, or columns) that stay "
                    "together",
                    out_.ranks, pair.weight, pair.closure.undivided),
        "--tensor-parallel takes a number that divides the key-value heads and the width of the feed-forward part");
  }

  // False if another pair has split the same parameter differently.
  bool agrees(const Closure& closure) const {
    return std::all_of(closure.inputs.begin(), closure.inputs.end(), [&](const auto& input) {
      const auto known = out_.inputs.find(input.first);
      return known == out_.inputs.end() || known->second == input.second;
    });
  }
  void take(const Closure& closure) { out_.inputs.insert(closure.inputs.begin(), closure.inputs.end()); }

  Exchanged cost(const TensorSplit& p) const {
    Exchanged out;
    (void)partitioned(g_, p, {}, &out);
    return out;
  }

  // Accepts pairs one after another, without those with a value that is needed whole.
  void retake(std::vector<Pair>& pairs) {
    out_.inputs.clear();
    std::vector<Pair> kept;
    for (Pair& p : pairs) {
      const TensorSplit before = out_;
      if (!agrees(p.closure)) continue;
      take(p.closure);
      if (cost(out_).gathers > 0)
        out_ = before;
      else
        kept.push_back(std::move(p));
    }
    pairs = std::move(kept);
  }

  // Tables whose rows are gathered, and weights whose products end in sums.
  void split_tables() {
    for (const ValueId v : g_.inputs()) {
      const Shape& shape = g_[v].type.shape;
      const std::string& name = g_[v].attributes.name;
      if (!is_matrix(g_, v) || shape.size() != 2 || out_.inputs.contains(name) || !may_split_(name)) continue;
      if (shape[0].number() % out_.ranks != 0 || shape[0].number() < shape[1].number()) continue;
      TensorSplit tried = out_;
      tried.inputs.emplace(name, whole_axis(shape, 0));
      if (cost(tried).gathers == 0) out_ = std::move(tried);
    }
  }

  const Graph& g_;
  Users users_;
  const std::function<bool(const std::string&)>& may_split_;
  std::map<std::string, int64_t> numbers_;  // of matrices
  TensorSplit out_;
};

}  // namespace

TensorSplit find_partition(const Graph& g, int ranks,
                           const std::function<bool(const std::string& parameter)>& may_split) {
  return Search(g, ranks, may_split).run();
}

}  // namespace lumen::graph
