// needs: none. What a grammar does not enforce of a request's schema is reported with the answer, and refused where the
// schema is strict.
#include "model/serve/schema_report.h"

#include <gtest/gtest.h>

#include "model/serve/forms/forms.h"
#include "model/serve/reply.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

// A vocabulary that can write any JSON.
ServedModel& ascii() {
  static ServedModel model = [] {
    std::string all;
    for (char c = ' '; c <= '~'; ++c) all += c;
    return ServedModel("ascii", text::Tokenizer::characters(all), 95);
  }();
  model.longest = 4096;
  if (!model.chat)
    model.chat.emplace(model.tokenizer,
                       templates::ChatTemplate::parse("{% for m in messages %}{{ m['content'] }}{% endfor %}"));
  return model;
}

// `uniqueItems` of numbers is nothing that a grammar can count.
GenerationRequest request_with(bool is_strict, const std::string& more = R"(, "uniqueItems": true)") {
  return read_chat(request_object(R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type":
      "json_schema", "json_schema": {"name": "n", "strict": )" +
                                  std::string(is_strict ? "true" : "false") +
                                  R"(, "schema": {"type": "array", "items": {"type": "integer"})" + more + "}}}}"),
                   ascii());
}

ordered_json answer_to(const GenerationRequest& request, const std::string& text) {
  Reply reply(request, ascii(), 5);
  Delta piece;
  piece.text = text;
  reply.add(piece);
  Delta end;
  end.ended = true;
  end.answer.reason = infer::EndReason::grammar;
  reply.add(end);
  return reply.whole();
}

TEST(SchemaReports, RelaxedPlacesAndWhetherTheAnswerFits) {
  const ordered_json fits = answer_to(request_with(false), "[1, 2]")["choices"][0];
  EXPECT_EQ(fits["lumen"]["schema"]["relaxed"], (ordered_json{"/uniqueItems"}));
  EXPECT_EQ(fits["lumen"]["schema"]["valid"], true);
  const ordered_json repeats = answer_to(request_with(false), "[1, 1]")["choices"][0];
  EXPECT_EQ(repeats["lumen"]["schema"]["valid"], false);
  EXPECT_EQ(repeats["message"]["content"], "[1, 1]");
}

TEST(SchemaReports, EventsOfMessagesHaveThem) {
  const auto last_event = [](const GenerationRequest& request, const std::string& text) {
    MessagesReply reply(request, ascii(), 5);
    Delta piece;
    piece.text = text;
    piece.ended = true;
    piece.answer.reason = infer::EndReason::grammar;
    std::string said = reply.first_events();
    EXPECT_EQ(said.find("lumen"), std::string::npos);
    EXPECT_EQ(reply.events(piece).find("lumen"), std::string::npos);
    said = reply.last_events();
    const size_t begin = said.find("data: ", said.find("event: message_delta")) + 6;
    return ordered_json::parse(said.substr(begin, said.find('\n', begin) - begin));
  };
  const ordered_json repeats = last_event(request_with(false), "[1, 1]");
  EXPECT_EQ(repeats["type"], "message_delta");
  EXPECT_EQ(repeats["lumen"]["schema"]["relaxed"], (ordered_json{"/uniqueItems"}));
  EXPECT_EQ(repeats["lumen"]["schema"]["valid"], false);
  EXPECT_EQ(last_event(request_with(false), "[1, 2]")["lumen"]["schema"]["valid"], true);
  EXPECT_FALSE(last_event(request_with(false, ""), "[1, 1]").contains("lumen"));
}

TEST(SchemaReports, AbsentWhereTheGrammarEnforcesAll) {
  EXPECT_FALSE(answer_to(request_with(false, ""), "[1, 1]")["choices"][0].contains("lumen"));
  EXPECT_FALSE(answer_to(request_with(true, ""), "[1, 1]")["choices"][0].contains("lumen"));
}

TEST(SchemaReports, AStrictSchemaIsRefusedByPlace) {
  try {
    (void)request_with(true);
    FAIL() << "it was accepted";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status, 400);
    EXPECT_NE(std::string(refusal.what()).find("/uniqueItems"), std::string::npos) << refusal.what();
  }
}

}  // namespace
}  // namespace lumen::model::serve
