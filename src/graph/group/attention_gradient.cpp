// The parts of the gradient of an attention: see attention.h.
#include <algorithm>

#include "graph/group/attention.h"

namespace lumen::graph {
namespace {

class Reader {
 public:
  Reader(const Plan& plan, const Group& group, AttentionGradientParts* to)
      : plan_(plan), g_(plan.graph), group_(group), a_(*to) {}

  void run() {
    a_.extents = extents_of(g_[group_.root].type.shape);
    for (const ValueId v : group_.nodes)
      if (g_[v].op == Op::contract_ && is_score_shaped(v)) add_product(v);
    for (const ValueId v : group_.results) add_result(v, is_score_shaped(g_[v].operands[0]) ? 0 : 1);
    for (const ValueId v : group_.nodes)
      if (g_[v].op == Op::map_ && is_score_shaped(v)) find_mask(v);
  }

 private:
  bool is_score_shaped(ValueId v) const {
    return !is_load(plan_, group_, v) && g_[v].type.shape == g_[group_.root].type.shape &&
           std::find(group_.results.begin(), group_.results.end(), v) == group_.results.end();
  }

  void find_mask(ValueId v) {
    for (size_t n = 0; n < g_[v].attributes.formula.nodes.size() && !a_.range; ++n) {
      if (g_[v].attributes.formula.nodes[n].op != ScalarOp::select_) continue;
      auto range = std::make_unique<KeyRange>(plan_, group_, a_.extents, KeyRange::Spot{v, static_cast<int>(n)});
      const bool all = std::all_of(a_.sources.begin(), a_.sources.end(),
                                   [&](ValueId s) { return g_[s].op == Op::map_ && range->vanishes(s); });
      if (range->is_bounded() && all) a_.range = std::move(range);
    }
  }

  int operand_of(ValueId v, const Access& access, int64_t width, bool by_key) {
    for (size_t k = 0; k < a_.operands.size(); ++k) {
      const AttentionGradientParts::Operand& o = a_.operands[k];
      if (o.access.source == access.source && o.access.offset == access.offset && o.access.strides == access.strides &&
          o.width == width && o.by_key == by_key)
        return k;
    }
    a_.operands.push_back({v, access, by_key, width});
    return a_.operands.size() - 1;
  }

  void add_product(ValueId v) {
    const auto& letters = g_[v].attributes.indices;
    const int side = letters[0].find(letters[2].back()) != std::string::npos ? 0 : 1;
    const char inner = own_letters(letters[side], letters[2])[0];
    const auto operand = [&](int which, bool by_key) {
      const ValueId o = g_[v].operands[which];
      const int64_t width = extents_of(g_[o].type.shape)[letters[which].find(inner)];
      return operand_of(o, by_letters(follow(plan_, group_, o), letters[which], letters[2] + inner), width, by_key);
    };
    const int rows = operand(1 - side, false), keys = operand(side, true);
    if (a_.products.empty())
      for (size_t d = 0; d + 1 < letters[2].size(); ++d)
        if (letters[side].find(letters[2][d]) == std::string::npos) a_.row_axes.push_back(d);
    a_.products.push_back({v, rows, keys});
  }

  void add_result(ValueId v, int side) {
    const auto& letters = g_[v].attributes.indices;
    const ValueId source = g_[v].operands[side], other = g_[v].operands[1 - side];
    AttentionGradientParts::Result r;
    r.value = v;
    r.over_keys = letters[2].find(letters[side].back()) == std::string::npos;
    const std::string own = own_letters(letters[1 - side], letters[side]);
    int64_t width = 1;
    for (const char c : own) width *= extents_of(g_[other].type.shape)[letters[1 - side].find(c)];
    Access access = by_letters(follow(plan_, group_, other), letters[1 - side], letters[side] + own);
    r.operand = operand_of(other, as_one_axis(std::move(access)), width, r.over_keys);
    const auto known = std::find(a_.sources.begin(), a_.sources.end(), source);
    r.source = known - a_.sources.begin();
    if (known == a_.sources.end()) a_.sources.push_back(source);
    std::vector<int64_t> space = a_.extents;
    for (const char c : own) space.push_back(extents_of(g_[v].type.shape)[letters[2].find(c)]);
    r.access = as_one_axis(result_by_letters(g_, v, letters[2], letters[side] + own, space));
    a_.results.push_back(std::move(r));
  }

  // Merges the axes after the scores' axes into one.
  Access as_one_axis(Access a) const {
    a.strides[a_.extents.size()] = a.strides.back();
    a.strides.resize(a_.extents.size() + 1);
    return a;
  }

  const Plan& plan_;
  const Graph& g_;
  const Group& group_;
  AttentionGradientParts& a_;
};

}  // namespace

AttentionGradientParts::AttentionGradientParts(const Plan& plan, const Group& group) {
  Reader(plan, group, this).run();
}

}  // namespace lumen::graph
