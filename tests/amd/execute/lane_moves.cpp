// Values that go from lane to lane or between lanes and scalars.
#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

uint32_t scalar_of(const Wave& w, const Operand& o) {
  if (o.kind == Operand::Kind::constant) return static_cast<uint32_t>(o.bits);
  if (o.kind == Operand::Kind::scalar) return o.first == kNull ? 0 : w.scalar[o.first];
  fault("a scalar operand is missing");
}
void set_scalar(Wave& w, const Operand& o, uint32_t value) {
  if (o.kind != Operand::Kind::scalar) fault("a result that is no scalar register");
  if (o.first != kNull) w.scalar[o.first] = value;
}

void read_first(Wave& w, const Instruction& i) {
  const uint64_t exec = w.exec();
  const int lane = exec == 0 ? 0 : std::countr_zero(exec);
  Column<uint32_t> words;
  raw_words(w, i, i.at[1], 0, 0, &words);
  set_scalar(w, i.at[0], words[static_cast<size_t>(lane)]);
}
void read_lane(Wave& w, const Instruction& i) {
  const uint32_t lane = scalar_of(w, i.at[2]) & static_cast<uint32_t>(w.lanes - 1);
  Column<uint32_t> words;
  raw_words(w, i, i.at[1], 0, 0, &words);
  set_scalar(w, i.at[0], words[lane]);
}
void write_lane(Wave& w, const Instruction& i) {
  const uint32_t lane = scalar_of(w, i.at[2]) & static_cast<uint32_t>(w.lanes - 1);
  (*w.vector)[i.at[0].first][lane] = scalar_of(w, i.at[1]);
}

// How many bits of a mask lie below the lane. `number`: 0 the low 32 lanes, 1 the high ones.
void count_below(Wave& w, const Instruction& i) {
  Column<uint32_t> mask, base;
  fetch(w, i, i.at[1], 0, mask), fetch(w, i, i.at[2], 1, base);
  for (int l = 0; l < w.lanes; ++l) {
    const int below = i.number == 0 ? std::min(l, 32) : std::max(l - 32, 0);
    const auto bits = static_cast<uint32_t>((uint64_t{1} << below) - 1);
    base[l] += static_cast<uint32_t>(std::popcount(mask[l] & bits));
  }
  store(w, i, i.at[0], base);
}

// V_PERMLANE16, V_PERMLANEX16 (`number` 1: from the other row of a pair of rows). op_sel: fetch inactive lanes, zero
// those.
void permute_rows(Wave& w, const Instruction& i) {
  Column<uint32_t> from, out;
  raw_words(w, i, i.at[1], 0, 0, &from);
  raw_words(w, i, i.at[0], -1, 0, &out);
  const uint64_t select = scalar_of(w, i.at[2]) | static_cast<uint64_t>(scalar_of(w, i.at[3])) << 32;
  const uint64_t exec = w.exec();
  const bool inactive = i.op_sel & 1, bound = i.op_sel & 2;
  for (int l = 0; l < w.lanes; ++l) {
    int s = (l & ~15) + static_cast<int>(select >> (4 * (l & 15)) & 15);
    if (i.number == 1) s ^= 16;
    if (inactive || exec >> s & 1) {
      out[l] = from[static_cast<size_t>(s)];
    } else if (bound) {
      out[l] = 0;
    }
  }
  store_words(w, i, i.at[0], 0, out);
}
void permute_halves(Wave& w, const Instruction& i) {
  if (w.lanes == 32) return;  // as the documents say
  Column<uint32_t> from, out;
  raw_words(w, i, i.at[1], 0, 0, &from);
  for (int l = 0; l < w.lanes; ++l) out[l] = from[static_cast<size_t>(l ^ 32)];
  store_words(w, i, i.at[0], 0, out);
}
// V_PERMLANE16_SWAP, V_PERMLANE32_SWAP: odd rows (the upper half) of the first with even rows (the lower half) of the
// second.
void swap_rows(Wave& w, const Instruction& i) {
  const int size = static_cast<int>(i.number);
  auto &a = (*w.vector)[i.at[0].first], &b = (*w.vector)[i.at[1].first];
  const uint64_t exec = w.exec();
  for (int l = 0; l < w.lanes; ++l) {
    if (!(l & size)) continue;
    const int other = l - size;
    const uint32_t x = a[static_cast<size_t>(l)], y = b[static_cast<size_t>(other)];
    if (exec >> l & 1) a[static_cast<size_t>(l)] = y;
    if (exec >> other & 1) b[static_cast<size_t>(other)] = x;
  }
}
void swap(Wave& w, const Instruction& i) {
  Column<uint32_t> a, b;
  raw_words(w, i, i.at[0], -1, 0, &a);
  raw_words(w, i, i.at[1], -1, 0, &b);
  store_words(w, i, i.at[0], 0, b);
  store_words(w, i, i.at[1], 0, a);
}
void nothing(Wave&, const Instruction&) {}

