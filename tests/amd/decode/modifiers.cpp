#include "tests/amd/decode/modifiers.h"

#include "tests/amd/decode/operand_text.h"

namespace lumen::amd {
namespace {

// "[1,0,1]" as bits, the first one lowest.
bool bit_list(std::string_view text, uint8_t* bits) {
  if (!text.starts_with("[") || !text.ends_with("]")) return false;
  text = text.substr(1, text.size() - 2);
  *bits = 0;
  int n = 0;
  for (const char c : text) {
    if (c == '1') *bits = static_cast<uint8_t>(*bits | 1 << n);
    if (c == ',')
      ++n;
    else if (c != '0' && c != '1')
      return false;
  }
  return true;
}

bool part(std::string_view text, Part* p) {
  constexpr std::string_view kNames[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
  for (int n = 0; n < 7; ++n)
    if (text == kNames[n]) {
      *p = static_cast<Part>(n);
      return true;
    }
  return false;
}

bool sdwa(std::string_view name, std::string_view value, Sdwa* s) {
  if (name == "dst_sel") return part(value, &s->to);
  if (name == "src0_sel") return part(value, &s->from[0]);
  if (name == "src1_sel") return part(value, &s->from[1]);
  if (name != "dst_unused") return false;
  if (value == "UNUSED_PAD")
    s->unused = Sdwa::Unused::pad;
  else if (value == "UNUSED_SEXT")
    s->unused = Sdwa::Unused::sext;
  else if (value == "UNUSED_PRESERVE")
    s->unused = Sdwa::Unused::preserve;
  else
    return false;
  return true;
}

// Lists of lane numbers.
bool lane_list(std::string_view text, uint8_t* to, size_t count) {
  if (!text.starts_with("[") || !text.ends_with("]")) return false;
  text = text.substr(1, text.size() - 2);
  for (size_t n = 0; n < count; ++n) {
    const size_t comma = text.find(',');
    int64_t x = 0;
    if (!parse_number(text.substr(0, comma), &x)) return false;
    to[n] = static_cast<uint8_t>(x);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return text.empty();
}

bool dpp(std::string_view name, std::string_view value, Dpp* d) {
  using Kind = Dpp::Kind;
  if (name == "quad_perm") {
    uint8_t lanes[4] = {};
    if (!lane_list(value, lanes, 4)) return false;
    d->kind = Kind::quad, d->number = lanes[0] | lanes[1] << 2 | lanes[2] << 4 | lanes[3] << 6;
    return true;
  }
  if (name == "dpp8") {
    d->kind = Kind::eight;
    return lane_list(value, d->select.data(), 8);
  }
  int64_t n = 0;
  if (!parse_number(value, &n)) return false;
  if (name == "row_mask") return d->row_mask = static_cast<unsigned>(n), true;
  if (name == "bank_mask") return d->bank_mask = static_cast<unsigned>(n), true;
  if (name == "bound_ctrl") return d->bound_zero = true, true;
  if (name == "fi") return d->fetch_inactive = n != 0, true;
  constexpr std::pair<std::string_view, Kind> kNames[] = {{"row_shl", Kind::shl},        {"row_shr", Kind::shr},
                                                          {"row_ror", Kind::ror},        {"row_share", Kind::share},
                                                          {"row_xmask", Kind::xmask},    {"row_newbcast", Kind::share},
                                                          {"row_bcast", Kind::broadcast}};
  for (const auto& [known, kind] : kNames)
    if (name == known) {
      d->kind = kind, d->number = static_cast<int>(n);
      return true;
    }
  constexpr std::pair<std::string_view, int> kWaves[] = {
      {"wave_shl", 0x130}, {"wave_rol", 0x134}, {"wave_shr", 0x138}, {"wave_ror", 0x13c}};
  for (const auto& [known, code] : kWaves)
    if (name == known) {
      d->kind = Kind::wave, d->number = code;
      return true;
    }
  return false;
}

// What tells caches and schedulers something, and nothing else.
bool is_hint(std::string_view word) {
  for (const std::string_view hint : {"slc", "dlc", "nt", "sc1", "nv"})
    if (word == hint) return true;
  return word.starts_with("scope:") ||
         (word.starts_with("th:") && word.find("ATOMIC_RETURN") == std::string_view::npos);
}

bool with_number(std::string_view name, int64_t n, Instruction* i) {
  if (name == "offset" || name == "offset0") return i->offset = n, true;
  if (name == "offset1") return i->offset1 = n, true;
  if (name == "mul") return i->output_modifier = n == 2 ? 1 : 2, true;
  if (name == "div") return i->output_modifier = 3, n == 2;
  if (name == "cbsz") return i->cbsz = static_cast<int>(n), true;
  if (name == "blgp") return i->blgp = static_cast<int>(n), true;
  if (name == "abid") return i->abid = static_cast<int>(n), true;
  if (name == "bitop3") return i->number = static_cast<uint32_t>(n), true;
  if (name == "byte_sel") return i->op_sel = static_cast<uint8_t>((n & 1) << 1 | (n >> 1 & 1) | n << 2), true;
  return false;
}

}  // namespace

bool parse_modifier(std::string_view word, Instruction* i) {
  if (is_hint(word)) return true;
  if (word == "clamp") return i->clamp = true, true;
  if (word == "glc" || word == "sc0" || word == "th:TH_ATOMIC_RETURN") return i->gives_back = true, true;
  if (word == "offen") return true;  // the operand is there
  if (word == "off") return i->off = true, true;
  if (word == "lds") return i->to_lds = true, true;
  if (word == "row_mirror") return i->dpp.kind = Dpp::Kind::mirror, true;
  if (word == "row_half_mirror") return i->dpp.kind = Dpp::Kind::half_mirror, true;
  const size_t colon = word.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, colon), value = word.substr(colon + 1);
  if (name == "op_sel") return bit_list(value, &i->op_sel);
  if (name == "op_sel_hi") return bit_list(value, &i->op_sel_hi);
  if (name == "neg_lo") return bit_list(value, &i->neg_lo);
  if (name == "neg_hi") return bit_list(value, &i->neg_hi);
  if (name.ends_with("_sel") || name == "dst_unused") return i->sdwa.on = true, sdwa(name, value, &i->sdwa);
  int64_t n = 0;
  if (parse_number(value, &n) && with_number(name, n, i)) return true;
  // MFMA of several codes: matrix_a_fmt and the like are not printed by this disassembler for gfx950.
  return dpp(name, value, &i->dpp);
}

}  // namespace lumen::amd
