// The cost model of choose.h: cycles of tiles, of filling panels and of entering tasks, over all sensible cuts. Unit
// costs are in the machine's table (kernel/machine/costs.h).
#include "kernel/synth/gemm/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/step/shortlist.h"

namespace lumen::synth {
namespace {

constexpr int64_t kLaidBytes = 64 << 20;   // most bytes of an operand laid out in scratch
constexpr int64_t kSumsBytes = 256 << 10;  // most bytes of private sums when K has stages
constexpr int64_t kLargestPanel = 8 << 20;
// K over the longer side of the result, from which memory traffic is operands rather than sums. Below it, hardware
// prefetch covers what tiles read in place (bench/gemm.cpp).
constexpr int64_t kLongSums = 32;
constexpr int64_t kPackedRows = 16;  // rows along k per packing task

// Candidate counts for cutting n things: all small ones, then coarser.
std::vector<int64_t> counts(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= n; i = i < 8 ? i + 1 : i + i / 4) out.push_back(i);
  if (out.back() != n) out.push_back(n);
  return out;
}

bool is_memory_f32(const DotLoad& l) {
  return l.kind == DotLoad::Kind::memory && l.scalar == Scalar::f32;
}

// Number of adjacent outer indices that read the same part of b.
int64_t sharing_outer(const DotProblem& p) {
  int64_t count = 1;
  for (size_t d = p.outer.size(); d-- > 0 && p.outer[d].strides[1] == 0;) count *= p.outer[d].extent;
  return count;
}

// How many outer indices a task may cover; its panel of b is then filled once for all of them.
std::vector<int64_t> outer_counts(const DotProblem& p, const machine::Machine& m, bool in_words) {
  constexpr int64_t kMost = 64;  // rows of pixels, for example: beyond this the cost of entering a task is negligible
  std::vector<int64_t> out{1};
  if (!in_words && (m.wave > 1 || !p.is_plain() || p.is_along_batch())) return out;
  const int64_t all = sharing_outer(p);
  for (int64_t n = 2; n <= (in_words ? all : std::min(all, kMost)); ++n)
    if (all % n == 0) out.push_back(n);
  return out;
}

// Bytes of operands that come from beyond the second-level cache.
struct Streams {
  double in_place = 0;  // prefetched while earlier data is multiplied
  double copied = 0;    // not overlapped: a panel is filled before it is read
};

class TileChooser {
 public:
  TileChooser(const DotProblem& p, const machine::Machine& m, const std::optional<CodesDot>& row)
      : p_(p), m_(m), costs_(m.costs.tasks), row_(row), lanes_(m.f32_lanes()) {
    // 32-bit integer products take two instructions on most processors, and their sum one more.
    product_cycles_ = p.are_whole() && !row ? 3 * m.fma_cycles : m.fma_cycles;
  }

  std::vector<TilePlan> choose() {
    vectors_all_ = ceil_div(p_.n.extent, lanes_);
    sums_are_long_ = m_.wave == 1 && !p_.runs && !p_.is_along_batch() && has_long_sums(p_);
    fetches();
    outer_counts_ = outer_counts(p_, m_, row_.has_value());
    for (panel_limit_ = m_.l2_bytes / 4; plans_.empty() && panel_limit_ <= kLargestPanel; panel_limit_ *= 2) search();
    std::vector<TilePlan> chosen = shortlist(std::move(plans_));
    if (chosen.empty()) return {};
    std::erase_if(chosen, [best = chosen.front()](const TilePlan& t) {
      return (t.a == Fetch::tiles) != (best.a == Fetch::tiles) || (t.a == Fetch::tiles && t.height != best.height);
    });
    return chosen;
  }

