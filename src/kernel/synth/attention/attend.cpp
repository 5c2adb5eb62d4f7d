// Attention in one kernel that streams over the keys. A task owns a tile of query rows that share keys and values (the
// queries of a head, and the heads of a group) and walks the keys in blocks: a block's keys are transposed so that
// lanes are keys, its values are unpacked, both once per tile; then for a few rows at a time scores, probabilities and
// the weighted sum of values stay in the nearest cache. No more than rows x block scores exist at any time.
//
// A matrix unit multiplies 16-bit floats where the caller allows it: queries, keys, values and probabilities are
// rounded to them, and stored in its tiles (unit_tiles.h).
//
// Numbers: otherwise f32. Each row keeps the maximum m of the scores so far, the sum l of exp(s - m) in one partial
// sum per lane, and the sum o of exp(s - m) v; when a block raises m, l and o are scaled by exp(m_old - m_new). The
// result is o / l. Blocks follow each other in order, so the order of every sum is fixed by the shape and the machine.
// Blocks that a row's mask hides (graph/group/key_range.h) are not computed: their probabilities are exactly 0. Where
// there are few tiles and many keys, tasks take parts of the keys, joined in order by attend_merge. Proved by
// tests/kernel/synth/attention/synth_attend_test.cpp.
#include "kernel/synth/attention/attend.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "graph/match/access.h"
#include "kernel/synth/attention/unit_tiles.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

constexpr double kGrain = 131072;       // multiplications per task
constexpr int64_t kRows = 64;           // query rows of a tile
constexpr int64_t kFew = 3;             // rows for which keys are not worth transposing
constexpr int64_t kUnitRows = 8;        // rows from which a matrix unit is worth its tiles
constexpr int64_t kBlockBytes = 32768;  // of a block's keys, transposed
constexpr int64_t kMaxBlock = 128;      // keys
constexpr int64_t kEnough = 32;         // tasks that keep every thread busy
constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr int64_t kPart = 512;  // keys per part of a split row, at least

