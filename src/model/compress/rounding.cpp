#include "model/compress/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "base/threads/team.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kPanel = 1 << 16;  // numbers of a panel: with its copies it fits a core's private cache

// A section of a blob, and of the panel of its `count` rows from `first` on, which is a multiple of the tile's rows.
struct Slice {
  int64_t in_whole = 0, in_panel = 0, bytes = 0;
};

template <typename Each>
void for_slices(const Format& f, int64_t rows, int64_t columns, int64_t first, int64_t count, Each each) {
  const BlobLayout whole = blob_layout(f, rows, columns), panel = blob_layout(f, count, columns);
  const auto add = [&](Level level, int64_t at, int64_t bytes) {
    if (bytes > 0) each(level, Slice{whole.section[ordinal(level)] + at, panel.section[ordinal(level)], bytes});
  };
  add(Level::block, first * whole.row_stride, count * whole.row_stride);
  add(Level::row, first * f.row_bytes, count * f.row_bytes);
  if (f.tile_bytes > 0) {
    const int64_t band = whole.tile_columns * f.tile_bytes;  // one row of tiles
    add(Level::tile, first / f.tile_rows * band, (count + f.tile_rows - 1) / f.tile_rows * band);
  }
  add(Level::tensor, 0, f.tensor_bytes);
}

void take_panel(const Format& f, const uint8_t* blob, int64_t rows, int64_t columns, int64_t first, int64_t count,
                uint8_t* panel) {
  for_slices(f, rows, columns, first, count,
             [&](Level, const Slice& s) { std::memcpy(panel + s.in_panel, blob + s.in_whole, s.bytes); });
}

void put_panel(const Format& f, const uint8_t* panel, int64_t rows, int64_t columns, int64_t first, int64_t count,
               uint8_t* blob) {
  for_slices(f, rows, columns, first, count, [&](Level level, const Slice& s) {
    if (level != Level::tensor) std::memcpy(blob + s.in_whole, panel + s.in_panel, s.bytes);
  });
}

// The first number that is not finite, or -1.
int64_t first_broken(const float* x, int64_t count) {
  constexpr uint32_t kTop = 0x7f800000;
  uint32_t any = 0;
#pragma omp simd reduction(| : any)
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    any |= (bits & kTop) == kTop;
  }
  if (any == 0) return -1;
  return std::find_if(x, x + count, [](float v) { return !std::isfinite(v); }) - x;
}

int64_t tile_rows(const FormatRef& f) {
  return f && f->tile_bytes > 0 ? f->tile_rows : 1;
}

// Squares weighted by the importance of their columns: of the errors, and of the numbers.
std::pair<double, double> weighted_squares(const float* x, const float* y, int64_t rows,
                                           std::span<const float> importance) {
  double difference = 0, size = 0;
  const auto columns = std::ssize(importance);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double v = x[r * columns + c], d = v - y[r * columns + c], w = importance[c];
      difference += w * d * d;
      size += w * v * v;
    }
  }
  return {difference, size};
}

// Runs panels in several threads; of several errors that of the first panel is thrown.
template <typename Each>
void for_panels(int64_t count, int threads, Each each) {
  parallel_for(0, count, {.grain = 1, .most = threads}, each);
}

}  // namespace

// Rounding of one weight.
class PanelRounder::Job {
 public:
  Job(PanelRounder& rounder, const arch::Weight& from, const FormatRef& to,
      std::span<const std::vector<float>> importance, const std::string& name)
      : rounder_(rounder),
        source_(from),
        name_(name),
        importance_(importance),
        from_(from.type.element.format),
        to_(to) {
    rows_ = from.rows();
    columns_ = from.columns();
    const int64_t matrices = std::max<size_t>(importance.size(), 1);
    matrix_ = rows_ / matrices;
    LUMEN_CHECK(matrices * matrix_ == rows_, "{} rows of {} matrices", rows_, matrices);
    const int64_t tile = std::lcm(tile_rows(from_), tile_rows(to));
    weighed_ = to && to->weighs() && !importance.empty();
    // A field depends on all numbers, or on numbers of two matrices.
    whole_ = to && (to->tensor_bytes > 0 || (matrices > 1 && matrix_ % tile != 0));
    const int64_t most = std::max<int64_t>(kPanel / std::max<int64_t>(columns_, 1) / tile * tile, tile);
    const int64_t apart = whole_ ? rows_ : matrix_;  // no panel spans two matrices
    for (int64_t begin = 0; begin < rows_; begin += apart)
      for (int64_t r = begin; r < begin + apart; r += most) panels_.push_back({r, std::min(most, begin + apart - r)});
    found_.resize(panels_.size());
    weighted_.resize(panels_.size());
  }