 private:
  void search() {
    for (int vectors = 1; vectors <= 4; ++vectors)
      for (int height = 1; height <= 14; ++height) {
        // Sums, a row of b, one number of a; with many registers two are left to the allocator, which otherwise spills.
        if (height * vectors + vectors + 1 + temporaries(vectors) >
            m_.vector_registers - (m_.vector_registers > 16 ? 2 : 0))
          continue;
        if (height > p_.m.extent || (vectors > vectors_all_)) continue;
        cut(height, vectors);
      }
  }
  void fetches();
  void cut(int height, int vectors);
  void offer(TilePlan t, int64_t begin, int64_t most);
  bool stage(TilePlan& t, int64_t most) const;
  bool products_apart() const { return row_ && !row_->accumulates; }  // products need a register before they are added
  // Registers besides sums, a row of b and a word of a: a second row of b, and products before they are added.
  int temporaries(int vectors) const { return row_ ? vectors + (products_apart() ? 1 : 0) : 0; }
  double tile_cycles(int height, int vectors) const;
  double cost(const TilePlan& t) const;
  Streams streamed(const TilePlan& t) const;

  const DotProblem& p_;
  const machine::Machine& m_;
  const machine::TaskCosts& costs_;
  const std::optional<CodesDot>& row_;
  double product_cycles_ = 0;
  int lanes_;
  int64_t vectors_all_ = 1;
  std::vector<int64_t> outer_counts_;
  bool sums_are_long_ = false;
  int64_t panel_limit_ = 0;  // bytes of one operand; panels are on the stack and in the second-level cache
  Fetch a_ = Fetch::direct, b_ = Fetch::direct;
  int64_t span_ = 0;  // numbers of a that Fetch::span reads; 0: not possible
  bool a_copy_allowed_ = false, b_copy_allowed_ = false, a_along_k_ = true;
  std::vector<TilePlan> plans_;  // the best cut for each register tile and pair of fetches
};

// How operands can be read; where there is a choice, the model decides between direct and copy.
void TileChooser::fetches() {
  const DotLoad &a = p_.loads[0], &b = p_.loads[1];
  const auto lies_there = [&](const DotLoad& l) {
    return is_memory_f32(l) || (p_.are_whole() && l.kind == DotLoad::Kind::memory);
  };
  if (row_) {
    const bool lies_in_words = a.scalar == row_->type_of(0) && row_->shift == 0 && p_.k_numbers % p_.word == 0;
    a_ = lies_in_words ? Fetch::direct : Fetch::copy;
    b_ = Fetch::transpose;
    span_ = span_of_a(p_, *row_);
    return;
  }
  if (p_.is_along_batch()) {
    b_ = p_.n.strides[1] == 1 ? Fetch::direct : Fetch::gather;
    return;
  }
  a_along_k_ = p_.k.strides[0] == 1;
  if (a.kind == DotLoad::Kind::packed) {
    const bool along_k = unpacks_along(p_, 0, p_.k), along_m = unpacks_along(p_, 0, p_.m);
    a_along_k_ = along_k;
    a_ = along_k || along_m ? Fetch::copy : Fetch::gather;
  } else if (lies_there(a)) {
    a_ = Fetch::direct;
    a_copy_allowed_ = !p_.are_whole() && (p_.k.strides[0] == 1 || p_.m.strides[0] == 1);
  } else {
    a_ = p_.k.strides[0] == 1 || p_.m.strides[0] == 1 ? Fetch::copy : Fetch::gather;
  }
  if (a_ == Fetch::gather) a_along_k_ = false;
  if (b.kind == DotLoad::Kind::packed) {
    b_ = unpacks_along(p_, 1, p_.n) ? Fetch::copy : unpacks_along(p_, 1, p_.k) ? Fetch::transpose : Fetch::gather;
  } else if (p_.n.strides[1] == 1 || p_.n.extent == 1 || (p_.are_whole() && lanes_ == 1)) {
    b_ = lies_there(b) ? Fetch::direct : Fetch::copy;
    b_copy_allowed_ = b_ == Fetch::direct && lanes_ > 1;
  } else {
    b_ = p_.k.strides[1] == 1 ? Fetch::transpose : Fetch::gather;
  }
}

double TileChooser::tile_cycles(int height, int vectors) const {
  if (row_) {
    // Products use few execution units, other instructions use any.
    constexpr double kBeside = 3;  // other instructions that execute in the time of a product
    const double others = height * vectors * (products_apart() ? 2 : 1) + vectors + height;
    const double per_word = std::max<double>(height * vectors, others / kBeside) * m_.fma_cycles;
    return per_word * p_.k_total() + costs_.tile + costs_.sum * height * vectors;
  }
  const double per_k = std::max(
      {height * vectors * product_cycles_,
       (p_.is_along_batch() ? height * vectors * m_.load_cycles : height * costs_.broadcast) + vectors * m_.load_cycles,
       costs_.latency});
  return per_k * p_.k_total() + costs_.tile + costs_.sum * height * vectors;
}

double TileChooser::cost(const TilePlan& t) const {
  const double outer = p_.outer_extent(), k = p_.k_total();
  double cycles = t.sum([&](int height, int vectors) { return tile_cycles(height, vectors); });
  // Panels are filled once per task.
  const double b_vectors = k * (vectors_all_ * t.m_tasks);
  const double transposed = t.lanes / 4.0;
  // Rows are far apart: each begins with cache lines that were not prefetched.
  auto copied = [&](size_t side, int64_t stride) {
    const int64_t bytes = p_.loads[side].elements * 4;
    if (stride * 4 < 1024 || bytes <= m_.l2_bytes / 2) return costs_.copy;
    return bytes > 8 * m_.l2_bytes ? costs_.copy_farthest : costs_.copy_far;
  };
  double fill = t.b == Fetch::direct      ? 0
                : t.b == Fetch::copy      ? copied(1, p_.k.strides[1])
                : t.b == Fetch::transpose ? transposed
                                          : t.lanes;
  if (p_.loads[1].kind == DotLoad::Kind::packed) fill += costs_.unpack;
  if (row_ && row_->shift != 0) fill += m_.fma_cycles;  // products with the shift of a
  cycles += b_vectors * fill / t.outer_task;
  const double a_vectors = k * (ceil_div(p_.m.extent, lanes_) * t.n_tasks);
  fill = t.a == Fetch::direct ? 0
         : t.a == Fetch::copy ? (t.a_along_k ? costs_.copy : 3 * copied(0, p_.k.strides[0]))
                              : t.lanes;
  if (p_.loads[0].kind == DotLoad::Kind::packed) fill += costs_.unpack;
  if (t.a == Fetch::tiles) {  // packed once for all tasks, by a kernel of its own
    const double once = k * (t.m_tiles * ceil_div(t.height, t.lanes));
    cycles += once * costs_.laid * copied(0, p_.k.strides[0]) + costs_.launch / outer;
    // Tiles that fit no cache are read from memory once per column of tasks.
    const double bytes = k * (t.m_tiles * ceil_div(t.height, t.lanes) * t.lanes * 4);
    if (bytes > m_.l2_bytes) cycles += bytes * t.n_tasks / costs_.stream_bytes;
    fill = 0;
  }
  cycles += t.a == Fetch::span ? costs_.copy * t.n_tasks * span_ / (p_.word * lanes_) : a_vectors * fill;
  // Strided rows read in place: each row of a tile touches its own cache lines and pages.
  const bool is_near = sums_are_long_ && t.stages > 1;  // a stage's operands stay in cache between tiles
  if (t.b == Fetch::direct && k * p_.k.strides[1] * 4 > 64 << 10)
    cycles += k * (t.n_tiles * (is_near ? t.m_tasks : t.m_tiles)) *
              (p_.k.strides[1] * 4 >= 2048 ? costs_.page : costs_.line) * t.vectors / 2;
  if (t.a == Fetch::direct && !p_.is_along_batch()) {
    const int64_t stride = (p_.k.strides[0] == 1 ? p_.m.strides[0] : p_.k.strides[0]) * 4;
    if (p_.k.strides[0] == 1 && stride % 4096 == 0 && t.height >= 8)
      cycles += k * (t.n_tiles * p_.m.extent) * costs_.same_set;
    if (p_.k.strides[0] != 1 && stride >= 2048) cycles += k * (t.n_tiles * t.m_tiles) * costs_.strided;
  }
  if (t.stages > 1) cycles += t.stages * t.n_tiles * t.m_tiles * t.height * t.vectors * costs_.stage_sum;
  const Streams streams = streamed(t);
  cycles = std::max(cycles, streams.in_place / costs_.stream_bytes) + streams.copied / costs_.stream_bytes;
  const int64_t tasks = t.tasks(p_);
  cycles = cycles * outer + costs_.task / m_.task_divisor * tasks;
  return cycles * balance(m_, cycles, tasks);
}

// Each tile runs over all of K and reads its operands anew, unless a stage of K, or all of it, stays in the cache.
// Panels are filled once per task.
Streams TileChooser::streamed(const TilePlan& t) const {
  if (!sums_are_long_) return {};
  constexpr int64_t kLine = 64;
  const int64_t k = p_.k_total();
  // Bytes that `count` neighbours along an axis occupy: whole cache lines if K does not run along them.
  auto bytes = [&](size_t side, int64_t count) {
    const int64_t plain = count * 4, next = std::max(p_.k.strides[side] * 4, kLine);  // windows overlap
    return k * (p_.k.strides[side] == 1 ? plain : std::min(ceil_div(plain, kLine) * kLine, next));
  };
  const int64_t a_task = bytes(0, t.m_task * t.height), b_task = bytes(1, t.n_task * t.vectors * lanes_);
  const bool is_near = t.stages > 1 || a_task + b_task <= m_.l2_bytes / 2;
  const double tiles = t.m_tiles * t.n_tiles, tasks = t.m_tasks * t.n_tasks;
  Streams out;
  const auto add = [&](size_t side, Fetch fetch, int64_t task, int64_t tile) {
    if (p_.loads[side].elements * 4 <= m_.l2_bytes) return;
    if (fetch == Fetch::direct)
      out.in_place += is_near ? tasks * task : tiles * tile;
    else if (fetch != Fetch::tiles)  // reads of packed tiles are counted in cost()
      out.copied += tasks * task;
    else
      out.copied += bytes(side, p_.m.extent);
  };
  add(0, t.a, a_task, bytes(0, t.height));
  add(1, t.b, b_task, bytes(1, t.vectors * lanes_));
  return out;
}

// Decides the stages of K. A stage holds at most `most` bytes of operands that are read in place. False if panels do
// not fit.
bool TileChooser::stage(TilePlan& t, int64_t most) const {
  const int64_t k_total = p_.k_total();
  const int64_t columns = t.n_task * t.vectors * lanes_, rows = t.m_task * t.height;
  const bool a_in_place = t.a == Fetch::direct || t.a == Fetch::tiles || t.a == Fetch::span,
             b_in_place = t.b == Fetch::direct;
  auto fits = [&](int64_t k) {
    if (t.a == Fetch::span && (k != k_total || span_ * 2 > panel_limit_)) return false;
    const int64_t in_place = (a_in_place ? rows : 0) + (b_in_place ? columns : 0);
    return (b_in_place || k * columns * 4 <= panel_limit_) && (a_in_place || k * rows * 4 <= panel_limit_) &&
           k * in_place * 4 <= most;
  };
  t.stages = 1;
  t.stage_k = p_.k.extent;
  t.stage_digits = p_.outer_k.size();
  if (fits(k_total)) return true;
  if (t.outer_task > 1 || t.a == Fetch::span) return false;
  if (rows * columns * 4 > std::min(kSumsBytes, m_.task_bytes)) return false;
  for (int64_t k = k_total; t.stage_digits > 0;) {
    k /= p_.outer_k[p_.outer_k.size() - t.stage_digits].extent;
    --t.stage_digits;
    if (!fits(k)) continue;
    t.stages = k_total / k;
    return true;
  }
  int64_t unit = 1;  // runs along k are unpacked in whole blocks
  if (t.a == Fetch::copy && t.a_along_k && p_.loads[0].format) unit = p_.loads[0].format->block;
  if (t.b == Fetch::transpose && p_.loads[1].format) unit = std::lcm(unit, p_.loads[1].format->block);
  int64_t k = p_.k.extent;
  while (!fits(k)) {
    if (k <= unit) return false;
    k = std::max(unit, ceil_div(ceil_div(k, 2), unit) * unit);
  }
  t.stage_k = k;
  t.stages = ceil_div(p_.k.extent, k) * (k_total / p_.k.extent);
  return true;
}

// Keeps the plan if it is the best of its register tile and fetches; plans of this register tile start at `begin`.
void TileChooser::offer(TilePlan t, int64_t begin, int64_t most) {
  if (!stage(t, most)) return;
  t.cycles = cost(t);
  const auto same = std::find_if(plans_.begin() + begin, plans_.end(),
                                 [&](const TilePlan& other) { return other.a == t.a && other.b == t.b; });
  if (same == plans_.end())
    plans_.push_back(t);
  else if (t.cycles < same->cycles)
    *same = t;
}

void TileChooser::cut(int height, int vectors) {
  TilePlan t;
  t.lanes = lanes_;
  t.m_tiles = ceil_div(p_.m.extent, height);
  t.height = ceil_div(p_.m.extent, t.m_tiles);
  t.n_tiles = ceil_div(vectors_all_, vectors);
  t.vectors = ceil_div(vectors_all_, t.n_tiles);
  t.n_tiles = ceil_div(vectors_all_, t.vectors);
  t.m_tiles = ceil_div(p_.m.extent, t.height);
  t.last_height = p_.m.extent - (t.m_tiles - 1) * t.height;
  t.last_vectors = vectors_all_ - (t.n_tiles - 1) * t.vectors;
  t.masked = p_.n.extent % lanes_ != 0;
  t.a_along_k = a_along_k_;
  t.unroll = std::min<int64_t>(p_.k.extent, t.height * t.vectors <= 8 && !row_ ? 4 : 2);
  const DotLoad &a = p_.loads[0], &b = p_.loads[1];
  const auto begin = std::ssize(plans_);
  t.row = row_;
  t.are_whole = p_.are_whole();
  for (int64_t m_task : counts(t.m_tiles))
    for (int64_t n_task : counts(t.n_tiles)) {
      // Panels unpacked along n or m begin at whole blocks.
      if (b.kind == DotLoad::Kind::packed && b_ == Fetch::copy && n_task != t.n_tiles &&
          n_task * t.vectors * lanes_ % b.format->block != 0)
        continue;
      if (a.kind == DotLoad::Kind::packed && a_ == Fetch::copy && !a_along_k_ && m_task != t.m_tiles &&
          m_task * t.height % a.format->block != 0)
        continue;
      t.m_task = m_task;
      t.n_task = n_task;
      t.m_tasks = ceil_div(t.m_tiles, m_task);
      t.n_tasks = ceil_div(t.n_tiles, n_task);
      for (Fetch a_fetch : {a_, Fetch::copy, Fetch::tiles, Fetch::span})
        for (Fetch b_fetch : {b_, Fetch::copy}) {
          if (a_fetch == Fetch::span && (span_ == 0 || m_task != t.m_tiles)) continue;
          if ((a_fetch != a_ && a_fetch != Fetch::span && !a_copy_allowed_) || (b_fetch != b_ && !b_copy_allowed_))
            continue;
          if (a_fetch == Fetch::tiles && p_.outer_extent() * p_.k_total() / kPackedRows < m_.busy_tasks) continue;
          if (a_fetch == Fetch::tiles &&
              (a_along_k_ || p_.runs || p_.outer_extent() * p_.m.extent * p_.k_total() * 4 > kLaidBytes))
            continue;
          t.a = a_fetch;
          t.b = b_fetch;
          for (const int64_t n : outer_counts_) {
            if (n > 1 && !row_ && (m_task != t.m_tiles || n_task != t.n_tiles)) break;
            t.outer_task = n;
            offer(t, begin, std::numeric_limits<int64_t>::max());
          }
          t.outer_task = 1;
          if (sums_are_long_ && m_task * n_task > 1) offer(t, begin, m_.l2_bytes / 2);
        }
    }
}

}  // namespace

