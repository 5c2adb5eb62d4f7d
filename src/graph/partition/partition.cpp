// Every value of the whole graph has forms in a rank's graph: its native one (replicated, split, a partial sum), and
// those that its readers request, each created once. A partial sum is all-reduced at its first use that is not linear
// or not its only one; a split value is gathered only where an operator cannot work on parts.
#include "graph/partition/partition.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/partition/linear.h"
#include "graph/partition/rank_values.h"

namespace lumen::graph {

namespace {

constexpr uint32_t kRankSalt = 0x9e3779b1;  // gives each rank's part different random numbers

enum class How : uint8_t { replicated, split, partial };

struct Forms {
  How how = How::replicated;
  Split split;
  ValueId native = -1, whole = -1;
  std::vector<std::pair<Split, ValueId>> parts;  // slices of the whole
};

class Partitioner {
 public:
  Partitioner(const Graph& g, const TensorSplit& partition,
              const std::function<bool(const std::string&)>& stays_partial)
      : g_(g),
        partition_(partition),
        stays_partial_(stays_partial),
        build_(to_),
        values_(to_, build_, partition.ranks),
        forms_(g.nodes.size()),
        readers_(g.nodes.size()) {
    to_.name = g.name;
    if (partition.sequence) find_tokens();
    for (const Node& node : g.nodes)
      for (const ValueId o : std::set<ValueId>(node.operands.begin(), node.operands.end())) ++readers_[o];
    for (size_t i = 0; i < g.results.size(); ++i)
      if (!stays_partial || !stays_partial(g.result_names[i])) ++readers_[g.results[i]];
  }

  Graph run() {
    live_ = live_values(g_);
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (!live_[v] && g_[v].op != Op::input_) continue;
      if (axis_ && !is_backward_ && v > loss_) forget_gathered();
      const ValueId before = to_.nodes.size();
      visit(v);
      if (!g_[v].label.empty())
        for (ValueId n = before; n < std::ssize(to_.nodes); ++n)
          if (to_[n].label.empty() && to_[n].op != Op::input_) to_[n].label = g_[v].label;
    }
    for (size_t i = 0; i < g_.results.size(); ++i) {
      to_.results.push_back(result(g_.results[i], g_.result_names[i]));
      to_.result_names.push_back(g_.result_names[i]);
    }
    return pruned();
  }

  Exchanged exchanged() const { return values_.exchanged(); }

 private:
  const Shape& shape(ValueId old) const { return g_[old].type.shape; }
  int rank(ValueId old) const { return shape(old).size(); }
  int ranks() const { return partition_.ranks; }
  Shape local(ValueId old, const Split& split) const { return local_shape(shape(old), split, ranks()); }

  // --- forms
  void set(ValueId v, How how, ValueId native, Split split = {}) {
    Forms& f = forms_[v];
    f.how = how;
    f.native = native;
    f.split = std::move(split);
    if (how == How::replicated) f.whole = native;
  }

  ValueId whole(ValueId v) {
    if (is_partial(v))
      if (const std::optional<Split> split = along_tokens(v)) scatter(v, *split);
    Forms& f = forms_[v];
    LUMEN_CHECK(f.native >= 0, "%{} has no value yet", v);
    if (f.whole < 0) {
      const ValueId made = f.how == How::partial ? values_.all_reduce(f.native, ScalarOp::add_)
                                                 : values_.gathered(f.native, f.split, is_backward_);
      forms_[v].whole = made;
    }
    return forms_[v].whole;
  }

  bool is_partial(ValueId v) const { return forms_[v].how == How::partial && forms_[v].whole < 0; }
  bool is_split(ValueId v) const { return forms_[v].how == How::split; }

  ValueId part(ValueId v, const Split& split) {
    if (is_partial(v) && split == along_tokens(v)) scatter(v, split);
    const Forms& f = forms_[v];
    if (f.how == How::split && f.split == split) return f.native;
    for (const auto& [known, value] : f.parts)
      if (known == split) return value;
    const bool is_plain = f.how == How::replicated;
    const ValueId made = is_plain ? part_of_replicated(v, split) : values_.taken(whole(v), split);
    forms_[v].parts.emplace_back(split, made);
    return made;
  }

