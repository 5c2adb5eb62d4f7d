#include "kernel/synth/encode/feedback.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/encode/block_codes.h"
#include "number/codec/code_line.h"

namespace lumen::synth {

namespace {

// Whether the fit of blocks reads locals that the weighted fit of a row keeps.
bool reads_rows(const Format& f, bool weighs) {
  return weighs && f.weighted_fit[0] && !f.weighted_row_kept.empty();
}

bool is_weighed(const Format& f, bool weighs) {
  return weighs && f.weighted_fit[0];
}

// Whether the weighted fit of a block chooses codes.
bool fit_sets_codes(const Format& f, bool weighs) {
  return is_weighed(f, weighs) && f.code_field >= 0 && assigns(f.weighted_fit[0]->body, f.code_field);
}

struct FeedbackBuffers {
  BufferId place = -1, x = -1, w = -1, u = -1, blob = -1, d = -1, weights = -1, whole = -1, order = -1;
};

class FeedbackEncoder {
 public:
  FeedbackEncoder(Builder& b, const Format& f, const FeedbackShape& shape, const FeedbackBuffers& buffers, int lanes,
                  const machine::Machine& target)
      : b_(b),
        format_(f),
        shape_(shape),
        buffers_(buffers),
        layout_(blob_layout(f, shape.rows, shape.columns)),
        lanes_(lanes),
        codes_(b, f, buffers.blob, lanes, target) {}

  // In the task's region: private memory and tables.
  void begin() {
    panel_ = b_.alloc(shape_.panel * lanes_ * 4, 64);
    if (format_.block > 1 && !stored_fields()) expected_ = b_.alloc(format_.block * lanes_ * 4, 64);
    codes_.begin();
    RoutineHooks hooks;
    hooks.source = [&](int slot, Expr index) { return slot == 0 ? expected(index) : weight(beyond(column_, index)); };
    hooks.field = [&](int field, Expr index) { return field_value(field, index); };
    hooks.set_field = [&](int field, Expr index, Expr x, Expr mask) { set_field(field, index, x, mask); };
    hooks.table = [&](int table, Expr index) { return codes_.table(table, index); };
    hooks.extent = [&] { return b_.i64(format_.block); };
    const bool weighed = is_weighed(format_, shape_.weighs);
    if (!stored_fields())
      if (const auto& fit = (weighed ? format_.weighted_fit : format_.fit)[0]) {
        std::vector<int> kept = kept_from(weighed ? format_.weighted_kept : format_.kept);
        if (weighed) std::ranges::copy(kept_for(format_.weighted_row_kept), std::back_inserter(kept));
        fit_.emplace(b_, *fit, hooks, lanes_, std::vector<int>{}, kept);
      }
    if (reads_rows(format_, shape_.weighs) && fit_) {
      RoutineHooks of_row = hooks;
      of_row.source = [&](int slot, Expr index) { return slot == 0 ? value_of_row(index) : weight(index); };
      of_row.set_field = [](int, Expr, Expr, Expr) {};  // they are stored already
      of_row.extent = [&] { return b_.i64(shape_.columns); };
      row_fit_.emplace(b_, *format_.weighted_fit[ordinal(Level::row)], std::move(of_row), lanes_, std::vector<int>{},
                       kept_from(format_.weighted_row_kept));
    }
    one_by_one_ = stored_fields() || rounds_elements(format_, shape_.weighs);
    if (one_by_one_) code_.emplace(b_, *format_.code, hooks, lanes_, std::vector<int>{1}, kept_for(format_.kept));
    decode_.emplace(b_, format_.decode, std::move(hooks), lanes_, std::vector<int>{0});
  }

  // The panel of rows row .. row + lanes - 1.
  void rows(Expr row) {
    row_ = row;
    b_.count(0, shape_.panel, 1, [&](Expr j) {
      b_.store(panel_, b_.load(buffers_.x, lane_type(), transposed(j), 4), j * (lanes_ * 4), 4);
    });
    first_ = b_.load(buffers_.place, {Scalar::i64, 1}, b_.i64(0), 8);
    const Expr count = b_.load(buffers_.place, {Scalar::i64, 1}, b_.i64(8), 8);
    load_outer_fields();
    if (row_fit_) {
      row_fit_->clear();
      row_fit_->run();
    }
    if (stored_fields()) {
      code_->clear();
      decode_->clear();
      b_.loop(LoopKind::serial, b_.i64(0), count, 1, [&](Expr at) { one_of_order(at); });
    } else {
      b_.loop(LoopKind::serial, b_.i64(0), count, format_.block, [&](Expr at) { one_block(at); });
    }
  }

