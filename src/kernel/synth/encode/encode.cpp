// One group of blocks, lane by lane: values transposed so that lanes are blocks, the routines run once for all, codes
// kept entry by entry in private memory, records put together word by word.
#include "kernel/synth/encode/encode.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/encode/block_codes.h"
#include "kernel/synth/encode/blocks_by_lanes.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

constexpr int64_t kGrain = 8192;  // elements per task

class BlockEncoder {
 public:
  // `by_lanes`: groups begin at multiples of their number of blocks.
  BlockEncoder(Builder& b, const Format& f, const EncodeOperands& given, int lanes, const machine::Machine& target,
               bool by_lanes = false)
      : b_(b),
        format_(f),
        given_(given),
        layout_(blob_layout(f, given.rows, given.columns)),
        columns_(given.columns),
        blob_(given.blob),
        supplied_(given.supplied),
        lanes_(lanes),
        by_lanes_(by_lanes),
        codes_(b, f, given.blob, lanes, target) {}

  // In the task's region: private memory and tables.
  void begin() {
    if (format_.block > 1) values_.buffer = b_.alloc(format_.block * lanes_ * 4, 64);
    if (format_.block > 1 && weighs()) weights_.buffer = b_.alloc(format_.block * lanes_ * 4, 64);
    codes_.begin();
    RoutineHooks hooks;
    hooks.source = [&](int slot, Expr index) { return source(slot == 0 ? values_ : weights_, index); };
    hooks.field = [&](int field, Expr index) { return field_value(field, index); };
    hooks.set_field = [&](int field, Expr index, Expr value, Expr mask) { set_field(field, index, value, mask); };
    hooks.table = [&](int table, Expr index) { return codes_.table(table, index); };
    hooks.extent = [&] { return b_.i64(format_.block); };
    if (fits()) {
      const std::vector<int> of_row = weighs() ? kept_for(format_.weighted_row_kept) : std::vector<int>{};
      fit_.emplace(b_, *given_.fit(format_, Level::block), hooks, lanes_, of_row, kept_from(kept()));
      code_is_set_ = weighs() && assigns(format_.weighted_fit[0]->body, format_.code_field);
    }
    if (format_.code) code_.emplace(b_, *format_.code, hooks, lanes_, std::vector<int>{1}, kept_for(kept()));
  }

  // Blocks first .. first + lanes - 1 (counted over the whole tensor); all of one row when the format has row or tile
  // fields.
  // `row`: the weighted fit of their row, if the blocks' fit reads its locals.
  void blocks(Expr first, const RoutineRun* row = nullptr) {
    first_ = first;
    load_values();
    load_outer_fields();
    codes_.clear();
    for (const SuppliedValues& s : supplied_)
      if (format_.fields[s.field].level == Level::block) take_supplied(s);
    if (fit_) {
      fit_->clear();
      if (row)
        for (const KeptLocal& k : format_.weighted_row_kept) fit_->copy(k.code_variable, *row, k.fit_variable);
      fit_->run();
    }
    if (code_ && !code_is_set_) run_code();
    codes_.write_records(first_ * format_.block_bytes, format_.block_bytes, by_lanes_ ? lanes_ : 1);
  }

 private:
  // The fit is skipped when everything it assigns is supplied.
  bool fits() const {
    if (!given_.fit(format_, Level::block)) return false;
    bool any = false, all = true;
    for (size_t k = 0; k < format_.fields.size(); ++k) {
      if (format_.fields[k].level != Level::block || std::cmp_equal(k, format_.code_field)) continue;
      any = true;
      all = all && is_supplied(supplied_, k);
    }
    return !(any && all && format_.code);
  }

  Expr lane_steps(int64_t step) { return b_.lane_steps(lanes_, step); }

  bool weighs() const { return given_.weighs(format_, Level::block); }

  // Locals of the fit that code reads.
  const std::vector<KeptLocal>& kept() const { return weighs() ? format_.weighted_kept : format_.kept; }

  // Numbers of the blocks; all lanes of a number are contiguous.
  struct Numbers {
    BufferId buffer = -1;
    Expr plain;  // of blocks of one
  };

