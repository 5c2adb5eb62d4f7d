// needs: none. Recipes of several phases: read, printed, taken apart, and refused where they cannot follow one another.
#include "model/recipe/phases.h"

#include "base/error.h"
#include "base/file/file.h"
#include "tests/model/tiny.h"

namespace lumen::model::recipe {
namespace {

constexpr const char* kText = R"(
[run]
batch = 3
[optimizer]
weight_decay = 0.25
[[quantize]]
value = "*"
format = "q8_0"

[[phase]]
name = "texts"
[phase.schedule]
steps = 7

[[phase]]
name = "chats, with an adapter"
[phase.adapter]
method = "lora"
rank = 4
[phase.objective]
name = "dpo"
[phase.objective.settings]
beta = 0.5
[[phase.quantize]]
value = "*"
format = "q4_0"
)";

TEST(Phases, EachIsTheRecipeWithItsOwnValues) {
  const Recipe whole = parse_recipe(kText, "test");
  ASSERT_EQ(whole.phases.size(), 2U);
  const Recipe first = phase_recipe(whole, 0), second = phase_recipe(whole, 1);
  EXPECT_EQ(first.schedule.steps, 7);
  EXPECT_EQ(first.batch, 3);
  EXPECT_EQ(first.quantize.at(0).format, "q8_0");
  EXPECT_FALSE(first.adapter.trains());
  EXPECT_EQ(second.schedule.steps, Recipe().schedule.steps);
  EXPECT_EQ(second.batch, 3);
  EXPECT_EQ(second.adapter.rank, 4);
  EXPECT_EQ(second.objective.name, "dpo");
  EXPECT_EQ(second.objective.settings.at("beta"), 0.5);
  EXPECT_EQ(second.quantize.at(0).format, "q4_0");
  EXPECT_TRUE(second.phases.empty());
  EXPECT_EQ(phase_folder("run", whole, 1).string(), "run/2-chats--with-an-adapter");
}

TEST(Phases, WhatIsPrintedIsReadAgain) {
  const Recipe whole = parse_recipe(kText, "test");
  const std::string text = describe(whole);
  const Recipe again = parse_recipe(text, "test");
  EXPECT_EQ(describe(again), text);
  for (const size_t i : {0U, 1U}) EXPECT_EQ(describe(phase_recipe(again, i)), describe(phase_recipe(whole, i)));
}

TEST(Phases, SettingsAreOfTheirObjective) {
  const Recipe whole = parse_recipe(
      "[objective]\nname = \"dpo\"\n[objective.settings]\nbeta = 0.5\nlabel_smoothing = 0.1\n"
      "[[phase]]\nname = \"a\"\n"
      "[[phase]]\nname = \"b\"\n[phase.objective]\nname = \"simpo\"\n[phase.objective.settings]\nbeta = 0.5\n",
      "test");
  EXPECT_EQ(phase_recipe(whole, 0).objective.settings.size(), 2U);
  const Recipe b = phase_recipe(parse_recipe(describe(whole), "test"), 1);
  EXPECT_EQ(b.objective.name, "simpo");
  EXPECT_EQ(b.objective.settings, (std::map<std::string, double>{{"beta", 0.5}}));
}

std::string refusal(const std::string& text) {
  try {
    check_phases(parse_recipe(text, "test"));
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Phases, WhatCannotFollowIsRefused) {
  const std::string lora = "[[phase]]\nname = \"a\"\n[phase.adapter]\nmethod = \"lora\"\n";
  const std::string full = "[[phase]]\nname = \"a\"\n";
  EXPECT_EQ(refusal(full + "[[phase]]\nname = \"b\"\n"), "accepted");
  EXPECT_EQ(refusal(lora + "[[phase]]\nname = \"b\"\nbegin = \"merged\"\n"), "accepted");
  EXPECT_EQ(refusal(lora + "[[phase]]\nname = \"b\"\nbegin = \"adapter\"\n[phase.adapter]\nmethod = \"lora\"\n"),
            "accepted");
  EXPECT_NE(refusal(lora + "[[phase]]\nname = \"b\"\n").find("trains an adapter"), std::string::npos);
  EXPECT_NE(refusal(full + "[[phase]]\nname = \"b\"\nbegin = \"merged\"\n").find("trains no adapter"),
            std::string::npos);
  EXPECT_NE(
      refusal(lora + "[[phase]]\nname = \"b\"\nbegin = \"adapter\"\n[phase.adapter]\nmethod = \"lora\"\nrank = 3\n")
          .find("another method, rank"),
      std::string::npos);
  EXPECT_NE(refusal(full + full).find("two phases are called"), std::string::npos);
  EXPECT_NE(refusal("[[phase]]\nname = \"a\"\nbegin = \"merged\"\n").find("none before it"), std::string::npos);
  EXPECT_NE(refusal("[[phase]]\nname = \"a\"\nbegin = \"x\"\n").find("cannot begin with"), std::string::npos);
  EXPECT_THROW((void)parse_recipe("[[phase]]\nname = \"a\"\nsteps = 3\n", "test"), Error);
}

TEST(Phases, StateIsKept) {
  const TestFolder folder;
  EXPECT_FALSE(read_phases(folder.path()));
  write_phases(folder.path(), {"text", "model.gguf", 2});
  const auto state = read_phases(folder.path());
  ASSERT_TRUE(state);
  EXPECT_EQ(state->recipe, "text");
  EXPECT_EQ(state->model, "model.gguf");
  EXPECT_EQ(state->done, 2U);
  write_file_atomic(folder / "phases.json", "{\"recipe\": 3}");
  EXPECT_THROW((void)read_phases(folder.path()), Error);
}

TEST(Phases, ReadyRecipesFollow) {
  for (const std::string& name : test_library()->recipe_names()) {
    const Recipe r = parse_recipe(test_library()->recipe(name)->text, name);
    EXPECT_NO_THROW(check_phases(r)) << name;
  }
}

}  // namespace
}  // namespace lumen::model::recipe
