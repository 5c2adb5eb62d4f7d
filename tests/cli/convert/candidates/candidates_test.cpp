// needs: none. Groups of candidates for `lumen quantize --budget`.
#include "cli/convert/candidates/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "run/engine/format_check.h"

namespace lumen::cli {
namespace {

using model::compress::parse_budget;

std::vector<FormatRef> candidates(const std::vector<std::string>& names, const char* budget = "kl=0.1") {
  static const FormatLibrary formats = FormatLibrary::builtin();
  return candidates_of(formats, names, parse_budget(budget), 1000000);
}

double fewest_bits(const std::vector<FormatRef>& formats) {
  double least = 1e9;
  for (const FormatRef& f : formats) least = std::min(least, f->bits_per_weight());
  return least;
}

TEST(Candidates, TheDefaultIsWhatOtherProgramsRead) {
  const std::vector<FormatRef> all = candidates({});
  EXPECT_GT(all.size(), 20U);
  for (const FormatRef& f : all) {
    EXPECT_TRUE(f->gguf_type) << f->name;
    EXPECT_LE(f->bits_per_weight(), 16) << f->name;
  }
  EXPECT_EQ(all, candidates({"gguf"}));
}

// Predictions for far fewer bits than the budget allows are not to be trusted.
TEST(Candidates, GroupsLeaveOutLessThanHalfOfTheBits) {
  EXPECT_LT(fewest_bits(candidates({})), 1.5);
  EXPECT_GE(fewest_bits(candidates({}, "4bpw")), 2);
  EXPECT_GE(fewest_bits(candidates({"any"}, "6bpw")), 3);
  EXPECT_GE(fewest_bits(candidates({"any"}, "500KB")), 2);  // 4 bits for a million weights
  EXPECT_LT(fewest_bits(candidates({"q1_0", "q8_0"}, "4bpw")), 1.5) << "what is named stays";
  // Budgets above the largest candidates leave those that budgets of 16 bits do.
  EXPECT_EQ(candidates({}, "40bpw"), candidates({}, "16bpw"));
  EXPECT_FALSE(candidates({}, "40bpw").empty());
}

TEST(Candidates, AnyHoldsNoFormatThatAnotherBeats) {
  const std::vector<FormatRef> all = candidates({"any"});
  EXPECT_TRUE(std::ranges::any_of(all, [](const FormatRef& f) { return !f->gguf_type; }));
  EXPECT_TRUE(
      std::ranges::any_of(all, [](const FormatRef& f) { return f->block <= 64 && f->bits_per_weight() < 2.5; }));
  std::vector<run::FormatError> errors;
  for (const FormatRef& f : all) errors.push_back(run::format_error(*f));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < all.size(); ++k) {
      if (i != k && all[i]->block % all[k]->block == 0 && all[k]->row_bytes == 0 &&
          all[k]->bits_per_weight() < all[i]->bits_per_weight()) {
        EXPECT_FALSE(errors[k].gaussian <= errors[i].gaussian && errors[k].heavy <= errors[i].heavy)
            << all[k]->name << " beats " << all[i]->name;
      }
    }
  // A format that has what another lacks stays: blocks that fit more rows.
  EXPECT_EQ(without_beaten({all[0]}).size(), 1U);
}

TEST(Candidates, NamesAreTakenOnceAndChecked) {
  EXPECT_EQ(candidates({"q8_0", "q4_0", "q8_0"}).size(), 2U);
  EXPECT_EQ(candidates({"q8_0", "gguf"}).size(), candidates({}).size());
  EXPECT_THROW((void)candidates({"q9_9"}), Error);
}

}  // namespace
}  // namespace lumen::cli
