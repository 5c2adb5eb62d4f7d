// See skinny_dot_plan.h.
#include "kernel/synth/gemm/skinny/skinny_dot_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/round_up.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "number/formula/scalar.h"

namespace lumen::synth {
namespace {

constexpr int64_t kBlockLanes = 512;
constexpr int64_t kLongestUnit = 256;  // elements, so that a stage of many lanes stays small
constexpr int64_t kLongestBlock = 512;
constexpr int64_t kMostRows = 16;
constexpr int64_t kWord = 4;
constexpr int64_t kWaveStage = 2 << 10;  // least bytes of a stage for a wave, if there is enough work
constexpr int64_t kMostSums = 8;         // of a lane
constexpr int64_t kRounded = 16;         // activations that a lane rounds
constexpr double kLargestHalf = 65000;
constexpr int kMostBuffers = 3, kMostBuffersOfSmall = 8;
constexpr int64_t kReserved = 1 << 10;  // of a block's shared memory, by the driver
constexpr int kSchedulers = 4;          // of a multiprocessor, each with its own waves
constexpr int64_t kLost = 2 << 10;      // bytes for small tables and for alignment between allocations
constexpr int kCodes = 16;              // of a vector
constexpr int kBanks = 32;

// Bank conflicts: the most words of one bank that the lanes of a wave read at once.
int conflicts(const SkinnyDotPlan& t, int64_t pitch) {
  std::map<int64_t, std::set<int64_t>> banks;
  for (int lane = 0; lane < std::min(kBanks, t.rows * t.columns); ++lane) {
    const int64_t byte = lane / t.columns * t.width * pitch + lane % t.columns * t.unit_bytes;
    banks[byte / kWord % kBanks].insert(byte / kWord);
  }
  size_t most = 0;
  for (const auto& [bank, words] : banks) most = std::max(most, words.size());
  return most;
}

// The shortest `share` such that each run of four codes stays within `share` consecutive elements, and all shares have
// the same runs.
std::optional<int64_t> share_of(const LaneOrder& order, int64_t group) {
  for (int64_t share = 4; share <= std::min<int64_t>(group, kActivationGroup); share *= 2) {
    bool whole = true;
    std::map<int64_t, std::set<std::vector<int64_t>>> runs;
    for (const std::vector<int64_t>& vector : order.vectors)
      for (size_t first = 0; first < vector.size(); first += 4) {
        std::vector<int64_t> run(vector.begin() + first, vector.begin() + first + 4);
        const int64_t base = run[0] / share * share;
        for (int64_t& e : run) {
          whole = whole && e >= base && e < base + share;
          e -= base;
        }
        runs[base].insert(run);
      }
    for (const auto& [base, of] : runs) whole = whole && of == runs.begin()->second;
    if (whole) return share;
  }
  return std::nullopt;
}

class SkinnyDotChooser {
 public:
  SkinnyDotChooser(const DotProblem& p, const machine::Machine& m) : p_(p), m_(m), f_(*p.loads[1].format) {}

  std::vector<SkinnyDotPlan> choose(bool exact, std::string* why) {
    SkinnyDotPlan t;
    if (!exact && find_table(t)) return plans(t);
    if (!exact) t.integers = factor_integer(f_, p_.k.extent, m_, why);
    if (t.integers && !m_.find_row(word_row(t.integers->row))) t.integers.reset();
    // Codes whose numbers are looked up: two at once if possible, because bytes would be selected one by one.
    const bool looks_up = !t.integers || (t.integers->code_field >= 0 && t.integers->table.empty());
    if (looks_up && !(t.integers && find_bytes(t)) && find_values(t) && find_pairs(t, exact)) {
      t.integers.reset();
      why->clear();
    }
    if (!t.integers && !find_values(t)) return {};
    if (!find_unit(t, t.integers.has_value())) return {};
    if (t.looks_up_pairs() && !find_pair_order(t)) return {};
    if (t.integers && !find_codes(t) && !find_order(t)) return {};
    return plans(t);
  }

