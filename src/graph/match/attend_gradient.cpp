// Finds the gradient of an attention by its structure: see `attend_gradient` in graph/fuse/plan.h.
// Proved by tests/graph/fuse_test.cpp.
#include <algorithm>
#include <set>

#include "graph/match/access.h"
#include "graph/match/attend.h"

namespace lumen::graph {

namespace {

class Grower {
 public:
  Grower(const Graph& g, const Users& users, ValueId root) : g_(g), users_(users), shape_(g[root].type.shape) {}

  std::optional<AttentionGradient> grow(ValueId root) {
    if (shape_.size() < 2 || !add(root) || products_.size() != 2 || results_.size() < 2) return std::nullopt;
    // Both products and all results must agree on the row axes.
    rows_ = rows_of(*products_.begin());
    if (rows_.empty()) return std::nullopt;
    for (ValueId v : products_)
      if (rows_of(v) != rows_) return std::nullopt;
    for (ValueId v : results_)
      if (!result_fits(v)) return std::nullopt;
    AttentionGradient found{*products_.begin(), {core_.begin(), core_.end()}};
    found.nodes.insert(found.nodes.end(), results_.begin(), results_.end());
    std::sort(found.nodes.begin(), found.nodes.end());
    return found;
  }

 private:
  static bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }
  bool is_f32(ValueId v) const { return g_[v].type.element.scalar == Scalar::f32 && !g_[v].type.element.format; }
  bool is_number(ValueId v) const { return is_float(g_[v].type.element.scalar) && !g_[v].type.element.format; }

  // Collects a value of the scores' shape with its operands and its users; false if another node needs it.
  bool add(ValueId v) {
    if (core_.contains(v)) return true;
    if (core_.size() > 64 || g_[v].type.shape != shape_) return false;
    core_.insert(v);
    const Node& node = g_[v];
    if (node.op == Op::contract_) {
      if (!is_f32(v)) return false;
      products_.insert(v);
    } else if (node.op == Op::map_) {
      for (ValueId o : node.operands)
        if (is_compute(g_, o) && g_[o].type.shape == shape_ && !add(o)) return false;
    } else {
      return false;
    }
    for (ValueId u : users_[v]) {
      if (u < 0) return false;
      const Node& user = g_[u];
      if (user.op == Op::map_ && user.type.shape == shape_) {
        if (!add(u)) return false;
      } else if (user.op == Op::contract_ && is_f32(u) && is_f32(v)) {
        results_.insert(u);
      } else {
        return false;
      }
    }
    return true;
  }

  // Axes of the scores along which the operand with the keys does not vary. Empty when the product has another form.
  std::vector<size_t> rows_of(ValueId product) const {
    const auto& letters = g_[product].attributes.indices;
    const char key = letters[2].back();
    if (has(letters[0], key) == has(letters[1], key)) return {};
    const std::string &keys = letters[has(letters[0], key) ? 0 : 1], &queries = letters[has(letters[0], key) ? 1 : 0];
    std::vector<size_t> rows;
    for (size_t d = 0; d + 1 < letters[2].size(); ++d)
      if (!has(keys, letters[2][d])) rows.push_back(d);
    for (ValueId o : g_[product].operands)
      if (core_.contains(o) || results_.contains(o)) return {};
    const auto summed = [&](const std::string& of) {
      return std::count_if(of.begin(), of.end(), [&](char c) { return !has(letters[2], c); });
    };
    return summed(keys) == 1 && summed(queries) == 1 ? rows : std::vector<size_t>{};
  }

  // The operand's own letters are one axis in memory; the result may have split it.
  bool own_axis(ValueId other, const std::string& others, const std::string& scores, const std::string& result) const {
    std::string own;
    for (const char c : others)
      if (!has(scores, c)) own += c;
    if (own.empty() || others.find(own) == std::string::npos || result.find(own) == std::string::npos) return false;
    const auto access = affine_access(g_, other);
    if (!access) return false;
    const std::vector<int64_t> extent = extents_of(g_[other].type.shape);
    for (size_t d = others.find(own); d + 1 < others.find(own) + own.size(); ++d)
      if (access->strides[d] != access->strides[d + 1] * extent[d + 1]) return false;
    return true;
  }

  // A contract of a score-shaped value with a load: over the keys, or over all rows.
  bool result_fits(ValueId v) const {
    const Node& node = g_[v];
    const auto& letters = node.attributes.indices;
    const int side = core_.contains(node.operands[0]) ? 0 : 1;
    const ValueId other = node.operands[1 - side];
    if (core_.contains(other) || results_.contains(other) || !is_number(other)) return false;
    const std::string &scores = letters[side], &others = letters[1 - side];
    const char key = scores.back();
    if (!own_axis(other, others, scores, letters[2])) return false;
    const bool over_keys = !has(letters[2], key);
    for (size_t d = 0; d + 1 < scores.size(); ++d) {
      const bool row = std::find(rows_.begin(), rows_.end(), d) != rows_.end();
      const bool kept = has(letters[2], scores[d]);
      if (kept != (over_keys || !row)) return false;
      if (row && has(others, scores[d]) == over_keys) return false;
    }
    return has(others, key) == over_keys;
  }

  const Graph& g_;
  const Users& users_;
  Shape shape_;
  std::set<ValueId> core_, products_, results_;
  std::vector<size_t> rows_;
};

}  // namespace

std::vector<AttentionGradient> find_attention_gradients(const Graph& g, const Users& users) {
  std::vector<AttentionGradient> found;
  std::set<ValueId> taken;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (g[v].op != Op::contract_ || taken.contains(v)) continue;
    auto gradient = Grower(g, users, v).grow(v);
    if (!gradient) continue;
    taken.insert(gradient->nodes.begin(), gradient->nodes.end());
    found.push_back(*std::move(gradient));
  }
  return found;
}

}  // namespace lumen::graph
