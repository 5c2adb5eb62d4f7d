// See lanes.h. DPP and SDWA: the instruction set documents, chapters of their encodings.
#include "tests/amd/execute/lanes.h"

namespace lumen::amd {
namespace {

int source_lane(const Dpp& d, int lane, int lanes) {
  const int row = lane & ~15, in_row = lane & 15;
  switch (d.kind) {
    case Dpp::Kind::quad:
      return (lane & ~3) + (d.number >> (2 * (lane & 3)) & 3);
    case Dpp::Kind::shl:
      return in_row + d.number < 16 ? lane + d.number : -1;
    case Dpp::Kind::shr:
      return in_row - d.number >= 0 ? lane - d.number : -1;
    case Dpp::Kind::ror:
      return row + ((in_row - d.number) & 15);
    case Dpp::Kind::mirror:
      return row + 15 - in_row;
    case Dpp::Kind::half_mirror:
      return (lane & ~7) + 7 - (lane & 7);
    case Dpp::Kind::share:
      return row + d.number;
    case Dpp::Kind::xmask:
      return row + (in_row ^ d.number);
    case Dpp::Kind::broadcast:  // the last lane of a row to the next row, or of two rows to the next two
      if (d.number == 15) return row >= 16 ? row - 1 : -1;
      return lane >= 32 ? 31 : -1;
    case Dpp::Kind::wave:  // 0x130 shl, 0x134 rol, 0x138 shr, 0x13c ror
      if (d.number == 0x130) return lane + 1 < lanes ? lane + 1 : -1;
      if (d.number == 0x134) return (lane + 1) % lanes;
      if (d.number == 0x138) return lane - 1;
      return (lane + lanes - 1) % lanes;
    case Dpp::Kind::eight:
      return (lane & ~7) + d.select[static_cast<size_t>(lane & 7)];
    case Dpp::Kind::none:
      break;
  }
  return lane;
}

}  // namespace

void dpp_sources(const Wave& w, const Dpp& d, std::array<int8_t, kMostLanes>* from) {
  const uint64_t exec = w.exec();
  for (int l = 0; l < w.lanes; ++l) {
    int s = source_lane(d, l, w.lanes);
    if (s >= 0 && !d.fetch_inactive && !(exec >> s & 1)) s = -1;
    (*from)[static_cast<size_t>(l)] = static_cast<int8_t>(s);
  }
}

uint64_t write_mask(const Wave& w, const Instruction& i) {
  uint64_t mask = w.exec();
  if (i.dpp.kind == Dpp::Kind::none || i.dpp.kind == Dpp::Kind::eight) return mask;
  std::array<int8_t, kMostLanes> from{};
  dpp_sources(w, i.dpp, &from);
  for (int l = 0; l < w.lanes; ++l) {
    const bool row = i.dpp.row_mask >> (l / 16) & 1, bank = i.dpp.bank_mask >> (l % 16 / 4) & 1;
    if (!row || !bank || (from[static_cast<size_t>(l)] < 0 && !i.dpp.bound_zero)) mask &= ~(uint64_t{1} << l);
  }
  return mask;
}

uint32_t part_of(uint32_t word, Part part, bool extend) {
  if (part == Part::dword) return word;
  const bool byte = part <= Part::byte3;
  const int shift = byte ? 8 * static_cast<int>(part) : part == Part::word1 ? 16 : 0;
  const uint32_t x = word >> shift;
  if (byte) return extend ? static_cast<uint32_t>(static_cast<int8_t>(x)) : x & 0xff;
  return extend ? static_cast<uint32_t>(static_cast<int16_t>(x)) : x & 0xffff;
}

uint32_t placed(uint32_t old, uint32_t value, const Sdwa& s) {
  if (s.to == Part::dword) return value;
  const bool byte = s.to <= Part::byte3;
  const int shift = byte ? 8 * static_cast<int>(s.to) : s.to == Part::word1 ? 16 : 0;
  const uint32_t mask = (byte ? 0xffU : 0xffffU) << shift;
  const uint32_t bits = value << shift & mask;
  if (s.unused == Sdwa::Unused::preserve) return (old & ~mask) | bits;
  if (s.unused == Sdwa::Unused::pad) return bits;
  const auto wide = static_cast<int32_t>(byte ? static_cast<int8_t>(value) : static_cast<int16_t>(value));
  return static_cast<uint32_t>(wide) << shift;
}

void raw_words(const Wave& w, const Instruction& i, const Operand& o, int source, int word, Column<uint32_t>* out) {
  if (o.kind == Operand::Kind::vector) {
    const auto& from = (*w.vector)[static_cast<size_t>(o.first + word)];
    if (source == 0 && i.dpp.kind != Dpp::Kind::none) {
      std::array<int8_t, kMostLanes> lane{};
      dpp_sources(w, i.dpp, &lane);
      for (int l = 0; l < w.lanes; ++l) (*out)[l] = lane[l] < 0 ? 0 : from[static_cast<size_t>(lane[l])];
      return;
    }
    *out = from;
    return;
  }
  uint32_t x = 0;
  if (o.kind == Operand::Kind::constant) {
    x = static_cast<uint32_t>(o.bits >> (32 * word));
  } else if (o.kind == Operand::Kind::scalar) {
    if (o.first == kNull) {
      x = 0;
    } else if (o.first == kScc) {
      x = word == 0 ? w.scc : 0;
    } else if (o.first == kVccz || o.first == kExecz) {
      x = w.mask(o.first == kVccz ? kVcc : kExec) == 0;
    } else {
      x = word < o.words ? w.scalar[o.first + static_cast<size_t>(word)] : 0;
    }
  } else {
    fault("an operand is missing");
  }
  out->fill(x);
}

void store_words(Wave& w, const Instruction& i, const Operand& o, int word, const Column<uint32_t>& value) {
  if (o.kind != Operand::Kind::vector) fault("a result that is no vector register");
  auto& to = (*w.vector)[static_cast<size_t>(o.first + word)];
  const uint64_t mask = write_mask(w, i);
  const bool parts = i.sdwa.on && i.sdwa.to != Part::dword;
  if (mask == w.all() && !parts) {
    std::memcpy(to.data(), value.data(), static_cast<size_t>(w.lanes) * 4);
    return;
  }
  for (int l = 0; l < w.lanes; ++l)
    if (mask >> l & 1) to[l] = parts ? placed(to[l], value[l], i.sdwa) : value[l];
}

void store_halves(Wave& w, const Instruction& i, const Operand& o, const Column<uint16_t>& value) {
  if (i.sdwa.on) {
    Column<uint32_t> words;
    for (int l = 0; l < w.lanes; ++l) words[l] = value[l];
    store_words(w, i, o, 0, words);
    return;
  }
  if (o.kind != Operand::Kind::vector) fault("a result that is no vector register");
  auto& to = (*w.vector)[o.first];
  const uint64_t mask = write_mask(w, i);
  const bool high = o.half == 2 || (o.half == 0 && (i.op_sel >> 3 & 1));
  for (int l = 0; l < w.lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    const uint32_t x = value[l];
    if (high) {
      to[l] = (to[l] & 0xffff) | x << 16;
    } else {
      to[l] = (i.zeroes_high ? 0 : to[l] & 0xffff0000) | x;
    }
  }
}

}  // namespace lumen::amd