 private:
  std::vector<SkinnyDotPlan> plans(SkinnyDotPlan t) const {
    std::vector<std::pair<double, SkinnyDotPlan>> found;
    for (const Shape& s : shapes(t)) {
      t.columns = s.columns;
      t.width = s.width;
      t.rows = m_.wave / s.columns;
      t.waves = s.waves;
      for (t.deep = 1; m_.wave * t.width * t.deep * t.unit_bytes < kWaveStage && 2 * t.stage_units() <= t.units;)
        t.deep *= 2;
      if (lay_out(t, m_.shared_bytes)) found.emplace_back(m_.async_copies ? s.cost : cost_of_waiting(t), t);
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    std::vector<SkinnyDotPlan> out;
    if (lay_out_beside(t)) out.push_back(t);
    for (auto& [cost, plan] : found)
      if (std::none_of(out.begin(), out.end(),
                       [&](const auto& o) { return o.columns == plan.columns && o.width == plan.width; }))
        out.push_back(std::move(plan));
    return out;
  }

  // If copies are loads and stores, waves hide each other's copies, provided that shared memory has room for enough of
  // them. Schedulers get waves in turn; every block rounds activations.
  double cost_of_waiting(const SkinnyDotPlan& t) const {
    const int64_t blocks = ceil_div(t.blocks, m_.units), waves = t.waves * std::min(blocks, blocks_beside(t));
    const double uneven = static_cast<double>(ceil_div(waves, kSchedulers) * kSchedulers) / waves;
    const double rounding = m_.costs.streams.rounding * p_.m.extent * p_.k.extent / m_.wave * blocks;
    return (cost_of(t, {t.columns, t.width, t.waves, 0}) + rounding) * uneven *
           std::max(1.0, m_.costs.streams.waves / waves);
  }
  int64_t blocks_beside(const SkinnyDotPlan& t) const {  // on a multiprocessor
    return m_.async_copies ? 1 : std::max<int64_t>(1, m_.shared_bytes / t.shared_bytes);
  }

  // A table whose numbers are sums of digits.
  bool find_table(SkinnyDotPlan& t) const {
    SkinnyDotPlan with;
    auto table = stream_table(f_, m_, p_.k.extent);
    if (!table || !find_unit(with, true)) return false;
    with.integers = std::move(table->dot);
    with.codes = std::move(table->codes);
    if (!find_table_runs(f_, *with.integers, with.unit, with.integers->code_field, *with.codes)) return false;
    if (!take_order(with)) return false;
    t = std::move(with);
    return true;
  }

  bool find_codes(SkinnyDotPlan& t) const {
    if (t.looks_up_pairs()) return false;
    t.codes = stream_codes(f_, *t.integers, t.unit, m_);
    if (t.codes && take_order(t)) return true;
    t.codes.reset();
    return false;
  }
  bool take_order(SkinnyDotPlan& t) const {
    t.order = t.codes->order(t.unit);
    const auto share = share_of(t.order, t.integers->fine);
    if (share) t.share = widened(*share, t.integers->fine);
    return share.has_value();
  }
  // If every block waits for its rounding, lanes take more at once, and fewer of them compute a scale together.
  int64_t widened(int64_t share, int64_t group) const {
    while (!m_.async_copies && share < kRounded && group % (2 * share) == 0) share *= 2;
    return share;
  }

  bool find_values(SkinnyDotPlan& t) {
    const FormatFacts facts = facts_of(f_);
    t.scaled = facts.scaled;
    return t.scaled.has_value();
  }

  bool find_pairs(SkinnyDotPlan& t, bool exact) const {
    const auto by_code = values_by_code(f_, t.scaled->value);
    if (!by_code || by_code->values.size() != 16) return false;
    std::vector<uint16_t> halves;
    bool rounds = false;
    for (const double v : by_code->values) {
      halves.push_back(f32_to_f16(static_cast<float>(v)));
      rounds = rounds || f16_to_f32(halves.back()) != v;
      if (!(std::abs(v) < kLargestHalf)) return false;
    }
    if (rounds && exact) return false;
    t.pairs.values = std::move(halves);
    t.rounds = rounds;
    t.pairs.field = by_code->field;
    t.pairs.copies = PairTable::copies_for(m_);
    return true;
  }

  // The same for integers: their bytes.
  bool find_bytes(SkinnyDotPlan& t) const {
    const IntegerDot& d = *t.integers;
    const auto by_code = d.form_has_q ? values_by_code(f_, d.form.q) : std::nullopt;
    if (!by_code || by_code->values.size() != 16) return false;
    const bool plain = d.row.a == Scalar::u8;
    std::vector<uint16_t> bytes;
    for (const double v : by_code->values) {
      const int64_t q = static_cast<int64_t>(v) - d.bias;
      if (q < (plain ? 0 : -128) || q > (plain ? 255 : 127)) return false;
      bytes.push_back(q & 255);
    }
    t.pairs.values = std::move(bytes);
    t.pairs.bytes = true;
    t.pairs.field = by_code->field;
    t.pairs.copies = PairTable::copies_for(m_);
    return true;
  }

  // Finds the bytes of a unit, each with two codes of the same group; a group has whole runs of four.
  bool find_pair_order(SkinnyDotPlan& t) const {
    const Field& field = f_.fields[t.pairs.field];
    std::map<int64_t, std::pair<int64_t, int64_t>> bytes;
    for (int64_t e = 0; e < t.unit; ++e) {
      int64_t bit = -1;
      for (const LayoutPiece& piece : field.layout.pieces)
        if (e % f_.block >= piece.first && e % f_.block < piece.first + piece.count && piece.bits == 4)
          bit = e / f_.block * f_.block_bytes * 8 + piece.bit_of(e % f_.block);
      if (bit < 0 || bit % 4 != 0) return false;
      auto& [low, high] = bytes.try_emplace(bit / 8, std::pair<int64_t, int64_t>{-1, -1}).first->second;
      (bit % 8 == 0 ? low : high) = e;
    }
    std::map<int64_t, int64_t> of_group;
    const int64_t group = t.integers ? t.integers->fine : std::gcd(t.scaled->group, t.unit);
    for (const auto& [byte, codes] : bytes) {
      if (codes.first < 0 || codes.second < 0 || codes.first / group != codes.second / group) return false;
      t.pair_order.push_back({byte, codes.first, codes.second});
      ++of_group[codes.first / group];
    }
    return std::all_of(of_group.begin(), of_group.end(), [](const auto& g) { return g.second % 4 == 0; });
  }

  bool find_unit(SkinnyDotPlan& t, bool integers) const {
    const int64_t least = integers ? kActivationGroup : kCodes;
    t.unit_blocks = least / std::gcd(least, f_.block);
    if (t.unit_blocks * f_.block > kLongestBlock) return false;
    const int64_t aligned = t.unit_blocks * (kWord / std::gcd(kWord, t.unit_blocks * f_.block_bytes));
    if (aligned * f_.block <= kLongestUnit) t.unit_blocks = aligned;
    t.unit = t.unit_blocks * f_.block;
    t.unit_bytes = t.unit_blocks * f_.block_bytes;
    if (p_.k.extent % t.unit != 0) return false;
    t.units = p_.k.extent / t.unit;
    t.row_bytes = WeightCopies::bytes_of(p_, p_.k.extent);
    return true;
  }

  bool find_order(SkinnyDotPlan& t) const {
    const IntegerDot& d = *t.integers;
    if (t.looks_up_pairs()) {  // in the order of the table, two bytes to a run
      for (size_t i = 0; i < t.pair_order.size(); ++i) {
        if (i % (kCodes / 2) == 0) t.order.vectors.emplace_back();
        t.order.vectors.back().insert(t.order.vectors.back().end(), {t.pair_order[i].low, t.pair_order[i].high});
        if (i % 2 == 1 && t.pair_order[i].low / d.fine != t.pair_order[i - 1].low / d.fine) return false;
      }
      t.order.elements = t.unit;
      const auto share = share_of(t.order, d.fine);
      t.share = share.value_or(0);
      return share.has_value();
    }
    const RowOrder order = choose_order(f_, t.unit, kCodes, d.row.k, d.fine, t.unit / d.fine);
    if (order.units != 1 || order.rest.elements != 0 || order.unit.elements != t.unit) return false;
    t.order = order.unit;
    const auto share = share_of(t.order, d.fine);
    if (!share) return false;
    t.share = widened(*share, d.fine);
    return true;
  }

  // If copies are loads and stores, several blocks of a multiprocessor may hide each other's copies.
  std::vector<int64_t> block_lanes() const {
    return m_.async_copies ? std::vector{kBlockLanes} : std::vector{kBlockLanes / 2, kBlockLanes};
  }

  // Lanes of a row, rows of a lane, and waves of a block, of which a multiprocessor has one. The cost is that of a
  // wave's tiles of rows, plus the last one once more, after all copies; in instructions as counted.
  struct Shape {
    int columns = 1, width = 1, waves = 1;
    double cost = 0;
  };
  double cost_of(const SkinnyDotPlan& t, const Shape& s) const {
    const machine::StreamCosts& costs = m_.costs.streams;
    const double rows = p_.m.extent * s.width;
    const int64_t tiles = p_.outer_extent() * ceil_div(p_.n.extent, m_.wave / s.columns * s.width);
    const double units = ceil_div(t.units, s.columns);
    const double tile = units * (costs.stage + t.unit * rows * costs.element) + costs.tile +
                        rows * costs.sum * std::countr_zero(static_cast<unsigned>(s.columns));
    return (ceil_div(tiles, m_.units * s.waves) + 1) * s.waves * tile;
  }
  std::vector<Shape> shapes(const SkinnyDotPlan& t) const {
    std::vector<Shape> out;
    for (int columns = 1; columns <= std::min<int64_t>(m_.wave, t.units); columns *= 2)
      for (const int width : {1, 2, 4}) {
        if (width * p_.m.extent > kMostSums) continue;
        // With less work, fewer waves on all multiprocessors.
        const int64_t tiles = p_.outer_extent() * ceil_div(p_.n.extent, m_.wave / columns * width);
        for (const int64_t lanes : block_lanes()) {
          const int most = std::min(lanes / m_.wave, ceil_div(tiles, m_.units));
          for (int waves = most; 4 * waves >= 3 * most && waves > 0; --waves) {
            Shape s{columns, width, waves, 0};
            // Schedulers without a wave issue nothing.
            const double idle = m_.async_copies ? std::max(1.0, double(kSchedulers) / waves) : 1;
            s.cost = cost_of(t, s) * idle;
            out.push_back(s);
          }
        }
      }
    std::stable_sort(out.begin(), out.end(), [](const Shape& x, const Shape& y) { return x.cost < y.cost; });
    if (!m_.async_copies) return out;
    std::vector<Shape> best;  // of each number of columns and width
    for (const Shape& s : out)
      if (std::none_of(best.begin(), best.end(),
                       [&](const Shape& b) { return b.columns == s.columns && b.width == s.width; }))
        best.push_back(s);
    return best;
  }

  // Instructions of a lane per byte of the weight.
  double work(const SkinnyDotPlan& t) const {
    const machine::StreamCosts& costs = m_.costs.streams;
    if (!t.codes) return 0;
    double all = 0;
    std::set<int> exponents;
    for (const StreamCodes::Run& run : t.codes->runs) {
      if (!t.codes->digits.empty()) all += costs.table + costs.digit * t.codes->digits.size();
      for (const StreamCodes::Part& part : run.parts) {
        if (t.codes->digits.empty()) all += part.mask != 255 ? 2 : 1;
        exponents.insert(part.exponent);
      }
    }
    const double groups = t.unit / t.integers->fine;
    all += groups * exponents.size();
    return all / t.unit_bytes;
  }

  // If instructions take about as long as the bytes, leaves room on each multiprocessor for a block of the next kernel,
  // whose copies then overlap. One row per lane, because registers are halved, too; the same number of waves for every
  // scheduler of a multiprocessor.
  bool lay_out_beside(SkinnyDotPlan& t) const {
    if (!m_.follows || p_.pick || p_.m.extent > 1 || work(t) < m_.costs.streams.beside) return false;
    t.width = 1;
    t.columns = std::min<int64_t>(m_.wave, std::bit_floor(static_cast<uint64_t>(t.units)));
    t.rows = m_.wave / t.columns;
    for (t.deep = 1; m_.wave * t.deep * t.unit_bytes < kWaveStage && 2 * t.stage_units() <= t.units;) t.deep *= 2;
    const int64_t tiles = ceil_div(p_.outer_extent() * ceil_div(p_.n.extent, t.wave_rows()), m_.units);
    const int64_t wanted = ceil_div(tiles, kSchedulers) * kSchedulers;
    for (t.waves = std::min(kBlockLanes / m_.wave, wanted); t.waves > 0; t.waves -= kSchedulers)
      if (lay_out(t, (m_.shared_bytes + kReserved) / 2 - kReserved) && t.buffers >= 2) return true;
    return false;
  }

  bool lay_out(SkinnyDotPlan& t, int64_t shared_bytes) const {
    t.vector = WeightCopies::vector_of(p_, t.stage_units() * t.unit_bytes, t.row_bytes);
    if (t.vector < kWord) return false;
    const int64_t chunk = t.stage_units() * t.unit_bytes;
    t.pitch = chunk;
    for (int64_t pad = t.vector; pad < kBanks * kWord; pad += t.vector)
      if (conflicts(t, chunk + pad) < conflicts(t, t.pitch)) t.pitch = chunk + pad;
    const int64_t room = shared_bytes - activation_bytes(t) - kLost;
    const bool beside = shared_bytes < m_.shared_bytes;
    while (t.waves > 1 && !beside && room / t.stage_bytes() < 2) --t.waves;
    const int most = beside ? kMostBuffersOfSmall : kMostBuffers;
    t.buffers = std::min<int64_t>(most, room / t.stage_bytes());
    if (t.buffers < 2) return false;
    if (!m_.async_copies) t.buffers = 2;
    // One block per multiprocessor: with room for two, some multiprocessors would get none.
    const auto shared = [&] { return activation_bytes(t) + t.buffers * t.stage_bytes(); };
    while (m_.async_copies && !beside && 2 * shared() <= m_.shared_bytes && t.buffers < kMostBuffersOfSmall)
      ++t.buffers;
    t.shared_bytes = shared();
    // Fewest blocks for the same greatest number of tiles per block.
    const int64_t tiles = ceil_div(p_.outer_extent() * ceil_div(p_.n.extent, t.wave_rows()), t.waves);
    t.blocks = ceil_div(tiles, ceil_div(tiles, m_.units * blocks_beside(t)));
    if (beside) t.blocks = std::min<int64_t>(tiles, m_.units);
    return true;
  }

  int64_t activation_bytes(const SkinnyDotPlan& t) const {
    const int64_t elements = p_.m.extent * t.laid_units() * t.unit;
    return t.pair_bytes() + (t.integers ? elements + elements / t.integers->fine * 8 : elements * 4);
  }

  static std::string word_row(const machine::DotRow& row) { return fmt::format("dot4.{}i8.i32", scalar_name(row.a)); }

  const DotProblem& p_;
  const machine::Machine& m_;
  const Format& f_;
};

}  // namespace

std::vector<SkinnyDotPlan> choose_skinny_dots(const DotProblem& p, const machine::Machine& m, bool exact,
                                              std::string* why) {
  if (m.wave <= 1 || kBlockLanes % m.wave != 0 || !rows_possible(p, kMostRows)) return {};
  const DotLoad& b = p.loads[1];
  if (b.kind != DotLoad::Kind::packed || b.format->tile_bytes > 0 || plain_scalar(*b.format)) return {};
  return SkinnyDotChooser(p, m).choose(exact, why);
}

std::string describe(const SkinnyDotPlan& t, const DotProblem& p) {
  std::string text = fmt::format("skinny dot {}x{}x{} {}x{} of {} in {} x {} bytes", p.m.extent, t.wave_rows(), t.waves,
                                 t.columns, t.deep, t.unit, t.buffers, t.stage_bytes());
  if (t.codes && !t.codes->digits.empty())
    text += fmt::format(" digits of {} bits{}", 7 * t.codes->digits.size(), t.codes->rounds ? ", rounded" : "");
  if (t.integers) return text + (t.looks_up_pairs() ? " pairs of codes " : " ") + t.integers->row.row;
  if (t.looks_up_pairs()) text += t.rounds ? " pairs of codes rounded to f16" : " pairs of codes";
  return text + " f32 fma";
}

}  // namespace lumen::synth
