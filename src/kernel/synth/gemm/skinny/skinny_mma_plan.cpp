// See skinny_mma_plan.h.
#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "base/round_up.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "kernel/synth/mma/fragment_digits.h"

namespace lumen::synth {
namespace {

constexpr int64_t kLeastRows = 2, kMostRows = 32;
constexpr int64_t kBlockLanes = 512;
constexpr int64_t kMostTiles = 8, kMostParts = 16;  // of a block: tiles down, parts of K
constexpr int64_t kShortUnit = 128, kFewColumns = 16;
constexpr int64_t kLongestUnit = 1024;  // elements: straight-line code
constexpr int64_t kAlignedUnit = 256;   // the same of a unit that is enlarged to whole words
constexpr int64_t kLane = 16;           // least bytes that a lane takes at once of formats without blocks
constexpr int64_t kTogether = 8;        // contiguous activations of a lane
constexpr int64_t kStage = 16 << 10;    // bytes, at least
constexpr int kMostBuffers = 4, kLeastBuffers = 3;
constexpr int kPlainBuffers = 2;    // if copies are loads and stores: nothing is in flight
constexpr int64_t kMostTall = 128;  // rows, with asynchronous copies: not measured without
constexpr int64_t kLeastTallWaves =
    8;                          // of a block, on half of all units: otherwise block kernels are faster (measured)
constexpr int64_t kTall = 256;  // elements of a lane, of all rows of a wave: straight-line code
constexpr int64_t kWord = 4, kBankBytes = 128;
constexpr int64_t kLeastOfPairs = 8;  // elements looked up together

int64_t value_of(const FragmentDigits::Digits& digits, int64_t lane, bool counts) {
  int64_t out = 0;
  for (const auto& d : digits) {
    if (d.lanes == 0) continue;
    const int64_t digit = lane / d.lanes % d.extent;
    out = counts ? out * d.extent + digit : out + digit * d.weight;
  }
  return out;
}

// Cycles to bring `bytes` to each lane of a wave, with bank conflicts.
int conflicts(const SkinnyMmaPlan& t, const FragmentDigits& held, int64_t pitch, int64_t bytes) {
  int cycles = 0;
  const int64_t together = kBankBytes / bytes;
  for (int64_t first = 0; first < t.wave; first += together) {
    std::map<int64_t, std::set<int64_t>> banks;
    for (int64_t lane = first; lane < std::min<int64_t>(t.wave, first + together); ++lane) {
      const int64_t byte =
          value_of(held.rows, lane, false) * pitch + value_of(held.columns, lane, true) * t.order.lane_bytes;
      for (int64_t at = byte / kWord; at < (byte + bytes) / kWord; ++at) banks[at % (kBankBytes / kWord)].insert(at);
    }
    size_t most = 0;
    for (const auto& [bank, words] : banks) most = std::max(most, words.size());
    cycles += most;
  }
  return cycles;
}

class Chooser {
 public:
  Chooser(const DotProblem& p, const machine::Machine& m) : p_(p), m_(m) {}

  std::vector<SkinnyMmaPlan> choose() {
    std::vector<SkinnyMmaPlan> out;
    for (const machine::MatrixRow* row : rows()) {
      SkinnyMmaPlan t;
      t.row = row;
      t.wave = m_.wave;
      t.columns = ceil_div(p_.m.extent, row->n) * row->n;
      t.rows_anywhere = p_.blocks.has_value();
      t.rows = p_.blocks ? p_.blocks->rows + t.columns : p_.outer_extent() * t.columns;
      t.lanes_k = FragmentDigits::lanes_extent(FragmentDigits::of(row->collective->operands[1].fragment).columns);
      if (!find_unit(t)) continue;
      for (const auto& [tiles, waves_n, waves_k] : shapes(t)) {
        t.tiles = tiles;
        t.waves_n = waves_n;
        t.waves_k = waves_k;
        if (SkinnyMmaPlan laid = t; lay_out(laid) && has_waves(laid)) out.push_back(std::move(laid));
      }
      if (!out.empty()) break;
    }
    return out;
  }