// Assumes a fixed number of threads, so that kernels do not depend on the machine they run on.
double balance(const machine::Machine& m, double cycles, double tasks) {
  const double few = cycles > m.costs.tasks.many ? 8 : cycles > m.costs.tasks.few ? 2 : 1;
  const double threads = std::max(few, static_cast<double>(m.busy_tasks));
  return std::ceil(tasks / threads) * threads / tasks;
}

bool unpacks_along(const DotProblem& p, size_t load, const DotIndex& along) {
  const DotLoad& l = p.loads[load];
  if (l.kind != DotLoad::Kind::packed || along.strides[load] != 1) return false;
  const int64_t block = l.format->block;
  if (along.extent % block != 0 || l.offset % block != 0) return false;
  auto whole = [&](const DotIndex& i) { return &i == &along || i.strides[load] % block == 0; };
  if (!whole(p.m) || !whole(p.n) || !whole(p.k)) return false;
  if (load == 1 && p.pick && p.pick->stride % block != 0) return false;
  for (const DotIndex& i : p.outer)
    if (!whole(i)) return false;
  for (const DotIndex& i : p.outer_k)
    if (!whole(i)) return false;
  // A run never leaves its row: all other strides are whole rows, or the run and its start stay inside one.
  return l.columns % along.extent == 0;
}

