#include "graph/transform/taps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/match/access.h"
#include "graph/match/sign.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

constexpr int kEdgesOfOctave = 8, kLowestOctave = -14;

// One use of a weight: a product's activation and letters.
struct Read {
  ValueId x = -1, index = -1;           // index: of products whose rows select matrices
  std::string of_x, of_index, columns;  // letters; columns: the one summed over
  bool operator==(const Read&) const = default;
};

class Tapper {
 public:
  Tapper(Graph& g, const TapKinds& kinds, const std::vector<ValueId>& other)
      : g_(g), build_(g), kinds_(kinds), other_(other) {}

  std::vector<Tap> run() {
    const ValueId end = other_.empty() ? g_.nodes.size() : other_.size();
    for (ValueId v = 0; v < end; ++v) {
      const Node& node = g_[v];
      if (node.op == Op::contract_)
        for (const int side : {1, 0}) {
          if (!is_weight(node.operands[side], 2) || !reads_columns_of(node, side)) continue;
          const std::vector<std::string>& i = node.attributes.indices;
          add(node.operands[side], {node.operands[1 - side], -1, i[1 - side], "", i[side].substr(1)});
          break;
        }
      if (node.op == Op::contract_gather_ && is_weight(node.operands[1], 3) && reads_columns_of(node, 1)) {
        const std::vector<std::string>& i = node.attributes.indices;
        add(node.operands[1], {node.operands[0], node.operands[2], i[0], i[2], i[1].substr(2)});
      }
    }
    std::vector<Tap> out;
    for (const ValueId weight : order_) {
      const std::vector<Read>& reads = reads_.at(weight);
      const std::string& name = g_[weight].attributes.name;
      const auto same = std::ranges::find_if(taps_, [&](const auto& t) { return t.first == reads; });
      if (same != taps_.end()) {
        out[same->second].weights.push_back(name);
        continue;
      }
      const Shape shape = g_[weight].type.shape;
      taps_.emplace_back(reads, out.size());
      out.push_back({{name}, shape.back().number(), reads[0].index < 0 ? 0 : shape[0].number()});
      write(out.size() - 1, out.back(), reads);
    }
    return out;
  }

 private:
  bool is_weight(ValueId v, size_t axes) const {
    return g_[v].op == Op::input_ && g_[v].attributes.role == Role::parameter && g_[v].type.shape.size() == axes;
  }

  void add(ValueId weight, Read read) {
    std::vector<Read>& reads = reads_[weight];
    if (reads.empty()) order_.push_back(weight);
    if (std::ranges::find(reads, read) == reads.end()) reads.push_back(std::move(read));
  }

  // An operand with its columns last, as [rows, K].
  ValueId rows_of(ValueId x, const Read& read) {
    std::vector<int> order;
    const size_t column = read.of_x.find(read.columns);
    Dim rows(1);
    for (size_t d = 0; d < read.of_x.size(); ++d)
      if (d != column) {
        order.push_back(d);
        rows = rows * build_.type(x).shape[d];
      }
    order.push_back(column);
    const Dim columns = build_.type(x).shape[column];
    return build_.reshape(build_.permute(x, order), {rows, columns});
  }

  // The operand of a product whose rows select matrices, for every element of the index: [places, K].
  ValueId places_of(ValueId x, const Read& read) {
    const Shape places = build_.type(read.index).shape;
    std::vector<int> order;
    Shape spread;
    for (const char c : read.of_index) {
      const size_t at = read.of_x.find(c);
      spread.push_back(at == std::string::npos ? Dim(1) : build_.type(x).shape[at]);
      if (at != std::string::npos) order.push_back(at);
    }
    const size_t column = read.of_x.find(read.columns);
    LUMEN_CHECK(order.size() + 1 == read.of_x.size(), "an operand has letters that neither the index nor the sum has");
    order.push_back(column);
    const Dim columns = build_.type(x).shape[column];
    spread.push_back(columns);
    Shape shape = places;
    shape.push_back(columns);
    return build_.reshape(build_.broadcast(build_.reshape(build_.permute(x, order), spread), shape),
                          {elements(places), columns});
  }

