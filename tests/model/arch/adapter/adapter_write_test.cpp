// needs: none. Adapters written and read again: every case of the reader's fixtures gives the same adapter, bit for
// bit, in both kinds of files; and what a file cannot hold is refused.
#include "model/arch/adapter/adapter_write.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/file/gguf.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

Model base_of(const std::string& name) {
  const file::SafetensorsFile file(kFixtures / "adapters" / name / "expected.safetensors", test_library()->formats());
  return read_hf(test_library(), kFixtures / "families" / file.metadata().at("base"));
}

void expect_same(const Weight& a, const Weight& b, const std::string& what) {
  EXPECT_EQ(a.type, b.type) << what;
  EXPECT_EQ(a.bytes, b.bytes) << what;
}

void expect_same(const Adapter& a, const Adapter& b) {
  ASSERT_EQ(a.parts.size(), b.parts.size());
  for (const auto& [name, part] : a.parts) {
    ASSERT_TRUE(b.parts.contains(name)) << name;
    const AdapterPart& other = b.parts.at(name);
    expect_same(part.a, other.a, name);
    expect_same(part.b, other.b, name);
    EXPECT_NEAR(part.scale, other.scale, 1e-9 * part.scale) << name;
    ASSERT_EQ(part.magnitude.has_value(), other.magnitude.has_value()) << name;
    if (part.magnitude) expect_same(*part.magnitude, *other.magnitude, name);
  }
  ASSERT_EQ(a.whole.size(), b.whole.size());
  for (const auto& [name, w] : a.whole) {
    ASSERT_TRUE(b.whole.contains(name)) << name;
    EXPECT_TRUE(std::ranges::equal(decoded(w).f32(), decoded(b.whole.at(name)).f32())) << name;
  }
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class Written : public testing::TestWithParam<std::string> {};

// Kinds of other programs, which are read and never made here.
const std::set<std::string> kReadAlone = {
    "all_of_deltas_moe", "all_of_indexers", "biases",     "experts",   "experts_between",  "experts_down", "grown_tied",
    "grown_tokens",      "low_rank_biases", "own_biases", "tied_copy", "tied_copy_output", "tokens"};

TEST_P(Written, FoldersAreReadAsTheSameAdapter) {
  if (kReadAlone.contains(GetParam())) GTEST_SKIP() << "read, not written";
  const Model model = base_of(GetParam());
  const Adapter adapter = read_adapter(model, kFixtures / "adapters" / GetParam());
  const TestFolder folder;
  write_adapter_folder(model, adapter, folder / "a", {.base = "somebody/model", .record = {{"lumen.test", "yes"}}});
  const Adapter again = read_adapter(model, folder / "a");
  expect_same(adapter, again);
  EXPECT_EQ(again.by_root, adapter.by_root);
  const auto config = nlohmann::json::parse(read_file(folder / "a" / "adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], "somebody/model");
  const file::SafetensorsFile file(folder / "a" / "adapter_model.safetensors", test_library()->formats());
  EXPECT_EQ(file.metadata().at("lumen.test"), "yes");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  // The names the library itself gives its tensors.
  const file::SafetensorsFile theirs(kFixtures / "adapters" / GetParam() / "adapter_model.safetensors",
                                     test_library()->formats());
  if (!adapter.whole.empty()) return;
  for (const file::StoredTensor& t : file.tensors()) {
    ASSERT_NE(theirs.find(t.name), nullptr) << t.name;
    EXPECT_EQ(theirs.get(t.name).shape, t.shape) << t.name;
  }
}

TEST_P(Written, GgufFilesAreReadAsTheSameAdapter) {
  const Model model = base_of(GetParam());
  const Adapter adapter = read_adapter(model, kFixtures / "adapters" / GetParam());
  const TestFolder folder;
  const bool magnitudes = !adapter.parts.empty() && adapter.parts.begin()->second.magnitude.has_value();
  if (magnitudes || !adapter.whole.empty()) {
    const std::string message = refusal([&] { write_adapter_gguf(model, adapter, folder / "a.gguf"); });
    EXPECT_NE(message.find(magnitudes ? "cannot hold magnitudes" : "cannot hold full weights"), std::string::npos)
        << message;
    EXPECT_FALSE(fs::exists(folder / "a.gguf"));
    return;
  }
  write_adapter_gguf(model, adapter, folder / "a.gguf");
  const Adapter again = read_adapter(model, folder / "a.gguf");
  ASSERT_EQ(again.parts.size(), adapter.parts.size());
  for (const auto& [name, part] : adapter.parts) {
    const AdapterPart& other = again.parts.at(name);
    expect_same(part.a, other.a, name);
    // One alpha serves all weights; what differs from it is in B.
    for (size_t i = 0; i < part.b.f32().size(); ++i)
      EXPECT_NEAR(part.scale * part.b.f32()[i], other.scale * other.b.f32()[i], 1e-6) << name;
  }
  const file::GgufFile file(folder / "a.gguf", test_library()->formats());
  EXPECT_EQ(file.metadata().text("general.type"), "adapter");
  EXPECT_EQ(file.metadata().text("adapter.type"), "lora");
}

std::vector<std::string> cases() {
  return names_in(kFixtures / "adapters");
}
INSTANTIATE_TEST_SUITE_P(All, Written, testing::ValuesIn(cases()), [](const auto& i) { return i.param; });

// Where each target's numbers differ, patterns say so; all modules of one name are one word.
TEST(AdapterWrite, ConfigSaysRanksAndTargets) {
  const Model model = base_of("patterns");
  const Adapter adapter = read_adapter(model, kFixtures / "adapters" / "patterns");
  const TestFolder folder;
  write_adapter_folder(model, adapter, folder / "a");
  const auto config = nlohmann::json::parse(read_file(folder / "a" / "adapter_config.json"));
  EXPECT_EQ(config["use_rslora"], true);
  EXPECT_EQ(config["rank_pattern"]["model.layers.1.self_attn.q_proj"], 5);
  EXPECT_EQ(config["target_modules"], (nlohmann::json{"down_proj", "q_proj", "v_proj"}));
  // Two kinds of modules are called c_proj; when one of them is left out the others are named in full.
  const Model turned = base_of("transposed");
  Adapter part = read_adapter(turned, kFixtures / "adapters" / "transposed");
  std::erase_if(part.parts, [](const auto& p) { return !p.first.ends_with(".wo"); });
  write_adapter_folder(turned, part, folder / "b");
  const auto named = nlohmann::json::parse(read_file(folder / "b" / "adapter_config.json"));
  EXPECT_EQ(named["fan_in_fan_out"], true);
  EXPECT_EQ(named["target_modules"], (nlohmann::json{"transformer.h.0.attn.c_proj", "transformer.h.1.attn.c_proj"}));
}

TEST(AdapterWrite, RefusesWhatNoFileHolds) {
  const Model model = base_of("every_product");
  const TestFolder folder;
  Adapter adapter;
  const auto refused = [&](const std::string& words) {
    for (const bool gguf : {false, true}) {
      const std::string message = refusal([&] {
        gguf ? write_adapter_gguf(model, adapter, folder / "a.gguf")
             : write_adapter_folder(model, adapter, folder / "a");
      });
      EXPECT_NE(message.find(words), std::string::npos) << message;
    }
  };
  refused("has no low-rank updates");
  adapter = read_adapter(model, kFixtures / "adapters" / "every_product");
  adapter.parts["layers.9.wq"] = adapter.parts.begin()->second;
  refused("'layers.9.wq'");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace lumen::model::arch
