// A small model, its text, and folders for tests of what lies outside of a device's memory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {

inline arch::Model small_model(const graph::Config& other = {}) {
  const arch::FamilyRef family = test_library()->family("llama");
  const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
  graph::Config config = {{"vocab", static_cast<double>(tokenizer.size())},
                          {"hidden", 64},
                          {"layers", 4},
                          {"heads", 4},
                          {"kv_heads", 2},
                          {"head_dim", 16},
                          {"ffn", 96},
                          {"context", 16}};
  for (const auto& [key, value] : other) config[key] = value;
  arch::Model model = initialise(family, family->config("", config), 1);
  model.tokenizer = tokenizer;
  return model;
}

inline std::shared_ptr<data::Dataset> small_data() {
  return std::make_shared<data::Dataset>(
      data::Dataset::from_text(training_text(), text::Tokenizer::characters(training_text())));
}

// Tests run beside each other: each has folders of its own.
inline std::filesystem::path fresh_folder(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path path =
      std::filesystem::path(LUMEN_BINARY_DIR) / "offload-test" / test->test_suite_name() / test->name() / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace lumen::model::train
