// needs: none. Models in several GGUF files, written and read; wrong sets of files are refused.
#include "model/file/gguf_split.h"

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/tiny.h"

namespace lumen::model::file {
namespace {

TEST(GgufSplit, ThereAndBack) {
  const TestFolder folder;
  const arch::Model m = tiny_model();
  write_gguf(m, folder / "m.gguf", -1, 2000);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files.push_back(entry.path());
  ASSERT_GE(files.size(), 3U);
  for (const auto& file : files) {  // any of them stands for all
    const arch::Model back = read_gguf(test_library(), file);
    EXPECT_EQ(back.config, m.config);
    for (const auto& [name, w] : m.weights) EXPECT_EQ(back.weights.at(name).bytes, w.bytes) << name;
    EXPECT_FALSE(back.metadata.has(kSplitCount));
  }
}

TEST(GgufSplit, WrongSetsAreRefused) {
  const auto refusal = [](const std::function<void(const TestFolder&)>& change) {
    const TestFolder folder;
    write_gguf(tiny_model(), folder / "m.gguf", -1, 4000);
    change(folder);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      try {
        (void)read_gguf(test_library(), entry.path());
      } catch (const Error& e) {
        return std::string(e.what());
      }
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](const TestFolder&) {}), "");
  const auto second = [](const TestFolder& f) {
    for (const auto& entry : std::filesystem::directory_iterator(f.path()))
      if (entry.path().filename().string().starts_with("m-00002")) return entry.path();
    return std::filesystem::path();
  };
  EXPECT_NE(refusal([&](const TestFolder& f) { std::filesystem::remove(second(f)); }).find("missing"),
            std::string::npos);
  EXPECT_NE(refusal([&](const TestFolder& f) { std::filesystem::rename(second(f), f / "other.gguf"); }), "");
  EXPECT_NE(refusal([&](const TestFolder& f) {
              const std::string name = second(f).filename().string();
              std::filesystem::copy_file(f / ("m-00001" + name.substr(7)), second(f),
                                         std::filesystem::copy_options::overwrite_existing);
            }),
            "");
}

}  // namespace
}  // namespace lumen::model::file