 private:
  bool stored_fields() const { return shape_.order == FeedbackOrder::given; }
  VType lane_type() const { return {Scalar::f32, lanes_}; }
  // Byte offset of line `line` of a transposed matrix, at these rows.
  Expr transposed(Expr line) { return (line * shape_.rows + row_) * 4; }

  // `first` + `index`; lanes may have an index each.
  Expr beyond(Expr first, Expr index) { return b_.splat(first, b_.type(index).lanes) + index; }

  Expr value(Expr index) { return b_.read(panel_, lane_type(), codes_.entry_offset(beyond(start_, index), 4), 4); }
  // A value as the fit of a block reads it.
  Expr expected(Expr index) {
    if (format_.block == 1) return value(index);
    return b_.read(expected_, lane_type(), codes_.entry_offset(index, 4), 4);
  }
  Expr value_of_row(Expr index) {
    if (b_.type(index).lanes == 1) return b_.load(buffers_.whole, lane_type(), transposed(index), 4);
    const Expr first = beyond(row_ * 4, index * (shape_.rows * 4));
    return b_.gather(buffers_.whole, Scalar::f32, first + b_.lane_steps(lanes_, 4));
  }
  Expr weight(Expr column) { return b_.read(buffers_.weights, {Scalar::f32, 1}, column * 4, 4); }

  // Loads outer fields that are one number for a row, before the panel.
  void load_outer_fields() {
    outer_.clear();
    for (size_t k = 0; k < format_.fields.size(); ++k) {
      const Field& f = format_.fields[k];
      if ((f.level == Level::row || f.level == Level::tensor) && f.count == 1) outer_[k] = read_stored(f, b_.i64(0));
    }
  }

  Expr record(Level level, int lane) {
    const Expr row = row_ + lane;
    switch (level) {
      case Level::block:
        return row * layout_.row_stride + block_ * format_.block_bytes;
      case Level::row:
        return row * format_.row_bytes + layout_.section[ordinal(level)];
      case Level::tile:
        return (row / format_.tile_rows * layout_.tile_columns + column_ / format_.tile_columns) * format_.tile_bytes +
               layout_.section[ordinal(level)];
      case Level::tensor:
        return b_.i64(layout_.section[ordinal(level)]);
    }
    LUMEN_UNREACHABLE("level {}", ordinal(level));
  }

  Expr read_stored(const Field& f, Expr index) {
    const bool differ = f.level != Level::tensor || b_.type(index).lanes > 1;  // by lane
    return b_.join(differ ? lanes_ : 1, [&](int l) {
      const Expr entry = b_.type(index).lanes > 1 ? b_.extract(index, l) : index;
      return read_field(b_, f, buffers_.blob, record(f.level, l), entry);
    });
  }

  Expr field_value(int field, Expr index) {
    const Field& f = format_.fields[field];
    if (f.level == Level::block && !stored_fields()) return decode_codes(b_, f.type, codes_.load(field, index));
    if (const auto found = outer_.find(field); found != outer_.end()) return found->second;
    return read_stored(f, index);
  }

  void set_field(int field, Expr index, Expr x, Expr mask) {
    LUMEN_CHECK(format_.fields[field].level == Level::block, "a block's fit assigns a field of another level");
    codes_.store(field, index, encode_value(b_, format_.fields[field].type, x), mask);
  }

