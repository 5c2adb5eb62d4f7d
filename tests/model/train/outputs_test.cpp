// needs: none. What a run will leave behind is known to be possible before the first step.
#include "model/train/loop/outputs.h"

#include <fstream>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(Exit::ok, "");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The embedded family without some of its attributes, under a name of its own.
arch::FamilyRef changed_family(const std::function<void(std::string&)>& change) {
  const auto library = arch::Library::builtin();
  std::string text = read_file(fs::path(LUMEN_SOURCE_DIR) / "models" / "llama.lum");
  change(text);
  library->replace_model_text(std::make_shared<const Source>(Source{"changed.lum", text}));
  return library->family("llama");
}

void erase(std::string& text, const std::string& from, const std::string& to) {
  const size_t begin = text.find(from);
  ASSERT_NE(begin, std::string::npos) << from;
  const size_t end = text.find(to, begin + from.size());
  ASSERT_NE(end, std::string::npos) << to;
  text.erase(begin, end + to.size() - begin);
}

arch::Model model_of(const arch::FamilyRef& family) {
  const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
  arch::Model model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
  model.tokenizer = tokenizer;
  return model;
}

TEST(Outputs, FamiliesWithoutNamesForAFolder) {
  recipe::Recipe recipe = small_recipe();
  const arch::Model whole = model_of(test_library()->family("llama"));
  recipe.hugging_face = true;
  EXPECT_NO_THROW(check_outputs(whole, recipe));
  // Without the attribute that names the architecture.
  const arch::FamilyRef nameless =
      changed_family([](std::string& text) { erase(text, ", hf \"LlamaForCausalLM\"", ""); });
  if (nameless->hf_architectures().empty()) {
    const Error e = error_of([&] { check_outputs(model_of(nameless), recipe); });
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_TRUE(contains(e.what(), "--hf")) << e.what();
    recipe.hugging_face = false;
    EXPECT_NO_THROW(check_outputs(model_of(nameless), recipe));
  } else {
    ADD_FAILURE() << "the family's text is written otherwise";
  }
}

TEST(Outputs, ParametersWithoutNames) {
  recipe::Recipe recipe = small_recipe();
  arch::Model model = model_of(test_library()->family("llama"));
  for (arch::Parameter& p : model.parameters)
    if (p.name == "layers.1.wq") p.hf = "";
  EXPECT_NO_THROW(check_outputs(model, recipe));
  recipe.hugging_face = true;
  EXPECT_TRUE(contains(error_of([&] { check_outputs(model, recipe); }).what(), "layers.1.wq"));
  recipe.hugging_face = false;
  for (arch::Parameter& p : model.parameters)
    if (p.name == "layers.1.wq") p.gguf = "";
  EXPECT_TRUE(contains(error_of([&] { check_outputs(model, recipe); }).what(), "layers.1.wq"));
}

TEST(Outputs, TypesThatAreNone) {
  recipe::Recipe recipe = small_recipe();
  const arch::Model model = model_of(test_library()->family("llama"));
  recipe.output_type = "q4_99";
  EXPECT_EQ(error_of([&] { check_outputs(model, recipe); }).code(), Exit::user);
  recipe.output_type = "q4_k";  // a mixture, which says what rows of 32 get
  EXPECT_NO_THROW(check_outputs(model, recipe));
  recipe.output_type = "int4_g128";  // rows of 32 do not divide by 128
  EXPECT_EQ(error_of([&] { check_outputs(model, recipe); }).code(), Exit::user);
  recipe.output_type = "q4_0";
  EXPECT_NO_THROW(check_outputs(model, recipe));
  recipe.hugging_face = true;
  EXPECT_EQ(error_of([&] { check_outputs(model, recipe); }).code(), Exit::usage);
  recipe.output_type = "bf16";
  EXPECT_NO_THROW(check_outputs(model, recipe));
}