  bool unit(SkinnyMmaPlan& t) const { return find_unit(t); }

 private:
  // Those of f16 first, then those with the largest K; rows of the weight are their rows.
  std::vector<const machine::MatrixRow*> rows() const {
    std::vector<const machine::MatrixRow*> out;
    const machine::Factor f16{Scalar::f16, {}}, bf16{Scalar::bf16, {}};
    for (const machine::MatrixRow& r : m_.matrices)
      if (!r.in_shared && r.scale_group == 0 && r.acc == Scalar::f32 && (r.a == f16 || r.a == bf16) && r.b == r.a &&
          r.m == 16 && r.n <= 16 && r.collective->lanes == m_.wave)
        out.push_back(&r);
    std::sort(out.begin(), out.end(), [&](const auto* x, const auto* y) {
      return std::pair(x->a == f16, x->k) > std::pair(y->a == f16, y->k);
    });
    return out;
  }

  // Elements of a lane, in straight-line code, for which there are registers: if few lanes share a row, each scales
  // sums of many rows.
  static int64_t most_own(const SkinnyMmaPlan& t) { return t.lanes_k < 4 ? 64 : 128; }

  bool find_unit(SkinnyMmaPlan& t) const {
    const DotLoad& b = p_.loads[1];
    const Scalar to = t.row->a.scalar;
    const int64_t share = t.row->k / t.lanes_k, multiple = std::max(share, kTogether);
    if (!b.format) {
      t.factor.kind = FactorForm::Kind::plain;
      t.factor.from = t.factor.to = b.scalar;
      if (to != b.scalar) return false;
      t.order = {multiple * t.lanes_k, multiple * t.lanes_k, {}, multiple, multiple * scalar_bytes(b.scalar), {0}};
      for (int64_t e = 0; e < multiple; ++e) t.order.elements.push_back(e);
      return finish_unit(t);
    }
    const Format& f = *b.format;
    if (!facts_of(f).scaled) return false;
    t.factor = factor_form(f, m_, true);
    if (t.factor.to == to && t.factor.kind != FactorForm::Kind::decoded && find_groups(t, share) && finish_unit(t))
      return true;
    // Scales do not match the instruction's steps: every lane has its own blocks.
    t.factor = factor_form(f, m_, false);
    if (t.factor.to != to) return false;
    t.order = order_of_blocks(f, std::lcm(f.block, multiple), t.lanes_k);
    return t.order.unit <= kLongestUnit && finish_unit(t);
  }

  // Units of whole words if possible, shared by lanes group by group.
  bool find_groups(SkinnyMmaPlan& t, int64_t share) const {
    const Format& f = *p_.loads[1].format;
    const auto& form = t.factor;
    const int64_t own_bits = f.fields[form.field].type.bits * f.block;
    int64_t least = std::lcm(f.block, t.lanes_k * std::max(share, kTogether));
    if (f.block == 1) least = std::max(least, t.lanes_k * kLane * 8 / own_bits);
    for (const bool aligned : {true, false})
      for (int64_t unit = least; unit <= (aligned ? std::max(least, kAlignedUnit) : kLongestUnit); unit += least) {
        if (unit > kLongestUnit || p_.k.extent % unit != 0 || unit / t.lanes_k > most_own(t)) continue;
        if (aligned && unit / f.block * f.block_bytes % kWord != 0) continue;
        const int64_t group = form.scaled.scale || form.scaled.offset ? std::gcd(form.scaled.group, unit) : unit;
        const bool pairs = form.kind == FactorForm::Kind::pairs;
        if (auto order = order_of_codes(f, form.field, unit, group, t.lanes_k, share, !pairs, form.in_pairs(f))) {
          t.order = std::move(*order);
          if (pairs && t.order.of_group() % kLeastOfPairs != 0) t.factor.kind = FactorForm::Kind::values;
          return (t.order.of_group() % kTogether == 0 || kTogether % t.order.of_group() == 0) &&
                 t.order.of_group() % 4 == 0;
        }
      }
    return false;
  }

