// needs: none. A data file is what its content is: lists called .jsonl, lines called .json, tables parted by
// semicolons, UTF-16, packed files, and those that are made to fill memory.
#include <gmock/gmock.h>
#include <zlib.h>

#include "base/error.h"
#include "model/data/reader/unpack.h"
#include "model/data/rows/document.h"
#include "model/data/rows/form.h"
#include "model/data/rows/rows.h"
#include "model/data/rows/shapes.h"
#include "tests/model/data/data_case.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> rows(const std::filesystem::path& file) {
  std::vector<std::string> out;
  const auto reader = open_rows(file);
  for (DataRow row; reader->next(&row);) {
    parse_row(&row);
    out.push_back(row.fault.empty() ? fmt::format("{}: {}", row.line, row.value.dump())
                                    : fmt::format("{}! {}", row.line, row.fault));
    if (out.size() > 1000) throw std::runtime_error("there is no end");
  }
  return out;
}

std::string error(const std::filesystem::path& file) {
  try {
    rows(file);
  } catch (const Error& e) {
    return std::string(e.what()) + " / " + e.hint();
  }
  return "read";
}

std::string utf16(std::u16string_view text, bool little) {
  std::string out;
  for (const char16_t c : text) {
    const char high = static_cast<char>(c >> 8), low = static_cast<char>(c & 0xff);
    out += little ? low : high;
    out += little ? high : low;
  }
  return out;
}

std::string gzip(const std::string& text, int effort = 9) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, effort, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = text.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A bracket or a comma too many was read for ever.
TEST(DataForm, EveryReadEnds) {
  const DataFolder f;
  EXPECT_THAT(error(f.put("a.json", "{\"a\":1}}")), HasSubstr("a.json:1: '}' after row 1"));
  EXPECT_THAT(error(f.put("b.json", "{\"a\":1},\n{\"a\":2}")), HasSubstr("b.json:1: ',' after row 1"));
  EXPECT_THAT(error(f.put("c.json", "{\"a\":1},\n{\"a\":2}")), HasSubstr("put [ before"));
  EXPECT_THAT(error(f.put("d.json", "{\"a\":1}\n{\n\"a\":2}]")), HasSubstr("d.json:3: ']' after row 2"));
  EXPECT_THAT(error(f.put("e.json", "[{\"a\":1}]]")), HasSubstr("after the list"));
  EXPECT_THAT(error(f.put("f.json", "[}")), HasSubstr("no comma between"));
  EXPECT_THAT(error(f.put("g.json", "{\"a\":1} \"b\"")), HasSubstr("'\"' after row 1"));
  EXPECT_THAT(error(f.put("h.json", "{\"a\":1}\n{\n\"a\":2}\n\\")), HasSubstr("h.json:4: '\\' after row 2"));
}

TEST(DataForm, ListsAndLinesByTheirContent) {
  const DataFolder f;
  EXPECT_THAT(rows(f.put("a.jsonl", "[\n {\"a\": 1},\n {\"a\": 2}\n]\n")), ElementsAre("2: {\"a\":1}", "3: {\"a\":2}"));
  EXPECT_THAT(rows(f.put("b.jsonl", "[{\"a\": 1}, {\"a\": 2}]")), ElementsAre("1: {\"a\":1}", "1: {\"a\":2}"));
  EXPECT_THAT(rows(f.put("c.jsonl", "{\n \"a\": 1\n}\n{\n \"a\": 2\n}\n")),
              ElementsAre("1: {\"a\":1}", "4: {\"a\":2}"));
  // A broken row among lines stays one.
  EXPECT_THAT(rows(f.put("d.jsonl", "[{\"a\":1}]\n{\"a\":2}\n")), ElementsAre("1! no JSON object", "2: {\"a\":2}"));
  EXPECT_THAT(rows(f.put("e.jsonl", "{\"a\":\n{\"a\":2}\n")), ElementsAre("1! no valid JSON", "2: {\"a\":2}"));
  EXPECT_THAT(rows(f.put("f.json", "{\"a\":1}\n{\"a\":\n{\"a\":3}\n")),
              ElementsAre("1: {\"a\":1}", "2! no valid JSON", "3: {\"a\":3}"));
  EXPECT_THAT(rows(f.put("g.json", "{\"a\":1}\n{\n\"a\":2}\n")), ElementsAre("1: {\"a\":1}", "2: {\"a\":2}"));
  EXPECT_THAT(rows(f.put("h.csv", "[{\"a\":1}]")), ElementsAre("1: {\"a\":1}"));
  EXPECT_THAT(rows(f.put("i.tsv", "{\"a\":1}\n{\"a\":2}")), ElementsAre("1: {\"a\":1}", "2: {\"a\":2}"));
  EXPECT_EQ(form_of_rows("[\n {\"a\": 1}]", ".jsonl").difference, "a list of rows, not one row a line");
  EXPECT_EQ(form_of_rows("{\"a\": 1}", ".jsonl").difference, "");
}