// V_MOVREL: registers counted from M0 on. `number`: 1 the source, 2 the result.
void move_relative(Wave& w, const Instruction& i) {
  Instruction moved = i;
  for (const int n : {0, 1})
    if (i.number & (n == 1 ? 1 : 2)) {
      Operand& o = moved.at[static_cast<size_t>(n)];
      const uint32_t at = o.first + w.scalar[kM0];
      if (o.kind != Operand::Kind::vector || at >= static_cast<uint32_t>(w.vectors))
        fault("register v{} is not allocated", at);
      o.first = static_cast<uint16_t>(at);
    }
  Column<uint32_t> words;
  raw_words(w, moved, moved.at[1], 0, 0, &words);
  store_words(w, moved, moved.at[0], 0, words);
}
// Generation 9: while the mode is on, sources or results of vector instructions count from an index on.
void index_on(Wave& w, const Instruction& i) {
  w.index = static_cast<int>(scalar_of(w, i.at[0]) & 0xff);
  w.indexed = static_cast<unsigned>(i.offset);
}
void index_off(Wave& w, const Instruction&) {
  w.indexed = 0;
}

}  // namespace

void add_lane_moves(const Chip&, Operations& t) {
  const std::vector<Type> words{Type::b32};
  t["v_readfirstlane_b32"] = {.run = read_first, .types = words};
  t["v_readlane_b32"] = {.run = read_lane, .types = words};
  t["v_writelane_b32"] = {.run = write_lane, .types = words, .accumulates = true};
  t["v_mbcnt_lo_u32_b32"] = {.run = count_below, .types = words};
  t["v_mbcnt_hi_u32_b32"] = {.run = count_below, .types = words, .number = 1};
  t["v_permlane16_b32"] = {.run = permute_rows, .types = words, .accumulates = true};
  t["v_permlanex16_b32"] = {.run = permute_rows, .types = words, .accumulates = true, .number = 1};
  t["v_permlane64_b32"] = {.run = permute_halves, .types = words};
  t["v_permlane16_swap_b32"] = {.run = swap_rows, .types = words, .results = 2, .accumulates = true, .number = 16};
  t["v_permlane32_swap_b32"] = {.run = swap_rows, .types = words, .results = 2, .accumulates = true, .number = 32};
  t["v_swap_b32"] = {.run = swap, .types = words, .results = 2, .accumulates = true};
  t["v_movrels_b32"] = {.run = move_relative, .types = words, .number = 1};
  t["v_movreld_b32"] = {.run = move_relative, .types = words, .number = 2};
  t["v_movrelsd_b32"] = {.run = move_relative, .types = words, .number = 3};
  t["s_set_gpr_idx_on"] = {.run = index_on, .types = words, .results = 0};
  t["s_set_gpr_idx_off"] = {.run = index_off, .results = 0, .shape = Operation::Shape::ignored};
  t["v_nop"] = {.run = nothing, .types = {}, .results = 0};
}

}  // namespace lumen::amd
