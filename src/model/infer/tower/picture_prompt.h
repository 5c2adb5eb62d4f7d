// Prompts with pictures: in a prompt's text each picture is a mark, and in the mark a place, which stands for all rows
// of the picture. Proved by tests/model/infer/tower/tower_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/family/tower.h"
#include "model/infer/pictures/pictures.h"

namespace lumen::model::infer {

// Tokens in which each picture has a place for each of its rows, with the tokens between its lines.
struct PlacedPictures {
  std::vector<text::TokenId> tokens;
  std::vector<std::vector<size_t>> places;  // by picture: where its rows are
  // Puts a picture's rows there.
  void put(size_t picture, const PictureRef& rows);
};
struct PictureGrid {
  int64_t lines = 0, columns = 0;
};
// Tokens of a prompt in which each picture is the token of one place. Error where there are more or fewer places than
// pictures.
PlacedPictures with_places(const text::Tokenizer& tokenizer, std::span<const text::TokenId> tokens,
                           const arch::PictureText& how, std::span<const PictureGrid> pictures);

// The tokens of a prompt in which pictures stand at their places, in order. Errors are those of with_places.
std::vector<text::TokenId> encode_with_pictures(const text::Tokenizer& tokenizer, const std::string& prompt,
                                                const text::EncodeOptions& options, const arch::PictureText& how,
                                                std::span<const PictureRef> pictures);

// The same for tokens in which each picture is the token of one place.
std::vector<text::TokenId> with_pictures(const text::Tokenizer& tokenizer, std::span<const text::TokenId> tokens,
                                         const arch::PictureText& how, std::span<const PictureRef> pictures);

// The token of a place. Error if the tokenizer has none.
text::TokenId place_token(const text::Tokenizer& tokenizer, const arch::PictureText& how);

// The prompt with marks of so many pictures before it, unless it has places itself.
std::string marked(const std::string& prompt, const arch::PictureText& how, int64_t pictures);
int64_t places_in(const std::string& prompt, const arch::PictureText& how);

}  // namespace lumen::model::infer