  // --- sequence parallelism
  void find_tokens() {
    for (const ValueId v : g_.inputs()) {
      const bool is_data = g_[v].attributes.role == Role::data && !is_float(g_[v].type.element.scalar);
      if (is_data && !shape(v).empty() && shape(v).size() > tokens_.size() && shape(v).size() <= 2) tokens_ = shape(v);
    }
    axis_ = tokens_axis(tokens_, ranks());
    for (size_t i = 0; i < g_.results.size(); ++i)
      if (g_.result_names[i] == "loss") loss_ = g_.results[i];
  }

  // The number of leading axes of a value that are the token axes, if it has several numbers for each token.
  int axes_of_tokens(ValueId v) const {
    const Shape& own = shape(v);
    if (!axis_ || own.size() < 2 || elements(own).number() <= elements(tokens_).number()) return 0;
    if (own.size() > tokens_.size() && std::equal(tokens_.begin(), tokens_.end(), own.begin())) return tokens_.size();
    // All sequences joined into one axis: valid if chunks consist of whole sequences, or there is only one sequence.
    const bool is_joined = *axis_ == 0 || tokens_[0] == Dim(1);
    return is_joined && own[0] == elements(tokens_) ? 1 : 0;
  }
  std::optional<Split> along_tokens(ValueId v) const {
    const int axes = axes_of_tokens(v);
    if (axes == 0) return std::nullopt;
    return whole_axis(shape(v), std::min(axes - 1, *axis_));
  }
  bool is_along_tokens(ValueId v) const { return is_split(v) && forms_[v].split.axis < axes_of_tokens(v); }

  void scatter(ValueId v, const Split& split) {
    Forms& f = forms_[v];
    f.native = values_.scattered_sum(f.native, split);
    f.how = How::split;
    f.split = split;
  }

  // Reduce-scatters operands that are partial sums along tokens, unless v is a product; true if there are any.
  bool scatter_operands(ValueId v) {
    const Op op = g_[v].op;
    if (!axis_ || op == Op::contract_ || op == Op::contract_gather_ || op == Op::contract_scatter_) return false;
    bool any = false;
    for (const ValueId o : g_[v].operands) {
      const std::optional<Split> split = is_partial(o) ? along_tokens(o) : std::nullopt;
      if (!split) continue;
      scatter(o, *split);
      any = true;
    }
    return any;
  }

  // Gathered values that the backward pass reads are gathered again rather than kept.
  void forget_gathered() {
    is_backward_ = true;
    for (Forms& f : forms_)
      if (f.how == How::split) f.whole = -1;
  }

  // --- parts of replicated values
  // Computed in parts where that is cheap, else sliced from the whole.
  ValueId part_of_replicated(ValueId v, const Split& split) {
    const Node& node = g_[v];
    switch (node.op) {
      case Op::constant_:
        if (is_splat(node)) return build_.constant({local(v, split), node.type.element}, node.attributes.data);
        break;
      case Op::iota_:
        return part_of_iota(v, split);
      case Op::random_: {
        const ValueId seed = whole(node.operands[0]);
        const ValueId salt =
            build_.mul(build_.convert(values_.place(), Scalar::u32), build_.scalar(kRankSalt, Scalar::u32));
        return build_.random(build_.binary(ScalarOp::xor_, seed, salt), node.attributes.salt, local(v, split));
      }
      case Op::scatter_add_:
        if (split.axis == 0 && split.sections.size() == 1) return rows_of_scatter(v, split);
        break;
      case Op::map_:
        if (readers_[v] > 0 && taken_for(v) < 2 * count(v)) return map_in_parts(v, split);
        break;
      case Op::broadcast_: {
        const ValueId a = node.operands[0];
        return build_.broadcast(stretched_part(a, split, rank(v) - rank(a)), local(v, split));
      }
      default:
        break;
    }
    return values_.taken(whole(v), split);
  }

