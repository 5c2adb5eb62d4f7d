// Conversations as tokens, and which of them the model is to learn: what it would have said itself, up to the token
// with which it ends. Where an answer lies is never guessed:
//   - {% generation %} blocks say it, where the template has them;
//   - else an answer is what the template prints behind what it prints of the messages before it with an answer opened;
//   - where it opens answers to come in another way than given ones, the answer begins where both part;
//   - which characters come from the message itself is seen by marks around its strings, and where marks change what
//     the template does, by other letters in their place.
// Templates may print an answer differently once others follow it (without its thoughts, say). Such an answer is
// learned in a sequence of its own, which ends with it. Proved by tests/model/data/data_mask_test.cpp and
// tests/model/data/data_reference.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/data/rows/shapes.h"
#include "model/templates/chat.h"

namespace lumen::model::data {

enum class TrainOn { all, assistant, last };
const char* train_on_name(TrainOn which);
TrainOn train_on(const std::string& name);  // Error (usage) that lists the names

struct MaskedTokens {
  std::vector<text::TokenId> ids;
  std::vector<uint8_t> learned;  // 1 or 0 for each
};

struct MaskedChat {
  std::vector<MaskedTokens> sequences;  // at least one
  std::string cut;                      // what of the messages is in none of them; empty: nothing
};

// Answers behind the first `prompt` messages are learned: all, or the last one; messages whose "weight" is 0 are not.
// White space that a template prints behind the control token that ends a turn is not the answer's. Where the template
// ends the last answer of a text with no such token, the one with which answers end (AnswerForm) or EOS follows.
// Throws ShapeFault.
MaskedChat mask_chat(const templates::ChatRenderer& renderer, const nlohmann::ordered_json& messages,
                     const nlohmann::ordered_json& more, TrainOn which, size_t prompt = 0);
// All answers behind the prompt within one sequence, as answers that are compared need it.
MaskedTokens mask_answer(const templates::ChatRenderer& renderer, const nlohmann::ordered_json& messages,
                         const nlohmann::ordered_json& more, size_t prompt);

// The time that templates are told: always the same, so that data make the same tokens on every day.
std::tm template_time();

}  // namespace lumen::model::data
