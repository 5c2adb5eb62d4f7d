// One unit at a time: codes in their own order into private memory, and out of it in the order of the lanes.
#include "kernel/synth/gemm/quantize.h"

#include <algorithm>

#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {
namespace {

using loop::Expr;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kTaskElements = 1024;  // of a row
constexpr int64_t kMostUnrolled = 128;   // elements, where tasks are threads

class QuantizeKernel {
 public:
  QuantizeKernel(const graph::Graph& g, const DotProblem& only_a, const ActivationLayout& layout,
                 const ActivationScratch& s, const machine::Machine& m)
      : p_(only_a),
        layout_(layout),
        lanes_(m.f32_lanes()),
        task_elements_(m.grain(kTaskElements)),
        threads_(m.wave > 1),
        w_(g, p_, "quantize"),
        b_(w_.b) {
    codes_ = w_.scratch_param("codes", s.codes, layout.rows * layout.codes(), true);
    scales_ = w_.scratch_param("scales", s.scales, layout.rows * layout.groups() * 4, true);
    sums_ = w_.scratch_param("sums", s.sums, layout.rows * layout.groups() * 4, true);
  }

  Step write();

 private:
  // Elements k .. of a row of a, their codes at `code` and groups at `group`, counted over all rows.
  void write_run(Expr x, Expr k, const LaneOrder& order, Expr code, Expr group);
  void write_group(Expr x, Expr k, Expr first, int64_t count, Expr group);
  Expr chunk(const std::vector<int64_t>& elements);

  const DotProblem& p_;
  const ActivationLayout& layout_;
  const int lanes_;
  const int64_t task_elements_;
  const bool threads_;
  DotWriter w_;
  loop::Builder& b_;
  loop::BufferId codes_, scales_, sums_, natural_ = -1;
};

// Scale, sums and codes of elements first .. first + count of the run that begins at k.
void QuantizeKernel::write_group(Expr x, Expr k, Expr first, int64_t count, Expr group) {
  const VType one{Scalar::f32, 1};
  std::vector<Expr> parts;
  Expr most;
  for (int64_t at = 0; at < kActivationGroup; at += lanes_) {
    if (at >= count) {
      parts.push_back(w_.zero(lanes_));
      continue;
    }
    const Expr place = (x + (k + (first + at))) * 4;
    parts.push_back(
        b_.load(w_.buffer(0), {Scalar::f32, lanes_}, place, 4, at + lanes_ <= count ? Expr{} : w_.i64(count - at)));
    const Expr size = abs(parts.back());
    most = !most.exists() ? size : max(most, size);
  }
  const Expr largest = b_.fold(ScalarOp::max_, most);
  const Expr zero = b_.real(0, one), full = b_.real(127, one);
  const Expr inverse = select(zero < largest, full / largest, zero);
  const Expr scale = largest / full;
  std::vector<Expr> codes;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Expr scaled = rint(parts[i] * b_.splat(inverse, lanes_));
    codes.push_back(cast(scaled, Scalar::i32));
    b_.store(natural_, cast(codes.back(), Scalar::i8), first + static_cast<int64_t>(i) * lanes_);
  }
  // Sums of `fine` elements: vectors, or parts of one.
  for (int64_t at = 0; at < count; at += layout_.fine) {
    Expr total;
    for (int64_t i = at; i < at + layout_.fine; i += lanes_) {
      Expr part = codes[static_cast<size_t>(i / lanes_)];
      if (layout_.fine < lanes_) {
        std::vector<int> mask;
        for (int64_t l = 0; l < layout_.fine; ++l) mask.push_back(static_cast<int>(i % lanes_ + l));
        part = b_.shuffle({part}, mask);
      }
      total = !total.exists() ? part : total + part;
    }
    const Expr sum = cast(b_.fold(ScalarOp::add_, total), Scalar::f32);
    const Expr place = (group + (first / layout_.fine + at / layout_.fine)) * 4;
    b_.store(scales_, scale, place, 4);
    b_.store(sums_, scale * sum, place, 4);
  }
}