class AttendKernel : AttendWriter {
 public:
  AttendKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, Scalar factor,
               bool invariant)
      : AttendWriter(plan, target),
        plan_(plan),
        group_(group),
        a_(plan, group),
        range_(plan, group, a_.extents, a_.score) {
    nothing_.inputs = group.inputs;
    choose_tile(target, factor, invariant);
  }

  Synthesis run() {
    for (const graph::ValueId v : group_.inputs) builder_.value(v, false);
    const int64_t all_rows = product(a_.row_extents());
    Synthesis out;
    out.scratch = declare_results(group_, a_, parts_);
    const std::vector<bool> apart(a_.extents.size() + 1, true);
    using Accesses = std::map<graph::ValueId, Access>;
    Accesses dot{{a_.q, a_.q_access}, {a_.k, a_.k_access}}, pick{{a_.v, a_.v_access}};
    if (a_.k_found) dot[a_.k_found->index] = a_.k_found->access;
    if (a_.v_found) pick[a_.v_found->index] = a_.v_found->access;
    dot_ = std::make_unique<Body>(builder_, plan_, nothing_, a_.dot_space(), apart, dot);
    map_ = std::make_unique<Body>(builder_, plan_, group_, a_.extents, apart);
    pick_ = std::make_unique<Body>(builder_, plan_, nothing_, a_.pick_space(), apart, pick,
                                   Accesses{{a_.written, a_.result_access}});
    direct_keys_ = !units_ && dot_->chunking(lanes_).lanes == 0;
    direct_values_ = !units_ && groups_ == 1 && pick_->chunking(lanes_).lanes == 0 && a_.width % lanes_ == 0;
    // Every row axis outside the tile, then tiles, then parts of the keys.
    std::vector<int64_t> outer = a_.row_extents();
    for (const int d : tile_axes_) outer[d] = 1;
    outer.push_back(tiles_);
    outer.push_back(parts_);
    const double work = a_.keys / static_cast<double>(parts_) * ((a_.depth + a_.width) * tile_);
    Tasks tasks;
    tasks.rows = product(outer);
    tasks.part = 1;
    tasks.rows_per_task = std::clamp<int64_t>(static_cast<int64_t>(kGrain / target_->task_divisor / work), 1,
                                              std::max<int64_t>(tasks.rows, 1));
    for_tasks(
        b_, tasks, outer, 1, [&] { begin(); }, [&](const std::vector<Expr>& counters, Expr, Expr) { tile(counters); });
    double bytes = graph::byte_size(g_[a_.written].type);
    for (const graph::ValueId input : group_.inputs) {
      int64_t whole = graph::byte_size(g_[input].type), viewed = 0;  // of a KV cache of many layers, one is read
      for (const graph::ValueId load : {a_.q, a_.k, a_.v})
        if (memory_of(load) == input) viewed += graph::byte_size(g_[load].type);
      bytes += viewed > 0 ? std::min(whole, viewed) : whole;
    }
    const double pairs = all_rows * static_cast<double>(a_.keys);
    out.steps.push_back(builder_.finish(
        fmt::format("attend {} depth {} width {} {}{}{} tile {}x{} by {}{}", shape_text(a_.extents), a_.depth, a_.width,
                    map_->summary(), a_.is_found() ? " by table" : "", range_.is_bounded() ? " bounded" : "", tile_,
                    block_, units_ ? units_->row() : fmt::format("{}x{}", together_, key_vectors_ * lanes_),
                    parts_ > 1 ? fmt::format(" splits {}", parts_) : ""),
        2.0 * pairs * (a_.depth + a_.width), bytes));
    if (parts_ > 1) out.steps.push_back(attend_merge(plan_, a_, *target_, parts_));
    return out;
  }

 private:
  // The value in memory a load reads, below views and casts.
  graph::ValueId memory_of(graph::ValueId v) const {
    while (graph::is_view(g_[v].op) || graph::is_unpack(g_, v) || g_[v].op == graph::Op::gather_) v = g_[v].operands[0];
    return v;
  }

  // Rows of a tile: axes that share keys and values, from the innermost outwards until there are enough.
  void choose_tile(const machine::Machine& target, Scalar factor, bool invariant) {
    target_ = &target;
    const int64_t most_rows = std::clamp<int64_t>(target.task_bytes / (round_up(a_.depth, lanes_) * 32), 1, kRows);
    for (int d = a_.extents.size() - 2; d >= 0 && rows_ < most_rows; --d) {
      if (a_.extents[d] == 1) continue;
      if (!a_.shares_keys(d)) continue;
      tile_axes_.insert(tile_axes_.begin(), d);
      tile_extents_.insert(tile_extents_.begin(), a_.extents[d]);
      rows_ *= a_.extents[d];
    }
    if (rows_ >= kUnitRows) units_ = UnitTiles::find(b_, target, factor);
    const int64_t whole = units_ ? UnitTiles::kStep : lanes_;
    depth_ = round_up(a_.depth, whole);
    width_ = round_up(a_.width, whole);
    const int sums = target.vector_registers >= 32 ? 16 : 8;  // vectors in registers at once
    together_ = units_ ? UnitTiles::kStep : std::min<int64_t>(rows_, sums / 2);
    few_ = rows_ <= kFew && !invariant;
    tiles_ = (rows_ + most_rows - 1) / most_rows;
    tile_ = round_up((rows_ + tiles_ - 1) / tiles_, together_);
    tiles_ = (rows_ + tile_ - 1) / tile_;
    groups_ = tile_ / together_;
    key_vectors_ = 1;
    if (units_) key_vectors_ = UnitTiles::kStep / lanes_;
    const int64_t keys_near = std::min(kBlockBytes, target.task_bytes) / (depth_ * 4);
    // Maxima and sums are joined block by block: the same blocks for any number of rows.
    const int64_t most_keys =
        invariant ? std::bit_floor<uint64_t>(std::clamp<int64_t>(keys_near, lanes_, kMaxBlock)) : kMaxBlock;
    while (key_vectors_ * 2 * together_ <= sums && key_vectors_ * lanes_ < a_.keys && key_vectors_ < 8 &&
           (!invariant || key_vectors_ * 2 * lanes_ <= most_keys))
      key_vectors_ *= 2;
    const int64_t panel = int64_t{key_vectors_} * lanes_;
    block_ = invariant ? most_keys : std::clamp<int64_t>(keys_near / panel * panel, panel, round_up(kMaxBlock, panel));
    block_ = std::min(block_, round_up(a_.keys, panel));
    int64_t tasks = tiles_;
    const std::vector<int64_t> rows = a_.row_extents();
    for (size_t d = 0; d < rows.size(); ++d)
      if (std::find(tile_axes_.begin(), tile_axes_.end(), static_cast<int>(d)) == tile_axes_.end()) tasks *= rows[d];
    if (!invariant && tasks < target.enough(kEnough) && a_.keys >= 2 * target.grain(kPart) &&
        group_.results.size() == 1) {
      const int64_t part = round_up(std::max(target.grain(kPart), a_.keys * tasks / target.enough(kEnough)), block_);
      parts_ = (a_.keys + part - 1) / part;
      part_ = part;
    }
  }

  void begin() {
    for (Body* body : {dot_.get(), map_.get(), pick_.get()}) body->begin_task();
    if (units_) {
      queries_ = units_->alloc_factor(tile_, depth_);
      for (BufferId* keys : {&staged_, &transposed_}) *keys = units_->alloc_factor(block_, depth_);
      for (BufferId* values : {&value_lines_, &values_}) *values = units_->alloc_factor(block_, width_);
      probabilities_ = units_->alloc_factor(together_, block_);
    } else {
      queries_ = b_.alloc(tile_ * depth_ * 4, 64);
      transposed_ = b_.alloc((few_ ? int64_t{together_} * lanes_ * lanes_ : block_ * depth_) * 4, 64);
      if (!direct_keys_ && !few_) staged_ = b_.alloc(int64_t{lanes_} * depth_ * 4, 64);
      if (!direct_values_) values_ = b_.alloc(block_ * width_ * 4, 64);
    }
    sums_ = b_.alloc(tile_ * width_ * 4, 64);
    row_ = b_.alloc(together_ * block_ * 4, 64);
    row_max_ = b_.alloc(tile_ * 4, 64);
    row_sum_ = b_.alloc(tile_ * lanes_ * 4, 64);
    if (range_.is_bounded()) {
      first_ = b_.alloc(groups_ * 8, 64);
      end_ = b_.alloc(groups_ * 8, 64);
      bounds_ = b_.alloc(16, 64);
    }
    softmax_ = std::make_unique<Accumulators>(b_, g_, std::vector<graph::ValueId>{a_.top, a_.sum}, lanes_, 1);
  }

  // ---- places and axes

  // Byte offset of a number of a row: of its weighted sum, or of its scores (row r of a group).
  Expr sum_at(Expr i, Expr e) { return units_ ? units_->sum_place(i, e, width_) : bytes(i * width_ + e, 1); }
  Expr score_at(Expr r, Expr key) { return units_ ? units_->sum_place(r, key, block_) : bytes(r * block_ + key, 1); }

  // Row i of the tile; rows beyond the last repeat it, and are never written.
  int open_row(Body& body, Expr i) {
    Expr row = first_row_ + i;
    if (rows_ % tile_ != 0) row = min(row, b_.i64(rows_ - 1));
    const std::vector<Expr> at = digits(b_, row, tile_extents_);
    int opened = 0;
    for (size_t k = 0; k < at.size(); ++k) opened += open_axis(body, tile_axes_[k], at[k]);
    return opened;
  }

  // Key `number` in a body that reads keys or values.
  int open_key(Body& body, Expr number) {
    const int opened = open_axis(body, a_.extents.size() - 1, number);
    const bool is_dot = &body == dot_.get();
    const std::optional<Attention::Found>& found = is_dot ? a_.k_found : a_.v_found;
    if (!found) return opened;
    LUMEN_CHECK(opened == 1, "a single key is found by a table");
    const Expr inside = key_in_table(body, *found);
    body.shift_load(is_dot ? a_.k : a_.v, (inside - number) * found->stride);
    return opened;
  }

  // ---- one tile

  void tile(std::vector<Expr> counters) {
    const Expr part = counters.back();
    counters.pop_back();
    first_row_ = counters.back() * tile_;
    counters.pop_back();
    count_ = rows_ % tile_ == 0 ? b_.i64(tile_) : min(b_.i64(tile_), rows_ - first_row_);
    Body* bodies[3] = {dot_.get(), map_.get(), pick_.get()};
    int opened[3] = {0, 0, 0};
    const std::vector<int64_t> dense = dense_strides_of(a_.row_extents());
    row_number_ = b_.i64(0);
    for (size_t d = 0; d < counters.size(); ++d) {
      if (std::find(tile_axes_.begin(), tile_axes_.end(), static_cast<int>(d)) != tile_axes_.end()) continue;
      row_number_ = row_number_ + counters[d] * dense[d];
      for (int n = 0; n < 3; ++n) opened[n] += open_axis(*bodies[n], d, counters[d]);
    }
    // A part may have no keys: it computes nothing, and attend_merge leaves it out.
    const bool may_leave = parts_ > 1 && range_.is_bounded();
    if (!may_leave) begin_rows();
    Expr from = part * part_, to = b_.i64(a_.keys);
    if (parts_ > 1) to = min(from + part_, to);
    if (range_.is_bounded()) {
      find_bounds();
      from = max(from, down(b_.load(bounds_, {Scalar::i64, 1}, b_.i64(0), 8), block_));
      to = min(to, b_.load(bounds_, {Scalar::i64, 1}, b_.i64(8), 8));
    }
    const auto compute = [&] {
      if (may_leave) begin_rows();
      serial(from, to, block_, [&](Expr key) { block(key, min(key + block_, to)); });
      serial(b_.i64(0), count_, 1, [&](Expr i) { parts_ > 1 ? keep(i, part) : finish(i); });
    };
    if (may_leave)
      b_.branch(from < to, compute,
                [&] { serial(b_.i64(0), count_, 1, [&](Expr i) { keep_no_keys(number_of(i, part)); }); });
    else
      compute();
    for (int n = 0; n < 3; ++n) close(*bodies[n], opened[n]);
  }

  void begin_rows() {
    load_queries();
    serial(b_.i64(0), b_.i64(tile_), 1, [&](Expr i) {
      b_.store(row_max_, b_.real(kLowest, {Scalar::f32, 1}), bytes(i, 1), 4);
      b_.store(row_sum_, b_.real(0, vector()), bytes(i, lanes_), line_);
      for (int64_t e = 0; e < width_; e += lanes_) b_.store(sums_, b_.real(0, vector()), sum_at(i, b_.i64(e)), line_);
    });
  }

  void load_queries() {
    serial(b_.i64(0), b_.i64(tile_), 1, [&](Expr i) {
      const int opened = open_row(*dot_, i);
      if (units_) {
        put_line(*dot_, a_.q, queries_, i, depth_, a_.depth);
        return close(*dot_, opened);
      }
      if (a_.depth % lanes_ != 0)  // zero padding of the last vector
        b_.store(queries_, b_.real(0, vector()), i * (depth_ * 4) + (depth_ - lanes_) * 4, line_);
      for_lanes(b_, *dot_, lanes_, 1, b_.i64(0), b_.i64(a_.depth), a_.depth % lanes_ == 0, [&](int) {
        b_.store(queries_, as_f32(dot_->value(a_.q)), bytes(i * depth_ + dot_->at(), 1), 4, dot_->count());
      });
      close(*dot_, opened);
    });
  }

  // Stores a line of the matrix unit's first factor, from the position of `body`.
  void put_line(Body& body, graph::ValueId value, BufferId to, Expr line, int64_t padded, int64_t width) {
    if (padded != width) units_->clear(to, padded, line, padded - UnitTiles::kStep);
    for_lanes(b_, body, lanes_, 1, b_.i64(0), b_.i64(width), width % lanes_ == 0,
              [&](int) { units_->put(to, padded, line, body.at(), body.value(value), body.count()); });
  }

  // Lays out keys key .. end - 1 as second factors of scores, their values as those of weighted sums; zeros beyond the
  // last.
  void lay_keys(Expr key, Expr end) {
    const auto lay = [&](Body& body, graph::ValueId value, BufferId to, int64_t padded, int64_t width) {
      serial(key, end, 1, [&](Expr at) {
        const int opened = open_key(body, at);
        put_line(body, value, to, at - key, padded, width);
        close(body, opened);
      });
      units_->clear_lines(to, padded, end - key, block_);
    };
    lay(*dot_, a_.k, staged_, depth_, a_.depth);
    units_->transpose_words(staged_, block_, depth_, transposed_);
    lay(*pick_, a_.v, value_lines_, width_, a_.width);
    units_->pair(value_lines_, block_, width_, values_);
  }

  // The range of keys that some row of each group sees, and that of the tile.
  void find_bounds() {
    const VType i64{Scalar::i64, 1};
    const Expr least_at = b_.i64(0), most_at = b_.i64(8);
    b_.store(bounds_, b_.i64(a_.keys), least_at, 8);
    b_.store(bounds_, b_.i64(0), most_at, 8);
    serial(b_.i64(0), b_.i64(groups_), 1, [&](Expr group) {
      const Expr at = group * 8;
      b_.store(first_, b_.i64(a_.keys), at, 8);
      b_.store(end_, b_.i64(0), at, 8);
      serial(b_.i64(0), b_.i64(together_), 1, [&](Expr r) {
        const int opened = open_row(*map_, group * together_ + r);
        const auto [first, end] = keys_of_row(b_, *map_, range_);
        b_.store(first_, min(first, b_.load(first_, i64, at, 8)), at, 8);
        b_.store(end_, max(end, b_.load(end_, i64, at, 8)), at, 8);
        close(*map_, opened);
      });
      b_.store(bounds_, min(b_.load(first_, i64, at, 8), b_.load(bounds_, i64, least_at, 8)), least_at, 8);
      b_.store(bounds_, max(b_.load(end_, i64, at, 8), b_.load(bounds_, i64, most_at, 8)), most_at, 8);
    });
  }

  // Keys key .. end - 1, for all groups of rows.
  void block(Expr key, Expr end) {
    if (units_) {
      lay_keys(key, end);
    } else {
      if (!few_) transpose_keys(key, end);
      if (!direct_values_) unpack_values(key, end);
    }
    const Expr used = tiles_ == 1 && rows_ == tile_ ? b_.i64(groups_) : (count_ + (together_ - 1)) / together_;
    serial(b_.i64(0), used, 1, [&](Expr group) {
      if (!range_.is_bounded()) {
        rows(group, key, key, end);
        return;
      }
      // Whole vectors of keys; the mask itself hides the excess.
      const VType i64{Scalar::i64, 1};
      const Expr at = group * 8;
      const Expr from = max(key, down(b_.load(first_, i64, at, 8), lanes_));
      const Expr seen = b_.load(end_, i64, at, 8);
      const Expr to = min(end, down(seen + (lanes_ - 1), lanes_));
      b_.branch(from < to, [&] { rows(group, key, from, to); });
    });
  }

  // Vector panel p of the block holds, for each number of the depth, that number of key_vectors_ * lanes_ keys.
  Expr panel_place(Expr key_in_block, Expr depth) {
    const int64_t panel = int64_t{key_vectors_} * lanes_;
    const Expr inside = key_in_block % panel;
    return bytes((key_in_block - inside) * depth_ + depth * panel + inside, 1);
  }

  void transpose_keys(Expr key, Expr end) {
    serial(key, end, lanes_, [&](Expr at) {
      // Keys beyond the last repeat it; their scores are never used.
      const auto number = [&](Expr j) {
        const Expr n = at + j;
        return a_.keys % lanes_ == 0 ? n : min(n, b_.i64(a_.keys - 1));
      };
      const auto square = [&](Expr depth, const std::function<Expr(int)>& line) {
        std::vector<Expr> tile;
        for (int j = 0; j < lanes_; ++j) tile.push_back(line(j));
        transpose(b_, tile);
        for (int l = 0; l < lanes_; ++l) b_.store(transposed_, tile[l], panel_place(at - key, depth + l), 4);
      };
      if (direct_keys_) {
        const auto from_memory = [&](Expr depth, Expr count) {
          square(depth, [&](int j) {
            const int opened = open_key(*dot_, number(b_.i64(j)));
            dot_->open_lanes(depth, lanes_, count);
            const Expr x = as_f32(dot_->value(a_.k));
            dot_->close();
            close(*dot_, opened);
            return x;
          });
        };
        const int64_t whole = a_.depth / lanes_ * lanes_;
        if (whole > 0) serial(b_.i64(0), b_.i64(whole), lanes_, [&](Expr d) { from_memory(d, {}); });
        if (whole < a_.depth) from_memory(b_.i64(whole), b_.i64(a_.depth - whole));
        return;
      }
      serial(b_.i64(0), b_.i64(lanes_), 1, [&](Expr j) {
        const int opened = open_key(*dot_, number(j));
        for_lanes(b_, *dot_, lanes_, 1, b_.i64(0), b_.i64(a_.depth), true,
                  [&](int) { b_.store(staged_, as_f32(dot_->value(a_.k)), bytes(j * depth_ + dot_->at(), 1), 4); });
        close(*dot_, opened);
      });
      serial(b_.i64(0), b_.i64(depth_), lanes_, [&](Expr d) {
        square(d, [&](int j) { return b_.load(staged_, vector(), bytes(d + j * depth_, 1), line_); });
      });
    });
  }

  void unpack_values(Expr key, Expr end) {
    serial(key, end, 1, [&](Expr at) {
      const int opened = open_key(*pick_, at);
      for_lanes(b_, *pick_, lanes_, 1, b_.i64(0), b_.i64(a_.width), a_.width % lanes_ == 0, [&](int) {
        b_.store(values_, as_f32(pick_->value(a_.v)), bytes((at - key) * width_ + pick_->at(), 1), 4, pick_->count());
      });
      close(*pick_, opened);
    });
  }

  // Rows group * together_ .. of the tile and keys from .. to - 1 of the block that begins at `key`; `from` is a
  // multiple of the lanes.
  void rows(Expr group, Expr key, Expr from, Expr to) {
    const Expr first = group * together_;
    if (units_) {
      score_units(first, from - key, to - key);
    } else {
      few_ ? score_few(key, from, to) : score(first, key, from, to);
    }
    const Expr count = rows_ % together_ == 0 ? b_.i64(together_) : min(b_.i64(together_), count_ - first);
    serial(b_.i64(0), count, 1, [&](Expr r) { soften(first, r, key, from, to); });
    if (units_) return pick_units(first, count, from - key, to - key);
    for (int64_t e = 0; e < width_;) {
      int vectors = key_vectors_;
      while (e + int64_t{vectors} * lanes_ > width_) vectors /= 2;
      const int64_t step = int64_t{vectors} * lanes_, end = e + (width_ - e) / step * step;
      serial(b_.i64(e), b_.i64(end), step, [&](Expr at) { pick(first, key, from, to, at, vectors); });
      e = end;
    }
  }

  // Scores by the matrix unit, of keys from .. to - 1 of the block; the rest of their tiles gets scores, too.
  void score_units(Expr first, Expr from, Expr to) {
    const int64_t steps = depth_ / UnitTiles::kStep, keys = block_ / UnitTiles::kUnit, tile = UnitTiles::kTile;
    units_->multiply({row_, b_.i64(0), keys * tile, tile},
                     {queries_, steps * tile, tile, first / UnitTiles::kUnit * (steps * tile)},
                     {transposed_, tile, keys * tile}, {b_.i64(0), b_.i64(2)},
                     {from / UnitTiles::kStep * 2, units_->units(to)}, {b_.i64(0), b_.i64(steps)}, false);
  }
  // Probabilities outside the range are zero.
  void pick_units(Expr first, Expr count, Expr from, Expr to) {
    const int64_t tile = UnitTiles::kTile, unit = UnitTiles::kUnit, columns = width_ / unit;
    const UnitTiles::Beside around = units_->beside(count, b_.i64(together_), {from, to});
    units_->clear(around, row_, block_);
    units_->lay(row_, block_, around.all, around.steps.from, around.steps.to, probabilities_);
    units_->multiply({sums_, first / unit * (columns * tile), columns * tile, tile},
                     {probabilities_, block_ / UnitTiles::kStep * tile, tile}, {values_, tile, columns * tile},
                     {b_.i64(0), b_.i64(2)}, {b_.i64(0), b_.i64(columns)},
                     {from / UnitTiles::kStep, units_->units(to) / 2}, true);
  }

  void score(Expr first, Expr key, Expr from, Expr to) {
    const int64_t panel = int64_t{key_vectors_} * lanes_;
    serial(down(from - key, panel), to - key, panel, [&](Expr at) {
      Accumulators sums(b_, g_, {a_.scores}, lanes_, together_ * key_vectors_);
      sums.reset(0);
      serial(b_.i64(0), b_.i64(a_.depth), 1, [&](Expr d) {
        std::vector<Expr> keys;
        for (int k = 0; k < key_vectors_; ++k)
          keys.push_back(b_.load(transposed_, vector(), bytes(at * depth_ + d * panel + k * lanes_, 1), line_));
        for (int r = 0; r < together_; ++r) {
          const Expr place = bytes(first * depth_ + d + r * depth_, 1);
          const Expr x = b_.splat(b_.load(queries_, {Scalar::f32, 1}, place, 4), lanes_);
          for (int k = 0; k < key_vectors_; ++k) sums.multiply_add(r * key_vectors_ + k, x, keys[k], fused_);
        }
      });
      for (int r = 0; r < together_; ++r)
        for (int k = 0; k < key_vectors_; ++k)
          b_.store(row_, sums.get(0, r * key_vectors_ + k), bytes(at + (r * block_ + k * lanes_), 1), line_);
    });
  }

  // The same where rows are so few that transposing keys would cost more than multiplying them: lanes run along the
  // depth, and as many vectors of sums as there are lanes are reduced together.
  void score_few(Expr key, Expr from, Expr to) {
    serial(from, to, lanes_, [&](Expr at) {
      serial(b_.i64(0), b_.i64(lanes_), 1, [&](Expr j) {
        Accumulators sums(b_, g_, {a_.scores}, lanes_, together_);
        sums.reset(0);
        const Expr number = at + j;  // keys beyond the last repeat it
        const int opened = open_key(*dot_, a_.keys % lanes_ == 0 ? number : min(number, b_.i64(a_.keys - 1)));
        for_lanes(b_, *dot_, lanes_, 1, b_.i64(0), b_.i64(a_.depth), a_.depth % lanes_ == 0, [&](int) {
          const Expr x = as_f32(dot_->value(a_.k));
          for (int r = 0; r < together_; ++r) {
            const Expr place = bytes(dot_->at() + r * depth_, 1);
            const Expr y = b_.load(queries_, {Scalar::f32, dot_->lanes()}, place, 4);
            if (dot_->lanes() == lanes_) {
              sums.multiply_add(r, y, x, fused_);
            } else {
              sums.add(0, r, y * x, {});
            }
          }
        });
        close(*dot_, opened);
        for (int r = 0; r < together_; ++r)
          b_.store(transposed_, sums.get(0, r), bytes(int64_t{r} * lanes_ + j, lanes_), line_);
      });
      for (int r = 0; r < together_; ++r) {
        std::vector<Expr> sums;
        for (int j = 0; j < lanes_; ++j)
          sums.push_back(b_.load(transposed_, vector(), b_.i64((int64_t{r} * lanes_ + j) * line_), line_));
        b_.store(row_, fold_each(std::move(sums)), bytes(at - key + r * block_, 1), line_);
      }
    });
  }

  // Lane l of the result: the sum of all lanes of vector l, by halves.
  Expr fold_each(std::vector<Expr> x) {
    for (int s = lanes_ / 2; s >= 1; s /= 2) {
      std::vector<int> low, high;
      for (int l = 0; l < lanes_; ++l) {
        low.push_back(l & s ? lanes_ + (l ^ s) : l);
        high.push_back(l & s ? lanes_ + l : l ^ s);
      }
      for (int i = 0; i < s; ++i) x[i] = b_.shuffle({x[i], x[i + s]}, low) + b_.shuffle({x[i], x[i + s]}, high);
      x.resize(s);
    }
    return x[0];
  }

  // Online softmax: scores to probabilities of row r of the group, in place; updates the row's maximum and sum.
  void soften(Expr first, Expr r, Expr key, Expr from, Expr to) {
    const VType one{Scalar::f32, 1};
    const Expr i = first + r, top_at = bytes(i, 1), total_at = bytes(i, lanes_);
    const int opened = open_row(*map_, i);
    const auto pass = [&](const std::function<Expr(Expr)>& step, int reduce) {
      softmax_->reset(reduce);
      for_lanes(b_, *map_, lanes_, 1, from, to, a_.keys % lanes_ == 0, [&](int) {
        const Expr at = score_at(r, map_->at() - key);
        const Expr x = step(b_.load(row_, {Scalar::f32, map_->lanes()}, at, 4));
        b_.store(row_, units_ && reduce == 1 ? existing(*map_, x) : x, at, 4);
        softmax_->add(reduce, 0, x, map_->count());
      });
    };
    pass(
        [&](Expr x) {
          map_->set(a_.scores, x);
          return map_->value(a_.score);
        },
        0);
    const Expr top = softmax_->total(0), before = b_.load(row_max_, one, top_at, 4);
    b_.branch(before < top, [&] {
      b_.store(row_max_, top, top_at, 4);
      b_.branch(kLowest < before, [&] {  // there is something to scale
        const Expr scale = b_.splat(exp(before - top), lanes_);
        b_.store(row_sum_, b_.load(row_sum_, vector(), total_at, line_) * scale, total_at, line_);
        serial(b_.i64(0), b_.i64(width_), lanes_, [&](Expr e) {
          const Expr at = sum_at(i, e);
          b_.store(sums_, b_.load(sums_, vector(), at, line_) * scale, at, line_);
        });
      });
    });
    const Expr now = b_.load(row_max_, one, top_at, 4);
    pass([&](Expr x) { return exp(x - b_.splat(now, b_.type(x).lanes)); }, 1);
    b_.store(row_sum_, b_.load(row_sum_, vector(), total_at, line_) + softmax_->get(1, 0), total_at, line_);
    close(*map_, opened);
  }

  // Adds to numbers at .. of the weighted sums of the group's rows.
  void pick(Expr first, Expr key, Expr from, Expr to, Expr at, int vectors) {
    Accumulators sums(b_, g_, {a_.last}, lanes_, together_ * vectors);
    const auto kept = [&](int r, int w) { return bytes(first * width_ + at + (r * width_ + int64_t{w} * lanes_), 1); };
    for (int r = 0; r < together_; ++r)
      for (int w = 0; w < vectors; ++w) sums.put(r * vectors + w, b_.load(sums_, vector(), kept(r, w), line_));
    serial(from - key, to - key, 1, [&](Expr n) {
      std::vector<Expr> values;
      const int opened = direct_values_ ? open_key(*pick_, key + n) : 0;
      for (int w = 0; w < vectors; ++w) {
        const Expr e = at + int64_t{w} * lanes_;
        if (direct_values_) {
          pick_->open_lanes(e, lanes_, {});
          values.push_back(as_f32(pick_->value(a_.v)));
          pick_->close();
        } else {
          values.push_back(b_.load(values_, vector(), bytes(n * width_ + e, 1), line_));
        }
      }
      close(*pick_, opened);
      for (int r = 0; r < together_; ++r) {
        const Expr p = b_.splat(b_.load(row_, {Scalar::f32, 1}, bytes(n + r * block_, 1), 4), lanes_);
        for (int w = 0; w < vectors; ++w) sums.multiply_add(r * vectors + w, p, values[w], fused_);
      }
    });
    for (int r = 0; r < together_; ++r)
      for (int w = 0; w < vectors; ++w) b_.store(sums_, sums.get(0, r * vectors + w), kept(r, w), line_);
  }

  void finish(Expr i) {
    const Expr total = b_.fold(ScalarOp::add_, b_.load(row_sum_, vector(), bytes(i, lanes_), line_));
    for (const graph::ValueId r : group_.results) {
      if (r == a_.written) continue;
      const int opened = open_row(*map_, i);
      map_->open_scalar();
      map_->store(r, r == a_.top ? b_.load(row_max_, {Scalar::f32, 1}, bytes(i, 1), 4) : total);
      map_->close();
      close(*map_, opened);
    }
    const int opened = open_row(*pick_, i);
    each_number(a_.width, pick_->store_stride(a_.written) == 1 || a_.width == 1, [&](Expr at, int lanes, Expr count) {
      pick_->open_lanes(at, lanes, count);
      const Expr sum = b_.load(sums_, {Scalar::f32, lanes}, sum_at(i, at), 4);
      const Expr o = sum / b_.splat(total, lanes);
      pick_->store(a_.written, cast(o, g_[a_.written].type.element.scalar));
      pick_->close();
    });
    close(*pick_, opened);
  }

  // The number of a part's row among those that attend_merge reads.
  Expr number_of(Expr i, Expr part) {
    Expr number = row_number_;
    const std::vector<int64_t> dense = dense_strides_of(a_.row_extents());
    const std::vector<Expr> at = digits(b_, first_row_ + i, tile_extents_);
    for (size_t k = 0; k < at.size(); ++k) number = number + at[k] * dense[tile_axes_[k]];
    return number + part * product(a_.row_extents());
  }

  // Writes a part's row for attend_merge.
  void keep(Expr i, Expr part) {
    const Expr number = number_of(i, part);
    const Expr total = b_.fold(ScalarOp::add_, b_.load(row_sum_, vector(), bytes(i, lanes_), line_));
    keep_extremes(number, b_.load(row_max_, {Scalar::f32, 1}, bytes(i, 1), 4), total);
    each_number(a_.width, true, [&](Expr e, int lanes, Expr count) {
      const Expr sum = b_.load(sums_, {Scalar::f32, lanes}, sum_at(i, e), 4);
      b_.store(partial_, sum, bytes(number * a_.width + e, 1), 4, count);
    });
  }

  const graph::Plan& plan_;
  const graph::Group& group_;
  graph::Group nothing_;  // the same memory, no nodes: for bodies that only read what they are given
  Attention a_;
  KeyRange range_;
  const machine::Machine* target_ = nullptr;
  std::unique_ptr<Body> dot_, map_, pick_;  // over (rows, keys, depth), (rows, keys), (rows, keys, width)
  std::unique_ptr<Accumulators> softmax_;
  std::vector<int> tile_axes_;  // of the scores: their rows share keys and values
  std::vector<int64_t> tile_extents_;
  int64_t rows_ = 1, tile_ = 1, tiles_ = 1, groups_ = 1;  // rows there are, rows of a tile, tiles, groups of a tile
  int together_ = 1, key_vectors_ = 1;                    // rows of a group, adjacent vectors of keys
  int64_t depth_ = 1, width_ = 1, block_ = 1;             // in whole vectors; keys of a block
  int64_t parts_ = 1, part_ = 0;
  bool direct_keys_ = false, direct_values_ = false;  // read in place
  bool few_ = false;                                  // rows: keys are not transposed
  std::unique_ptr<UnitTiles> units_;                  // null: vectors multiply
  BufferId value_lines_ = -1, probabilities_ = -1;    // of the matrix unit
  BufferId queries_ = -1, transposed_ = -1, staged_ = -1, values_ = -1, sums_ = -1, row_ = -1, row_max_ = -1,
           row_sum_ = -1;
  BufferId first_ = -1, end_ = -1, bounds_ = -1;
  Expr first_row_, count_, row_number_;
};

}  // namespace

Synthesis attend_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                          Scalar factor, bool invariant) {
  return AttendKernel(plan, group, target, factor, invariant).run();
}

}  // namespace lumen::synth
