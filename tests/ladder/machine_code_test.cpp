// needs: cpu (rows this processor lacks are skipped by name). Every instruction row against its meaning, bit for bit.
#include <gtest/gtest.h>

#include "dot_native.h"
#include "kernel/loop/build.h"

namespace lumen {
namespace {

// One kernel: operands in, row, result out; over several rounds of random bytes.
loop::Kernel row_kernel(const machine::Machine& m, const machine::Row& row, int rounds) {
  const loop::Function* f = m.meaning(row.name);
  loop::Builder b("row");
  auto bytes = [](loop::VType t) { return int64_t{t.lanes} * scalar_bytes(t.scalar); };
  std::vector<loop::BufferId> operands;
  for (loop::ValueId p : f->params)
    operands.push_back(b.param("x" + std::to_string(p), bytes(f->body.value_types[p]) * rounds, false));
  const loop::VType type = f->body.value_types[f->result];
  const loop::BufferId out = b.param("out", bytes(type) * rounds, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(rounds), 1, [&](loop::ValueId round) {
    std::vector<loop::ValueId> values;
    for (size_t i = 0; i < operands.size(); ++i) {
      const loop::VType t = f->body.value_types[f->params[i]];
      values.push_back(b.load(operands[i], t, b.mul(round, b.i64(bytes(t)))));
    }
    b.store(out, b.inst(row.name, type, values), b.mul(round, b.i64(bytes(type))));
  });
  return b.finish();
}

TEST(MachineCode, RowsDoWhatTheyMean) {
  int proven = 0;
  for (const auto& m : machine::all_machines()) {
    if (!machine::runs_here(*m)) continue;
    for (const machine::Row& row : m->rows) {
      const loop::Kernel k = row_kernel(*m, row, 64);
      std::mt19937 random(3);
      std::vector<test::Bytes> memory;
      for (const loop::BufferParam& p : k.params) {
        memory.emplace_back(static_cast<size_t>(p.bytes));
        for (uint8_t& x : memory.back()) x = static_cast<uint8_t>(random());
      }
      std::vector<test::Bytes> expected = memory;
      std::vector<std::span<uint8_t>> spans(expected.begin(), expected.end());
      loop::eval(k, spans, [&](std::string_view name) { return m->meaning(name); });
      std::vector<void*> buffers;
      for (test::Bytes& b : memory) buffers.push_back(b.data());
      test::run_kernel(k, buffers, *m, 1);
      EXPECT_EQ(memory.back(), expected.back()) << m->name << " " << row.name;
      ++proven;
    }
  }
  if (proven == 0) GTEST_SKIP() << "no machine of the table runs here";
}

}  // namespace
}  // namespace lumen
