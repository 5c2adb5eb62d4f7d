// Needs: none. Which kernels every machine gets: one line for each shape and format, with the plan and a digest of each
// kernel's text, against tests/golden/plans.
#include <gtest/gtest.h>

#include <algorithm>

#include "golden_text.h"
#include "grid.h"

namespace lumen::golden {
namespace {

// Machines of one file of machine tables, in their order.
struct Family {
  std::string name;
  std::vector<machine::Machine> (*machines)();
};
void PrintTo(const Family& f, std::ostream* out) {
  *out << f.name;
}
const std::vector<Family> kFamilies = {{"x86", machine::x86_machines},
                                       {"arm", machine::arm_machines},
                                       {"nvidia", machine::nvidia_machines},
                                       {"amd", machine::amd_machines}};

// The tuner's other plans are many and alike.
const std::set<std::string> kWithOthers = {"f32 prompt", "bf16 prompt", "q4_0 prompt", "q4_k prompt"};

class Plans : public testing::TestWithParam<Family> {};

// "CASE | MACHINES | PLANS": machines with the same kernels share a line.
TEST_P(Plans, AreAsCommitted) {
  const std::vector<machine::Machine> machines = GetParam().machines();
  std::string table;
  for (const Case& c : grid()) {
    std::vector<std::pair<std::string, std::string>> rows;  // plans, and the machines that have them
    for (const machine::Machine& m : machines) {
      const std::vector<Made> made = make(c, m, kWithOthers.contains(c.name));
      keep_text(fmt::format("plans/{}/{}.loop", m.name, c.name), [&] { return text_of(made); });
      std::string plans;
      for (const Made& one : made) plans += (plans.empty() ? "" : "; ") + line_of(one);
      const auto known = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == plans; });
      if (known == rows.end()) {
        rows.emplace_back(plans, m.name);
      } else {
        known->second += " " + m.name;
      }
    }
    for (const auto& [plans, names] : rows) table += fmt::format("{} | {} | {}\n", c.name, names, plans);
  }
  expect_text(fmt::format("plans/{}.txt", GetParam().name), table);
}
INSTANTIATE_TEST_SUITE_P(Machines, Plans, testing::ValuesIn(kFamilies), [](const auto& of) { return of.param.name; });

TEST(PlanFiles, HoldEveryMachine) {
  size_t count = 0;
  std::set<std::string> files;
  for (const Family& f : kFamilies) {
    files.insert(f.name + ".txt");
    count += f.machines().size();
  }
  EXPECT_EQ(count, machine::all_machines().size());
  expect_no_others("plans", files);
}

TEST(PlanCases, NamesAreDifferent) {
  std::set<std::string> names;
  for (const Case& c : grid()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

}  // namespace
}  // namespace lumen::golden
