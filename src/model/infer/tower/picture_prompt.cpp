#include "model/infer/tower/picture_prompt.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::infer {

int64_t places_in(const std::string& prompt, const arch::PictureText& how) {
  int64_t count = 0;
  for (size_t at = prompt.find(how.place); at != std::string::npos; at = prompt.find(how.place, at + how.place.size()))
    ++count;
  return count;
}

std::string marked(const std::string& prompt, const arch::PictureText& how, int64_t pictures) {
  if (places_in(prompt, how) > 0) return prompt;
  std::string out;
  for (int64_t i = 0; i < pictures; ++i) out += how.mark;
  return out + prompt;
}

namespace {

text::TokenId token_of(const text::Tokenizer& tokenizer, const std::string& name) {
  const std::vector<text::TokenId> ids = tokenizer.encode(name, {.add_special = false, .parse_special = true});
  if (ids.size() == 1) return ids[0];
  throw Error(Exit::user, fmt::format("'{}' is no token of this model, so pictures have no place in a prompt", name),
              "the tokenizer belongs to another model");
}

}  // namespace

text::TokenId place_token(const text::Tokenizer& tokenizer, const arch::PictureText& how) {
  return token_of(tokenizer, how.place);
}

void PlacedPictures::put(size_t picture, const PictureRef& rows) {
  const std::vector<size_t>& at = places.at(picture);
  LUMEN_CHECK(at.size() == rows->ids.size());
  for (size_t i = 0; i < at.size(); ++i) tokens[at[i]] = rows->ids[i];
}

PlacedPictures with_places(const text::Tokenizer& tokenizer, std::span<const text::TokenId> tokens,
                           const arch::PictureText& how, std::span<const PictureGrid> pictures) {
  const text::TokenId place = place_token(tokenizer, how);
  if (const auto places = std::ranges::count(tokens, place); places != std::ssize(pictures))
    throw Error(Exit::user,
                fmt::format("the prompt has {} places for pictures ({}), but there are {} pictures", places, how.place,
                            pictures.size()),
                "each picture has one place in the prompt");
  PlacedPictures out;
  for (const text::TokenId id : tokens) {
    if (id != place) {
      out.tokens.push_back(id);
      continue;
    }
    const PictureGrid& grid = pictures[out.places.size()];
    std::vector<size_t>& at = out.places.emplace_back();
    for (int64_t line = 0; line < grid.lines; ++line) {
      for (int64_t column = 0; column < grid.columns; ++column) {
        at.push_back(out.tokens.size());
        out.tokens.push_back(place);
      }
      const bool is_last = line + 1 == grid.lines;
      if (const std::string& end = is_last ? how.end : how.line_end; !end.empty())
        out.tokens.push_back(token_of(tokenizer, end));
    }
  }
  return out;
}

std::vector<text::TokenId> with_pictures(const text::Tokenizer& tokenizer, std::span<const text::TokenId> tokens,
                                         const arch::PictureText& how, std::span<const PictureRef> pictures) {
  std::vector<PictureGrid> grids;
  for (const PictureRef& one : pictures) grids.push_back({one->lines, one->columns});
  PlacedPictures placed = with_places(tokenizer, tokens, how, grids);
  for (size_t i = 0; i < pictures.size(); ++i) placed.put(i, pictures[i]);
  return std::move(placed.tokens);
}

std::vector<text::TokenId> encode_with_pictures(const text::Tokenizer& tokenizer, const std::string& prompt,
                                                const text::EncodeOptions& options, const arch::PictureText& how,
                                                std::span<const PictureRef> pictures) {
  return with_pictures(tokenizer, tokenizer.encode(prompt, options), how, pictures);
}

}  // namespace lumen::model::infer
