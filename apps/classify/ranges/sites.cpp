#include "apps/classify/ranges/sites.h"

#include <algorithm>

#include "apps/weighted_product/weighted_product.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

bool holds_letter(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

int64_t extent_of(const Graph& g, ValueId v, const std::string& letters, const std::string& which) {
  int64_t product = 1;
  for (const char c : which) product *= g[v].type.shape[letters.find(c)].number();
  return product;
}

class SiteFinder {
 public:
  SiteFinder(const Graph& g, int64_t samples)
      : g_(g), samples_(samples), users_(users_of(g)), of_parameters_(values_of_parameters(g)) {}

  std::vector<RangedSite> run() {
    std::vector<RangedSite> out;
    std::map<std::string, int> seen;
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      std::optional<RangedSite> site = site_at(v);
      if (!site) continue;
      const int count = ++seen[site->product.name];
      if (count > 1) site->product.name += "#" + std::to_string(count);
      out.push_back(std::move(*site));
    }
    return out;
  }

 private:
  std::optional<RangedSite> site_at(ValueId v) {
    const Node& node = g_[v];
    if (node.op != Op::contract_ || node.type.element != Element{}) return std::nullopt;
    for (const int side : {1, 0}) {
      RangedSite s;
      s.contract = v;
      s.side = side;
      s.weight = node.operands[side];
      s.x = node.operands[1 - side];
      const ValueId below = read_below(g_, s.weight);
      if (below < 0 || g_[below].op != Op::input_ || g_[below].attributes.role != Role::parameter) continue;
      if (of_parameters_[s.x] || !of_parameters_[s.weight]) continue;
      if (g_[s.x].type.element != Element{} || g_[s.weight].type.element != Element{}) continue;
      s.product.name = g_[below].attributes.name;
      if (!take_letters(s)) continue;
      find_source(s);
      follow_chain(s);
      describe(s);
      return s;
    }
    return std::nullopt;
  }

  bool take_letters(RangedSite& s) const {
    const ProductLetters letters = product_letters(g_[s.contract], s.side);
    s.rows = letters.rows;
    s.groups = letters.groups;
    s.outputs = letters.outputs;
    s.columns = letters.columns;
    return !s.rows.empty() && !s.columns.empty() && !(s.outputs.empty() && s.groups.empty());
  }

  void find_source(RangedSite& s) const {
    s.views = views_and_pads(g_, s.x);
    s.source = s.views.empty() ? s.x : g_[s.views[0]].operands[0];
    const Shape& shape = g_[s.source].type.shape;
    int axis = !shape.empty() && shape[0] == Dim(samples_) ? 0 : -1;
    for (const ValueId v : s.views) {
      axis = axis_after(g_, g_[v], axis);
      s.samples_first = s.samples_first && axis == 0;
    }
    const std::vector<std::string>& i = g_[s.contract].attributes.indices;
    s.by_sample = axis >= 0 && i[2][0] == i[1 - s.side][axis] && holds_letter(s.rows, i[2][0]);
  }

  // Per-channel maps are followed if the channels are last, as groups of outputs.
  void follow_chain(RangedSite& s) const {
    s.end = s.contract;
    if (g_[s.contract].attributes.indices[2] != s.rows + s.groups + s.outputs) return;
    const int64_t channels = extent_of(g_, s.contract, g_[s.contract].attributes.indices[2], s.groups + s.outputs);
    while (users_[s.end].size() == 1 && users_[s.end][0] >= 0) {
      const ValueId next = users_[s.end][0];
      const Node& node = g_[next];
      if (node.op == Op::reshape_) {
        if (!ends_in(node.type.shape, channels) || (s.by_sample && node.type.shape[0] != Dim(samples_))) return;
      } else if (const auto step = step_of(node, s.end, channels)) {
        s.steps.push_back(*step);
      } else {
        return;
      }
      s.end = next;
    }
  }

  std::optional<ChannelStep> step_of(const Node& node, ValueId before, int64_t channels) const {
    const auto op = only_op(node);
    if (!op || node.operands.size() != 2 || node.type.shape != g_[before].type.shape) return std::nullopt;
    const int at = node.operands[0] == before ? 0 : 1;
    const ValueId by = node.operands[1 - at];
    if (by == before || !of_parameters_[by] || g_[by].type.element != Element{}) return std::nullopt;
    const int64_t count = elements(g_[by].type.shape).number();
    if (count != 1 &&
        !(count == channels && ends_in(g_[by].type.shape, channels) && ends_in(node.type.shape, channels)))
      return std::nullopt;
    if (is_last(node, at)) return std::nullopt;
    if (*op == ScalarOp::add_) return ChannelStep{ChannelStep::What::add, by};
    if (*op == ScalarOp::mul_) return ChannelStep{ChannelStep::What::multiply, by};
    if (*op == ScalarOp::sub_)
      return ChannelStep{at == 0 ? ChannelStep::What::subtract : ChannelStep::What::subtract_from, by};
    return std::nullopt;
  }
  // A formula that reads its inputs in another order than its operands is not matched.
  static bool is_last(const Node& node, int at) {
    const Formula& f = node.attributes.formula;
    const ScalarNode& out = f.nodes[f.outputs[0]];
    if (out.args[0] < 0 || out.args[1] < 0) return true;
    const ScalarNode &a = f.nodes[out.args[0]], &b = f.nodes[out.args[1]];
    return a.op != ScalarOp::input || b.op != ScalarOp::input || a.index != 0 || b.index != 1 || at > 1;
  }

  void describe(RangedSite& s) const {
    const std::vector<std::string>& i = g_[s.contract].attributes.indices;
    const std::string &of_weight = i[s.side], &of_x = i[1 - s.side];
    RangedProduct& p = s.product;
    p.groups = extent_of(g_, s.weight, of_weight, s.groups);
    const int64_t outputs = extent_of(g_, s.weight, of_weight, s.outputs);
    p.channels = p.groups * outputs;
    p.columns = extent_of(g_, s.weight, of_weight, s.columns);
    p.positions = extent_of(g_, s.x, of_x, s.rows.substr(s.by_sample ? 1 : 0));
    p.is_by_sample = s.by_sample;
    p.is_depthwise = p.groups > 1 && outputs == 1;
    p.follows_norm = follows_norm(s.source);
  }

  // The one operand that depends on data; -1: none, or several.
  ValueId only_data(const Node& node) const {
    ValueId found = -1;
    for (const ValueId o : node.operands) {
      if (of_parameters_[o]) continue;
      if (found >= 0) return -1;
      found = o;
    }
    return found;
  }
  // Whether v, below multiplications and additions of parameters, is a product with the inverse root of a mean.
  bool follows_norm(ValueId v) const {
    for (int depth = 0; depth < 6 && v >= 0; ++depth) {
      const Node& node = g_[v];
      if (node.op != Op::map_ && !is_view(node.op)) return false;
      for (const ValueId o : node.operands)
        if (node.operands.size() == 2 && is_inverse_root(o)) return true;
      v = only_data(node);
    }
    return false;
  }
  bool is_inverse_root(ValueId v) const {
    for (int depth = 0; depth < 4 && v >= 0 && !of_parameters_[v]; ++depth) {
      if (only_op(g_[v]) == ScalarOp::sqrt_) return true;
      if (g_[v].op != Op::map_ && !is_view(g_[v].op)) return false;
      v = only_data(g_[v]);
    }
    return false;
  }

  const Graph& g_;
  const int64_t samples_;
  const Users users_;
  const std::vector<bool> of_parameters_;
};

}  // namespace

