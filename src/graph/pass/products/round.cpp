// round_products: mixed precision. Operands of products with parameters, forward and backward, are rounded to a short
// float; sums, all values between products, and the parameters themselves are unchanged. Such products have no batch
// letter (one that both operands and the result share), and not two parameters as operands: a value computed from
// parameters alone, like the sum of a weight and an adapter, is as in files. A value is rounded once, below its views,
// however many products read it. Products whose rows select matrices are included. Of attentions, queries, keys, values
// and gradients of the outputs are rounded, too; values of the scores' shape are internal to attention and unchanged.
// The result of such a product of data and parameters (with its bias or factor) is rounded, too, if it must be kept: if
// several maps or products read it. That halves the memory between forward and backward, and gives exactly the rounding
// of another product that reads it. Gradients of parameters (both operands are data) and values that reductions read
// stay f32. Operands of products may be cast through formats instead (operand_formats.h). Proved by
// tests/graph/round_test.cpp.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/ordinal.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/learned_scales.h"
#include "graph/pass/operand_formats.h"
#include "graph/pass/pass.h"
#include "graph/pass/products/products.h"
#include "graph/pass/products/supplies.h"
#include "number/facts/facts.h"

namespace lumen::graph {

namespace {

class Rounder : Products {
 public:
  // `around`, `supplies`: for a scan's body, its context, and the source of its additional inputs.
  Rounder(const Graph& g, const ProductType& to, Learning* learning = nullptr, const Around* around = nullptr,
          Supplies* supplies = nullptr, const Dim& steps = 1)
      : Products(g, to, around),
        r_(g),
        supplies_(supplies ? Supplies(r_.build, supplies, steps) : Supplies(r_.build)),
        to_(to.scalar),
        learning_(learning),
        most_decoded_(to.most_decoded),
        rounded_(g.nodes.size(), -1),
        encoder_(r_, [this](const std::string& seed, const Shape& shape) { return supplies_.drawn(seed, shape); }) {}

