// needs: none. Event files: checksums with known answers, records that can be read back. tensorboard_reference.py
// (tests/cli) reads them with the tensorboard package.
#include <cstring>

#include "base/file/file.h"
#include "model/report/tensorboard.h"
#include "tests/model/tiny.h"

namespace lumen::model::report {
namespace {

namespace fs = std::filesystem;

TEST(EventFile, ChecksumsAreCastagnoli) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
}

uint64_t number(const std::string& bytes, size_t at, size_t size) {
  uint64_t out = 0;
  std::memcpy(&out, bytes.data() + at, size);
  return out;
}

// The events of a file, whose checksums are right.
std::vector<std::string> events(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> out;
  for (const fs::path& path : files) {
    EXPECT_NE(path.filename().string().find("tfevents"), std::string::npos);
    const std::string bytes = read_file(path);
    size_t at = 0;
    while (at < bytes.size()) {
      const uint64_t length = number(bytes, at, 8);
      EXPECT_LE(at + 16 + length, bytes.size());
      if (at + 16 + length > bytes.size()) break;
      out.push_back(bytes.substr(at + 12, length));
      EXPECT_EQ(event_record(out.back()), bytes.substr(at, 16 + length));
      at += 16 + length;
    }
  }
  return out;
}

TEST(EventFile, HoldsScalarsAndTexts) {
  const TestFolder folder;
  {
    EventFile file(folder / "logs", 0);
    file.scalars(3, std::vector<std::pair<std::string, double>>{{"train/loss", 1.5}, {"train/lr", 1e-3}});
    file.text(3, "samples", "hello");
    file.go_back(2);
  }
  const std::vector<std::string> all = events(folder / "logs");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_NE(all[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(all[1].find("train/loss"), std::string::npos);
  // Field 2 (simple_value) as 32 bits: 1.5.
  EXPECT_NE(all[1].find(std::string("\x15\x00\x00\xc0\x3f", 5)), std::string::npos);
  EXPECT_NE(all[2].find("hello"), std::string::npos);
  // Step 2 (field 2), then a session log (field 7) that says START.
  EXPECT_EQ(all[3].substr(9), std::string("\x10\x02\x3a\x02\x08\x01", 6));
}

TEST(EventFile, AResumedRunWritesBehindTheEarlierFile) {
  const TestFolder folder;
  {
    EventFile(folder / "logs", 0).scalars(1, std::vector<std::pair<std::string, double>>{{"a", 1}});
  }
  {
    EventFile(folder / "logs", 6).scalars(6, std::vector<std::pair<std::string, double>>{{"b", 1}});
  }
  const std::vector<std::string> all = events(folder / "logs");
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[3].substr(9), std::string("\x10\x06\x3a\x02\x08\x01", 6));
  EXPECT_NE(all[4].find('b'), std::string::npos);
}

TEST(EventFile, WithoutAFolderNothingHappens) {
  EventFile none;
  none.scalars(1, {});
  none.go_back(1);
}

}  // namespace
}  // namespace lumen::model::report
