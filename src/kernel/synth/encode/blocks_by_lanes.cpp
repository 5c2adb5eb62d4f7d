#include "kernel/synth/encode/blocks_by_lanes.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/unpack/magnitude.h"
#include "number/facts/code_parts.h"

namespace lumen::synth {
namespace {

constexpr int64_t kLanesOfBlock = 128;  // lanes of a thread block

class BlocksByLanes {
 public:
  BlocksByLanes(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target)
      : b_(b), f_(f), given_(given), target_(target), layout_(blob_layout(f, given.rows, given.columns)) {
    if (f.code) code_routine_ = by_reciprocals(f, *f.code);
  }

  // Chooses how many numbers a lane has; false if no number is possible.
  bool choose() {
    if (target_.wave <= 1 || f_.block <= 1 || !f_.code || given_.weighs(f_, Level::block) || is_any_supplied())
      return false;
    const auto& fit = f_.fit[ordinal(Level::block)];
    if (fit && !shared_loop(*fit, f_.block)) return false;
    for (size_t k = 0; k < f_.fields.size(); ++k)
      if (f_.fields[k].level == Level::block && f_.fields[k].count != (is_code(k) ? f_.block : 1)) return false;
    for (const int each : {8, 4}) {
      each_ = each;
      if (is_in_whole_bytes()) return true;
    }
    return false;
  }

  void write() {
    const int64_t share = f_.block / each_, together = std::max<int64_t>(kLanesOfBlock, target_.wave) / share;
    const int64_t total = given_.rows * (given_.columns / f_.block);
    b_.loop(LoopKind::grid, b_.i64(0), b_.i64(ceil_div(total, together)), 1, [&](Expr group) {
      b_.loop(LoopKind::lane, b_.i64(0), b_.i64(together * share), 1, [&](Expr lane) {
        b_.branch((group == 0) & (lane == 0), [&] { clear_between(b_, f_, given_); });
        const Expr number = group * together + lane / share;
        block_ = min(number, b_.i64(total - 1));
        const Expr mine = lane % share;
        begin();
        values_ = given_.values(b_, block_ * f_.block + mine * each_, each_, each_);
        if (fit_) {
          bits_ = magnitude(share);
          fit_->clear();
          fit_->run();
        }
        const Expr codes = run_code(mine * each_);
        b_.branch(number < total, [&] {
          const Expr record = block_ * f_.block_bytes;
          b_.branch(mine == 0, [&] { write_fields(record); });
          write_codes(record + (first_bit_ / 8 + mine * bytes()), codes);
        });
      });
    });
  }

 private:
  bool is_code(size_t field) const { return std::cmp_equal(field, f_.code_field); }
  const Field& code_field() const { return f_.fields[f_.code_field]; }
  int64_t bytes() const { return each_ * code_field().type.bits / 8; }  // of a lane's codes

  bool is_any_supplied() const {
    return std::ranges::any_of(given_.supplied,
                               [&](const SuppliedValues& s) { return f_.fields[s.field].level == Level::block; });
  }

  // Whether the codes of a lane are contiguous whole bytes, and those of all lanes as well.
  bool is_in_whole_bytes() {
    const Field& code = code_field();
    const int64_t share = f_.block / each_;
    if (f_.block % each_ != 0 || (share & (share - 1)) != 0 || share > target_.wave) return false;
    if (code.layout.pieces.size() != 1 || each_ * code.type.bits % 8 != 0 || code.type.bits > 8) return false;
    if (const int all = each_ * code.type.bits; (all & (all - 1)) != 0) return false;
    const LayoutPiece& piece = code.layout.pieces[0];
    if (piece.first != 0 || piece.count != f_.block || piece.bits != code.type.bits || piece.value_bit != 0)
      return false;
    first_bit_ = piece.bit_of(0);
    if (first_bit_ % 8 != 0) return false;
    for (int64_t i = 0; i < f_.block; ++i)
      if (piece.bit_of(i) != first_bit_ + i * code.type.bits) return false;
    return true;
  }

