// Conversations as tokens, and which of them the model is to learn: what it would have said itself. Where an answer
// lies is never guessed. Either the template says it ({% generation %}), or what the template prints of the messages
// before the answer (and with it) is a beginning of what it prints of all; or, where templates print earlier answers in
// another way than the last one, marks around the answer's texts show it, up to the control token that ends the turn.
// What none of these finds is a fault. Proved by tests/model/data/data_mask_test.cpp and
// tests/model/data/data_reference.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/data/rows/shapes.h"
#include "model/template/chat.h"

namespace lumen::model {

enum class TrainOn { all, assistant, last };
const char* train_on_name(TrainOn which);
TrainOn train_on(const std::string& name);  // Error (usage) that lists the names

struct MaskedTokens {
  std::vector<TokenId> ids;
  std::vector<uint8_t> learned;  // 1 or 0 for each
};

// Answers behind the first `prompt` messages are learned: all, or the last one; messages whose "weight" is 0 are not.
// White space that a template prints behind the control token that ends a turn is not the answer's. EOS follows where
// the template ends the last answer with no such token. Throws ShapeFault.
MaskedTokens mask_chat(const ChatRenderer& renderer, const nlohmann::ordered_json& messages,
                       const nlohmann::ordered_json& more, TrainOn which, size_t prompt = 0);

// The time that templates are told: always the same, so that data make the same tokens on every day.
std::tm template_time();

}  // namespace lumen::model
