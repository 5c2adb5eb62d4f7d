#include "model/infer/tower/picture_prompt.h"

#include <algorithm>

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

std::vector<text::TokenId> encode_with_pictures(const text::Tokenizer& tokenizer, const std::string& prompt,
                                                const text::EncodeOptions& options, const arch::PictureText& how,
                                                std::span<const PictureRef> pictures) {
  if (const int64_t places = places_in(prompt, how); places != std::ssize(pictures))
    throw Error(Exit::user,
                fmt::format("the prompt has {} places for pictures ({}), but there are {} pictures", places, how.place,
                            pictures.size()),
                "each picture has one place in the prompt");
  const std::vector<text::TokenId> tokens = tokenizer.encode(prompt, options);
  const std::vector<text::TokenId> place = tokenizer.encode(how.place, {.add_special = false, .parse_special = true});
  if (place.size() != 1 || std::ranges::count(tokens, place[0]) != std::ssize(pictures))
    throw Error(Exit::user,
                fmt::format("'{}' is no token of this model, so pictures have no place in a prompt", how.place),
                "the tokenizer belongs to another model");
  std::vector<text::TokenId> out;
  size_t next = 0;
  for (const text::TokenId id : tokens) {
    if (id != place[0]) {
      out.push_back(id);
      continue;
    }
    const std::vector<text::TokenId>& rows = pictures[next++]->ids;
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

}  // namespace lumen::model::infer
