// needs: none. A file that is read is found again behind every name it may have.
#include "model/file/own_input.h"

#include <fstream>

#include "base/error.h"
#include "base/file/protected.h"
#include "tests/model/tiny.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << file.filename().string();
}

bool refused(const Paths& inputs, const Paths& outputs) {
  ProtectedFiles read;
  for (const fs::path& input : inputs) read.add(input);
  try {
    for (const fs::path& output : outputs) refuse_protected(output, "hint");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_EQ(e.hint(), "hint");
    return true;
  }
  return false;
}

TEST(OwnInput, IsFoundThroughLinksAndSpellings) {
  const TestFolder folder;
  const fs::path file = folder / "m.gguf";
  put(file);
  put(folder / "other.gguf");
  fs::create_directories(folder / "sub");
  fs::create_symlink(file, folder / "soft.gguf");
  fs::create_hard_link(file, folder / "hard.gguf");
  fs::create_directory_symlink(file.parent_path(), folder / "sub" / "back");
  for (const fs::path& same : {file, folder / "sub" / ".." / "m.gguf", folder / "soft.gguf", folder / "hard.gguf",
                               folder / "sub" / "back" / "m.gguf"}) {
    EXPECT_TRUE(refused(model_files(file), replaced_by_gguf(same))) << same;
    EXPECT_TRUE(refused(model_files(same), replaced_by_gguf(file))) << same;
  }
  EXPECT_FALSE(refused(model_files(file), replaced_by_gguf(folder / "other.gguf")));
  EXPECT_FALSE(refused(model_files(file), replaced_by_gguf(folder / "new.gguf")));
  EXPECT_FALSE(refused(model_files(folder / "absent.gguf"), replaced_by_gguf(folder / "absent.gguf")));
}

TEST(OwnInput, IsEveryPartOfAModel) {
  const TestFolder folder;
  const fs::path first = folder / "m-00001-of-00002.gguf", second = folder / "m-00002-of-00002.gguf";
  put(first);
  put(second);
  put(folder / "n-00001-of-00002.gguf");
  EXPECT_TRUE(refused(model_files(first), replaced_by_gguf(second)));
  EXPECT_TRUE(refused(model_files(second), replaced_by_gguf(folder / "m.gguf", true)));
  EXPECT_FALSE(refused(model_files(second), replaced_by_gguf(folder / "m.gguf")));
  EXPECT_FALSE(refused(model_files(first), replaced_by_gguf(folder / "n.gguf", true)));
  EXPECT_FALSE(refused(model_files(first), replaced_by_gguf(folder / "n-00001-of-00002.gguf")));
}

TEST(OwnInput, IsWhatAFolderHoldsBesidesGguf) {
  const TestFolder folder;
  for (const char* name : {"hf/config.json", "hf/model.safetensors", "hf/model-q.gguf", "run/model.gguf"})
    put(folder / name);
  fs::create_directory_symlink(folder / "hf", folder / "link");
  EXPECT_TRUE(refused(model_files(folder / "hf"), replaced_by_folder(folder / "hf")));
  EXPECT_TRUE(refused(model_files(folder / "hf"), replaced_by_folder(folder / "link")));
  EXPECT_TRUE(refused(model_files(folder / "hf"), replaced_by_gguf(folder / "hf" / "model.safetensors")));
  EXPECT_FALSE(refused(model_files(folder / "hf"), replaced_by_gguf(folder / "hf" / "model-q.gguf")));
  EXPECT_FALSE(refused(model_files(folder / "hf"), replaced_by_folder(folder / "new")));
  EXPECT_TRUE(refused(model_files(folder / "run"), replaced_by_gguf(folder / "run" / "model.gguf")));
  EXPECT_FALSE(refused(model_files(folder / "run"), replaced_by_folder(folder / "run")));
  // A file of a folder is read with the others.
  put(folder / "hf/model.safetensors.index.json");
  EXPECT_TRUE(refused(model_files(folder / "hf" / "model.safetensors.index.json"),
                      replaced_by_gguf(folder / "hf" / "model.safetensors")));
}

TEST(OwnInput, IsWhatARunHasLeft) {
  const TestFolder folder;
  for (const char* name :
       {"run/model.gguf", "run/run.json", "run/items.txt", "run/hf/config.json", "run/checkpoint-3/model.safetensors",
        "run/report.html", "run/mine.json", "run/q4.gguf", "run/hf/page.html"})
    put(folder / name);
  const Paths files = files_of_run(folder / "run");
  for (const char* name :
       {"run/model.gguf", "run/run.json", "run/items.txt", "run/hf/config.json", "run/checkpoint-3/model.safetensors"})
    EXPECT_TRUE(refused(files, {folder / name})) << name;
  for (const char* name : {"run/report.html", "run/mine.json", "run/q4.gguf", "run/hf/page.html"})
    EXPECT_FALSE(refused(files, {folder / name})) << name;
}

}  // namespace
}  // namespace lumen::model::file
