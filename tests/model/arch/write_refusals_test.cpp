// needs: none. What a Hugging Face folder cannot hold is refused before anything is written, by the key that says so.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

std::string refusal(const Model& m) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("lumen-refused-{}", ::getpid());
  try {
    write_hf(m, folder);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_FALSE(fs::exists(folder));
    return std::string(e.what()) + " | " + e.hint();
  }
  fs::remove_all(folder);
  return "";
}

TEST(WriteRefusals, RowsThatDoNotTurnInPairs) {
  Model m = tiny_model();
  m.name = "odd.gguf";
  EXPECT_EQ(refusal(m), "");
  for (Parameter& p : m.parameters)
    if (p.hf_halves > 0) p.hf_turned = 3;
  m.config["rotary"] = 3;
  const std::string text = refusal(m);
  EXPECT_NE(text.find("odd.gguf: 3 rows of each head of parameter 'layers.0.wq'"), std::string::npos) << text;
  EXPECT_NE(text.find("'llama.rope.dimension_count' must be an even number of at most 4"), std::string::npos) << text;
}

TEST(WriteRefusals, AFamilyWithoutAPlaceInSuchFolders) {
  const auto library = Library::builtin();
  library->add_model_text(std::make_shared<Source>(
      Source{"mine.lum",
             "model plain(cfg) : gguf \"plain\" {\n  config { vocab : i32 = 8 }\n  param w : f32[cfg.vocab, 4], "
             "gguf \"w\", hf \"w\", init normal 0.02\n}\n"}));
  const FamilyRef family = library->family("plain");
  const std::string text = refusal(initialise(family, family->config("", {}), 1));
  EXPECT_NE(text.find("'plain' has no attribute 'hf'"), std::string::npos) << text;
  EXPECT_NE(text.find("write a GGUF file"), std::string::npos) << text;
  // A key that a command needs and the family lacks is the family's mistake.
  EXPECT_THROW((void)initialise(family, family->config("", {}), 1).integer("context"), Error);
}

}  // namespace
}  // namespace lumen::model::arch
