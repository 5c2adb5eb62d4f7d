#include "graph/transform/by_text/by_text.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/match/uses.h"
#include "graph/transform/low_rank.h"
#include "graph/transform/low_rank_inputs.h"

namespace lumen::graph {
namespace {

constexpr int64_t kAllTogether = 128;  // columns of all changes of a weight
const Element kInteger{Scalar::i32, nullptr};

class TextAdder {
 public:
  TextAdder(const Graph& g, const std::vector<TextLowRank>& parts) : r_(g) {
    const ValueId tokens = g.find_input("tokens"), rows = g.find_input("rows");
    if (tokens < 0 || g[tokens].type.shape.size() != 2)
      throw user_error("'{}' has no tokens [B, T]: low-rank changes cannot differ between sequences", g.name);
    texts_ = g[tokens].type.shape[0];
    each_ = g[tokens].type.shape[1];
    if (rows >= 0 && g[rows].type.shape.size() == 1) asked_ = g[rows].type.shape[0];
    for (const TextLowRank& p : parts) {
      const ValueId weight = g.find_input(p.weight);
      const size_t axes = weight < 0 ? 0 : g[weight].type.shape.size();
      if ((axes != 2 && (axes != 3 || p.rows)) || p.rank < 1) refuse({p});
      LUMEN_CHECK(!parts_.contains(weight), "two changes of {}", p.weight);
      LUMEN_CHECK(p.count() > 0 && std::ssize(p.slots) == std::ssize(parts[0].slots), "sets of {}", p.weight);
      parts_[weight] = {p};
    }
  }

  Graph run() {
    sets_ = r_.build.input(kTextSets, Role::data, {{texts_}, kInteger});
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      r_.keep(v);
      if (const auto part = parts_.find(v); part != parts_.end()) add_inputs(part->second, v);
      const std::vector<ValueId>& operands = r_.from[v].operands;
      for (const size_t operand : {1, 0}) {
        const auto part = operand < operands.size() ? parts_.find(operands[operand]) : parts_.end();
        if (part == parts_.end()) continue;
        const LowRankUse use = low_rank_use(r_.from, v, operand);
        if (part->second.what.rows != (use == LowRankUse::rows)) continue;
        if (use == LowRankUse::product) add_to_product(part->second, v, operand);
        if (use == LowRankUse::picked) add_to_picked(part->second, v);
        if (use == LowRankUse::rows) add_to_rows(part->second, v);
      }
    }
    for (const auto& [weight, part] : parts_)
      if (!part.used) refuse(part);
    return r_.finish();
  }

 private:
  struct Part {
    TextLowRank what;
    ValueId a = -1, b = -1, gain = -1;
    bool used = false;
  };

  [[noreturn]] static void refuse(const Part& part) {
    throw user_error("'{}' is not used in a way that allows a low-rank change per sequence", part.what.weight);
  }

  void add_inputs(Part& part, ValueId weight) {
    const TextLowRank& what = part.what;
    const Shape shape = r_.from[weight].type.shape;
    const Dim count(what.count()), rank(what.rank), columns = shape.back();
    const bool picked = shape.size() == 3;
    const Dim stacks = picked ? count * shape[0] : count, rows = what.rows ? columns : shape[shape.size() - 2];
    const Shape a = what.rows ? Shape{count * shape[0], rank} : Shape{stacks, rank, columns};
    part.a = r_.build.input(low_rank_a(what.weight), Role::parameter, {a, {}});
    part.b = r_.build.input(low_rank_b(what.weight), Role::parameter, {{stacks, rows, rank}, {}});
    if (what.gain) part.gain = r_.build.input(low_rank_gain(what.weight), Role::parameter, {{stacks, rows}, {}});
  }