bool is_read_ahead(const DotProblem& p, const machine::Machine& m) {
  constexpr int64_t kPart = 8;  // weights get 1/8 of the second-level cache; the rest of a step's data needs it too
  const DotLoad& b = p.loads[1];
  const bool is_read = b.kind == DotLoad::Kind::memory || b.kind == DotLoad::Kind::packed;
  const int64_t bytes =
      b.format ? b.elements / b.format->block * b.format->block_bytes : b.elements * scalar_bytes(b.scalar);
  return is_read && m.ahead_bytes > 0 && bytes > m.l2_bytes / kPart;
}

bool has_long_sums(const DotProblem& p) {
  return p.k_total() * p.parts >= kLongSums * std::max(p.m.extent, p.n.extent);
}

std::vector<TilePlan> choose_tiles(const DotProblem& p, const machine::Machine& m, const std::optional<CodesDot>& row) {
  return TileChooser(p, m, row).choose();
}

bool rows_possible(const DotProblem& p, int64_t most) {
  if (p.m.extent > most || !p.outer_k.empty() || p.runs) return false;
  if (p.are_whole()) return false;  // only through dot instructions: dot_of_codes
  if (!is_memory_f32(p.loads[0]) || p.k.strides[0] != 1) return false;
  if (p.loads[1].kind == DotLoad::Kind::packed) return unpacks_along(p, 1, p.k);
  return p.loads[1].kind == DotLoad::Kind::memory && p.k.strides[1] == 1;
}

