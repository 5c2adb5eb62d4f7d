// Reads the pictures of a request: fetches or decodes their bytes, checks them against the server's limits, and
// prepares them for the model's tower, all on the thread of the request. Proved by tests/model/serve/pictures_test.cpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/serve/pictures/picture_parts.h"
#include "model/serve/request.h"

namespace lumen::model::serve {

// Refusal that names the picture: it cannot be read, breaks a limit, or the model reads none.
std::vector<AskedPicture> read_pictures(std::span<const PicturePart> parts, const ServedModel& model, FieldNotes* notes,
                                        const std::function<bool()>& is_stopped);

// The tokens of a prompt with a place for each row of its pictures, which learn their places. Refusal if the template
// writes another number of places than there are pictures.
std::vector<text::TokenId> placed(std::span<const text::TokenId> prompt, std::span<AskedPicture> pictures,
                                  const ServedModel& model);

// The opposite: each picture is the token of one place.
std::vector<text::TokenId> without_rows(std::span<const text::TokenId> prompt, std::span<const AskedPicture> pictures,
                                        const ServedModel& model);

}  // namespace lumen::model::serve