  double count(ValueId v) const { return 1.0 * elements(shape(v)).number(); }
  // Numbers of other values that are sliced when a map is computed in parts: a sum over all layers is sliced itself,
  // rather than each of its terms, which would be kept until then.
  double taken_for(ValueId v) {
    double sum = 0;
    for (const ValueId o : g_[v].operands) sum += taken(o);
    return sum;
  }
  double taken(ValueId v) {
    const Node& node = g_[v];
    if (is_split(v) || is_splat(node) || node.op == Op::iota_ || node.op == Op::random_) return 0;
    if (node.op == Op::broadcast_) return taken(node.operands[0]);
    if (node.op != Op::map_ || is_partial(v) || readers_[v] == 0) return count(v);
    const auto [known, is_new] = taken_.try_emplace(v, count(v));
    if (is_new) taken_[v] = std::min(count(v), taken_for(v));
    return taken_[v];
  }

  ValueId part_of_iota(ValueId v, const Split& split) {
    const Node& node = g_[v];
    const Type type{local(v, split), node.type.element};
    if (node.attributes.axis != split.axis) return build_.iota(type, node.attributes.axis);
    if (split.sections.size() > 1) return values_.taken(whole(v), split);
    const ValueId first = values_.scaled_place(split.sections[0] / ranks());
    return build_.add(build_.iota(type, split.axis), build_.convert(first, node.type.element.scalar));
  }

  // The index of a row within this rank's rows, clamped to the range, and whether the row is in it.
  std::pair<ValueId, ValueId> own_rows(ValueId index, const Split& split) {
    const Scalar type = build_.type(index).element.scalar;
    const int64_t rows = split.sections[0] / ranks();
    const ValueId own = build_.sub(build_.convert(index, Scalar::i32), values_.scaled_place(rows));
    const ValueId zero = build_.scalar(0, Scalar::i32), last = build_.scalar(rows - 1, Scalar::i32);
    const ValueId inside =
        build_.binary(ScalarOp::and_, build_.binary(ScalarOp::le_, zero, own), build_.binary(ScalarOp::le_, own, last));
    const ValueId near = build_.binary(ScalarOp::min_, build_.binary(ScalarOp::max_, own, zero), last);
    return {build_.convert(near, type), inside};
  }

  // `value` (with the leading axes of the index) where its rows belong to this rank, else zeros.
  ValueId where_inside(ValueId value, ValueId inside) {
    Shape like = build_.type(inside).shape;
    like.resize(build_.type(value).shape.size(), Dim(1));
    const ValueId zero = build_.scalar(0, build_.type(value).element.scalar);
    return build_.select(build_.reshape(inside, like), value, zero);
  }

  ValueId rows_of_scatter(ValueId v, const Split& split) {
    const auto [index, inside] = own_rows(whole(g_[v].operands[1]), split);
    const ValueId value = where_inside(whole(g_[v].operands[0]), inside);
    return build_.scatter_add(value, index, Dim(split.sections[0] / ranks()));
  }

  // --- operators
  // An operand that broadcasts to a split result: its part, or all of it if it does not have the split axis.
  ValueId stretched_part(ValueId operand, const Split& split, int shift) {
    const int axis = split.axis - shift;
    if (axis < 0 || shape(operand).at(axis) == Dim(1)) return whole(operand);
    return part(operand, {axis, split.sections});
  }

  ValueId map_in_parts(ValueId v, const Split& split) {
    const Node& node = g_[v];
    std::vector<ValueId> operands;
    for (const ValueId o : node.operands) operands.push_back(stretched_part(o, split, rank(v) - rank(o)));
    const ValueId out = build_.map(node.attributes.formula, operands);
    const Shape own = local(v, split);
    return build_.type(out).shape == own ? out : build_.broadcast(out, own);
  }

  // A copy of the node with the given operands and shape.
  ValueId copy(ValueId v, std::vector<ValueId> operands, Shape own) {
    Node node = g_[v];
    node.operands = std::move(operands);
    node.type.shape = std::move(own);
    const std::string wrong = check_type(to_, node);
    LUMEN_CHECK(wrong.empty(), "a part of %{}: {}", v, wrong);
    to_.nodes.push_back(std::move(node));
    return to_.nodes.size() - 1;
  }

  void keep_whole(ValueId v) {
    if (scatter_operands(v)) return visit(v);
    std::vector<ValueId> operands;
    for (const ValueId o : g_[v].operands) operands.push_back(whole(o));
    set(v, How::replicated, copy(v, std::move(operands), shape(v)));
  }

