// Branches, waits, barriers, the end, MODE; and hints to the hardware, which mean nothing here.
#include "tests/amd/execute/scalars.h"

namespace lumen::amd {
namespace {

enum : uint32_t { kAlways, kScc0, kScc1, kVccZero, kVccNot, kExecZero, kExecNot };

void branch(Wave& w, const Instruction& i) {
  bool taken = true;
  switch (i.number) {
    case kScc0:
      taken = !w.scc;
      break;
    case kScc1:
      taken = w.scc;
      break;
    case kVccZero:
      taken = w.mask(kVcc) == 0;
      break;
    case kVccNot:
      taken = w.mask(kVcc) != 0;
      break;
    case kExecZero:
      taken = w.exec() == 0;
      break;
    case kExecNot:
      taken = w.exec() != 0;
      break;
    default:
      break;
  }
  if (!taken) return;
  if (i.target < 0) fault("a branch to no instruction of the kernel");
  w.place = static_cast<uint64_t>(i.target);
}

void wait(Wave& w, const Instruction& i) {
  for (int c = 0; c < kCounters; ++c)
    if (i.most[c] >= 0) w.wait(static_cast<Counter>(c), i.most[c]);
}
void nothing(Wave&, const Instruction&) {}
void end(Wave& w, const Instruction&) {
  if (!w.lds_copies.empty()) fault("the wave ends while a load into LDS is under way");
  w.ended = true;
}
void barrier(Wave& w, const Instruction&) {
  w.arrive();
  w.waits_at_barrier = true;
}
// The only barrier of a work-group that is known is number -1.
void signal(Wave& w, const Instruction& i) {
  if (static_cast<int32_t>(i.at[0].bits) != -1) fault("another barrier than the work-group's");
  if (w.arrived > w.passed) fault("the barrier is signaled twice before it is waited for");
  w.arrive();
}
void wait_signal(Wave& w, const Instruction& i) {
  if (static_cast<int16_t>(i.at[0].bits) != -1) fault("another barrier than the work-group's");
  if (w.arrived == w.passed) fault("a barrier is waited for that was not signaled");
  w.waits_at_barrier = true;
}
void get_pc(Wave& w, const Instruction& i) {
  set_scalar64(w, i.at[0], w.code_base + i.address + i.bytes);
}

void set_pc(Wave& w, const Instruction& i) {
  w.jump = scalar64(w, i.at[0]);
}

// The only hardware register that is known is MODE; `number`: 2 it is read.
void access_mode(Wave& w, const Instruction& i) {
  const int low = static_cast<int>(i.offset & 31), bits = static_cast<int>(i.offset1);
  const uint32_t mask = (bits >= 32 ? ~0U : (1U << bits) - 1) << low;
  if (i.number == 2) return set_scalar32(w, i.at[0], (w.mode & mask) >> low);
  const uint32_t value = scalar32(w, i.at[1]);
  w.mode = (w.mode & ~mask) | (value << low & mask);
  if ((w.mode & 0xff) != 0xf0) fault("MODE becomes {:#x}: other rounding, or denormals flushed, is not known", w.mode);
}

void add_hints(const Chip& chip, Operations& t) {
  for (const char* name : {"s_nop",
                           "s_clause",
                           "s_delay_alu",
                           "s_wait_alu",
                           "s_waitcnt_depctr",
                           "s_sendmsg",
                           "s_sleep",
                           "s_setprio",
                           "s_set_inst_prefetch_distance",
                           "s_inst_prefetch",
                           "s_icache_inv",
                           "s_wait_idle",
                           "s_code_end",
                           "buffer_gl0_inv",
                           "buffer_gl1_inv",
                           "buffer_inv",
                           "buffer_wbl2",
                           "buffer_wbinvl1",
                           "buffer_wbinvl1_vol",
                           "global_inv",
                           "global_wb",
                           "global_wbinv",
                           "s_dcache_inv",
                           "s_dcache_wb",
                           "s_prefetch_inst",
                           "s_prefetch_data",
                           "s_wakeup",
                           "s_ttracedata"})
    t[name] = {.run = nothing, .results = 0, .shape = Operation::Shape::ignored};
  (void)chip;
}

}  // namespace

void add_control(const Chip& chip, Operations& t) {
  const auto jump = [&](const char* name, uint32_t when, Operation::Shape shape = Operation::Shape::branch) {
    t[name] = {.run = branch, .results = 0, .number = when, .shape = shape};
  };
  jump("s_branch", kAlways);
  jump("s_cbranch_scc0", kScc0);
  jump("s_cbranch_scc1", kScc1);
  jump("s_cbranch_vccz", kVccZero);
  jump("s_cbranch_vccnz", kVccNot);
  jump("s_cbranch_execz", kExecZero);
  jump("s_cbranch_execnz", kExecNot);
  for (const char* name : {"s_waitcnt", "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt",
                           "s_wait_loadcnt", "s_wait_storecnt", "s_wait_dscnt", "s_wait_kmcnt", "s_wait_expcnt",
                           "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt", "s_wait_samplecnt", "s_wait_bvhcnt"})
    t[name] = {.run = wait, .results = 0, .shape = Operation::Shape::wait};
  t["s_endpgm"] = {.run = end, .results = 0, .shape = Operation::Shape::ignored};
  t["s_barrier"] = {.run = barrier, .results = 0, .shape = Operation::Shape::ignored};
  t["s_barrier_signal"] = {.run = signal, .types = {Type::b32}, .results = 0};
  t["s_barrier_wait"] = {.run = wait_signal, .types = {Type::b32}, .results = 0};
  t["s_setpc_b64"] = {.run = set_pc, .types = {Type::b64}, .results = 0};
  t["s_getpc_b64"] = {.run = get_pc, .types = {Type::b64}};
  t["s_setreg_imm32_b32"] = t["s_setreg_b32"] = {.run = access_mode, .types = {Type::none, Type::b32}, .results = 0};
  t["s_getreg_b32"] = {.run = access_mode, .types = {Type::b32}, .number = 2};
  add_hints(chip, t);
}

}  // namespace lumen::amd
