// Encoding and decoding of tensors: iterates over the levels (tensor, tiles, rows, blocks) and runs a format's routines
// on each record. Must not depend on any particular format. Proved by tests/number/codec_test.cpp and golden_test.cpp.
#include "number/codec/codec.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "base/threads/threads.h"
#include "number/codec/code_line.h"
#include "number/interpret/engine.h"

namespace lumen {
namespace {

using interpret::Cell;
using interpret::Engine;
using interpret::Program;

// Splits rows among threads; each row's result depends only on that row, so the split does not change results.
void over_rows(int64_t rows, int64_t work_per_row, const std::function<void(int64_t, int64_t)>& run) {
  constexpr int64_t kWorthwhile = 1 << 16;
  const int64_t parts =
      std::min({int64_t{usable_cores()}, rows, std::max<int64_t>(1, rows * work_per_row / kWorthwhile), int64_t{64}});
  if (parts <= 1) {
    run(0, rows);
    return;
  }
  std::vector<std::exception_ptr> failures(parts);
  std::atomic<int64_t> next = 0;
  work_together(parts, [&](int) {
    for (int64_t part = next++; part < parts; part = next++) {
      try {
        run(rows * part / parts, rows * (part + 1) / parts);
      } catch (...) {
        failures[part] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& f : failures) {
    if (f) std::rethrow_exception(f);
  }
}

class Encoder {
 public:
  Encoder(const Format& f, std::span<const float> x, int64_t rows, int64_t columns, std::span<const float> importance,
          std::span<const SuppliedField> supplied)
      : engine_(interpret::engine_of(f)),
        format_(*engine_->format),
        x_(x),
        importance_(importance),
        rows_(rows),
        columns_(columns),
        layout_(blob_layout(f, rows, columns)) {
    if (std::ssize(x) != rows * columns) {
      throw user_error("{} values for a tensor of {} x {}", x.size(), rows, columns);
    }
    if (rows * columns > INT32_MAX &&
        (format_.fit[ordinal(Level::tensor)] || format_.weighted_fit[ordinal(Level::tensor)])) {
      throw user_error("format {} is fitted over whole tensors of at most 2^31 elements", format_.name);
    }
    const auto given = std::ssize(importance);
    if (given != 0 && given != columns && given != rows * columns) {
      throw user_error("{} importances for {} columns", given, columns);
    }
    place_supplied(supplied);
    check_sources();
    check_finite();
  }

  std::vector<uint8_t> run() {
    blob_.assign(layout_.total, 0);
    if (rows_ == 0 || columns_ == 0) return std::move(blob_);
    if (format_.tensor_bytes > 0) encode_tensor();
    if (format_.tile_bytes > 0) encode_tiles();
    over_rows(rows_, columns_, [this](int64_t from, int64_t to) { encode_rows(from, to); });
    return std::move(blob_);
  }

 private:
  bool weighted(Level level) const { return !importance_.empty() && engine_->weighted_fit[ordinal(level)]; }
  const Program* fit(Level level) const {
    return (weighted(level) ? engine_->weighted_fit : engine_->fit)[ordinal(level)].get();
  }
  const std::vector<bool>& assigned(Level level) const {
    return (weighted(level) ? engine_->weighted_assigned : engine_->assigned)[ordinal(level)];
  }

  int64_t records_of(Level level) const {
    switch (level) {
      case Level::block:
        return rows_ * (columns_ / format_.block);
      case Level::row:
        return rows_;
      case Level::tile:
        return tile_rows() * layout_.tile_columns;
      case Level::tensor:
        return 1;
    }
    LUMEN_UNREACHABLE("level");
  }
  int64_t tile_rows() const { return format_.tile_rows == 0 ? 0 : (rows_ + format_.tile_rows - 1) / format_.tile_rows; }

  void place_supplied(std::span<const SuppliedField> supplied) {
    supplied_.assign(format_.fields.size(), false);
    values_.assign(format_.fields.size(), nullptr);
    for (const SuppliedField& s : supplied) {
      LUMEN_CHECK(s.field >= 0 && s.field < std::ssize(format_.fields), "field {}", s.field);
      const size_t k = s.field;
      const Field& field = format_.fields[k];
      const int64_t wanted = records_of(field.level) * field.count;
      if (std::ssize(s.values) != wanted) {
        throw user_error("field {} of format {}: {} values supplied, {} needed", field.name, format_.name,
                         s.values.size(), wanted);
      }
      supplied_[k] = true;
      values_[k] = &s.values;
    }
    for (size_t level = 0; level < kLevels; ++level) {
      const auto l = static_cast<Level>(level);
      bool all = fit(l) != nullptr;
      bool any = false;
      for (size_t k = 0; k < format_.fields.size(); ++k) {
        if (!assigned(l)[k]) continue;
        any = true;
        all = all && supplied_[k];
      }
      skip_fit_[level] = all && any;
    }
    const auto& kept = weighted(Level::block) ? format_.weighted_kept : format_.kept;
    for (const KeptLocal& k : kept) {
      const bool codes_given = format_.code_field >= 0 && supplied_[format_.code_field];
      if (skip_fit_[0] && k.field < 0 && !codes_given && !code_line(format_)) {
        throw user_error(
            "format {}: '{}' comes from the fit of a block and has no field of its own, so the fit's fields cannot be "
            "supplied",
            format_.name, format_.code->variables[k.code_variable].name);
      }
    }
  }

  // Every field needs a source of its value.
  void check_sources() const {
    if (!format_.encodes()) {
      throw Error(Exit::user, fmt::format("format {} can only be decoded", format_.name),
                  "it defines neither code nor fit");
    }
    for (size_t k = 0; k < format_.fields.size(); ++k) {
      const bool is_code = static_cast<int>(k) == format_.code_field;
      if (is_code || supplied_[k] || assigned(format_.fields[k].level)[k]) continue;
      throw Error(Exit::user, fmt::format("field {} of format {} has no value", format_.fields[k].name, format_.name),
                  "its fit does not assign it, so it must be supplied");
    }
  }

  void check_finite() const {
    bool fitted = false;
    for (size_t level = 0; level < kLevels; ++level) fitted = fitted || fit(static_cast<Level>(level));
    const FieldType* type = format_.code_field >= 0 ? &format_.fields[format_.code_field].type : nullptr;
    const bool nan_allowed = !fitted && type && type->has_nan();
    const bool infinity_allowed = !fitted && type && type->has_infinity();
    for (size_t k = 0; k < x_.size(); ++k) {
      if (std::isfinite(x_[k])) continue;
      if (std::isnan(x_[k]) ? nan_allowed : infinity_allowed) continue;
      throw Error(Exit::numeric,
                  fmt::format("{} at row {}, column {} cannot be stored in format {}", x_[k],
                              static_cast<int64_t>(k) / columns_, static_cast<int64_t>(k) % columns_, format_.name));
    }
  }

  void load_supplied(Level level, int64_t record, Cell* cells) const {
    for (size_t k = 0; k < format_.fields.size(); ++k) {
      const Field& field = format_.fields[k];
      if (field.level != level || !supplied_[k]) continue;
      for (int64_t j = 0; j < field.count; ++j) {
        const double value = (*values_[k])[record * field.count + j];
        cells[engine_->plan.field[k] + j] = interpret::cell_from_code(field.type, field_encode(field.type, value));
      }
    }
  }

  void clear_fields(Level level, Cell* cells) const {
    for (size_t k = 0; k < format_.fields.size(); ++k) {
      if (format_.fields[k].level != level) continue;
      for (int64_t j = 0; j < format_.fields[k].count; ++j) cells[engine_->plan.field[k] + j].whole = 0;
    }
  }

  void run_fit(Level level, int64_t record, Cell* cells, const float* x, const float* w, int64_t extent) const {
    clear_fields(level, cells);
    load_supplied(level, record, cells);
    const Program* program = fit(level);
    if (!program || skip_fit_[ordinal(level)]) return;
    clear_arrays(level, *program, cells);
    const float* const sources[2] = {x, w};
    program->run(cells, sources, extent, supplied_);
  }

  // A fit starts with zeroed arrays, except those kept from the row's fit.
  void clear_arrays(Level level, const Program& program, Cell* cells) const {
    const bool weighs = weighted(level);
    const Routine& routine = *(weighs ? format_.weighted_fit : format_.fit)[ordinal(level)];
    for (int v = routine.parameters; v < std::ssize(routine.variables); ++v) {
      const bool is_left =
          weighs && level == Level::block &&
          std::ranges::find(format_.weighted_row_kept, v, &KeptLocal::code_variable) != format_.weighted_row_kept.end();
      for (int64_t j = 0; j < routine.variables[v].extent && !is_left; ++j) cells[program.cell_of(v) + j].whole = 0;
    }
  }

  uint8_t* record_at(Level level, int64_t record) {
    const int64_t bytes[kLevels] = {format_.block_bytes, format_.row_bytes, format_.tile_bytes, format_.tensor_bytes};
    return blob_.data() + layout_.section[ordinal(level)] + record * bytes[ordinal(level)];
  }

  const float* importance_of(int64_t row, int64_t column) const {
    if (importance_.empty()) return nullptr;
    const bool per_element = std::ssize(importance_) != columns_;
    return importance_.data() + (per_element ? row * columns_ : 0) + column;
  }

  void encode_tensor() {
    std::vector<Cell> cells = engine_->fresh;
    std::vector<float> weights;
    if (weighted(Level::tensor)) {
      for (int64_t r = 0; r < rows_; ++r)
        weights.insert(weights.end(), importance_of(r, 0), importance_of(r, 0) + columns_);
    }
    run_fit(Level::tensor, 0, cells.data(), x_.data(), weights.data(), rows_ * columns_);
    engine_->records[ordinal(Level::tensor)].pack(cells.data(), record_at(Level::tensor, 0));
  }

  void encode_tiles() {
    std::vector<Cell> cells = engine_->fresh;
    if (format_.tensor_bytes > 0)
      engine_->records[ordinal(Level::tensor)].unpack(record_at(Level::tensor, 0), cells.data());
    std::vector<float> gathered, weights;
    for (int64_t tile = 0; tile < records_of(Level::tile); ++tile) {
      const int64_t row = tile / layout_.tile_columns * format_.tile_rows;
      const int64_t column = tile % layout_.tile_columns * format_.tile_columns;
      const int64_t width = std::min(format_.tile_columns, columns_ - column);
      gathered.clear();
      weights.clear();
      for (int64_t r = row; r < std::min(rows_, row + format_.tile_rows); ++r) {
        const float* from = x_.data() + r * columns_ + column;
        gathered.insert(gathered.end(), from, from + width);
        if (weighted(Level::tile))
          weights.insert(weights.end(), importance_of(r, column), importance_of(r, column) + width);
      }
      run_fit(Level::tile, tile, cells.data(), gathered.data(), weights.data(), gathered.size());
      engine_->records[ordinal(Level::tile)].pack(cells.data(), record_at(Level::tile, tile));
    }
  }

  void encode_rows(int64_t from, int64_t to) {
    std::vector<Cell> cells = engine_->fresh;
    if (format_.tensor_bytes > 0)
      engine_->records[ordinal(Level::tensor)].unpack(record_at(Level::tensor, 0), cells.data());
    const int64_t blocks = columns_ / format_.block;
    for (int64_t row = from; row < to; ++row) {
      if (format_.row_bytes > 0 || fit(Level::row)) {
        run_fit(Level::row, row, cells.data(), x_.data() + row * columns_, importance_of(row, 0), columns_);
        engine_->records[ordinal(Level::row)].pack(cells.data(), record_at(Level::row, row));
      }
      int64_t last_tile = -1;
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t column = block * format_.block;
        if (format_.tile_bytes > 0) {
          const int64_t tile = row / format_.tile_rows * layout_.tile_columns + column / format_.tile_columns;
          if (tile != last_tile)
            engine_->records[ordinal(Level::tile)].unpack(record_at(Level::tile, tile), cells.data());
          last_tile = tile;
        }
        encode_block(row * blocks + block, row, column, cells.data());
      }
    }
  }

  void encode_block(int64_t record, int64_t row, int64_t column, Cell* cells) {
    const float* const x = x_.data() + row * columns_ + column;
    if (weighted(Level::block)) keep_row_locals(cells);
    run_fit(Level::block, record, cells, x, importance_of(row, column), format_.block);
    const bool code_is_set =
        engine_->code && (supplied_[format_.code_field] || assigned(Level::block)[format_.code_field]);
    if (engine_->code && !code_is_set) {
      keep_locals(cells);
      const int32_t first = engine_->plan.field[format_.code_field];
      const float* const sources[2] = {x, nullptr};
      // Codes are collected in separate cells: code may read fields, and the code field is not one of its inputs.
      codes_run(cells, x, sources, first);
    }
    engine_->records[0].pack(cells, record_at(Level::block, record));
  }

  void codes_run(Cell* cells, const float* x, const float* const sources[2], int32_t first) const {
    const Program& code = *engine_->code;
    const int32_t v = code.cell_of(0), i = code.cell_of(1), result = code.result();
    for (int64_t k = 0; k < format_.block; ++k) {
      cells[v].real = x[k];
      cells[i].whole = k;
      code.run(cells, sources, format_.block, supplied_);
      cells[first + k] = cells[result];
    }
  }

  void keep_locals(Cell* cells) const {
    const auto& kept = weighted(Level::block) ? format_.weighted_kept : format_.kept;
    const Program* program = fit(Level::block);
    for (const KeptLocal& k : kept) {
      const int32_t to = engine_->code->cell_of(k.code_variable);
      if (skip_fit_[0] && k.field < 0) {  // an array that no value depends on
        const int64_t extent = format_.code->variables[k.code_variable].extent;
        for (int64_t j = 0; j < extent; ++j) cells[to + j].real = 0;
        continue;
      }
      if (skip_fit_[0]) {
        cells[to] = cells[engine_->plan.field[k.field]];
        continue;
      }
      const int64_t extent = std::max<int64_t>(1, format_.code->variables[k.code_variable].extent);
      const int32_t from = program->cell_of(k.fit_variable);
      for (int64_t j = 0; j < extent; ++j) cells[to + j] = cells[from + j];
    }
  }

  void keep_row_locals(Cell* cells) const {
    for (const KeptLocal& k : format_.weighted_row_kept) {
      const Program& row = *engine_->weighted_fit[ordinal(Level::row)];
      const Program& block = *engine_->weighted_fit[ordinal(Level::block)];
      const RoutineVariable& v = format_.weighted_fit[0]->variables[k.code_variable];
      for (int64_t j = 0; j < std::max<int64_t>(1, v.extent); ++j) {
        cells[block.cell_of(k.code_variable) + j] = cells[row.cell_of(k.fit_variable) + j];
      }
    }
  }

  std::shared_ptr<const Engine> engine_;
  const Format& format_;
  std::span<const float> x_, importance_;
  int64_t rows_, columns_;
  BlobLayout layout_;
  std::vector<bool> supplied_;
  std::vector<const std::vector<double>*> values_;
  std::array<bool, kLevels> skip_fit_{};
  std::vector<uint8_t> blob_;
};

class Decoder {
 public:
  Decoder(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns)
      : engine_(interpret::engine_of(f)),
        format_(*engine_->format),
        blob_(blob),
        columns_(columns),
        layout_(blob_layout(f, rows, columns)) {
    if (std::ssize(blob) < layout_.total) {
      throw user_error("{} bytes for a tensor of {} x {} in format {}, which needs {}", blob.size(), rows, columns,
                       f.name, layout_.total);
    }
  }

  void rows(int64_t from, int64_t to, float* y) const {
    std::vector<Cell> cells = engine_->fresh;
    load(Level::tensor, 0, cells.data());
    const int64_t blocks = columns_ / format_.block;
    for (int64_t row = from; row < to; ++row) {
      load(Level::row, row, cells.data());
      int64_t last_tile = -1;
      for (int64_t block = 0; block < blocks; ++block) {
        if (const int64_t tile = tile_of(row, block * format_.block); tile != last_tile) {
          load(Level::tile, tile, cells.data());
          last_tile = tile;
        }
        load(Level::block, row * blocks + block, cells.data());
        for (int64_t i = 0; i < format_.block; ++i)
          y[row * columns_ + block * format_.block + i] = element(i, cells.data());
      }
    }
  }

  float at(int64_t row, int64_t column) const {
    std::vector<Cell> cells = engine_->fresh;
    load(Level::tensor, 0, cells.data());
    load(Level::row, row, cells.data());
    if (const int64_t tile = tile_of(row, column); tile >= 0) load(Level::tile, tile, cells.data());
    load(Level::block, row * (columns_ / format_.block) + column / format_.block, cells.data());
    return element(column % format_.block, cells.data());
  }

 private:
  int64_t tile_of(int64_t row, int64_t column) const {
    if (format_.tile_bytes == 0) return -1;
    return row / format_.tile_rows * layout_.tile_columns + column / format_.tile_columns;
  }

  void load(Level level, int64_t record, Cell* cells) const {
    const int64_t bytes[kLevels] = {format_.block_bytes, format_.row_bytes, format_.tile_bytes, format_.tensor_bytes};
    const int64_t size = bytes[ordinal(level)];
    if (size > 0)
      engine_->records[ordinal(level)].unpack(blob_.data() + layout_.section[ordinal(level)] + record * size, cells);
  }

  float element(int64_t i, Cell* cells) const {
    static const std::vector<bool> kNone;
    const Program& decode = *engine_->decode;
    cells[decode.cell_of(0)].whole = i;
    const float* const sources[2] = {nullptr, nullptr};
    decode.run(cells, sources, format_.block, kNone);
    return cells[decode.result()].real;
  }

  std::shared_ptr<const Engine> engine_;
  const Format& format_;
  std::span<const uint8_t> blob_;
  int64_t columns_;
  BlobLayout layout_;
};

}  // namespace

std::vector<uint8_t> encode(const Format& f, std::span<const float> x, int64_t rows, int64_t columns,
                            std::span<const SuppliedField> supplied) {
  return Encoder(f, x, rows, columns, {}, supplied).run();
}

std::vector<uint8_t> encode_weighted(const Format& f, std::span<const float> x, int64_t rows, int64_t columns,
                                     std::span<const float> importance, std::span<const SuppliedField> supplied) {
  return Encoder(f, x, rows, columns, importance, supplied).run();
}

std::vector<float> decode(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns) {
  const Decoder decoder(f, blob, rows, columns);
  std::vector<float> y(rows * columns);
  over_rows(rows, columns, [&](int64_t from, int64_t to) { decoder.rows(from, to, y.data()); });
  return y;
}

float decode_at(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns, int64_t row,
                int64_t column) {
  LUMEN_CHECK(row >= 0 && row < rows && column >= 0 && column < columns, "element ({}, {})", row, column);
  return Decoder(f, blob, rows, columns).at(row, column);
}

}  // namespace lumen