  void visit(ValueId v) {
    const Node& node = g_[v];
    switch (node.op) {
      case Op::input_:
        return input(v);
      case Op::map_:
        return map(v);
      case Op::cast_:
        return cast(v);
      case Op::contract_:
      case Op::contract_gather_:
      case Op::contract_scatter_:
        return contract(v);
      case Op::reduce_:
        return reduce(v);
      case Op::gather_:
        return gather(v);
      case Op::scatter_add_:
        return scatter_add(v);
      case Op::reshape_:
      case Op::permute_:
      case Op::broadcast_:
      case Op::slice_:
      case Op::windows_:
      case Op::pad_:
        return view(v);
      case Op::concat_:
        return concat(v);
      case Op::update_:
        return update(v);
      case Op::call_:
        LUMEN_UNREACHABLE("a partition of a graph with calls");
      default:
        return keep_whole(v);
    }
  }

  void input(ValueId v) {
    const auto found = partition_.inputs.find(g_[v].attributes.name);
    if (found == partition_.inputs.end()) return keep_whole(v);
    if (const FormatRef& f = g_[v].type.element.format) check_blocks(v, *f, found->second);
    set(v, How::split, copy(v, {}, local(v, found->second)), found->second);
  }

  // The split that a map's result inherits from its operands, which align at the right; null: none is split.
  const Forms* split_among(ValueId v, int* shift) const {
    for (const ValueId o : g_[v].operands) {
      if (!is_split(o)) continue;
      *shift = rank(v) - rank(o);
      return &forms_[o];
    }
    return nullptr;
  }

  void map(ValueId v) {
    const Node& node = g_[v];
    int shift = 0;
    if (const Forms* f = split_among(v, &shift)) {
      const Split split{f->split.axis + shift, f->split.sections};
      const ValueId out = map_in_parts(v, split);
      return set(v, How::split, out, split);
    }
    if (std::none_of(node.operands.begin(), node.operands.end(), [&](ValueId o) { return is_partial(o); }))
      return keep_whole(v);
    if (!stays_linear(v)) return keep_whole(v);
    std::vector<ValueId> operands;
    std::vector<bool> linear;
    for (const ValueId o : node.operands) {
      linear.push_back(is_partial(o));
      operands.push_back(is_partial(o) ? forms_[o].native : whole(o));
    }
    if (is_linear(node.attributes.formula, linear)) return set(v, How::partial, copy(v, std::move(operands), shape(v)));
    // A number added to partial sums becomes a partial sum itself if only the first rank keeps it and the others use 0.
    for (size_t i = 0; i < operands.size(); ++i)
      if (!linear[i]) operands[i] = build_.select(values_.is_first(), operands[i], zero_like(operands[i]));
    if (node.type.shape.empty() && is_linear(node.attributes.formula, std::vector<bool>(operands.size(), true)))
      return set(v, How::partial, copy(v, std::move(operands), shape(v)));
    keep_whole(v);
  }
  ValueId zero_like(ValueId now) { return build_.scalar(0, build_.type(now).element.scalar); }

  // Whether the reduction of all partial sums that a node reads may move after it: they have no other reader, and the
  // node does not enlarge them.
  bool stays_linear(ValueId v) const {
    return std::all_of(g_[v].operands.begin(), g_[v].operands.end(), [&](ValueId o) {
      return !is_partial(o) || (readers_[o] <= 1 && elements(shape(o)).number() >= elements(shape(v)).number() &&
                                is_float(g_[v].type.element.scalar) && !g_[v].type.element.format);
    });
  }

  void cast(ValueId v) {
    const Node& node = g_[v];
    const ValueId a = node.operands[0];
    if (!is_split(a)) return keep_whole(v);
    const Split split = forms_[a].split;
    const FormatRef& f = node.type.element.format;
    if (f) check_blocks(v, *f, split);
    std::vector<ValueId> operands = {forms_[a].native};
    for (size_t i = 1; i < node.operands.size(); ++i) operands.push_back(whole(node.operands[i]));
    if (f && node.operands.size() > 1)
      throw user_error("%{}: fields of {} are given for a matrix that ranks split", v, f->name);
    set(v, How::split, copy(v, std::move(operands), local(v, split)), split);
  }

