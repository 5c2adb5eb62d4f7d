// needs: none. What a checkpoint tells of its run: enough to go on from it alone, and to see what has changed.
#include "model/recipe/record/record.h"

#include <fstream>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "model/recipe/recipe_keys.h"
#include "model/train/loop/loop.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::recipe {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

arch::Model fresh(const text::Tokenizer& tokenizer) {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
  model.tokenizer = tokenizer;
  return model;
}

TEST(Record, ARunComesBackFromItsCheckpointAlone) {
  const TestFolder folder;
  std::ofstream(folder / "text.txt") << train::training_text();
  const data::Documents documents = data::load_documents(folder / "text.txt");
  arch::Model model = fresh(text::Tokenizer::characters(documents.contents[0]));
  model.name = "mine";
  model.metadata.set("general.author", std::string("somebody"));
  model.files["generation_config.json"] = "{\"temperature\": 0.5}";
  const auto data = std::make_shared<data::Dataset>(data::Dataset::from(documents, *model.tokenizer));
  Recipe recipe = train::small_recipe();
  recipe.data = (folder / "text.txt").string();
  train::Trainer straight(engine(), model, recipe, data);
  for (int i = 0; i < 3; ++i) (void)straight.step();
  const fs::path saved = straight.save(folder.path());
  (void)straight.step();

  const file::Checkpoint checkpoint = file::load_checkpoint(saved, test_library()->formats());
  StoredRun run = read_run(test_library(), checkpoint);
  EXPECT_EQ(describe(run.recipe), describe(straight.recipe()));
  EXPECT_EQ(run.model.name, "mine");
  EXPECT_EQ(run.model.config, model.config);
  EXPECT_EQ(run.model.files, model.files);
  EXPECT_EQ(run.model.metadata.text("general.author"), "somebody");
  EXPECT_EQ(run.tokens, data->token_hash());
  ASSERT_EQ(run.files.size(), 1U);
  EXPECT_EQ(run.files[0].path, recipe.data);
  EXPECT_EQ(data_changes(run.files, data::load_documents(run.recipe.data).files), "");
  const auto again =
      std::make_shared<data::Dataset>(data::Dataset::from(data::load_documents(run.recipe.data), *run.model.tokenizer));
  EXPECT_EQ(again->token_hash(), run.tokens);
  train::Trainer second(engine(), run.model, run.recipe, again);
  second.restore(checkpoint);
  (void)second.step();
  EXPECT_EQ(weights_of(second), weights_of(straight));
  // Whole files are alike, with all that the model carried along.
  write_gguf(straight.model(), folder / "a.gguf");
  write_gguf(second.model(), folder / "b.gguf");
  EXPECT_TRUE(read_file(folder / "a.gguf") == read_file(folder / "b.gguf"));
}

// The same for models that came from files of others.
TEST(Record, ModelsOfFilesCarryWhatTheyCame) {
  const fs::path fixtures = fs::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/families";
  for (const char* name : {"llama", "qwen3", "gemma2"}) {
    const TestFolder folder;
    arch::Model model = read_model(test_library(), fixtures / name);
    if (!model.tokenizer) model.tokenizer = text::Tokenizer::characters(train::training_text());
    model = compress::dequantize(engine(), model);
    write_gguf(model, folder / "model.gguf");
    arch::Model of_gguf = read_model(test_library(), folder / "model.gguf");
    for (const arch::Model* m : {&model, &of_gguf}) {
      const data::Dataset data = data::Dataset::from_text("some text", text::Tokenizer::characters("some text"));
      file::CheckpointContent content;
      content.state.step = m == &model ? 1 : 2;
      content.state.config = describe(train::small_recipe());
      record_run(*m, data.files(), data.token_hash(), &content);
      for (const arch::Parameter& p : m->parameters) {
        file::TensorSpec spec;
        spec.name = p.name;
        for (const graph::Dim& d : p.shape) spec.shape.push_back(d.number());
        content.weights.push_back(spec);
      }
      std::vector<float> values;
      content.fetch = [&](const file::TensorSpec& spec) {
        const arch::Weight& w = m->weights.at(spec.name);
        EXPECT_TRUE(w.is_f32()) << name << " " << spec.name;
        return std::span<const uint8_t>(w.bytes.data(), w.bytes.size());
      };
      const fs::path saved = save_checkpoint(folder.path(), content);
      const StoredRun run = read_run(test_library(), file::load_checkpoint(saved, test_library()->formats()));
      write_gguf(*m, folder / "before.gguf");
      write_gguf(run.model, folder / "after.gguf");
      EXPECT_TRUE(read_file(folder / "before.gguf") == read_file(folder / "after.gguf")) << name;
      const std::string text = "the cat";
      EXPECT_EQ(run.model.tokenizer->encode(text), m->tokenizer->encode(text)) << name;
    }
  }
}

