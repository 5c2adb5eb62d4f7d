// See stream_codes.h.
#include "kernel/synth/order/stream_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"
#include "kernel/synth/unpack/bits_as.h"
#include "number/facts/typing.h"

namespace lumen::synth {

namespace {

using Four = std::array<int64_t, 4>;

constexpr int kByte = 8, kWord = 4, kTableBytes = 16, kSignBit = 128;
constexpr int kDigitBits = 7;  // of a byte, whose highest bit selects
constexpr int kMostDigits = 2;
constexpr int64_t kLargestSum = int64_t{1} << 30;

// A part of one element's code, inside a byte.
struct Bits {
  int64_t byte = 0;
  int first = 0, count = 0, value_bit = 0;
};

std::vector<Bits> bits_of(const Format& f, const Field& field, int64_t element) {
  std::vector<Bits> out;
  for (const CodePart& part : parts_of(field, place_in_blocks(f, element)))
    for (int done = 0; done < part.bits; done += out.back().count) {
      const int64_t bit = part.bit + done;
      const int first = bit % kByte;
      out.push_back({bit / kByte, first, std::min(part.bits - done, kByte - first), part.value_bit + done});
    }
  return out;
}

// The bit positions, without the bytes.
std::vector<std::array<int, 3>> stance(const std::vector<Bits>& bits) {
  std::vector<std::array<int, 3>> out;
  for (const Bits& b : bits) out.push_back({b.first, b.count, b.value_bit});
  return out;
}

// Groups of four elements with equal bit positions, the same in every aligned run of `share`; nullopt if elements are
// left.
std::optional<std::vector<Four>> fours(const std::vector<std::vector<Bits>>& bits, int64_t share) {
  std::vector<Four> out, pattern;
  for (int64_t base = 0; base < std::ssize(bits); base += share) {
    std::map<std::vector<std::array<int, 3>>, std::vector<int64_t>> alike;
    for (int64_t e = base; e < base + share; ++e) alike[stance(bits[e])].push_back(e);
    std::vector<Four> here;
    for (const auto& [places, elements] : alike) {
      if (elements.size() % 4 != 0) return std::nullopt;
      for (size_t i = 0; i < elements.size(); i += 4)
        here.push_back({elements[i], elements[i + 1], elements[i + 2], elements[i + 3]});
    }
    std::ranges::sort(here);
    std::vector<Four> relative = here;
    for (Four& four : relative)
      for (int64_t& e : four) e -= base;
    if (base == 0) pattern = relative;
    if (relative != pattern) return std::nullopt;
    out.insert(out.end(), here.begin(), here.end());
  }
  return out;
}

// The parts of four elements with equal bit positions.
std::vector<StreamCodes::Part> parts_of(const std::vector<std::vector<Bits>>& bits, const Four& elements) {
  std::vector<StreamCodes::Part> out;
  for (const Bits& b : bits[elements[0]])
    out.push_back({{}, ((1 << b.count) - 1) << b.first, 0, 0, b.value_bit - b.first});
  for (size_t i = 0; i < elements.size(); ++i)
    for (size_t k = 0; k < out.size(); ++k) out[k].bytes[i] = bits[elements[i]][k].byte;
  return out;
}

std::vector<std::vector<Bits>> bits_of_unit(const Format& f, const Field& field, int64_t unit) {
  std::vector<std::vector<Bits>> out;
  for (int64_t e = 0; e < unit; ++e) out.push_back(bits_of(f, field, e));
  return out;
}

std::optional<std::vector<Four>> fours_of_group(const std::vector<std::vector<Bits>>& bits, int64_t group) {
  for (int64_t share = 4; share <= group; share *= 2)
    if (group % share == 0)
      if (auto found = fours(bits, share)) return found;
  return std::nullopt;
}

// Codes of four bits, halves of bytes, whose numbers are bytes of a table.
std::optional<StreamCodes> stream_of_table(const Format& f, const IntegerDot& d, int64_t unit,
                                           const machine::Machine& m) {
  if (d.table.size() != 16 || d.code_field < 0 || !m.find_row(kBytePermute)) return std::nullopt;
  const std::vector<std::vector<Bits>> bits = bits_of_unit(f, f.fields[d.code_field], unit);
  for (const std::vector<Bits>& code : bits)
    if (code.size() != 1 || code[0].count != 4 || code[0].first % 4 != 0) return std::nullopt;
  const auto found = fours_of_group(bits, d.fine);
  if (!found) return std::nullopt;
  StreamCodes out;
  out.table = d.table;
  out.bias = d.bias;
  for (const Four& four : *found) {
    StreamCodes::Run run{four, parts_of(bits, four)};
    run.parts[0].down = bits[four[0]][0].first;
    run.parts[0].exponent = 0;
    out.runs.push_back(std::move(run));
  }
  return out;
}

const machine::DotRow* dot_of_bytes(const machine::Machine& m) {
  for (const machine::DotRow& row : m.dots)
    if (row.a == Scalar::u8 && row.b == Scalar::i8 && row.acc == Scalar::i32 && row.k == kWord) return &row;
  return nullptr;
}

// Finds digits such that step * (digits + bias) is each number, or nearly.
bool find_digits(const std::vector<double>& values, bool exact, StreamCodes& out) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (!std::isfinite(*low) || !std::isfinite(*high) || *low == *high) return false;
  const auto spell = [&](double step, int digits) {
    out.step = step;
    out.bias = std::nearbyint(*low / step);
    out.digits.assign(static_cast<size_t>(digits), {});
    out.rounds = false;
    for (size_t code = 0; code < values.size(); ++code) {
      const double number = std::nearbyint(values[code] / step) - out.bias;
      if (number < 0 || number >= std::ldexp(1.0, digits * kDigitBits)) return false;
      out.rounds = out.rounds || step * (number + out.bias) != values[code];
      auto left = static_cast<int64_t>(number);
      for (int digit = digits; digit-- > 0; left >>= kDigitBits)
        out.digits[digit][code] = static_cast<uint8_t>(left & ((1 << kDigitBits) - 1));
    }
    return true;
  };
  for (int digits = 1; digits <= kMostDigits; ++digits)
    for (int shift = 0; shift <= 16; ++shift)
      if (spell(std::ldexp(1.0, -shift), digits) && !out.rounds) return true;
  return !exact && spell((*high - *low) / (std::ldexp(1.0, kMostDigits * kDigitBits) - 2), kMostDigits);
}

}  // namespace

