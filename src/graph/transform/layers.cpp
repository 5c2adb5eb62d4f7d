#include "graph/transform/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

constexpr std::string_view kPrefix = "layers.";

// The end of the layer number in a parameter's name; 0: it has none.
size_t number_end(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  const size_t end = name.find_first_not_of("0123456789", kPrefix.size());
  return end == std::string::npos || end == kPrefix.size() || name[end] != '.' ? 0 : end;
}

class Cutter {
 public:
  explicit Cutter(const Graph& g) : g_(g), rank_(g.nodes.size(), kNone), number_(g.nodes.size(), -1) {
    find_ranks();
    for (int rank = 0; rank <= layers_; ++rank) read_.push_back(read_by(rank));
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v)
      for (int rank = 0; rank <= layers_; ++rank)
        if (read_[rank][v]) carry(v, rank);
  }

  LayerCut run() {
    for (int rank = 0; rank <= layers_; ++rank) {
      cut_.parts.push_back(part(rank));
      cut_.parts.back().layer = rank < layers_ ? rank : -1;
    }
    // A function may end with its last layer.
    if (cut_.parts.back().graph.results.empty()) cut_.parts.pop_back();
    return std::move(cut_);
  }

 private:
  static constexpr int kNone = -1;  // depends on no layer

  bool is_parameter(ValueId v) const { return g_[v].op == Op::input_ && g_[v].attributes.role == Role::parameter; }

  // A value belongs to the last layer whose parameters it depends on; or to the part after the layers if it depends on
  // a layer and on parameters that no layer's values depend on.
  void find_ranks() {
    for (const Node& node : g_.nodes)
      if (node.op == Op::input_) layers_ = std::max(layers_, layer_of(node.attributes.name) + 1);
    const std::vector<bool> last = found_last();
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (is_parameter(v)) rank_[v] = layer_of(g_[v].attributes.name);
      bool behind = false;
      for (const ValueId o : g_[v].operands) {
        rank_[v] = std::max(rank_[v], rank_[o]);
        behind = behind || last[o];
      }
      if (rank_[v] >= 0 && behind) rank_[v] = layers_;
    }
  }

  // Values that depend on parameters outside of layers, and whose transitive readers read no layer's parameter.
  std::vector<bool> found_last() const {
    std::vector<bool> leads(g_.nodes.size());  // to a product with a layer's parameter
    for (ValueId v = g_.nodes.size() - 1; v >= 0; --v) {
      bool reads = leads[v];
      for (const ValueId o : g_[v].operands) reads = reads || layer_of(name(o)) >= 0;
      if (!reads) continue;
      for (const ValueId o : g_[v].operands) leads[o] = true;
      leads[v] = true;
    }
    std::vector<bool> last(g_.nodes.size());
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      last[v] = is_parameter(v) && layer_of(name(v)) < 0 && !leads[v];
      for (const ValueId o : g_[v].operands) last[v] = last[v] || last[o];
    }
    return last;
  }

  std::string name(ValueId v) const { return is_parameter(v) ? g_[v].attributes.name : std::string(); }

  // A minimal set of earlier parts' values that a part reads: the others are computed from them.
  std::vector<bool> read_by(int rank) const {
    std::vector<bool> read(g_.nodes.size());
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (rank_[v] != rank || is_parameter(v)) continue;
      for (const ValueId o : g_[v].operands)
        if (rank_[o] >= 0 && rank_[o] < rank && !is_parameter(o)) read[o] = true;
    }
    for (ValueId v = g_.nodes.size() - 1; v >= 0; --v)
      if (read[v] && !is_product(g_[v].op) && follows(v, read, 0)) read[v] = false;
    return read;
  }

  // Whether a value is computed cheaply from values read or depends on no layer.
  bool follows(ValueId v, const std::vector<bool>& read, int depth) const {
    constexpr int kDeepest = 8;
    if (depth > kDeepest || is_product(g_[v].op) || is_parameter(v) || g_[v].op == Op::update_) return false;
    return std::ranges::all_of(g_[v].operands,
                               [&](ValueId o) { return read[o] || (rank_[o] < 0) || follows(o, read, depth + 1); });
  }

  void carry(ValueId v, int to) {
    if (number_[v] < 0) {
      number_[v] = cut_.carried.size();
      cut_.carried.push_back({g_[v].type, rank_[v], to});
    }
    LayerCut::Carried& c = cut_.carried[number_[v]];
    c.to = std::max(c.to, to);
  }

  LayerPart part(int rank) {
    LayerPart out;
    out.layer = rank < layers_ ? rank : -1;
    out.graph.name = g_.name;
    std::vector<bool> needed(g_.nodes.size());
    for (const ValueId r : g_.results) needed[r] = std::max(rank_[r], 0) == rank;
    for (ValueId v = g_.nodes.size() - 1; v >= 0; --v) {
      needed[v] = needed[v] || (rank_[v] == rank && !is_parameter(v));
      if (!needed[v] || read_[rank][v]) continue;
      for (const ValueId o : g_[v].operands) needed[o] = true;
    }
    Builder build(out.graph);
    std::vector<ValueId> map(g_.nodes.size(), -1);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (!needed[v]) continue;
      if (read_[rank][v]) {
        map[v] = build.input(carried_in(out.in.size()), Role::data, g_[v].type);
        out.in.push_back(number_[v]);
        continue;
      }
      Node copy = g_[v];
      for (ValueId& o : copy.operands) o = map[o];
      if (is_parameter(v)) {
        out.parameters.push_back(copy.attributes.name);
        copy.attributes.name = out.name_of(copy.attributes.name);
      }
      copy.label.clear();  // labels name layers
      out.graph.nodes.push_back(std::move(copy));
      map[v] = out.graph.nodes.size() - 1;
    }
    for (size_t i = 0; i < g_.results.size(); ++i)
      if (std::max(rank_[g_.results[i]], 0) == rank) hand_back(out, g_.result_names[i], map[g_.results[i]]);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (rank_[v] != rank || number_[v] < 0) continue;
      hand_back(out, carried_out(out.out.size()), map[v]);
      out.out.push_back(number_[v]);
    }
    return out;
  }

  static void hand_back(LayerPart& part, std::string name, ValueId v) {
    LUMEN_CHECK(v >= 0, "a result of a part is not in it");
    part.graph.results.push_back(v);
    part.graph.result_names.push_back(std::move(name));
  }

  const Graph& g_;
  std::vector<int> rank_, number_;
  std::vector<std::vector<bool>> read_;  // by part and value
  int layers_ = 0;
  LayerCut cut_;
};

}  // namespace

int layer_of(const std::string& parameter) {
  const size_t end = number_end(parameter);
  int layer = -1;
  if (end > 0) std::from_chars(parameter.data() + kPrefix.size(), parameter.data() + end, layer);
  return layer;
}

std::string carried_in(size_t i) {
  return fmt::format("carried.in.{}", i);
}
std::string carried_out(size_t i) {
  return fmt::format("carried.out.{}", i);
}

std::string LayerPart::name_of(const std::string& parameter) const {
  if (layer < 0 || layer_of(parameter) != layer) return parameter;
  return "layer" + parameter.substr(number_end(parameter));
}

LayerCut cut_layers(Graph g) {
  inline_calls(g);
  simplify(g);
  return Cutter(g).run();
}

LayerCut cut_layers_as_written(const Graph& g) {
  return Cutter(g).run();
}

}  // namespace lumen::graph
