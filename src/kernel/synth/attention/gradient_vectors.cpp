// Panels of f32: one factor is read as scalars, the other as vectors, sums are in registers.
#include <algorithm>

#include "kernel/synth/attention/gradient_panels.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

class VectorPanels : public GradientPanels {
 public:
  VectorPanels(Builder& b, const graph::Graph& g, graph::ValueId root, const machine::Machine& target)
      : b_(b),
        g_(g),
        root_(root),
        lanes_(target.f32_lanes()),
        line_(target.f32_lanes() * 4),
        fused_(target.fma),
        together_((target.vector_registers >= 32 ? 16 : 8) / kVectors) {}

  int64_t rows_together() const override { return together_; }
  int64_t keys_together() const override { return panel(); }
  int64_t most_rows() const override { return 32; }
  int64_t padded(int64_t width) const override { return round_up(width, int64_t{lanes_}); }
  std::string describe() const override { return fmt::format("{}x{}", together_, panel()); }

  void begin() override {
    const GradientParts& parts = *parts_;
    sums_.resize(parts.results.size(), -1);
    for (const GradientOperand& o : parts.operands) {
      Lines mine;
      mine.padded = padded(o.width);
      mine.lines = b_.alloc((o.by_key ? parts.block : parts.tile) * mine.padded * 4, 64);
      if (o.meets_keys) mine.transposed = b_.alloc(parts.block * mine.padded * 4, 64);
      operands_.push_back(mine);
    }
    for (size_t r = 0; r < parts.results.size(); ++r)
      if (!parts.results[r].over_keys) sums_[r] = b_.alloc(parts.block * sum_width(r) * 4, 64);
    for (size_t k = 0; k < std::max(parts.products.size(), parts.sources); ++k)
      squares_.push_back(b_.alloc(parts.tile * parts.block * 4, 64));
  }

  void clear_line(int number, Expr line) override {
    const Lines& o = operands_[number];
    if (o.padded != operand(number).width)
      b_.store(o.lines, b_.real(0, vector()), bytes(line, o.padded) + (o.padded - lanes_) * 4, line_);
  }
  void put(int number, Expr line, Expr at, Expr numbers, Expr count) override {
    const Lines& o = operands_[number];
    b_.store(o.lines, cast(numbers, Scalar::f32), bytes(line * o.padded + at, 1), 4, count);
  }
  // Transposes: keys become lanes.
  void finish(int number, Expr count) override {
    const Lines& o = operands_[number];
    if (o.transposed < 0) return;
    serial(b_.i64(0), count, lanes_, [&](Expr key) {
      serial(b_.i64(0), b_.i64(o.padded), lanes_, [&](Expr at) {
        std::vector<Expr> square;
        for (int j = 0; j < lanes_; ++j)
          square.push_back(b_.load(o.lines, vector(), bytes((key + j) * o.padded + at, 1), line_));
        transpose(b_, square);
        for (int l = 0; l < lanes_; ++l)
          b_.store(o.transposed, square[l], bytes((at + l) * parts_->block + key, 1), line_);
      });
    });
  }

  Place square(size_t number, Expr row, Expr key) override {
    return {squares_[number], bytes(row * parts_->block + key, 1)};
  }
  bool reads_beside() const override { return false; }

  void multiply(size_t k, Expr rows, Expr from, Expr to) override {
    const auto [of_rows, of_keys] = parts_->products[k];
    const Lines &q = operands_[of_rows], &t = operands_[of_keys];
    serial(from - from % panel(), to, panel(), [&](Expr column) {
      multiply({squares_[k], b_.i64(0), parts_->block}, {q.lines, q.padded, 1}, {t.transposed, parts_->block},
               b_.i64(0), rows, b_.i64(0), b_.i64(operand(of_rows).width), column, kVectors, false);
    });
  }
  void take_sources(Expr, Expr, Expr) override {}

  void clear_sums(size_t number) override {
    const bool over_keys = result(number).over_keys;
    const int64_t count = over_keys ? head_bytes(number) / 4 : parts_->block * sum_width(number);
    const Expr from = over_keys ? sum(number, b_.i64(0), b_.i64(0)).byte : b_.i64(0);
    serial(b_.i64(0), b_.i64(count), lanes_,
           [&](Expr at) { b_.store(sums_[number], b_.real(0, vector()), from + bytes(at, 1), line_); });
  }
  Place sum(size_t number, Expr line, Expr column) override {
    if (result(number).over_keys) line = head_ * (parts_->tiles * parts_->tile) + line;
    return {sums_[number], bytes(line, sum_width(number)) + bytes(column, 1)};
  }

