// The forward part is the set of nodes the loss depends on; it ends at the first node outside the set that depends on
// it. Its values are scanned in order. If only one value that depends on both data and parameters is still to be read
// by the forward part, all later values depend on that one: a border. Inside a chosen stretch, each value that
// gradients read is copied before its first reader, with its operands back to the stretch's beginning; the memory of
// the originals is free in between.
#include "graph/keep/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/keep/forward_part.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"

namespace lumen::graph {

namespace {

constexpr size_t kLongestPeriod = 16;  // stretches of a layer

// Values received from other ranks are kept, because recomputing would send them again. So are results of a scan,
// because its gradient recomputes each step.
bool is_computed(const Node& node) {
  return node.op != Op::input_ && node.op != Op::constant_ && node.op != Op::iota_ && node.op != Op::exchange_ &&
         node.op != Op::scan_ && node.op != Op::result_;
}

// The computation of a stretch as a text: equal for layers that are equal.
std::string signature(const Graph& g, const ForwardPart& f, const Stretch& s) {
  std::string text;
  for (ValueId v = s.begin; v < s.end; ++v)
    if (f.active(v) && !is_view(g[v].op)) text += fmt::format("{} {};", op_info(g[v].op).name, print(g[v].type));
  return text;
}

// Joins adjacent stretches whose sequence repeats.
std::vector<Stretch> joined(const Graph& g, const ForwardPart& f, const std::vector<Stretch>& parts) {
  std::vector<std::string> names;
  for (const Stretch& s : parts) names.push_back(signature(g, f, s));
  const auto alike = [&](size_t period) {
    size_t count = 0;
    for (size_t i = 0; i + period < names.size(); ++i) count += names[i] == names[i + period];
    return count;
  };
  size_t best = 1;
  for (size_t period = 2; period <= kLongestPeriod && period * 2 <= names.size(); ++period)
    if (alike(period) > alike(best) + period) best = period;
  size_t first = 0;
  while (first + best < names.size() && names[first] != names[first + best]) ++first;
  std::vector<Stretch> out;
  for (size_t i = 0; i < parts.size();) {
    const bool whole = best > 1 && i >= first && i + best <= parts.size() && names[i] == names[first];
    const size_t count = whole ? best : 1;
    out.push_back({parts[i].begin, parts[i + count - 1].end});
    i += count;
  }
  return out;
}

class Recomputer {
 public:
  Recomputer(const Graph& g, ValueId loss, const std::vector<Stretch>& chosen)
      : r_(g), part_(forward_part(g, loss)), stretch_(g.nodes.size(), -1), copies_(g.nodes.size(), -1) {
    for (size_t k = 0; k < chosen.size(); ++k) {
      const Stretch& s = chosen[k];
      for (ValueId v = s.begin; v < s.end; ++v) {
        const Node& node = g[v];
        if (part_.forward[v] && part_.of_parameter[v] && is_computed(node) && op_info(node.op).pure) stretch_[v] = k;
      }
      for (ValueId v = s.begin; v < s.end; ++v)
        if (is_border(v, s.end)) stretch_[v] = -1;
    }
    for (const ValueId v : g.results) stretch_[v] = -1;
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (!part_.is_behind(v)) {
        r_.keep(v);
        continue;
      }
      Node node = r_.from[v];
      for (ValueId& o : node.operands) o = again(o);
      r_.to.nodes.push_back(std::move(node));
      r_.replace(v, r_.to.nodes.size() - 1);
    }
    return r_.finish();
  }

  // Without stretches: values computed elementwise from values that are kept.
  Recomputer(const Graph& g, ValueId loss)
      : r_(g), part_(forward_part(g, loss)), stretch_(g.nodes.size(), -1), copies_(g.nodes.size(), -1) {
    choose_maps();
  }

