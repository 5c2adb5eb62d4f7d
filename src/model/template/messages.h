// Messages of chats in the one form that templates are given, wherever they come from: rows of data, requests,
// conversations that were saved. ChatRenderer brings every message into it, so that what is trained, served, measured
// and shown reaches a template alike. Proved by tests/model/template/messages_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lumen::model {

// Why a list is none of messages: in few words that many lists share, and what exactly.
struct MessageFault {
  std::string reason, detail;
};

enum class OtherKeys { kept, refused };

// The messages with
//   "content"       as one string: parts of text are joined; "" where there is none beside calls or thoughts,
//   "tool_calls"    as {"id", "type": "function", "function": {"name", "arguments"}}, arguments as an object, be they
//                   given as one or as the text of one; calls without "function" around them, and the older
//                   "function_call", become such calls; an empty list goes,
//   "name"          of results as that of the call they answer, where they have none,
// and without keys whose value is null. Calling it again changes nothing. Throws MessageFault. Keys that mean nothing
// here are kept for the template, or refused.
nlohmann::ordered_json normal_messages(const nlohmann::ordered_json& messages, OtherKeys other = OtherKeys::kept);

// The text of a content: itself, or its parts joined. Throws MessageFault where a part is no text. `owner`: what it is
// the content of ("message").
std::string content_text(const nlohmann::ordered_json& content, const char* owner);

// What an assistant thought before it answered stands under one of several keys, and templates look for one of them:
// every key gets it.
void share_thoughts(nlohmann::ordered_json& message);
// The thoughts under such a key; empty where there are none.
std::string thoughts_of(const nlohmann::ordered_json& message);

}  // namespace lumen::model
