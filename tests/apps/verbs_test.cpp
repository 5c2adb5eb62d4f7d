// needs: none. Command lines of the applications: their options are rows of the table of options.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/command.h"
#include "cli/settings/declare.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

TEST(VerbsOfApplications, OptionsHaveBoundsDefaultsAndPlaces) {
  EXPECT_TRUE(contains(lumen({"federate", "simulate", "--help"}).out, "Allocation:"));
  EXPECT_TRUE(contains(lumen({"diffuse", "sample", "--help"}).out, "INT:1 to 1000=10"));
  const Outcome o = lumen({"federate", "partition", "/", "-o", "x", "--clients", "0"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(contains(o.error, "--clients: 0 is not from 1 to 100,000")) << o.error;
  EXPECT_EQ(lumen({"recommend", "study", "x", "--only", "nothing"}).code, 2);
}

TEST(VerbsOfApplications, RequiredOptionsAreAskedFor) {
  EXPECT_TRUE(contains(lumen({"federate", "simulate", "/"}).error, "--family is missing"));
  EXPECT_FALSE(setting("federate serve", "--family").is_required);  // --resume knows it
  EXPECT_TRUE(contains(lumen({"classify", "export", "/"}).error, "--out is missing"));
}

// The rows that two applications share are each's own, with its command and help.
TEST(VerbsOfApplications, TrainingOnImages) {
  for (const char* command : {"diffuse train", "classify train"}) {
    EXPECT_EQ(setting(command, "--steps").most, 100'000'000) << command;
    EXPECT_STREQ(setting(command, "--steps").commands, command);
  }
  EXPECT_NE(std::string(setting("diffuse train", "--family").help), setting("classify train", "--family").help);
  EXPECT_EQ(setting("diffuse train", "--steps").variable(), "LUMEN_DIFFUSE_STEPS");
}

TEST(VerbsOfApplications, VariablesReachTheOptions) {
  ::setenv("LUMEN_RECOMMEND_USERS", "0", 1);
  const Outcome o = lumen({"recommend", "sample", "-o", "x"});
  ::unsetenv("LUMEN_RECOMMEND_USERS");
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(contains(o.error, "LUMEN_RECOMMEND_USERS")) << o.error;
}

}  // namespace
}  // namespace lumen::cli
