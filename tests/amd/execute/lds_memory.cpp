// LDS: loads, stores, two at once, atomics, and lanes that exchange values through its crossbar.
#include "tests/amd/execute/access.h"

namespace lumen::amd {
namespace {

struct Counted {
  Wave& w;
  std::vector<LdsAccess> accesses;
  const uint8_t* read(uint64_t at, int bytes) {
    w.need_copied(at, bytes);
    accesses.push_back({0, at, bytes, false});
    return w.lds->read(at, bytes, w.number, w.arrived, w.passed);
  }
  uint8_t* write(uint64_t at, int bytes) {
    w.need_copied(at, bytes);
    accesses.push_back({0, at, bytes, true});
    return w.lds->write(at, bytes, w.number, w.arrived, w.passed);
  }
  // Of lanes that each have one access; only where somebody asks: it takes long.
  void count_banks(int bytes, bool writes) {
    if (!w.counts_banks) return;
    std::vector<Lds::Place> places;
    int lane = 0;
    for (const LdsAccess& a : accesses) {
      while (!(w.exec() >> lane & 1)) ++lane;
      places.push_back({lane++, a.address});
    }
    w.lds->count_banks(places, bytes, !writes && w.chip.major == 9);
  }
  void issue(const Operand* to, int words) {
    const uint32_t n = w.issue(counter_of(w.chip, kLds));
    for (LdsAccess& a : accesses) a.sequence = n, w.lds_accesses.push_back(a);
    if (to) w.pend_vector(to->first, words, counter_of(w.chip, kLds), n);
  }
};

uint64_t address(const Wave& w, const Operand& o, int lane, int64_t offset) {
  if (o.kind != Operand::Kind::vector) fault("an address that is no vector register");
  return ((*w.vector)[o.first][static_cast<size_t>(lane)] + static_cast<uint64_t>(offset)) & 0xffffffff;
}
template <class F>
void each_lane(const Wave& w, F f) {
  const uint64_t exec = w.exec();
  for (int l = 0; l < w.lanes; ++l) {
    if (!(exec >> l & 1)) continue;
    try {
      f(l);
    } catch (const Fault& x) {
      fault("lane {}: {}", l, x.what());
    }
  }
}
int registers(int bytes) {
  return (bytes + 3) / 4;
}

void load(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  Counted c{w, {}};
  if (i.at[0].words != registers(a.bytes)) fault("registers for {} bytes", a.bytes);
  each_lane(w, [&](int l) { put_loaded(w, i.at[0], l, a, c.read(address(w, i.at[1], l, i.offset), a.bytes)); });
  c.count_banks(a.bytes, false);
  c.issue(&i.at[0], registers(a.bytes));
}
void store_lds(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  Counted c{w, {}};
  if (i.at[1].words != registers(a.bytes)) fault("registers for {} bytes", a.bytes);
  each_lane(w, [&](int l) { take_stored(w, i.at[1], l, a, c.write(address(w, i.at[0], l, i.offset), a.bytes)); });
  c.count_banks(a.bytes, true);
  c.issue(nullptr, 0);
}

// Two numbers of the same size; offsets count them, or 64 of them. `number`: bytes, and 64 times in bit 8.
void load_two(Wave& w, const Instruction& i) {
  const int bytes = static_cast<int>(i.number & 0xff), stride = bytes * (i.number >> 8 & 1 ? 64 : 1);
  Counted c{w, {}};
  if (i.at[0].words != 2 * registers(bytes)) fault("registers for {} bytes", 2 * bytes);
  each_lane(w, [&](int l) {
    const uint64_t base = address(w, i.at[1], l, 0);  // its register may be one of the results
    for (int n = 0; n < 2; ++n) {
      Operand to = i.at[0];
      to.first = static_cast<uint16_t>(to.first + n * registers(bytes));
      const int64_t offset = (n == 0 ? i.offset : i.offset1) * stride;
      put_loaded(w, to, l, {bytes}, c.read(base + static_cast<uint64_t>(offset), bytes));
    }
  });
  c.issue(&i.at[0], 2 * registers(bytes));
}
void store_two(Wave& w, const Instruction& i) {
  const int bytes = static_cast<int>(i.number & 0xff), stride = bytes * (i.number >> 8 & 1 ? 64 : 1);
  Counted c{w, {}};
  each_lane(w, [&](int l) {
    for (int n = 0; n < 2; ++n) {
      const int64_t offset = (n == 0 ? i.offset : i.offset1) * stride;
      take_stored(w, i.at[static_cast<size_t>(n) + 1], l, {bytes}, c.write(address(w, i.at[0], l, offset), bytes));
    }
  });
  c.issue(nullptr, 0);
}

void atomic(Wave& w, const Instruction& i) {
  const NamedAtomic& a = atomics()[i.number & 0xff];
  const bool returns = i.number >> 8 & 1;
  const size_t first = returns ? 1 : 0;
  if (a.compares) fault("a compare and swap in LDS");
  Counted c{w, {}};
  each_lane(w, [&](int l) {
    const uint64_t at = address(w, i.at[first], l, i.offset);
    uint8_t* memory = c.write(at, a.bytes);
    uint64_t old = 0, data = 0;
    std::memcpy(&old, memory, static_cast<size_t>(a.bytes));
    for (int k = 0; k < a.bytes / 4; ++k)
      data |= static_cast<uint64_t>((*w.vector)[static_cast<size_t>(i.at[first + 1].first + k)][static_cast<size_t>(l)])
              << (32 * k);
    const uint64_t now = a.change(old, data, 0);
    std::memcpy(memory, &now, static_cast<size_t>(a.bytes));
    for (int k = 0; returns && k < a.bytes / 4; ++k)
      (*w.vector)[static_cast<size_t>(i.at[0].first + k)][static_cast<size_t>(l)] =
          static_cast<uint32_t>(old >> (32 * k));
  });
  c.issue(returns ? &i.at[0] : nullptr, a.bytes / 4);
}

// Values by the crossbar; memory is not touched. Lanes that are off give 0.
void permute_backward(Wave& w, const Instruction& i) {
  const auto &index = (*w.vector)[i.at[1].first], from = (*w.vector)[i.at[2].first];
  const uint64_t exec = w.exec();
  auto& to = (*w.vector)[i.at[0].first];
  const auto old_index = index;
  for (int l = 0; l < w.lanes; ++l) {
    if (!(exec >> l & 1)) continue;
    const auto s = static_cast<size_t>((old_index[static_cast<size_t>(l)] + static_cast<uint64_t>(i.offset)) / 4 %
                                       static_cast<uint64_t>(w.lanes));
    to[static_cast<size_t>(l)] = exec >> s & 1 ? from[s] : 0;
  }
  Counted{w, {}}.issue(&i.at[0], 1);
}
void permute_forward(Wave& w, const Instruction& i) {
  const auto index = (*w.vector)[i.at[1].first], from = (*w.vector)[i.at[2].first];
  const uint64_t exec = w.exec();
  Column<uint32_t> out{};
  for (int l = 0; l < w.lanes; ++l)
    if (exec >> l & 1)
      out[static_cast<size_t>((index[static_cast<size_t>(l)] + static_cast<uint64_t>(i.offset)) / 4 %
                              static_cast<uint64_t>(w.lanes))] = from[static_cast<size_t>(l)];
  store_words(w, i, i.at[0], 0, out);
  Counted{w, {}}.issue(&i.at[0], 1);
}
// Within 32 lanes: and, or, xor masks; or within four lanes a permutation.
void swizzle(Wave& w, const Instruction& i) {
  const auto from = (*w.vector)[i.at[1].first];
  const uint64_t exec = w.exec();
  const auto pattern = static_cast<int>(i.offset);
  if ((pattern & 0x8000) && (pattern & 0x7f00)) fault("a pattern {:#x}", pattern);
  Column<uint32_t> out{};
  for (int l = 0; l < w.lanes; ++l) {
    int s = 0;
    if (pattern & 0x8000) {
      s = (l & ~3) + (pattern >> (2 * (l & 3)) & 3);
    } else {
      s = (l & 32) + ((((l & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
    }
    out[static_cast<size_t>(l)] = exec >> s & 1 ? from[static_cast<size_t>(s)] : 0;
  }
  store_words(w, i, i.at[0], 0, out);
  Counted{w, {}}.issue(&i.at[0], 1);
}

}  // namespace

void add_lds(const Chip& chip, Operations& t) {
  const std::vector<Type> types{Type::raw};
  const bool nine = chip.major == 9;
  for (const auto& [name, a] : load_accesses(nine, true))
    t[(nine ? "ds_read_" : "ds_load_") + name] = {.run = load, .types = types, .number = a.number()};
  for (const auto& [name, a] : store_accesses(nine, true))
    t[(nine ? "ds_write_" : "ds_store_") + name] = {
        .run = store_lds, .types = types, .results = 0, .number = a.number()};
  for (const uint32_t bytes : {4U, 8U})
    for (const uint32_t far : {0U, 1U}) {
      const std::string bits = bytes == 4 ? "b32" : "b64";
      const std::string middle = nine ? (far ? "2st64_" : "2_") : (far ? "_2addr_stride64_" : "_2addr_");
      t[(nine ? "ds_read" : "ds_load") + middle + bits] = {.run = load_two, .types = types, .number = bytes | far << 8};
      t[(nine ? "ds_write" : "ds_store") + middle + bits] = {
          .run = store_two, .types = types, .results = 0, .number = bytes | far << 8};
    }
  for (uint32_t n = 0; n < atomics().size(); ++n) {
    const std::string& name = atomics()[n].name;
    const size_t under = name.rfind('_');
    t["ds_" + name] = {.run = atomic, .types = types, .results = 0, .number = n};
    t["ds_" + name.substr(0, under) + "_rtn" + name.substr(under)] = {
        .run = atomic, .types = types, .number = n | 1 << 8};
  }
  t["ds_bpermute_b32"] = {.run = permute_backward, .types = types};
  t["ds_permute_b32"] = {.run = permute_forward, .types = types};
  t["ds_swizzle_b32"] = {.run = swizzle, .types = types};
}

}  // namespace lumen::amd