// trainer_state.json is a file like others: what it says is checked.
TEST(Record, HostileStatesAreErrors) {
  const TestFolder folder;
  const arch::Model model = fresh(text::Tokenizer::characters(train::training_text()));
  const data::Dataset data = data::Dataset::from_text(train::training_text(), *model.tokenizer);
  const std::vector<std::function<void(nlohmann::json&, std::string&)>> wrong = {
      [](auto& more, auto&) { more.erase("family"); },
      [](auto& more, auto&) { more["family"] = "no such family"; },
      [](auto& more, auto&) { more["config"] = 3; },
      [](auto& more, auto&) { more["config"]["layers"] = "two"; },
      [](auto& more, auto&) { more["config"]["layers"] = 3; },
      [](auto& more, auto&) { more["config"]["layers"] = 1e300; },
      [](auto& more, auto&) { more["config"]["layers"] = 1e12; },
      [](auto& more, auto&) { more["config"]["hidden"] = -1; },
      [](auto& more, auto&) { more["config"]["nonsense"] = 1; },
      [](auto& more, auto&) { more["data"] = nullptr; },
      [](auto& more, auto&) { more["data"]["tokens_xxh3_128"] = "xyz"; },
      [](auto& more, auto&) { more["data"]["files"] = {3}; },
      [](auto& more, auto&) { more["data"]["files"] = {{{"path", "a"}, {"bytes", -1}, {"xxh3_128", "0"}}}; },
      [](auto&, auto& recipe) { recipe = "[schedule]\nsteps = 0\n"; },
      [](auto&, auto& recipe) { recipe = "[schedule]\nlearning_rate = nan\n"; },
      [](auto&, auto& recipe) { recipe = "]["; },
  };
  for (size_t i = 0; i <= wrong.size(); ++i) {
    file::CheckpointContent content;
    content.state.step = static_cast<int64_t>(i);
    content.state.config = describe(train::small_recipe());
    record_run(model, data.files(), data.token_hash(), &content);
    if (i < wrong.size()) wrong[i](content.state.more, content.state.config);
    for (const arch::Parameter& p : model.parameters) {
      file::TensorSpec spec;
      spec.name = p.name;
      for (const graph::Dim& d : p.shape) spec.shape.push_back(d.number());
      content.weights.push_back(spec);
    }
    content.fetch = [&](const file::TensorSpec& spec) {
      const arch::Weight& w = model.weights.at(spec.name);
      return std::span<const uint8_t>(w.bytes.data(), w.bytes.size());
    };
    const file::Checkpoint checkpoint =
        file::load_checkpoint(save_checkpoint(folder.path(), content), test_library()->formats());
    if (i == wrong.size())
      EXPECT_NO_THROW((void)read_run(test_library(), checkpoint));
    else
      EXPECT_THROW((void)read_run(test_library(), checkpoint), Error) << i;
  }
}

TEST(Record, ChangedFilesAreNamed) {
  const TestFolder folder;
  fs::create_directory(folder / "texts");
  std::ofstream(folder / "texts" / "a.txt") << "one";
  std::ofstream(folder / "texts" / "b.txt") << "two";
  const auto was = data::load_documents(folder / "texts").files;
  ASSERT_EQ(was.size(), 2U);
  EXPECT_EQ(data_changes(was, was), "");
  // Another place, the same content.
  fs::rename(folder / "texts", folder / "moved");
  EXPECT_EQ(data_changes(was, data::load_documents(folder / "moved").files), "");
  std::ofstream(folder / "moved" / "b.txt") << "2wo";  // the same size
  const std::string changed = data_changes(was, data::load_documents(folder / "moved").files);
  EXPECT_TRUE(contains(changed, "b.txt") && !contains(changed, "a.txt")) << changed;
  std::ofstream(folder / "moved" / "b.txt") << "two";
  std::ofstream(folder / "moved" / "c.txt") << "three";
  const std::string more = data_changes(was, data::load_documents(folder / "moved").files);
  EXPECT_TRUE(contains(more, "c.txt") && contains(more, "new")) << more;
  EXPECT_TRUE(contains(data_changes(was, {was[0]}), "missing"));
  EXPECT_TRUE(contains(data_changes(data::embedded_documents().files, was), "built-in"));
}