TEST(DataForm, SeparatorsOfTables) {
  const DataFolder f;
  EXPECT_THAT(rows(f.put("a.csv", "q;a\n\"x;y\";1\n")), ElementsAre("2: {\"q\":\"x;y\",\"a\":\"1\"}"));
  EXPECT_THAT(rows(f.put("b.csv", "q\ta\nx\t1\n")), ElementsAre("2: {\"q\":\"x\",\"a\":\"1\"}"));
  EXPECT_THAT(rows(f.put("c.csv", "q|a\nx|1\n")), ElementsAre("2: {\"q\":\"x\",\"a\":\"1\"}"));
  EXPECT_THAT(rows(f.put("d.csv", "sep=;\r\nq;a\r\nx;1\r\n")), ElementsAre("3: {\"q\":\"x\",\"a\":\"1\"}"));
  EXPECT_THAT(rows(f.put("e.csv", "text\na;b\n")), ElementsAre("2: {\"text\":\"a;b\"}"));
  EXPECT_THAT(rows(f.put("f.csv", "a;b,c\nx;y,z\n")), ElementsAre("2: {\"a;b\":\"x;y\",\"c\":\"z\"}"));
  EXPECT_THAT(rows(f.put("g.tsv", "q,a\nx,1\n")), ElementsAre("2: {\"q\":\"x\",\"a\":\"1\"}"));
  EXPECT_THAT(rows(f.put("h.csv", "\xef\xbb\xbfq,a\nx,1\n")), ElementsAre("2: {\"q\":\"x\",\"a\":\"1\"}"));
}

TEST(DataForm, Utf16) {
  const DataFolder f;
  const std::u16string_view text = u"{\"a\":\"가\U0001F600\"}\n{\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxx\"}\n";
  const auto read = ElementsAre("1: {\"a\":\"가\xf0\x9f\x98\x80\"}", "2: {\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxx\"}");
  EXPECT_THAT(rows(f.put("a.jsonl", "\xff\xfe" + utf16(text, true))), read);
  EXPECT_THAT(rows(f.put("b.jsonl", "\xfe\xff" + utf16(text, false))), read);
  EXPECT_THAT(rows(f.put("c.jsonl", utf16(text, true))), read);
  EXPECT_THAT(rows(f.put("d.jsonl", utf16(text, false))), read);
  EXPECT_THAT(rows(f.put("e.jsonl.gz", gzip("\xff\xfe" + utf16(text, true)))), read);
  EXPECT_THAT(rows(f.put("f.csv", "\xff\xfe" + utf16(u"a;b\r\n1;2\r\n", true))),
              ElementsAre("2: {\"a\":\"1\",\"b\":\"2\"}"));
  EXPECT_THAT(error(f.put("g.jsonl", "\xff\xfe" + utf16(u"{}\n\xd800x", true))),
              HasSubstr("g.jsonl:2: half a character"));
  EXPECT_THAT(error(f.put("h.jsonl", "\xff\xfe" + utf16(u"{}", true) + "x")), HasSubstr("an odd number of bytes"));
  EXPECT_THAT(error(f.put("i.jsonl", std::string("\xff\xfe\0\0{\0\0\0}\0\0\0", 12))), HasSubstr("UTF-32"));
}

TEST(DataForm, PackedByContent) {
  const DataFolder f;
  EXPECT_THAT(rows(f.put("a.jsonl", gzip("{\"a\":1}\n"))), ElementsAre("1: {\"a\":1}"));
  EXPECT_THAT(rows(f.put("b.jsonl.gz", "{\"a\":1}\n")), ElementsAre("1: {\"a\":1}"));
  EXPECT_THAT(error(f.put("c.jsonl", "\x28\xb5\x2f\xfdxyz")), HasSubstr("c.jsonl: packed with zstd"));
  EXPECT_THAT(error(f.put("d.jsonl", "PK\x03\x04xyz")), HasSubstr("packed with zip"));
  EXPECT_THAT(error(f.put("e.jsonl", gzip("{\"a\":1}\n").substr(0, 15))), HasSubstr("ends too early"));
  std::string damaged = gzip("{\"a\":1234567890}\n");
  damaged[12] = static_cast<char>(damaged[12] ^ 0x55);
  EXPECT_THAT(error(f.put("g.jsonl", damaged)), testing::AnyOf(HasSubstr("damaged gzip data"), HasSubstr("too early")));
}

// A file whose content is a thousand times its size is refused when it has grown to 16 MiB, not when memory is full.
TEST(DataForm, Bombs) {
  const DataFolder f;
  const std::string even(size_t{64} << 20, 'a');
  const std::string packed = gzip(even);
  ASSERT_LT(packed.size(), even.size() / 500);
  EXPECT_THAT(error(f.put("a.jsonl.gz", packed)),
              testing::AllOf(HasSubstr("a.jsonl.gz"), HasSubstr("more than 200 times as many"), HasSubstr("gunzip")));
  EXPECT_EQ(gunzip(gzip(even.substr(0, 8 << 20)), "x", UINT64_MAX >> 1).size(), size_t{8} << 20);
  EXPECT_THROW(gunzip(gzip(even.substr(0, 1 << 20)), "x", 1000), Error);
  setenv("LUMEN_MEMORY", "20M", 1);
  std::string rows_of_it;
  for (int i = 0; rows_of_it.size() < size_t{20} << 20; ++i)
    rows_of_it += fmt::format("{{\"a\":\"{}\"}}\n", i * 7919L * 104729L);
  try {
    (void)gunzip(gzip(rows_of_it, 1), "b.gz", uint64_t{1} << 40);
    ADD_FAILURE() << "memory that is not there was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("b.gz"));
  }
  unsetenv("LUMEN_MEMORY");
}