  Result run() {
    Result out;
    out.weight.type = {source_.type.shape, {Scalar::f32, to_}};
    arch::Room room(graph::byte_size(out.weight.type));
    prepare();
    const auto count = std::ssize(panels_);
    if (!to_) {
      for_panels(count, threads_, [&](int64_t i, int thread) {
        read(i, places_of(i, thread), reinterpret_cast<float*>(room.data()) + panels_[i].first * columns_);
      });
    } else if (!whole_) {
      for_panels(count, threads_, [&](int64_t i, int thread) { round_panel(i, places_of(i, thread), room.data()); });
    } else {
      round_whole(room);
    }
    Closeness all;
    std::pair<double, double> weighted;
    for (size_t i = 0; i < found_.size(); ++i) {
      all += found_[i];
      weighted.first += weighted_[i].first;
      weighted.second += weighted_[i].second;
    }
    out.error = all.relative();
    out.weighted = weighted.second > 0 ? std::sqrt(weighted.first / weighted.second) : 0;
    out.loss = all.loss;
    out.weight.bytes = std::move(room).bytes();
    return out;
  }

 private:
  // Rows that are converted together.
  struct Panel {
    int64_t first = 0, rows = 0;
  };
  // Kernels for panels of this many rows; null where numbers are f32 already.
  struct Kernels {
    std::shared_ptr<const run::Panels> read, write, check;
  };
  // Buffers of one thread for panels of one size.
  struct Places {
    std::optional<run::Panels::Place> read, write, check;
  };

  void prepare() {
    threads_ = rounder_.engine_.threads();
    for (const Panel& p : panels_) {
      if (kernels_.contains(p.rows)) continue;
      Kernels& k = kernels_[p.rows];
      if (from_) k.read = rounder_.panels(from_, p.rows, columns_, false, false);
      if (to_ && !whole_) k.write = rounder_.panels(to_, p.rows, columns_, true, weighed_);
      if (to_) k.check = rounder_.panels(to_, p.rows, columns_, false, false);
      for (const auto& panels : {k.read, k.write, k.check})
        if (panels) threads_ = std::min(threads_, panels->most());
    }
    threads_ = std::clamp<int64_t>(threads_, 1, std::max<int64_t>(std::ssize(panels_), 1));
    places_.resize(threads_);
  }

  Places& places_of(int64_t i, int thread) {
    const auto [at, is_new] = places_[thread].try_emplace(panels_[i].rows);
    if (is_new) {
      const Kernels& k = kernels_.at(panels_[i].rows);
      if (k.read) at->second.read = k.read->place();
      if (k.write) at->second.write = k.write->place();
      if (k.check) at->second.check = k.check->place();
    }
    return at->second;
  }

  // Decodes the panel's numbers into `x`.
  void read(int64_t i, Places& places, float* x) const {
    const auto [first, rows] = panels_[i];
    const int64_t size = rows * columns_;
    const float* values = nullptr;
    if (from_) {
      take_panel(*from_, source_.bytes.data(), rows_, columns_, first, rows, places.read->blob());
      places.read->convert();
      values = places.read->values();
    } else {
      values = source_.f32().data() + first * columns_;
    }
    std::memcpy(x, values, size * sizeof(float));
    const int64_t bad = first_broken(x, size);
    if (bad < 0) return;
    throw Error(
        Exit::numeric,
        fmt::format("'{}' holds {} in row {}, column {}", name_, x[bad], first + bad / columns_, bad % columns_),
        "no number format keeps that; find out where the model's weights broke");
  }

