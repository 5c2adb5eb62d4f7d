// See segments.h. Proved by tests/graph/transform/segments_test.cpp and, for families,
// tests/model/data/packing_test.cpp.
#include "graph/transform/segments.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/ir/eval.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

constexpr double kVeryNegative = -1e20;  // upper bound of masked scores
constexpr int64_t kTried = 12;           // extent of T for which a mask is evaluated

// How a value depends on positions.
enum class Holds : uint8_t { nothing, positions, rows_by_position };

class Separator {
 public:
  Separator(const Graph& g, const std::string& tokens) : g_(g), r_(g), live_(live_values(g)), name_(g.name) {
    const ValueId v = g.find_input(tokens);
    const auto symbol = [&](size_t axis) { return g[v].type.shape[axis].symbols; };
    if (v < 0 || g[v].type.shape.size() != 2 || symbol(0).size() != 1 || symbol(1).size() != 1 ||
        symbol(0) == symbol(1))
      refuse(-1, fmt::format("it has no input '{}' of the form i32[B, T]", tokens));
    texts_ = g[v].type.shape[0];
    length_ = g[v].type.shape[1];
    type_ = g[v].type;
  }

  // Rotations depend only on distances if both factors of scores are rotated, and no other value is.
  void check_rotations() {
    std::set<ValueId> scores;
    for (const Attention& a : find_attention(g_, users_of(g_), 0, false))
      for (const ValueId v : a.nodes)
        if (g_[v].op == Op::contract_ && v != a.output) scores.insert(v);
    std::vector<bool> counts(g_.nodes.size(), false), rotated(g_.nodes.size(), false);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      const Node& node = g_[v];
      if (!live_[v]) continue;
      counts[v] = node.op == Op::iota_ && counts_positions(node.type.shape[node.attributes.axis]);
      for (const ValueId o : node.operands) {
        counts[v] = counts[v] || counts[o];
        rotated[v] = rotated[v] || rotated[o];
      }
      if (counts[v] && node.op == Op::map_ && turns(node.attributes.formula)) rotated[v] = true;
      if (rotated[v]) counts[v] = false;
      const bool both = scores.contains(v) && rotated[node.operands[0]] == rotated[node.operands[1]];
      if (both) rotated[v] = false;
      const bool meets = node.op == Op::contract_ || node.op == Op::contract_gather_ || node.op == Op::gather_;
      if (rotated[v] && meets) refuse(v, "numbers rotated by position become more than factors of scores");
    }
    for (const ValueId v : g_.results)
      if (rotated[v]) refuse(v, "a result is rotated by position");
  }

  Graph run() {
    for (const Attention& a : find_attention(g_, users_of(g_), 0, false)) add(a);
    holds_.assign(g_.nodes.size(), Holds::nothing);
    read_.assign(g_.nodes.size(), false);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      const auto& operands = g_[v].operands;
      read_[v] =
          g_[v].op == Op::input_ || std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return read_[o]; });
      if (!live_[v]) continue;
      check_meeting(v);
      holds_[v] = found_in(v);
    }
    for (const ValueId v : g_.results)
      if (holds_[v] != Holds::nothing) refuse(v, "a result depends on the position alone");
    starts_ = r_.build.input(kStarts, Role::data, type_);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (!live_[v] && g_[v].op != Op::input_) continue;
      if (const auto mask = masks_.find(v); mask != masks_.end())
        r_.replace(v, bounded(v, mask->second));
      else if (g_[v].op == Op::map_ && holds_[v] == Holds::nothing && (reads_rows(v) || is_scaled(v)))
        r_.replace(v, with_own_rows(v));
      else
        r_.keep(v);
      if (r_.to[r_[v]].label.empty()) r_.to[r_[v]].label = g_[v].label;
    }
    return r_.finish();
  }

 private:
  struct Mask {
    int texts = -1, queries = -1;  // axes of the scores
  };

  [[noreturn]] void refuse(ValueId v, const std::string& why) const {
    const std::string label = v < 0 || g_[v].label.empty() ? "" : fmt::format(" at '{}'", g_[v].label);
    throw Error(Exit::user, fmt::format("sequences cannot be packed into one row for '{}'{}: {}", name_, label, why),
                "give every sequence a row of its own: --no-packing, or packing = false in the recipe");
  }

  bool counts_positions(const Dim& d) const {
    return std::find(d.symbols.begin(), d.symbols.end(), length_.symbols[0]) != d.symbols.end();
  }
  bool has_positions(const Shape& s) const {
    return std::any_of(s.begin(), s.end(), [&](const Dim& d) { return counts_positions(d); });
  }

  // ---- attention

  void add(const Attention& a) {
    const Shape& shape = g_[a.score].type.shape;
    if (!counts_positions(shape.back())) return;  // attention over another axis
    Mask mask;
    const auto only = [&](const Dim& extent) {
      int found = -1;
      for (size_t d = 0; d + 1 < shape.size(); ++d) {
        if (!(shape[d] == extent)) continue;
        if (found >= 0) refuse(a.score, "its attention has two such axes");
        found = d;
      }
      return found;
    };
    mask.texts = only(texts_);
    mask.queries = only(length_);
    if (!(shape.back() == length_) || mask.texts < 0 || mask.queries < mask.texts)
      refuse(a.score,
             fmt::format("the scores of its attention are {}, not [B, .., T, .., T]", print(g_[a.score].type)));
    if (!is_masked(a.score)) refuse(a.score, "its attention has no mask: select(key <= query, score, very negative)");
    if (!is_causal(a.score, mask)) refuse(a.score, "its attention's mask includes keys after the query");
    if (counts_in_groups(a.score))
      refuse(a.score, "its attention's mask divides positions, which are counted from the beginning of the row");
    masks_[a.score] = mask;
    inside_.insert(a.nodes.begin(), a.nodes.end());
  }

  const ScalarNode& output_of(ValueId map) const {
    const Formula& f = g_[map].attributes.formula;
    return f.nodes[f.outputs[0]];
  }

  bool is_masked(ValueId score) const {
    if (g_[score].op != Op::map_ || output_of(score).op != ScalarOp::select_) return false;
    const ScalarNode& hidden = g_[score].attributes.formula.nodes[output_of(score).args[2]];
    if (hidden.op == ScalarOp::constant) return hidden.real <= kVeryNegative;
    if (hidden.op != ScalarOp::input) return false;
    ValueId v = g_[score].operands[hidden.index];
    while (g_[v].op == Op::broadcast_ || g_[v].op == Op::reshape_) v = g_[v].operands[0];
    return g_[v].op == Op::constant_ && g_[v].attributes.data.size() == 1 && g_[v].attributes.data[0] <= kVeryNegative;
  }

  // Copies the inputs of a condition; false when it depends on values known only at run time.
  bool copy_known(ValueId v, Graph& to, std::map<ValueId, ValueId>& known) const {
    if (known.contains(v)) return true;
    const Node& node = g_[v];
    if (node.op == Op::input_ || node.op == Op::contract_ || !op_info(node.op).pure) return false;
    Node copy = node;
    for (ValueId& o : copy.operands) {
      if (!copy_known(o, to, known)) return false;
      o = known.at(o);
    }
    to.nodes.push_back(std::move(copy));
    known[v] = to.nodes.size() - 1;
    return true;
  }

  // The condition is evaluated for a few positions: no key after the query may be visible.
  bool is_causal(ValueId score, const Mask& mask) const {
    Formula f = g_[score].attributes.formula;
    f.outputs = {output_of(score).args[0]};
    f = simplify_formula(f);
    Graph shown;
    std::map<ValueId, ValueId> known;
    Builder build(shown);
    std::vector<ValueId> operands;
    std::vector<bool> used(f.inputs.size(), false);
    for (const ScalarNode& n : f.nodes)
      if (n.op == ScalarOp::input) used[n.index] = true;
    for (size_t i = 0; i < f.inputs.size(); ++i) {
      const ValueId o = g_[score].operands[i];
      if (!used[i]) {
        operands.push_back(build.scalar(0, f.inputs[i]));
      } else if (copy_known(o, shown, known)) {
        operands.push_back(known.at(o));
      } else {
        return false;
      }
    }
    const ValueId condition = build.map(f, operands);
    shown.results = {condition};
    shown.result_names = {"shown"};
    EvalOptions options;
    options.symbols = {{texts_.symbols[0], 1}, {length_.symbols[0], kTried}};
    const Tensor seen = eval(shown, {}, options)[0];
    // Right-aligned with the scores.
    const size_t rank = g_[score].type.shape.size(), own = seen.type.shape.size();
    if (own == 0) return false;
    const auto extent = [&](size_t axis) {
      return axis + own < rank ? 1 : seen.type.shape[axis + own - rank].number();
    };
    if (extent(rank - 1) != kTried || extent(static_cast<size_t>(mask.queries)) != kTried) return false;
    int64_t inner = 1;  // of the query's axis
    for (size_t d = static_cast<size_t>(mask.queries) + 1; d < rank; ++d) inner *= extent(d);
    for (size_t i = 0; i < seen.values.size(); ++i) {
      const int64_t key = static_cast<int64_t>(i) % kTried, query = static_cast<int64_t>(i) / inner % kTried;
      if (seen.values[i] != 0 && key > query) return false;
    }
    return true;
  }

  // Whether quotients or remainders of integers are part of a mask: it is not a condition on distances then.
  bool counts_in_groups(ValueId score) const {
    std::vector<ValueId> asked = {score};
    std::set<ValueId> seen;
    while (!asked.empty()) {
      const ValueId v = asked.back();
      asked.pop_back();
      const Node& node = g_[v];
      if (!seen.insert(v).second || (v != score && is_float(node.type.element.scalar))) continue;
      if (node.op == Op::map_)
        for (const ScalarNode& n : node.attributes.formula.nodes)
          if (!is_float(n.type) && (n.op == ScalarOp::div_ || n.op == ScalarOp::rem_)) return true;
      asked.insert(asked.end(), node.operands.begin(), node.operands.end());
    }
    return false;
  }

  // The mask with an additional condition: start of the query's sequence <= key.
  ValueId bounded(ValueId score, const Mask& mask) {
    const Shape& shape = g_[score].type.shape;
    Shape stretched(shape.size(), Dim(1));
    stretched[mask.texts] = texts_;
    stretched[mask.queries] = length_;
    std::vector<ValueId> operands = r_.operands(score);
    Formula f = g_[score].attributes.formula;
    const ScalarNode select = output_of(score);
    const auto read = [&](ValueId v) {
      operands.push_back(v);
      f.inputs.push_back(Scalar::i32);
      return f.input(f.inputs.size() - 1);
    };
    const int start = read(r_.build.reshape(starts_, stretched));
    const int key = read(r_.build.iota({{length_}, {Scalar::i32, nullptr}}, 0));
    const int shown = f.op(ScalarOp::and_, select.args[0], f.op(ScalarOp::le_, start, key));
    f.outputs = {f.op(ScalarOp::select_, shown, select.args[1], select.args[2])};
    return r_.build.map(std::move(f), std::move(operands));
  }

  // ---- everything else

  // Only attention may sum over, slice or select positions.
  void check_meeting(ValueId v) const {
    const Node& node = g_[v];
    if (inside_.contains(v) || !read_[v]) return;
    const auto meets = [&] {
      const auto& shape_of = [&](size_t k) -> const Shape& { return g_[node.operands[k]].type.shape; };
      switch (node.op) {
        case Op::contract_:
        case Op::contract_gather_:
        case Op::contract_scatter_: {
          const auto& letters = node.attributes.indices;
          const std::string& kept = letters.back();
          for (size_t k = 0; k < node.operands.size(); ++k) {
            if (node.op == Op::contract_gather_ && k == 1 && counts_positions(shape_of(1)[0])) return true;
            for (size_t d = 0; d < letters[k].size(); ++d)
              if (counts_positions(shape_of(k)[d]) && kept.find(letters[k][d]) == std::string::npos &&
                  node.op != Op::contract_gather_)
                return true;
          }
          return node.op == Op::contract_gather_ && !same_positions(node);
        }
        case Op::reduce_:
          return std::any_of(node.attributes.axes.begin(), node.attributes.axes.end(),
                             [&](int axis) { return counts_positions(shape_of(0)[axis]); });
        case Op::gather_:
          return counts_positions(shape_of(0)[0]);
        case Op::scatter_add_:
        case Op::update_:
        case Op::call_:
        case Op::scan_:
        case Op::chunk_:
        case Op::result_:
          return true;
        case Op::slice_:
        case Op::pad_:
          for (size_t d = 0; d < node.type.shape.size(); ++d)
            if (counts_positions(shape_of(0)[d]) && !(shape_of(0)[d] == node.type.shape[d])) return true;
          return false;
        case Op::windows_:
          for (size_t d = 0; d < shape_of(0).size(); ++d)
            if (counts_positions(shape_of(0)[d]) && plain_index(g_, node, d) < 0) return true;
          return false;
        case Op::concat_:
          return counts_positions(node.type.shape[node.attributes.axis]);
        default:
          return false;
      }
    };
    if (meets()) refuse(v, fmt::format("positions meet outside of attention, in a {}", op_info(node.op).name));
  }

  // Products with selected matrices: the result has as many axes of positions as the first operand.
  bool same_positions(const Node& node) const {
    const auto count = [&](const Shape& s) {
      return std::count_if(s.begin(), s.end(), [&](const Dim& d) { return counts_positions(d); });
    };
    return count(g_[node.operands[0]].type.shape) == count(node.type.shape) &&
           count(g_[node.operands[1]].type.shape) == 0;
  }

  bool reads(ValueId v, Holds what) const {
    const auto& operands = g_[v].operands;
    return std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return holds_[o] == what; });
  }
  bool reads_rows(ValueId v) const { return reads(v, Holds::rows_by_position); }
  // Whether numbers of sequences meet floats that depend on the position alone, such as a factor of queries.
  bool is_scaled(ValueId v) const {
    const auto is_factor = [&](ValueId o) {
      return holds_[o] == Holds::positions && is_float(g_[o].type.element.scalar);
    };
    return g_[v].op == Op::map_ && !inside_.contains(v) && is_of_texts(v) && is_float(g_[v].type.element.scalar) &&
           !turns(g_[v].attributes.formula) && std::ranges::any_of(g_[v].operands, is_factor);
  }
  bool is_of_texts(ValueId v) const {
    const Shape& s = g_[v].type.shape;
    return std::any_of(s.begin(), s.end(), [&](const Dim& d) {
      return std::find(d.symbols.begin(), d.symbols.end(), texts_.symbols[0]) != d.symbols.end();
    });
  }
  static bool turns(const Formula& f) {
    return std::any_of(f.nodes.begin(), f.nodes.end(),
                       [](const ScalarNode& n) { return n.op == ScalarOp::sin_ || n.op == ScalarOp::cos_; });
  }
  static bool makes_numbers_of_integers(const Formula& f) {
    return std::any_of(f.nodes.begin(), f.nodes.end(), [&](const ScalarNode& n) {
      return n.op == ScalarOp::cast_ && is_float(n.type) && !is_float(f.nodes[n.args[0]].type);
    });
  }

  // Positions may only become conditions of an attention's mask, angles of a rotation, rows of a table, and factors.
  Holds found_in(ValueId v) const {
    const Node& node = g_[v];
    if (node.op == Op::iota_)
      return counts_positions(node.type.shape[node.attributes.axis]) ? Holds::positions : Holds::nothing;
    if (reads_rows(v)) {
      if (node.op != Op::map_ || node.type.shape.empty() || reads(v, Holds::positions))
        refuse(v, "rows that are read by position go where their beginning cannot be counted from");
      return is_of_texts(v) ? Holds::nothing : Holds::rows_by_position;
    }
    if (!reads(v, Holds::positions)) return Holds::nothing;
    if (!read_[v] && !has_positions(node.type.shape)) return Holds::nothing;  // the length of the row
    const bool is_integer = !is_float(node.type.element.scalar);
    if (inside_.contains(v) && node.op == Op::map_) {
      const bool are_integers = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
        return holds_[o] == Holds::nothing || !is_float(g_[o].type.element.scalar);
      });
      if (are_integers && !makes_numbers_of_integers(node.attributes.formula)) return Holds::nothing;
      refuse(v, "scores depend on numbers of positions");
    }
    switch (node.op) {
      case Op::map_:
        return turns(node.attributes.formula) || is_scaled(v) ? Holds::nothing : Holds::positions;
      case Op::reshape_:
      case Op::permute_:
      case Op::broadcast_:
      case Op::slice_:
      case Op::windows_:
        return Holds::positions;
      case Op::cast_:
        if (!is_integer || !node.type.element.format) return Holds::positions;
        break;
      case Op::gather_:
        if (holds_[node.operands[0]] == Holds::nothing) return Holds::rows_by_position;
        break;
      default:
        break;
    }
    refuse(v, fmt::format("numbers of positions go into a {}", op_info(node.op).name));
  }

  // ---- rows of a table that are gathered by position: [T, ..] become [B, T, ..]

  ValueId with_own_rows(ValueId v) {
    std::vector<ValueId> operands = r_.operands(v);
    for (size_t k = 0; k < operands.size(); ++k) {
      const ValueId o = g_[v].operands[k];
      if (holds_[o] == Holds::nothing) continue;
      operands[k] = of_each_text(o);
      const Shape& own = r_.build.type(operands[k]).shape;
      const Shape& whole = g_[v].type.shape;
      const auto fits = [](const Dim& a, const Dim& b) { return a == b || a == Dim(1); };
      if (own.size() > whole.size() || !std::equal(own.rbegin(), own.rend(), whole.rbegin(), fits))
        refuse(v, "rows that are read by position are not laid out as the sequences are");
    }
    return r_.build.map(g_[v].attributes.formula, std::move(operands));
  }

  // One number for each position; other axes have size 1.
  bool is_column(const Shape& s) const {
    return !s.empty() && s[0] == length_ &&
           std::all_of(s.begin() + 1, s.end(), [](const Dim& d) { return d == Dim(1); });
  }

  ValueId of_each_text(ValueId v) {
    if (const auto known = of_each_text_.find(v); known != of_each_text_.end()) return known->second;
    const Node& node = g_[v];
    const auto lifted = [&](ValueId o) { return holds_[o] == Holds::nothing ? r_[o] : of_each_text(o); };
    ValueId now = -1;
    if (node.op == Op::iota_ && node.type.shape == Shape{length_} && node.type.element.scalar == Scalar::i32) {
      now = r_.build.sub(r_.build.iota(type_, 1), starts_);
    } else if (node.op == Op::map_ && node.type.shape.size() <= 2) {
      std::vector<ValueId> operands;
      for (const ValueId o : node.operands) operands.push_back(lifted(o));
      now = r_.build.map(node.attributes.formula, std::move(operands));
    } else if (node.op == Op::reshape_ && is_column(g_[node.operands[0]].type.shape) && is_column(node.type.shape)) {
      Shape each = node.type.shape;
      each.insert(each.begin(), texts_);
      now = r_.build.reshape(lifted(node.operands[0]), each);
    } else if (node.op == Op::gather_) {
      now = r_.build.gather(lifted(node.operands[0]), lifted(node.operands[1]));
    } else {
      refuse(v, fmt::format("rows are read by position through a {}", op_info(node.op).name));
    }
    return of_each_text_[v] = now;
  }

  const Graph& g_;
  Rewriter r_;
  std::vector<bool> live_;
  std::string name_;
  Dim texts_, length_;
  Type type_;  // of tokens and starts
  ValueId starts_ = -1;
  std::map<ValueId, Mask> masks_;
  std::set<ValueId> inside_;  // of attention
  std::vector<Holds> holds_;
  std::vector<bool> read_;  // by value: depends on an input
  std::map<ValueId, ValueId> of_each_text_;
};

}  // namespace

void keep_texts_apart(Graph& g, const std::string& tokens) {
  Graph plain = g;  // simplification removes slices of rotated numbers that are concatenated again
  simplify(plain);
  Separator(plain, tokens).check_rotations();
  g = Separator(g, tokens).run();
}

}  // namespace lumen::graph
