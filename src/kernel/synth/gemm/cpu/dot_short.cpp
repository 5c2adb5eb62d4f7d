// Low and high bytes for a vector of codes are looked up in tables and interleaved, sixteen at a time, into two vectors
// of words. With few codes the words themselves are looked up, those of the even and those of the odd codes.
// Activations lie in scratch in that order.
#include "kernel/synth/gemm/cpu/dot_short.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernel/synth/gemm/cpu/product_writer.h"
#include "kernel/synth/gemm/operand/operand_step.h"
#include "kernel/synth/order/lane_order.h"
#include "number/formula/scalar.h"

namespace lumen::synth {
namespace {

constexpr int kPiece = 16;       // low and high bytes that are interleaved at once
constexpr size_t kOddCodes = 2;  // exceptions to the sign symmetry that are still worth it
constexpr int kMostGroups = 16;  // of a unit
constexpr uint16_t kSign = 0x8000;

bool same_number(uint16_t a, uint16_t b) {
  return a == b || (std::isnan(bf16_to_f32(a)) && std::isnan(bf16_to_f32(b)));
}

std::string lookup_of_words(int lanes) {
  return fmt::format("lookup{}.u16x{}", lanes, lanes);
}

// Codes with the top bit whose number is not the negative of the one without it.
std::vector<size_t> odd_codes(const std::vector<uint16_t>& table) {
  std::vector<size_t> odd;
  for (size_t i = table.size() / 2; i < table.size(); ++i)
    if (!same_number(table[i], table[i - table.size() / 2] ^ kSign)) odd.push_back(i);
  return odd;
}

// Lanes of a vector of `lanes` codes that the words of half 0 or 1 hold.
std::vector<int> lanes_of_half(const ShortDot& d, int lanes, int half) {
  std::vector<int> out;
  for (int lane = half; d.whole_words && lane < lanes; lane += 2) out.push_back(lane);
  for (int piece = 0; !d.whole_words && piece < lanes; piece += kPiece)
    for (int i = 0; i < kPiece / 2; ++i) out.push_back(piece + half * kPiece / 2 + i);
  return out;
}

// Vectors of codes as vectors of their words, one half after the other.
LaneOrder in_halves(LaneOrder order, const ShortDot& d, int lanes) {
  for (std::vector<int64_t>& vector : order.vectors) {
    std::vector<int64_t> words;
    for (int half = 0; half < 2; ++half)
      for (const int lane : lanes_of_half(d, lanes, half)) words.push_back(vector[lane]);
    vector = words;
  }
  return order;
}

class ShortKernel : ProductWriter {
 public:
  ShortKernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const ShortDot& d,
              const machine::Machine& m, const RowOrder& order, const OperandLayout& layout, const OperandScratch& s)
      : ProductWriter(g, p, t, m),
        t_(t),
        m_(m),
        d_(d),
        order_(order),
        layout_(layout),
        x_(declare_params(w_, layout, s, false).codes) {}

  Step write(std::string plan) {
    const auto declare = [&] {
      for (int i = 0; i < t_.height * t_.width * t_.chains; ++i) sums_.push_back(b_.alloc(d_.row.lanes * 4));
      words_ = b_.alloc(layout_.lanes);
      if (!t_.fills_panel()) return;
      panel_ = b_.alloc(layout_.codes() * std::ssize(d_.parts) * t_.width * scalar_bytes(d_.row.a));
      if (!d_.whole_rows) panel_scales_ = b_.alloc((layout_.groups() + d_.row.lanes) * t_.width * 4);
    };
    const auto enter = [&](Expr n) {
      if (t_.fills_panel()) fill_panel(n);
    };
    return ProductWriter::write(std::move(plan), declare, enter, [&](Expr n) { write_columns(n); });
  }

