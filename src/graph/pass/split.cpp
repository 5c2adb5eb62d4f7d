// split_contracts: functions over any leading axes flatten them into rows for a product and restore them after it. Here
// the product takes the restored axes as letters of its own, so that the following maps have its shape and become its
// epilogue:
//   reshape(contract(x[M,K], w[N,K]), [B,T,N])  ->  contract(reshape(x, [B,T,K]), w) (btk,nk->btn)
// Conversely, a product whose axes are finer than those of the following maps (classes of a stride, grad/phases.h)
// passes them on:
//   map(reshape(contract(..), [N,H,C]), b[C])  ->  reshape(map(contract(..) [N,Q,S,C], b), [N,H,C])
// And maps of one operand between a product and reshapes, such as rounding of its result, move after them:
//   reshape(map(contract(x[M,K], w[N,K])), [B,T,N])  ->  map(reshape(contract(..), [B,T,N]))
// Sums are not changed, so every bit stays. Proved by tests/graph/pass_test.cpp and tests/graph/pass/split_rows.txt.
#include <algorithm>
#include <optional>
#include <set>

#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

using Factors = std::vector<int64_t>;

// The extents above 1 into which a reshape splits each axis; nullopt when it merges axes.
std::optional<std::vector<Factors>> split_of(const Shape& from, const Shape& to) {
  std::vector<Factors> split(from.size());
  size_t t = 0;
  for (size_t f = 0; f < from.size(); ++f) {
    int64_t rest = from[f].number();
    while (rest > 1) {
      if (t == to.size() || rest % to[t].number() != 0) return std::nullopt;
      if (to[t].number() > 1) split[f].push_back(to[t].number());
      rest /= to[t++].number();
    }
  }
  return split;
}

class Splitter {
 public:
  explicit Splitter(const Graph& g) : r_(g), users_(users_of(g)) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (r_.from[v].op != Op::contract_ || !split(v)) r_.keep(v);
    }
    return r_.finish();
  }

 private:
  // The factors into which all reshaping users split each axis; empty where they disagree or the axis stays whole.
  std::vector<Factors> wanted(ValueId v) const {
    const Shape& shape = r_.from[v].type.shape;
    std::optional<std::vector<Factors>> common;
    for (ValueId u : users_[v]) {
      if (u >= 0 && r_.from[u].op == Op::contract_) continue;  // reads any view
      if (u < 0 || r_.from[u].op != Op::reshape_) return {};
      const auto split = split_of(shape, r_.from[u].type.shape);
      if (!split) return {};
      if (!common) common = split;
      for (size_t d = 0; d < shape.size(); ++d) {
        if ((*common)[d] != (*split)[d]) (*common)[d].clear();
      }
    }
    return common.value_or(std::vector<Factors>{});
  }

  bool may_split(ValueId operand) const {  // weights keep their shape
    const ValueId below = read_below(r_.from, operand);
    return below >= 0 && !(r_.from[below].op == Op::input_ && r_.from[below].attributes.role == Role::parameter);
  }

  bool split(ValueId v) {
    const Node& node = r_.from[v];
    std::vector<Factors> factors = wanted(v);
    std::vector<std::string> letters = node.attributes.indices;
    std::vector<ValueId> operands = r_.operands(v);
    char fresh = 'a';
    bool changed = false;
    for (size_t d = 0; d < factors.size(); ++d) {
      const char letter = node.attributes.indices[2][d];
      const int side = letters[0].find(letter) != std::string::npos ? 0 : 1;
      if (factors[d].size() < 2 || (side == 0 && letters[1].find(letter) != std::string::npos)) continue;
      if (!may_split(node.operands[side])) continue;
      std::string parts;
      for (size_t k = 0; k < factors[d].size(); ++k) {
        while ((letters[0] + letters[1] + letters[2] + parts).find(fresh) != std::string::npos) {
          if (fresh == 'z') return false;
          ++fresh;
        }
        parts += fresh;
      }
      const size_t axis = letters[side].find(letter);
      Shape shape = r_.build.type(operands[side]).shape;
      shape.erase(shape.begin() + axis);
      shape.insert(shape.begin() + axis, factors[d].begin(), factors[d].end());
      operands[side] = r_.build.reshape(operands[side], shape);
      letters[side].replace(axis, 1, parts);
      letters[2].replace(letters[2].find(letter), 1, parts);
      changed = true;
    }
    if (!changed) return false;
    const ValueId product = r_.build.contract(operands[0], operands[1], letters[0], letters[1], letters[2]);
    r_.to[product].label = node.label;
    r_.replace(v, r_.build.reshape(product, node.type.shape));
    return true;
  }

  Rewriter r_;
  Users users_;
};

// Maps between products and reshapes that split their axes.
class Lifting {
 public:
  explicit Lifting(const Graph& g) : r_(g), users_(users_of(g)) {}

