// Scalar loads, global and flat loads, stores and atomics, private memory (scratch). Meanings: the instruction set
// documents, "Scalar memory", "Flat, global and scratch memory".
#include "tests/amd/execute/access.h"

namespace lumen::amd {
namespace {

uint64_t scalar_address(const Wave& w, const Instruction& i) {
  int64_t offset = i.offset;
  const Operand& by = i.at[2];
  if (by.kind == Operand::Kind::constant) {
    offset += static_cast<int32_t>(by.bits);
  } else if (by.kind == Operand::Kind::scalar) {
    offset += scalar32(w, by);
  }
  return scalar64(w, i.at[1]) + static_cast<uint64_t>(offset);
}

void scalar_load(Wave& w, const Instruction& i) {
  const Operand& to = i.at[0];
  if (to.kind != Operand::Kind::scalar || to.words * 4 != static_cast<int>(i.number))
    fault("registers for {} bytes", i.number);
  const uint64_t address = scalar_address(w, i);
  if (address % 4 != 0) fault("address {:#x} is not aligned", address);
  // The compiler rounds sizes up where a load cannot leave its aligned piece of memory; what lies outside of the
  // allocation there is nobody's.
  for (uint32_t at = 0; at < i.number; at += 4) {
    const bool outside = at > 0 && address % i.number == 0 && !w.memory->holds(address + at, 4);
    w.scalar[to.first + at / 4] = kUntouched;
    if (!outside) std::memcpy(&w.scalar[to.first + at / 4], w.memory->reach(address + at, 4, false), 4);
  }
  const Counter counter = counter_of(w.chip, kScalarMemory);
  w.pend_scalar(to.first, to.words, counter, w.issue(counter, true));
}

// S_LOAD_U8, _I8, _U16, _I16 of generation 12: one or two bytes, extended to a register.
constexpr uint32_t kSigned = 16;  // beside the number of bytes
void scalar_load_short(Wave& w, const Instruction& i) {
  const Operand& to = i.at[0];
  if (to.kind != Operand::Kind::scalar || to.words != 1) fault("no register for a short number");
  const uint32_t bytes = i.number % kSigned;
  const uint64_t address = scalar_address(w, i);
  if (address % bytes != 0) fault("address {:#x} is not aligned", address);
  uint32_t value = 0;
  std::memcpy(&value, w.memory->reach(address, bytes, false), bytes);
  const uint32_t sign = uint32_t{1} << (bytes * 8 - 1);
  if (i.number >= kSigned) value = (value ^ sign) - sign;
  w.scalar[to.first] = value;
  const Counter counter = counter_of(w.chip, kScalarMemory);
  w.pend_scalar(to.first, 1, counter, w.issue(counter, true));
}

// Registers of an address, 64 bits or 32 beside a scalar base.
uint64_t address_of(const Wave& w, const Instruction& i, const Operand& v, const Operand& s, int lane) {
  const auto at = [&](int word) {
    return static_cast<uint64_t>((*w.vector)[static_cast<size_t>(v.first + word)][static_cast<size_t>(lane)]);
  };
  const auto offset = static_cast<uint64_t>(i.offset);
  if (v.kind != Operand::Kind::vector) fault("an address that is no vector register");
  if (s.kind == Operand::Kind::scalar && s.first != kNull) return scalar64(w, s) + at(0) + offset;
  if (v.words != 2) fault("half an address");
  return (at(0) | at(1) << 32) + offset;
}
bool is_flat(const Instruction& i) {
  return i.text[0] == 'f';
}
// Flat instructions may reach LDS too and count there.
void count(Wave& w, const Instruction& i, Counter what, const Operand* to, int words) {
  const Counter counter = counter_of(w.chip, what);
  const uint32_t n = w.issue(counter, is_flat(i));
  if (to) w.pend_vector(to->first, words, counter, n);
  if (is_flat(i)) w.issue(counter_of(w.chip, kLds), true);
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
int registers(const Access& a) {
  return (a.bytes + 3) / 4;
}

void load(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  if (i.at[0].words != registers(a)) fault("registers for {} bytes", a.bytes);
  each_lane(w, [&](int l) {
    put_loaded(w, i.at[0], l, a,
               w.memory->reach(address_of(w, i, i.at[1], i.at[2], l), static_cast<uint64_t>(a.bytes), false));
  });
  count(w, i, kLoads, &i.at[0], registers(a));
}
void store_memory(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  if (i.at[1].words != registers(a)) fault("registers for {} bytes", a.bytes);
  each_lane(w, [&](int l) {
    take_stored(w, i.at[1], l, a,
                w.memory->reach(address_of(w, i, i.at[0], i.at[2], l), static_cast<uint64_t>(a.bytes), true));
  });
  count(w, i, kStores, nullptr, 0);
}

// Lanes lie side by side from M0 and the offset on, whichever take part. What was asked of these bytes before must have
// been answered: loads and LDS keep no order between them.
void load_to_lds(Wave& w, const Instruction& i) {
  const auto bytes = static_cast<int>(Access::of(i.number).bytes);
  if (bytes != 4 && bytes != 12 && bytes != 16) fault("{} bytes of a lane straight into LDS are not known", bytes);
  const uint64_t to = w.scalar[kM0] + static_cast<uint64_t>(i.offset), size = static_cast<uint64_t>(bytes);
  if (to % 4 != 0) fault("a place in LDS, {:#x}, that is not aligned", to);
  const auto touched = [&](uint64_t place) {
    for (const LdsAccess& a : w.lds_accesses)
      if (a.address < place + size && place < a.address + static_cast<uint64_t>(a.bytes))
        fault("a load into LDS at {:#x}, which this wave touched and did not wait", a.address);
  };
  std::vector<Lds::Place> places;
  each_lane(w, [&](int l) {
    const uint64_t place = to + size * static_cast<uint64_t>(l);
    touched(place);
    const uint8_t* from = w.memory->reach(address_of(w, i, i.at[0], i.at[1], l), size, false);
    std::memcpy(w.lds->write(place, bytes, w.number, w.arrived, w.passed), from, size);
    places.push_back({l, place});
  });
  if (w.counts_banks) w.lds->count_banks(places, bytes, false);
  w.lds_copies.push_back({w.issue(counter_of(w.chip, kLoads)), to, bytes, w.exec()});
}

void atomic(Wave& w, const Instruction& i) {
  const NamedAtomic& a = atomics()[i.number];
  const bool returns = i.gives_back;
  const size_t first = returns ? 1 : 0;
  const Operand &address = i.at[first], &data = i.at[first + 1], &base = i.at[first + 2];
  const int words = a.bytes / 4;
  if (data.words != words * (a.compares ? 2 : 1)) fault("registers for {} bytes", a.bytes);
  each_lane(w, [&](int l) {
    const uint64_t where = address_of(w, i, address, base, l);
    if (where % static_cast<uint64_t>(a.bytes) != 0) fault("address {:#x} is not aligned", where);
    uint8_t* memory = w.memory->reach(where, static_cast<uint64_t>(a.bytes), true);
    const auto value = [&](int word) {
      uint64_t x = 0;
      for (int k = 0; k < words; ++k)
        x |= static_cast<uint64_t>((*w.vector)[static_cast<size_t>(data.first + word + k)][static_cast<size_t>(l)])
             << (32 * k);
      return x;
    };
    uint64_t old = 0;
    std::memcpy(&old, memory, static_cast<size_t>(a.bytes));
    const uint64_t now = a.change(old, value(0), a.compares ? value(words) : 0);
    std::memcpy(memory, &now, static_cast<size_t>(a.bytes));
    if (!returns) return;
    for (int k = 0; k < words; ++k)
      (*w.vector)[static_cast<size_t>(i.at[0].first + k)][static_cast<size_t>(l)] =
          static_cast<uint32_t>(old >> (32 * k));
  });
  count(w, i, returns ? kLoads : kStores, returns ? &i.at[0] : nullptr, words);
}

// ---- private memory: each lane's own bytes.
uint8_t* private_bytes(Wave& w, const Instruction& i, const Operand& v, const Operand& s, int lane, int bytes) {
  int64_t at = i.offset;
  if (v.kind == Operand::Kind::vector) at += (*w.vector)[v.first][static_cast<size_t>(lane)];
  if (s.kind == Operand::Kind::scalar || s.kind == Operand::Kind::constant) at += scalar32(w, s);
  if (at < 0 || at + bytes > w.private_bytes) fault("private memory at {}, of {} bytes", at, w.private_bytes);
  return w.private_memory.data() + static_cast<size_t>(lane) * static_cast<size_t>(w.private_bytes) + at;
}
void load_private(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  each_lane(w, [&](int l) { put_loaded(w, i.at[0], l, a, private_bytes(w, i, i.at[1], i.at[2], l, a.bytes)); });
  count(w, i, kLoads, &i.at[0], registers(a));
}
void store_private(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  each_lane(w, [&](int l) { take_stored(w, i.at[1], l, a, private_bytes(w, i, i.at[0], i.at[2], l, a.bytes)); });
  count(w, i, kStores, nullptr, 0);
}

// Private memory as a buffer: the only one that is known.
void require_private(const Wave& w, const Operand& resource) {
  bool is = resource.kind == Operand::Kind::scalar && resource.words == 4;
  for (size_t n = 0; is && n < 4; ++n) is = w.scalar[resource.first + n] == kPrivateBuffer[n];
  if (!is) fault("a buffer that is not private memory");
}
// The scalar offset counts bytes of all lanes together, four of each lane side by side.
uint8_t* private_part(Wave& w, const Instruction& i, int lane, int bytes) {
  const uint32_t all = scalar32(w, i.at[3]), lanes = static_cast<uint32_t>(w.lanes);
  if (all % (4 * lanes) != 0) fault("an offset of {} bytes for {} lanes", all, lanes);
  Operand each;
  each.kind = Operand::Kind::constant, each.bits = all / lanes;
  return private_bytes(w, i, i.at[1], each, lane, bytes);
}
void load_private_buffer(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  if (i.to_lds) fault("loads straight into LDS are not known");
  require_private(w, i.at[2]);
  each_lane(w, [&](int l) { put_loaded(w, i.at[0], l, a, private_part(w, i, l, a.bytes)); });
  count(w, i, kLoads, &i.at[0], registers(a));
}
void store_private_buffer(Wave& w, const Instruction& i) {
  const Access a = Access::of(i.number);
  require_private(w, i.at[2]);
  each_lane(w, [&](int l) { take_stored(w, i.at[0], l, a, private_part(w, i, l, a.bytes)); });
  count(w, i, kStores, nullptr, 0);
}

// Generation 9 names atomics without types.
std::string name9(const NamedAtomic& a) {
  static const std::pair<const char*, const char*> names[] = {
      {"add_u", "add"},  {"sub_u", "sub"}, {"min_u", "umin"},       {"max_u", "umax"}, {"min_i", "smin"},
      {"max_i", "smax"}, {"and_b", "and"}, {"or_b", "or"},          {"xor_b", "xor"},  {"swap_b", "swap"},
      {"inc_u", "inc"},  {"dec_u", "dec"}, {"cmpswap_b", "cmpswap"}};
  for (const auto& [head, name] : names)
    if (a.name.starts_with(head)) return std::string(name) + (a.bytes == 8 ? "_x2" : "");
  return a.name;
}

}  // namespace

void add_global_memory(const Chip& chip, Operations& t) {
  const std::pair<const char*, uint32_t> widths[] = {
      {"dword", 4}, {"dwordx2", 8}, {"dwordx3", 12}, {"dwordx4", 16}, {"dwordx8", 32}, {"dwordx16", 64},
      {"b32", 4},   {"b64", 8},     {"b96", 12},     {"b128", 16},    {"b256", 32},    {"b512", 64}};
  for (const auto& [name, bytes] : widths)
    t[std::string("s_load_") + name] = {
        .run = scalar_load, .types = {Type::b32, Type::b64, Type::b32}, .number = bytes};
  for (const auto& [name, number] :
       {std::pair<const char*, uint32_t>{"u8", 1}, {"i8", 1 + kSigned}, {"u16", 2}, {"i16", 2 + kSigned}})
    t[std::string("s_load_") + name] = {
        .run = scalar_load_short, .types = {Type::b32, Type::b64, Type::b32}, .number = number};
  const bool nine = chip.major == 9;
  const std::vector<Type> types{Type::raw};
  for (const auto& [name, a] : load_accesses(nine, false)) {
    for (const char* head : {"global_load_", "flat_load_"})
      t[head + name] = {.run = load, .types = types, .number = a.number()};
    t["buffer_load_" + name] = {.run = load_private_buffer, .types = types, .number = a.number()};
    t["scratch_load_" + name] = {.run = load_private, .types = types, .number = a.number()};
    t["global_load_lds_" + name] = {.run = load_to_lds, .types = types, .results = 0, .number = a.number()};
  }
  for (const auto& [name, a] : store_accesses(nine, false)) {
    for (const char* head : {"global_store_", "flat_store_"})
      t[head + name] = {.run = store_memory, .types = types, .results = 0, .number = a.number()};
    t["buffer_store_" + name] = {.run = store_private_buffer, .types = types, .results = 0, .number = a.number()};
    t["scratch_store_" + name] = {.run = store_private, .types = types, .results = 0, .number = a.number()};
  }
  for (size_t n = 0; n < atomics().size(); ++n)
    for (const char* head : {"global_atomic_", "flat_atomic_"})
      t[head + (nine ? name9(atomics()[n]) : atomics()[n].name)] = {
          .run = atomic, .types = types, .results = 0, .number = static_cast<uint32_t>(n)};
}

}  // namespace lumen::amd
