#include "model/arch/checkpoint/packed/same_numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "number/facts/straight.h"

namespace lumen::model::arch {
namespace {

constexpr int kMostCodeBits = 8;
constexpr size_t kSamples = 40;

ScalarValue element(int64_t i) {
  ScalarValue v;
  v.integer = i;
  return v;
}

// Whether an element's position matters besides its entries.
bool depends_on_place(const RoutineExpr& e) {
  if (e.kind == RoutineExpr::Kind::variable) return true;
  if (e.kind == RoutineExpr::Kind::field) return false;
  return std::any_of(e.args.begin(), e.args.end(), depends_on_place);
}

// Sample values of a field: typical ones, and random ones over the type's range.
std::vector<uint64_t> samples_of(const FieldType& t) {
  std::vector<uint64_t> out;
  uint64_t state = 0x9e3779b97f4a7c15;
  const uint64_t mask = t.bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << t.bits) - 1;
  const auto add = [&](uint64_t bits) {
    if (std::isfinite(field_decode(t, bits & mask))) out.push_back(bits & mask);
  };
  for (const double v : {1.0, 0.03125, 0.0123, 3.0, -0.7})
    if (!t.is_float || v > 0 || t.has_sign) add(field_encode(t, t.is_float ? v : std::round(v * 5)));
  while (out.size() < kSamples) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    add(state >> 11);
  }
  return out;
}

// A format's decoder as a function of an element's code and the other fields.
class Decoder {
 public:
  Decoder(const Format& f, const FieldUse& use, const RoutineExpr& e)
      : f_(f), use_(use), e_(e), values_(f.fields.size()) {}

  void set(int field, uint64_t bits) { values_[field] = field_decode(f_.fields[field].type, bits); }
  float at(uint64_t code) {
    set(use_.code, code);
    return static_cast<float>(
        evaluate_expression(f_, e_, {element(0)}, [&](int slot, int64_t) { return values_[slot]; }).real);
  }

 private:
  const Format& f_;
  const FieldUse& use_;
  const RoutineExpr& e_;
  std::vector<double> values_;
};

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Searches for an assignment of the first format's fields to the second's.
class Search {
 public:
  Search(const Format& first, const Format& second, const FieldUse& a, const FieldUse& b, const RoutineExpr& ea,
         const RoutineExpr& eb)
      : first_(first), second_(second), a_(a), b_(b), from_(first, a, ea), to_(second, b, eb) {
    out_.fields.resize(second.fields.size());
    out_.fields[b.code].field = a.code;
    for (size_t i = 0; i < first.fields.size(); ++i) samples_.push_back(samples_of(first.fields[i].type));
  }

  std::optional<SameNumbers> run() { return assign(0) ? std::optional(out_) : std::nullopt; }

 private:
  bool is_read(const FieldUse& use, size_t field) const {
    return std::cmp_not_equal(field, use.code) && use.run[field] > 0;
  }

  // Fields of the second from `next` on.
  bool assign(size_t next) {
    while (next < second_.fields.size() && !is_read(b_, next)) ++next;
    if (next == second_.fields.size()) return all_used() && find_codes();
    const FieldType& type = second_.fields[next].type;
    for (size_t i = 0; i < first_.fields.size(); ++i) {
      if (!is_read(a_, i) || used_.contains(i) || !fits(i, next)) continue;
      used_.insert(i);
      out_.fields[next].field = i;
      out_.fields[next].constant = 0;
      if (assign(next + 1)) return true;
      used_.erase(i);
    }
    out_.fields[next] = {-1, 0};
    if (type.is_float) {
      out_.fields[next].constant = field_encode(type, 1);
      return assign(next + 1);
    }
    if (type.bits > kMostCodeBits) return false;
    for (uint64_t c = 0; c < uint64_t{1} << type.bits; ++c) {
      out_.fields[next] = {-1, c};
      if (assign(next + 1)) return true;
    }
    return false;
  }

  bool all_used() const {
    for (size_t i = 0; i < first_.fields.size(); ++i)
      if (is_read(a_, i) && !used_.contains(i)) return false;
    return true;
  }

  // Whether the first field's values are values of the other, and cover at least as many elements.
  bool fits(size_t from, size_t to) const {
    const Field &f = first_.fields[from], &t = second_.fields[to];
    for (const uint64_t bits : samples_[from])
      if (!in_type(f.type, t.type, bits)) return false;
    if (f.level == Level::tensor) return true;
    if (t.level == Level::tensor) return false;
    if (f.level == Level::tile)
      return t.level == Level::tile && first_.tile_rows == second_.tile_rows &&
             first_.tile_columns == second_.tile_columns;
    if (t.level == Level::tile) return false;
    if (f.level == Level::row) return true;
    return t.level == Level::block && a_.run[from] % b_.run[to] == 0;
  }