  // In the lanes' region: private memory and tables.
  void begin() {
    tables_.clear();
    for (const FormatTable& t : f_.tables) tables_.push_back(lay_table(b_, t));
    stored_.assign(f_.fields.size(), -1);
    for (size_t k = 0; k < f_.fields.size(); ++k) {
      if (f_.fields[k].level != Level::block || is_code(k)) continue;
      const Scalar s = code_type(f_.fields[k].type);
      stored_[k] = b_.alloc(scalar_bytes(s), 16);
      b_.store(stored_[k], b_.integer(0, {s, 1}), b_.i64(0), scalar_bytes(s));
    }
    RoutineHooks hooks;
    hooks.source = [this](int, Expr index) { return given_.values(b_, block_ * f_.block + index); };
    hooks.extent = [this] { return b_.i64(f_.block); };
    hooks.field = [this](int field, Expr index) { return field_value(field, index); };
    hooks.set_field = [this](int field, Expr, Expr value, Expr) {
      b_.store(stored_[field], encode_value(b_, f_.fields[field].type, value), b_.i64(0),
               scalar_bytes(code_type(f_.fields[field].type)));
    };
    hooks.table = [this](int table, Expr index) { return read_table(b_, f_.tables[table], tables_[table], index); };
    RoutineHooks fitting = hooks;
    fitting.magnitude = [this] { return bits_; };
    fit_.reset();
    if (const auto& fit = f_.fit[ordinal(Level::block)])
      fit_.emplace(b_, *fit, std::move(fitting), 1, std::vector<int>{}, kept_from(f_.kept));
    code_.emplace(b_, code_routine_, std::move(hooks), each_, std::vector<int>{}, kept_for(f_.kept));
  }

  Expr stored(size_t field) {
    const Scalar s = code_type(f_.fields[field].type);
    return b_.load(stored_[field], {s, 1}, b_.i64(0), scalar_bytes(s));
  }

  Expr field_value(int field, Expr index) {
    const Field& f = f_.fields[field];
    if (f.level == Level::block) return decode_codes(b_, f.type, stored(field));
    const int64_t per_row = given_.columns / f_.block;
    const Expr row = block_ / per_row;
    Expr record = b_.i64(layout_.section[ordinal(f.level)]);
    if (f.level == Level::row) record = record + row * f_.row_bytes;
    if (f.level == Level::tile) {
      const Expr column = block_ % per_row * f_.block / f_.tile_columns;
      record = record + (row / f_.tile_rows * layout_.tile_columns + column) * f_.tile_bytes;
    }
    return read_field(b_, f, given_.blob, record, index);
  }

  Expr magnitude(int64_t share) {
    const Routine& fit = *f_.fit[ordinal(Level::block)];
    RoutineHooks hooks;
    hooks.source = [this](int, Expr) { return values_; };
    RoutineRun run(b_, fit, std::move(hooks), each_);
    const Expr all = bitcast(run.evaluate(*magnitude_loop(*shared_loop(fit, f_.block)).value), Scalar::u32);
    const Expr most = b_.fold(ScalarOp::max_, all);
    return share > 1 ? b_.fold_wave(ScalarOp::max_, most, share) : most;
  }

  // Codes (u8 of eight bits, else u32) of the lane's numbers, of which the first is number `first` of the block.
  Expr run_code(Expr first) {
    code_->clear();
    for (const KeptLocal& k : f_.kept) {
      if (fit_)
        code_->copy(k.code_variable, *fit_, k.fit_variable);
      else
        code_->set_variable(k.code_variable, field_value(k.field, b_.i64(0)));
    }
    code_->set_variable(0, values_);
    if (f_.code->parameters > 1) code_->set_variable(1, b_.splat(first, each_) + b_.lane_steps(each_, 1));
    code_->run();
    const FieldType& t = code_field().type;
    return t.bits == 8 ? encode_bytes(b_, t, code_->result(), target_) : encode_value(b_, t, code_->result());
  }

  // Writes all of a record but the codes.
  void write_fields(Expr record) {
    clear_bytes(b_, given_.blob, 0, first_bit_ / 8, record);
    clear_bytes(b_, given_.blob, first_bit_ / 8 + f_.block * code_field().type.bits / 8, f_.block_bytes, record);
    for (size_t k = 0; k < f_.fields.size(); ++k)
      if (stored_[k] >= 0) write_code(b_, f_.fields[k], given_.blob, record, b_.i64(0), stored(k));
  }

  void write_codes(Expr at, Expr codes) {
    const int bits = code_field().type.bits;
    const int64_t align = std::gcd(std::gcd(f_.block_bytes, first_bit_ / 8), bytes());
    if (bits == 8) return b_.store(given_.blob, codes, at, align);
    Expr word = b_.extract(codes, 0);
    for (int i = 1; i < each_; ++i) word = word | (b_.extract(codes, i) << (i * bits));
    b_.store(given_.blob, cast(word, unsigned_of(8 * bytes())), at, align);
  }

  Builder& b_;
  const Format& f_;
  const EncodeOperands& given_;
  const machine::Machine& target_;
  BlobLayout layout_;
  Routine code_routine_;
  int each_ = 8;
  int64_t first_bit_ = 0;
  std::vector<BufferId> tables_, stored_;
  std::optional<RoutineRun> fit_, code_;
  Expr block_, values_, bits_;
};

}  // namespace

bool encode_blocks_by_lanes(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target) {
  BlocksByLanes kernel(b, f, given, target);
  if (!kernel.choose()) return false;
  kernel.write();
  return true;
}

}  // namespace lumen::synth