  // The bytes gradients read inside a stretch, and the multiplications of recomputing them.
  void measure(Stretch* s) {
    std::set<ValueId> read, slice;
    for (ValueId v = part_.end; v < std::ssize(r_.from.nodes); ++v) {
      if (part_.forward[v]) continue;
      for (const ValueId o : r_.from[v].operands)
        if (inside(o, *s)) read.insert(part_.base[o]);
    }
    std::vector<ValueId> open(read.begin(), read.end());
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!inside(v, *s) || !slice.insert(v).second) continue;
      for (const ValueId o : r_.from[v].operands) open.push_back(o);
    }
    s->bytes = 0;
    s->work = 0;
    for (const ValueId v : read)
      if (inside(v, *s)) s->bytes += byte_size(r_.from[v].type);
    for (const ValueId v : slice) s->work += work(v);
  }

 private:
  bool inside(ValueId v, const Stretch& s) const { return v >= s.begin && v < s.end && stretch_[v] >= 0; }

  // Visits values from last to first: one that gradients read is recomputed where that reduces the memory that is kept.
  // A value that a product's epilogue computes counts as the product's result: recomputing it would need the product.
  void choose_maps() {
    const Graph& g = r_.from;
    const ValueId size = g.nodes.size();
    std::vector<int> readers(g.nodes.size());
    for (const Node& node : g.nodes)
      for (const ValueId o : node.operands) readers[o] += 1;
    std::vector<bool> repeatable(g.nodes.size()), kept(g.nodes.size()), ends_product(g.nodes.size());
    for (ValueId v = 0; v < part_.end; ++v) {
      const Node& node = g[v];
      const bool local = node.op == Op::map_ || is_view(node.op);
      ends_product[v] =
          is_product(node.op) || (local && std::any_of(node.operands.begin(), node.operands.end(),
                                                       [&](ValueId o) { return ends_product[o] && readers[o] == 1; }));
      repeatable[v] = part_.forward[v] && local && op_info(node.op).pure && part_.active(v) && !ends_product[v];
    }
    for (const ValueId v : g.results) repeatable[v] = false;
    // Kernels of attention and of its gradient keep no scores anyway.
    for (const Attention& a : find_attention(g, users_of(g), 0, false))
      for (const ValueId v : a.nodes) repeatable[v] = false;
    for (ValueId v = part_.end; v < size; ++v) {
      if (part_.forward[v]) continue;
      for (const ValueId o : g[v].operands)
        if (part_.active(part_.base[o])) kept[part_.base[o]] = true;
    }
    for (ValueId v = part_.end; v-- > 0;) {
      if (!kept[v] || !repeatable[v]) continue;
      // The kept values it depends on, through values that can be recomputed.
      std::set<ValueId> sources, seen;
      std::vector<ValueId> open = {v};
      while (!open.empty()) {
        const ValueId x = open.back();
        open.pop_back();
        if (!seen.insert(x).second) continue;
        if (x != v && (!repeatable[x] || kept[x])) {
          if (part_.active(part_.base[x])) sources.insert(part_.base[x]);
          continue;
        }
        for (const ValueId o : g[x].operands) open.push_back(o);
      }
      int64_t more = 0;
      for (const ValueId x : sources)
        if (!kept[x]) more += byte_size(g[x].type);
      if (more * 2 > byte_size(g[v].type)) continue;
      kept[v] = false;
      for (const ValueId x : sources) kept[x] = true;
      for (const ValueId x : seen)
        if (x == v || (repeatable[x] && !kept[x])) stretch_[x] = 0;
    }
    for (ValueId v = 0; v < part_.end; ++v)
      if (kept[v]) stretch_[v] = -1;
    // A view follows its base: views of recomputed values are recomputed.
    for (ValueId v = 0; v < part_.end; ++v)
      if (is_view(g[v].op) && stretch_[v] < 0 && stretch_[part_.base[v]] == 0 && repeatable[v]) stretch_[v] = 0;
  }

  // Read by the forward part after the stretch: kept.
  bool is_border(ValueId v, ValueId end) {
    if (last_.empty()) {
      last_.resize(r_.from.nodes.size(), -1);
      for (ValueId u = 0; u < std::ssize(r_.from.nodes); ++u)
        if (part_.forward[u])
          for (const ValueId o : r_.from[u].operands) last_[o] = std::max(last_[o], u);
    }
    return last_[v] >= end;
  }

  double work(ValueId v) const {
    const Node& node = r_.from[v];
    if (!is_product(node.op)) return static_cast<double>(byte_size(node.type)) / 4;
    std::map<char, double> extent;
    for (size_t i = 0; i < node.operands.size(); ++i)
      for (size_t d = 0; d < node.attributes.indices[i].size(); ++d)
        extent[node.attributes.indices[i][d]] = r_.from[node.operands[i]].type.shape[d].number();
    double product = 1;
    for (const auto& [unused, n] : extent) product *= n;
    return product;
  }

  ValueId again(ValueId v) {
    if (stretch_[v] < 0) return r_[v];
    if (copies_[v] >= 0) return copies_[v];
    Node node = r_.from[v];
    for (ValueId& o : node.operands) o = again(o);
    r_.to.nodes.push_back(std::move(node));
    return copies_[v] = r_.to.nodes.size() - 1;
  }

  Rewriter r_;
  ForwardPart part_;
  std::vector<int> stretch_;     // by value: the chosen stretch in which it may be recomputed
  std::vector<ValueId> copies_;  // by value
  std::vector<ValueId> last_;    // by value: its last reader in the forward part
};

}  // namespace

std::vector<Stretch> find_stretches(const Graph& g, ValueId loss) {
  const ForwardPart f = forward_part(g, loss);
  // By value below views: the last node of the forward part that reads it.
  std::vector<ValueId> last(g.nodes.size(), -1);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (!f.forward[v] || is_view(g[v].op)) continue;
    for (const ValueId o : g[v].operands)
      if (f.active(f.base[o])) last[f.base[o]] = std::max(last[f.base[o]], v);
  }
  std::set<ValueId> open;
  std::vector<std::pair<ValueId, ValueId>> borders;  // the value, and where the stretch after it begins
  for (ValueId v = 0; v < f.end; ++v) {
    std::erase_if(open, [&](ValueId o) { return last[o] <= v; });
    if (f.active(v) && f.base[v] == v && last[v] > v) open.insert(v);
    if (open.size() != 1 || !f.active(v)) continue;
    if (borders.empty() || borders.back().first != *open.begin()) borders.emplace_back(*open.begin(), v + 1);
  }
  std::vector<Stretch> parts;
  for (size_t i = 0; i + 1 < borders.size(); ++i) parts.push_back({borders[i].second, borders[i + 1].second});
  std::vector<Stretch> out = joined(g, f, parts);
  Recomputer recomputer(g, loss, out);
  for (Stretch& s : out) recomputer.measure(&s);
  std::erase_if(out, [](const Stretch& s) { return s.bytes == 0; });
  return out;
}

Graph recompute_maps(const Graph& g, ValueId loss) {
  return Recomputer(g, loss).run();
}

Graph recompute_stretches(const Graph& g, ValueId loss, const std::vector<Stretch>& chosen) {
  return Recomputer(g, loss, chosen).run();
}

}  // namespace lumen::graph
