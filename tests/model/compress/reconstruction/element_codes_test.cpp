// needs: none. Which formats store each element as a code of its own, and which elements share a grid.
#include "model/compress/reconstruction/element_codes.h"

#include <gtest/gtest.h>

#include "tests/model/compress/reconstruction/reconstruction_case.h"

namespace lumen::model::compress {
namespace {

TEST(ElementCodes, GroupsFollowFromWhatIsDecoded) {
  const auto found = [](const std::string& name) {
    ElementCodes codes;
    std::string why;
    EXPECT_TRUE(find_element_codes(*reconstruction_format(name), &codes, &why)) << name << ": " << why;
    return codes;
  };
  for (const auto& [name, groups, bits] : {std::tuple{"q4_0", 1, 4},
                                           {"q4_k", 8, 4},
                                           {"q2_k", 16, 2},
                                           {"q3_k", 16, 3},
                                           {"q6_k", 16, 6},
                                           {"nvfp4", 4, 4},
                                           {"int3_g64", 1, 3},
                                           {"iq4_xs", 8, 4}}) {
    const ElementCodes codes = found(name);
    EXPECT_EQ(codes.groups, groups) << name;
    EXPECT_EQ(codes.bits, bits) << name;
    EXPECT_EQ(std::ssize(codes.group), reconstruction_format(name)->block) << name;
  }
  const ElementCodes rows = found("fp8_row");
  EXPECT_TRUE(rows.group.empty());
  EXPECT_EQ(rows.span(*reconstruction_format("fp8_row"), 96), 96);
  EXPECT_EQ(rows.span(*reconstruction_format("fp8_tile"), 512), 128);
}

TEST(ElementCodes, Refusals) {
  const auto why = [](const std::string& name) {
    ElementCodes codes;
    std::string text;
    EXPECT_FALSE(find_element_codes(*reconstruction_format(name), &codes, &text)) << name;
    return text;
  };
  for (const char* name : {"iq2_xxs", "iq3_s", "tq1_0", "trellis2"})
    EXPECT_EQ(why(name), "each of its codes is for several values, so that no value can be changed alone") << name;
  EXPECT_EQ(why("q8_1"), "its field 's' follows from others, and values moved alone would leave it wrong");
  EXPECT_EQ(why("bf16"), "its codes have 16 bits, which leaves nothing to learn");
}

}  // namespace
}  // namespace lumen::model::compress
