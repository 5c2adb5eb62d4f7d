// What a test has shown of a target, as a property of the test in gtest's own results, and a line of a file of this
// process in the folder LUMEN_TEST_RESULTS: programs and shards that run at the same time do not overwrite each other.
// tools/targets.py makes the table of docs/reference/targets.md of them. A test that fails has shown nothing.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

namespace lumen::test {

// Keeps what passing tests have recorded, from the first one that does.
inline void keep_what_passes() {
  struct Keeper : testing::EmptyTestEventListener {
    void OnTestEnd(const testing::TestInfo& test) override {
      const char* folder = std::getenv("LUMEN_TEST_RESULTS");
      const testing::TestResult& result = *test.result();
      if (!folder || !*folder || !result.Passed()) return;
      std::ofstream file(std::string(folder) + "/" + std::to_string(getpid()) + ".jsonl", std::ios::app);
      for (int n = 0; n < result.test_property_count(); ++n) {
        const testing::TestProperty& p = result.GetTestProperty(n);
        if (std::string(p.key()) == "verified")
          file << R"({"classname": ")" << test.test_suite_name() << R"(", "name": ")" << test.name()
               << R"(", "verified": ")" << p.value() << "\"}\n";
      }
    }
  };
  static const bool kept = (testing::UnitTest::GetInstance()->listeners().Append(new Keeper), true);
  (void)kept;
}

// `kind`: one of tools/targets.py. `how`: hardware, interpreted (machine code executed by a tool or an emulator),
// evaluated (as loop IR), compiled.
inline void verified(const std::string& target, const std::string& kind, const std::string& how) {
  static std::string of;
  static std::set<std::string> all;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (!test || testing::Test::HasFailure()) return;
  keep_what_passes();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  if (name != of) all.clear();
  of = name;
  if (!all.insert(target + "|" + kind + "|" + how).second) return;
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ";") + one;
  testing::Test::RecordProperty("verified", text);
}

// The kind of a kernel, by the beginning of its plan: "dot 5x75 ..", "attend gradient ..".
inline std::string kind_of(const std::string& plan) {
  if (plan.starts_with("attend")) return plan.starts_with("attend gradient") ? "attend gradient" : "attend";
  if (plan.starts_with("dot")) return plan.find("mma") == std::string::npos ? "dot" : "dot, matrix";
  return plan.substr(0, plan.find_first_of(" :,"));
}

}  // namespace lumen::test