  Graph run() {
    if (around_)  // inputs that are added come last
      for (const ValueId v : r_.from.inputs()) r_.keep(v);
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const Node& node = r_.from[v];
      if (node.op == Op::input_ && around_) continue;
      const auto made = node.op == Op::input_ ? made_.find(node.attributes.name) : made_.end();
      if (made != made_.end())
        r_.replace(v, made->second);
      else if (node.op == Op::scan_)
        round_scan(v);
      else if (is_rounded_product(v))
        replace(v);
      else if (attends(v))
        replace_attended(v);
      else if (is_view(node.op) && is_kept_short(node.operands[0]))
        keep_short_view(v);
      else if (node.op == Op::map_ &&
               std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId o) { return is_kept_short(o); }))
        lengthen_operands(v);
      else
        r_.keep(v);
      // Values between two products of a step are not kept.
      if (to_ != Scalar::f32 && !around_ && is_activation(v) && is_kept(v)) keep_short(v);
    }
    return r_.finish();
  }

 private:
  // The body is rounded like this graph, with the roles of its inputs (parameters, gradients) set from outside.
  void round_scan(ValueId v) {
    const Node node = r_.from[v];
    Graph body = *node.attributes.callee;
    const std::vector<ValueId> inputs = body.inputs();
    const int carries = node.attributes.carries;
    const bool is_forward = forward_.empty() || forward_[v];
    Around around{std::vector<bool>(body.nodes.size()), trains_, [&](ValueId input, const std::string& weight) {
                    const int i = std::find(inputs.begin(), inputs.end(), input) - inputs.begin();
                    return known_largest(node.operands[i], weight);
                  }};
    for (int i = 0; i < std::ssize(inputs); ++i) {
      const ValueId o = node.operands[i];
      if (i < carries || data_[o]) {
        around.gradients[inputs[i]] = !is_forward && (i < carries || !forward_[o]);
        continue;
      }
      body[inputs[i]].attributes.role = Role::parameter;
      body[inputs[i]].attributes.name = parameter_of(o);
    }
    Rounder inner(body, type_, learning_, &around, &supplies_, r_.to[r_[node.operands[carries]]].type.shape[0]);
    Graph rounded = inner.run();
    for (size_t i = 0; i < inputs.size(); ++i)
      rounded[inner.r_[inputs[i]]].attributes = (*node.attributes.callee)[inputs[i]].attributes;
    r_.replace(v, inner.supplies_.scan(std::move(rounded), r_.operands(v), node));
    // Facts about a value of the steps hold for all of them.
    const auto know = [&](ValueId out, int k) {
      const ValueId value = below_order(body, body.results[k]);
      if (const auto owner = inner.owner_.find(value); owner != inner.owner_.end())
        owner_.try_emplace(out, owner->second);
      if (const auto largest = inner.largest_.find(value); largest != inner.largest_.end() && inner.data_[value])
        largest_.try_emplace(out, inner.supplies_.outside(largest->second));
    };
    know(v, 0);
    for (const ValueId u : users_[v])
      if (u >= 0 && r_.from[u].op == Op::result_) know(u, r_.from[u].attributes.index);
  }

  // A product of data and parameters, or one of data that such a product reads (an attention's output), or a map of
  // such values that are not kept themselves, and of smaller values.
  bool is_activation(ValueId v) const {
    const Node& node = r_.from[v];
    if (is_rounded_product(v)) return takes_parameter(v);
    if (node.op == Op::contract_) return is_f32(v) && feeds_product(v);
    if (node.op != Op::map_ || !is_f32(v)) return false;
    int whole = 0;
    for (ValueId o : node.operands) {
      if (r_.from[o].type.shape != node.type.shape || is_splat(r_.from[o])) continue;
      whole += 1;
      while (is_view(r_.from[o].op)) o = r_.from[o].operands[0];
      if (!is_activation(o) || (is_kept_short(o) && !is_summand(o))) return false;
    }
    return whole > 0;
  }

  // Has several readers, or one through a view that cannot be fused, and all of them are maps or products; or it is
  // added to another product.
  bool is_kept(ValueId v) const {
    if (is_summand(v)) return true;
    std::set<ValueId> readers;
    bool moved = false;
    return count_readers(v, &readers, &moved) && (moved || readers.size() > 1);
  }
  bool count_readers(ValueId v, std::set<ValueId>* readers, bool* moved) const {
    return std::all_of(users_[v].begin(), users_[v].end(), [&](ValueId u) {
      if (u < 0) return false;
      if (is_view(r_.from[u].op)) {
        *moved |= r_.from[u].op != Op::reshape_;
        return count_readers(u, readers, moved);
      }
      readers->insert(u);
      return r_.from[u].op == Op::map_ || is_rounded_product(u) || attends(u, v) || is_learned_cast(r_.from[u]);
    });
  }

  // Maps read the short value and convert it to f32.
  void lengthen_operands(ValueId v) {
    const Node& node = r_.from[v];
    Formula formula = node.attributes.formula;
    Formula lengthen;
    lengthen.inputs = {to_};
    lengthen.outputs = {lengthen.convert(ScalarOp::cast_, Scalar::f32, lengthen.input(0))};
    std::vector<ValueId> operands = r_.operands(v);
    for (size_t i = operands.size(); i-- > 0;) {
      if (!is_kept_short(node.operands[i])) continue;
      // The outer formula's other inputs come first, the inner one's last.
      formula = compose(formula, i, lengthen, 0);
      operands.erase(operands.begin() + i);
      operands.push_back(rounded_[node.operands[i]]);
    }
    r_.replace(v, r_.build.map(formula, operands));
    r_.to[r_[v]].label = node.label;
  }

  // Readers other than maps read an f32 conversion.
  void keep_short(ValueId v) {
    rounded_[v] = r_.build.convert(r_[v], to_);
    short_.insert(v);
    r_.replace(v, r_.build.convert(rounded_[v], Scalar::f32));
  }
  bool is_kept_short(ValueId v) const { return short_.contains(v); }
  void keep_short_view(ValueId v) {
    const ValueId operand = r_.from[v].operands[0];
    const ValueId whole = r_[operand];
    r_.replace(operand, rounded_[operand]);
    rounded_[v] = r_.keep(v);
    r_.to[rounded_[v]].type.element = {to_, nullptr};
    r_.replace(operand, whole);
    short_.insert(v);
    r_.replace(v, r_.build.convert(rounded_[v], Scalar::f32));
  }

  void replace(ValueId v) {
    const Node node = r_.from[v];
    const FormatRef first = format_of(v, 0), second = format_of(v, 1);
    const bool plain = first && second && is_without_scale(*first) && is_without_scale(*second);
    if (plain && takes_codes(v) && !learning_) return replace_by_codes(v, first, second);
    const ValueId a = operand(v, 0, first), b = operand(v, 1, second);
    const std::vector<std::string>& i = node.attributes.indices;
    if (node.op == Op::contract_)
      r_.replace(v, r_.build.contract(a, b, i[0], i[1], i[2]));
    else if (node.op == Op::contract_gather_)
      r_.replace(v, r_.build.contract_gather(a, b, r_[node.operands[2]], i[0], i[1], i[2]));
    else
      r_.replace(v, r_.build.contract_scatter(a, b, r_[node.operands[2]], i[0], i[1], i[2], i[3], node.type.shape[0]));
    r_.to[r_[v]].label = node.label;
  }

  void replace_attended(ValueId v) {
    const Node node = r_.from[v];
    std::vector<ValueId> o;
    for (int side = 0; side < 2; ++side) o.push_back(attended(v, side));
    const std::vector<std::string>& i = node.attributes.indices;
    r_.replace(v, r_.build.contract(o[0], o[1], i[0], i[1], i[2]));
    r_.to[r_[v]].label = node.label;
  }

  // An operand of an attention's product, in the recipe's format: a row belongs to one head and one token.
  ValueId attended(ValueId product, int side) {
    const Node& node = r_.from[product];
    const ValueId v = node.operands[side];
    if (!attends(product, v)) return r_[v];
    const FormatRef& f = forward_.empty() || forward_[v] ? type_.attention : type_.attention_gradient;
    if (!f) return rounded(v);
    const bool makes_scores = attends(product, node.operands[1 - side]);
    const std::string scores = node.attributes.indices[makes_scores ? 2 : 1 - side];
    const std::string letters = node.attributes.indices[side];
    if (learning_) return learned(v, f, letters, scores, {projection_of(v) + ".attention_scale", {}});
    if (is_learned_as(v, *f)) return as_scalar_value(r_[v]);
    return as_scalar_value(encoder_.encoded(v, source_of(v), letters, scores, f, false));
  }
  ValueId as_scalar_value(ValueId value) { return to_ == Scalar::f32 ? value : r_.build.convert(value, to_); }

  // An operand of a product as its kernel reads it.
  ValueId operand(ValueId product, int side, const FormatRef& f) {
    const ValueId v = r_.from[product].operands[side];
    if (!f) return rounded(v);
    if (learning_) return learned_operand(product, side, f);
    if (rotation_of(product) == 0 && is_learned_as(v, *f)) return r_[v];
    require_fitted(product, v, f);
    if (const auto scalar = plain_scalar(*f)) return scalar == to_ ? rounded(v) : as_scalar(v, *scalar);
    if (is_without_scale(*f)) {
      if (!takes_codes(product)) return rounded(v);
      const Coded c = coded(product, v, f);
      return r_.build.mul(c.codes, c.scale);
    }
    const std::vector<std::string>& i = r_.from[product].attributes.indices;
    keep_for_gradients(product, v);
    return encoder_.encoded(v, source_of(v), i[side], i[2], f, is_random(v), scale_of(product, v, f),
                            rotation_of(product), drawn_for(product, v));
  }

  // The owner of a scale: its name, and the weight; no weight: an activation.
  struct Owner {
    std::string name, weight;
  };

  ValueId learned_operand(ValueId product, int side, const FormatRef& f) {
    const ValueId v = r_.from[product].operands[side];
    const std::vector<std::string>& i = r_.from[product].attributes.indices;
    if (is_random(v) || type_.rotations[ordinal(ProductKind::forward)] > 0) refuse_learned_rounding(*f, is_random(v));
    const std::string weight = weight_of(product);
    if (data_[v]) return learned(v, f, i[side], i[2], {weight + ".activation_scale", {}});
    require_learned_rows(r_.from, v, *f, i[side], i[2], weight);
    return learned(v, f, i[side], i[2], {weight + ".weight_scale", weight});
  }

  // An operand fake-quantized to its format, whose fields except the codes are parameters.
  ValueId learned(ValueId v, const FormatRef& f, const std::string& letters, const std::string& kept,
                  const Owner& owner) {
    if (learning_->only && !learning_->only(owner.name)) return r_[v];
    if (around_)
      throw Error(Exit::user,
                  fmt::format("'{}' in '{}' would be learned, and a product in the steps of a scan reads it: scales "
                              "that are learned are those of products outside of steps",
                              owner.name, f->name),
                  "let scales be fitted: activation_scale, weight_scale and attention_scale");
    require_learned(*f, owner.weight.empty());
    const auto [scales, is_new] = learned_.try_emplace({below(v), f.get()});
    std::map<int, ValueId>& known = scales->second;
    const auto field = [&](int k, const Shape& rows) {
      const auto [place, is_first] = known.try_emplace(k, -1);
      if (is_first) place->second = learned_field(v, f, k, rows, owner, letters, kept);
      return place->second;
    };
    return encoder_.encoded(v, r_[v], letters, kept, f, false, -1, 0, {}, field);
  }

  ValueId learned_field(ValueId v, const FormatRef& f, int k, const Shape& rows, const Owner& owner,
                        const std::string& letters, const std::string& kept) {
    LearnedScale scale{learning_->name_of(owner.name, *f, k), {}, f, k, owner.weight};
    if (owner.weight.empty() && learning_->fits) {
      const ValueId largest = r_.build.reshape(find_largest(r_.build, r_[v]), {});
      learning_->fitted.emplace_back(scale.name, encoder_.scale_of_largest(largest, f));
      return learning_->fitted.back().second;
    }
    const Shape& shape = r_.from[v].type.shape;
    scale.shape = field_shape(*f, f->fields[k], rows, owner.name);
    scale.columns = 1;
    for (size_t d = 0; d < letters.size(); ++d)
      if (kept.find(letters[d]) == std::string::npos) scale.columns *= shape[d].number();
    scale.rows = elements(shape).number() / scale.columns;
    return learning_->parameter(r_.build, std::move(scale), elements(shape).number());
  }

  // The scale if it is known before the numbers are computed; -1: it is fitted to them.
  ValueId scale_of(ValueId product, ValueId v, const FormatRef& f) {
    if (source_of_scale(v) == FieldSource::fitted) return -1;
    if (tensor_scale(*f) < 0)
      throw Error(Exit::user, fmt::format("format '{}' has more scales than one for the whole tensor", f->name),
                  "scales are delayed or predicted where there is one; others are fitted");
    return encoder_.scale_of_largest(known_largest(v, weight_of(product)), f);
  }

  // The largest magnitude from earlier steps, one number; 0: not known.
  ValueId known_largest(ValueId v, const std::string& weight) {
    const auto [known, is_new] = largest_.try_emplace(below(v), -1);
    if (!is_new) return known->second;
    return known->second = data_[v] || !around_ ? largest_of(v, weight) : largest_around(v, weight);
  }
  ValueId largest_of(ValueId v, const std::string& weight) {
    Builder& b = r_.build;
    if (!data_[v] && type_.sources.weight == FieldSource::predicted && !is_parameter(r_.from, below(v)))
      throw user_error(
          "products read '{}' only after it was changed, and the result has no bound: its scale cannot be predicted",
          weight);
    if (!data_[v] && type_.sources.weight == FieldSource::predicted) {
      const std::string name = kLargestState + weight;
      const ValueId there = r_.from.find_input(name);
      if (there >= 0 && r_[there] >= 0) return r_[there];
      return made_[name] = b.input(name, Role::state, {{}, {}});
    }
    const char* what = !data_[v] ? "weight" : forward_[v] ? "activation" : "gradient";
    const std::string name = supplies_.name_of(weight, what);
    const ValueId largest = supplies_.history(name, type_.sources.history);
    // Below views, so that the reduction fuses with the producer.
    if (trains_) supplies_.follow(name, find_largest(b, below_order(r_.to, source_of(v))));
    return largest;
  }
  // A weight that the steps of a scan read: its magnitude is the same for all of them.
  ValueId largest_around(ValueId v, const std::string& weight) {
    ValueId input = below(v);
    if (is_held(g_, input)) input = g_[input].operands[0];
    if (g_[input].op != Op::input_)
      throw user_error("the values of '{}' in the steps of a scan have no scale that is known in advance", weight);
    return supplies_.constant(around_->largest(input, weight));
  }
  ValueId as_scalar(ValueId v, Scalar scalar) {
    return scalar == Scalar::f32 ? r_[v] : r_.build.convert(r_[v], scalar);
  }

  // Encodes an activation for products of the backward pass where it is computed: the codes are kept between the
  // passes, not their source.
  void keep_for_gradients(ValueId product, ValueId v) {
    if (!forward_[v] || !data_[v]) return;
    for (const ValueId u : users_[v]) {
      if (u < 0 || !is_rounded_product(u) || kind_of(u) != ProductKind::weight_gradient) continue;
      for (int side = 0; side < 2; ++side) {
        const FormatRef f = r_.from[u].operands[side] == v ? format_of(u, side) : nullptr;
        const std::vector<std::string>& i = r_.from[u].attributes.indices;
        if (f && !plain_scalar(*f) && !is_without_scale(*f))
          (void)encoder_.encoded(v, source_of(v), i[side], i[2], f, is_random(v), scale_of(product, v, f),
                                 rotation_of(u), drawn_for(product, v));
      }
    }
  }

  // The value an operand is encoded from.
  ValueId source_of(ValueId v) { return is_kept_short(v) || products_alone_read(v) ? rounded(v) : r_[v]; }

  void replace_by_codes(ValueId v, const FormatRef& first, const FormatRef& second) {
    const Node node = r_.from[v];
    const Coded a = coded(v, node.operands[0], first), b = coded(v, node.operands[1], second);
    const std::vector<std::string>& i = node.attributes.indices;
    const ValueId product = r_.build.contract(codes_for(v, 0, first), codes_for(v, 1, second), i[0], i[1], i[2]);
    Formula f;
    f.inputs = {Scalar::f32, Scalar::f32, Scalar::f32};
    f.outputs = {f.op(ScalarOp::mul_, f.input(0), f.op(ScalarOp::mul_, f.input(1), f.input(2)))};
    r_.replace(v, r_.build.map(f, {product, a.scale, b.scale}));
    r_.to[product].label = node.label;
  }

  struct Coded {
    ValueId codes = -1, scale = -1;  // value = codes * scale
    ValueId scaled = -1;             // the value before encoding
    ValueId transposed = -1;         // codes of the transposed matrix, whose columns are contiguous
    Shape matrix;
  };
  Coded coded(ValueId product, ValueId v, const FormatRef& f) {
    Coded& known = coded_[{v, f.get()}];
    if (known.codes >= 0) return known;
    const Node& node = r_.from[v];
    if (is_rounded_below(node)) {
      known = coded(product, node.operands[0], f);
      known.codes = r_.build.view(node, known.codes);
      return known;
    }
    // Tensors of zeros, or of numbers so small that the scale would underflow, use the smallest valid scale.
    const double most = plain_field(*f)->max_finite();
    const auto quotient = [&](ValueId x, bool inverse) {
      Formula q;
      q.inputs = {Scalar::f32};
      const int largest = q.op(ScalarOp::max_, q.input(0), q.constant(Scalar::f32, 0x1p-100));
      const int limit = q.constant(Scalar::f32, most);
      q.outputs = {inverse ? q.op(ScalarOp::div_, limit, largest) : q.op(ScalarOp::div_, largest, limit)};
      return r_.build.reshape(r_.build.map(q, {x}), {});
    };
    const ValueId value = source_of(v);
    const bool is_fitted = source_of_scale(v) == FieldSource::fitted;
    const ValueId largest =
        is_fitted ? find_largest(r_.build, value) : or_else(known_largest(v, weight_of(product)), most);
    known.scale = quotient(largest, false);
    Formula scaled;
    scaled.inputs = {r_.to[value].type.element.scalar, Scalar::f32};
    scaled.outputs = {scaled.op(ScalarOp::mul_, as_f32(scaled), scaled.input(1))};
    known.scaled = r_.build.map(scaled, {value, quotient(largest, true)});
    if (is_random(v)) known.scaled = encoder_.rounded_at_random(known.scaled, f, -1, drawn_for(product, v));
    known.codes = encoded(known.scaled, f);
    return known;
  }
  // x, or `otherwise` if x is 0.
  ValueId or_else(ValueId x, double otherwise) {
    Formula f;
    f.inputs = {Scalar::f32};
    const int is_none = f.op(ScalarOp::eq_, f.input(0), f.constant(Scalar::f32, 0));
    f.outputs = {f.op(ScalarOp::select_, is_none, f.constant(Scalar::f32, otherwise), f.input(0))};
    return r_.build.map(f, {x});
  }
  ValueId encoded(ValueId x, const FormatRef& f) {
    return r_.build.cast(r_.build.cast(x, {Scalar::f32, f}), Element{});
  }
  static int as_f32(Formula& f) {
    return f.inputs[0] == Scalar::f32 ? f.input(0) : f.convert(ScalarOp::cast_, Scalar::f32, f.input(0));
  }

  // The codes of an operand. A matrix that is summed over its first axis is also encoded transposed: matrix
  // instructions take bytes that are contiguous along the summed axis.
  ValueId codes_for(ValueId product, size_t side, const FormatRef& f) {
    const ValueId v = r_.from[product].operands[side];
    const std::string &letters = r_.from[product].attributes.indices[side],
                      &kept = r_.from[product].attributes.indices[2];
    const auto is_kept = [&](size_t d) { return kept.find(letters[d]) != std::string::npos; };
    ValueId whole = v;
    while (r_.from[whole].op == Op::reshape_) whole = r_.from[whole].operands[0];
    if (letters.size() != 2 || is_kept(0) || !is_kept(1) || r_.from[whole].op == Op::permute_)
      return coded(product, v, f).codes;
    const Shape& matrix = r_.from[v].type.shape;
    Coded& known = coded_[{whole, f.get()}];
    if (known.transposed < 0) {
      known.matrix = matrix;
      known.transposed =
          r_.build.permute(encoded(r_.build.permute(r_.build.reshape(known.scaled, matrix), {1, 0}), f), {1, 0});
    }
    return known.matrix == matrix ? known.transposed : coded(product, v, f).codes;
  }

  // A frozen weight stored in the type it would be rounded to: reading it needs no decoding. Or one so large (an
  // embedding table of many tokens) that its decoded numbers are not stored: products round the decoded numbers.
  bool is_read_as_stored(ValueId v) const {
    const Node& node = r_.from[v];
    if (node.op != Op::cast_ || node.operands.size() != 1) return false;
    const Node& blob = r_.from[node.operands[0]];
    if (blob.op != Op::input_ || !blob.type.element.format) return false;
    if (plain_scalar(*blob.type.element.format) == to_) return true;
    const Dim count = elements(node.type.shape);
    return count.is_number() && count.number() > most_decoded_ / scalar_bytes(to_);
  }

  // Views below which a value is rounded once, however often it is read.
  static bool is_rounded_below(const Node& view) {
    return view.op == Op::reshape_ || view.op == Op::permute_ || view.op == Op::windows_;
  }

  ValueId rounded(ValueId v) {
    ValueId& known = rounded_[v];
    if (known >= 0) return known;
    const Node& node = r_.from[v];
    if (to_ == Scalar::f32 || is_read_as_stored(v))
      known = r_[v];
    else if (is_rounded_below(node) ||
             (node.op == Op::pad_ && users_[v][0] >= 0 && r_.from[users_[v][0]].op == Op::windows_))
      known = r_.build.view(node, rounded(node.operands[0]));
    else
      known = r_.build.convert(r_[v], to_);
    return known;
  }

  Rewriter r_;
  Supplies supplies_;
  Scalar to_;
  Learning* learning_;
  int64_t most_decoded_;
  std::vector<ValueId> rounded_;  // the short value of each, if there is one
  std::map<std::pair<ValueId, const Format*>, Coded> coded_;
  std::set<ValueId> short_;  // kept as short values
  OperandEncoder encoder_;
  std::map<ValueId, ValueId> largest_;   // known magnitudes, by the value below views
  std::map<std::string, ValueId> made_;  // states that were requested before the graph has them
  std::map<std::pair<ValueId, const Format*>, std::map<int, ValueId>> learned_;  // fields, by the value below views
};

}  // namespace

