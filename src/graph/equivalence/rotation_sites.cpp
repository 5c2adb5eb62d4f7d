#include "graph/equivalence/rotation_sites.h"

#include <algorithm>
#include <map>

#include "graph/equivalence/propagation.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"

namespace lumen::graph {

namespace {

constexpr int32_t kFirst = 2;  // code of position 0 of block 0

class Rotation {
 public:
  Rotation(const Graph& g, const Users& users, int64_t width)
      : g_(g), users_(users), p_(g, users, Propagation::Law::rotation, width) {
    site_.width = width;
  }

  RotationSite run(ValueId v, Marks marks) {
    site_.value = g_[v].label;
    p_.mark(v, std::move(marks));
    p_.run();
    if (p_.failed()) return refused(p_.reason());
    for (const auto& [value, m] : p_.marks())
      if (g_[value].op == Op::input_) change(value, Along::elements, m.codes, 1);
    for (const auto& [weight, w] : p_.weights()) {
      const bool many = g_[weight].type.shape.size() == 3;
      const int64_t matrices = many ? g_[weight].type.shape[0].number() : 1;
      change(weight, Along::rows, w.rows, matrices);
      change(weight, Along::columns, w.columns, matrices);
    }
    check_gains();
    return std::move(site_);
  }

 private:
  RotationSite refused(const std::string& why) {
    RotationSite none;
    none.value = site_.value;
    none.width = site_.width;
    none.reason = why;
    return none;
  }

  void change(ValueId v, Along along, const std::vector<int32_t>& codes, int64_t matrices) {
    RotatedParameter c{g_[v].attributes.name, along, {}};
    // Each block is complete in each matrix; for heads that share values, once for each head.
    std::map<std::pair<int64_t, int64_t>, std::map<int32_t, int64_t>> places;
    const int64_t rest = std::ssize(codes) / matrices;
    for (int64_t i = 0; i < std::ssize(codes); ++i) {
      const int32_t place = codes[i] - kFirst;
      c.places.push_back(codes[i] == 0 ? -1 : place);
      if (c.places.back() < 0) continue;
      site_.blocks = std::max<int64_t>(site_.blocks, place / site_.width + 1);
      ++places[{i / rest, place / site_.width}][place];
    }
    if (places.empty()) return;
    for (const auto& [where, seen] : places) {
      bool whole = std::ssize(seen) == site_.width;
      for (const auto& [place, times] : seen) whole = whole && times == seen.begin()->second;
      if (!whole) return incomplete("'" + c.parameter + "' has a part of a rotated value for itself");
    }
    site_.changes.push_back(std::move(c));
  }
  void incomplete(const std::string& why) { site_ = refused(why); }

  // A gain can be folded if only products read the value it multiplies.
  void check_gains() {
    for (const auto& [map, gain] : p_.gains()) {
      if (!site_.reason.empty()) return;
      std::vector<ValueId> todo = {map};
      while (!todo.empty()) {
        const ValueId v = todo.back();
        todo.pop_back();
        for (const ValueId u : users_[v]) {
          if (u >= 0 && (g_[u].op == Op::reshape_ || g_[u].op == Op::permute_)) {
            todo.push_back(u);
            continue;
          }
          ValueId weight = u < 0 ? -1 : weight_product(g_, u).weight;
          if (weight < 0 && u >= 0 && g_[u].op == Op::contract_gather_ && g_[u].operands[0] == v)
            weight = g_[u].operands[1];
          if (weight < 0) {
            site_ = refused("'" + g_[gain].attributes.name + "' multiplies channels that no weight reads next" +
                            (u < 0 || g_[u].label.empty() ? "" : " (" + g_[u].label + ")"));
            return;
          }
          add(&site_.gains, g_[gain].attributes.name);
          for (const ValueId other : users_[weight])
            if (other >= 0 && g_[other].op == Op::gather_) add(&site_.tied, g_[weight].attributes.name);
        }
      }
    }
  }
  static void add(std::vector<std::string>* names, const std::string& name) {
    if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
  }

  const Graph& g_;
  const Users& users_;
  Propagation p_;
  RotationSite site_;
};

}  // namespace

RotationSite stream_rotation(const Graph& g) {
  const Users users = users_of(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    if (node.op != Op::gather_ || !is_weight(g, node.operands[0]) || g[node.operands[0]].type.shape.size() != 2)
      continue;
    const ValueId index = read_below(g, node.operands[1]);
    if (index < 0 || g[index].op != Op::input_) continue;
    const int64_t width = node.type.shape.back().number();
    Marks marks;
    for (int64_t i = 0; i < elements(node.type.shape).number(); ++i) marks.codes.push_back(kFirst + i % width);
    return Rotation(g, users, width).run(v, std::move(marks));
  }
  RotationSite none;
  none.reason = "no rows of a table are selected by an input";
  return none;
}

std::vector<RotationSite> value_rotations(const Graph& g) {
  const Users users = users_of(g);
  std::vector<RotationSite> sites;
  for (const Attention& a : find_attention(g, users, 0, false)) {
    const Node& out = g[a.output];
    const ValueId v = out.operands[1];
    const auto& letters = out.attributes.indices;
    const std::vector<int64_t> extents = extents_of(g[v].type.shape), dense = dense_strides_of(extents);
    // A block for each head, given by the letters that values share with the output, except the first letter (the
    // batch).
    size_t place = 0;
    std::vector<int64_t> strides(extents.size(), 0);
    for (size_t d = 0; d < extents.size(); ++d)
      if (letters[0].find(letters[1][d]) == std::string::npos) place = d;
    const int64_t width = extents[place];
    strides[place] = 1;
    int64_t count = width;
    for (size_t d = extents.size(); d-- > 1;) {
      if (d == place || letters[2].find(letters[1][d]) == std::string::npos) continue;
      strides[d] = count;
      count *= extents[d];
    }
    Marks marks;
    for (int64_t e = 0; e < count_of(extents); ++e) {
      int64_t code = kFirst;
      for (size_t d = 0; d < extents.size(); ++d) code += e / dense[d] % extents[d] * strides[d];
      marks.codes.push_back(code);
    }
    sites.push_back(Rotation(g, users, width).run(v, std::move(marks)));
  }
  return sites;
}

}  // namespace lumen::graph