  void check_blocks(ValueId v, const Format& f, const Split& split) const {
    const bool in_rows = split.axis + 1 < std::ssize(shape(v));
    const bool crosses = std::any_of(split.sections.begin(), split.sections.end(),
                                     [&](int64_t s) { return s / ranks() % f.block != 0; });
    if (in_rows ? f.tile_bytes == 0 && f.tensor_bytes == 0
                : f.row_bytes == 0 && f.tile_bytes == 0 && f.tensor_bytes == 0 && !crosses)
      return;
    throw Error(Exit::usage,
                fmt::format("{} of {} numbers cannot be held in {} in {} parts{}", in_rows ? "rows" : "a row",
                            shape(v)[split.axis].number(), f.name, ranks(),
                            g_[v].label.empty() ? "" : fmt::format(" (in {})", g_[v].label)),
                "formats with independent blocks that divide the parts can");
  }

  void contract(ValueId v) {
    const Node& node = g_[v];
    const std::vector<std::string>& letters = node.attributes.indices;
    const std::string& result = letters.back();
    const bool picks = node.op == Op::contract_gather_, scatters = node.op == Op::contract_scatter_;
    // The split to follow: that of the largest operand, unless it splits the axis that an index selects from.
    int leader = -1;
    for (int i = 0; i < 2; ++i) {
      const ValueId o = node.operands[i];
      if (!is_split(o) || (picks && i == 1 && forms_[o].split.axis == 0)) continue;
      if (leader < 0 || elements(shape(o)).number() > elements(shape(node.operands[leader])).number()) leader = i;
    }
    if (leader < 0) {
      if (!scatters && contract_partial(v)) return;
      return keep_whole(v);
    }
    // Tokens are gathered for a split weight, rather than weights for tokens.
    for (int i = 0; i < 2 && axis_; ++i)
      if (is_along_tokens(node.operands[i]) && is_split(node.operands[1 - i]) &&
          !is_along_tokens(node.operands[1 - i]) && !(picks && i == 0 && forms_[node.operands[1]].split.axis == 0))
        leader = 1 - i;
    const Split led = forms_[node.operands[leader]].split;
    const char letter = letters[leader][led.axis];
    std::vector<ValueId> operands;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const int at = place_of(letter, letters[i]);
      const bool has = at >= 0 && !(picks && i == 1 && at == 0);
      operands.push_back(has ? part(node.operands[i], {at, led.sections}) : whole(node.operands[i]));
    }
    const int out = place_of(letter, result);
    if (out >= 0 && !(scatters && out == 0)) {
      const Split split{out, led.sections};
      return set(v, How::split, copy(v, std::move(operands), local(v, split)), split);
    }
    set(v, How::partial, copy(v, std::move(operands), shape(v)));
  }

  // -1: it is not in `letters`.
  static int place_of(char letter, const std::string& letters) {
    const size_t at = letters.find(letter);
    return at == std::string::npos ? -1 : at;
  }

  // A partial sum times a replicated value, if the sum has no other reader and the result is not larger.
  bool contract_partial(ValueId v) {
    const ValueId a = g_[v].operands[0], b = g_[v].operands[1];
    if (is_partial(a) == is_partial(b) || !stays_linear(v)) return false;
    std::vector<ValueId> operands;
    for (const ValueId o : g_[v].operands) operands.push_back(is_partial(o) ? forms_[o].native : whole(o));
    set(v, How::partial, copy(v, std::move(operands), shape(v)));
    return true;
  }

  void reduce(ValueId v) {
    const Node& node = g_[v];
    const ValueId a = node.operands[0];
    const bool sums = node.attributes.reduction == Reduction::sum;
    if (is_partial(a) && sums && stays_linear(v)) return set(v, How::partial, copy(v, {forms_[a].native}, shape(v)));
    if (!is_split(a)) return keep_whole(v);
    const Split split = forms_[a].split;
    const std::vector<int>& axes = node.attributes.axes;
    if (std::find(axes.begin(), axes.end(), split.axis) == axes.end())
      return set(v, How::split, copy(v, {forms_[a].native}, local(v, split)), split);
    const ValueId own = copy(v, {forms_[a].native}, shape(v));
    if (sums) return set(v, How::partial, own);
    set(v, How::replicated,
        values_.all_reduce(own, node.attributes.reduction == Reduction::max ? ScalarOp::max_ : ScalarOp::min_));
  }

