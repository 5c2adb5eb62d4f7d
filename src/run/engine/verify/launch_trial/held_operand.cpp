#include "run/engine/verify/launch_trial/held_operand.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/ordinal.h"
#include "base/round_up.h"
#include "number/codec/codec.h"

namespace lumen::run {
namespace {

constexpr int64_t kPool = 64;              // blocks
constexpr int64_t kFewestRows = 7;         // distinct rows at least; the others are copies
constexpr int64_t kMostEncoded = 1 << 18;  // numbers; the codec is slow
constexpr int64_t kLongestRun = 32;        // consecutive numbers in the pool, at least
constexpr double kSize = 1.0 / 8;          // scale of most numbers, so that long sums are near 1

std::vector<float> normals(int64_t count, bool positive, uint64_t seed) {
  std::mt19937_64 chance(seed);
  std::normal_distribution<double> normal(0, kSize);
  std::vector<float> x(count);
  for (float& one : x) one = float(positive ? std::abs(normal(chance)) : normal(chance));
  return x;
}

// Random bytes, for decode-only formats: blocks with NaN, infinite or large numbers become zero.
std::vector<uint8_t> random_blocks(const Format& f, int64_t rows, int64_t columns, uint64_t seed) {
  const BlobLayout layout = blob_layout(f, rows, columns);
  std::vector<uint8_t> blob(layout.total);
  std::mt19937_64 chance(seed);
  for (int64_t i = 0; i < layout.data_bytes; ++i) blob[i] = uint8_t(chance());
  const std::vector<float> x = decode(f, blob, rows, columns);
  for (int64_t at = 0; at < std::ssize(x); at += f.block) {
    const bool usual =
        std::all_of(x.begin() + at, x.begin() + at + f.block, [](float v) { return std::abs(v) < 1e3F; });
    const int64_t row = at / columns, block = at % columns / f.block;
    if (!usual) std::memset(&blob[row * layout.row_stride + block * f.block_bytes], 0, f.block_bytes);
  }
  return blob;
}

// An operand whose blocks are all taken from a pool.
class PooledBlocks : public Operand {
 public:
  PooledBlocks(const FormatRef& f, int64_t columns, bool positive, uint64_t seed) : seed_(seed) {
    unit_ = f->block;
    while (unit_ < kLongestRun && columns % (2 * unit_) == 0) unit_ *= 2;
    unit_bytes_ = unit_ / f->block * f->block_bytes;
    const std::vector<uint8_t> blob = f->encodes() ? encode(*f, normals(kPool * unit_, positive, seed), kPool, unit_)
                                                   : random_blocks(*f, kPool, unit_, seed);
    numbers_ = decode(*f, blob, kPool, unit_);
    const int64_t stride = blob_layout(*f, kPool, unit_).row_stride;
    for (int64_t i = 0; i < kPool; ++i)
      blocks_.insert(blocks_.end(), blob.begin() + i * stride, blob.begin() + i * stride + unit_bytes_);
  }
  double number(int64_t element) const override { return numbers_[pooled(element / unit_) * unit_ + element % unit_]; }
  int64_t piece() const override { return unit_bytes_; }
  void write(int64_t at, int64_t bytes, uint8_t* to) const override {
    for (int64_t done = 0; done < bytes; done += unit_bytes_)
      std::memcpy(to + done, &blocks_[pooled((at + done) / unit_bytes_) * unit_bytes_],
                  std::min(unit_bytes_, bytes - done));
  }

 private:
  int64_t pooled(int64_t unit) const { return int64_t(((uint64_t(unit) + seed_) * 0x9e3779b97f4a7c15) >> 40) % kPool; }

  uint64_t seed_;
  int64_t unit_ = 0, unit_bytes_ = 0;
  std::vector<uint8_t> blocks_;
  std::vector<float> numbers_;
};

// Some rows, repeated, with their row and tile fields.
class RepeatedRows : public Operand {
 public:
  RepeatedRows(const FormatRef& f, int64_t rows, int64_t columns, bool positive, uint64_t seed) : columns_(columns) {
    const int64_t unit = f->tile_bytes > 0 ? f->tile_rows : 1;
    some_ = rows <= unit ? rows : std::min(rows, round_up(kFewestRows, unit));
    if (!f->encodes()) throw CannotTry{fmt::format("nothing encodes to {}", f->name)};
    if (some_ * columns > kMostEncoded) throw CannotTry{fmt::format("rows of {} are too long to be made", f->name)};
    const std::vector<uint8_t> part = encode(*f, normals(some_ * columns, positive, seed), some_, columns);
    numbers_ = decode(*f, part, some_, columns);
    blob_ = repeated_rows(*f, part, some_, rows, columns);
  }
  double number(int64_t element) const override {
    return numbers_[element / columns_ % some_ * columns_ + element % columns_];
  }
  int64_t piece() const override { return 1; }
  void write(int64_t at, int64_t bytes, uint8_t* to) const override { std::memcpy(to, &blob_[at], bytes); }

 private:
  int64_t columns_, some_ = 0;
  std::vector<uint8_t> blob_;
  std::vector<float> numbers_;
};

}  // namespace

std::vector<uint8_t> repeated_rows(const Format& f, std::span<const uint8_t> part, int64_t some, int64_t rows,
                                   int64_t columns) {
  const BlobLayout from = blob_layout(f, some, columns), to = blob_layout(f, rows, columns);
  std::vector<uint8_t> blob(to.total);
  const auto repeat = [&](int64_t source, int64_t place, int64_t bytes, int64_t count, int64_t all) {
    if (bytes == 0) return;
    for (int64_t i = 0; i < all; ++i) std::memcpy(&blob[place + i * bytes], &part[source + i % count * bytes], bytes);
  };
  const int row = ordinal(Level::row), tile = ordinal(Level::tile), tensor = ordinal(Level::tensor);
  repeat(0, 0, from.row_stride, some, rows);
  repeat(from.section[row], to.section[row], f.row_bytes, some, rows);
  if (f.tile_bytes > 0)
    repeat(from.section[tile], to.section[tile], f.tile_bytes * from.tile_columns,
           (some + f.tile_rows - 1) / f.tile_rows, (rows + f.tile_rows - 1) / f.tile_rows);
  repeat(from.section[tensor], to.section[tensor], f.tensor_bytes, 1, 1);
  return blob;
}

std::unique_ptr<Operand> held_operand(const graph::Type& type, bool positive, uint64_t seed) {
  const FormatRef& f = type.element.format;
  const int64_t columns = type.shape.empty() ? 1 : type.shape.back().number();
  const int64_t rows = columns > 0 ? graph::elements(type.shape).number() / columns : 0;
  if (rows == 0) throw CannotTry{"an operand is empty"};
  if (f->row_bytes + f->tile_bytes + f->tensor_bytes > 0)
    return std::make_unique<RepeatedRows>(f, rows, columns, positive, seed);
  return std::make_unique<PooledBlocks>(f, columns, positive, seed);
}

}  // namespace lumen::run
