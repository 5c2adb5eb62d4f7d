// Prompts with pictures: in a prompt's text each picture is a mark, and in the mark a place, which stands for all rows
// of the picture. Proved by tests/model/infer/tower/tower_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/family/tower.h"
#include "model/infer/pictures/pictures.h"

namespace lumen::model::infer {

// The tokens of a prompt in which pictures stand at their places, in order. Error where there are more or fewer places
// than pictures.
std::vector<text::TokenId> encode_with_pictures(const text::Tokenizer& tokenizer, const std::string& prompt,
                                                const text::EncodeOptions& options, const arch::PictureText& how,
                                                std::span<const PictureRef> pictures);

// The prompt with marks of so many pictures before it, unless it has places itself.
std::string marked(const std::string& prompt, const arch::PictureText& how, int64_t pictures);
int64_t places_in(const std::string& prompt, const arch::PictureText& how);

}  // namespace lumen::model::infer
