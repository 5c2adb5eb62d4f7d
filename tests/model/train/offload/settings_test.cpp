// needs: none. What --offload may say.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/recipe/offload_settings.h"
#include "model/recipe/recipe.h"

namespace lumen::model {
namespace {

TEST(OffloadSettings, NamePlaces) {
  EXPECT_FALSE(offload_settings("").any());
  EXPECT_EQ(offload_settings("moments").moments, (OffloadPlace{false, ""}));
  EXPECT_EQ(offload_settings("moments=host").moments, (OffloadPlace{true, ""}));
  EXPECT_EQ(offload_settings("moments=/nvme/here").moments, (OffloadPlace{false, "/nvme/here"}));
  const OffloadSettings both = offload_settings("layers=host,moments=/nvme");
  EXPECT_EQ(both.layers, (OffloadPlace{true, ""}));
  EXPECT_EQ(both.moments, (OffloadPlace{false, "/nvme"}));
  EXPECT_EQ(offload_settings("layers=host").moments, (OffloadPlace{true, ""}));
  const OffloadSettings kept = offload_settings("activations=host,layers=/nvme");
  EXPECT_EQ(kept.activations, (OffloadPlace{true, ""}));
  EXPECT_EQ(kept.layers, (OffloadPlace{false, "/nvme"}));
  EXPECT_FALSE(offload_settings("activations").moments);
  EXPECT_TRUE(offload_settings("activations").any());
}

TEST(OffloadSettings, RefuseTheRest) {
  for (const char* text : {"moment", "moments=", "moments,moments", "moments,", ",moments", "host", "=host", ","}) {
    try {
      (void)offload_settings(text);
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << text;
    }
  }
  EXPECT_THROW((void)parse_recipe("[memory]\noffload = \"everything\"\n", "a recipe"), Error);
}

TEST(OffloadSettings, AreAKeyOfRecipes) {
  const Recipe r = parse_recipe("[memory]\noffload = \"moments=host\"\n", "a recipe");
  EXPECT_EQ(r.offload, "moments=host");
  EXPECT_EQ(parse_recipe(describe(r), "again").offload, "moments=host");
}

}  // namespace
}  // namespace lumen::model
