// Chats with pictures as text and tokens. A chat template writes a mark for the part {"type": "image"}; where it knows
// no parts, the mark is put into the content in its place. Proved by tests/model/serve/pictures_test.cpp.
#pragma once

#include "model/arch/family/tower.h"
#include "model/templates/chat.h"

namespace lumen::model::serve {

// Whether a template writes something for a picture, which is found by trying.
bool writes_pictures(const templates::ChatRenderer& renderer);

// As ChatRenderer::prompt, for messages with pictures; each is one place in the tokens.
templates::ChatPrompt picture_prompt(const templates::ChatRenderer& renderer, const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& more, templates::PromptEnd end,
                                     const arch::PictureText& how);

}  // namespace lumen::model::serve