 private:
  // A unit of the row order, or the rest, which has the number after the last unit.
  struct Unit {
    const LaneOrder& order;
    Expr number;
  };
  // Where it begins among blocks of a row of b, codes and groups.
  Expr block_of(const Unit& u) const { return u.number * (order_.unit.elements / p_.loads[1].format->block); }
  Expr code_of(const Unit& u) const { return u.number * layout_.unit_codes(); }
  Expr group_of(const Unit& u) const { return u.number * layout_.unit_groups(); }
  void each_unit(const std::function<void(const Unit&)>& body);
  void enter_columns(Expr n);
  void read_row_scales();
  void enter_unit(const Unit& u, int j);
  void fill_panel(Expr n);
  void write_columns(Expr n);
  void multiply_unit(const Unit& u);
  std::vector<Expr> weights(Unpack& cursor, std::vector<int64_t> elements);
  Expr bytes_of(const std::vector<uint16_t>& table, int shift, Expr codes, const std::vector<size_t>& odd);
  Expr as_words(Expr low, Expr high, int half);
  Expr words_of(const std::vector<uint16_t>& table, Expr codes, int half, const std::vector<int64_t>& keep);
  std::vector<int> groups_of(const std::vector<int64_t>& vector, int half) const;
  Expr place_in_panel(const Unit& u, int64_t v, int half, int64_t part, int j) const {  // byte
    const int64_t bytes = scalar_bytes(d_.row.a), parts = std::ssize(d_.parts), width = t_.width;
    const int64_t vector = ((v * 2 + half) * parts + part) * width + j;
    return code_of(u) * (parts * width * bytes) + vector * (layout_.lanes / 2 * bytes);
  }
  Expr place_of_scales(const Unit& u, int j) const {
    return group_of(u) * (t_.width * 4) + int64_t{j} * groups_in(u) * 4;
  }
  int groups_in(const Unit& u) const { return (u.order.elements + layout_.sum_group - 1) / layout_.sum_group; }
  BufferId sum_at(int i, int j, int chain) const { return sums_[(i * t_.width + j) * t_.chains + chain]; }
  Expr read(BufferId sum) { return b_.load(sum, {Scalar::f32, d_.row.lanes}, w_.i64(0), 4); }

