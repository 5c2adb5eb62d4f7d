// needs: none. Rows of data files, hostile ones among them, and what examples they make.
#include <gmock/gmock.h>
#include <zlib.h>

#include "base/error.h"
#include "model/data/rows/document.h"
#include "model/data/rows/rows.h"
#include "model/data/rows/shapes.h"
#include "tests/model/data/data_case.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

// "line: value" or "line! fault" of each row.
std::vector<std::string> rows(const std::filesystem::path& file) {
  std::vector<std::string> out;
  const auto reader = open_rows(file);
  for (DataRow row; reader->next(&row);) {
    parse_row(&row);
    out.push_back(row.fault.empty() ? fmt::format("{}: {}", row.line, row.value.dump())
                                    : fmt::format("{}! {}", row.line, row.fault));
  }
  return out;
}

std::string error(const std::filesystem::path& file) {
  try {
    rows(file);
  } catch (const Error& e) {
    return e.what();
  }
  return "read";
}

TEST(DataRows, HalfBrokenLinesAreFaults) {
  const DataFolder f;
  EXPECT_THAT(
      rows(f.put("a.jsonl", "{\"a\":1}\n\n[1]\n{\"a\":\n{\"a\":\"\xff\"}\n{\"b\":2,\"b\":3}\r\n{\"c\": \"\\ud800\"}")),
      ElementsAre("1: {\"a\":1}", "3! no JSON object", "4! no valid JSON", "5! no valid JSON", "6! no valid JSON",
                  "7! no valid JSON"));
  EXPECT_THAT(rows(f.put("deep.jsonl", std::string(100000, '[') + "\n{\"a\":1}")),
              ElementsAre("1! no valid JSON", "2: {\"a\":1}"));
  std::string members = "{";
  for (int i = 0; i < 200000; ++i) members += fmt::format("{}\"{}\":0", i ? "," : "", i);
  EXPECT_THAT(rows(f.put("wide.jsonl", members + "}")), ElementsAre("1! no valid JSON"));
  const auto large = rows(f.put("large.jsonl", "{\"text\":\"" + std::string(10 << 20, 'x') + "\"}\n{}"));
  ASSERT_EQ(large.size(), 2u);
  EXPECT_GT(large[0].size(), size_t{10} << 20);
  EXPECT_TRUE(rows(f.put("empty.jsonl", "")).empty());
}

TEST(DataRows, Lists) {
  const DataFolder f;
  EXPECT_THAT(rows(f.put("a.json", "\xef\xbb\xbf [\n {\"a\": \"],{\\\"\"},\n [2],\n {\"b\": [1, {}]} ]\n")),
              ElementsAre("2: {\"a\":\"],{\\\"\"}", "3! no JSON object", "4: {\"b\":[1,{}]}"));
  EXPECT_THAT(rows(f.put("commas.json", "[,{\"a\":1}]")), ElementsAre("1! no valid JSON", "1: {\"a\":1}"));
  EXPECT_THAT(rows(f.put("b.json", "{\"a\":1}\n{\"a\":2}\n")), ElementsAre("1: {\"a\":1}", "2: {\"a\":2}"));
  EXPECT_TRUE(rows(f.put("c.json", "[]")).empty());
  EXPECT_THAT(error(f.put("d.json", "[{\"a\":1},")), HasSubstr("d.json:1: the list has no end"));
  EXPECT_THAT(error(f.put("e.json", "[{\"a\":\n1")), HasSubstr("e.json:1: the row that begins there has no end"));
  EXPECT_THAT(error(f.put("g.json", "[{} {}]")), HasSubstr("no comma"));
  EXPECT_THAT(error(f.put("h.json", "[{}] x")), HasSubstr("after the list"));
  EXPECT_THAT(error(f.put("i.json", "7")), HasSubstr("not a list"));
  EXPECT_THAT(error(f.put("j.json", "{\"a\":1}")), HasSubstr("not a list"));
  EXPECT_THAT(error(f.put("k.json", "")), HasSubstr("not a list"));
  EXPECT_THAT(error(f.put("l.json", "[" + std::string(1000000, '['))), HasSubstr("has no end"));
}