TEST(Outputs, WrittenAsSaid) {
  const arch::Model model = model_of(test_library()->family("llama"));
  const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), *model.tokenizer));
  for (const std::string type : {"f32", "bf16", "q8_0"}) {
    const TestFolder folder;
    recipe::Recipe recipe = small_recipe();
    recipe.output_type = type;
    recipe.hugging_face = type != "q8_0";
    Trainer trainer(engine(), model, recipe, data);
    (void)trainer.step();
    const auto lines = write_outputs(engine(), trainer, folder.path());
    ASSERT_EQ(lines.size(), recipe.hugging_face ? 2U : 1U);
    for (const Output& o : lines) EXPECT_TRUE(contains(o.line(), "(" + type + ")")) << o.line();
    for (const char* name : {"model.gguf", "hf"}) {
      if (!fs::exists(folder / name)) continue;
      const arch::Model read = read_model(test_library(), folder / name);
      const arch::Weight& w = read.weights.at("layers.0.wq");
      EXPECT_EQ(w.is_f32() ? "f32" : w.type.element.format->name, type) << name;
      EXPECT_TRUE(read.weights.at("norm").is_f32());
    }
    EXPECT_EQ(earlier_outputs(folder.path()).size(), lines.size() + 1) << "and run.json";
  }
}

TEST(Outputs, RoomIsAskedForFirst) {
  const TestFolder folder;
  const arch::Model model = model_of(test_library()->family("llama"));
  recipe::Recipe recipe = small_recipe();
  EXPECT_NO_THROW(require_room(folder.path(), model, recipe, 0));
  recipe.schedule.steps = 1'000'000'000'000;
  recipe.save_every = 1;
  recipe.keep = 0;
  const Error e = error_of([&] { require_room(folder.path(), model, recipe, 0); });
  EXPECT_EQ(e.code(), Exit::user);
  EXPECT_TRUE(contains(e.hint(), "--keep"));
  recipe.keep = 2;
  EXPECT_NO_THROW(require_room(folder.path(), model, recipe, 0));
  // What checkpoints hold counts: a parameter in f32 and two moments in 16 bits are 8 of the 12 bytes of all in f32.
  recipe.keep = 0;
  const auto asked = [&](const std::string& moments) {
    recipe.optimizer.moments = moments;
    const std::string text = error_of([&] { require_room(folder.path(), model, recipe, 0); }).what();
    return std::stod(text.substr(text.find("about ") + 6));
  };
  EXPECT_NEAR(asked("bf16") / asked("f32"), 8.0 / 12, 0.05);
}

// Any format is a beginning: what training sees is what the format decodes to.
TEST(Outputs, ModelsInAnyFormatTrain) {
  const arch::Model start = model_of(test_library()->family("llama"));
  const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), *start.tokenizer));
  for (const char* name : {"f16", "bf16", "q4_0", "q8_0", "iq4_nl", "int3_g32", "mxfp4"}) {
    const FormatRef format = test_library()->formats().get(name);
    arch::Model packed = start;
    std::map<std::string, std::vector<float>> decoded;
    for (auto& [parameter, w] : packed.weights) {
      if (w.type.shape.size() < 2) continue;
      const std::vector<float> values(w.f32().begin(), w.f32().end());
      w.type.element = {Scalar::f32, format};
      w.bytes = engine().encode(format, values.data(), w.rows(), w.columns());
      decoded[parameter] = engine().decode(format, w.bytes.data(), w.rows(), w.columns());
    }
    Trainer trainer(engine(), packed, small_recipe(), data);
    EXPECT_TRUE(contains(trainer.decoded(), fmt::format("decoded from {}", name))) << trainer.decoded();
    EXPECT_TRUE(contains(trainer.decoded(), "f32"));
    const arch::Model held = trainer.model();
    for (const auto& [parameter, values] : decoded) {
      const auto now = held.weights.at(parameter).f32();
      EXPECT_TRUE(std::equal(values.begin(), values.end(), now.begin(), now.end())) << name << " " << parameter;
    }
    const double first = trainer.step().loss;
    for (int i = 0; i < 5; ++i) (void)trainer.step();
    EXPECT_LT(trainer.step().loss, first) << name;
  }
  EXPECT_EQ(Trainer(engine(), start, small_recipe(), data).decoded(), "");
}

}  // namespace
}  // namespace lumen::model::train