  void add(size_t number, Expr first, Expr rows, Expr from, Expr to) override {
    const GradientResult& r = result(number);
    const Lines& o = operands_[r.operand];
    const int64_t block = parts_->block;
    for (int64_t e = 0; e < o.padded;) {
      int vectors = kVectors;
      while (e + int64_t{vectors} * lanes_ > o.padded) vectors /= 2;
      const int64_t step = int64_t{vectors} * lanes_, last = e + (o.padded - e) / step * step;
      serial(b_.i64(e), b_.i64(last), step, [&](Expr column) {
        if (r.over_keys) {
          multiply({sums_[number], sum(number, first, b_.i64(0)).byte, o.padded}, {squares_[r.source], block, 1},
                   {o.lines, o.padded}, b_.i64(0), rows, from, to, column, vectors, true);
        } else {
          multiply({sums_[number], b_.i64(0), o.padded}, {squares_[r.source], 1, block}, {o.lines, o.padded}, from, to,
                   b_.i64(0), rows, column, vectors, true);
        }
      });
      e = last;
    }
  }

 private:
  static constexpr int kVectors = 2;
  int64_t panel() const { return int64_t{kVectors} * lanes_; }
  VType vector() const { return {Scalar::f32, lanes_}; }
  static Expr bytes(Expr i, int64_t stride) { return i * (stride * 4); }
  void serial(Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body) {
    b_.loop(LoopKind::serial, from, to, step, body);
  }

  struct Lines {
    int64_t padded = 1;
    BufferId lines = -1, transposed = -1;
  };

  // c[i, column ..] (+)= sum over n of a[i, n] b[n, column ..], i in steps of together_ (lines beyond the last are
  // computed, too: buffers hold whole steps).
  struct Sums {
    BufferId buffer;
    Expr offset;  // bytes
    int64_t stride;
  };
  struct Numbers {
    BufferId buffer;
    int64_t line, step;
  };
  struct Vectors {
    BufferId buffer;
    int64_t stride;
  };
  void multiply(Sums c, Numbers a, Vectors v, Expr first, Expr end, Expr from, Expr to, Expr column, int vectors,
                bool adds) {
    serial(first, end, together_, [&](Expr i) {
      Accumulators sums(b_, g_, {root_}, lanes_, together_ * vectors);
      const auto place = [&](int r, int w) {
        return c.offset + bytes((i + r) * c.stride + column + int64_t{w} * lanes_, 1);
      };
      for (int r = 0; r < together_; ++r)
        for (int w = 0; w < vectors; ++w)
          sums.put(r * vectors + w, adds ? b_.load(c.buffer, vector(), place(r, w), line_) : b_.real(0, vector()));
      serial(from, to, 1, [&](Expr n) {
        std::vector<Expr> x;
        for (int w = 0; w < vectors; ++w)
          x.push_back(b_.load(v.buffer, vector(), bytes(n * v.stride + column + int64_t{w} * lanes_, 1), line_));
        for (int r = 0; r < together_; ++r) {
          const Expr at = bytes((i + r) * a.line + n * a.step, 1);
          const Expr y = b_.splat(b_.load(a.buffer, {Scalar::f32, 1}, at, 4), lanes_);
          for (int w = 0; w < vectors; ++w) sums.multiply_add(r * vectors + w, y, x[w], fused_);
        }
      });
      for (int r = 0; r < together_; ++r)
        for (int w = 0; w < vectors; ++w) b_.store(c.buffer, sums.get(0, r * vectors + w), place(r, w), line_);
    });
  }

  Builder& b_;
  const graph::Graph& g_;
  graph::ValueId root_;
  int lanes_, line_;
  bool fused_;
  int together_;
  std::vector<Lines> operands_;
  std::vector<BufferId> squares_;
};

}  // namespace

std::unique_ptr<GradientPanels> vector_panels(Builder& b, const graph::Graph& g, graph::ValueId root,
                                              const machine::Machine& target) {
  return std::make_unique<VectorPanels>(b, g, root, target);
}

}  // namespace lumen::synth
