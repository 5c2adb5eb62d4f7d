// Converts chat messages to the normal form passed to templates, from all sources: rows of data, requests, saved
// conversations. ChatRenderer normalizes every message, so that templates get the same input in training, serving and
// evaluation. Proved by tests/model/templates/messages_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lumen::model::templates {

// Why a list is not a valid list of messages: a short reason that many lists share, and the detail.
struct MessageFault {
  std::string reason, detail;
};

enum class OtherKeys { kept, refused };

// Whether contents may have parts that are pictures: {"type": "image"}. Such a content stays a list, in which all
// other parts are {"type": "text", "text": TEXT}.
enum class PictureParts { refused, kept };

// Returns the messages with
//   "content"       as one string: text parts are joined; "" if there is none besides calls or reasoning,
//   "tool_calls"    as {"id", "type": "function", "function": {"name", "arguments"}}; arguments become an object, even
//   if
//                   given as a JSON string; calls without "function" around them, and the older "function_call", are
//                   converted; an empty list is removed,
//   "name"          of tool results set to that of the call they answer, if it is missing,
// and without keys whose value is null. The function is idempotent. Throws MessageFault. Unknown keys are kept for the
// template, or rejected.
nlohmann::ordered_json normal_messages(const nlohmann::ordered_json& messages, OtherKeys other = OtherKeys::kept,
                                       PictureParts pictures = PictureParts::refused);

bool is_picture_part(const nlohmann::ordered_json& part);
// Puts text before a content, whether it is a string or a list of parts. Nothing happens for an empty text.
void put_before(nlohmann::ordered_json& content, const std::string& text);

// The text of a content: the string itself, or its parts joined. Throws MessageFault if a part is not text. `owner`:
// used in messages ("message").
std::string content_text(const nlohmann::ordered_json& content, const char* owner);

// An assistant's reasoning is stored under one of several keys, and templates read one of them: copies it to all keys.
void share_thoughts(nlohmann::ordered_json& message);
// The reasoning under one of these keys; empty if there is none.
std::string thoughts_of(const nlohmann::ordered_json& message);

}  // namespace lumen::model::templates
