// needs: none. The chat template that a model takes is in every file that is written of it, and so are the tokens with
// which its answers end.
#include "model/arch/chat/chat.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/file/file.h"
#include "model/arch/adapter/adapter_write.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/templates/chat_shapes.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

Model chat_model() {
  Model model = initialise(test_library()->family("llama"),
                           test_library()->family("llama")->config("", {{"vocab", 270},
                                                                        {"hidden", 12},
                                                                        {"layers", 1},
                                                                        {"heads", 2},
                                                                        {"kv_heads", 1},
                                                                        {"head_dim", 4},
                                                                        {"ffn", 8},
                                                                        {"context", 16}}),
                           1);
  model.name = "chats";
  model.tokenizer = templates::shapes_tokenizer().with_chat_template("{{ messages[0].content }}");
  return model;
}

// What a model of a file says, be it a folder or GGUF, fresh or read again.
void expect_chat(const Model& model, const std::string& text) {
  EXPECT_EQ(model.tokenizer->chat_template(), text);
  const std::vector<text::TokenId> ends = model.tokenizer->end_of_generation();
  for (const char* name : {"<|end|>", "<|user|>", "<|observation|>"})
    EXPECT_THAT(ends, testing::Contains(*model.tokenizer->find(name))) << name;
  for (const char* name : {"<|user|>", "<|assistant|>"})
    EXPECT_EQ(model.tokenizer->kind(*model.tokenizer->find(name)), text::TokenKind::control);
}

TEST(ModelChat, TheTemplateIsInEveryFile) {
  const TestFolder folder;
  const templates::ChosenTemplate chosen{"next", templates::chat_shapes().at("next role"), {}};
  const Model before = chat_model();
  write_hf(before, folder / "hf");
  write_gguf(before, folder / "before.gguf");
  write_file_atomic(folder / "hf" / "generation_config.json", R"({"eos_token_id": 0, "temperature": 0.5})");
  for (const std::string from : {"fresh", "hf", "before.gguf"}) {
    Model model = from == "fresh" ? chat_model() : read_model(test_library(), folder / from);
    take_chat(model, chosen);
    expect_chat(model, chosen.text);
    write_hf(model, folder / (from + "-hf"));
    write_gguf(model, folder / (from + "-out.gguf"));
    expect_chat(read_model(test_library(), folder / (from + "-hf")), chosen.text);
    const Model out = read_model(test_library(), folder / (from + "-out.gguf"));
    expect_chat(out, chosen.text);
    EXPECT_EQ(out.metadata.text("tokenizer.chat_template"), chosen.text) << from;
    EXPECT_EQ(out.metadata.integer("tokenizer.ggml.eos_token_id"), 0) << from;
    const auto config = nlohmann::json::parse(read_file(folder / (from + "-hf") / "tokenizer_config.json"));
    EXPECT_EQ(config["chat_template"], chosen.text) << from;
  }
  EXPECT_EQ(read_file(folder / "hf-hf" / "chat_template.jinja"), chosen.text);
  const auto generation = nlohmann::json::parse(read_file(folder / "hf-hf" / "generation_config.json"));
  EXPECT_EQ(generation["eos_token_id"], nlohmann::json({0, 9, 10, 13, 1, 5}));  // the last two are the template's
  EXPECT_EQ(generation["temperature"], 0.5);
}

// A template that the model has already changes nothing.
TEST(ModelChat, TheOwnTemplateChangesNothing) {
  const TestFolder folder;
  Model model = chat_model();
  model.tokenizer = model.tokenizer->with_chat_template(templates::chat_shapes().at("json calls"));
  write_hf(model, folder / "hf");
  Model again = read_model(test_library(), folder / "hf");
  const auto files = again.files;
  take_chat(again, templates::choose_template("", *again.tokenizer));
  EXPECT_EQ(again.files, files);
}

TEST(ModelChat, AdaptersCarryTheTemplate) {
  const TestFolder folder;
  const Model model = chat_model();
  Adapter adapter{.name = "a", .by_root = false, .parts = {}, .whole = {}, .config = {}};
  const Parameter* p = nullptr;
  for (const Parameter& one : model.parameters)
    if (one.shape.size() == 2 && !is_looked_up(one)) p = &one;
  ASSERT_NE(p, nullptr);
  const int64_t rows = p->shape[0].number(), columns = p->shape[1].number();
  const std::vector<float> a(columns, 0.5F), b(rows, 0.25F);
  adapter.parts[p->name] = {.a = f32_weight({graph::Dim(1), graph::Dim(columns)}, a),
                            .b = f32_weight({graph::Dim(rows), graph::Dim(1)}, b)};
  write_adapter_folder(model, adapter, folder / "with", {.base = "base", .record = {}, .chat_template = "{{ x }}"});
  write_adapter_folder(model, adapter, folder / "without", {.base = "base", .record = {}});
  write_adapter_gguf(model, adapter, folder / "with.gguf", {.base = "base", .record = {}, .chat_template = "{{ x }}"});
  EXPECT_EQ(read_file(folder / "with" / "chat_template.jinja"), "{{ x }}");
  EXPECT_EQ(adapter_chat_template(folder / "with"), "{{ x }}");
  EXPECT_EQ(adapter_chat_template(folder / "with" / kAdapterConfig), "{{ x }}");
  EXPECT_EQ(adapter_chat_template(folder / "with.gguf"), "{{ x }}");
  EXPECT_EQ(adapter_chat_template(folder / "without"), "");
  EXPECT_EQ(adapter_chat_template(folder / "nothing.gguf"), "");
  // Other programs keep the tokenizer beside an adapter.
  write_file_atomic(folder / "without" / "tokenizer_config.json",
                    R"({"chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(adapter_chat_template(folder / "without"), "d");
}

}  // namespace
}  // namespace lumen::model::arch
