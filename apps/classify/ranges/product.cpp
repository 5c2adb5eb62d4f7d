#include "apps/classify/ranges/product.h"

#include "base/check.h"
#include "graph/match/access.h"

namespace lumen::graph {
namespace {

constexpr int64_t kLargestSquare = 255 * 255;
constexpr double kLargestBias = 1 << 30;
constexpr double kLeastDeviation = 1e-6;

bool is_among(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

}  // namespace

WholeProduct::WholeProduct(Builder& b, const Graph& from, const RangedSite& site, const Coded& input,
                           const RangeOptions& options)
    : b_(b),
      coder_(b),
      from_(from),
      site_(site),
      input_(input),
      options_(options),
      samples_(input.samples),
      channels_(site.product.channels),
      of_x_(from[site.contract].attributes.indices[1 - site.side]) {
  make_operands();
  scale_ = parameter("scale", {Dim(channels_)});
}

ValueId WholeProduct::parameter(const std::string& what, Shape shape, Scalar scalar) {
  const std::string name = site_.product.name + "." + what;
  const ValueId known = b_.graph.find_input(name);
  return known >= 0 ? known : b_.input(name, Role::parameter, {std::move(shape), {scalar, nullptr}});
}

// Codes, so that sums of products are byte products: the contribution of the input's zero points is subtracted from the
// bias. Padding of images has the code of zero. Where samples do not stay the first axis: codes minus zero points,
// which take 9 bits.
void WholeProduct::make_operands() {
  is_centred_ = samples_ > 1 && !site_.samples_first;
  x_ = is_centred_ ? coder_.centred(input_) : input_.codes;
  for (const ValueId v : site_.views) {
    const Node& node = from_[v];
    if (node.op == Op::windows_ && v == site_.views.back()) below_windows_ = x_;
    if (node.op != Op::pad_)
      x_ = b_.view(node, x_);
    else
      x_ = is_centred_ ? b_.pad(x_, node.type.shape, node.attributes.starts, node.attributes.strides)
                       : coder_.padded(x_, input_, node);
  }
}

// The axes in the order of `to`, extent 1 for letters v lacks.
ValueId WholeProduct::aligned(ValueId v, const std::string& letters, const std::string& to) {
  const Shape from = b_.type(v).shape;
  std::vector<int> order;
  Shape shape;
  for (const char c : to) {
    const size_t at = letters.find(c);
    shape.push_back(at == std::string::npos ? Dim(1) : from[at]);
    if (at != std::string::npos) order.push_back(at);
  }
  for (size_t d = 0; d < letters.size(); ++d)
    if (!is_among(to, letters[d])) order.push_back(d);
  return b_.reshape(b_.permute(v, order), shape);
}

// Sums of products, i32: rows, groups, outputs.
ValueId WholeProduct::sums() {
  Shape of_codes;
  const std::string letters = site_.groups + site_.outputs + site_.columns;
  const std::string& of_weight = from_[site_.contract].attributes.indices[site_.side];
  for (const char c : letters) of_codes.push_back(from_[site_.weight].type.shape[of_weight.find(c)]);
  const ValueId flat = parameter("codes", {Dim(channels_), Dim(site_.product.columns)}, Scalar::i8);
  return b_.contract(x_, b_.reshape(flat, of_codes), of_x_, letters, site_.rows + site_.groups + site_.outputs);
}

// rint(shift / (s_x s_w)), i32 [samples, channels]. With it, sums of less than 2^15 columns fit 32 bits.
ValueId WholeProduct::whole_bias() {
  FormulaOf f(b_);
  const int shift = f.in(row(parameter("shift", {Dim(channels_)}))), w = f.in(row(scale_));
  const int x = f.in(column(input_.scale));
  const int whole = f.op(ScalarOp::rint_, f.div(shift, f.mul(x, w)));
  return f.map(f.cast(Scalar::i32, f.clamp(whole, -kLargestBias, kLargestBias)));
}

// The bias minus the contribution of the input's zero points to the sums of codes. It may wrap; adding the sum wraps it
// back.
ValueId WholeProduct::bias_of_codes() {
  if (is_centred_) return bias_;
  FormulaOf f(b_);
  const int total = f.in(row(parameter("total", {Dim(channels_)}, Scalar::i32)));
  return f.map(f.sub(f.in(bias_), f.mul(f.in(column(input_.zero)), total)));
}

// Every gamma-th row along the letters of x except the samples'.
ValueId WholeProduct::thinned(ValueId v) {
  if (options_.gamma == 1) return v;
  Shape shape = b_.type(v).shape;
  std::vector<int64_t> starts(shape.size(), 0), strides(shape.size(), 1);
  for (size_t i = site_.by_sample ? 1 : 0; i < site_.rows.size(); ++i) {
    const size_t d = of_x_.find(site_.rows[i]);
    strides[d] = options_.gamma;
    shape[d] = Dim((shape[d].number() + options_.gamma - 1) / options_.gamma);
  }
  return b_.slice(v, starts, shape, strides);
}

// Sums over axes of codes minus zero points, or of their squares, in integers wide enough to hold them.
ValueId WholeProduct::summed(ValueId v, bool squares, const std::vector<int>& axes) {
  const bool is_wide = squares && site_.product.columns > INT32_MAX / kLargestSquare;
  FormulaOf f(b_);
  int x = f.cast(Scalar::i32, f.in(v));
  if (!is_centred_) x = f.sub(x, f.in(coder_.spread(input_.zero, samples_, 0, b_.type(v).shape)));
  if (squares) x = f.mul(x, x);
  const ValueId numbers = f.map(is_wide ? f.cast(Scalar::i64, x) : x);
  return axes.empty() ? numbers : b_.reduce(numbers, Reduction::sum, axes);
}

// S1 or S2 at the sampled positions: letters of x, extent 1 for columns. Channels are summed before windows are, so
// that overlapping windows share these sums.
ValueId WholeProduct::window_sums(bool squares) {
  std::vector<int> columns;
  for (size_t d = 0; d < of_x_.size(); ++d)
    if (is_among(site_.columns, of_x_[d])) columns.push_back(d);
  if (below_windows_ < 0) return summed(thinned(x_), squares, columns);
  const Node& windows = from_[site_.views.back()];
  std::vector<int> plain;
  Shape shape = windows.type.shape;
  for (size_t d = 0; d < windows.attributes.starts.size(); ++d) {
    const int j = plain_index(from_, windows, d);
    if (j < 0 || !is_among(site_.columns, of_x_[j])) continue;
    plain.push_back(d);
    shape[j] = Dim(1);
  }
  const ValueId channel_sums = summed(below_windows_, squares, plain);
  const ValueId seen = b_.windows(channel_sums, windows.attributes.starts, windows.attributes.strides, shape);
  return b_.reduce(thinned(seen), Reduction::sum, columns);
}

WholeProduct::Moments WholeProduct::moments() {
  const ValueId first = window_sums(false), second = window_sums(true);
  const std::string kept = (samples_ > 1 ? site_.rows.substr(0, 1) : "") + site_.groups;
  std::vector<int> axes;
  int64_t count = 1;
  for (size_t d = 0; d < of_x_.size(); ++d) {
    if (is_among(kept, of_x_[d])) continue;
    axes.push_back(d);
    count *= b_.type(first).shape[d].number();
  }
  const Shape shape{Dim(samples_), Dim(site_.product.groups)};
  const auto mean = [&](ValueId v, bool squared) {
    FormulaOf f(b_);
    const int x = f.cast(Scalar::i64, f.in(v));
    const ValueId numbers = f.map(squared ? f.mul(x, x) : x);
    const ValueId total = axes.empty() ? numbers : b_.reduce(numbers, Reduction::sum, axes);
    FormulaOf over(b_);
    const int sum = over.cast(Scalar::f32, over.in(b_.reshape(aligned(total, of_x_, kept), shape)));
    return over.map(over.div(sum, over.f32(count)));
  };
  Moments out{mean(first, false), mean(second, false), -1};
  FormulaOf f(b_);
  const int squares = f.in(mean(first, true)), middle = f.in(out.first);
  out.spread = f.map(f.op(ScalarOp::max_, f.sub(squares, f.mul(middle, middle)), f.f32(0)));
  return out;
}

// A mixture of normals of equal weights: the mean of the means; the mean of the variances plus the variance of the
// means.
WholeProduct::Predicted WholeProduct::predict_channels(const Moments& m) {
  const Dim groups(site_.product.groups), outputs(channels_ / site_.product.groups);
  const auto by_group = [&](ValueId v) { return b_.reshape(v, {Dim(samples_), groups, Dim(1)}); };
  const auto by_output = [&](ValueId v) { return b_.reshape(v, {Dim(1), groups, outputs}); };
  const ValueId mean = by_output(parameter("mean", {Dim(channels_)}));
  const Shape flat{Dim(samples_), Dim(channels_)};
  FormulaOf f(b_);
  const int mu = f.in(mean), s1 = f.in(by_group(m.first));
  const int bias = f.cast(Scalar::f32, f.in(b_.reshape(bias_, {Dim(samples_), groups, outputs})));
  const ValueId middle = f.map(f.add(f.mul(mu, s1), bias));
  FormulaOf d(b_);
  const int own = d.in(by_output(parameter("deviation", {Dim(channels_)}))), s2 = d.in(by_group(m.second));
  const int of_means = d.in(mean), spread = d.in(by_group(m.spread));
  const int within = d.mul(d.mul(own, own), s2), between = d.mul(d.mul(of_means, of_means), spread);
  const ValueId deviation = d.map(d.op(ScalarOp::sqrt_, d.add(within, between)));
  return {b_.reshape(middle, flat), b_.reshape(deviation, flat)};
}

// Groups count as additional positions.
WholeProduct::Predicted WholeProduct::predict_tensor(const Moments& given) {
  Moments m = given;
  const Shape one{Dim(samples_)};
  if (const int64_t groups = site_.product.groups; groups > 1) {
    const auto mean = [&](ValueId v) {
      FormulaOf f(b_);
      return f.map(f.div(f.in(b_.reduce(v, Reduction::sum, {1})), f.f32(groups)));
    };
    m.first = mean(given.first);
    m.second = mean(given.second);
    FormulaOf square(b_);
    const int first = square.in(given.first), spread = square.in(given.spread);
    const ValueId mean_square = mean(square.map(square.add(spread, square.mul(first, first))));
    FormulaOf v(b_);
    const int all = v.in(mean_square), own = v.in(m.first);
    m.spread = v.map(v.op(ScalarOp::max_, v.sub(all, v.mul(own, own)), v.f32(0)));
  }
  const auto flat = [&](ValueId v) { return b_.reshape(v, one); };
  const ValueId weights = parameter("mean_all", {Dim(1)});
  FormulaOf f(b_);
  const int mu = f.in(weights), s1 = f.in(flat(m.first)), shift = f.in(parameter("shift_all", {Dim(1)}));
  const int x = f.in(input_.scale);
  const ValueId mean = f.map(f.add(f.mul(mu, s1), f.div(shift, x)));
  FormulaOf d(b_);
  const int own = d.in(parameter("deviation_all", {Dim(1)})), s2 = d.in(flat(m.second));
  const int of_means = d.in(weights), between_rows = d.in(flat(m.spread));
  const int within = d.mul(d.mul(own, own), s2), between = d.mul(d.mul(of_means, of_means), between_rows);
  return {mean, d.map(d.op(ScalarOp::sqrt_, d.add(within, between)))};
}

// Combines channels with weights of their own into one: in units of the input's scale.
WholeProduct::Predicted WholeProduct::merged(const Predicted& channels) {
  const auto mean = [&](ValueId v) {
    FormulaOf f(b_);
    return f.map(f.div(f.in(b_.reduce(v, Reduction::sum, {1})), f.f32(channels_)));
  };
  const ValueId middles = b_.mul(channels.mean, row(scale_)), own = b_.mul(channels.deviation, row(scale_));
  const ValueId middle = mean(middles);
  FormulaOf f(b_);
  const int sd = f.in(own), mu = f.in(middles), all = f.in(middle), away = f.sub(mu, all);
  const ValueId variance = mean(f.map(f.add(f.mul(sd, sd), f.mul(away, away))));
  return {b_.reshape(middle, {Dim(samples_)}), b_.reshape(b_.unary(ScalarOp::sqrt_, variance), {Dim(samples_)})};
}

WholeProduct::Predicted WholeProduct::predict() {
  const Moments m = moments();
  if (is_by_channel()) return predict_channels(m);
  return site_.product.is_depthwise ? merged(predict_channels(m)) : predict_tensor(m);
}

// Converts ranges to units of sums (by channel), or of the input's scale (by tensor).
ValueId WholeProduct::in_units(ValueId real) {
  FormulaOf f(b_);
  if (!is_by_channel()) {
    const int r = f.in(real), x = f.in(input_.scale);
    return f.map(f.div(r, x));
  }
  const int r = f.in(row(real)), x = f.in(column(input_.scale)), w = f.in(row(scale_));
  return f.map(f.div(r, f.mul(x, w)));
}

ValueId WholeProduct::in_real(ValueId units) {
  FormulaOf f(b_);
  const int u = f.in(units);
  if (!is_by_channel()) return f.map(f.mul(u, f.in(input_.scale)));
  const int x = f.in(column(input_.scale)), w = f.in(row(scale_));
  return f.map(f.mul(u, f.mul(x, w)));
}

// The ends of sums with their bias, [rows, groups, outputs].
Ends WholeProduct::true_ends(ValueId total) {
  std::vector<int> axes;
  for (size_t i = samples_ > 1 ? 1 : 0; i < site_.rows.size(); ++i) axes.push_back(i);
  const auto end = [&](Reduction r) {
    const ValueId of_channels = axes.empty() ? total : b_.reduce(total, r, axes);
    const ValueId flat = b_.reshape(of_channels, {Dim(samples_), Dim(channels_)});
    if (is_by_channel()) return b_.convert(flat, Scalar::f32);
    FormulaOf f(b_);
    const int sum = f.cast(Scalar::f32, f.in(flat)), w = f.in(row(scale_));
    return b_.reshape(b_.reduce(f.map(f.mul(sum, w)), r, {1}), {Dim(samples_)});
  };
  return {end(Reduction::min), end(Reduction::max)};
}

Ends WholeProduct::estimated_ends(const Predicted& p) {
  const auto end = [&](const std::string& name, bool is_low) {
    const Dim count(is_by_channel() ? channels_ : 1);
    const ValueId alpha = parameter(name + all_suffix(), {count});
    FormulaOf f(b_);
    const int mean = f.in(p.mean), deviation = f.in(p.deviation), a = f.in(is_by_channel() ? row(alpha) : alpha);
    const int away = f.mul(a, deviation);
    return f.map(is_low ? f.sub(mean, away) : f.add(mean, away));
  };
  return {end("below", true), end("above", false)};
}

void WholeProduct::report_seen(const Ends& seen, const Predicted& p) {
  const std::string& name = site_.product.name;
  reports_[name + ".low"] = in_real(seen.low);
  reports_[name + ".high"] = in_real(seen.high);
  const auto away = [&](ValueId from, ValueId to) {
    FormulaOf f(b_);
    const int a = f.in(from), b = f.in(to), d = f.in(p.deviation);
    return f.map(f.div(f.sub(b, a), f.add(d, f.f32(kLeastDeviation))));
  };
  reports_[name + ".below"] = away(seen.low, p.mean);
  reports_[name + ".above"] = away(p.mean, seen.high);
}

// The multiplier of sums, f32 [samples, channels].
ValueId WholeProduct::multiplier(ValueId scale) {
  FormulaOf f(b_);
  if (is_by_channel()) {
    const int one = f.f32(1);
    return f.map(f.div(one, f.in(scale)));
  }
  const int w = f.in(row(scale_)), s = f.in(column(scale));
  return f.map(f.div(w, s));
}

ValueId WholeProduct::quantized(ValueId sums, ValueId bias, ValueId multiplier, ValueId zero) {
  const Shape shape = b_.type(sums).shape;
  const auto at = [&](ValueId v, int64_t channels) { return coder_.spread(v, samples_, channels, shape); };
  FormulaOf f(b_);
  int sum = f.in(sums);
  if (bias >= 0) sum = f.add(sum, f.in(at(bias, channels_)));
  const int m = f.in(at(multiplier, channels_)), z = f.in(at(zero, pairs()));
  const int q = f.add(f.op(ScalarOp::rint_, f.mul(f.cast(Scalar::f32, sum), m)), f.cast(Scalar::f32, z));
  return f.map(f.cast(Scalar::i8, f.clamp(q, -128, 127)));
}

void WholeProduct::report_clipped(ValueId sums, ValueId bias, ValueId multiplier, ValueId zero) {
  const Shape shape = b_.type(sums).shape;
  FormulaOf f(b_);
  const int sum = f.add(f.in(sums), f.in(coder_.spread(bias, samples_, channels_, shape)));
  const int m = f.in(coder_.spread(multiplier, samples_, channels_, shape));
  const int z = f.in(coder_.spread(zero, samples_, pairs(), shape));
  const int q = f.add(f.op(ScalarOp::rint_, f.mul(f.cast(Scalar::f32, sum), m)), f.cast(Scalar::f32, z));
  const int beyond = f.op(ScalarOp::ne_, q, f.clamp(q, -128, 127));
  const ValueId ones = f.map(f.op(ScalarOp::select_, beyond, f.f32(1), f.f32(0)));
  reports_[site_.product.name + ".clipped"] = coder_.over_samples(ones, Reduction::sum, samples_);
}

Coded WholeProduct::run(RangeSource source) {
  bias_ = whole_bias();
  const ValueId added = bias_of_codes();
  ValueId total = sums(), bias = added;
  Ends ends;
  if (options_.calibrates || source == RangeSource::dynamic) {
    total = b_.add(total, coder_.spread(bias, samples_, channels_, b_.type(total).shape));
    bias = -1;
    ends = true_ends(total);
    if (options_.calibrates) report_seen(ends, predict());
  } else if (source == RangeSource::estimate) {
    ends = estimated_ends(predict());
  } else {
    const Dim count(is_by_channel() ? channels_ : 1);
    ends = {in_units(parameter("low" + all_suffix(), {count})), in_units(parameter("high" + all_suffix(), {count}))};
  }
  ends = coder_.with_zero(ends);
  const ValueId scale = coder_.scale_of(ends), zero = coder_.zero_of(ends, scale), by = multiplier(scale);
  Coded out;
  out.samples = samples_;
  out.channels = pairs();
  out.zero = zero;
  out.scale = in_real(scale);
  out.codes = quantized(total, bias, by, zero);
  if (options_.counts_clipped) report_clipped(bias >= 0 ? total : sums(), added, by, zero);
  return out;
}

}  // namespace lumen::graph
