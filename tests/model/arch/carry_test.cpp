// needs: none. Chat templates, special tokens and defaults of generation go from folder to GGUF and back.
#include "model/arch/checkpoint/carry.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

TEST(Carry, NumbersThatAreNoCountsAreNotTaken) {
  const TestFolder folder;
  write_hf(tiny_model(), folder / "a");
  const auto top_k = [&](const char* number) -> std::optional<int64_t> {
    write_file_atomic(folder / "a" / "generation_config.json", fmt::format(R"({{"top_k": {}}})", number));
    std::filesystem::remove(folder / "a.gguf");
    write_gguf(read_hf(test_library(), folder / "a"), folder / "a.gguf");
    const Model g = read_gguf(test_library(), folder / "a.gguf");
    if (!g.metadata.has("general.sampling.top_k")) return std::nullopt;
    return g.metadata.integer("general.sampling.top_k");
  };
  EXPECT_EQ(top_k("40"), 40);
  EXPECT_EQ(top_k("40.0"), 40);
  for (const char* number : {"40.5", "1e20", "-1e300", "4294967297", "18446744073709551615", "\"40\"", "[40]"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(top_k(number), std::nullopt) << number;
    EXPECT_NE(testing::internal::GetCapturedStderr().find("\"top_k\" is not a whole number"), std::string::npos)
        << number;
  }
  testing::internal::CaptureStderr();
  EXPECT_EQ(top_k("null"), std::nullopt);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Carry, FromFolderToGgufToFolder) {
  const TestFolder folder;
  write_hf(tiny_model(), folder / "a");
  write_file_atomic(
      folder / "a" / "generation_config.json",
      R"({"temperature": 0.75, "top_k": 40, "do_sample": true, "eos_token_id": [7, 9], "bos_token_id": 3})");
  write_file_atomic(
      folder / "a" / "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "{{ a }}"}, {"name": "tool", "template": "{{ t }}"}]})");
  const Model a = read_hf(test_library(), folder / "a");
  write_gguf(a, folder / "a.gguf");
  const Model g = read_gguf(test_library(), folder / "a.gguf");
  EXPECT_EQ(g.metadata.text("tokenizer.chat_template"), "{{ a }}");
  EXPECT_EQ(g.metadata.text("tokenizer.chat_template.tool"), "{{ t }}");
  EXPECT_EQ(g.metadata.number("general.sampling.temp"), 0.75);
  EXPECT_EQ(g.metadata.integer("general.sampling.top_k"), 40);
  EXPECT_EQ(g.metadata.integer("tokenizer.ggml.eos_token_id"), 7);
  write_hf(g, folder / "b");
  EXPECT_EQ(read_file(folder / "b" / "chat_template.jinja"), "{{ a }}");
  const auto generation = nlohmann::json::parse(read_file(folder / "b" / "generation_config.json"));
  EXPECT_EQ(generation["temperature"], 0.75);
  EXPECT_EQ(generation["eos_token_id"], 7);
  // A folder's own files stay as they are.
  write_hf(a, folder / "c");
  EXPECT_EQ(read_file(folder / "c" / "generation_config.json"), read_file(folder / "a" / "generation_config.json"));
}

}  // namespace
}  // namespace lumen::model::arch