  void gather(ValueId v) {
    const Node& node = g_[v];
    const ValueId table = node.operands[0], index = node.operands[1];
    const int rows = rank(index);
    if (is_split(index)) {
      const Split split = forms_[index].split;
      return set(v, How::split, copy(v, {whole(table), forms_[index].native}, local(v, split)), split);
    }
    if (!is_split(table)) return keep_whole(v);
    const Split of_table = forms_[table].split;
    if (of_table.axis > 0) {
      const Split split{rows + of_table.axis - 1, of_table.sections};
      return set(v, How::split, copy(v, {forms_[table].native, whole(index)}, local(v, split)), split);
    }
    if (of_table.sections.size() > 1) return keep_whole(v);
    const auto [row, inside] = own_rows(whole(index), of_table);
    set(v, How::partial, where_inside(build_.gather(forms_[table].native, row), inside));
  }

  void scatter_add(ValueId v) {
    const Node& node = g_[v];
    const ValueId value = node.operands[0], index = node.operands[1];
    const int rows = rank(index);
    if (!is_split(value)) return keep_whole(v);
    // Exchange the smaller of the two: values of tokens, or a table.
    if (is_along_tokens(value) && elements(shape(value)).number() < 2 * elements(shape(v)).number())
      return keep_whole(v);
    const Split split = forms_[value].split;
    if (split.axis < rows) return set(v, How::partial, copy(v, {forms_[value].native, part(index, split)}, shape(v)));
    const Split out{split.axis - rows + 1, split.sections};
    set(v, How::split, copy(v, {forms_[value].native, whole(index)}, local(v, out)), out);
  }

  void view(ValueId v) {
    const ValueId a = g_[v].operands[0];
    if (is_partial(a) && stays_linear(v)) return set(v, How::partial, copy(v, {forms_[a].native}, shape(v)));
    if (!is_split(a)) return keep_whole(v);
    const Split split = forms_[a].split;
    if (g_[v].op == Op::slice_ || g_[v].op == Op::pad_) return window(v, split);
    const std::optional<Split> out = view_of(v, split);
    if (!out) return keep_whole(v);
    set(v, How::split, copy(v, {forms_[a].native}, local(v, *out)), *out);
  }

  std::optional<Split> view_of(ValueId v, const Split& split) const {
    const Node& node = g_[v];
    const Shape& from = shape(node.operands[0]);
    if (node.op == Op::permute_) {
      const std::vector<int>& axes = node.attributes.axes;
      const int axis = std::find(axes.begin(), axes.end(), split.axis) - axes.begin();
      return Split{axis, split.sections};
    }
    if (node.op == Op::windows_) {
      const int index = plain_index(g_, node, split.axis);
      if (index < 0) return std::nullopt;
      return Split{index, split.sections};
    }
    if (node.op == Op::broadcast_) return Split{split.axis + rank(v) - rank(node.operands[0]), split.sections};
    const auto reshaped = through_reshape(from, split, node.type.shape, ranks());
    if (!reshaped || !reshaped->divides) return std::nullopt;
    return reshaped->split;
  }

  // A slice of whole sections, or a pad around them.
  void window(ValueId v, const Split& split) {
    Node node = g_[v];
    const ValueId a = node.operands[0];
    const bool slices = node.op == Op::slice_;
    const Shape& large = slices ? shape(a) : shape(v);
    const Shape& small = slices ? shape(v) : shape(a);
    const int axis = split.axis;
    const int64_t start = node.attributes.starts[axis], count = small[axis].number(), all = large[axis].number();
    const int64_t rest = all - start - count;
    const bool dense = node.attributes.strides.empty() || node.attributes.strides[axis] == 1;
    Split out{axis, split.sections};
    bool fits = (start == 0 && rest == 0) || dense;
    if (fits && slices && count != all) {
      const auto inside = sections_in(split.sections, start, count);
      fits = inside.has_value();
      if (fits) out.sections = *inside;
    } else if (fits && count != all) {
      fits = start % ranks() == 0 && rest % ranks() == 0;
      if (start > 0) out.sections.insert(out.sections.begin(), start);
      if (rest > 0) out.sections.push_back(rest);
    }
    if (!fits) return keep_whole(v);
    node.attributes.starts[axis] = start / ranks();
    node.operands = {forms_[a].native};
    node.type.shape = local(v, out);
    const std::string wrong = check_type(to_, node);
    LUMEN_CHECK(wrong.empty(), "a part of %{}: {}", v, wrong);
    to_.nodes.push_back(std::move(node));
    set(v, How::split, to_.nodes.size() - 1, out);
  }