std::optional<ScalarOp> only_op(const Node& node) {
  if (node.op != Op::map_) return std::nullopt;
  std::optional<ScalarOp> found;
  for (const ScalarNode& n : node.attributes.formula.nodes) {
    if (n.op == ScalarOp::input || n.op == ScalarOp::constant) continue;
    if (found) return std::nullopt;
    found = n.op;
  }
  return found;
}

bool ends_in(const Shape& shape, int64_t count) {
  int64_t product = 1;
  for (size_t d = shape.size(); d-- > 0 && product < count;) product *= shape[d].number();
  return product == count;
}

std::vector<bool> values_of_parameters(const Graph& g) {
  std::vector<bool> out(g.nodes.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    switch (node.op) {
      case Op::input_:
        out[v] = node.attributes.role != Role::data;
        break;
      case Op::constant_:
      case Op::iota_:
        out[v] = true;
        break;
      case Op::update_:
      case Op::call_:
      case Op::result_:
      case Op::scan_:
      case Op::exchange_:
        break;
      default:
        out[v] = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) { return out[o]; });
    }
  }
  return out;
}

namespace {

// Splits a map into single operations; constants become values of their own.
ValueId apart(Rewriter& r, const Node& node) {
  const Formula& whole = node.attributes.formula;
  std::vector<ValueId> values;
  for (const ScalarNode& n : whole.nodes) {
    if (n.op == ScalarOp::input) {
      values.push_back(r[node.operands[n.index]]);
      continue;
    }
    if (n.op == ScalarOp::constant) {
      values.push_back(r.build.scalar(is_float(n.type) ? n.real : double(n.integer), n.type));
      continue;
    }
    Formula f;
    std::vector<ValueId> operands;
    int args[3] = {-1, -1, -1};
    for (int i = 0; i < 3 && n.args[i] >= 0; ++i) {
      f.inputs.push_back(whole.type(n.args[i]));
      operands.push_back(values[n.args[i]]);
      args[i] = i;
    }
    for (const int i : args)
      if (i >= 0) args[i] = f.input(i);
    const bool converts = n.op == ScalarOp::cast_ || n.op == ScalarOp::bitcast_ || n.op == ScalarOp::exponent_;
    f.outputs = {converts ? f.convert(n.op, n.type, args[0]) : f.op(n.op, args[0], args[1], args[2])};
    values.push_back(r.build.map(std::move(f), operands));
  }
  return values[whole.outputs[0]];
}

}  // namespace

Graph made_plain(Graph g) {
  inline_calls(g);
  simplify(g);
  Rewriter r(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    if (node.op != Op::map_ || only_op(node)) {
      r.keep(v);
      continue;
    }
    const ValueId made = apart(r, node);
    // A formula without operations, or whose result does not depend on the largest operand, is left as it is.
    if (r.build.type(made) == node.type) {
      r.replace(v, made);
      r.keep_label(v);
    } else {
      r.keep(v);
    }
  }
  return r.finish();
}

std::vector<RangedSite> find_sites(const Graph& g, int64_t samples) {
  return SiteFinder(g, samples).run();
}

}  // namespace lumen::graph