  void load_values() {
    lay(given_.x, given_.x_type, first_, values_);
    if (!weighs()) return;
    const Expr block = given_.importance == Importance::columns ? first_ % (columns_ / format_.block) : first_;
    lay(given_.weights, Scalar::f32, block, weights_);
  }

  // Lays out the numbers, of a type, of blocks first .. .
  void lay(BufferId x, Scalar type, Expr first, Numbers& to) {
    const int64_t block = format_.block, size = scalar_bytes(type);
    const Expr start = first * (block * size);
    const auto read = [&](int lanes, Expr at, int64_t align) {
      return cast(b_.load(x, {type, lanes}, at, align), Scalar::f32);
    };
    if (block == 1) {
      to.plain = read(lanes_, start, by_lanes_ ? size * lanes_ : size);
      return;
    }
    if (lanes_ == 1) {
      b_.count(0, block, 1, [&](Expr j) { b_.store(to.buffer, read(1, start + j * size, size), j * 4, 4); });
      return;
    }
    const int64_t square = block / lanes_ * lanes_;
    if (square > 0) {
      b_.count(0, square, lanes_, [&](Expr j) {
        std::vector<Expr> tile;
        for (int l = 0; l < lanes_; ++l) tile.push_back(read(lanes_, start + (j * size + l * block * size), size));
        transpose(b_, tile);
        for (int k = 0; k < lanes_; ++k) b_.store(to.buffer, tile[k], (j + k) * (lanes_ * 4), 4);
      });
    }
    if (square < block) {
      b_.count(square, block, 1, [&](Expr j) {
        const Expr at = b_.splat(start + j * size, lanes_) + lane_steps(block * size);
        b_.store(to.buffer, cast(b_.gather(x, type, at), Scalar::f32), j * (lanes_ * 4), 4);
      });
    }
  }

  Expr source(const Numbers& x, Expr index) {
    if (format_.block == 1) return x.plain;
    return b_.read(x.buffer, {Scalar::f32, lanes_}, codes_.entry_offset(index, 4), 4);
  }

  void set_field(int field, Expr index, Expr value, Expr mask) {
    if (is_supplied(supplied_, field)) return;  // a supplied value is kept
    LUMEN_CHECK(format_.fields[field].level == Level::block, "a block's fit assigns a field of another level");
    codes_.store(field, index, encode_value(b_, format_.fields[field].type, value), mask);
  }

  // Fields above the block: known before the blocks are encoded; lanes may be in different tiles.
  void load_outer_fields() {
    outer_.clear();
    if (format_.row_bytes == 0 && format_.tile_bytes == 0 && format_.tensor_bytes == 0) return;
    const int64_t per_row = columns_ / format_.block;
    const Expr row = first_ / per_row;
    for (size_t k = 0; k < format_.fields.size(); ++k) {
      const Field& f = format_.fields[k];
      if (f.level == Level::block || f.count != 1) continue;
      const auto entry = [&](int l) { return read_field(b_, f, blob_, outer_record(f.level, row, l), b_.i64(0)); };
      outer_[k] = b_.join(f.level == Level::tile && !is_in_one_tile() ? lanes_ : 1, entry);
    }
  }
  // Whether all lanes of a group are.
  bool is_in_one_tile() const { return by_lanes_ && format_.tile_columns % (format_.block * lanes_) == 0; }

  Expr outer_record(Level level, Expr row, int lane) {
    Expr record = b_.i64(layout_.section[ordinal(level)]);
    if (level == Level::row) record = record + row * format_.row_bytes;
    if (level == Level::tile) {
      const Expr block = first_ + lane - row * (columns_ / format_.block);
      const Expr column = block * format_.block / format_.tile_columns;
      const Expr tile = row / format_.tile_rows * layout_.tile_columns + column;
      record = record + tile * format_.tile_bytes;
    }
    return record;
  }

