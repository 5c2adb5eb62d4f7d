// A model that was trained for a few steps, in a folder of the suite's own: what tests of commands that change models
// begin with.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/outcome.h"

namespace lumen::cli {

class TinyModelTest : public testing::Test {
 protected:
  // The model is path("m/model.gguf").
  static void SetUpTestSuite() { train({"--steps", "3"}); }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static void train(const std::vector<std::string>& how) {
    const std::filesystem::path place = std::filesystem::temp_directory_path();
    setenv("LUMEN_CACHE", (place / "lumen-test-cache").c_str(), 1);
    std::string name = (place / "lumen-tiny-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    const Outcome o = lumen({"train", "--shape", "tiny", "--eval-every", "0", "-o", path("m"), "-q"}, how);
    ASSERT_EQ(o.code, 0) << o.error;
  }
  static Outcome lumen(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    return cli::lumen(words);
  }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static std::string read(const std::string& name) {
    std::ifstream in(path(name), std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  static inline std::filesystem::path folder_;
};

}  // namespace lumen::cli