  const RowsPlan& t_;
  const machine::Machine& m_;
  const ShortDot& d_;
  const RowOrder& order_;  // of codes
  const OperandLayout& layout_;
  const BufferId x_;
  BufferId words_ = -1, panel_ = -1, panel_scales_ = -1;
  std::vector<BufferId> sums_;
  std::vector<std::unique_ptr<Unpack>> cursors_;
  std::vector<Expr> first_blocks_, row_scales_;
  Expr x_first_;  // element of scratch
};

// One byte of the numbers. A mirrored table has only codes without the top bit; `odd`: codes whose number the sign does
// not give.
Expr ShortKernel::bytes_of(const std::vector<uint16_t>& table, int shift, Expr codes, const std::vector<size_t>& odd) {
  const VType bytes = b_.type(codes);
  const bool mirrored = table.size() == 256 && odd.size() <= kOddCodes;
  std::vector<int64_t> entries;
  for (size_t i = 0; i < (mirrored ? table.size() / 2 : table.size()); ++i) entries.push_back(table[i] >> shift & 255);
  Expr found = look_up_bytes(b_, entries, codes, m_);
  if (!mirrored) return found;
  const Expr top = b_.integer(kSign >> 8, bytes);
  if (shift == 8) found = found ^ (codes & top);
  for (const size_t i : odd) {
    const Expr is_odd = codes == static_cast<int64_t>(i);
    found = select(is_odd, b_.integer(table[i] >> shift & 255, bytes), found);
  }
  return found;
}

Expr ShortKernel::as_words(Expr low, Expr high, int half) {
  std::vector<int> mask;
  for (const int lane : lanes_of_half(d_, layout_.lanes, half)) {
    mask.push_back(lane);
    mask.push_back(layout_.lanes + lane);
  }
  b_.store(words_, b_.shuffle({low, high}, mask), w_.i64(0), 4);
  return b_.load(words_, {d_.row.a, layout_.lanes / 2}, w_.i64(0), 4);
}

// The words of every other code. A word of two codes is a valid index after a shift, because only its low bits count.
Expr ShortKernel::words_of(const std::vector<uint16_t>& table, Expr codes, int half, const std::vector<int64_t>& keep) {
  const int lanes = layout_.lanes / 2;
  const VType words{Scalar::u16, lanes};
  b_.store(words_, codes, w_.i64(0), 4);
  Expr index = b_.load(words_, words, w_.i64(0), 4);
  if (half == 1) index = index >> 8;
  std::vector<int64_t> entries, mask;
  for (size_t i = 0; i < static_cast<size_t>(lanes); ++i) entries.push_back(table[i % table.size()]);
  Expr found = b_.inst(lookup_of_words(lanes), words, {b_.lanes_integer(entries, Scalar::u16), index});
  for (const int lane : lanes_of_half(d_, layout_.lanes, half)) mask.push_back(keep[lane] == 0 ? 0 : 0xffff);
  if (std::count(mask.begin(), mask.end(), 0) > 0) found = found & b_.lanes_integer(mask, Scalar::u16);
  return bitcast(found, d_.row.a);
}

// Words of the elements: the two halves for each part.
std::vector<Expr> ShortKernel::weights(Unpack& cursor, std::vector<int64_t> elements) {
  const int64_t some = *std::max_element(elements.begin(), elements.end());
  std::vector<int64_t> keep;
  for (int64_t& e : elements) {
    keep.push_back(e < 0 ? 0 : 255);
    e = e < 0 ? some : e;
  }
  const int lanes = layout_.lanes;
  Expr codes = cursor.codes(d_.code_field, elements, true, &m_);
  if (b_.type(codes).lanes == 1) codes = b_.splat(codes, lanes);
  std::vector<Expr> out;
  for (const std::vector<uint16_t>& table : d_.parts) {
    if (d_.whole_words) {
      for (int half = 0; half < 2; ++half) out.push_back(words_of(table, codes, half, keep));
      continue;
    }
    const std::vector<size_t> odd = odd_codes(table);
    Expr low = bytes_of(table, 0, codes, odd), high = bytes_of(table, 8, codes, odd);
    if (std::count(keep.begin(), keep.end(), 0) > 0) {  // lanes without an element become zero: their words may be NaN
      const Expr mask = b_.lanes_integer(keep, Scalar::u8);
      low = low & mask;
      high = high & mask;
    }
    for (int half = 0; half < 2; ++half) out.push_back(as_words(low, high, half));
  }
  return out;
}

// Group of each lane of the sums.
std::vector<int> ShortKernel::groups_of(const std::vector<int64_t>& vector, int half) const {
  std::vector<int> groups;
  const std::vector<int> lanes = lanes_of_half(d_, layout_.lanes, half);
  for (size_t lane = 0; lane < lanes.size(); lane += d_.row.k)
    groups.push_back(std::max<int64_t>(vector[lanes[lane]], 0) / layout_.sum_group);
  return groups;
}

void ShortKernel::enter_unit(const Unit& u, int j) {
  const int64_t block = p_.loads[1].format->block;
  cursors_[j]->enter_block(first_blocks_[j] + block_of(u), u.order.elements / block);
}

void ShortKernel::fill_panel(Expr n) {
  enter_columns(n);
  each_unit([&](const Unit& u) {
    for (int j = 0; j < t_.width; ++j) {
      enter_unit(u, j);
      if (!d_.whole_rows)
        b_.store(panel_scales_, lanes_by_group(b_, *cursors_[j], *d_.form.scale, layout_.sum_group, u.order.elements),
                 place_of_scales(u, j), 4);
      for (size_t v = 0; v < u.order.vectors.size(); ++v) {
        const std::vector<Expr> w = weights(*cursors_[j], u.order.vectors[v]);
        for (size_t i = 0; i < w.size(); ++i)
          b_.store(panel_, w[i], place_in_panel(u, v, i % 2, i / 2, j), layout_.lanes / 2 * scalar_bytes(d_.row.a));
      }
    }
  });
  read_row_scales();
}

void ShortKernel::multiply_unit(const Unit& u) {
  const VType sums{Scalar::f32, d_.row.lanes};
  const int half_lanes = layout_.lanes / 2, width = t_.width;
  if (!t_.fills_panel()) enter_unit(u, 0);
  const Expr x = x_first_ + code_of(u);
  const auto activations = [&](int i, size_t v, int half) {
    const Expr at = x + (i * layout_.codes() + (static_cast<int64_t>(v) * 2 + half) * half_lanes);
    return b_.load(x_, {d_.row.b, half_lanes}, at * scalar_bytes(d_.row.b), scalar_bytes(d_.row.b));
  };
  std::vector<Expr> scales;
  for (int j = 0; j < width; ++j) {
    if (d_.whole_rows) continue;
    scales.push_back(t_.fills_panel()
                         ? b_.load(panel_scales_, {Scalar::f32, groups_in(u)}, place_of_scales(u, j), 4)
                         : lanes_by_group(b_, *cursors_[j], *d_.form.scale, layout_.sum_group, u.order.elements));
  }
  // Products of vectors whose lanes lie in the same groups are added before they are scaled.
  std::vector<Expr> open;
  std::vector<int> group;
  const auto close = [&] {
    if (open.empty()) return;
    std::vector<Expr> by_lane;
    for (const Expr s : scales)
      by_lane.push_back(b_.type(s).lanes == 1 ? b_.splat(s, d_.row.lanes) : b_.shuffle({s}, group));
    for (int i = 0; i < t_.height; ++i)
      for (int j = 0; j < width; ++j)
        b_.store(sum_at(i, j, 0), fma(open[i * width + j], by_lane[j], read(sum_at(i, j, 0))), w_.i64(0), 4);
    open.clear();
  };
  for (size_t v = 0; v < u.order.vectors.size(); ++v) {
    std::vector<std::vector<Expr>> w;  // by column: the two halves for each part
    for (int j = 0; j < width && !t_.fills_panel(); ++j) w.push_back(weights(*cursors_[j], u.order.vectors[v]));
    for (int half = 0; half < 2; ++half) {
      if (!d_.whole_rows)
        if (const std::vector<int> here = groups_of(u.order.vectors[v], half); here != group || open.empty()) {
          close();
          group = here;
          open.assign(size_t{1} * t_.height * width, w_.zero(d_.row.lanes));
        }
      std::vector<std::vector<Expr>> words(width);
      for (int j = 0; j < width; ++j)
        for (size_t part = 0; part < d_.parts.size(); ++part)
          words[j].push_back(t_.fills_panel()
                                 ? b_.load(panel_, {d_.row.a, half_lanes}, place_in_panel(u, v, half, part, j),
                                           half_lanes * scalar_bytes(d_.row.a))
                                 : w[j][part * 2 + half]);
      for (int i = 0; i < t_.height; ++i) {
        const Expr a = activations(i, v, half);
        for (int j = 0; j < width; ++j) {
          const BufferId to = sum_at(i, j, static_cast<int>(v * 2 + half) % t_.chains);
          Expr total = d_.whole_rows ? read(to) : open[i * width + j];
          for (const Expr word : words[j]) total = b_.inst(d_.row.row, sums, {total, word, a});
          if (d_.whole_rows)
            b_.store(to, total, w_.i64(0), 4);
          else
            open[i * width + j] = total;
        }
      }
    }
  }
  close();
}

void ShortKernel::enter_columns(Expr n) {
  const DotLoad& load = p_.loads[1];
  cursors_.clear();
  first_blocks_.clear();
  for (int j = 0; j < t_.width; ++j) {
    const Expr element = row_of_b(n + j);
    cursors_.push_back(cursor_of_b());
    cursors_.back()->enter_tensor();
    cursors_.back()->enter_row(element / load.columns);
    first_blocks_.push_back(element / load.format->block);
  }
}

void ShortKernel::read_row_scales() {
  row_scales_.clear();
  for (int j = 0; d_.whole_rows && d_.form.scale && j < t_.width; ++j) {
    cursors_[j]->enter_block(first_blocks_[j], 1);
    row_scales_.push_back(cursors_[j]->expression(*d_.form.scale, 0, 1, false));
  }
}

void ShortKernel::each_unit(const std::function<void(const Unit&)>& body) {
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(order_.units), 1, [&](Expr unit) { body({order_.unit, unit}); });
  if (order_.rest.elements > 0) body({order_.rest, w_.i64(order_.units)});
}