  // One code of the second for each of the first, valid for all samples.
  bool find_codes() {
    const uint64_t codes = uint64_t{1} << first_.fields[a_.code].type.bits,
                   theirs = uint64_t{1} << second_.fields[b_.code].type.bits;
    std::vector<std::vector<uint16_t>> possible(codes);
    for (size_t k = 0; k < kSamples; ++k) {
      set_fields(k);
      std::vector<float> values(theirs);
      for (uint64_t c = 0; c < theirs; ++c) values[c] = to_.at(c);
      for (uint64_t c = 0; c < codes; ++c) {
        const float v = from_.at(c);
        std::vector<uint16_t>& left = possible[c];
        if (k == 0)
          for (uint64_t t = 0; t < theirs; ++t) left.push_back(t);
        std::erase_if(left, [&](uint16_t t) { return !(values[t] == v || (std::isnan(v) && std::isnan(values[t]))); });
        // Two zeros: prefer the one with the same sign.
        if (std::any_of(left.begin(), left.end(), [&](uint16_t t) { return same_bits(values[t], v); }))
          std::erase_if(left, [&](uint16_t t) { return !same_bits(values[t], v); });
        if (left.empty()) return false;
      }
    }
    out_.codes.clear();
    for (const auto& left : possible) out_.codes.push_back(left.front());
    return true;
  }

  void set_fields(size_t sample) {
    for (size_t i = 0; i < first_.fields.size(); ++i)
      if (is_read(a_, i)) from_.set(i, samples_[i][(sample * (2 * i + 1)) % kSamples]);
    for (size_t t = 0; t < second_.fields.size(); ++t) {
      if (!is_read(b_, t)) continue;
      const SameNumbers::Source& s = out_.fields[t];
      if (s.field < 0) {
        to_.set(t, s.constant);
        continue;
      }
      const size_t i = s.field;
      to_.set(t,
              *in_type(first_.fields[i].type, second_.fields[t].type, samples_[i][(sample * (2 * i + 1)) % kSamples]));
    }
  }

  const Format &first_, &second_;
  const FieldUse &a_, &b_;
  Decoder from_, to_;
  std::vector<std::vector<uint64_t>> samples_;  // by field of the first
  std::set<size_t> used_;
  SameNumbers out_;
};

}  // namespace

std::optional<uint64_t> in_type(const FieldType& from, const FieldType& to, uint64_t bits) {
  if (from == to) return bits;
  if (from.is_float != to.is_float) return std::nullopt;
  const double value = field_decode(from, bits);
  const uint64_t out = field_encode(to, value);
  const double back = field_decode(to, out);
  if (back != value && !(std::isnan(back) && std::isnan(value))) return std::nullopt;
  if (std::signbit(back) != std::signbit(value)) return std::nullopt;
  return out;
}

std::optional<FieldUse> field_use(const Format& f) {
  const std::optional<RoutineExpr> e = straight_line(f.decode);
  if (!e || depends_on_place(*e)) return std::nullopt;
  FieldUse use;
  use.entry.assign(f.fields.size(), std::vector<int64_t>(f.block, -1));
  bool is_one = true;
  for (int64_t i = 0; i < f.block; ++i) {
    (void)evaluate_expression(f, *e, {element(i)}, [&](int slot, int64_t index) {
      int64_t& at = use.entry[slot][i];
      is_one = is_one && (at < 0 || at == index);
      at = index;
      return 1.0;
    });
  }
  if (!is_one) return std::nullopt;
  for (size_t field = 0; field < f.fields.size(); ++field) {
    std::vector<int64_t>& entry = use.entry[field];
    int64_t run = 0;
    if (entry[0] >= 0) {
      run = 1;
      while (run < f.block && entry[run] == entry[0]) ++run;
      for (int64_t i = 0; i < f.block; ++i)
        if (entry[i] != entry[i / run * run] || (i % run == 0 && i > 0 && entry[i] == entry[i - 1]))
          return std::nullopt;
    } else {
      for (const int64_t at : entry)
        if (at >= 0) return std::nullopt;
      entry.clear();
    }
    use.run.push_back(run);
    const bool each = run == 1 && f.fields[field].level == Level::block;
    if (!each) continue;
    if (use.code >= 0) return std::nullopt;
    use.code = field;
  }
  if (use.code < 0 || f.fields[use.code].type.bits > kMostCodeBits) return std::nullopt;
  return use;
}

std::optional<SameNumbers> same_numbers(const Format& first, const Format& second) {
  const auto a = field_use(first), b = field_use(second);
  if (!a || !b) return std::nullopt;
  const auto ea = straight_line(first.decode), eb = straight_line(second.decode);
  return Search(first, second, *a, *b, *ea, *eb).run();
}

}  // namespace lumen::model::arch
