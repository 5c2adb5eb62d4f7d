#include "graph/transform/slopes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/match/uses.h"
#include "graph/transform/taps.h"

namespace lumen::graph {
namespace {

// A value whose gradient is observed, and its relation to a weight.
struct Product {
  ValueId y = -1, index = -1;
  std::string of_y, of_index;
  char row = 0;    // the letter of y for rows of the weight; 0: y is gathered rows
  ValueId x = -1;  // the weight's other operand, and the letter that is summed
  std::string of_x;
  char column = 0;
};

bool is_weight(const Graph& g, ValueId v, size_t axes) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter && g[v].type.shape.size() == axes;
}

std::vector<std::pair<std::string, Product>> products_of(const Graph& g) {
  std::vector<std::pair<std::string, Product>> out;
  const auto name = [&](ValueId v) { return g[v].attributes.name; };
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    const std::vector<std::string>& i = node.attributes.indices;
    if (node.op == Op::contract_) {
      for (const int side : {1, 0})
        if (is_weight(g, node.operands[side], 2) && reads_columns_of(node, side)) {
          out.push_back({name(node.operands[side]),
                         {v, -1, i.back(), "", i[side][0], node.operands[1 - side], i[1 - side], i[side][1]}});
          break;
        }
    } else if (node.op == Op::contract_gather_ && is_weight(g, node.operands[1], 3) && reads_columns_of(node, 1)) {
      out.push_back(
          {name(node.operands[1]), {v, node.operands[2], i.back(), i[2], i[1][1], node.operands[0], i[0], i[1][2]}});
    } else if (node.op == Op::gather_ && is_weight(g, node.operands[0], 2)) {
      out.push_back({name(node.operands[0]), {v, -1, "", "", 0, -1, "", 0}});
    }
  }
  return out;
}

class Sloper {
 public:
  Sloper(Graph& g, const SlopeKinds& kinds) : g_(g), build_(g), kinds_(kinds) {}

  std::vector<Slope> run() {
    const std::vector<std::pair<std::string, Product>> products = products_of(g_);
    std::vector<ValueId> looked_at;
    for (const auto& [weight, p] : products) looked_at.push_back(p.y);
    std::vector<std::string> weights;
    for (const auto& [weight, p] : products)
      if (kinds_.weights && p.row != 0 && std::ranges::find(weights, weight) == weights.end()) {
        weights.push_back(weight);
        looked_at.push_back(g_.find_input(weight));
      }
    const std::vector<ValueId> gradients = with_respect_to(looked_at);
    for (size_t k = 0; k < weights.size(); ++k) hand_back(gradient_name(weights[k]), gradients[products.size() + k]);
    std::vector<Slope> out;
    std::map<std::string, ValueId> sums, channels;
    for (size_t k = 0; k < products.size(); ++k) {
      const auto& [weight, p] = products[k];
      const ValueId gradient = gradients[k], sum = squares(p, gradient, weight);
      if (kinds_.channels && p.row != 0) {
        const ValueId more = by_columns(p, gradient, weight);
        const auto [known, fresh] = channels.emplace(weight, more);
        if (!fresh) known->second = build_.add(known->second, more);
      }
      const auto found = sums.find(weight);
      if (found == sums.end()) {
        out.push_back({weight, p.row != 0, p.index < 0 ? 0 : matrices(weight)});
        sums[weight] = sum;
      } else {
        const Slope& first = *std::ranges::find(out, weight, &Slope::weight);
        LUMEN_CHECK(first.by_rows == (p.row != 0), "'{}' is looked up and multiplied in one part", weight);
        found->second = build_.add(found->second, sum);
      }
    }
    for (const auto& [weight, sum] : sums) sum_up(slope_name(weight), sum);
    for (const auto& [weight, sum] : channels) sum_up(channel_slope_name(weight), sum);
    return out;
  }

  std::vector<std::string> run_whole() {
    const std::vector<ValueId> parameters = inputs_of(Role::parameter);
    const std::vector<ValueId> gradients = with_respect_to(parameters);
    std::vector<std::string> out;
    for (size_t k = 0; k < parameters.size(); ++k) {
      out.push_back(g_[parameters[k]].attributes.name);
      sum_up(gradient_sum_name(out.back()), gradients[k]);
    }
    return out;
  }

