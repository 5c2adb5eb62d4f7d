#include "kernel/synth/unpack/field.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/unpack/bits_as.h"

namespace lumen::synth {

namespace {

constexpr int64_t kMaxWindow = 64;  // bytes one vector load may cover

Expr constant_lanes(Builder& b, const std::vector<int64_t>& x, Scalar s) {
  return x.size() == 1 ? b.integer(x[0], {s, 1}) : b.lanes_integer(x, s);
}

// The largest power of two so that every aligned run of so many lanes reads contiguous bytes; 1 if the number of lanes
// is no power of two.
int run_length(const std::vector<int64_t>& index) {
  const size_t lanes = index.size();
  if ((lanes & (lanes - 1)) != 0) return 1;
  for (size_t run = lanes; run > 1; run /= 2) {
    bool whole = true;
    for (size_t l = 0; l < lanes; ++l) whole = whole && (l % run == 0 || index[l] == index[l - 1] + 1);
    if (whole) return run;
  }
  return 1;
}

// Lanes that are contiguous whole bytes: one plain vector load.
std::optional<int64_t> dense_bytes(const std::vector<std::vector<CodePart>>& parts, int bits) {
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return std::nullopt;
  for (size_t l = 0; l < parts.size(); ++l) {
    if (parts[l].size() != 1 || parts[l][0].bit % 8 != 0) return std::nullopt;
    if (parts[l][0].bit != parts[0][0].bit + static_cast<int64_t>(l) * bits) return std::nullopt;
  }
  return parts[0][0].bit / 8;
}

// The number of memory pieces that hold the bytes, each read by one vector load.
int clusters(std::vector<int64_t> index) {
  std::sort(index.begin(), index.end());
  int pieces = 1;
  int64_t first = index[0];
  for (const int64_t at : index) {
    if (at - first < 16) continue;
    ++pieces;
    first = at;
  }
  return pieces;
}

int64_t places_in(std::vector<int64_t> index) {
  std::sort(index.begin(), index.end());
  return std::unique(index.begin(), index.end()) - index.begin();
}

// Whole bytes scattered over the window: lane by lane, each place once.
Expr scattered(Window& window, const std::vector<int64_t>& byte, int bits) {
  Builder& b = window.builder();
  const VType one{unsigned_of(bits), 1};
  std::vector<int64_t> places;
  std::vector<int> mask;
  for (const int64_t at : byte) {
    const auto found = std::find(places.begin(), places.end(), at);
    mask.push_back(found - places.begin());
    if (found == places.end()) places.push_back(at);
  }
  return b.shuffle({b.join(places.size(), [&](int i) { return window.load(one, places[i]); })}, mask);
}

}  // namespace

std::vector<CodePart> parts_of(const Field& field, const FieldPlace& place) {
  std::vector<CodePart> parts;
  for (const LayoutPiece& piece : field.layout.pieces)
    if (holds(piece, place.element))
      parts.push_back({place.record * 8 + piece.bit_of(place.element), piece.bits, piece.value_bit});
  std::ranges::sort(parts, {}, &CodePart::value_bit);
  return parts;
}

FieldPlace place_in_blocks(const Format& f, int64_t element) {
  return {element / f.block * f.block_bytes, element % f.block};
}

Expr choose(Expr index, std::vector<Expr> level, int64_t bit) {
  for (; level.size() > 1; bit *= 2) {
    const Expr set = (index & bit) != 0;
    std::vector<Expr> next;
    for (size_t k = 0; k < level.size(); k += 2) {
      const bool same = k + 1 == level.size() || level[k].is(level[k + 1]);
      next.push_back(same ? level[k] : select(set, level[k + 1], level[k]));
    }
    level = std::move(next);
  }
  return level[0];
}

Window::Window(Builder& b, BufferId buffer, Expr base, int64_t bytes)
    : builder_(b), buffer_(buffer), base_(base), size_(bytes) {}

Expr Window::load(VType type, int64_t byte, int align) {
  LUMEN_CHECK(byte >= 0 && byte + int64_t{scalar_bytes(type.scalar)} * type.lanes <= size_, "byte {} of {}", byte,
              size_);
  Expr& known = loads_[{type.scalar, type.lanes, byte}];
  if (!known.exists()) known = builder_.load(buffer_, type, base_ + byte, align);
  return known;
}

Expr Window::bytes(const std::vector<int64_t>& index) {
  const int lanes = index.size();
  const auto [low, high] = std::minmax_element(index.begin(), index.end());
  const int64_t count = *high - *low + 1;
  if (lanes == 1) return load({Scalar::u8, 1}, *low);
  if (const int run = run_length(index); run == lanes || run >= (count > kMaxWindow ? 8 : 16)) return runs(index, run);
  if (lanes <= 16 && count > 16 && places_in(index) <= 4) return scattered(*this, index, 8);
  if (count > kMaxWindow && lanes <= 16 && 2 * clusters(index) > lanes) return scattered(*this, index, 8);
  if (count > kMaxWindow) {  // far apart: half by half
    const size_t half = index.size() / 2;
    const Expr a = bytes({index.begin(), index.begin() + half});
    const Expr c = bytes({index.begin() + half, index.end()});
    if (index.size() % 2 != 0) {  // unequal halves are joined lane by lane
      Expr all = builder_.integer(0, {Scalar::u8, lanes});
      for (int l = 0, h = half; l < lanes; ++l)
        all = builder_.insert(all, l < h ? builder_.extract(a, l) : builder_.extract(c, l - h), l);
      return all;
    }
    return half == 1 ? builder_.insert(builder_.splat(a, 2), c, 1) : builder_.concat(a, c);
  }
  // A power of two of bytes: widened inside the window where that fits, else two overlapping loads.
  int64_t wide = std::bit_ceil(static_cast<uint64_t>(count));
  std::vector<int> mask(index.size());
  if (wide <= size_) {
    const int64_t start = std::min(*low, size_ - wide);
    if (wide == 1) return builder_.splat(load({Scalar::u8, 1}, start), lanes);
    const Expr window = load({Scalar::u8, static_cast<int>(wide)}, start);
    for (int l = 0; l < lanes; ++l) mask[l] = index[l] - start;
    return builder_.shuffle({window}, mask);
  }
  wide /= 2;
  const int64_t second = *high + 1 - wide;
  const VType type{Scalar::u8, static_cast<int>(wide)};
  if (wide == 1) return builder_.shuffle({load({Scalar::u8, 2}, *low)}, mask);
  const Expr a = load(type, *low), c = load(type, second);
  for (int l = 0; l < lanes; ++l) mask[l] = index[l] < *low + wide ? index[l] - *low : wide + index[l] - second;
  return builder_.shuffle({a, c}, mask);
}

// Vectors of `run` bytes, joined.
Expr Window::runs(const std::vector<int64_t>& index, int run) {
  if (std::ssize(index) == run) return load({Scalar::u8, run}, index[0]);
  const std::ptrdiff_t half = index.size() / 2;
  const Expr a = runs({index.begin(), index.begin() + half}, run);
  const Expr c = runs({index.begin() + half, index.end()}, run);
  return builder_.concat(a, c);
}

Expr Window::word(const std::array<int64_t, 4>& bytes, bool aligned, const machine::Machine& m) {
  const VType u32{Scalar::u32, 1};
  const bool beside = bytes[1] == bytes[0] + 1 && bytes[2] == bytes[0] + 2 && bytes[3] == bytes[0] + 3;
  const auto [low, high] = std::minmax_element(bytes.begin(), bytes.end());
  const auto load_word = [&](int64_t number) { return load(u32, number * 4, 4); };
  if (aligned && beside && bytes[0] % 4 == 0) return load_word(bytes[0] / 4);
  const bool by_nibbles = m.find_row(kPermute) != nullptr;
  if (aligned && (by_nibbles || m.find_row(kBytePermute)) && (*high / 4 + 1) * 4 <= size_ && *low >= 0) {
    std::vector<int64_t> words;
    for (const int64_t at : bytes)
      if (std::find(words.begin(), words.end(), at / 4) == words.end()) words.push_back(at / 4);
    Expr all = load_word(words[0]);
    for (size_t w = 1; w < std::max<size_t>(words.size(), 2); ++w) {
      int64_t choice = 0;
      for (size_t i = 0; i < 4; ++i) {
        const size_t of = std::find(words.begin(), words.end(), bytes[i] / 4) - words.begin();
        const int64_t inside = bytes[i] % 4;
        const int64_t from = of == w ? 4 + inside : of < w && w > 1 ? static_cast<int64_t>(i) : of == 0 ? inside : 0;
        choice |= from << ((by_nibbles ? 4 : 8) * i);
      }
      const Expr with = w < words.size() ? load_word(words[w]) : all;
      all = builder_.inst(by_nibbles ? kPermute : kBytePermute, u32, {all, with, builder_.integer(choice, u32)});
    }
    return all;
  }
  if (beside) return load(u32, bytes[0]);
  return bits_as(builder_, this->bytes({bytes.begin(), bytes.end()}), u32);
}

Expr Window::bits(int64_t bit, int bits) {
  const Scalar result = bits > 32 ? Scalar::u64 : Scalar::u32;
  int64_t byte = bit / 8;
  int64_t count = (bit + bits + 7) / 8 - byte;
  Expr word;
  int64_t wide = std::bit_ceil(static_cast<uint64_t>(count));
  if (wide <= 8 && wide <= size_) {
    byte = std::min(byte, size_ - wide);
    word = load({unsigned_of(wide * 8), 1}, byte);
    if (wide < 4) word = cast(word, Scalar::u32);
  } else {
    LUMEN_CHECK(count <= 9, "{} bits at {}", bits, bit);
    for (int64_t k = 0; k < std::min<int64_t>(count, 8); ++k) {
      const Expr one = cast(load({Scalar::u8, 1}, byte + k), Scalar::u64);
      join(word, one << (8 * k));
    }
    wide = 8;
  }
  const int64_t shift = bit - byte * 8;
  if (shift != 0) word = word >> shift;
  if (count > 8) {
    const Expr ninth = cast(load({Scalar::u8, 1}, byte + 8), Scalar::u64);
    word = word | (ninth << (64 - shift));
  }
  if (bits < 64 && shift + bits != wide * 8) word = word & static_cast<int64_t>(low_mask(bits));
  return cast(word, result);
}

namespace {

// Every lane's k-th part; a lane with fewer parts repeats its first with no bits.
std::vector<CodePart> parts_at(const std::vector<std::vector<CodePart>>& parts, size_t k) {
  std::vector<CodePart> out;
  for (const auto& p : parts) out.push_back(k < p.size() ? p[k] : CodePart{p[0].bit, 0, 0});
  return out;
}

// At least `bits` bits from a bit on, with the rest of the word: words are loaded once for all users of a part.
Expr bits_of_word(Window& window, int64_t bit, int bits) {
  const int inside = 32 - bit % 8;
  return window.bits(bit, bits <= inside && bit / 8 + 4 <= window.size() ? inside : bits);
}

// Spreads four codes of a word that are equally far apart into its bytes: two halves first, then two bytes of each. No
// value for others.
Expr spread_word(Window& window, const CodePart* part) {
  const int64_t step = part[1].bit - part[0].bit;
  if (step <= 0 || step >= 8 || part[0].value_bit + part[0].bits > 8) return {};
  for (int l = 1; l < 4; ++l)
    if (part[l].bit != part[0].bit + l * step || part[l].bits != part[0].bits ||
        part[l].value_bit != part[0].value_bit || part[l].bits > step)
      return {};
  const Expr word = bits_of_word(window, part[0].bit, 3 * step + part[0].bits);
  const Expr halves = (word & 0xffff) | (shifted(word, 16 - 2 * step) & 0xffff0000);
  const auto code = static_cast<int64_t>(low_mask(part[0].bits)), both = code | code << 16;
  return shifted((halves & both) | (shifted(halves, 8 - step) & (both << 8)), part[0].value_bit);
}

// The same where registers are words: four lanes share one, whose bytes are shifted into place one by one.
Expr masked_words(Window& window, const std::vector<CodePart>& part) {
  constexpr int kBytes = 4, kWord = 32;
  Builder& b = window.builder();
  const VType u32{Scalar::u32, 1};
  const BufferId words = b.alloc(std::ssize(part), 16);  // read again as bytes
  for (size_t first = 0; first < part.size(); first += kBytes) {
    if (const Expr word = spread_word(window, &part[first]); word.exists()) {
      b.store(words, word, b.i64(first), 4);
      continue;
    }
    int64_t low = part[first].bit, high = low;
    for (size_t l = first; l < first + kBytes; ++l) {
      low = std::min(low, part[l].bit);
      high = std::max(high, part[l].bit + part[l].bits);
    }
    const bool near = high - low <= kWord;
    Expr word = b.integer(0, u32);
    for (size_t l = first; l < first + kBytes; ++l) {
      const CodePart& p = part[l];
      if (p.bits == 0) continue;
      Expr x = near ? bits_of_word(window, low, high - low) : bits_of_word(window, p.bit, p.bits);
      const int64_t to = (l - first) * 8 + p.value_bit, up = to - (near ? p.bit - low : 0);
      const int64_t keep = low_mask(p.bits) << to;
      word = word | (shifted(x, up) & keep);
    }
    b.store(words, word, b.i64(first), 4);
  }
  return b.load(words, {Scalar::u8, static_cast<int>(part.size())}, b.i64(0), 4);
}

// The bits of one part of every lane, in their places of a byte.
Expr byte_parts(Window& window, const std::vector<CodePart>& part, const machine::Machine* m) {
  Builder& b = window.builder();
  const int lanes = part.size();
  const VType bytes{Scalar::u8, lanes};
  std::vector<int64_t> index, net, keep, low_bit, put;
  bool one_bit = true, crosses = false;
  for (const CodePart& p : part) {
    index.push_back(p.bit / 8);
    net.push_back(p.bit % 8 - p.value_bit);
    keep.push_back(static_cast<int64_t>(low_mask(p.bits)) << p.value_bit);
    low_bit.push_back(p.bits == 0 ? 0 : int64_t{1} << (p.bit % 8));
    put.push_back(int64_t{1} << p.value_bit);
    one_bit = one_bit && p.bits <= 1;
    crosses = crosses || p.bit % 8 + p.bits > 8;
  }
  const auto masked = [&](Expr x) {
    if (std::all_of(keep.begin(), keep.end(), [](int64_t k) { return k == 255; })) return x;
    return x & constant_lanes(b, keep, Scalar::u8);
  };
  if (!crosses && std::ranges::count(net, net[0]) == lanes) {
    return masked(shifted(window.bytes(index), -net[0]));
  }
  if (one_bit && !crosses && !(m && m->wave > 1 && lanes % 4 == 0)) {
    const Expr x = window.bytes(index) & b.lanes_integer(low_bit, Scalar::u8);
    return select(x != 0, b.lanes_integer(put, Scalar::u8), b.integer(0, bytes));
  }
  if (m && m->wave > 1 && lanes % 4 == 0) return masked_words(window, part);
  // Eight lanes read eight bytes and take any eight bits of them.
  const std::string row = fmt::format("bits8.u8x{}", lanes);
  if (m && m->find_row(row) && window.size() >= 8) {
    std::vector<int64_t> bytes_of, from;
    bool reaches = true;
    for (int l = 0; l < lanes; l += 8) {
      int64_t first = part[l].bit / 8;
      for (int i = l; i < l + 8; ++i) first = std::min(first, part[i].bit / 8);
      first = std::min(first, window.size() - 8);
      for (int i = l; i < l + 8; ++i) {
        const CodePart& p = part[i];
        const int64_t bit = p.bit - 8 * first;
        reaches = reaches && bit + p.bits <= 64;
        bytes_of.push_back(first + i - l);
        from.push_back((bit - p.value_bit + 64) % 64);
      }
    }
    if (reaches) return masked(b.inst(row, bytes, {b.lanes_integer(from, Scalar::u8), window.bytes(bytes_of)}));
  }
  const Scalar word = crosses ? Scalar::u16 : Scalar::u8;
  Expr x = cast(window.bytes(index), word);
  if (crosses) {
    for (int l = 0; l < lanes; ++l) index[l] = (part[l].bit + std::max(part[l].bits, 1) - 1) / 8;
    const Expr high = cast(window.bytes(index), word);
    x = x | (high << 8);
  }
  std::vector<int64_t> down, up;
  for (const CodePart& p : part) {
    down.push_back(p.bit % 8);
    up.push_back(p.value_bit);
  }
  x = x >> constant_lanes(b, down, word);
  x = cast(x, Scalar::u8);
  if (std::any_of(up.begin(), up.end(), [](int64_t u) { return u != 0; })) x = x << constant_lanes(b, up, Scalar::u8);
  return masked(x);
}

}  // namespace

Expr load_codes(Window& window, const Field& field, const std::vector<FieldPlace>& places, bool as_bytes,
                const machine::Machine* m) {
  Builder& b = window.builder();
  const int bits = field.type.bits;
  LUMEN_CHECK(!as_bytes || bits <= 8, "{} bits as bytes", bits);
  const Scalar wide = as_bytes ? Scalar::u8 : code_type(field.type);
  const bool equal = std::ranges::count(places, places[0]) == std::ssize(places);
  std::vector<std::vector<CodePart>> parts;
  for (size_t l = 0; l < (equal ? 1 : places.size()); ++l) parts.push_back(parts_of(field, places[l]));
  const int lanes = parts.size();

  if (lanes == 1) {
    Expr code;
    for (const CodePart& part : parts[0])
      join(code, shifted(cast(window.bits(part.bit, part.bits), wide), part.value_bit));
    return code;
  }
  if (const auto byte = dense_bytes(parts, bits)) return cast(window.load({unsigned_of(bits), lanes}, *byte), wide);

  size_t most = 0;
  bool whole = bits == 8 || bits == 16 || bits == 32 || bits == 64;
  std::vector<int64_t> first_bytes;
  for (const auto& p : parts) {
    most = std::max(most, p.size());
    whole = whole && p.size() == 1 && p[0].bit % 8 == 0;
    first_bytes.push_back(p[0].bit / 8);
  }
  if (whole && bits > 8) return cast(scattered(window, first_bytes, bits), wide);
  Expr code;
  for (size_t k = 0; k < most; ++k) {
    const std::vector<CodePart> part = parts_at(parts, k);
    if (as_bytes) {
      join(code, byte_parts(window, part, m));
      continue;
    }
    int64_t bytes = 1;
    for (const CodePart& p : part) bytes = std::max(bytes, (p.bit + std::max(p.bits, 1) + 7) / 8 - p.bit / 8);
    const Scalar word = bytes <= 4 ? Scalar::u32 : Scalar::u64;
    Expr x;
    const auto byte = [&](int64_t j) {
      std::vector<int64_t> index(parts.size());
      for (int l = 0; l < lanes; ++l) {
        const int64_t last = (part[l].bit + std::max(part[l].bits, 1) + 7) / 8 - 1;  // never past the part's own bytes
        index[l] = std::min(part[l].bit / 8 + j, last);
      }
      return cast(window.bytes(index), word);
    };
    for (int64_t j = 0; j < std::min<int64_t>(bytes, 8); ++j) {
      join(x, shifted(byte(j), 8 * j));
    }
    std::vector<int64_t> shift(parts.size()), left(parts.size()), mask(parts.size()), up(parts.size());
    bool shifts = false, ups = false, masks = false;
    for (int l = 0; l < lanes; ++l) {
      shift[l] = part[l].bit % 8;
      left[l] = 64 - shift[l];
      mask[l] = low_mask(part[l].bits);
      up[l] = part[l].value_bit;
      shifts = shifts || shift[l] != 0;
      ups = ups || up[l] != 0;
      masks = masks || shift[l] + part[l].bits < 8 * bytes;
    }
    if (shifts) x = x >> constant_lanes(b, shift, word);
    // A ninth byte fills what was shifted in; where a lane's code ends before it, the mask clears it.
    if (bytes > 8) x = x | (byte(8) << constant_lanes(b, left, word));
    if (masks) x = x & constant_lanes(b, mask, word);
    x = cast(x, wide);
    if (ups) x = x << constant_lanes(b, up, wide);
    join(code, x);
  }
  return code;
}

namespace {

bool is_ieee(const FieldType& t, int exponent, int mantissa) {
  return t.is_float && t.has_sign && t.exponent_bits == exponent && t.mantissa_bits == mantissa &&
         t.bias == (1 << (exponent - 1)) - 1 && t.special == FieldType::Special::ieee;
}

}  // namespace

std::optional<machine::FloatCode> spelling_of(const FieldType& t) {
  using Special = machine::FloatCode::Special;
  const auto c = machine::code_of(t);
  if (!c || c->special == Special::none) return std::nullopt;
  const int bias = (1 << (c->exponent - 1)) - (c->special == Special::negative_zero ? 0 : 1);
  return c->bias == bias ? c : std::nullopt;
}

bool is_half(const FieldType& t) {
  return is_ieee(t, 5, 10);
}

namespace {

// Result of the machine's conversion of codes: f32, or f16, which is exact, too; nullopt if it has none.
std::optional<Scalar> converted_to(const FieldType& type, int lanes, const machine::Machine& m) {
  const auto code = spelling_of(type);
  for (const Scalar to : {Scalar::f32, Scalar::f16})
    if (code && m.find_row(machine::conversion_name(*code, to, lanes))) return to;
  return std::nullopt;
}

}  // namespace

bool converts_codes(const FieldType& type, int lanes, const machine::Machine& m) {
  return converted_to(type, lanes, m).has_value();
}

Expr convert_codes(Builder& b, const FieldType& type, Expr codes, const machine::Machine& m) {
  const int lanes = b.type(codes).lanes;
  const std::optional<Scalar> to = converted_to(type, lanes, m);
  if (!to) return {};
  const Expr numbers = b.inst(machine::conversion_name(*spelling_of(type), *to, lanes), {*to, lanes}, {codes});
  return *to == Scalar::f32 ? numbers : cast(numbers, Scalar::f32);
}

Expr load_field(Window& window, const Field& field, const std::vector<FieldPlace>& places, const machine::Machine* m) {
  return decode_codes(window.builder(), field.type, load_codes(window, field, places), m);
}

namespace {

// Floats that f16 holds up to a power of two: moves their bits into place and uses the conversion of f16 to f32, which
// machines have and which handles subnormals.
bool fits_half(const FieldType& t) {
  if (!t.has_sign || t.mantissa_bits > 10 || t.mantissa_bits == 0) return false;
  return t.exponent_bits <= 4 && t.special != FieldType::Special::ieee && t.special != FieldType::Special::scale;
}

Expr decode_by_half(Builder& b, const FieldType& t, Expr codes, const machine::Machine* m) {
  const int lanes = b.type(codes).lanes, size = t.exponent_bits + t.mantissa_bits;
  const VType u16{Scalar::u16, lanes};
  const auto u = [&](int64_t x) { return b.integer(x, u16); };
  const int64_t top = low_mask(size);
  const Expr code = cast(codes, Scalar::u16);
  const Expr magnitude = code & u(top);
  const Expr sign = (code << u(15 - size)) & u(0x8000);
  const bool carries = t.special == FieldType::Special::fn && m && m->wave > 1;
  Expr held = magnitude;
  if (carries) {
    // Comparisons take one instruction per lane, additions do not: all ones carry, into f16's additional exponent bits.
    const Expr carry = (magnitude + u(1)) & u(top + 1);
    for (int bit = t.exponent_bits; bit < 5; ++bit) held = held | shifted(carry, bit - t.exponent_bits);
  }
  Expr bits = held << u(10 - t.mantissa_bits);
  if (t.special == FieldType::Special::fn && !carries) bits = select(magnitude == u(top), u(0x7e00), bits);
  bits = bits | sign;
  if (t.special == FieldType::Special::fnuz) bits = select(code == u(top + 1), u(0x7e00), bits);
  const Expr half = cast(bitcast(bits, Scalar::f16), Scalar::f32);
  return half * std::ldexp(1.0, 15 - t.bias);
}

Expr decode_small_float(Builder& b, const FieldType& t, Expr codes) {
  const int lanes = b.type(codes).lanes;
  const VType u32{Scalar::u32, lanes}, f32{Scalar::f32, lanes};
  const auto u = [&](int64_t x) { return b.integer(x, u32); };
  const auto as_float = [&](Expr x) { return bitcast(x, Scalar::f32); };
  const int e_bits = t.exponent_bits, m_bits = t.mantissa_bits;
  LUMEN_CHECK(e_bits <= 8 && m_bits <= 23 && m_bits + e_bits < 32, "a float of {} + {} bits", e_bits, m_bits);
  const int64_t magnitude_mask = low_mask(e_bits + m_bits);
  const Expr magnitude = t.has_sign ? codes & u(magnitude_mask) : codes;
  const int64_t rebias = 127 - t.bias;
  // Fields whose exponents f32 cannot hold directly go through ldexp, which is exact or correctly rounded.
  const int64_t top = rebias + low_mask(e_bits);
  const bool fits =
      rebias + 1 >= 1 && top <= 255 &&
      (t.special != FieldType::Special::ieee ? top <= 254 || t.special == FieldType::Special::scale : true);
  Expr bits;
  if (t.special == FieldType::Special::scale && m_bits == 0) {
    if (rebias >= 0 && top <= 255) {
      bits = (magnitude + u(rebias)) << u(23);
      if (rebias == 0) bits = max(bits, u(0x00400000));
    } else {
      const Expr e = cast(magnitude, Scalar::i32) + -t.bias;
      bits = bitcast(ldexp(b.real(1, f32), e), Scalar::u32);
    }
  } else {
    const int64_t one = int64_t{1} << m_bits;
    const Expr is_normal = u(one) <= magnitude;
    const Expr mantissa = cast(cast(magnitude & u(one - 1), Scalar::i32), Scalar::f32);
    Expr small, normal;
    if (fits && 1 - t.bias - m_bits >= -126) {
      small = mantissa * std::ldexp(1.0, 1 - t.bias - m_bits);
      normal = as_float((magnitude << u(23 - m_bits)) + u(rebias << 23));
    } else {
      small = ldexp(mantissa, b.integer(1 - t.bias - m_bits, {Scalar::i32, lanes}));
      const Expr e = cast(magnitude >> u(m_bits), Scalar::i32);
      normal = ldexp(mantissa + static_cast<double>(one), e + (-t.bias - m_bits));
    }
    const Expr value = select(is_normal, normal, small);
    bits = bitcast(value, Scalar::u32);
    if (t.special == FieldType::Special::ieee) {
      const int64_t infinity = static_cast<int64_t>(low_mask(e_bits)) << m_bits;
      const Expr special = ((magnitude & u(one - 1)) << u(23 - m_bits)) | u(0x7f800000);
      bits = select(u(infinity) <= magnitude, special, bits);
    }
  }
  const bool all_ones_nan = t.special == FieldType::Special::fn || t.special == FieldType::Special::scale;
  if (all_ones_nan) bits = select(magnitude == u(magnitude_mask), u(0x7fc00000), bits);
  if (t.has_sign) {
    const int sign = e_bits + m_bits;
    const Expr raised = (codes >> u(sign)) << u(31);
    if (t.special == FieldType::Special::fnuz) {
      const Expr is_nan = codes == u(int64_t{1} << sign);
      bits = select(is_nan, u(0x7fc00000), bits | raised);
    } else {
      bits = bits | raised;
    }
  }
  return as_float(bits);
}

}  // namespace

Expr decode_codes(Builder& b, const FieldType& t, Expr codes, const machine::Machine* m) {
  const int lanes = b.type(codes).lanes;
  if (!t.is_float) {
    const Scalar to = t.register_type();
    if (!t.is_signed) return cast(codes, to);
    const int width = t.bits > 32 ? 64 : 32;
    const Scalar wide = width == 64 ? Scalar::i64 : Scalar::i32;
    Expr x = bitcast(codes, wide);
    if (t.bits < width) {
      const Expr shift = b.integer(width - t.bits, {wide, lanes});
      x = (x << shift) >> shift;
    }
    return cast(x, to);
  }
  if (is_ieee(t, 8, 23)) return bitcast(codes, Scalar::f32);
  if (is_half(t)) return cast(bitcast(cast(codes, Scalar::u16), Scalar::f16), Scalar::f32);
  if (is_ieee(t, 8, 7)) return bitcast(codes << 16, Scalar::f32);
  return fits_half(t) ? decode_by_half(b, t, codes, m) : decode_small_float(b, t, codes);
}

}  // namespace lumen::synth