  void write(size_t tap, const Tap& t, const std::vector<Read>& reads) {
    const Dim columns(t.columns), matrices(t.matrices);
    const bool picked = t.matrices > 0;
    const Shape vector = picked ? Shape{matrices, columns} : Shape{columns};
    const Shape square = picked ? Shape{matrices, columns, columns} : Shape{columns, columns};
    const auto sum = [&](const char* kind, const Shape& shape, auto&& of_read) {
      ValueId all = -1;
      for (const Read& r : reads) {
        const ValueId one = build_.reshape(of_read(r), shape);
        all = all < 0 ? one : build_.add(all, one);
      }
      keep(tap, kind, all, false);
    };
    const auto x_of = [&](const Read& r) { return picked ? places_of(r.x, r) : rows_of(r.x, r); };
    const auto index_of = [&](const Read& r) {
      return build_.reshape(r.index, {elements(build_.type(r.index).shape)});
    };
    const auto over_rows = [&](const Read& r, ValueId v) {
      return picked ? sum_by_matrix(build_, v, index_of(r), matrices) : build_.reduce(v, Reduction::sum, {0});
    };
    if (kinds_.squares)
      sum(kTapSquares, vector, [&](const Read& r) {
        const ValueId x = x_of(r);
        return over_rows(r, build_.mul(x, x));
      });
    if (kinds_.magnitudes)
      sum(kTapMagnitudes, vector, [&](const Read& r) { return over_rows(r, build_.unary(ScalarOp::abs_, x_of(r))); });
    if (kinds_.largest) write_largest(tap, t, reads, vector);
    if (kinds_.gram)
      sum(kTapGram, square, [&](const Read& r) { return product(r, x_of(r), x_of(r), matrices, picked); });
    if (kinds_.cross)
      sum(kTapCross, square, [&](const Read& r) {
        LUMEN_CHECK(!other_.empty() && other_[r.x] >= 0, "a value has no counterpart");
        Read copy = r;
        copy.x = other_[r.x];
        return product(r, build_.sub(x_of(copy), x_of(r)), x_of(r), matrices, picked);
      });
    if (picked)
      sum(kTapCounts, {matrices}, [&](const Read& r) {
        const ValueId index = index_of(r);
        return sum_by_matrix(build_, build_.broadcast(build_.scalar(1), build_.type(index).shape), index, matrices);
      });
    if (picked && kinds_.weighed)
      sum(kTapWeighed, vector, [&](const Read& r) {
        ValueId x = places_of(r.x, r);
        if (const ValueId g = router_weights(r.index); g >= 0)
          x = build_.mul(x, build_.reshape(g, {elements(build_.type(g).shape), 1}));
        return over_rows(r, build_.mul(x, x));
      });
    if (kinds_.spread) sum(kTapSpread, {Dim(kSpreadEdges)}, [&](const Read& r) { return counts_from(r); });
    if (kinds_.rows) {
      std::vector<ValueId> parts;
      for (const Read& r : reads) {
        const ValueId x = rows_of(r.x, r);
        const ValueId most = build_.reduce(build_.unary(ScalarOp::abs_, x), Reduction::max, {1});
        parts.push_back(build_.reshape(most, {build_.type(x).shape[0]}));
      }
      hand_back(tap_name(tap, kTapRows), parts.size() == 1 ? parts[0] : build_.concat(parts, 0));
    }
  }

  // How many numbers are at least each edge in magnitude, independent of the matrix that reads them.
  ValueId counts_from(const Read& r) {
    const ValueId x = rows_of(r.x, r);
    const Shape& shape = build_.type(x).shape;
    const ValueId size = build_.reshape(build_.unary(ScalarOp::abs_, x), {1, shape[0], shape[1]});
    const ValueId place = build_.cast(build_.iota({{Dim(kSpreadEdges), 1, 1}, {Scalar::i32, nullptr}}, 0), {});
    const ValueId octaves =
        build_.add(build_.mul(place, build_.scalar(1.0 / kEdgesOfOctave)), build_.scalar(kLowestOctave));
    const ValueId edge = build_.unary(ScalarOp::exp_, build_.mul(octaves, build_.scalar(std::numbers::ln2)));
    const ValueId ones = build_.select(build_.binary(ScalarOp::le_, edge, size), build_.scalar(1), build_.scalar(0));
    // By rows first: a sum of ones in f32 is exact only up to 2^24.
    return build_.reduce(build_.reduce(ones, Reduction::sum, {2}), Reduction::sum, {1});
  }

  ValueId product(const Read& r, ValueId a, ValueId b, const Dim& matrices, bool picked) {
    if (!picked) return build_.contract(a, b, "rk", "rl", "kl");
    const ValueId index = build_.reshape(r.index, {elements(build_.type(r.index).shape)});
    return build_.contract_scatter(a, b, index, "rk", "rl", "r", "ekl", matrices);
  }

  // The factor of selected matrices' outputs when they are added: the other operand of the product that sums over an
  // axis of the index. -1: none.
  ValueId router_weights(ValueId index) const {
    const Shape& places = g_[index].type.shape;
    for (const Node& node : g_.nodes) {
      if (node.op != Op::contract_) continue;
      for (const int side : {0, 1}) {
        const ValueId g = node.operands[side], outputs = node.operands[1 - side];
        const std::vector<std::string>& i = node.attributes.indices;
        if (g_[g].type.shape == places && i[1 - side].starts_with(i[side]) && i[1 - side].size() > i[side].size() &&
            is_picked_by(outputs, index))
          return g;
      }
    }
    return -1;
  }
  // Whether a value is computed elementwise from products with the index's selection.
  bool is_picked_by(ValueId v, ValueId index) const {
    const Node& node = g_[v];
    if (node.op == Op::contract_gather_) return node.operands[2] == index;
    const bool passes = node.op == Op::map_ || is_view(node.op) || node.op == Op::cast_;
    return passes && std::ranges::any_of(node.operands, [&](ValueId o) { return is_picked_by(o, index); });
  }