TEST(DataRows, Tables) {
  const DataFolder f;
  EXPECT_THAT(rows(f.put("a.csv", "q,a\n\"x\ny\",1\n1,2,3\n\"a\"b,c\nd,\xff\n\nlast,row")),
              ElementsAre("2: {\"q\":\"x\\ny\",\"a\":\"1\"}", "4! another number of fields than the header",
                          "5! text after a quoted field", "6! no valid UTF-8", "8: {\"q\":\"last\",\"a\":\"row\"}"));
  EXPECT_THAT(error(f.put("b.csv", "q,a\n\"" + std::string(1 << 20, 'x'))),
              HasSubstr("b.csv:2: a quoted field has no end"));
  EXPECT_THAT(error(f.put("c.csv", "q,q\n1,2\n")), HasSubstr("a column twice"));
  EXPECT_THAT(error(f.put("d.csv", "")), HasSubstr("no header"));
  EXPECT_THAT(rows(f.put("e.tsv", "q\ta\n\"b\t2\n")), ElementsAre("2: {\"q\":\"\\\"b\",\"a\":\"2\"}"));
  EXPECT_THAT(error(f.put("a.bin", "x")), HasSubstr("has no known ending"));
  EXPECT_TRUE(rows(f.put("b.csv.gz", "no gzip")).empty());  // a header alone, whatever its name says
}

std::string example(const std::string& row, const std::vector<std::string>& columns = {}) {
  try {
    const Example e = example_of(ordered_json::parse(row), read_columns(columns));
    std::string out = example_kind_name(e.kind);
    if (e.kind == Example::Kind::text) return out + " " + e.text;
    for (const auto* chat : {&e.messages, &e.rejected}) {
      for (size_t i = 0; i < chat->size(); ++i) {
        const ordered_json& m = (*chat)[i];
        out += fmt::format("{} {}:{}", i == e.prompt && e.prompt > 0 ? " |" : "", m["role"].get<std::string>(),
                           m["content"].is_string() ? m["content"].get<std::string>() : m["content"].dump());
      }
      if (chat == &e.messages && !e.rejected.empty()) out += " /";
    }
    if (e.kind == Example::Kind::label) out += e.wanted ? " yes" : " no";
    return out;
  } catch (const ShapeFault& fault) {
    return "fault: " + fault.reason;
  }
}

TEST(DataShapes, EveryShape) {
  EXPECT_EQ(example(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"),
            "chats user:q assistant:a");
  EXPECT_EQ(example(R"({"messages":"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]}]"})"),
            "chats user:q");
  EXPECT_EQ(example(R"({"conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"},
                       {"from":"gpt","value":"a"}]})"),
            "chats system:s user:q assistant:a");
  EXPECT_EQ(example(R"({"conversations":[{"from":"human","value":"q"},
                       {"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},
                       {"from":"observation","value":"r"},{"from":"gpt","value":"a"}]})"),
            "chats user:q assistant: tool:r assistant:a");
  // Lists by columns, as Sequence features have them.
  EXPECT_EQ(example(R"({"conversations":{"from":["human","gpt"],"value":["q","a"],"weight":[null,1]}})"),
            "chats user:q assistant:a");
  EXPECT_EQ(example(R"({"prompt":"q","completion":{"role":["assistant"],"content":["a"]}})"),
            "chats user:q | assistant:a");
  EXPECT_EQ(example(R"({"instruction":"do","input":"this","output":"done","system":"s"})"),
            "chats system:s user:do\n\nthis | assistant:done");
  EXPECT_EQ(example(R"({"instruction":"do","input":"","output":"done","history":[["a","b"]]})"),
            "chats user:a assistant:b user:do | assistant:done");
  EXPECT_EQ(example(R"({"prompt":"q","completion":"a"})"), "chats user:q | assistant:a");
  EXPECT_EQ(example(R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]})"),
            "chats user:q | assistant:a");
  EXPECT_EQ(example(R"({"question":"q","answer":"a"})"), "chats user:q | assistant:a");
  EXPECT_EQ(example(R"({"Q":"q","A":"a","label":0})", {"prompt=Q", "completion=A", "label=label"}),
            "labels user:q | assistant:a no");
  EXPECT_EQ(example(R"({"Q":"q","A":"a"})", {"question=Q", "answer=A"}), "chats user:q | assistant:a");
  EXPECT_EQ(example(R"({"prompt":"q","chosen":"a","rejected":"b"})"),
            "pairs user:q | assistant:a / user:q | assistant:b");
  EXPECT_EQ(example(R"({"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
                        "rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}]})"),
            "pairs user:q | assistant:a / user:q | assistant:b");
  EXPECT_EQ(example(R"({"prompt":"q","chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
                        "rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}]})"),
            "pairs user:q | assistant:a / user:q | assistant:b");
  EXPECT_EQ(example(R"({"prompt":"q","completion":"a","label":true})"), "labels user:q | assistant:a yes");
  EXPECT_EQ(
      example(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"kto_tag":false})"),
      "labels user:q | assistant:a no");
  EXPECT_EQ(example(R"({"text":"t"})"), "texts t");
}

