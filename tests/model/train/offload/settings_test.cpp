// needs: none. What --offload may say.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/recipe/offload_settings.h"
#include "model/recipe/recipe.h"

namespace lumen::model::train {
namespace {

TEST(OffloadSettings, NamePlaces) {
  EXPECT_FALSE(recipe::offload_settings("").any());
  EXPECT_EQ(recipe::offload_settings("moments").moments, (recipe::OffloadPlace{false, ""}));
  EXPECT_EQ(recipe::offload_settings("moments=host").moments, (recipe::OffloadPlace{true, ""}));
  EXPECT_EQ(recipe::offload_settings("moments=/nvme/here").moments, (recipe::OffloadPlace{false, "/nvme/here"}));
  const recipe::OffloadSettings both = recipe::offload_settings("layers=host,moments=/nvme");
  EXPECT_EQ(both.layers, (recipe::OffloadPlace{true, ""}));
  EXPECT_EQ(both.moments, (recipe::OffloadPlace{false, "/nvme"}));
  EXPECT_EQ(recipe::offload_settings("layers=host").moments, (recipe::OffloadPlace{true, ""}));
  const recipe::OffloadSettings kept = recipe::offload_settings("activations=host,layers=/nvme");
  EXPECT_EQ(kept.activations, (recipe::OffloadPlace{true, ""}));
  EXPECT_EQ(kept.layers, (recipe::OffloadPlace{false, "/nvme"}));
  EXPECT_FALSE(recipe::offload_settings("activations").moments);
  EXPECT_TRUE(recipe::offload_settings("activations").any());
}

TEST(OffloadSettings, RefuseTheRest) {
  for (const char* text : {"moment", "moments=", "moments,moments", "moments,", ",moments", "host", "=host", ","}) {
    try {
      (void)recipe::offload_settings(text);
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << text;
    }
  }
  EXPECT_THROW((void)recipe::parse_recipe("[memory]\noffload = \"everything\"\n", "a recipe"), Error);
}

TEST(OffloadSettings, AreAKeyOfRecipes) {
  const recipe::Recipe r = recipe::parse_recipe("[memory]\noffload = \"moments=host\"\n", "a recipe");
  EXPECT_EQ(r.offload, "moments=host");
  EXPECT_EQ(recipe::parse_recipe(describe(r), "again").offload, "moments=host");
}

}  // namespace
}  // namespace lumen::model::train
