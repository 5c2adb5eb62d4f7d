#include "kernel/synth/encode/fit_by_lanes.h"

#include <algorithm>

#include "base/check.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/unpack/magnitude.h"

namespace lumen::synth {
namespace {

constexpr int64_t kVector = 4;        // elements of a load
constexpr int64_t kAhead = 4;         // loads that a lane has in flight
constexpr int64_t kBlock = 128;       // lanes of a block whose waves have records of their own
constexpr int64_t kMostShare = 256;   // lanes of a block that share one
constexpr int64_t kParted = 1 << 16;  // elements of a tensor that many blocks share

}  // namespace

std::optional<FitByLanes> FitByLanes::of(const Format& f, Level level, const EncodeOperands& given,
                                         const machine::Machine& target) {
  if (target.wave <= 1 || level == Level::block || given.weighs(f, level)) return {};
  const auto& fit = given.fit(f, level);
  if (!fit || !shared_loop(*fit, kAllValues)) return {};
  for (size_t k = 0; k < f.fields.size(); ++k)
    if (f.fields[k].level == level && is_supplied(given.supplied, k)) return {};
  FitByLanes out;
  out.format_ = &f;
  out.level_ = level;
  out.wave_ = target.wave;
  out.records_ = record_count(f, level, given.rows, given.columns);
  const int64_t elements = out.elements(given);
  const bool whole = given.columns % kVector == 0 && (level != Level::tile || f.tile_columns % kVector == 0);
  out.vector_ = whole ? kVector : 1;
  out.vectors_ = elements / out.vector_;
  if (level == Level::tensor && elements >= kParted) {
    out.share_ = kMostShare;
    out.parts_ = std::clamp<int64_t>(out.vectors_ / (kMostShare * kAhead), 2, int64_t{target.units} * 8);
    return out;
  }
  while (out.share_ < kMostShare && out.share_ * kAhead < out.vectors_) out.share_ *= 2;
  return out;
}

int64_t FitByLanes::elements(const EncodeOperands& given) const {
  if (level_ == Level::row) return given.columns;
  if (level_ == Level::tensor) return given.rows * given.columns;
  // Elements beyond an edge repeat others of the record.
  return std::min(format_->tile_rows, given.rows) * std::min(format_->tile_columns, given.columns);
}

std::string FitByLanes::text() const {
  return parts_ > 1 ? fmt::format("by {} blocks", parts_) : fmt::format("by {} lanes", share_);
}

Expr FitByLanes::scan(Builder& b, const EncodeOperands& given, Expr record, Expr first, int64_t stride,
                      int64_t count) const {
  const Routine& fit = *given.fit(*format_, level_);
  const MagnitudeLoop loop = magnitude_loop(*shared_loop(fit, kAllValues));
  RoutineHooks hooks;
  Expr values;
  hooks.source = [&](int, Expr) { return values; };
  RoutineRun run(b, fit, std::move(hooks), vector_);
  const int64_t wide = level_ == Level::tile ? std::min(format_->tile_columns, given.columns) / vector_ : vectors_;
  const RecordPlace place = record_place(b, *format_, level_, given, record);
  const auto bits_at = [&](Expr number) {
    number = min(number, b.i64(vectors_ - 1));
    Expr element;
    if (level_ == Level::tile) {
      const Expr row = min(place.row + number / wide, b.i64(given.rows - 1));
      const Expr column = min(place.column + number % wide * vector_, b.i64(given.columns - vector_));
      element = row * given.columns + column;
    } else {
      element = place.row * given.columns + number * vector_;
    }
    values = given.values(b, element, vector_, vector_);
    return bitcast(run.evaluate(*loop.value), Scalar::u32);
  };
  const BufferId largest = b.alloc(4 * vector_, 16);
  const VType type{Scalar::u32, vector_};
  b.store(largest, b.integer(0, type), b.i64(0), 4);
  const int64_t ahead = std::min(kAhead, count);
  b.count(0, count, ahead, [&](Expr i) {
    std::vector<Expr> found;
    for (int64_t k = 0; k < ahead; ++k) found.push_back(bits_at(first + (i + k) * stride));
    Expr most = b.load(largest, type, b.i64(0), 4);
    for (const Expr x : found) most = max(most, x);
    b.store(largest, most, b.i64(0), 4);
  });
  const Expr most = b.load(largest, type, b.i64(0), 4);
  return vector_ == 1 ? most : b.fold(ScalarOp::max_, most);
}

void FitByLanes::fit(Builder& b, const EncodeOperands& given, Expr record, Expr bits, Expr writes) const {
  const BlobLayout layout = blob_layout(*format_, given.rows, given.columns);
  const int64_t bytes = record_bytes(*format_, level_);
  const Expr base = layout.section[ordinal(level_)] + record * bytes;
  const auto once = [&](const std::function<void()>& body) { b.branch(writes, body); };
  once([&] { clear_bytes(b, given.blob, 0, bytes, base); });
  RoutineHooks hooks =
      level_hooks(b, *format_, level_, given, record_place(b, *format_, level_, given, record), base, once);
  hooks.magnitude = [&] { return bits; };
  RoutineRun run(b, *given.fit(*format_, level_), std::move(hooks));
  run.clear();
  run.run();
}

// Lanes of a wave share a record, a block has many.
void FitByLanes::write_in_waves(Builder& b, const EncodeOperands& given) const {
  const int64_t together = std::max<int64_t>(kBlock, wave_) / share_;
  b.loop(LoopKind::grid, b.i64(0), b.i64(ceil_div(records_, together)), 1, [&](Expr block) {
    b.loop(LoopKind::lane, b.i64(0), b.i64(together * share_), 1, [&](Expr lane) {
      const Expr number = block * together + lane / share_;
      const Expr record = min(number, b.i64(records_ - 1)), mine = lane % share_;
      Expr bits = scan(b, given, record, mine, share_, ceil_div(vectors_, share_));
      if (share_ > 1) bits = b.fold_wave(ScalarOp::max_, bits, share_);
      fit(b, given, record, bits, (mine == 0) & (number < records_));
    });
  });
}

// Waves of a block share a record; they exchange their results in shared memory.
void FitByLanes::write_in_blocks(Builder& b, const EncodeOperands& given) const {
  const int64_t waves = share_ / wave_;
  b.loop(LoopKind::grid, b.i64(0), b.i64(records_), 1, [&](Expr record) {
    const BufferId slots = b.alloc(waves * 4, 16, loop::Space::shared);
    b.loop(LoopKind::lane, b.i64(0), b.i64(share_), 1, [&](Expr lane) {
      const Expr bits =
          b.fold_wave(ScalarOp::max_, scan(b, given, record, lane, share_, ceil_div(vectors_, share_)), wave_);
      b.branch(b.lane_id() == 0, [&] { b.store(slots, bits, lane / wave_ * 4, 4); });
    });
    b.barrier();
    b.loop(LoopKind::lane, b.i64(0), b.i64(share_), 1, [&](Expr lane) {
      Expr bits = b.load(slots, {Scalar::u32, 1}, b.i64(0), 4);
      for (int64_t w = 1; w < waves; ++w) bits = max(bits, b.load(slots, {Scalar::u32, 1}, b.i64(w * 4), 4));
      fit(b, given, record, bits, lane == 0);
    });
  });
}

void FitByLanes::write_partial(Builder& b, const EncodeOperands& given, BufferId partial) const {
  const int64_t waves = share_ / wave_, stride = parts_ * share_;
  b.loop(LoopKind::grid, b.i64(0), b.i64(parts_), 1, [&](Expr part) {
    const BufferId slots = b.alloc(waves * 4, 16, loop::Space::shared);
    b.loop(LoopKind::lane, b.i64(0), b.i64(share_), 1, [&](Expr lane) {
      const Expr bits = b.fold_wave(
          ScalarOp::max_, scan(b, given, b.i64(0), part * share_ + lane, stride, ceil_div(vectors_, stride)), wave_);
      b.branch(b.lane_id() == 0, [&] { b.store(slots, bits, lane / wave_ * 4, 4); });
    });
    b.barrier();
    b.loop(LoopKind::lane, b.i64(0), b.i64(share_), 1, [&](Expr lane) {
      Expr bits = b.load(slots, {Scalar::u32, 1}, b.i64(0), 4);
      for (int64_t w = 1; w < waves; ++w) bits = max(bits, b.load(slots, {Scalar::u32, 1}, b.i64(w * 4), 4));
      b.branch(lane == 0, [&] { b.store(partial, bits, part * 4, 4); });
    });
  });
}

void FitByLanes::write_joined(Builder& b, const EncodeOperands& given, BufferId partial) const {
  b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
    b.loop(LoopKind::lane, b.i64(0), b.i64(wave_), 1, [&](Expr lane) {
      const BufferId largest = b.alloc(4, 16);
      b.store(largest, b.integer(0, {Scalar::u32, 1}), b.i64(0), 4);
      b.count(0, ceil_div(parts_, int64_t{wave_}), 1, [&](Expr i) {
        const Expr part = min(i * wave_ + lane, b.i64(parts_ - 1));
        const Expr so_far = b.load(largest, {Scalar::u32, 1}, b.i64(0), 4);
        b.store(largest, max(so_far, b.load(partial, {Scalar::u32, 1}, part * 4, 4)), b.i64(0), 4);
      });
      const Expr bits = b.fold_wave(ScalarOp::max_, b.load(largest, {Scalar::u32, 1}, b.i64(0), 4), wave_);
      fit(b, given, b.i64(0), bits, lane == 0);
    });
  });
}

void FitByLanes::write(Builder& b, const EncodeOperands& given, BufferId partial) const {
  if (parts_ > 1) return write_joined(b, given, partial);
  share_ <= wave_ ? write_in_waves(b, given) : write_in_blocks(b, given);
}

}  // namespace lumen::synth