RowsPlan choose_rows(const DotProblem& p, const machine::Machine& m, bool invariant, const std::optional<CodesDot>& row,
                     int64_t bytes) {
  const machine::TaskCosts& costs = m.costs.tasks;
  RowsPlan t;
  t.row = row;
  t.lanes = m.f32_lanes();
  t.height = p.m.extent;
  // One row of b at a time is one stream from memory, which hardware prefetches; several at once are not prefetched. If
  // rows of a do not stay in the first-level cache, several rows of b at a time reread them less often.
  const bool stay = t.height == 1 || t.height * p.k.extent * 4 <= m.l1_bytes / 2;
  // Codes are widened before the product; those of a are widened once for several rows of b.
  t.width = (stay && !row) || t.height * 4 + 2 > m.vector_registers ? 1 : 4;
  // Adjacent lanes of a wave are a unit of the format apart, so several rows of b reuse what a lane reads of a. With
  // long blocks a lane holds more at once.
  if (m.wave > 1) {
    const DotLoad& b = p.loads[1];
    t.width = b.kind != DotLoad::Kind::packed ? 1 : std::clamp(4 / t.height, 1, b.format->block > 128 ? 2 : 4);
  }
  t.chains = invariant ? 2 : std::clamp(8 / t.height / t.width, 1, 4);
  const int64_t row_bytes = p.k.extent * bytes;
  if (p.slices > 1 && m.wave == 1 && !row && row_bytes <= m.task_bytes) {
    // The sums of a tile stay in registers, and the rows of a that a task reads again and again in the second-level
    // cache.
    const int64_t widest = std::min({int64_t{m.vector_registers >= 32 ? 4 : 2}, p.n.extent, m.task_bytes / row_bytes});
    t.width = std::bit_floor(uint64_t(widest));
    const int64_t most = std::max<int64_t>(1, m.l2_bytes / 2 / (t.height * row_bytes));
    t.slices = p.slices;
    while (t.slices > most || p.slices % t.slices != 0) --t.slices;
  }
  if (p.n.extent < t.width) t.width = p.n.extent;
  const int64_t groups = ceil_div(p.n.extent, t.width);
  const int products = t.width * (t.height + (row && row->shift != 0 ? 1 : 0));
  const double per_k =
      std::max({products * m.fma_cycles, (t.height + t.width) * m.load_cycles, costs.latency / t.chains}) /
      (t.lanes * (row ? row->k : 1));
  const double unpack = p.loads[1].kind == DotLoad::Kind::packed ? costs.unpack * t.width / t.lanes : 0;
  const double group =
      (per_k * t.slices + unpack) * p.k.extent + (costs.fold * t.height * t.width + costs.tile) * t.slices;
  const int64_t outer = p.outer_extent() / t.slices;
  const double cycles = group * (groups * outer);
  // Tasks of at least a few thousand cycles, at most 64 per outer index.
  const double grain = costs.grain / m.task_divisor;
  t.n_tasks =
      std::clamp<int64_t>(static_cast<int64_t>(group * groups / grain), 1, std::min<int64_t>(groups, m.enough(64)));
  t.n_task = ceil_div(groups, t.n_tasks);
  t.n_tasks = ceil_div(groups, t.n_task);
  const int64_t tasks = outer * t.n_tasks;
  t.cycles = cycles * balance(m, cycles, tasks) + costs.task / m.task_divisor * tasks;
  return t;
}

