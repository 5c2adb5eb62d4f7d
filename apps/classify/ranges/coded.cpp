#include "apps/classify/ranges/coded.h"

#include "base/check.h"

namespace lumen::graph {

ValueId Coder::spread(ValueId v, int64_t samples, int64_t channels, const Shape& shape) {
  Shape to(shape.size(), Dim(1));
  if (samples > 1) to[0] = Dim(samples);
  int64_t product = 1;
  for (size_t d = shape.size(); channels > 0 && product < channels;) {
    LUMEN_CHECK(d > 0, "{} channels in {}", channels, print(Type{shape, {}}));
    --d;
    to[d] = shape[d];
    product *= shape[d].number();
  }
  LUMEN_CHECK(channels == 0 || product == channels, "{} channels in {}", channels, print(Type{shape, {}}));
  return b_.reshape(v, to);
}

Ends Coder::with_zero(const Ends& ends) {
  FormulaOf low(b_), high(b_);
  const int l = low.in(ends.low), h = high.in(ends.high);
  return {low.map(low.op(ScalarOp::min_, l, low.f32(0))), high.map(high.op(ScalarOp::max_, h, high.f32(0)))};
}

ValueId Coder::scale_of(const Ends& ends) {
  FormulaOf f(b_);
  const int low = f.in(ends.low), high = f.in(ends.high);
  const int range = f.sub(high, low), least = f.op(ScalarOp::max_, f.div(range, f.f32(255)), f.f32(kLeastScale));
  return f.map(f.op(ScalarOp::select_, f.op(ScalarOp::lt_, f.f32(0), range), least, f.f32(1)));
}

ValueId Coder::zero_of(const Ends& ends, ValueId scale) {
  FormulaOf f(b_);
  const int low = f.in(ends.low), s = f.in(scale);
  const int z = f.op(ScalarOp::rint_, f.sub(f.f32(-128), f.div(low, s)));
  return f.map(f.cast(Scalar::i32, f.clamp(z, -128, 127)));
}

ValueId Coder::real(const Coded& c) {
  const Shape shape = b_.type(c.codes).shape;
  FormulaOf f(b_);
  const int q = f.cast(Scalar::i32, f.in(c.codes)), z = f.in(spread(c.zero, c.samples, c.channels, shape));
  const int s = f.in(spread(c.scale, c.samples, c.channels, shape));
  return f.map(f.mul(f.cast(Scalar::f32, f.sub(q, z)), s));
}

Coded Coder::encode(ValueId x, int64_t samples, const Ends& given) {
  const Ends ends = with_zero(given);
  Coded out;
  out.samples = samples;
  out.scale = scale_of(ends);
  out.zero = zero_of(ends, out.scale);
  const Shape shape = b_.type(x).shape;
  FormulaOf f(b_);
  const int v = f.in(x), s = f.in(spread(out.scale, samples, 0, shape)), z = f.in(spread(out.zero, samples, 0, shape));
  const int q = f.add(f.op(ScalarOp::rint_, f.div(v, s)), f.cast(Scalar::f32, z));
  out.codes = f.map(f.cast(Scalar::i8, f.clamp(q, -128, 127)));
  return out;
}

Coded Coder::relu(const Coded& c) {
  Coded out = c;
  FormulaOf f(b_);
  const int q = f.cast(Scalar::i32, f.in(c.codes));
  const int z = f.in(spread(c.zero, c.samples, c.channels, b_.type(c.codes).shape));
  out.codes = f.map(f.cast(Scalar::i8, f.op(ScalarOp::max_, q, z)));
  out.is_positive = true;
  return out;
}

Ends Coder::ends_of(const Coded& c) {
  const auto end = [&](double code) {
    FormulaOf f(b_);
    const int z = f.cast(Scalar::f32, f.in(c.zero)), s = f.in(c.scale);
    const ValueId ends = f.map(f.mul(f.sub(f.f32(code), z), s));
    if (c.channels == 0) return ends;
    return b_.reshape(b_.reduce(ends, code < 0 ? Reduction::min : Reduction::max, {1}), {Dim(c.samples)});
  };
  const ValueId high = end(127);
  return {c.is_positive ? b_.constant(b_.type(high), {0}) : end(-128), high};
}

Coded Coder::per_tensor(const Coded& c) {
  if (c.channels == 0) return c;
  Coded out = encode(real(c), c.samples, ends_of(c));
  out.is_positive = c.is_positive;
  return out;
}

ValueId Coder::centred(const Coded& c) {
  FormulaOf f(b_);
  const int q = f.cast(Scalar::i32, f.in(c.codes));
  const int z = f.in(spread(c.zero, c.samples, c.channels, b_.type(c.codes).shape));
  return f.map(f.cast(Scalar::i16, f.sub(q, z)));
}

// Modulo 256, so that memory holds bytes.
ValueId Coder::padded(ValueId codes, const Coded& c, const Node& pad) {
  const auto moved = [&](ValueId v, ScalarOp op) {
    FormulaOf f(b_);
    const int q = f.cast(Scalar::i32, f.in(v)), z = f.in(spread(c.zero, c.samples, 0, b_.type(v).shape));
    return f.map(f.cast(Scalar::i8, f.op(op, q, z)));
  };
  const ValueId above = moved(codes, ScalarOp::sub_);
  return moved(b_.pad(above, pad.type.shape, pad.attributes.starts, pad.attributes.strides), ScalarOp::add_);
}

ValueId Coder::over_samples(ValueId v, Reduction r, int64_t samples) {
  std::vector<int> axes;
  for (size_t d = samples > 1 ? 1 : 0; d < b_.type(v).shape.size(); ++d) axes.push_back(d);
  return b_.reshape(axes.empty() ? v : b_.reduce(v, r, axes), {Dim(samples)});
}

}  // namespace lumen::graph
