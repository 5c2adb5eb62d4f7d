#include "graph/keep/kept_format.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/keep/forward_part.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

constexpr int64_t kLeastRow = 64;
constexpr int kProductsBetween = 2;  // between a value and its first backward reader, for keeping it to matter

class Keeper {
 public:
  Keeper(const Graph& g, ValueId loss, const FormatRef& format)
      : r_(g), part_(forward_part(g, loss)), format_(format), codes_(g.nodes.size(), -1), again_(g.nodes.size(), -1) {
    first_.resize(g.nodes.size(), -1);
    for (ValueId v = part_.end; v < std::ssize(g.nodes); ++v) {
      if (!part_.is_behind(v)) continue;
      for (const ValueId o : g[v].operands)
        if (const ValueId b = part_.base[o]; part_.active(b) && first_[b] < 0) first_[b] = v;
    }
    is_part_ = std::any_of(g.nodes.begin(), g.nodes.end(), is_arriving);
    int products = 0;
    for (const Node& node : g.nodes) {
      products_.push_back(products);
      products += is_product(node.op);
    }
    for (const ValueId v : g.results) left_.insert(v);
    const Users users = users_of(g);
    for (const Attention& a : find_attention(g, users, 0, false))
      for (const ValueId v : a.nodes) {
        if (v == a.output) continue;
        left_.insert(v);
        if (g[v].op != Op::reduce_) scores_.insert(v);
      }
    for (const ValueId v : attention_operands(g, users)) left_.insert(part_.base[v]);
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (part_.is_behind(v)) {
        Node node = r_.from[v];
        for (ValueId& o : node.operands) o = read_behind(o);
        r_.to.nodes.push_back(std::move(node));
        r_.replace(v, r_.to.nodes.size() - 1);
        continue;
      }
      r_.keep(v);
      if (format_ && is_worth(v)) encode(v);
    }
    return r_.finish();
  }

 private:
  bool is_worth(ValueId v) const {
    const Type& type = r_.from[v].type;
    if (part_.base[v] != v || first_[v] < 0 || left_.contains(v)) return false;
    if (type.element.format || !is_float(type.element.scalar)) return false;
    const bool is_far = is_part_ || products_[first_[v]] - products_[v] > kProductsBetween;
    return !is_of_rows(v) && row_of(type.shape) >= kLeastRow && is_far;
  }

  // One number for each row, like the divisors of norms: they are few, and precision matters.
  bool is_of_rows(ValueId v) const {
    const Node& node = r_.from[v];
    return node.op == Op::reduce_ || node.type.shape.empty() || node.type.shape.back().number() == 1;
  }

  // The length of a row: the product of as many last axes as make it long enough, in whole blocks where possible.
  int64_t row_of(const Shape& shape) const {
    int64_t row = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      row *= shape[d].number();
      if (row >= kLeastRow && row % format_->block == 0) return row;
    }
    return row;
  }

  void encode(ValueId v) {
    Builder& b = r_.build;
    const int64_t length = row_of(r_.from[v].type.shape), rows = elements(r_.from[v].type.shape).number() / length;
    ValueId y = r_[v];
    if (b.type(y).element != Element{}) y = b.convert(y, Scalar::f32);
    y = b.reshape(y, {rows, length});
    const int64_t left = length % format_->block;
    if (left != 0) y = b.pad(y, {rows, length + format_->block - left}, {0, 0});
    codes_[v] = b.cast(y, {Scalar::f32, format_});
  }

  // A value as read by nodes after the forward part.
  ValueId read_behind(ValueId v) {
    if (part_.is_behind(v) || again_[v] >= 0) return again_[v] >= 0 ? again_[v] : r_[v];
    const ValueId base = part_.base[v];
    if (base == v && codes_[v] >= 0) return again_[v] = decoded(v);
    const bool is_codes = r_.from[base].type.element.format != nullptr;
    if (is_codes && base == v) return again_[v] = format_ && is_of_parameter(v) ? encoded_again(v) : r_[v];
    const bool moves = base == v ? scores_.contains(v) : codes_[base] >= 0 || (is_codes && part_.of_parameter[base]);
    if (!moves || r_.from[base].op == Op::input_) return r_[v];
    Node node = r_.from[v];
    for (ValueId& o : node.operands) o = read_behind(o);
    r_.to.nodes.push_back(std::move(node));
    return again_[v] = r_.to.nodes.size() - 1;
  }

  // Codes of a parameter, whatever their scale depends on: the parameter is in memory anyway, so encode it again.
  bool is_of_parameter(ValueId codes) const {
    const Node& node = r_.from[codes];
    if (node.op != Op::cast_) return false;
    const ValueId source = node.operands[0];
    return part_.of_parameter[source] && !part_.of_data[source];
  }
  ValueId encoded_again(ValueId codes) {
    Node node = r_.from[codes];
    for (size_t i = 0; i < node.operands.size(); ++i)
      node.operands[i] = i == 0 ? computed_again(node.operands[i]) : r_[node.operands[i]];
    r_.to.nodes.push_back(std::move(node));
    return r_.to.nodes.size() - 1;
  }
  ValueId computed_again(ValueId v) {
    Node node = r_.from[v];
    if (!op_info(node.op).pure || node.operands.empty()) return r_[v];
    for (ValueId& o : node.operands) o = computed_again(o);
    r_.to.nodes.push_back(std::move(node));
    return r_.to.nodes.size() - 1;
  }

  ValueId decoded(ValueId v) {
    Builder& b = r_.build;
    const Type& type = r_.from[v].type;
    const int64_t length = row_of(type.shape), rows = elements(type.shape).number() / length;
    ValueId y = b.cast(codes_[v], Element{});
    if (length % format_->block != 0) y = b.slice(y, {0, 0}, {rows, length});
    y = b.reshape(y, type.shape);
    return type.element == Element{} ? y : b.convert(y, type.element.scalar);
  }

  Rewriter r_;
  ForwardPart part_;
  const FormatRef format_;
  std::vector<ValueId> first_;  // by value: its first reader after the forward part
  std::vector<int> products_;   // by value: products before it
  bool is_part_ = false;        // of a step, whose other parts run between the passes
  std::set<ValueId> left_;      // kept unencoded
  std::set<ValueId> scores_;    // inside attentions, and values softmaxes compute from them: recomputed
  std::vector<ValueId> codes_;  // by value: in the new graph
  std::vector<ValueId> again_;  // by value: what nodes after the forward part read
};

}  // namespace

bool is_step(const Graph& g) {
  if (std::any_of(g.nodes.begin(), g.nodes.end(), is_arriving)) return true;
  if (g.results.empty() || !g[g.results[0]].type.shape.empty()) return false;
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == Op::update_; });
}

Graph keep_in_format(const Graph& g, ValueId loss, const FormatRef& format) {
  return Keeper(g, loss, format).run();
}

}  // namespace lumen::graph
