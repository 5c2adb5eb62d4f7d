// needs: cpu (machines this processor lacks are left out). Every instruction row against its meaning, bit for bit; the
// AArch64 rows are proven by tests/ladder/dot_arm_test.cpp and tests/emit/foreign_test.cpp.
#include <gtest/gtest.h>

#include "dot_native.h"
#include "row_kernel.h"
#include "tests/verified.h"

namespace lumen {
namespace {

TEST(MachineCode, RowsDoWhatTheyMean) {
  int proven = 0;
  for (const auto& m : machine::all_machines()) {
    if (!machine::runs_here(*m)) continue;
    for (const machine::Row& row : m->rows) {
      const dot_test::Case c = dot_test::row_case(*m, row);
      EXPECT_EQ(dot_test::run_native(c, *m, 1), c.after) << m->name << " " << row.name;
      ++proven;
    }
    test::verified(m->name, "instructions", "hardware");
  }
  if (proven == 0) GTEST_SKIP() << "no machine of the table runs here";
}

}  // namespace
}  // namespace lumen