void ShortKernel::write_columns(Expr n) {
  for (const BufferId s : sums_) b_.store(s, w_.zero(d_.row.lanes), w_.i64(0), 4);
  if (!t_.fills_panel()) enter_columns(n);
  x_first_ = w_.laid_row(outer_, p_.m.extent) * layout_.codes();
  each_unit([&](const Unit& u) { multiply_unit(u); });
  if (!t_.fills_panel()) read_row_scales();
  const auto sum = [&](int i, int j) {
    Expr all = read(sum_at(i, j, 0));
    for (int chain = 1; chain < t_.chains; ++chain) all = all + read(sum_at(i, j, chain));
    return all;
  };
  const auto scaled = [&](Expr total, int j) { return row_scales_.empty() ? total : total * row_scales_[j]; };
  if (t_.fills_panel()) return finish(n, sum, scaled);
  for (int i = 0; i < t_.height; ++i) w_.finish_vector(scaled(b_.fold(ScalarOp::add_, sum(i, 0)), 0), w_.i64(i), n, {});
}

// Numbers as sums of 16-bit floats; nullopt if one is too small or too large for them.
std::optional<std::vector<std::vector<uint16_t>>> short_parts(const std::vector<double>& values) {
  std::vector<std::vector<uint16_t>> parts(2);
  for (const double v : values) {
    const uint16_t high = f32_to_bf16(static_cast<float>(v));
    const double near = bf16_to_f32(high);
    const uint16_t low = std::isfinite(v) ? f32_to_bf16(static_cast<float>(v - near)) : uint16_t{0};
    if (std::isfinite(v) != std::isfinite(near)) return std::nullopt;
    for (const double x : {near, double{bf16_to_f32(low)}})
      if (x != 0 && std::isfinite(x) && std::fabs(x) < 0x1p-126) return std::nullopt;  // dots flush these to zero
    parts[0].push_back(high);
    parts[1].push_back(low);
  }
  if (std::all_of(parts[1].begin(), parts[1].end(), [](uint16_t x) { return (x & ~kSign) == 0; })) parts.pop_back();
  return parts;
}

}  // namespace