  // Sets the locals of the fit that code reads; if the fit did not run, or chose codes, from the stored fields.
  void keep_locals() {
    const bool of_fit = fit_ && !fit_sets_codes(format_, shape_.weighs);
    for (const KeptLocal& k : of_fit&& is_weighed(format_, shape_.weighs) ? format_.weighted_kept : format_.kept) {
      if (of_fit) {
        code_->copy(k.code_variable, *fit_, k.fit_variable);
      } else if (k.field >= 0) {
        code_->set_variable(k.code_variable, field_value(k.field, b_.i64(0)));
      }  // else zeros: no value depends on it (code_line)
    }
  }

  // Values of a block if the only error of each column were the distance it was moved: the best ones under the errors
  // so far. The panel holds less, as columns in the block have yet to compensate those before them in it.
  void expect() {
    if (format_.block == 1) return;
    b_.count(0, format_.block, 1, [&](Expr j) { b_.store(expected_, value(j), j * (lanes_ * 4), 4); });
    b_.count(0, format_.block, 1, [&](Expr j) {
      const Expr moved = original(start_ + j) - b_.load(expected_, lane_type(), j * (lanes_ * 4), 4);
      pass_on(moved, start_ + j, j + 1, b_.i64(format_.block), expected_, start_);
    });
  }

  void one_block(Expr at) {
    start_ = at;
    column_ = first_ + at;
    block_ = column_ / format_.block;
    codes_.clear();
    if (fit_) {
      expect();
      fit_->clear();
      if (row_fit_)
        for (const KeptLocal& k : format_.weighted_row_kept) fit_->copy(k.code_variable, *row_fit_, k.fit_variable);
      fit_->run();
    }
    decode_->clear();
    if (one_by_one_) {
      code_->clear();
      keep_locals();
      b_.count(0, format_.block, 1, [&](Expr i) {
        codes_.store(format_.code_field, i, code_of(value(i), i), {});
        give(at + i, i, at + i + 1);
      });
    } else {
      b_.count(0, format_.block, 1, [&](Expr i) { give(at + i, i, at + format_.block); });
    }
    codes_.write_records(record(Level::block, 0), layout_.row_stride);
  }

  void one_of_order(Expr at) {
    start_ = at;
    column_ = cast(b_.load(buffers_.order, {Scalar::i32, 1}, at * 4, 4), Scalar::i64);
    block_ = column_ / format_.block;
    const Expr i = column_ % format_.block;
    keep_locals();
    const Expr code = code_of(value(b_.i64(0)), i);
    const Field& field = format_.fields[format_.code_field];
    for (int l = 0; l < lanes_; ++l)
      write_code(b_, field, buffers_.blob, record(Level::block, l), i, lanes_ == 1 ? code : b_.extract(code, l));
    give(at, i, at + 1);
  }

  Expr code_of(Expr x, Expr i) {
    code_->set_variable(0, x);
    if (format_.code->parameters > 1) code_->set_variable(1, i);
    code_->run();
    const Expr code = encode_value(b_, format_.fields[format_.code_field].type, code_->result());
    return b_.type(code).lanes == lanes_ ? code : b_.splat(code, lanes_);
  }

  // Passes the error of element i of the block, at `at` of the panel, to those from `from` on.
  void give(Expr at, Expr i, Expr from) {
    decode_->set_variable(0, i);
    decode_->run();
    Expr y = decode_->result();
    if (b_.type(y).lanes != lanes_) y = b_.splat(y, lanes_);
    const Expr lost = original(at) - y;
    b_.store(buffers_.d, lost, transposed(at), 4);
    pass_on(lost, at, from, b_.i64(shape_.panel), panel_, b_.i64(0));
  }

  Expr original(Expr at) { return b_.load(buffers_.w, lane_type(), transposed(at), 4); }

  // Adds an error of column `at` of the panel to entries from .. to of a buffer that begins at column `first` of it.
  void pass_on(Expr lost, Expr at, Expr from, Expr to, BufferId buffer, Expr first) {
    const Expr line = at * (shape_.panel * 4) + first * 4;
    b_.loop(LoopKind::serial, from, to, 1, [&](Expr j) {
      const Expr part = b_.splat(b_.load(buffers_.u, {Scalar::f32, 1}, line + j * 4, 4), lanes_);
      const Expr place = j * (lanes_ * 4);
      b_.store(buffer, fma(lost, part, b_.load(buffer, lane_type(), place, 4)), place, 4);
    });
  }