  void concat(ValueId v) {
    const Node& node = g_[v];
    int shift = 0;
    const Forms* first = split_among(v, &shift);
    if (!first) return keep_whole(v);
    const Split led = first->split;
    std::vector<ValueId> operands;
    if (led.axis != node.attributes.axis) {
      for (const ValueId o : node.operands) operands.push_back(part(o, led));
      return set(v, How::split, copy(v, std::move(operands), local(v, led)), led);
    }
    Split out{led.axis, {}};
    for (const ValueId o : node.operands) {
      const bool same = is_split(o) && forms_[o].split.axis == led.axis;
      const Split own = same ? forms_[o].split : whole_axis(shape(o), led.axis);
      if (!deals(own, ranks())) return keep_whole(v);
      out.sections.insert(out.sections.end(), own.sections.begin(), own.sections.end());
    }
    for (const ValueId o : node.operands) {
      const bool same = is_split(o) && forms_[o].split.axis == led.axis;
      operands.push_back(same ? forms_[o].native : part(o, whole_axis(shape(o), led.axis)));
    }
    set(v, How::split, copy(v, std::move(operands), local(v, out)), out);
  }

  void update(ValueId v) {
    const Node& node = g_[v];
    const ValueId state = node.operands[0];
    if (!is_split(state)) return keep_whole(v);
    if (node.operands.size() > 2)
      throw user_error("%{}: ranks have parts of a tensor that is updated at some places", v);
    const Split split = forms_[state].split;
    const ValueId value = part(node.operands[1], split);
    set(v, How::split, build_.update(forms_[state].native, value), split);
  }

  ValueId result(ValueId v, const std::string& name) {
    const auto split = partition_.inputs.find(name);
    if (split != partition_.inputs.end()) return part(v, split->second);
    if (is_split(v) && g_[v].op == Op::update_) return forms_[v].native;
    if (stays_partial_ && stays_partial_(name) && is_partial(v)) return forms_[v].native;
    return whole(v);
  }

  // Removes values without readers; inputs stay.
  Graph pruned() {
    Rewriter r(to_);
    const std::vector<bool> live = live_values(to_);
    for (ValueId v = 0; v < std::ssize(to_.nodes); ++v)
      if (live[v]) r.keep(v);
    return r.finish();
  }

  const Graph& g_;
  const TensorSplit& partition_;
  const std::function<bool(const std::string&)>& stays_partial_;
  Graph to_;
  Builder build_;
  RankValues values_;
  std::vector<Forms> forms_;
  std::map<ValueId, double> taken_;  // by value: cached results of taken()
  std::vector<int> readers_;         // nodes, and results that must be whole
  std::vector<bool> live_;
  Shape tokens_;             // the shape of token data
  std::optional<int> axis_;  // the token axis along which sums are scattered; none: sums are known to every rank
  ValueId loss_ = std::numeric_limits<ValueId>::max();
  bool is_backward_ = false;  // after the loss
};

}  // namespace

std::optional<int> tokens_axis(const Shape& tokens, int ranks) {
  for (size_t d = 0; d < tokens.size(); ++d)
    if (tokens[d].number() % ranks == 0) return d;
  return std::nullopt;
}

Graph partitioned(const Graph& g, const TensorSplit& partition,
                  const std::function<bool(const std::string& result)>& stays_partial, Exchanged* exchanged) {
  for (const ValueId v : g.inputs()) {
    const auto found = partition.inputs.find(g[v].attributes.name);
    if (found != partition.inputs.end() && !deals(found->second, partition.ranks))
      throw Error(Exit::usage, fmt::format("{} ranks do not divide {} of '{}'", partition.ranks,
                                           g[v].type.shape[found->second.axis].number(), found->first));
  }
  Partitioner p(g, partition, stays_partial);
  Graph out = p.run();
  if (exchanged) *exchanged = p.exchanged();
  return out;
}

}  // namespace lumen::graph