TEST(DataShapes, Faults) {
  EXPECT_EQ(example("{}"), "fault: no known columns");
  EXPECT_EQ(example(R"({"text":7})"), "fault: \"text\" is not a string");
  EXPECT_EQ(example(R"({"text":" \n"})"), "fault: \"text\" is empty");
  EXPECT_EQ(example(R"({"messages":{}})"), "fault: \"messages\" is no list");
  EXPECT_EQ(example(R"({"messages":[]})"), "fault: \"messages\" is empty");
  EXPECT_EQ(example(R"({"messages":{"role":["user","assistant"],"content":["q"]}})"),
            "fault: lists that belong together are of different lengths");
  EXPECT_EQ(example(R"({"messages":[7]})"), "fault: a message is not an object");
  EXPECT_EQ(example(R"({"messages":[{"content":"a"}]})"), "fault: a message without a role");
  EXPECT_EQ(example(R"({"messages":[{"role":"user"}]})"), "fault: a message without content");
  EXPECT_EQ(example(R"({"messages":[{"role":"user","content":7}]})"), "fault: a message's content is not text");
  EXPECT_EQ(example(R"({"messages":[{"role":"user","content":[{"type":"image","url":"x"}]}]})"),
            "fault: a message has content other than text");
  EXPECT_EQ(example(R"({"conversations":[{"from":"alien","value":"x"}]})"), "fault: a turn of an unknown speaker");
  EXPECT_EQ(example(R"({"conversations":[{"from":"function_call","value":"x"}]})"),
            "fault: a function call is no valid JSON");
  EXPECT_EQ(example(R"({"prompt":"q","chosen":"a","rejected":"a"})"), "fault: both answers are the same");
  EXPECT_EQ(example(R"({"chosen":"a","rejected":"b"})"), "fault: a pair without a prompt");
  EXPECT_EQ(example(R"({"prompt":"q","completion":"a","label":"maybe"})"),
            "fault: \"label\" is neither true nor false");
  EXPECT_EQ(example(R"({"a":"q"})", {"prompt=Q"}), "fault: no column \"Q\"");
  EXPECT_THROW(read_columns({"prompt"}), Error);
  EXPECT_THROW(read_columns({"promt=Q"}), Error);
  EXPECT_THROW(read_columns({"prompt=Q", "prompt=R"}), Error);
}

TEST(DataDocument, ProseQuestionsAndSettings) {
  const Document d = read_document(
      "---\nbase: model.gguf\nmethod: \"lora\"\n# a remark\n---\n\nSome prose.\n\n# A heading\n\nMore.\n\n"
      "### System\nBe short.\n### Q\nWhat?\n### A\nThat.\n```\n### Q\n```\n### Follow-up\nWhy?\n### A:\nSo.\n"
      "## Question\nWho?\n## Answer\nNobody.\n# Afterwards\nThe end.\n");
  ASSERT_EQ(d.settings.size(), 2u);
  EXPECT_EQ(d.settings[0].key + "=" + d.settings[0].value, "base=model.gguf");
  EXPECT_EQ(d.settings[1].value, "lora");
  std::vector<std::string> found;
  for (const DataRow& row : d.rows) found.push_back(fmt::format("{}: {}", row.line, row.value.dump()));
  EXPECT_THAT(
      found,
      ElementsAre(R"(6: {"text":"Some prose.\n\n# A heading\n\nMore."})",
                  R"(13: {"messages":[{"role":"system","content":"Be short."},{"role":"user","content":"What?"},)"
                  R"({"role":"assistant","content":"That.\n```\n### Q\n```"},{"role":"user","content":"Why?"},)"
                  R"({"role":"assistant","content":"So."}]})",
                  R"(26: {"messages":[{"role":"user","content":"Who?"},{"role":"assistant","content":"Nobody."}]})",
                  R"(30: {"text":"# Afterwards\nThe end."})"));
}

TEST(DataDocument, WhatIsWrongIsAFault) {
  EXPECT_THAT(read_document("---\nbase: x\n").rows.at(0).fault, HasSubstr("no end"));
  EXPECT_THAT(read_document("---\nwhat\n---\nx").rows.at(0).fault, HasSubstr("no \"key: value\""));
  EXPECT_THAT(read_document("### Q\n\n### A\nx\n").rows.at(0).fault, HasSubstr("without text"));
  EXPECT_THAT(read_document("\xff").rows.at(0).fault, HasSubstr("UTF-8"));
  EXPECT_TRUE(read_document("").rows.empty());
}

}  // namespace
}  // namespace lumen::model::data