// Another value than the recipe has, as a flag would give it.
std::string another(const RecipeKey& key, const Recipe& base) {
  const std::map<std::string, std::string> choices = {
      {"schedule.shape", "linear"}, {"data.form", "chats"},           {"data.train_on", "all"},
      {"data.overflow", "drop"},    {"run.on_nan", "rollback"},       {"objective.name", "orpo"},
      {"run.recompute", "layers"},  {"ranks.shard", "states"},        {"memory.offload", "moments"},
      {"memory.limit", "24G"},      {"run.param_rounding", "nearest"}};
  if (const auto found = choices.find(key.name()); found != choices.end()) return found->second;
  if (key.name().starts_with("products.") && key.name().ends_with("_rounding")) return "stochastic";
  if (key.name() == "products.attention_scale") return "learned";
  if (key.name().starts_with("products.") && key.name().ends_with("_scale")) return "delayed";
  const std::vector<std::string> names = key.names();
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    if (*name != value_text(key, base)) return *name;
  if (key.is_switch()) return value_text(key, base) == "true" ? "false" : "true";
  if (key.is_number()) return key.most <= 1 ? "0.375" : "7";
  return "x";
}

// Every value of a recipe is compared, or is among those that change nothing of what is trained.
TEST(Record, EveryValueOfARecipeIsCompared) {
  const Recipe base = parse_recipe(test_library()->recipe("char")->text, "char");
  EXPECT_TRUE(recipe_changes(base, base).empty());
  std::vector<std::pair<std::string, std::function<void(Recipe&)>>> changes = {
      {"model.config.ffn", [](Recipe& r) { r.config["ffn"] = 8; }},
      {"optimizer.config.nesterov", [](Recipe& r) { r.optimizer.config["nesterov"] = "true"; }},
      {"[[group]]", [](Recipe& r) { r.groups = {ParameterGroup{{}, {"norm"}, 0.5, {}, false}}; }},
      {"[[quantize]]", [](Recipe& r) { r.quantize = {QuantizeRule{.values = {"*"}, .roles = {}, .format = "q4_0"}}; }},
      {"[[phase]]", [](Recipe& r) { r.phases = parse_recipe("[[phase]]\nname = \"a\"\n", "phases", r).phases; }},
  };
  std::set<std::string> seen;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.effect == RecipeEffect::none) {
      Recipe other = base;
      set_value(key, another(key, base), other);
      EXPECT_TRUE(recipe_changes(base, other).empty()) << key.name();
      seen.insert(key.name());
      continue;
    }
    changes.emplace_back(key.name(), [&key, &base](Recipe& r) { set_value(key, another(key, base), r); });
  }
  for (const auto& [key, change] : changes) {
    Recipe before = base;
    if (key == "schedule.warmup_ratio") before.schedule.warmup = 0;  // the two contradict each other
    Recipe other = before;
    change(other);
    const auto found = recipe_changes(before, other);
    ASSERT_EQ(found.size(), 1U) << key;
    EXPECT_EQ(found[0].key, key);
    EXPECT_NE(found[0].was, found[0].now);
    EXPECT_EQ(describe(parse_recipe(describe(other), "again")), describe(other)) << key;
    seen.insert(key);
  }
  for (const RecipeValue& v : values_of(base))
    EXPECT_TRUE(seen.contains(v.section.empty() ? v.key : v.section + "." + v.key)) << v.key << " is in no list";
}

// A recipe named beside a checkpoint changes what it says and nothing else.
TEST(Record, RecipesOnTopOfOthers) {
  Recipe base = train::small_recipe();
  base.tokenizer = "a \"name\"\nwith a line's end";
  const Recipe same = parse_recipe(describe(base), "same");
  EXPECT_EQ(same.tokenizer, base.tokenizer);
  const Recipe other = parse_recipe("[schedule]\nsteps = 41\n", "other", base);
  const auto changes = recipe_changes(base, other);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].key, "schedule.steps");
  EXPECT_EQ(other.batch, base.batch);
}

// A run that is made longer does what it did before.
TEST(Record, LongerSchedulesKeepTheirSteps) {
  for (const auto shape : {Schedule::Shape::cosine, Schedule::Shape::linear}) {
    Schedule s{.shape = shape, .peak = 1, .floor = 0.25, .warmup = 5, .steps = 50};
    Schedule longer = s;
    longer.steps = 80;
    longer.decay_steps = 50;
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(learning_rate(longer, i), learning_rate(s, i));
    for (int64_t i = 50; i < 80; ++i) EXPECT_DOUBLE_EQ(learning_rate(longer, i), 0.25);
  }
}

}  // namespace
}  // namespace lumen::model::recipe
