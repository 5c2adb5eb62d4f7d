// See wave.h. Counters: the instruction set documents, "Data dependency resolution" and "S_WAITCNT".
#include "tests/amd/wave/wave.h"

#include <algorithm>

#include "tests/amd/fault.h"

namespace lumen::amd {
namespace {

bool is_pending(const Wave& w, const Wave::Pending& p) {
  return p.sequence > w.done[p.counter];
}

const char* name_of(uint8_t counter) {
  constexpr const char* kNames[] = {"loads", "stores", "LDS", "scalar memory", "exports"};
  return kNames[counter];
}

// A load may follow another into the same register if both come back in order.
void check_pending(const Wave& w, const Instruction& i) {
  for (const Span& s : i.vector_reads)
    for (int r = s.first; r < s.first + s.count; ++r)
      if (is_pending(w, w.pending_vector[r]))
        fault("register {}{} is read before its {} were waited for", r < kAccumulation ? 'v' : 'a', r % kAccumulation,
              name_of(w.pending_vector[r].counter));
  for (const Span& s : i.scalar_reads)
    for (int r = s.first; r < s.first + s.count; ++r)
      if (is_pending(w, w.pending_scalar[r]))
        fault("register s{} is read before its {} were waited for", r, name_of(w.pending_scalar[r].counter));
  for (const Span& s : i.vector_writes)
    for (int r = s.first; r < s.first + s.count; ++r)
      if (is_pending(w, w.pending_vector[r]) && !(i.loads && i.counter == w.pending_vector[r].counter))
        fault("register {}{} is written before its {} were waited for", r < kAccumulation ? 'v' : 'a',
              r % kAccumulation, name_of(w.pending_vector[r].counter));
  for (const Span& s : i.scalar_writes)
    for (int r = s.first; r < s.first + s.count; ++r)
      if (is_pending(w, w.pending_scalar[r]))
        fault("register s{} is written before its {} were waited for", r, name_of(w.pending_scalar[r].counter));
}

// An instruction whose registers count from the index on (S_SET_GPR_IDX_ON).
Instruction indexed(const Wave& w, const Instruction& i) {
  const bool vectors = !i.vector_reads.empty() || !i.vector_writes.empty();
  if (!vectors) return i;
  if (!i.text.starts_with("v_mov_b32")) fault("only moves are known with indexed registers");
  Instruction moved = i;
  for (const int n : {0, 1}) {
    Operand& o = moved.at[static_cast<size_t>(n)];
    if (!(w.indexed & (n == 0 ? 8U : 1U)) || o.kind != Operand::Kind::vector) continue;
    const int at = o.first + w.index;
    if (at >= w.vectors) fault("register v{} is not allocated", at);
    o.first = static_cast<uint16_t>(at);
    (n == 0 ? moved.vector_writes : moved.vector_reads) = {{o.first, o.words}};
  }
  return moved;
}

// Where a computed branch goes.
uint64_t place_of(const std::vector<Instruction>& code, uint64_t address) {
  const auto at = std::lower_bound(code.begin(), code.end(), address,
                                   [](const Instruction& i, uint64_t a) { return i.address < a; });
  if (at == code.end() || at->address != address) fault("a branch to {:#x}, no instruction of the kernel", address);
  return static_cast<uint64_t>(at - code.begin());
}

// One wave until it waits at a barrier or ends.
void run(Wave& w, const std::vector<Instruction>& code, uint64_t* budget) {
  while (!w.ended && !w.waits_at_barrier) {
    if (w.place >= code.size()) fault("the code goes on behind its end");
    const Instruction& i = code[w.place];
    if ((*budget)-- == 0) fault("too many instructions at {:#x}: {}", i.address, i.text);
    try {
      if (w.under_way()) check_pending(w, i);
      if (!w.executed.empty()) ++w.executed[w.place];
      ++w.place;
      if (w.indexed != 0 && i.text[0] == 'v') {
        const Instruction moved = indexed(w, i);
        if (w.under_way()) check_pending(w, moved);
        moved.run(w, moved);
      } else {
        i.run(w, i);
      }
      if (w.jump != ~uint64_t{0}) w.place = place_of(code, w.jump - w.code_base), w.jump = ~uint64_t{0};
    } catch (const Fault& f) {
      fault("at {:#x}: {}: {}", i.address, i.text, f.what());
    }
  }
}

}  // namespace

Counter counter_of(const Chip& chip, Counter what) {
  if (chip.major < 12 && what == kScalarMemory) return kLds;
  if (chip.major == 9 && what == kStores) return kLoads;
  return what;
}

void Wave::wait(Counter counter, int most) {
  const uint32_t n = issued[counter];
  if (n - done[counter] <= static_cast<uint32_t>(most)) return;
  if (most == 0) {
    done[counter] = n;
  } else if (unordered[counter] <= done[counter]) {  // all come back in order
    done[counter] = n - static_cast<uint32_t>(most);
  }
  while (!lds_copies.empty() && lds_copies.front().sequence <= done[kLoads]) lds_copies.pop_front();
  if (counter != kLds) return;
  while (!lds_accesses.empty() && lds_accesses.front().sequence <= done[kLds]) lds_accesses.pop_front();
}

void Wave::arrive() {
  ++arrived;
  for (const LdsAccess& a : lds_accesses) lds->postpone(a.address, a.bytes, number, arrived, a.writes);
  for (const LdsCopy& c : lds_copies)
    for (int l = 0; l < lanes; ++l)
      if (c.lanes >> l & 1)
        lds->postpone(c.address + static_cast<uint64_t>(l * c.bytes), c.bytes, number, arrived, true);
}

void Wave::need_copied(uint64_t address, int size) const {
  for (const LdsCopy& c : lds_copies) {
    const auto each = static_cast<uint64_t>(c.bytes), end = address + static_cast<uint64_t>(size);
    if (end <= c.address || address >= c.address + each * static_cast<uint64_t>(lanes)) continue;
    const uint64_t first = address <= c.address ? 0 : (address - c.address) / each;
    for (uint64_t l = first; l < static_cast<uint64_t>(lanes) && c.address + l * each < end; ++l)
      if (c.lanes >> l & 1)
        fault("LDS at {:#x} is touched before the load into it was waited for",
              std::max(address, c.address + l * each));
  }
}

void execute_group(Group& group, const std::vector<Instruction>& code, uint64_t* budget) {
  for (Wave& w : group.waves) w.lds = &group.lds;
  for (;;) {
    bool all_ended = true;
    for (Wave& w : group.waves) {
      if (!w.ended && !w.waits_at_barrier) {
        try {
          run(w, code, budget);
        } catch (const Fault& f) {
          fault("wave {} {}", w.number, f.what());
        }
      }
      all_ended = all_ended && w.ended;
    }
    if (all_ended) return;
    // All that have not ended wait at a barrier, or for one that all have arrived at.
    uint32_t reached = ~0U;
    for (const Wave& w : group.waves)
      if (!w.ended) reached = std::min(reached, w.arrived);
    bool moved = false;
    for (Wave& w : group.waves)
      if (w.waits_at_barrier && w.passed < reached) w.passed = w.passed + 1, w.waits_at_barrier = false, moved = true;
    if (!moved) fault("waves wait at a barrier that others never reach");
  }
}

}  // namespace lumen::amd
