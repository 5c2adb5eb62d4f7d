// needs: none. Budgets as users write them; what is none is refused with what is wrong.
#include "model/compress/choose/budget.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lumen::model::compress {
namespace {

TEST(Budget, AsUsersWriteThem) {
  using Kind = Budget::Kind;
  const std::vector<std::pair<const char*, Budget>> all = {
      {"4.2bpw", {Kind::bits, 4.2}},
      {"3.5GB", {Kind::bytes, 3.5e9}},
      {"3.5GiB", {Kind::bytes, 3.5 * (1 << 30)}},
      {" 900 mb", {Kind::bytes, 9e8}},
      {"1_000_000 bytes", {Kind::bytes, 1e6}},
      {"kl=0.02", {Kind::divergence, 0.02}},
      {"KL = 1e-3", {Kind::divergence, 1e-3}},
      {"ppl=+1%", {Kind::loss, 0.01}},
      {"PPL=+.5%", {Kind::loss, 0.005}},
      {"12.5ms", {Kind::time, 12.5}},
      {"512KiB", {Kind::bytes, 524288}},
      {"kl=0", {Kind::divergence, 0}},
  };
  for (const auto& [text, budget] : all) {
    const Budget parsed = parse_budget(text);
    EXPECT_EQ(parsed.kind, budget.kind) << text;
    EXPECT_DOUBLE_EQ(parsed.value, budget.value) << text;
    const Budget again = parse_budget(parsed.text());
    EXPECT_EQ(again.kind, budget.kind) << parsed.text();
    EXPECT_NEAR(again.value, budget.value, 1e-12 * budget.value) << parsed.text();
  }
  EXPECT_EQ(parse_budget("4bpw").most_bytes(1000), 500);
  EXPECT_EQ(parse_budget("4.5bpw").most_bytes(15), 8) << "never above the budget";
  EXPECT_NEAR(parse_budget("ppl=+1%").most_score(), std::log(1.01), 1e-15);
  EXPECT_EQ(parse_budget("kl=0.25").most_score(), 0.25);
}

TEST(Budget, WhatIsNoneIsRefused) {
  for (const char* text :
       {"",        " ",      "4.2",      "bpw",      "-3GB", "+3GB",  "0GB",        "0bpw",       "nan bpw", "inf GB",
        "1e400GB", "3.5 GX", "3.5GB2",   "kl",       "kl=",  "kl=-1", "kl=x",       "kl=0.1nats", "kl=nan",  "ppl=1%",
        "ppl=+1",  "ppl=+%", "ppl=+-1%", "ppl=+1%%", "x=3",  "=3",    "4.2bpw,3GB", "1e30TB",     "0x10GB"}) {
    try {
      (void)parse_budget(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << text;
      EXPECT_NE(std::string(e.what()).find("is no budget"), std::string::npos) << e.what();
      EXPECT_NE(e.hint().find("4.2bpw"), std::string::npos) << text;
    }
  }
  EXPECT_THROW((void)parse_budget(std::string(5000, '1')), Error);
}

}  // namespace
}  // namespace lumen::model::compress