  // The stacked change that each of `rows` rows selects.
  ValueId picks(const Part& part, const Dim& rows) {
    const bool all = rows == texts_ * each_;
    if (!all && !(asked_ && rows == *asked_)) refuse(part);
    const std::vector<int32_t>& slots = part.what.slots;
    auto& of_tokens = tokens_[slots];
    if (of_tokens == 0) {
      const ValueId table = r_.build.constant({{Dim(std::ssize(slots))}, kInteger}, {slots.begin(), slots.end()});
      const ValueId by_text = r_.build.reshape(r_.build.gather(table, sets_), {texts_, Dim(1)});
      of_tokens = r_.build.reshape(r_.build.broadcast(by_text, {texts_, each_}), {texts_ * each_});
    }
    if (all) return of_tokens;
    auto& of_rows = rows_[slots];
    if (of_rows == 0) of_rows = r_.build.gather(of_tokens, r_[r_.from.find_input("rows")]);
    return of_rows;
  }

  ValueId at_least_0(ValueId index) { return r_.build.binary(ScalarOp::max_, index, r_.build.scalar(0, Scalar::i32)); }

  // The factors of the weight's output rows, 1 where no change is selected.
  ValueId gain_of(const Part& part, ValueId index) {
    const ValueId all = r_.build.gather(part.gain, at_least_0(index));
    Shape beside = r_.build.type(index).shape;
    beside.emplace_back(1);
    Formula f;
    f.inputs = {Scalar::i32, Scalar::f32};
    const int none = f.op(ScalarOp::lt_, f.input(0), f.integer(Scalar::i32, 0));
    f.outputs = {f.op(ScalarOp::select_, none, f.constant(Scalar::f32, 1), f.input(1))};
    return r_.build.map(std::move(f), {r_.build.reshape(index, beside), all});
  }

  // The change to the product of rows x [N, K]. If the changes are few and narrow, all rows are multiplied by all
  // changes, and products a row did not select are masked in between: that is faster than sorting the rows by change.
  ValueId changed(const Part& part, ValueId x, ValueId index) {
    const int64_t count = part.what.count(), rank = part.what.rank;
    if (count * rank > kAllTogether)
      return r_.build.contract_gather(r_.build.contract_gather(x, part.a, index, "nk", "erk", "n"), part.b, index, "nr",
                                      "ehr", "n");
    const Shape rows = r_.build.type(index).shape;
    const ValueId a = r_.build.reshape(part.a, {Dim(count * rank), r_.build.type(x).shape[1]});
    const ValueId all = r_.build.contract(x, a, "nk", "rk", "nr");
    std::vector<double> owners;
    for (int64_t n = 0; n < count * rank; ++n) owners.push_back(double(n / rank));
    auto& owner = owners_[{count, rank}];
    if (owner == 0) owner = r_.build.constant({{Dim(count * rank)}, kInteger}, std::move(owners));
    Formula f;
    f.inputs = {Scalar::f32, Scalar::i32, Scalar::i32};
    const int own = f.op(ScalarOp::eq_, f.input(1), f.input(2));
    f.outputs = {f.op(ScalarOp::select_, own, f.input(0), f.constant(Scalar::f32, 0))};
    const ValueId picked = r_.build.map(std::move(f), {all, r_.build.reshape(index, {rows[0], Dim(1)}), owner});
    return r_.build.contract(r_.build.reshape(picked, {rows[0], Dim(count), Dim(rank)}), part.b, "ner", "ehr", "nh");
  }

  void add_to_product(Part& part, ValueId v, int side) {
    const Node node = r_.from[v];
    const std::string &of_x = node.attributes.indices[1 - side], &of_weight = node.attributes.indices[side],
                      &of_result = node.attributes.indices[2];
    const ValueId x = r_[node.operands[1 - side]];
    Shape shape = r_.build.type(x).shape;
    if (of_x.back() != of_weight[1]) refuse(part);
    const Dim columns = shape.back();
    Dim rows(1);
    for (size_t d = 0; d + 1 < shape.size(); ++d) rows = rows * shape[d];
    const ValueId index = picks(part, rows);
    const ValueId change = changed(part, r_.build.reshape(x, {rows, columns}), index);
    // In the product's order of axes.
    std::string natural = of_x;
    natural.back() = of_weight[0];
    shape.back() = r_.from[node.operands[side]].type.shape[0];
    std::vector<int> axes;
    for (const char letter : of_result) axes.push_back(int(natural.find(letter)));
    const auto placed = [&](ValueId y) {
      y = r_.build.reshape(y, shape);
      return natural == of_result ? y : r_.build.permute(y, axes);
    };
    finish(part, v, placed(change), [&] { return placed(gain_of(part, index)); });
  }