double TileCut::sum(const std::function<double(int, int)>& tile) const {
  const auto column = [&](int across) { return (m_tiles - 1) * tile(height, across) + tile(last_height, across); };
  return (n_tiles - 1) * column(vectors) + column(last_vectors);
}

RowsPlan RowsPlan::single() const {
  RowsPlan t = *this;
  if (t.fills_panel()) return t;
  t.n_task *= t.width;
  t.width = 1;
  return t;
}

std::string describe(const RowsPlan& t) {
  return fmt::format("rows {}x{} task {}{} {}", t.height, t.width,
                     t.fills_panel() ? fmt::format("{}x", t.slices * t.height) : "", t.n_task * t.width,
                     t.row ? t.row->row : "f32 fma");
}

std::string describe_shape(const DotProblem& p) {
  std::string text = p.is_along_batch() ? "dot along a batch " : "dot ";
  if (p.pick) {
    text += fmt::format("{} rows by {} {} ", p.pick->row_count(), p.pick->count,
                        p.runs     ? "summed"
                        : p.blocks ? "in blocks"
                                   : "picked");
  }
  if (p.outer_extent() > 1) text += fmt::format("{}x", p.outer_extent());
  const int64_t k_numbers = p.word > 1 ? p.k_numbers * count_of(p.outer_k) : p.k_total();
  text += fmt::format("{}x{}x{}", p.m.extent, p.n.extent, k_numbers);
  const auto joint = [&](const char* what, const std::vector<DotIndex>& indices) {
    std::vector<int64_t> extents;
    for (const DotIndex& i : indices) extents.push_back(i.extent);
    if (!indices.empty()) text += fmt::format(" {} of {}", what, fmt::join(extents, "x"));
  };
  joint("rows", p.joint_m);
  joint("sums", p.joint_k);
  if (p.loads[0].format || p.loads[1].format) text += " packed";
  if (!p.epilogue.empty()) text += fmt::format(" maps {}", p.epilogue.size());
  return text;
}

std::string describe(const TilePlan& t) {
  auto fetch = [](Fetch f) {
    constexpr const char* kNames[] = {"direct", "copy", "turn", "gather", "tiles", "span"};
    return kNames[ordinal(f)];
  };
  std::string text = fmt::format("tile {}x{} task {}x{} a {} b {}", t.height, t.vectors * t.lanes, t.m_task * t.height,
                                 t.n_task * t.vectors * t.lanes, fetch(t.a), fetch(t.b));
  if (t.stages > 1) text += fmt::format(" k {}x{}", t.stages, t.stage_k);
  if (t.stages > 1 && t.stage_digits > 0) text += fmt::format(" digits {}", t.stage_digits);
  if (t.outer_task > 1) text += fmt::format(" outer {}", t.outer_task);
  return text + " " + t.products();
}

}  // namespace lumen::synth
