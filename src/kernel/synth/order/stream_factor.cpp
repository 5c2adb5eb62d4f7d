// See stream_factor.h.
#include "kernel/synth/order/stream_factor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/ordinal.h"
#include "number/formula/scalar.h"

namespace lumen::synth {

using Kind = FactorForm::Kind;

namespace {

constexpr int kWord = 4, kTogether = 16;  // bytes; elements
constexpr int64_t kFirstBits = 0x64;      // the upper byte of 1024 in f16
constexpr int kFraction = 10;             // mantissa bits of f16
constexpr int kFewBits = 4;               // codes of so few bits fit into a mantissa at several places
constexpr int kMasks = 8;                 // places
constexpr size_t kMostCodes = 256;
constexpr double kLeastOfF16 = 0x1p-14, kMostOfF16 = 65504;

// Subnormals fit only if they are exact.
bool fits_f16(double v) {
  const double size = std::abs(v), there = f16_to_f32(f32_to_f16(static_cast<float>(v)));
  return std::isnan(v) || there == v || (size >= kLeastOfF16 && size <= kMostOfF16);
}

uint16_t short_bits(Scalar s, double v) {
  return s == Scalar::bf16 ? f32_to_bf16(static_cast<float>(v)) : f32_to_f16(static_cast<float>(v));
}

// Codes of four bits, two to a byte.
bool fills_bytes(const Format& f, int field) {
  return std::ranges::all_of(f.fields[field].layout.pieces, [&](const LayoutPiece& piece) {
    return piece.bits == 4 && piece.base % 4 == 0 &&
           std::ranges::all_of(piece.modes, [](const LayoutMode& m) { return m.stride % 4 == 0; });
  });
}

int64_t twice(int64_t x) {
  return x << 16 | x;
}

bool runs_over_bytes(const Format& f, int field) {
  return std::ranges::any_of(f.fields[field].layout.pieces, [&](const LayoutPiece& piece) {
    for (int64_t e = piece.first; e < piece.first + piece.count; ++e)
      if (piece.bit_of(e) % 8 + piece.bits > 8) return true;
    return false;
  });
}

// The first bits of codes that are one piece each and come in pairs at the same bit of bytes that are not adjacent.
std::vector<int64_t> paired_bits(const Format& f, int field, const std::vector<int64_t>& elements) {
  std::vector<int64_t> out;
  for (const int64_t e : elements) {
    const std::vector<CodePart> parts = parts_of(f.fields[field], place_in_blocks(f, e));
    if (parts.size() != 1) return {};
    out.push_back(parts[0].bit);
    if (out.size() % 2 != 0) continue;
    const int64_t apart = std::abs(out.back() - out[out.size() - 2]);
    if (apart % 8 != 0 || apart < 16) return {};
  }
  return out;
}

// A pair of codes in a word, whose halves are two bytes around each: after the shift, the codes begin at bit `place`.
struct CodePair {
  std::array<int64_t, 4> bytes{};
  bool fresh = true;  // the first pair of its word
  int shift = 0, place = 0;
};
std::vector<CodePair> code_pairs(const Format& f, const FactorForm& form, const std::vector<int64_t>& elements) {
  std::vector<CodePair> out;
  if (!form.in_pairs(f)) return out;
  const std::vector<int64_t> first_bits = paired_bits(f, form.field, elements);
  if (first_bits.empty()) return out;
  const int bits = f.fields[form.field].type.bits;
  const int64_t last = (*std::max_element(first_bits.begin(), first_bits.end()) + bits - 1) / 8;
  // With offsets, sums of activations are needed unscaled.
  const int room = form.scaled.offset ? bits : kFraction;
  int64_t from = 0;
  for (size_t i = 0; i < first_bits.size(); i += 2) {
    const int64_t first = first_bits[i], apart = (first_bits[i + 1] - first) / 8;
    CodePair p;
    p.fresh = out.empty() || from + apart != out.back().bytes[2] || first < 8 * from || first + bits > 8 * from + 16;
    if (p.fresh) {
      from = first / 8;
      if (std::max(from, from + apart) + 1 > last) --from;  // the word does not reach beyond the last byte
    }
    p.bytes = {from, from + 1, from + apart, from + apart + 1};
    const int at = first - 8 * from;
    p.shift = p.fresh ? 0 : out.back().shift;
    if (at < p.shift || at - p.shift + bits > room || at - p.shift >= kMasks) p.shift = at;
    p.place = at - p.shift;
    out.push_back(p);
  }
  return out;
}

}  // namespace

std::string_view FactorForm::name() const {
  constexpr std::string_view kNames[] = {"plain", "codes", "pairs", "values", "decoded"};
  return kNames[ordinal(kind)];
}

bool FactorForm::in_pairs(const Format& f) const {
  if (kind != Kind::codes) return false;
  return runs_over_bytes(f, field) || (f.fields[field].type.bits <= kFewBits && !scaled.offset);
}

int64_t FactorForm::mask_bytes(const Format& f, int64_t lanes) const {
  return in_pairs(f) ? lanes * kMasks * kWord : 0;
}

FactorForm factor_form(const Format& f, const machine::Machine& m, bool by_code) {
  FactorForm out;
  out.scaled = *facts_of(f).scaled;
  const auto codes = by_code ? values_by_code(f, out.scaled.value) : std::nullopt;
  if (!codes) return out;
  out.field = codes->field;
  out.kind = Kind::values;
  const std::vector<double>& values = codes->values;
  const auto flipped = counting(values);
  const double least = flipped ? values[*flipped] : 1;
  if (std::all_of(values.begin(), values.end(), fits_f16)) out.to = Scalar::f16;
  if (values.size() <= kMostCodes && least <= 0 && least >= -FactorForm::kFirst && std::floor(least) == least) {
    out.kind = Kind::codes;
    out.flipped = *flipped;
    out.least = least;
  } else if (values.size() == 16 && fills_bytes(f, codes->field)) {
    out.kind = Kind::pairs;
    out.table.field = codes->field;
    out.table.copies = PairTable::copies_for(m);
    for (const double v : values) out.table.values.push_back(short_bits(out.to, v));
  }
  return out;
}

// The mask of pairs of codes is read from memory: an instruction has room for one constant, and compilers emit two
// instructions if they know two.
StreamFactor::StreamFactor(Builder& b, const machine::Machine& m, const Format* f, const FactorForm& form,
                           PairTable* table, bool aligned, int64_t lanes)
    : b_(b), m_(m), form_(form), table_(table), aligned_(aligned) {
  if (!f || !form.in_pairs(*f)) return;
  mask_at_ = b_.alloc(form.mask_bytes(*f, lanes), 128, loop::Space::shared);
  mask_bits_ = twice((int64_t{1} << f->fields[form.field].type.bits) - 1);
}

void StreamFactor::fill(Expr lane) {
  if (mask_at_ < 0) return;
  std::vector<int64_t> masks;
  for (int place = 0; place < kMasks; ++place) masks.push_back((mask_bits_ << place) & 0xffffffff);
  b_.store(mask_at_, b_.lanes_integer(masks, Scalar::u32), lane * (kMasks * kWord), 16);
}

void StreamFactor::enter(Expr lane) {
  if (mask_at_ < 0) return;
  const Expr all = b_.load(mask_at_, {Scalar::u32, kMasks}, lane * (kMasks * kWord), 16);
  masks_.clear();
  for (int place = 0; place < kMasks; ++place) masks_.push_back(b_.extract(all, place));
}

std::vector<int> code_places(const Format& f, const FactorForm& form, const std::vector<int64_t>& elements) {
  if (form.kind != Kind::codes) return {};
  if (elements.size() > kTogether) {  // split as in numbers()
    const std::ptrdiff_t half = elements.size() / 2;
    std::vector<int> out = code_places(f, form, {elements.begin(), elements.begin() + half});
    const std::vector<int> rest = code_places(f, form, {elements.begin() + half, elements.end()});
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  }
  std::vector<int> out;
  for (const CodePair& p : code_pairs(f, form, elements)) out.insert(out.end(), 2, p.place);
  out.resize(elements.size(), 0);
  return out;
}

Expr StreamFactor::numbers(BufferId buffer, Expr byte, int count) {
  const Expr x = b_.load(buffer, {form_.from, count}, byte, count * scalar_bytes(form_.from));
  return form_.from == form_.to ? x : shortened(cast(x, Scalar::f32));
}

Expr StreamFactor::numbers(Unpack& cursor, const std::vector<int64_t>& elements) {
  if (elements.size() <= kTogether) return some(cursor, elements);
  const std::ptrdiff_t half = elements.size() / 2;
  const Expr a = numbers(cursor, {elements.begin(), elements.begin() + half});
  const Expr c = numbers(cursor, {elements.begin() + half, elements.end()});
  return b_.concat(a, c);
}

Expr StreamFactor::some(Unpack& cursor, const std::vector<int64_t>& elements) {
  switch (form_.kind) {
    case Kind::codes:
      return of_codes(cursor, elements);
    case Kind::pairs:
      return of_pairs(cursor, elements);
    case Kind::values:
      return shortened(cursor.expression(form_.scaled.value, elements, true));
    case Kind::decoded: {
      const int lanes = elements.size();
      const auto times = [&](const RoutineExpr& e) { return b_.splat(cursor.expression(e, elements, false), lanes); };
      Expr x = cursor.expression(form_.scaled.value, elements, true);
      if (form_.scaled.scale) x = x * times(*form_.scaled.scale);
      if (form_.scaled.offset) x = x + times(*form_.scaled.offset);
      return shortened(x);
    }
    case Kind::plain:
      break;
  }
  LUMEN_UNREACHABLE("numbers of {}", form_.name());
}

// Codes as words of four bytes, counting numbers.
Expr StreamFactor::words(Unpack& cursor, const std::vector<int64_t>& elements, BufferId at) {
  const int lanes = elements.size();
  const Expr codes = cursor.codes(form_.field, elements, true, &m_);
  b_.store(at, b_.type(codes).lanes == lanes ? codes : b_.splat(codes, lanes), b_.i64(0), kWord);
  const VType type{Scalar::u32, lanes / kWord};
  const Expr x = b_.load(at, type, b_.i64(0), kWord);
  if (form_.flipped == 0) return x;
  return x ^ (int64_t{form_.flipped} * 0x01010101);
}

// Bytes of words become the low bytes of 16-bit floats with this high byte.
Expr StreamFactor::below(Expr words, int64_t upper) {
  const int lanes = b_.type(words).lanes * kWord;
  const BufferId at = b_.alloc(lanes, 16), out = b_.alloc(int64_t{lanes} * 2, 16);
  b_.store(at, words, b_.i64(0), kWord);
  const Expr with = b_.integer(upper, {Scalar::u8, kWord});
  for (int first = 0; first < lanes; first += kWord) {
    const Expr four = b_.load(at, {Scalar::u8, kWord}, b_.i64(first), kWord);
    for (const int i : {0, 2})
      b_.store(out, b_.shuffle({four, with}, {i, kWord, i + 1, kWord}), b_.i64((first + i) * 2), kWord);
  }
  return b_.load(out, {form_.to, lanes}, b_.i64(0), kWord);
}

Expr StreamFactor::of_codes(Unpack& cursor, const std::vector<int64_t>& elements) {
  const int lanes = elements.size();
  if (!code_pairs(cursor.format(), form_, elements).empty()) return of_pairs_of_codes(cursor, elements);
  return below(words(cursor, elements, b_.alloc(lanes, 16)), kFirstBits);
}

Expr StreamFactor::of_pairs_of_codes(Unpack& cursor, const std::vector<int64_t>& elements) {
  const int lanes = elements.size();
  const BufferId out = b_.alloc(int64_t{lanes} * 2, 16);
  Expr window, shifted;
  int64_t at = 0;
  int shift = 0;
  for (const CodePair& p : code_pairs(cursor.format(), form_, elements)) {
    if (p.fresh) shifted = window = cursor.window().word(p.bytes, aligned_, m_);
    if (p.shift != (p.fresh ? 0 : shift)) shifted = window >> p.shift;
    shift = p.shift;
    Expr x = shifted & masks_[p.place];
    x = x ^ twice(kFirstBits << 8 | int64_t{form_.flipped} << p.place);
    b_.store(out, x, b_.i64(at), kWord);
    at += kWord;
  }
  return b_.load(out, {form_.to, lanes}, b_.i64(0), kWord);
}

Expr StreamFactor::of_pairs(Unpack& cursor, const std::vector<int64_t>& elements) {
  const int lanes = elements.size();
  std::vector<int64_t> low, high;
  for (size_t i = 0; i < elements.size(); i += 2) {
    low.push_back(elements[i]);
    high.push_back(elements[i + 1]);
  }
  const std::vector<Expr> entries = table_->look_up(cursor, low, high, {form_.to, 2});
  const BufferId out = b_.alloc(int64_t{lanes} * 2, 16);
  for (size_t i = 0; i < entries.size(); ++i) b_.store(out, entries[i], b_.i64(i * 4), kWord);
  return b_.load(out, {form_.to, lanes}, b_.i64(0), kWord);
}

}  // namespace lumen::synth