std::vector<std::string> roles(const std::string& row) {
  std::vector<std::string> out;
  try {
    for (const ordered_json& m : example_of(ordered_json::parse(row), {}).messages) out.push_back(m["role"]);
  } catch (const ShapeFault& fault) {
    out.push_back("fault: " + fault.reason);
  }
  return out;
}

// The speakers' names of ShareGPT and its kin, whichever key they stand under.
TEST(DataForm, NamesOfSpeakers) {
  EXPECT_THAT(roles(R"({"messages":[{"role":"human","content":"q"},{"role":"gpt","content":"a"}]})"),
              ElementsAre("user", "assistant"));
  EXPECT_THAT(roles(R"({"messages":[{"role":"User","content":"q"},{"role":"Assistant","content":"a"}]})"),
              ElementsAre("user", "assistant"));
  EXPECT_THAT(roles(R"({"messages":[{"role":"human","content":"q"},
                        {"role":"function_call","content":"{\"name\":\"f\",\"arguments\":{}}"},
                        {"role":"observation","content":"r"},{"role":"chatgpt","content":"a"}]})"),
              ElementsAre("user", "assistant", "tool", "assistant"));
  EXPECT_THAT(roles(R"({"conversations":[{"from":"System","value":"s"},{"from":"Human","value":"q"},
                        {"from":"Bot","value":"a"}]})"),
              ElementsAre("system", "user", "assistant"));
  // Roles that a template may know stay.
  EXPECT_THAT(roles(R"({"messages":[{"role":"developer","content":"d"},{"role":"ipython","content":"x"}]})"),
              ElementsAre("developer", "ipython"));
  EXPECT_THAT(roles(R"({"messages":[{"role":"function_call","content":"x"}]})"),
              ElementsAre("fault: a function call is no valid JSON"));
}

TEST(DataForm, SectionsOfDocuments) {
  const DataFolder f;
  EXPECT_THAT(
      rows(f.put("a.dlm",
                 "---\nbase: b\n---\nProse.\n::instruction::\n### Q\none\n### A\ntwo\n\n### Q\nthree\n### A\nfour\n"
                 "::preference::\n### Prompt\np\n### Chosen\nc\n### Rejected\nr\n::image path=\"x\"::\nold\n"
                 "::prose::\nEnd.\n")),
      ElementsAre(
          "4: {\"text\":\"Prose.\"}",
          "6: {\"messages\":[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\",\"content\":\"two\"}]}",
          "11: "
          "{\"messages\":[{\"role\":\"user\",\"content\":\"three\"},{\"role\":\"assistant\",\"content\":\"four\"}]}",
          "16: {\"chosen\":\"c\",\"rejected\":\"r\",\"prompt\":[{\"role\":\"user\",\"content\":\"p\"}]}",
          "22! a section that is not read", "25: {\"text\":\"End.\"}"));
  EXPECT_THAT(rows(f.put("b.dlm", "::preference::\n### Prompt\np\n### Chosen\nc\n")),
              ElementsAre("2! a preference without prompt and both answers"));
}

// What is wrong with a row is told in words of our own, with the column.
TEST(DataForm, MistakesOfRows) {
  const auto told = [](const std::string& text) {
    DataRow row{.line = 1, .text = text};
    parse_row(&row);
    return row.fault + ": " + row.detail;
  };
  EXPECT_EQ(told("{\"a\": 1,}"), "no valid JSON: column 9: a comma in front of '}' (leave the comma out)");
  EXPECT_EQ(told("{\"a\": NaN}"),
            "no valid JSON: column 7: 'N' is not expected here (JSON has no NaN and no infinity, "
            "and its null is written in small letters)");
  EXPECT_EQ(told("{\"a\": \"b"), "no valid JSON: column 9: the text ends within a value (it may have been cut off)");
  EXPECT_EQ(told("{'a': 1}"),
            "no valid JSON: column 2: ''' is not expected here (strings are in double quotation marks)");
  EXPECT_EQ(told("{\"a\": \"\t\"}"),
            "no valid JSON: column 8: a control character within a string (write it as an escape: \\n, \\t, \\u0000)");
  EXPECT_EQ(told("{\"a\" \"b\"}"), "no valid JSON: column 6: '\"b\"' is not expected here");
  EXPECT_EQ(told("{\"가\": 1 2}"), "no valid JSON: column 9: '2' is not expected here");
}

}  // namespace
}  // namespace lumen::model::data