// The codes of some elements out of private memory; -1 is zero.
Expr QuantizeKernel::chunk(const std::vector<int64_t>& elements) {
  const int lanes = static_cast<int>(elements.size());
  int64_t low = -1, high = -1;
  for (const int64_t e : elements)
    if (e >= 0) {
      low = low < 0 ? e : std::min(low, e);
      high = std::max(high, e);
    }
  const VType bytes{Scalar::i8, lanes};
  if (low < 0) return b_.integer(0, bytes);
  const int64_t span = high - low + 1;
  if (span > 64) {
    const auto half = static_cast<std::ptrdiff_t>(elements.size() / 2);
    const Expr a = chunk({elements.begin(), elements.begin() + half});
    const Expr c = chunk({elements.begin() + half, elements.end()});
    if (half == 1) return b_.insert(b_.splat(a, 2), c, 1);
    std::vector<int> mask;
    for (int l = 0; l < lanes; ++l) mask.push_back(l);
    return b_.shuffle({a, c}, mask);
  }
  int64_t wide = lanes;
  while (wide < span) wide *= 2;
  std::vector<int> mask;
  for (const int64_t e : elements) mask.push_back(e < 0 ? -1 : static_cast<int>(e - low));
  if (wide == 1) return b_.load(natural_, bytes, w_.i64(low));
  return b_.shuffle({b_.load(natural_, {Scalar::i8, static_cast<int>(wide)}, w_.i64(low))}, mask);
}

void QuantizeKernel::write_run(Expr x, Expr k, const LaneOrder& order, Expr code, Expr group) {
  // Lanes have few registers: many groups go through private memory one after the other.
  const int64_t whole = order.elements / kActivationGroup * kActivationGroup;
  const auto one = [&](Expr first) { write_group(x, k, first, kActivationGroup, group); };
  if (threads_ && whole > kMostUnrolled)
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole), kActivationGroup, one);
  else
    for (int64_t first = 0; first < whole; first += kActivationGroup) one(w_.i64(first));
  if (whole < order.elements) write_group(x, k, w_.i64(whole), order.elements - whole, group);
  const int part = std::min(16, layout_.lanes);
  for (size_t v = 0; v < order.vectors.size(); ++v)
    for (int l = 0; l < layout_.lanes; l += part) {
      const auto from = order.vectors[v].begin() + l;
      const int64_t to = static_cast<int64_t>(v) * layout_.lanes + l;
      b_.store(codes_, chunk({from, from + part}), code + to);
    }
}

Step QuantizeKernel::write() {
  const RowOrder& order = layout_.order;
  const int64_t per_task = order.units == 0 ? 1 : std::max<int64_t>(1, task_elements_ / order.unit.elements);
  const int64_t whole = (order.units + per_task - 1) / per_task;
  const int64_t parts = whole + (order.rest.elements > 0 ? 1 : 0);
  b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(layout_.rows * parts), 1, [&](Expr task) {
    const Expr row = task / parts;
    const Expr part = task % parts;
    w_.enter_outer(row / p_.m.extent);
    const Expr x = w_.base(0) + row % p_.m.extent * p_.m.strides[0];
    const Expr code = row * layout_.codes(), group = row * layout_.groups();
    // Vectors are read past their elements: the rest of private memory stays undefined and unused.
    natural_ = b_.alloc(std::max(order.unit.elements, order.rest.elements) + 128);
    const auto units = [&] {
      const Expr first = part * per_task;
      b_.loop(LoopKind::serial, first, min(first + per_task, w_.i64(order.units)), 1, [&](Expr unit) {
        write_run(x, unit * order.unit.elements, order.unit, code + unit * layout_.unit_codes(),
                  group + unit * layout_.unit_groups());
      });
    };
    const auto rest = [&] {
      write_run(x, w_.i64(order.units * order.unit.elements), order.rest, code + order.units * layout_.unit_codes(),
                group + order.units * layout_.unit_groups());
    };
    if (order.rest.elements == 0)
      units();
    else if (order.units == 0)
      rest();
    else
      b_.branch(part < whole, units, rest);
  });
  return w_.step(fmt::format("quantize {}x{} i8 groups of {}", layout_.rows, layout_.columns, kActivationGroup));
}

}  // namespace

int64_t ActivationLayout::codes() const {
  return order.units * unit_codes() + static_cast<int64_t>(order.rest.vectors.size()) * lanes;
}

int64_t ActivationLayout::groups() const {
  return order.units * unit_groups() + order.rest_groups(fine);
}

ActivationScratch declare_activations(const ActivationLayout& layout, Synthesis& out) {
  const int first = static_cast<int>(out.scratch.size());
  const int64_t numbers = layout.rows * layout.groups() * 4;
  out.scratch.insert(out.scratch.end(), {layout.rows * layout.codes(), numbers, numbers});
  return {first, first + 1, first + 2};
}

Step write_quantize(const graph::Graph& g, const DotProblem& p, const ActivationLayout& layout,
                    const ActivationScratch& s, const machine::Machine& m) {
  const DotProblem only_a = p.only_a();
  return QuantizeKernel(g, only_a, layout, s, m).write();
}

}  // namespace lumen::synth
