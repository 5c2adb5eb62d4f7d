// See operand_text.h. Constants: the instruction set documents, "Constant operands" and "Literal constants".
#include "tests/amd/decode/operand_text.h"

#include <bit>
#include <charconv>
#include <cstdlib>

#include "tests/amd/fault.h"
#include "tests/amd/number/float_code.h"

namespace lumen::amd {
namespace {

bool take(std::string_view* text, std::string_view head) {
  if (!text->starts_with(head)) return false;
  text->remove_prefix(head.size());
  return true;
}

bool digits(std::string_view text, int* number) {
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return wrong == std::errc() && end == text.data() + text.size();
}

// "7" or "[4:7]".
bool registers(std::string_view text, int base, int limit, Operand* o) {
  int first = 0, last = 0;
  if (take(&text, "[")) {
    if (!text.ends_with("]")) return false;
    text.remove_suffix(1);
    const size_t colon = text.find(':');
    if (!digits(text.substr(0, colon), &first)) return false;
    last = first;
    if (colon != std::string_view::npos && !digits(text.substr(colon + 1), &last)) return false;
  } else {
    if (!digits(text, &first)) return false;
    last = first;
  }
  if (first < 0 || last < first || last >= limit) return false;
  o->first = static_cast<uint16_t>(base + first);
  o->words = static_cast<uint8_t>(last - first + 1);
  return true;
}

struct Named {
  std::string_view name;
  uint16_t first;
  uint8_t words;
};
constexpr Named kNamed[] = {{"vcc", kVcc, 2},
                            {"vcc_lo", kVcc, 1},
                            {"vcc_hi", kVcc + 1, 1},
                            {"exec", kExec, 2},
                            {"exec_lo", kExec, 1},
                            {"exec_hi", kExec + 1, 1},
                            {"m0", kM0, 1},
                            {"null", kNull, 1},
                            {"scc", kScc, 1},
                            {"src_scc", kScc, 1},
                            {"src_vccz", kVccz, 1},
                            {"src_execz", kExecz, 1},
                            {"vccz", kVccz, 1},
                            {"execz", kExecz, 1},
                            {"flat_scratch", kFlatScratch, 2},
                            {"flat_scratch_lo", kFlatScratch, 1},
                            {"flat_scratch_hi", kFlatScratch + 1, 1},
                            {"xnack_mask", kXnack, 2}};

uint64_t constant_of(std::string_view text, Type type) {
  int64_t n = 0;
  const bool literal = text.find("0x") != std::string_view::npos;
  if (parse_number(text, &n)) {
    switch (type) {
      case Type::b16:
      case Type::f16:
      case Type::bf16:
        return static_cast<uint16_t>(n);
      case Type::f64:
        return literal ? static_cast<uint64_t>(n) << 32 : static_cast<uint64_t>(n);
      case Type::i64:
        return literal ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(n)))
                       : static_cast<uint64_t>(n);
      case Type::b64:
        return static_cast<uint64_t>(n);
      default:
        return static_cast<uint32_t>(n);
    }
  }
  const std::string whole(text);
  const double x = std::strtod(whole.c_str(), nullptr);
  switch (type) {
    case Type::b16:
    case Type::bf16:
      fault("a constant {} of 16 bits", text);
    case Type::f16:
    case Type::pk16:
    case Type::pkf16:
      return half_bits(x);
    case Type::b64:
    case Type::i64:
    case Type::f64:
      return std::bit_cast<uint64_t>(x);
    default:
      return std::bit_cast<uint32_t>(std::strtof(whole.c_str(), nullptr));
  }
}

bool is_constant(std::string_view text) {
  if (text.starts_with("-")) text.remove_prefix(1);
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}

}  // namespace

bool parse_number(std::string_view text, int64_t* number) {
  const bool negative = take(&text, "-");
  const int base = take(&text, "0x") ? 16 : 10;
  uint64_t n = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), n, base);
  if (wrong != std::errc() || end != text.data() + text.size()) return false;
  *number = negative ? -static_cast<int64_t>(n) : static_cast<int64_t>(n);
  return true;
}

Operand parse_operand(std::string_view text, Type type) {
  Operand o;
  o.type = type;
  if (!is_constant(text) && take(&text, "-")) o.negative = true;
  if (text.starts_with("lit(") && text.ends_with(")")) text = text.substr(4, text.size() - 5);
  if (text.starts_with("neg(") && text.ends_with(")")) text = text.substr(4, text.size() - 5), o.negative = true;
  if (text.starts_with("|") && text.ends_with("|") && text.size() > 2)
    text = text.substr(1, text.size() - 2), o.absolute = true;
  if (text.starts_with("sext(") && text.ends_with(")")) text = text.substr(5, text.size() - 6), o.extend = true;
  if (text.ends_with(".l")) text.remove_suffix(2), o.half = 1;
  if (text.ends_with(".h")) text.remove_suffix(2), o.half = 2;
  if (is_constant(text)) {
    o.kind = Operand::Kind::constant;
    o.bits = constant_of(text, type);
    return o;
  }
  for (const Named& n : kNamed)
    if (text == n.name) {
      o.kind = Operand::Kind::scalar, o.first = n.first, o.words = n.words;
      return o;
    }
  std::string_view rest = text;
  if (take(&rest, "ttmp") && registers(rest, kTtmp, 16, &o)) o.kind = Operand::Kind::scalar;
  rest = text;
  if (take(&rest, "v") && registers(rest, 0, 256, &o)) o.kind = Operand::Kind::vector;
  rest = text;
  if (take(&rest, "a") && registers(rest, kAccumulation, 256, &o)) o.kind = Operand::Kind::vector;
  rest = text;
  if (take(&rest, "s") && registers(rest, 0, 106, &o)) o.kind = Operand::Kind::scalar;
  return o;
}

}  // namespace lumen::amd