  void add_to_picked(Part& part, ValueId v) {
    const Node node = r_.from[v];
    const std::vector<std::string>& i = node.attributes.indices;
    const std::string &of_x = i[0], &of_weight = i[1], &of_index = i[2];
    const char e = of_weight[0], n = of_weight[1], k = of_weight[2], r = 'z';
    LUMEN_CHECK((of_x + of_weight + of_index).find(r) == std::string::npos);
    const ValueId picked = r_.build.convert(r_[node.operands[2]], Scalar::i32);
    Shape beside = r_.build.type(picked).shape;
    if (beside.empty()) refuse(part);
    const ValueId slot = picks(part, beside[0]);
    std::fill(beside.begin() + 1, beside.end(), Dim(1));
    const int64_t matrices = r_.from[node.operands[1]].type.shape[0].number();
    Formula f;
    f.inputs = {Scalar::i32, Scalar::i32};
    const int least = f.op(ScalarOp::min_, f.input(0), f.input(1));
    const int place =
        f.op(ScalarOp::add_, f.op(ScalarOp::mul_, f.input(0), f.integer(Scalar::i32, matrices)), f.input(1));
    f.outputs = {f.op(ScalarOp::select_, f.op(ScalarOp::lt_, least, f.integer(Scalar::i32, 0)),
                      f.integer(Scalar::i32, -1), place)};
    const ValueId index = r_.build.map(std::move(f), {r_.build.reshape(slot, beside), picked});
    const ValueId narrow = r_.build.contract_gather(r_[node.operands[0]], part.a, index, of_x, {e, r, k}, of_index);
    const ValueId change = r_.build.contract_gather(narrow, part.b, index, of_index + r, {e, n, r}, of_index);
    finish(part, v, change, [&] { return gain_of(part, index); });
  }

  void add_to_rows(Part& part, ValueId v) {
    const Node node = r_.from[v];
    const ValueId number = r_.build.convert(r_[node.operands[1]], Scalar::i32);
    const Shape read = r_.build.type(number).shape;
    const ValueId slot = picks(part, elements(read));
    const int64_t rows = r_.from[node.operands[0]].type.shape[0].number();
    const ValueId first = r_.build.mul(at_least_0(slot), r_.build.scalar(double(rows), Scalar::i32));
    const ValueId place = r_.build.add(first, r_.build.reshape(number, {elements(read)}));
    const ValueId change = r_.build.contract_gather(r_.build.gather(part.a, place), part.b, slot, "nr", "ehr", "n");
    const auto placed = [&](ValueId y) { return r_.build.reshape(y, node.type.shape); };
    finish(part, v, placed(change), [&] { return placed(gain_of(part, slot)); });
  }

  template <typename Gain>
  void finish(Part& part, ValueId v, ValueId change, const Gain& gain) {
    const ValueId own = part.gain < 0 ? r_[v] : r_.build.mul(r_[v], gain());
    const ValueId sum = r_.build.add(own, change);
    r_.to[sum].label = r_.from[v].label;
    r_.replace(v, sum);
    part.used = true;
  }

  Rewriter r_;
  Dim texts_, each_;
  std::optional<Dim> asked_;
  ValueId sets_ = -1;
  std::map<ValueId, Part> parts_;
  std::map<std::pair<int64_t, int64_t>, ValueId> owners_;  // of columns, by count and rank; 0 while unknown
  std::map<std::vector<int32_t>, ValueId> tokens_, rows_;  // selections, by the sets' slots; 0, an input, while unknown
};

}  // namespace

int64_t TextLowRank::count() const {
  return slots.empty() ? 0 : *std::ranges::max_element(slots) + 1;
}

Graph add_low_rank_by_text(Graph g, const std::vector<TextLowRank>& parts) {
  if (parts.empty()) return g;
  return TextAdder(g, parts).run();
}

}  // namespace lumen::graph