  void write_largest(size_t tap, const Tap& t, const std::vector<Read>& reads, const Shape& vector) {
    ValueId all = -1;
    for (const Read& r : reads) {
      ValueId most = build_.unary(ScalarOp::abs_, r.index < 0 ? rows_of(r.x, r) : places_of(r.x, r));
      if (r.index < 0) {
        most = build_.reduce(most, Reduction::max, {0});
      } else {
        // The rows of a matrix are those that selected it; all others count as zeros.
        const ValueId index = build_.reshape(r.index, {elements(build_.type(r.index).shape)});
        const Dim places = build_.type(index).shape[0];
        const ValueId matrix = build_.iota({{Dim(t.matrices), 1}, {Scalar::i32, nullptr}}, 0);
        const ValueId mine = build_.binary(ScalarOp::eq_, matrix, build_.reshape(index, {1, places}));
        const ValueId chosen = build_.select(build_.reshape(mine, {Dim(t.matrices), places, 1}),
                                             build_.reshape(most, {1, places, Dim(t.columns)}), build_.scalar(0));
        most = build_.reduce(chosen, Reduction::max, {1});
      }
      most = build_.reshape(most, vector);
      all = all < 0 ? most : build_.binary(ScalarOp::max_, all, most);
    }
    keep(tap, kTapLargest, all, true);
  }

  void keep(size_t tap, const char* kind, ValueId v, bool largest) {
    const std::string name = tap_name(tap, kind);
    const ValueId state = build_.input(name, Role::state, build_.type(v));
    const ValueId next = largest ? build_.binary(ScalarOp::max_, state, v) : build_.add(state, v);
    hand_back(name, build_.update(state, next));
  }

  void hand_back(std::string name, ValueId v) {
    g_.results.push_back(v);
    g_.result_names.push_back(std::move(name));
  }

  Graph& g_;
  Builder build_;
  const TapKinds& kinds_;
  const std::vector<ValueId>& other_;
  std::map<ValueId, std::vector<Read>> reads_;
  std::vector<ValueId> order_;
  std::vector<std::pair<std::vector<Read>, size_t>> taps_;
};

}  // namespace

double spread_edge(int64_t k) {
  return std::exp2(k / (1.0 * kEdgesOfOctave) + kLowestOctave);
}

ValueId sum_by_matrix(Builder& build, ValueId value, ValueId index, const Dim& matrices) {
  if (is_never_negative(build.graph, index)) return build.scatter_add(value, index, matrices);
  // Into an additional last row, which is sliced off.
  const Scalar type = build.type(index).element.scalar;
  const ValueId none = build.scalar(matrices.number(), type);
  const ValueId kept = build.select(build.binary(ScalarOp::lt_, index, build.scalar(0, type)), none, index);
  const ValueId sums = build.scatter_add(value, kept, Dim(matrices.number() + 1));
  Shape shape = build.type(sums).shape;
  shape[0] = matrices;
  return build.slice(sums, std::vector<int64_t>(shape.size(), 0), shape);
}

TapKinds& TapKinds::operator|=(const TapKinds& other) {
  for (bool TapKinds::* kind : {&TapKinds::squares, &TapKinds::magnitudes, &TapKinds::largest, &TapKinds::gram,
                                &TapKinds::rows, &TapKinds::cross, &TapKinds::spread, &TapKinds::weighed})
    this->*kind |= other.*kind;
  return *this;
}

std::string tap_name(size_t tap, const std::string& kind) {
  return fmt::format("tap.{}.{}", tap, kind);
}

Graph add_taps(Graph g, const TapKinds& kinds, std::vector<Tap>* taps, const std::vector<ValueId>& other) {
  *taps = Tapper(g, kinds, other).run();
  simplify(g);
  return g;
}

Graph beside(const Graph& g, const std::string& suffix, std::vector<ValueId>* other) {
  Graph out = g;
  other->assign(g.nodes.size(), -1);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    const bool is_other =
        node.op == Op::input_ && node.attributes.role == Role::data && is_float(node.type.element.scalar);
    const bool changes = std::ranges::any_of(node.operands, [&](ValueId o) { return (*other)[o] != o; });
    if (!is_other && !changes) {
      (*other)[v] = v;
      continue;
    }
    LUMEN_CHECK(node.op != Op::update_, "a graph with states cannot be copied");
    Node copy = node;
    for (ValueId& o : copy.operands) o = (*other)[o];
    if (is_other) copy.attributes.name += suffix;
    out.nodes.push_back(std::move(copy));
    (*other)[v] = out.nodes.size() - 1;
  }
  for (size_t i = 0; i < g.results.size(); ++i) {
    out.results.push_back((*other)[g.results[i]]);
    out.result_names.push_back(g.result_names[i] + suffix);
  }
  return out;
}

}  // namespace lumen::graph