  Expr field_value(int field, Expr index) {
    const Field& f = format_.fields[field];
    if (f.level == Level::block) return decode_codes(b_, f.type, codes_.load(field, index));
    if (const auto found = outer_.find(field); found != outer_.end()) return found->second;
    const Expr row = first_ / (columns_ / format_.block);
    const bool differ = f.level == Level::tile || b_.type(index).lanes > 1;  // by lane
    return b_.join(differ ? lanes_ : 1, [&](int l) {
      const Expr entry = b_.type(index).lanes > 1 ? b_.extract(index, l) : index;
      return read_field(b_, f, blob_, outer_record(f.level, row, l), entry);
    });
  }

  void take_supplied(const SuppliedValues& s) {
    const Field& f = format_.fields[s.field];
    b_.count(0, f.count, 1, [&](Expr i) {
      const Expr start = first_ * (f.count * 4) + i * 4;
      const Expr at = lanes_ == 1 ? start : b_.splat(start, lanes_) + lane_steps(f.count * 4);
      codes_.store(s.field, i, encode_value(b_, f.type, b_.read(s.buffer, {Scalar::f32, 1}, at, 4)), {});
    });
  }

  void run_code() {
    code_->clear();
    for (const KeptLocal& k : kept()) {
      if (fit_) {
        code_->copy(k.code_variable, *fit_, k.fit_variable);
      } else {
        LUMEN_CHECK(k.field >= 0, "a kept local without a field, and no fit");
        code_->set_variable(k.code_variable, field_value(k.field, b_.i64(0)));
      }
    }
    const int code_field = format_.code_field;
    b_.count(0, format_.block, 1, [&](Expr i) {
      code_->set_variable(0, source(values_, i));
      if (format_.code->parameters > 1) code_->set_variable(1, i);
      code_->run();
      codes_.store(code_field, i, encode_value(b_, format_.fields[code_field].type, code_->result()), {});
    });
  }

  Builder& b_;
  const Format& format_;
  const EncodeOperands& given_;
  BlobLayout layout_;
  int64_t columns_;
  BufferId blob_;
  const std::vector<SuppliedValues>& supplied_;
  int lanes_;
  bool by_lanes_;
  Numbers values_, weights_;
  bool code_is_set_ = false;  // by the weighted fit
  BlockCodes codes_;
  std::optional<RoutineRun> fit_, code_;
  std::map<int, Expr> outer_;
  Expr first_;
};

// The weighted fit of a row whose locals the blocks' fit reads: fields of rows are stored already.
class RowFit {
 public:
  RowFit(Builder& b, const Format& f, const EncodeOperands& given) : b_(b), f_(f), given_(given) {
    for (const FormatTable& t : f.tables) tables_.push_back(lay_table(b, t));
    const BlobLayout layout = blob_layout(f, given.rows, given.columns);
    RoutineHooks hooks;
    hooks.source = [this](int slot, Expr index) {
      if (slot == 1) return given_.weight(b_, row_, index);
      return given_.values(b_, row_ * given_.columns + index);
    };
    hooks.extent = [this] { return b_.i64(given_.columns); };
    hooks.field = [this, layout](int slot, Expr index) {
      const Field& field = f_.fields[slot];
      LUMEN_CHECK(field.level == Level::row || field.level == Level::tensor, "a row's fit reads a field of its blocks");
      Expr record = b_.i64(layout.section[ordinal(field.level)]);
      if (field.level == Level::row) record = record + row_ * f_.row_bytes;
      return read_field(b_, field, given_.blob, record, index);
    };
    hooks.set_field = [](int, Expr, Expr, Expr) {};
    hooks.table = [this](int slot, Expr index) { return read_table(b_, f_.tables[slot], tables_[slot], index); };
    run_.emplace(b, *f.weighted_fit[ordinal(Level::row)], std::move(hooks), 1, std::vector<int>{},
                 kept_from(f.weighted_row_kept));
  }
  const RoutineRun* of(Expr row) {
    row_ = row;
    run_->clear();
    run_->run();
    return &*run_;
  }

 private:
  Builder& b_;
  const Format& f_;
  const EncodeOperands& given_;
  std::vector<BufferId> tables_;
  std::optional<RoutineRun> run_;
  Expr row_;
};

