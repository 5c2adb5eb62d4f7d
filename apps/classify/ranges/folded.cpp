// folded_weights: per-channel factors and terms that follow a product are folded into its weights.
#include "apps/classify/ranges/sites.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

class WeightFolder {
 public:
  explicit WeightFolder(const Graph& g) : r_(g), b_(r_.build) {
    const std::vector<bool> of_parameters = values_of_parameters(g);
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
      if (of_parameters[v]) r_.keep(v);
  }

  void add(const RangedSite& s) {
    ValueId factor = -1, term = -1;
    for (const ChannelStep& step : s.steps) {
      const ValueId by = by_channel(step.by, s.product.channels);
      using enum ChannelStep::What;
      switch (step.what) {
        case add:
          term = term < 0 ? by : b_.add(term, by);
          break;
        case subtract:
          term = term < 0 ? b_.unary(ScalarOp::neg_, by) : b_.sub(term, by);
          break;
        case subtract_from:
          factor = factor < 0 ? b_.constant(b_.type(by), {-1}) : b_.unary(ScalarOp::neg_, factor);
          term = term < 0 ? by : b_.sub(by, term);
          break;
        case multiply:
          factor = factor < 0 ? by : b_.mul(factor, by);
          if (term >= 0) term = b_.mul(term, by);
          break;
      }
    }
    const Type channels{{Dim(s.product.channels)}, {}};
    ValueId weight = in_order(s);
    if (factor >= 0) weight = b_.mul(weight, b_.reshape(factor, {Dim(s.product.channels), Dim(1)}));
    hand_back(s.product.name + ".weight", weight);
    hand_back(s.product.name + ".shift", term < 0 ? b_.constant(channels, {0}) : term);
  }

  Graph finish() { return std::move(r_.to); }

 private:
  ValueId by_channel(ValueId old, int64_t channels) {
    const bool is_one = elements(b_.type(r_[old]).shape) == Dim(1);
    const ValueId row = b_.reshape(r_[old], {is_one ? Dim(1) : Dim(channels)});
    return is_one ? b_.broadcast(row, {Dim(channels)}) : row;
  }

  // [channels, columns]
  ValueId in_order(const RangedSite& s) {
    const std::string& letters = r_.from[s.contract].attributes.indices[s.side];
    std::vector<int> order;
    for (const char c : s.groups + s.outputs + s.columns) order.push_back(letters.find(c));
    const ValueId moved = b_.permute(r_[s.weight], order);
    return b_.reshape(moved, {Dim(s.product.channels), Dim(s.product.columns)});
  }

  void hand_back(std::string name, ValueId v) {
    r_.to.results.push_back(v);
    r_.to.result_names.push_back(std::move(name));
  }

  Rewriter r_;
  Builder& b_;
};

}  // namespace

std::vector<RangedProduct> ranged_products(Graph g, int64_t samples) {
  g = made_plain(std::move(g));
  std::vector<RangedProduct> out;
  for (const RangedSite& s : find_sites(g, samples)) out.push_back(s.product);
  return out;
}

Graph folded_weights(Graph g, int64_t samples) {
  g = made_plain(std::move(g));
  WeightFolder folder(g);
  for (const RangedSite& s : find_sites(g, samples)) folder.add(s);
  Graph out = folder.finish();
  simplify(out);
  return out;
}

}  // namespace lumen::graph