LaneOrder StreamCodes::order(int64_t unit) const {
  LaneOrder out;
  out.elements = unit;
  for (const Run& run : runs) out.vectors.emplace_back(run.elements.begin(), run.elements.end());
  return out;
}

std::optional<StreamCodes> stream_codes(const Format& f, const IntegerDot& d, int64_t unit, const machine::Machine& m) {
  if (d.row.a != Scalar::u8 && d.row.a != Scalar::i8) return std::nullopt;
  if (!d.table.empty()) return stream_of_table(f, d, unit, m);
  if (!d.form_has_q) return std::nullopt;
  const auto by_code = values_by_code(f, d.form.q);
  if (!by_code) return std::nullopt;
  const auto flipped = counting(by_code->values);
  const Field& field = f.fields[by_code->field];
  if (!flipped || field.type.bits >= kByte) return std::nullopt;
  const std::vector<std::vector<Bits>> bits = bits_of_unit(f, field, unit);
  const auto found = fours_of_group(bits, d.fine);
  if (!found) return std::nullopt;
  StreamCodes out;
  out.bias = by_code->values[*flipped];
  for (const Four& four : *found) {
    StreamCodes::Run run{four, parts_of(bits, four)};
    for (StreamCodes::Part& part : run.parts) {
      part.flip = (part.exponent < 0 ? *flipped << -part.exponent : *flipped >> part.exponent) & part.mask;
      // A signed byte's highest bit is negative: a code that has it is shifted down to the lowest bits.
      if (d.row.a == Scalar::i8 && part.mask >= kSignBit) {
        part.down = std::countr_zero(static_cast<unsigned>(part.mask));
        part.exponent += part.down;
      }
      out.least = std::min(out.least, part.exponent);
    }
    out.runs.push_back(std::move(run));
  }
  const int64_t largest = (d.form.q_max - d.form.q_min) * 127 * d.fine;
  return largest << -out.least < kLargestSum ? std::optional(std::move(out)) : std::nullopt;
}

std::optional<TableCodes> stream_table(const Format& f, const machine::Machine& m, int64_t columns) {
  const machine::DotRow* const row = dot_of_bytes(m);
  const FormatFacts facts = facts_of(f);
  if (!row || !facts.scaled || !m.find_row(kPermute)) return std::nullopt;
  const auto by_code = values_by_code(f, facts.scaled->value);
  if (!by_code || by_code->values.size() != 16) return std::nullopt;
  if (counting(by_code->values)) return std::nullopt;  // needs no table
  TableCodes out;
  if (!find_digits(by_code->values, false, out.codes)) return std::nullopt;
  IntegerDot& d = out.dot;
  d.form.scale = facts.scaled->scale ? *facts.scaled->scale : read::float_constant(1);
  d.form.offset = facts.scaled->offset;
  d.form_has_q = false;
  d.code_field = by_code->field;
  find_groups(f, columns, facts.scaled->group, d);
  d.row = *row;
  return d.fine % kWord == 0 ? std::optional(std::move(out)) : std::nullopt;
}