std::optional<ShortDot> factor_short(const Format& f, const machine::Machine& m, std::string* why) {
  const FormatFacts facts = facts_of(f);
  const auto codes = facts.scaled && !facts.scaled->offset ? values_by_code(f, facts.scaled->value) : std::nullopt;
  const auto parts = codes ? short_parts(codes->values) : std::nullopt;
  if (!parts) {
    *why = "not numbers by code";
    return std::nullopt;
  }
  ShortDot d{*facts.scaled, {}, codes->field, *parts, false, false};
  d.whole_rows = !d.form.scale || is_constant_in_row(f, *d.form.scale);
  for (const machine::DotRow& row : m.dots) {
    const int words = row.lanes * row.k;
    if (row.a != Scalar::bf16 || row.b != Scalar::bf16 || row.acc != Scalar::f32 || !row.accumulates) continue;
    if (2 * words % kPiece != 0 || kPiece / 2 % row.k != 0) continue;
    if (!looks_up_bytes(codes->values.size(), 2 * words, m)) continue;
    if (!d.whole_rows && d.form.group % row.k != 0) continue;
    d.row = row;
    d.whole_words = std::ssize(codes->values) <= words && m.find_row(lookup_of_words(words)) &&
                    (d.whole_rows || d.form.group % (2 * row.k) == 0);
    return d;
  }
  *why = "no dot of short floats";
  return std::nullopt;
}

void write_short_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& rows, const ShortDot& d,
                         const machine::Machine& m, bool invariant, Synthesis& out) {
  RowsPlan t = rows.single();
  // Sums of groups are independent already.
  t.chains = !d.whole_rows ? 1 : invariant ? 2 : std::clamp(8 / t.height, 1, 4);
  OperandLayout layout;
  layout.type = d.row.b;
  layout.rows = p.rows_of_a();
  layout.columns = p.k.extent;
  layout.lanes = 2 * d.row.lanes * d.row.k;
  const int run = d.whole_words ? 2 * d.row.k : d.row.k;
  const int64_t group = d.whole_rows ? layout.lanes : std::gcd<int64_t>(d.form.group, layout.lanes);
  const RowOrder order = choose_order(*p.loads[1].format, p.k.extent, layout.lanes, run, group, kMostGroups);
  layout.order = {in_halves(order.unit, d, layout.lanes), in_halves(order.rest, d, layout.lanes), order.units};
  if (!d.whole_rows) layout.sum_group = std::gcd(d.form.group, layout.order.unit.elements);
  const OperandScratch s = write_operand_step(g, p, layout, m, out);
  out.steps.push_back(ShortKernel(g, p, t, d, m, order, layout, s)
                          .write(fmt::format("{} rows {}x{} task {} activations {} {}", describe_shape(p), t.height,
                                             t.width, t.n_task * t.width, scalar_name(d.row.b), d.row.row)));
}

}  // namespace lumen::synth