 private:
  std::vector<ValueId> inputs_of(Role role) const {
    std::vector<ValueId> out;
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v)
      if (g_[v].op == Op::input_ && g_[v].attributes.role == role && is_float(g_[v].type.element.scalar))
        out.push_back(v);
    return out;
  }

  // Replaces the results by gradients of float data inputs; returns those of `values`.
  std::vector<ValueId> with_respect_to(const std::vector<ValueId>& values) {
    const std::vector<ValueId> inputs = inputs_of(Role::data);
    const ValueId loss = seeded();
    std::vector<ValueId> all = inputs;
    all.insert(all.end(), values.begin(), values.end());
    const std::vector<ValueId> gradients = differentiate(g_, loss, all);
    g_.results.clear();
    g_.result_names.clear();
    for (size_t k = 0; k < inputs.size(); ++k) hand_back(gradient_name(g_[inputs[k]].attributes.name), gradients[k]);
    return {gradients.begin() + std::ssize(inputs), gradients.end()};
  }

  void sum_up(const std::string& name, ValueId sum) {
    const ValueId state = build_.input(name, Role::state, build_.type(sum));
    hand_back(name, build_.update(state, build_.add(state, sum)));
  }

  // Sum of all float results times their seeds.
  ValueId seeded() {
    ValueId loss = -1;
    const std::vector<ValueId> results = g_.results;
    const std::vector<std::string> names = g_.result_names;
    for (size_t k = 0; k < results.size(); ++k) {
      const Type type = build_.type(results[k]);
      if (!is_float(type.element.scalar)) continue;
      const ValueId seed = build_.input(seed_name(names[k]), Role::data, {type.shape, {Scalar::f32, nullptr}});
      const ValueId product = build_.mul(build_.convert(results[k], Scalar::f32), seed);
      std::vector<int> axes(type.shape.size());
      for (size_t d = 0; d < axes.size(); ++d) axes[d] = d;
      const ValueId sum = build_.reshape(axes.empty() ? product : build_.reduce(product, Reduction::sum, axes), {});
      loss = loss < 0 ? sum : build_.add(loss, sum);
    }
    LUMEN_CHECK(loss >= 0, "a part without results has no slopes");
    return loss;
  }

  int64_t matrices(const std::string& weight) const { return g_[g_.find_input(weight)].type.shape[0].number(); }

  ValueId squares(const Product& p, ValueId gradient, const std::string& weight) {
    const Shape shape = build_.type(gradient).shape;
    std::vector<int> order;
    Dim rows(1);
    const size_t last = p.row != 0 ? p.of_y.find(p.row) : shape.size() - 1;
    if (p.index >= 0) {
      LUMEN_CHECK(p.of_y.size() == p.of_index.size() + 1, "a product whose rows pick, of other letters than they have");
      for (const char c : p.of_index) order.push_back(p.of_y.find(c));
    } else {
      for (size_t d = 0; d < shape.size(); ++d)
        if (d != last) order.push_back(d);
    }
    for (const int d : order) rows = rows * shape[d];
    order.push_back(last);
    const Dim wide = shape[last];
    ValueId flat = build_.reshape(build_.permute(gradient, order), {rows, wide});
    flat = build_.mul(flat, flat);
    if (p.index < 0) return build_.reshape(build_.reduce(flat, Reduction::sum, {0}), {wide});
    return sum_by_matrix(build_, flat, build_.reshape(p.index, {rows}), Dim(matrices(weight)));
  }

  // |g|^2 x^2, summed over rows of x; for weights that rows select, over the rows of each matrix.
  ValueId by_columns(const Product& p, ValueId gradient, const std::string& weight) {
    const std::string letters = p.index >= 0 ? p.of_index : without(p.of_y, p.row);
    // |g|^2 of each row: axes `letters`, and one of extent 1.
    std::vector<int> order;
    Shape shape;
    Dim rows(1);
    for (const char c : letters) {
      order.push_back(p.of_y.find(c));
      shape.push_back(build_.type(gradient).shape[order.back()]);
      rows = rows * shape.back();
    }
    order.push_back(p.of_y.find(p.row));
    const ValueId ordered = build_.permute(gradient, order);
    const ValueId size = build_.reduce(build_.mul(ordered, ordered), Reduction::sum, {-1});
    // x^2 with the same axes (extent 1 for those it lacks), and its columns last.
    std::vector<int> order_x;
    Shape spread;
    for (const char c : letters) {
      const size_t at = p.of_x.find(c);
      spread.push_back(at == std::string::npos ? Dim(1) : build_.type(p.x).shape[at]);
      if (at != std::string::npos) order_x.push_back(at);
    }
    LUMEN_CHECK(order_x.size() + 1 == p.of_x.size(), "'{}' is multiplied with axes that its product lacks", weight);
    order_x.push_back(p.of_x.find(p.column));
    const Dim columns = build_.type(p.x).shape[order_x.back()];
    spread.push_back(columns);
    const ValueId x = build_.reshape(build_.permute(p.x, order_x), spread);
    const ValueId wide = build_.reshape(build_.mul(build_.mul(x, x), size), {rows, columns});
    if (p.index < 0) return build_.reshape(build_.reduce(wide, Reduction::sum, {0}), {columns});
    return sum_by_matrix(build_, wide, build_.reshape(p.index, {rows}), Dim(matrices(weight)));
  }

  static std::string without(std::string letters, char c) {
    std::erase(letters, c);
    return letters;
  }

  void hand_back(std::string name, ValueId v) {
    g_.results.push_back(v);
    g_.result_names.push_back(std::move(name));
  }

  Graph& g_;
  Builder build_;
  const SlopeKinds kinds_;
};

}  // namespace

std::string seed_name(const std::string& result) {
  return "seed." + result;
}
std::string slope_name(const std::string& weight) {
  return "slope." + weight;
}
std::string channel_slope_name(const std::string& weight) {
  return "channels." + weight;
}
std::string gradient_name(const std::string& input) {
  return "gradient." + input;
}

std::string gradient_sum_name(const std::string& weight) {
  return "gradients." + weight;
}

Graph add_gradients(Graph g, std::vector<std::string>* weights) {
  *weights = Sloper(g, {}).run_whole();
  return g;
}

Graph add_slopes(Graph g, std::vector<Slope>* slopes, const SlopeKinds& kinds) {
  *slopes = Sloper(g, kinds).run();
  return g;
}

}  // namespace lumen::graph
