// What a test has shown of a target, as a property of the test in gtest's own results (GTEST_OUTPUT=json:FOLDER/),
// where tools/targets.py finds it and makes the table of docs/targets.md of it. A test that fails has shown nothing.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lumen::test {

// `kind`: one of tools/targets.py. `how`: hardware, interpreted (machine code executed by a tool or an emulator),
// evaluated (as loop IR), compiled.
inline void verified(const std::string& target, const std::string& kind, const std::string& how) {
  static std::string of;
  static std::set<std::string> all;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (!test || testing::Test::HasFailure()) return;
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