  bool finish_unit(SkinnyMmaPlan& t) const {
    if (p_.k.extent % t.order.unit != 0 || t.order.unit / t.lanes_k > most_own(t)) return false;
    t.unit_bytes = WeightCopies::bytes_of(p_, t.order.unit);
    t.units = p_.k.extent / t.order.unit;
    t.row_bytes = WeightCopies::bytes_of(p_, p_.k.extent);
    t.places.clear();
    if (p_.loads[1].format)
      for (int64_t g = 0; g < t.groups(); ++g) {
        const auto from = t.order.elements.begin() + g * t.order.of_group();
        const auto more = code_places(*p_.loads[1].format, t.factor, {from, from + t.order.of_group()});
        t.places.insert(t.places.end(), more.begin(), more.end());
      }
    if (std::all_of(t.places.begin(), t.places.end(), [](int place) { return place == 0; })) t.places.clear();
    return true;
  }

  struct Shape {
    int tiles, waves_n, waves_k;
  };
  // Rows of the weight per block, so that blocks fill the machine evenly: as many as leave a block for each
  // multiprocessor, because every block reads the activations.
  std::vector<Shape> shapes(const SkinnyMmaPlan& t) const {
    const int64_t all = p_.outer_extent() * ceil_div(p_.n.extent, t.row->m);
    const int64_t even = ceil_div(all, m_.units * ceil_div(all, m_.units * kMostTiles));
    std::vector<Shape> out;
    const auto add = [&](int64_t rows, int tiles, int64_t waves) {
      if (rows % tiles != 0) return;
      const int64_t waves_n = rows / tiles,
                    waves_k = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(waves / waves_n, 1)));
      const Shape s{tiles, static_cast<int>(waves_n), static_cast<int>(std::min(waves_k, kMostParts))};
      const auto same = [&](const Shape& o) {
        return o.tiles == s.tiles && o.waves_n == s.waves_n && o.waves_k == s.waves_k;
      };
      if (std::none_of(out.begin(), out.end(), same)) out.push_back(s);
    };
    const int64_t waves = kBlockLanes / m_.wave;
    // Measured: waves that have all rows of their part of K read activations from shared memory once. Elsewhere code
    // generators need more registers than there are.
    for (const int64_t rows : {even, int64_t{8}})
      if (m_.async_copies && rows * t.order.unit / t.lanes_k <= kTall) add(rows, rows, waves / 2);
    // Measured: for up to two columns of tiles, two tiles a wave are best, if there are blocks enough for that.
    const bool wide = t.unit_bytes >= t.order.unit;
    const int64_t rows_of_two = wide ? 4 : 8;
    if (t.columns <= kFewColumns && all / rows_of_two >= m_.units * 4 / 5 * (wide ? 2 : 1))
      add(rows_of_two, 2, wide ? waves / 2 : waves);
    const bool few = t.order.unit <= kShortUnit;  // two tiles of such units leave registers for others
    add(even, few && even % 2 == 0 ? 2 : 1, waves);
    for (const int64_t rows : {even, int64_t{8}, int64_t{4}, int64_t{2}})
      for (const int tiles : {1, 2})
        for (const int64_t many : {waves, waves / 2}) add(rows, tiles, many);
    return out;
  }

  bool has_waves(const SkinnyMmaPlan& t) const {
    const int64_t blocks = p_.outer_extent() * ceil_div(p_.n.extent, t.block_rows());
    return t.columns <= kMostRows || (int64_t{t.waves_n} * t.waves_k >= kLeastTallWaves && 2 * blocks >= m_.units);
  }