  const std::vector<float>& importance_of(int64_t i) const {
    return importance_[importance_.size() == 1 ? 0 : panels_[i].first / matrix_];
  }

  // Checks a panel whose blob is in the buffer of `check`.
  void check(int64_t i, Places& places, const float* x) {
    places.check->convert();
    const int64_t rows = panels_[i].rows;
    const size_t size = rows * columns_;
    const float* y = places.check->values();
    const size_t bytes = blob_layout(*to_, rows, columns_).total;
    found_[i] = compare(*to_, {x, size}, {y, size}, {places.check->blob(), bytes}, rows, columns_);
    if (weighed_ && (!whole_ || importance_.size() == 1)) weighted_[i] = weighted_squares(x, y, rows, importance_of(i));
  }

  void round_panel(int64_t i, Places& places, uint8_t* blob) {
    const auto [first, rows] = panels_[i];
    run::Panels::Place& write = *places.write;
    read(i, places, write.values());
    if (weighed_) std::copy(importance_of(i).begin(), importance_of(i).end(), write.importance());
    write.convert();
    put_panel(*to_, write.blob(), rows_, columns_, first, rows, blob);
    std::memcpy(places.check->blob(), write.blob(), blob_layout(*to_, rows, columns_).total);
    check(i, places, write.values());
  }

  void round_whole(arch::Room& room) {
    std::vector<float> numbers(rows_ * columns_);
    const auto count = std::ssize(panels_);
    for_panels(count, threads_, [&](int64_t i, int thread) {
      read(i, places_of(i, thread), numbers.data() + panels_[i].first * columns_);
    });
    std::vector<float> importance;
    for (const std::vector<float>& of_matrix : importance_)
      for (int64_t r = 0; r < (importance_.size() == 1 ? 1 : matrix_); ++r)
        importance.insert(importance.end(), of_matrix.begin(), of_matrix.end());
    const std::vector<uint8_t> blob = rounder_.engine_.encode(to_, numbers.data(), rows_, columns_, importance);
    std::copy(blob.begin(), blob.end(), room.data());
    for_panels(count, threads_, [&](int64_t i, int thread) {
      Places& places = places_of(i, thread);
      take_panel(*to_, blob.data(), rows_, columns_, panels_[i].first, panels_[i].rows, places.check->blob());
      check(i, places, numbers.data() + panels_[i].first * columns_);
    });
  }

  PanelRounder& rounder_;
  const arch::Weight& source_;
  const std::string& name_;
  const std::span<const std::vector<float>> importance_;
  const FormatRef from_, to_;
  int64_t rows_ = 0, columns_ = 0, matrix_ = 0;
  bool weighed_ = false, whole_ = false;
  int threads_ = 1;
  std::vector<Panel> panels_;
  std::map<int64_t, Kernels> kernels_;             // by rows
  std::vector<std::map<int64_t, Places>> places_;  // by thread, then rows
  std::vector<Closeness> found_;                   // by panel
  std::vector<std::pair<double, double>> weighted_;
};

std::shared_ptr<const run::Panels> PanelRounder::panels(const FormatRef& f, int64_t rows, int64_t columns, bool encodes,
                                                        bool weighed) {
  auto& kept = kept_[{f->hash.hex(), rows, columns, encodes, weighed}];
  if (!kept)
    kept = encodes ? engine_.encode_panels(f, rows, columns, weighed) : engine_.decode_panels(f, rows, columns);
  return kept;
}

PanelRounder::Result PanelRounder::round(const arch::Weight& from, const FormatRef& to,
                                         std::span<const std::vector<float>> importance, const std::string& name) {
  return Job(*this, from, to, importance, name).run();
}

}  // namespace lumen::model::compress
