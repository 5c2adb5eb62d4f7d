#include "graph/equivalence/scale_sites.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "graph/equivalence/propagation.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

struct Reader {
  ValueId product = -1, weight = -1, x = -1;
  bool transposed = false;
};

std::vector<Reader> readers_of(const Graph& g) {
  std::vector<Reader> readers;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    if (const WeightProduct p = weight_product(g, v); p.weight >= 0)
      readers.push_back({v, p.weight, p.x, p.transposed});
    else if (node.op == Op::contract_gather_ && is_weight(g, node.operands[1]) &&
             g[node.operands[1]].type.shape.size() == 3)
      readers.push_back({v, node.operands[1], node.operands[0], false});
  }
  return readers;
}

// Fills a site from the finished propagation. `sign`: whether s multiplies or divides x.
void tell(const Graph& g, const Propagation& p, const std::vector<int32_t>& seeds, int sign, ScaleSite* site) {
  std::vector<int64_t> number(1, -1);  // of a class
  const auto power = [&](int32_t code, bool count) -> Power {
    if (code == 0 || p.failed()) return 0;
    const int32_t root = p.classes().root(code);
    if (root == Classes::kFixed) return 0;
    const size_t at = std::abs(root);
    if (at >= number.size()) number.resize(at + 1, -1);
    if (number[at] < 0 && count) number[at] = site->free++;
    const Power up = number[at] + 1;
    return (root < 0) == (sign < 0) ? up : -up;
  };
  for (const int32_t seed : seeds) site->powers.push_back(power(seed, true));
  if (!site->is_whole()) site->reason = p.reason();
  if (site->free == 0) {
    if (site->reason.empty()) site->reason = "nothing absorbs the scale";
    return;
  }
  const auto change = [&](ValueId v, Along along, const std::vector<int32_t>& codes) {
    ScaledParameter c{g[v].attributes.name, along, {}, along == Along::elements ? p.offset(v) : 0};
    for (const int32_t code : codes) c.powers.push_back(power(code, false));
    if (std::any_of(c.powers.begin(), c.powers.end(), [](Power x) { return x != 0; })) site->changes.push_back(c);
  };
  for (const auto& [v, marks] : p.marks())
    if (g[v].op == Op::input_) change(v, Along::elements, marks.codes);
  for (const auto& [v, w] : p.weights()) {
    change(v, Along::rows, w.rows);
    change(v, Along::columns, w.columns);
  }
}

// A class for each column of a weight, as codes of the product's activation.
Marks seeds_of(const Graph& g, const Reader& r, Propagation* p) {
  const Node& product = g[r.product];
  const Shape& shape = g[r.x].type.shape;
  const bool picked = product.op == Op::contract_gather_;
  const auto& i = product.attributes.indices;
  const size_t side = picked || product.operands[1] == r.weight ? 1 : 0;
  const std::string &of_w = i[side], &of_x = i[1 - side];
  const char k = r.transposed ? of_w[of_w.size() - 2] : of_w.back();
  Marks marks;
  if (picked && of_x == i[2] + k) {
    marks.pick = product.operands[2];
    const Shape& w = g[r.weight].type.shape;
    for (int64_t n = w[0].number() * w[2].number(); n > 0; --n) marks.codes.push_back(p->fresh());
    return marks;
  }
  // One class for each value of the letters that weight and x share.
  const std::vector<int64_t> extents = extents_of(shape);
  std::vector<int64_t> strides(of_x.size(), 0);
  int64_t count = 1;
  for (size_t at = of_w.size(); at-- > 0;) {
    const size_t d = of_x.find(of_w[at]);
    if (d == std::string::npos) continue;
    strides[d] = count;
    count *= extents[d];
  }
  const int32_t first = p->fresh();
  for (int64_t n = 1; n < count; ++n) p->fresh();
  marks.codes.resize(count_of(extents));
  const std::vector<int64_t> dense = dense_strides_of(extents);
  for (int64_t e = 0; e < std::ssize(marks.codes); ++e) {
    int64_t code = first;
    for (size_t d = 0; d < extents.size(); ++d) code += e / dense[d] % extents[d] * strides[d];
    marks.codes[e] = code;
  }
  return marks;
}

}  // namespace

Graph with_numbers(Graph g) {
  inline_calls(g);
  Bindings symbols;
  for (const Node& node : g.nodes)
    for (const Dim& d : node.type.shape)
      for (const std::string& s : d.symbols) symbols[s] = 2;
  g = bind_symbols(g, symbols);
  simplify(g);
  return g;
}

std::vector<ScaleSite> scale_sites(const Graph& g) {
  const Users users = users_of(g);
  const std::vector<Reader> readers = readers_of(g);
  std::vector<ScaleSite> sites;
  std::set<ValueId> done;
  for (const Reader& r : readers) {
    const ValueId base = below_order(g, r.x);
    if (!done.insert(base).second) continue;
    ScaleSite site;
    site.value = g[base].label;
    for (const Reader& other : readers)
      if (below_order(g, other.x) == base) site.readers.push_back(g[other.weight].attributes.name);
    Propagation p(g, users, Propagation::Law::scale);
    const Marks marks = seeds_of(g, r, &p);
    // Classes in the order of the columns.
    std::vector<int32_t> seeds = marks.codes;
    std::sort(seeds.begin(), seeds.end());
    seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
    if (marks.pick >= 0) p.know(marks.pick, g[r.weight].type.shape[0].number());
    p.mark(r.x, marks);
    p.run();
    tell(g, p, seeds, -1, &site);
    sites.push_back(std::move(site));
  }
  return sites;
}

std::vector<ScaleSite> query_key_sites(const Graph& g) {
  const Users users = users_of(g);
  std::vector<ScaleSite> sites;
  for (const Attention& a : find_attention(g, users, 0, false)) {
    for (const ValueId v : a.nodes) {
      if (g[v].op != Op::contract_ || v == a.output) continue;
      const auto& i = g[v].attributes.indices;
      ScaleSite site;
      site.value = g[v].label;
      Propagation p(g, users, Propagation::Law::scale);
      const std::vector<int64_t> extents = extents_of(g[g[v].operands[0]].type.shape),
                                 dense = dense_strides_of(extents);
      std::vector<int64_t> strides(i[0].size(), 0);
      int64_t count = 1;
      for (size_t d = i[0].size(); d-- > 0;) {
        // Sequences share the weights: the first letter of both is the batch.
        if (i[1].find(i[0][d]) == std::string::npos || d == 0) continue;
        strides[d] = count;
        count *= extents[d];
      }
      std::vector<int32_t> seeds;
      for (int64_t n = 0; n < count; ++n) seeds.push_back(p.fresh());
      Marks marks;
      for (int64_t e = 0; e < count_of(extents); ++e) {
        int64_t at = 0;
        for (size_t d = 0; d < extents.size(); ++d) at += e / dense[d] % extents[d] * strides[d];
        marks.codes.push_back(seeds[at]);
      }
      p.mark(g[v].operands[0], marks);
      p.run();
      tell(g, p, seeds, 1, &site);
      sites.push_back(std::move(site));
    }
  }
  return sites;
}

}  // namespace lumen::graph