  bool lay_out(SkinnyMmaPlan& t) const {
    while (t.waves_k > 1 && t.waves_k > t.units) t.waves_k /= 2;
    for (;;) {
      t.deep = 1;
      if (fits(t)) {
        while (m_.async_copies && t.block_rows() * t.chunk() < kStage && 2 * t.stage_units() <= t.units) {
          SkinnyMmaPlan deeper = t;
          deeper.deep *= 2;
          if (!fits(deeper)) break;
          t = deeper;
        }
        return true;
      }
      // Panels of many rows of a are larger than the weight's stages: reduces the number of parts of K.
      const bool tall = t.columns > kMostRows && t.panel_bytes() > t.stage_bytes();
      if (t.waves_k > 1 && (t.waves_k >= t.waves_n || tall))
        t.waves_k /= 2;
      else if (t.waves_n > 1)
        t.waves_n /= 2;
      else if (t.tiles > 1)
        t.tiles = 1;
      else
        return false;
    }
  }

  bool fits(SkinnyMmaPlan& t) const {
    const FragmentDigits held = FragmentDigits::of(t.row->collective->operands[1].fragment);
    t.vector = WeightCopies::vector_of(p_, kLane, t.row_bytes);
    if (t.vector < kWord) return false;
    const int64_t bytes = std::clamp<int64_t>(std::gcd(kLane, t.order.lane_bytes), kWord, kLane);
    const int64_t copied = t.copies().copied(), step = t.factor.kind == FactorForm::Kind::plain ? kLane : t.vector;
    t.pitch = copied;
    for (int64_t pad = step; pad <= kBankBytes; pad += step)
      if (conflicts(t, held, copied + pad, bytes) < conflicts(t, held, t.pitch, bytes)) t.pitch = copied + pad;
    const int64_t panel = t.panel_bytes() + t.panel_sum_bytes(), table = t.factor.table.size();
    // Alignment between allocations, and masks.
    const int64_t masks = p_.loads[1].format ? t.factor.mask_bytes(*p_.loads[1].format, t.lanes()) : 0;
    const int64_t beside = kBankBytes * 4 + masks, room = m_.shared_bytes - table - beside;
    const int64_t most = std::clamp<int64_t>(t.stages(), 2, m_.async_copies ? kMostBuffers : kPlainBuffers);
    t.buffers = std::min(most, room / (t.stage_bytes() + panel));
    t.shared_bytes = table + t.buffers * panel + t.stream_bytes();
    if (t.shared_bytes > m_.shared_bytes - beside) return false;
    return t.buffers >= std::min<int64_t>(kLeastBuffers, most);
  }

  const DotProblem& p_;
  const machine::Machine& m_;
};

}  // namespace

std::vector<SkinnyMmaPlan> choose_skinny_mmas(const DotProblem& p, const machine::Machine& m, bool exact) {
  if (m.wave <= 1 || exact || kBlockLanes % m.wave != 0) return {};
  if (p.m.extent < kLeastRows || !rows_possible(p, m.async_copies ? kMostTall : kMostRows)) return {};
  const DotLoad& b = p.loads[1];
  if (b.kind == DotLoad::Kind::packed ? b.format->tile_bytes > 0 : b.kind != DotLoad::Kind::memory || b.scratch >= 0)
    return {};
  if (!b.format && b.scalar != Scalar::bf16 && b.scalar != Scalar::f16) return {};
  return Chooser(p, m).choose();
}

int64_t SkinnyMmaPlan::sums_beside() const {
  const FragmentDigits held = FragmentDigits::of(row->collective->operands[0].fragment);
  return FragmentDigits::parts(held.columns).size();
}

bool find_stream_unit(const DotProblem& p, const machine::Machine& m, SkinnyMmaPlan& t) {
  t.wave = m.wave;
  t.lanes_k = FragmentDigits::lanes_extent(FragmentDigits::of(t.row->collective->operands[1].fragment).columns);
  return Chooser(p, m).unit(t);
}

std::string describe(const SkinnyMmaPlan& t, const DotProblem& p) {
  return fmt::format("skinny mma {}x{}x{} {} of {} in {} x {} bytes {} rounded to {} {}", p.m.extent, t.block_rows(),
                     t.waves_k, t.deep, t.order.unit, t.buffers, t.stage_bytes(), t.factor.name(),
                     scalar_name(t.factor.to), t.row->row);
}

}  // namespace lumen::synth
