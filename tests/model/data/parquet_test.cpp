// needs: fixtures/parquet. Rows of Parquet files against those that pyarrow wrote, damaged files, and limits.
// ParquetExchange is run by parquet_reference.py with random tables.
#include "model/data/parquet/parquet.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/file/file.h"
#include "model/data/rows/rows.h"
#include "model/data/rows/shapes.h"
#include "tests/model/data/data_case.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

const std::filesystem::path kFixtures = LUMEN_SOURCE_DIR "/tests/model/fixtures/parquet";

std::vector<ordered_json> rows(RowReader& reader) {
  std::vector<ordered_json> out;
  for (DataRow row; reader.next(&row);) {
    parse_row(&row);
    EXPECT_EQ(row.line, out.size() + 1);
    out.push_back(row.fault.empty() ? std::move(row.value) : ordered_json(row.fault + ": " + row.detail));
  }
  return out;
}

std::vector<ordered_json> rows(const std::string& bytes, const ParquetLimits& limits = {}) {
  return rows(*read_parquet(bytes, "x.parquet", limits));
}

std::string error(const std::string& bytes, const ParquetLimits& limits = {}) {
  try {
    rows(bytes, limits);
  } catch (const Error& e) {
    return e.what();
  }
  return "read";
}

std::string fixture(const std::string& name) {
  return read_file(kFixtures / (name + ".parquet"));
}

TEST(Parquet, RowsAreThoseThatWereWritten) {
  const auto expected = ordered_json::parse(read_file(kFixtures / "rows.json"));
  EXPECT_EQ(expected.size(), 7u);
  for (const auto& [name, want] : expected.items()) {
    const auto got = rows(*open_rows(kFixtures / (name + ".parquet")));
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].dump(), want[i].dump()) << name << " row " << i + 1;
  }
}

TEST(Parquet, RowsMakeExamples) {
  const auto chats = rows(fixture("chats_zstd"));
  const Example chat = example_of(chats.front(), {});
  EXPECT_EQ(chat.kind, Example::Kind::chat);
  EXPECT_EQ(chat.messages.front()["content"], "Be short.");
  // A member that is null in this message, because another has it, is not there.
  EXPECT_FALSE(chat.messages.front().contains("name"));
  const Example pair = example_of(rows(fixture("pairs")).front(), {});
  EXPECT_EQ(pair.kind, Example::Kind::pair);
  EXPECT_EQ(pair.rejected.back()["content"], "Five.");
  const Example talk = example_of(rows(fixture("sequence_brotli")).back(), {});
  EXPECT_EQ(talk.kind, Example::Kind::chat);
  EXPECT_EQ(talk.messages.dump(), R"([{"role":"user","content":"3+3?"},{"role":"assistant","content":"Six."}])");
}

TEST(Parquet, Damaged) {
  const std::string good = fixture("values_plain");
  EXPECT_EQ(error("PAR1"), "x.parquet: no Parquet file");
  EXPECT_EQ(error("{\"text\": \"x\"}\n"), "x.parquet: no Parquet file");
  EXPECT_EQ(error(good.substr(0, good.size() - 1)), "x.parquet: the Parquet file ends too early");
  std::string bad = good;
  bad.replace(bad.size() - 8, 4, "\xff\xff\xff\x7f");
  EXPECT_EQ(error(bad), "x.parquet: the footer is longer than the file");
  bad.replace(bad.size() - 4, 4, "PARE");
  EXPECT_THAT(error(bad), HasSubstr("encrypted"));
  // Bytes in front of the footer that are gone: its columns lie elsewhere.
  uint32_t footer = 0;
  std::memcpy(&footer, good.data() + good.size() - 8, 4);
  EXPECT_THAT(error("PAR1" + good.substr(good.size() - 8 - footer)), HasSubstr("is outside of the file"));
  // With a checksum of its pages no changed byte is taken for data.
  const std::string checked = fixture("chats_zstd");
  std::memcpy(&footer, checked.data() + checked.size() - 8, 4);
  size_t refused = 0, tried = 0;
  for (size_t at = 4; at + footer + 8 < checked.size(); at += 31, ++tried) {
    bad = checked;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    refused += error(bad) != "read" || rows(bad) == rows(checked);
  }
  EXPECT_EQ(refused, tried);
  EXPECT_GT(tried, 100u);
}

TEST(Parquet, NeverMoreThanItsLimits) {
  EXPECT_THAT(error(fixture("values_gzip"), {.page = 16}), HasSubstr("the limit is 0 MiB"));
  EXPECT_THAT(error(fixture("values_gzip"), {.held = 64}), HasSubstr("side by side"));
  EXPECT_THAT(error(fixture("chats_snappy"), {.row = 200}), HasSubstr("x.parquet:1: the row takes more than"));
}

TEST(Parquet, TextThatIsNone) {
  std::string bad = fixture("values_plain");
  const size_t at = bad.find("The river");
  ASSERT_NE(at, std::string::npos);
  for (size_t i = at; i != std::string::npos; i = bad.find("The river", i)) bad[i] = '\xff';
  size_t faults = 0;
  for (const ordered_json& row : rows(bad)) faults += row == "no valid UTF-8: text";
  EXPECT_GT(faults, 0u);
}

TEST(ParquetExchange, Rows) {
  const char* folder = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!folder) GTEST_SKIP() << "run tests/model/data/parquet_reference.py THIS_PROGRAM";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".parquet") continue;
    std::string out;
    for (const ordered_json& row : rows(*open_rows(file.path()))) out += row.dump() + "\n";
    std::filesystem::path to = file.path();
    write_file_atomic(to.replace_extension(".rows"), out);
  }
}

}  // namespace
}  // namespace lumen::model::data