  Graph run() {
    std::set<ValueId> inner;  // of chains: their last map represents them
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v)
      if (const std::vector<ValueId> chain = chain_to_reshapes(v); !chain.empty())
        inner.insert(chain.begin() + 1, chain.end());
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const std::vector<ValueId> chain = chain_to_reshapes(v);
      if (!chain.empty())
        lift(chain);
      else if (!inner.contains(v))
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  // A map of one operand, or a cast between scalars.
  bool is_lone(ValueId v) const {
    const Node& node = r_.from[v];
    const bool rounds = node.op == Op::cast_ && !node.type.element.format;
    return (node.op == Op::map_ || rounds) && node.operands.size() == 1 &&
           r_.from[node.operands[0]].type.shape == node.type.shape && !r_.from[node.operands[0]].type.element.format;
  }

  // The chain from v, which only reshapes read, down to the map of a product, each with one reader; else empty.
  std::vector<ValueId> chain_to_reshapes(ValueId v) const {
    std::vector<ValueId> chain;
    ValueId below = v;
    for (; is_lone(below); below = r_.from[below].operands[0]) {
      if (below != v && users_[below].size() != 1) return {};
      chain.push_back(below);
    }
    if (chain.empty() || r_.from[below].op != Op::contract_ || users_[below].size() != 1) return {};
    const Shape& shape = r_.from[v].type.shape;
    const auto reshapes = [&](ValueId u) {
      return u >= 0 && r_.from[u].op == Op::reshape_ && r_.from[u].type.shape == r_.from[users_[v][0]].type.shape;
    };
    if (users_[v].empty() || !std::ranges::all_of(users_[v], reshapes)) return {};
    const Shape& finer = r_.from[users_[v][0]].type.shape;
    return finer.size() > shape.size() && split_of(shape, finer) ? chain : std::vector<ValueId>{};
  }

  void lift(const std::vector<ValueId>& chain) {
    const ValueId v = chain[0], product = r_.from[chain.back()].operands[0];
    ValueId x = r_.build.reshape(r_[product], r_.from[users_[v][0]].type.shape);
    for (size_t k = chain.size(); k-- > 0;) {
      const Node& node = r_.from[chain[k]];
      x = node.op == Op::cast_ ? r_.build.cast(x, node.type.element) : r_.build.map(node.attributes.formula, {x});
      r_.to[x].label = node.label;
    }
    r_.replace(v, r_.build.reshape(x, r_.from[v].type.shape));
  }

  Rewriter r_;
  Users users_;
};

// Maps after a product that is reshaped to fewer axes get the product's axes.
class Handing {
 public:
  explicit Handing(const Graph& g) : r_(g), users_(users_of(g)), finer_(g.nodes.size(), -1) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (!hand_down(v)) r_.keep(v);
    }
    return r_.finish();
  }

 private:
  // The new value with more axes that v is a reshape of: a product, or a map that took a product's axes. -1: none.
  ValueId finer(ValueId v) const {
    if (users_[v].size() != 1) return -1;
    if (finer_[v] >= 0 || r_.from[v].op != Op::reshape_) return finer_[v];
    const ValueId product = r_.from[v].operands[0];
    if (r_.from[product].op != Op::contract_ || users_[product].size() != 1) return -1;
    const Shape &few = r_.from[v].type.shape, &many = r_.from[product].type.shape;
    return few.size() < many.size() && split_of(few, many) ? r_[product] : -1;
  }

  // x, an operand of a map of shape `few`, reshaped for shape `many`.
  ValueId as_finer(ValueId x, const Shape& few, const Shape& many) {
    Shape own = r_.build.type(x).shape, out;
    own.insert(own.begin(), few.size() - own.size(), Dim(1));
    size_t m = 0;
    for (size_t f = 0; f < few.size(); ++f) {
      for (int64_t rest = few[f].number(); rest > 1; ++m) {
        if (many[m] == Dim(1)) continue;
        rest /= many[m].number();
        out.push_back(own[f] == few[f] ? many[m] : Dim(1));
      }
    }
    for (size_t d = 0; d < many.size(); ++d)
      if (many[d] == Dim(1)) out.insert(out.begin() + d, Dim(1));
    return r_.build.reshape(x, out);
  }

  bool hand_down(ValueId v) {
    const Node& node = r_.from[v];
    if (node.op != Op::map_) return false;
    const auto from = std::find_if(node.operands.begin(), node.operands.end(), [&](ValueId o) {
      return finer(o) >= 0 && r_.from[o].type.shape == node.type.shape;
    });
    if (from == node.operands.end()) return false;
    const Shape many = r_.build.type(finer(*from)).shape;
    std::vector<ValueId> operands;
    for (const ValueId o : node.operands)
      operands.push_back(o == *from ? finer(o) : as_finer(r_[o], node.type.shape, many));
    finer_[v] = r_.build.map(node.attributes.formula, operands);
    r_.to[finer_[v]].label = node.label;
    r_.replace(v, r_.build.reshape(finer_[v], node.type.shape));
    return true;
  }

  Rewriter r_;
  Users users_;
  std::vector<ValueId> finer_;  // by old map: its replacement, before the reshape
};

}  // namespace

void split_contracts(Graph& g) {
  g = Lifting(g).run();
  g = Splitter(g).run();
  g = Handing(g).run();
}

}  // namespace lumen::graph
