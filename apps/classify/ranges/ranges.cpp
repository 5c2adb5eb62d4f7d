#include "apps/classify/ranges/ranges.h"

#include <algorithm>

#include "apps/classify/ranges/product.h"
#include "apps/weighted_product/weighted_product.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

// The operand of a map that is its ReLU; -1: the map is something else.
int relu_operand(const Graph& g, const Node& node) {
  if (only_op(node) != ScalarOp::max_) return -1;
  const Formula& f = node.attributes.formula;
  const ScalarNode& out = f.nodes[f.outputs[0]];
  int operand = -1, zeros = 0;
  for (const int a : {out.args[0], out.args[1]}) {
    const ScalarNode& n = f.nodes[a];
    if (n.op == ScalarOp::constant) {
      zeros += n.real == 0;
      continue;
    }
    ValueId below = node.operands[n.index];
    while (is_view(g[below].op)) below = g[below].operands[0];
    if (is_splat(g[below]) && g[below].attributes.data[0] == 0)
      ++zeros;
    else
      operand = n.index;
  }
  return zeros == 1 && operand >= 0 && g[node.operands[operand]].type.shape == node.type.shape ? operand : -1;
}

// Removes weights that codes replaced from the inputs.
Graph without_unread_parameters(const Graph& g) {
  const Users users = users_of(g);
  Rewriter r(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    if (g[v].op != Op::input_ || g[v].attributes.role != Role::parameter || !users[v].empty()) r.keep(v);
  return r.finish();
}

class RangeRewriter {
 public:
  RangeRewriter(const Graph& g, const RangeOptions& options)
      : r_(g), b_(r_.build), coder_(b_), options_(options), sites_(find_sites(g, options.samples)) {
    const std::vector<bool> of_parameters = values_of_parameters(g);
    std::erase_if(sites_, [&](const RangedSite& s) {
      return std::find(options.floats.begin(), options.floats.end(), s.product.name) != options.floats.end();
    });
    for (const RangedSite& s : sites_) {
      by_end_[s.end] = &s;
      // Nodes between a product and the end of its chain belong to it.
      ValueId v = s.end;
      while (v != s.contract) {
        inside_.insert(v);
        for (const ValueId o : g[v].operands)
          if (!of_parameters[o]) {
            v = o;
            break;
          }
      }
      inside_.insert(s.contract);
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (const auto at = by_end_.find(v); at != by_end_.end())
        make_product(*at->second);
      else if (!inside_.contains(v) && !keep_coded(v))
        keep_real(v);
    }
    for (const ValueId v : r_.from.results) real(v);
    Graph out = r_.finish();
    for (const auto& [name, v] : reports_) {
      out.results.push_back(v);
      out.result_names.push_back(name);
    }
    return out;
  }

 private:
  void keep_real(ValueId v) {
    for (const ValueId o : r_.from[v].operands) real(o);
    r_.keep(v);
  }

  void real(ValueId v) {
    if (r_[v] >= 0) return;
    r_.replace(v, coder_.real(coded_.at(v)));
    r_.keep_label(v);
  }

  // Views, pads, ReLU of codes, and the maximum of several coded values are codes again.
  bool keep_coded(ValueId v) {
    const Node& node = r_.from[v];
    if (node.operands.empty()) return false;
    if (const int operand = relu_operand(r_.from, node); operand >= 0) {
      const auto known = coded_.find(node.operands[operand]);
      if (known == coded_.end()) return false;
      coded_[v] = coder_.relu(known->second);
      return true;
    }
    const auto known = coded_.find(node.operands[0]);
    if (known == coded_.end()) return false;
    if (is_view(node.op) || node.op == Op::pad_) return keep_view(v, known->second);
    const auto& axes = node.attributes.axes;
    if (node.op != Op::reduce_ || node.attributes.reduction != Reduction::max) return false;
    if (known->second.samples > 1 && std::find(axes.begin(), axes.end(), 0) != axes.end()) return false;
    Coded c = coder_.per_tensor(known->second);
    c.codes = b_.convert(b_.reduce(b_.convert(c.codes, Scalar::i32), Reduction::max, axes), Scalar::i8);
    coded_[v] = c;
    return true;
  }

  bool keep_view(ValueId v, const Coded& before) {
    const Node& node = r_.from[v];
    if (before.samples > 1 && axis_after(r_.from, node, 0) != 0) return false;
    if (before.channels > 0 && node.op == Op::reshape_ && ends_in(node.type.shape, before.channels) &&
        node.type.shape.size() > 1) {
      Coded c = before;
      c.codes = b_.view(node, c.codes);
      coded_[v] = c;
      return true;
    }
    Coded c = coder_.per_tensor(before);
    if (before.channels > 0) coded_[node.operands[0]] = c;
    c.codes = node.op == Op::pad_ ? coder_.padded(c.codes, c, node) : b_.view(node, c.codes);
    coded_[v] = c;
    return true;
  }

  RangeSource source_of(const RangedProduct& p) const {
    if (const auto at = options_.other.find(p.name); at != options_.other.end()) return at->second;
    const bool is_fixed = (options_.depthwise_fixed && p.is_depthwise) || (options_.norms_fixed && p.follows_norm);
    return is_fixed ? RangeSource::fixed : options_.source;
  }

  void make_product(const RangedSite& s) {
    const Coded input = input_of(s.source, s.by_sample ? options_.samples : 1);
    WholeProduct product(b_, r_.from, s, input, options_);
    Coded out = product.run(source_of(s.product));
    for (const auto& [name, v] : product.reports()) reports_[name] = v;
    const Node& contract = r_.from[s.contract];
    const std::string letters = s.rows + s.groups + s.outputs, &wanted = contract.attributes.indices[2];
    if (letters == wanted) {
      out.codes = b_.reshape(out.codes, r_.from[s.end].type.shape);
    } else {
      if (out.channels > 0) out = coder_.per_tensor(out);
      std::vector<int> order;
      for (const char c : wanted) order.push_back(letters.find(c));
      out.codes = b_.permute(out.codes, order);
    }
    const bool stays = letters == wanted || out.samples == 1 || wanted[0] == letters[0];
    coded_[s.end] = out;
    if (!stays) real(s.end);
  }

  // The input of a product, with one pair for a sample. Later readers of the value read these codes as well.
  Coded input_of(ValueId v, int64_t samples) {
    if (const auto known = coded_.find(v); known != coded_.end()) {
      known->second = coder_.per_tensor(known->second);
      if (known->second.samples == samples) return known->second;
    }
    const auto encoded = encoded_.find({v, samples});
    if (encoded != encoded_.end()) return encoded->second;
    const Ends ends = value_ends(v, samples);
    real(v);
    Coded c = coder_.encode(r_[v], samples, ends);
    if (!coded_.contains(v) && r_.from[v].op != Op::input_) {
      coded_[v] = c;
      r_.replace(v, -1);
    }
    return encoded_[{v, samples}] = c;
  }

  Ends value_ends(ValueId v, int64_t samples) {
    const std::string name = "value." + std::to_string(v);
    if (options_.source == RangeSource::fixed && !options_.calibrates) {
      const auto given = [&](const char* end) {
        const ValueId known = r_.to.find_input(name + end);
        const ValueId one = known >= 0 ? known : b_.input(name + end, Role::parameter, {{Dim(1)}, {}});
        return b_.broadcast(one, {Dim(samples)});
      };
      return {given(".low"), given(".high")};
    }
    if (options_.source == RangeSource::estimate)
      if (const auto known = arithmetic_ends(v, samples)) return *known;
    real(v);
    const Ends ends{coder_.over_samples(r_[v], Reduction::min, samples),
                    coder_.over_samples(r_[v], Reduction::max, samples)};
    if (options_.calibrates) {
      reports_[name + ".low"] = ends.low;
      reports_[name + ".high"] = ends.high;
    }
    return ends;
  }

  // The ends of sums, views and maxima of values whose ranges are known, before these values are computed.
  std::optional<Ends> arithmetic_ends(ValueId v, int64_t samples, int depth = 0) {
    if (const auto known = coded_.find(v); known != coded_.end()) {
      if (known->second.samples != samples) return std::nullopt;
      return coder_.ends_of(known->second);
    }
    const Node& node = r_.from[v];
    if (depth > 16 || node.operands.empty()) return std::nullopt;
    if (const int operand = relu_operand(r_.from, node); operand >= 0) {
      const auto below = arithmetic_ends(node.operands[operand], samples, depth + 1);
      if (!below) return std::nullopt;
      const ValueId none = b_.scalar(0);
      return Ends{b_.binary(ScalarOp::max_, below->low, none), b_.binary(ScalarOp::max_, below->high, none)};
    }
    if (only_op(node) == ScalarOp::add_ && node.operands.size() == 2) {
      const auto a = arithmetic_ends(node.operands[0], samples, depth + 1);
      const auto b = a ? arithmetic_ends(node.operands[1], samples, depth + 1) : std::nullopt;
      if (!b) return std::nullopt;
      return Ends{b_.add(a->low, b->low), b_.add(a->high, b->high)};
    }
    const bool same = is_view(node.op) || node.op == Op::pad_;
    if (!same || (samples > 1 && axis_after(r_.from, node, 0) != 0)) return std::nullopt;
    const auto below = arithmetic_ends(node.operands[0], samples, depth + 1);
    return below && node.op == Op::pad_ ? coder_.with_zero(*below) : below;
  }

  Rewriter r_;
  Builder& b_;
  Coder coder_;
  const RangeOptions& options_;
  std::vector<RangedSite> sites_;
  std::map<ValueId, const RangedSite*> by_end_;
  std::set<ValueId> inside_;
  std::map<ValueId, Coded> coded_;
  std::map<std::pair<ValueId, int64_t>, Coded> encoded_;
  std::map<std::string, ValueId> reports_;
};

}  // namespace

Graph with_ranges(Graph g, const RangeOptions& options) {
  g = made_plain(std::move(g));
  Graph out = RangeRewriter(g, options).run();
  simplify(out);
  return without_unread_parameters(out);
}

}  // namespace lumen::graph
