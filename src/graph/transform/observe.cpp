#include "graph/transform/observe.h"

#include <map>

#include "graph/ir/build.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"
#include "graph/transform/taps.h"

namespace lumen::graph {

std::string observed_squares(const std::string& weight) {
  return weight + ".in_sum2";
}
std::string observed_counts(const std::string& weight) {
  return weight + ".counts";
}

namespace {

class Observer {
 public:
  explicit Observer(Graph& g) : g_(g), build_(g) {}

  std::vector<Observed> run() {
    const ValueId end = g_.nodes.size();
    for (ValueId v = 0; v < end; ++v) {
      if (g_[v].op == Op::contract_)
        for (const int side : {1, 0}) {
          if (!is_weight(g_[v].operands[side], 2) || !reads_columns_of(g_[v], side)) continue;
          add_product(v, side);
          break;
        }
      if (g_[v].op == Op::contract_gather_ && is_weight(g_[v].operands[1], 3) && reads_columns_of(g_[v], 1))
        add_picked(v);
    }
    std::vector<Observed> out;
    for (const auto& [weight, sums] : sums_) {
      const Shape shape = g_[weight].type.shape;
      const std::string name = g_[weight].attributes.name;
      out.push_back({name, shape.back().number(), sums.counts < 0 ? 0 : shape[0].number()});
      hand_back(observed_squares(name), sums.squares);
      if (sums.counts >= 0) hand_back(observed_counts(name), sums.counts);
    }
    return out;
  }

 private:
  struct Sums {
    ValueId squares = -1, counts = -1;
  };

  bool is_weight(ValueId v, size_t axes) const {
    return g_[v].op == Op::input_ && g_[v].attributes.role == Role::parameter && g_[v].type.shape.size() == axes;
  }

  void add_to(ValueId* sum, ValueId more) { *sum = *sum < 0 ? more : build_.add(*sum, more); }

  // The squares of an operand with these letters: its axes that are in `rows`, in that order, then `columns`.
  ValueId squares_of(ValueId x, const std::string& letters, const std::string& rows, char columns) {
    std::vector<int> order;
    for (const char c : rows)
      if (c != columns && letters.find(c) != std::string::npos) order.push_back(letters.find(c));
    order.push_back(letters.find(columns));
    const ValueId moved = build_.permute(x, order);
    return build_.mul(moved, moved);
  }

  void add_product(ValueId v, int side) {
    const Node node = g_[v];
    const std::vector<std::string>& i = node.attributes.indices;
    const ValueId squares = squares_of(node.operands[1 - side], i[1 - side], i[1 - side], i[side].back());
    std::vector<int> rows;
    for (size_t d = 0; d + 1 < i[1 - side].size(); ++d) rows.push_back(d);
    const ValueId sum = rows.empty() ? squares : build_.reduce(squares, Reduction::sum, rows);
    add_to(&sums_[node.operands[side]].squares, build_.reshape(sum, {build_.type(squares).shape.back()}));
  }

  // The letters of x are some of the index's, and the weight's columns: every element of the index reads a row of x.
  void add_picked(ValueId v) {
    const Node node = g_[v];
    const std::string &of_x = node.attributes.indices[0], &of_weight = node.attributes.indices[1],
                      &of_index = node.attributes.indices[2];
    const ValueId index = node.operands[2], weight = node.operands[1];
    const Shape places = build_.type(index).shape;
    ValueId squares = squares_of(node.operands[0], of_x, of_index, of_weight.back());
    const Dim columns = build_.type(squares).shape.back();
    Shape shape = places, spread;
    shape.push_back(columns);
    for (size_t d = 0; d < of_index.size(); ++d)
      spread.push_back(of_x.find(of_index[d]) == std::string::npos ? Dim(1) : places[d]);
    spread.push_back(columns);
    squares = build_.broadcast(build_.reshape(squares, spread), shape);
    const Dim matrices = build_.type(weight).shape[0];
    Sums& sums = sums_[weight];
    add_to(&sums.squares, sum_by_matrix(build_, squares, index, matrices));
    add_to(&sums.counts, sum_by_matrix(build_, build_.broadcast(build_.scalar(1), places), index, matrices));
  }

  void hand_back(std::string name, ValueId v) {
    g_.results.push_back(v);
    g_.result_names.push_back(std::move(name));
  }

  Graph& g_;
  Builder build_;
  std::map<ValueId, Sums> sums_;
};

}  // namespace

Graph observe(Graph g, std::vector<Observed>* observed) {
  inline_calls(g);
  simplify(g);
  *observed = Observer(g).run();
  simplify(g);
  return g;
}

}  // namespace lumen::graph
