#include "apps/diffuse/sites/polarity.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <optional>
#include <vector>

#include "graph/match/access.h"

namespace lumen::graph {
namespace {

constexpr size_t kMostPlaces = 512;
constexpr double kReach = 8, kStride = 0.25;

double silu_of(double x) {
  return x / (1 + std::exp(-x));
}
double gelu_of(double x) {
  return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
}
double gelu_by_sigmoid(double x) {
  return x / (1 + std::exp(-1.702 * x));
}

// A value, or a node of the formula of a map.
struct FormulaPlace {
  ValueId value = -1;
  int node = -1;  // -1: the value
  friend auto operator<=>(const FormulaPlace&, const FormulaPlace&) = default;
};

// Evaluates at a point the elementwise function from one place to a value.
class Evaluation {
 public:
  Evaluation(const Graph& g, FormulaPlace from, double at) : g_(g), from_(from), at_(at) {}

  // nullopt if the value depends on anything but `from` and constants.
  std::optional<ScalarValue> of(ValueId v) {
    if (from_ == FormulaPlace{v, -1}) return ScalarValue{at_, 0};
    const Node& node = g_[v];
    if (is_splat(node)) return ScalarValue{node.attributes.data[0], std::llround(node.attributes.data[0])};
    if (node.op == Op::reshape_ || node.op == Op::broadcast_) return of(node.operands[0]);
    return node.op == Op::map_ ? of(FormulaPlace{v, node.attributes.formula.outputs[0]}) : std::nullopt;
  }

 private:
  std::optional<ScalarValue> of(const FormulaPlace& place) {
    if (place == from_) return ScalarValue{at_, 0};
    if (const auto known = known_.find(place); known != known_.end()) return known->second;
    if (known_.size() >= kMostPlaces) return std::nullopt;
    const std::optional<ScalarValue> out = computed(place);
    return known_[place] = out;
  }

  std::optional<ScalarValue> computed(const FormulaPlace& place) {
    const Formula& f = g_[place.value].attributes.formula;
    const ScalarNode& n = f.nodes[place.node];
    if (n.op == ScalarOp::input) return of(g_[place.value].operands[n.index]);
    if (n.op == ScalarOp::constant) return ScalarValue{n.real, n.integer};
    ScalarValue args[3];
    for (int k = 0; k < scalar_op_info(n.op).arity; ++k) {
      const std::optional<ScalarValue> arg = of(FormulaPlace{place.value, n.args[k]});
      if (!arg) return std::nullopt;
      args[k] = *arg;
    }
    const int typed = n.op == ScalarOp::select_ ? n.args[1] : n.args[0];
    return eval_scalar_op(n, f.type(typed), args[0], args[1], args[2], true);
  }

  const Graph& g_;
  FormulaPlace from_;
  double at_;
  std::map<FormulaPlace, std::optional<ScalarValue>> known_;
};

// Candidates for x: places of as many elements as v in maps and reshapes below it.
std::vector<FormulaPlace> places_below(const Graph& g, ValueId v) {
  const Dim count = elements(g[v].type.shape);
  std::vector<ValueId> values = {v};
  std::vector<FormulaPlace> out;
  for (size_t k = 0; k < values.size() && out.size() < kMostPlaces; ++k) {
    const Node& node = g[values[k]];
    if (k > 0) out.push_back({values[k], -1});
    if (node.op != Op::map_ && node.op != Op::reshape_) continue;
    if (node.op == Op::map_)
      for (int i = 0; i < std::ssize(node.attributes.formula.nodes); ++i)
        if (is_float(node.attributes.formula.type(i))) out.push_back({values[k], i});
    for (const ValueId o : node.operands)
      if (elements(g[o].type.shape) == count && std::ranges::find(values, o) == values.end()) values.push_back(o);
  }
  return out;
}

bool computes_function(const Graph& g, ValueId v, const FormulaPlace& from, double (*f)(double)) {
  for (double x = -kReach; x <= kReach; x += kStride) {
    const std::optional<ScalarValue> y = Evaluation(g, from, x).of(v);
    if (!y || !(std::abs(y->real - f(x)) <= 2e-3 + 4e-3 * std::abs(f(x)))) return false;
  }
  return true;
}

}  // namespace

bool is_polar(const Graph& g, ValueId v) {
  for (const FormulaPlace& from : places_below(g, v))
    for (auto* f : {silu_of, gelu_of, gelu_by_sigmoid})
      if (computes_function(g, v, from, f)) return true;
  return false;
}

}  // namespace lumen::graph