bool find_table_runs(const Format& f, const IntegerDot& d, int64_t unit, int field, StreamCodes& codes) {
  std::map<int64_t, std::array<int64_t, 2>> bytes;  // low and high code
  for (int64_t e = 0; e < unit; ++e) {
    const std::vector<Bits> bits = bits_of(f, f.fields[field], e);
    if (bits.size() != 1 || bits[0].count != 4) return false;
    bytes.try_emplace(bits[0].byte, std::array<int64_t, 2>{-1, -1}).first->second[bits[0].first == 0 ? 0 : 1] = e;
  }
  codes.runs.clear();
  for (auto it = bytes.begin(); it != bytes.end(); ++it) {
    const auto first = it++;
    if (it == bytes.end() || it->first != first->first + 1) return false;
    const StreamCodes::Run run{{first->second[0], first->second[1], it->second[0], it->second[1]},
                               {{{first->first, it->first, first->first, it->first}, 255, 0, 0, 0}}};
    for (const int64_t e : run.elements)
      if (e < 0 || e / d.fine != run.elements[0] / d.fine) return false;
    codes.runs.push_back(run);
  }
  // Two adjacent runs are read with one word.
  for (size_t i = 0; i + 1 < codes.runs.size(); i += 2) {
    auto &low = codes.runs[i].parts[0].bytes, &high = codes.runs[i + 1].parts[0].bytes;
    if (high[0] != low[1] + 1) continue;
    low = {low[0], low[1], high[0], high[1]};
    high = {high[0], high[1], low[0], low[1]};
  }
  return true;
}

StreamWords::StreamWords(Builder& b, const machine::Machine& m, const StreamCodes& codes, Scalar type, bool aligned)
    : b_(b), m_(m), codes_(codes), type_(type), aligned_(aligned) {
  for (const StreamCodes::Run& run : codes_.runs)
    for (const StreamCodes::Part& part : run.parts) flips_[part.bytes] |= part.flip;
  if (!codes_.digits.empty()) table_ = b_.alloc(m.wave * table_bytes(codes_), 16, loop::Space::shared);
}

int64_t StreamWords::table_bytes(const StreamCodes& codes) {
  return std::ssize(codes.digits) * kTableBytes;
}

void StreamWords::fill(Expr lane) {
  if (table_ < 0) return;
  b_.branch(lane < m_.wave, [&] {
    const Expr own = b_.lane_id() * table_bytes(codes_);
    for (size_t digit = 0; digit < codes_.digits.size(); ++digit) {
      const auto& table = codes_.digits[digit];
      b_.store(table_, b_.lanes_integer({table.begin(), table.end()}, Scalar::u8),
               own + static_cast<int64_t>(digit) * kTableBytes, kTableBytes);
    }
  });
}

void StreamWords::enter() {
  if (table_ < 0) return;
  entries_.clear();
  const Expr own = b_.lane_id() * table_bytes(codes_);
  for (size_t word = 0; word < codes_.digits.size() * 4; ++word)
    entries_.push_back(b_.load(table_, {Scalar::u32, 1}, own + static_cast<int64_t>(word) * kWord, kWord));
}

Expr StreamWords::four(Expr word) const {
  return bits_as(b_, word, {type_, kWord});
}

std::vector<StreamWords::Term> StreamWords::terms(Unpack& cursor, const StreamCodes::Run& run) {
  const VType word{Scalar::u32, 1};
  std::vector<Term> out;
  if (codes_.digits.empty()) {
    for (const StreamCodes::Part& part : run.parts) {
      Expr x = cursor.window().word(part.bytes, aligned_, m_);
      if (!codes_.table.empty()) {
        out.push_back({four(look_up_halves(b_, codes_.table, x, part.down)), part.exponent});
        continue;
      }
      if (const int flip = flips_.at(part.bytes); flip != 0) x = x ^ (int64_t{flip} * 0x01010101);
      if (part.down != 0) x = x >> part.down;
      if (part.mask != 255) x = x & (int64_t{part.mask >> part.down} * 0x01010101);
      out.push_back({four(x), part.exponent});
    }
    return out;
  }
  // The second of two runs in a word is in its upper half.
  Four bytes = run.parts[0].bytes;
  const bool upper = bytes[2] < bytes[0];
  if (upper) bytes = {bytes[2], bytes[3], bytes[0], bytes[1]};
  Expr low = cursor.window().word(bytes, aligned_, m_);
  Expr high = low ^ 0x88888888;
  if (upper) {
    low = low >> 16;
    high = high >> 16;
  }
  for (size_t digit = 0; digit < codes_.digits.size(); ++digit) {
    const auto& table = codes_.digits[digit];
    const auto part = [&](size_t first) { return entries_[digit * 4 + first / 4]; };
    const int exponent = kDigitBits * (codes_.digits.size() - 1 - digit);
    for (const size_t half : {size_t{0}, size_t{8}}) {
      if (std::all_of(table.begin() + half, table.begin() + half + 8, [](uint8_t x) { return x == 0; })) continue;
      out.push_back({four(b_.inst(kPermute, word, {part(half), part(half + 4), half == 0 ? low : high})), exponent});
    }
  }
  return out;
}

}  // namespace lumen::synth
