#include "kernel/synth/encode/block_codes.h"

#include <algorithm>
#include <bit>

#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

bool is_large(const Format& f) {
  constexpr int64_t kMostEntries = 1024;
  int64_t entries = 0;
  for (const Field& field : f.fields)
    if (field.level == Level::block) entries += field.count;
  return entries > kMostEntries;
}

bool assigns(const std::vector<RoutineStmt>& body, int field) {
  return std::ranges::any_of(body, [&](const RoutineStmt& s) {
    return (s.kind == RoutineStmt::Kind::set_field && s.slot == field) || assigns(s.body, field) ||
           assigns(s.otherwise, field);
  });
}

void BlockCodes::begin() {
  for (const Field& f : format_.fields)
    codes_.push_back(f.level == Level::block ? b_.alloc(f.count * lanes_ * scalar_bytes(code_type(f.type)), 64) : -1);
  for (const FormatTable& t : format_.tables) tables_.push_back(lay_table(b_, t));
}

Expr BlockCodes::table(int table, Expr index) {
  const FormatTable& t = format_.tables[table];
  const Expr permuted = permute_table(b_, target_, t, index);
  return permuted.exists() ? permuted : read_table(b_, t, tables_[table], index);
}

void BlockCodes::clear() {
  for (size_t k = 0; k < format_.fields.size(); ++k) {
    const Field& f = format_.fields[k];
    const int field = k;
    if (f.level != Level::block || field == format_.code_field) continue;
    const Scalar s = code_type(f.type);
    b_.count(0, f.count, 1, [&](Expr i) { store(field, i, b_.integer(0, {s, lanes_}), {}); });
  }
}

Expr BlockCodes::entry_offset(Expr index, int64_t size) {
  const Expr first = index * (size * lanes_);
  return b_.type(index).lanes == 1 ? first : first + b_.lane_steps(lanes_, size);
}

Expr BlockCodes::load(int field, Expr index) {
  const Scalar s = code_type(format_.fields[field].type);
  return b_.read(codes_[field], {s, lanes_}, entry_offset(index, scalar_bytes(s)), scalar_bytes(s));
}

void BlockCodes::store(int field, Expr index, Expr code, Expr mask) {
  const int64_t size = scalar_bytes(code_type(format_.fields[field].type));
  if (b_.type(code).lanes != lanes_) code = b_.splat(code, lanes_);
  if (mask.exists()) code = select(mask, code, load(field, index));
  b_.write(codes_[field], code, entry_offset(index, size), size);
}

std::map<int64_t, std::vector<BlockCodes::Fragment>> BlockCodes::fragments() const {
  std::map<int64_t, std::vector<Fragment>> words;
  for (size_t k = 0; k < format_.fields.size(); ++k) {
    const Field& f = format_.fields[k];
    if (f.level != Level::block) continue;
    for (const LayoutPiece& piece : f.layout.pieces) {
      for (int64_t e = piece.first; e < piece.first + piece.count; ++e) {
        const int64_t bit = piece.bit_of(e);
        for (int done = 0; done < piece.bits;) {
          const int shift = (bit + done) % 32;
          const int n = std::min(piece.bits - done, 32 - shift);
          words[(bit + done) / 32].push_back({static_cast<int>(k), e, piece.value_bit + done, n, shift});
          done += n;
        }
      }
    }
  }
  return words;
}

void BlockCodes::write_records(Expr start, int64_t stride, int64_t align) {
  if (lanes_ == 1 && is_large(format_)) return write_record(start);
  const int64_t bytes = format_.block_bytes;
  const auto words = fragments();
  for (int64_t w = 0; w * 4 < bytes; ++w) {
    const VType u32{Scalar::u32, lanes_};
    Expr word = b_.integer(0, u32);
    if (const auto found = words.find(w); found != words.end()) {
      for (const Fragment& part : found->second) {
        const Field& f = format_.fields[part.field];
        Expr x = load(part.field, b_.i64(part.entry));
        x = shifted(x, -part.value_bit);
        if (part.value_bit + part.bits < f.type.bits) x = x & ((int64_t{1} << part.bits) - 1);
        word = word | shifted(cast(x, Scalar::u32), part.shift);
      }
    }
    write_word(word, start, stride, w * 4, std::min<int64_t>(4, bytes - w * 4), align);
  }
}

// Entry by entry in loops, where straight code would be long.
void BlockCodes::write_record(Expr start) {
  clear_bytes(b_, blob_, 0, format_.block_bytes, start);
  for (size_t k = 0; k < format_.fields.size(); ++k) {
    const Field& f = format_.fields[k];
    if (f.level != Level::block) continue;
    b_.count(0, f.count, 1, [&](Expr i) { write_code(b_, f, blob_, start, i, load(k, i)); });
  }
}

void BlockCodes::write_word(Expr word, Expr start, int64_t stride, int64_t at, int64_t bytes, int64_t align) {
  int64_t done = 0;
  while (done < bytes) {
    const int64_t n = std::bit_floor(static_cast<uint64_t>(bytes - done));
    const Expr x = cast(shifted(word, -8 * done), unsigned_of(8 * n));
    const Expr first = start + (at + done);
    if (lanes_ == 1 || stride == n) {
      b_.store(blob_, x, first, at + done == 0 ? align : 1);
    } else {
      b_.scatter(blob_, x, b_.splat(first, lanes_) + b_.lane_steps(lanes_, stride));
    }
    done += n;
  }
}

}  // namespace lumen::synth