// Where every thread of a GPU has its own task: adjacent threads encode adjacent numbers, across rows. False if numbers
// are encoded in blocks, or rows are not whole vectors.
bool encode_by_lanes(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target) {
  if (target.wave <= 1 || f.block > 1 || f.block_bytes != 1 || given.weighs(f, Level::block)) return false;
  int width = 8;
  while (width > 1 && given.columns % width != 0) width /= 2;
  if (width == 1) return false;
  b.loop(LoopKind::parallel, b.i64(0), b.i64(given.rows * given.columns / width), 1, [&](Expr task) {
    BlockEncoder encoder(b, f, given, width, target, true);
    encoder.begin();
    encoder.blocks(task * width);
    b.branch(task == 0, [&] { clear_between(b, f, given); });
  });
  return true;
}

}  // namespace

void clear_between(Builder& b, const Format& f, const EncodeOperands& given) {
  const BlobLayout layout = blob_layout(f, given.rows, given.columns);
  for (const Level level : {Level::block, Level::row, Level::tile, Level::tensor}) {
    const int k = ordinal(level);
    const int64_t end = layout.section[k] + record_count(f, level, given.rows, given.columns) * record_bytes(f, level);
    const int64_t next = k + 1 < kLevels ? layout.section[k + 1] : layout.total;
    if (end < next) clear_bytes(b, given.blob, end, next);
  }
}

void encode_blocks(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target) {
  const int lanes = target.f32_lanes();
  const int64_t rows = given.rows, columns = given.columns;
  LUMEN_CHECK(f.encodes(), "a format that only decodes");
  const int64_t per_row = columns / f.block, total = rows * per_row;
  const bool weighs = given.weighs(f, Level::block);
  if (encode_by_lanes(b, f, given, target) || encode_blocks_by_lanes(b, f, given, target)) return;
  const bool by_rows = f.row_bytes > 0 || f.tile_bytes > 0 || weighs;  // importance is that of columns
  const int64_t run = by_rows ? per_row : total;                       // blocks that may share a group of lanes
  const int width = run >= lanes && !is_large(f) ? lanes : 1;
  // Tasks: whole rows, or runs of blocks that are multiples of the lanes.
  const int64_t blocks_per_task = std::max<int64_t>(round_up(target.grain(kGrain) / f.block, width), width);
  const int64_t rows_per_task = std::max<int64_t>(1, target.grain(kGrain) / std::max<int64_t>(columns, 1));
  const int64_t tasks =
      by_rows ? (rows + rows_per_task - 1) / rows_per_task : (total + blocks_per_task - 1) / blocks_per_task;
  b.loop(LoopKind::parallel, b.i64(0), b.i64(std::max<int64_t>(tasks, 1)), 1, [&](Expr task) {
    BlockEncoder wide(b, f, given, width, target);
    wide.begin();
    std::optional<BlockEncoder> narrow;
    if (width > 1 && run % width != 0) {
      narrow.emplace(b, f, given, 1, target);
      narrow->begin();
    }
    std::optional<RowFit> row_fit;
    if (weighs && !f.weighted_row_kept.empty()) row_fit.emplace(b, f, given);
    const auto stretch = [&](Expr from, Expr to, const RoutineRun* row = nullptr) {
      Expr whole = to;
      if (narrow) {
        const Expr length = to - from;
        whole = to - length % width;
      }
      b.loop(LoopKind::serial, from, whole, width, [&](Expr block) { wide.blocks(block, row); });
      if (narrow) b.loop(LoopKind::serial, whole, to, 1, [&](Expr block) { narrow->blocks(block, row); });
    };
    if (by_rows) {
      const Expr first = task * rows_per_task;
      const Expr end = min(first + rows_per_task, b.i64(rows));
      b.loop(LoopKind::serial, first, end, 1, [&](Expr row) {
        const Expr start = row * per_row;
        stretch(start, start + per_row, row_fit ? row_fit->of(row) : nullptr);
      });
    } else {
      const Expr first = task * blocks_per_task;
      stretch(first, min(first + blocks_per_task, b.i64(total)));
    }
    b.branch(task == 0, [&] { clear_between(b, f, given); });
  });
}

}  // namespace lumen::synth