bool ProductType::has_formats() const {
  return attention || attention_gradient || std::any_of(formats.begin(), formats.end(), [](const OperandFormats& f) {
           return f.activation || f.weight || f.gradient;
         });
}

Graph learn_scales(const Graph& g, const ProductType& type, bool attention, std::vector<LearnedScale>* scales,
                   const LearnedNames& only) {
  const ProductType alone = learned_alone(type, attention);
  if (!alone.has_formats()) return g;
  Learning learning{.only = only};
  Graph out = Rounder(g, alone, &learning).run();
  *scales = std::move(learning.scales);
  return out;
}

Graph fit_scales(const Graph& g, const ProductType& type, bool attention, const LearnedNames& only) {
  ProductType alone = learned_alone(type, attention);
  alone.formats[ordinal(ProductKind::forward)].weight = nullptr;
  LUMEN_CHECK(alone.has_formats(), "no scale of an activation is learned");
  Learning learning{.fits = true, .only = only};
  Graph out = Rounder(g, alone, &learning).run();
  out.results.clear();
  out.result_names.clear();
  for (const auto& [name, value] : learning.fitted) {
    out.results.push_back(value);
    out.result_names.push_back(name);
  }
  return out;
}

void round_products(Graph& g, const ProductType& to) {
  LUMEN_CHECK(is_float(to.scalar));
  if (to.scalar != Scalar::f32 || to.has_formats()) g = Rounder(g, to).run();
}

}  // namespace lumen::graph
