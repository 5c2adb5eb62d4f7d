// needs: none. Rows of data files of every kind, and what is refused.
#include <gmock/gmock.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "base/file/file.h"
#include "model/eval/rows.h"

namespace lumen::model::eval {
namespace {

class Rows : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("lumen-rows-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path put(const std::string& name, std::string text, bool packed = false) {
    if (packed) {
      const std::filesystem::path path = folder_ / name;
      gzFile file = gzopen(path.c_str(), "wb");
      gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
      gzclose(file);
      return path;
    }
    write_file_atomic(folder_ / name, text);
    return folder_ / name;
  }
  std::string error(const std::filesystem::path& file) {
    try {
      read_rows(file);
    } catch (const Error& e) {
      return e.what();
    }
    return "read";
  }
  std::filesystem::path folder_;
};

TEST_F(Rows, EveryKindOfFile) {
  const std::string want = R"([{"q":"a","n":1},{"q":"b, \"c\"","n":2}])";
  const auto same = [&](const std::filesystem::path& file) {
    EXPECT_EQ(nlohmann::ordered_json(read_rows(file)).dump(), want) << file;
  };
  const std::string lines = "{\"q\": \"a\", \"n\": 1}\r\n\n{\"q\": \"b, \\\"c\\\"\", \"n\": 2}";
  same(put("a.jsonl", lines));
  same(put("a.jsonl.gz", lines, true));
  same(put("a.json", "\xef\xbb\xbf" + want));
  const auto csv = read_rows(put("a.csv", "q,n\r\n\"b, \"\"c\"\"\",2\r\n\"two\nlines\",\n"));
  EXPECT_EQ(nlohmann::ordered_json(csv).dump(), R"([{"q":"b, \"c\"","n":"2"},{"q":"two\nlines","n":""}])");
  // A quotation mark is nothing special there.
  const auto tsv = read_rows(put("a.tsv", "q\tn\n\"b\t2"));
  EXPECT_EQ(nlohmann::ordered_json(tsv).dump(), R"([{"q":"\"b","n":"2"}])");
}

TEST_F(Rows, WhatIsRefusedNamesItsPlace) {
  EXPECT_THAT(error(put("b.csv", "a,b\n1,2\n1\n")), testing::HasSubstr("b.csv:3: 1 fields, but the header names 2"));
  EXPECT_THAT(error(put("b.csv", "a,b\n\"1,2\n")), testing::HasSubstr("b.csv:2: a quoted field has no end"));
  EXPECT_THAT(error(put("b.csv", "a,b\n\"1\"x,2\n")), testing::HasSubstr("b.csv:2: text after a quoted field"));
  EXPECT_THAT(error(put("b.jsonl", "{\"a\": 1}\n{\"a\"\n")), testing::HasSubstr("b.jsonl:2"));
  EXPECT_THAT(error(put("b.jsonl", "{\"a\": 1}\n[1]\n")), testing::HasSubstr("b.jsonl:2: no JSON object"));
  EXPECT_THAT(error(put("b.json", "{}")), testing::HasSubstr("not a list"));
  EXPECT_THAT(error(put("b.tsv", "a\n\xff\n")), testing::HasSubstr("b.tsv:2: no valid UTF-8"));
  EXPECT_THAT(error(put("b.bin", "a")), testing::HasSubstr("has no known ending"));
  EXPECT_THAT(error(put("b.tsv.gz", "\x1f\x8b no gzip")), testing::HasSubstr("damaged gzip"));
  const std::string whole = read_file(put("c.tsv.gz", "a\n1\n", true));
  EXPECT_THAT(error(put("d.tsv.gz", whole.substr(0, whole.size() - 6))), testing::HasSubstr("ends too early"));
}

}  // namespace
}  // namespace lumen::model::eval