  Builder& b_;
  const Format& format_;
  const FeedbackShape& shape_;
  const FeedbackBuffers& buffers_;
  BlobLayout layout_;
  int lanes_;
  BlockCodes codes_;
  BufferId panel_ = -1, expected_ = -1;
  std::optional<RoutineRun> row_fit_, fit_, code_, decode_;
  bool one_by_one_ = false;
  std::map<int, Expr> outer_;
  Expr row_, first_;             // first row, first column of the panel
  Expr start_, column_, block_;  // of the block or element: in the panel, in the tensor, in its row
};

}  // namespace

int64_t feedback_panel(const Format& f, int64_t columns, int64_t least) {
  const int64_t unit = std::lcm<int64_t>(f.block, 16);  // lines of panels begin where buffers may
  return std::min(columns, ceil_div(least, unit) * unit);
}

bool rounds_with_stored_fields(const Format& f) {
  if (!f.code) return false;
  const bool has_fields = std::ranges::all_of(f.kept, [](const KeptLocal& k) { return k.field >= 0; });
  return has_fields || code_line(f);
}

bool rounds_elements(const Format& f, bool weighs) {
  if (!f.code) return false;
  return !fit_sets_codes(f, weighs) || rounds_with_stored_fields(f);
}

Synthesis synthesize_feedback(const Format& f, const FeedbackShape& shape, const machine::Machine& target) {
  LUMEN_CHECK(f.encodes(), "a format that only decodes");
  const bool given = shape.order == FeedbackOrder::given;
  LUMEN_CHECK(shape.panel > 0 && (given || shape.panel % f.block == 0), "a panel of {} columns", shape.panel);
  LUMEN_CHECK(!given || rounds_with_stored_fields(f), "codes of a format that need more than its fields");
  const bool weighed = !given && is_weighed(f, shape.weighs);
  const int64_t rows = shape.rows, matrix = shape.panel * rows * 4;
  Synthesis out;
  Step step;
  Builder b("kernel");
  const auto param = [&](int number, const char* name, int64_t bytes, bool written = false) {
    step.arguments.push_back({Argument::From::value, number});
    step.bytes += bytes;
    return b.param(name, bytes, written);
  };
  FeedbackBuffers buffers;
  buffers.place = param(0, "place", 16);
  buffers.x = param(1, "x", matrix);
  buffers.w = param(2, "w", matrix);
  buffers.u = param(3, "u", shape.panel * shape.panel * 4);
  buffers.blob = param(4, "blob", blob_layout(f, rows, shape.columns).total, true);
  buffers.d = param(5, "d", matrix, true);
  if (weighed) buffers.weights = param(6, "importance", shape.columns * 4);
  if (!given && reads_rows(f, shape.weighs)) buffers.whole = param(7, "whole", shape.columns * rows * 4);
  if (given) buffers.order = param(8, "order", shape.panel * 4);

  const int lanes = target.f32_lanes();
  const int width = rows >= lanes && !is_large(f) ? lanes : 1;
  const int64_t whole = rows / width;
  b.loop(LoopKind::parallel, b.i64(0), b.i64(ceil_div(rows, width)), 1, [&](Expr task) {
    FeedbackEncoder wide(b, f, shape, buffers, width, target);
    wide.begin();
    if (rows % width == 0) return wide.rows(task * width);
    FeedbackEncoder narrow(b, f, shape, buffers, 1, target);
    narrow.begin();
    b.branch(
        task < whole, [&] { wide.rows(task * width); },
        [&] { b.loop(LoopKind::serial, b.i64(whole * width), b.i64(rows), 1, [&](Expr row) { narrow.rows(row); }); });
  });
  step.plan = fmt::format("feedback {}x{} panel {} {}{}{}", rows, shape.columns, shape.panel, f.hash.hex().substr(0, 8),
                          weighed ? " weighted" : "", given ? " in order" : "");
  b.kernel.name = symbol_text(step.plan);
  step.flops = 1.0 * rows * shape.panel * shape.panel;
  step.kernel = b.finish();
  out.steps.push_back(std::move(step));
  return out;
}

}  // namespace lumen::synth
