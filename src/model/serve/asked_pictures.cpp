#include "model/serve/asked_pictures.h"

#include <chrono>
#include <semaphore>

#include "base/error.h"
#include "model/image/image.h"
#include "model/infer/tower/picture_prompt.h"
#include "model/serve/fields.h"

namespace lumen::model::serve {
namespace {

// Pictures that are decoded at once, over all requests: each takes up to some hundred megabytes.
constexpr std::ptrdiff_t kAtOnce = 2;

class Turn {
 public:
  explicit Turn(const std::function<bool()>& is_stopped) {
    while (!free_.try_acquire_for(std::chrono::milliseconds(100)))
      if (is_stopped && is_stopped()) throw Refusal(503, "the client has left");
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { free_.release(); }

 private:
  static inline std::counting_semaphore<kAtOnce> free_{kAtOnce};
};

void check_media(const PictureBytes& given, const std::string& where, FieldNotes* notes) {
  const MediaFit fit = media_fit(given.media_type, given.bytes);
  if (fit == MediaFit::fits) return;
  const std::string type = "the media type " + key_in_quotes(given.media_type);
  if (fit == MediaFit::no_picture)
    throw wrong_value(where, where + ": " + type + " is not read; pictures are PNG, JPEG, WebP or BMP");
  if (notes->is_strict) throw wrong_value(where, where + ": " + type + " is not that of the picture's data");
  notes->add(type + " is not that of the picture's data, which decides");
}

}  // namespace

std::vector<AskedPicture> read_pictures(std::span<const PicturePart> parts, const ServedModel& model, FieldNotes* notes,
                                        const std::function<bool()>& is_stopped) {
  if (parts.empty()) return {};
  if (!model.pictures)
    throw Refusal(400, parts[0].where + ": this model reads no pictures", parts[0].where, "unsupported_parameter");
  const ServedPictures& reads = *model.pictures;
  const PictureRules& rules = reads.source->rules();
  if (std::ssize(parts) > rules.most)
    throw wrong_value(parts[rules.most].where,
                      fmt::format("a request has {} pictures, but may have {}", parts.size(), rules.most));
  std::vector<AskedPicture> out;
  int64_t rows = 0;
  for (const PicturePart& part : parts) {
    try {
      const PictureBytes given = reads.source->read(part.address, is_stopped);
      check_media(given, part.where, notes);
      const Turn turn(is_stopped);
      const image::Image image = image::read_image(given.bytes, part.where, {.pixels = rules.most_pixels});
      rows += reads.tower->rows_of(image.height, image.width, part.where);
      if (rows > model.longest)
        throw Refusal(400,
                      fmt::format("{}: the pictures have {} tokens or more, but the context holds {}", part.where, rows,
                                  model.longest),
                      part.where, "context_length_exceeded");
      out.push_back({std::make_shared<const infer::PreparedPicture>(reads.tower->prepared(image, part.where))});
    } catch (const PictureFault& fault) {
      throw Refusal(fault.is_forbidden ? 403 : 400, part.where + ": " + fault.what(), part.where,
                    fault.is_forbidden ? "unsupported_parameter" : "invalid_value");
    } catch (const Error& error) {
      if (error.code() != Exit::user) throw;
      throw wrong_value(part.where, error.what());
    }
  }
  return out;
}

std::vector<text::TokenId> placed(std::span<const text::TokenId> prompt, std::span<AskedPicture> pictures,
                                  const ServedModel& model) {
  std::vector<infer::PictureGrid> grids;
  for (const AskedPicture& one : pictures) grids.push_back({one.prepared->lines, one.prepared->columns});
  try {
    infer::PlacedPictures out = infer::with_places(model.tokenizer, prompt, model.pictures->tower->text(), grids);
    for (size_t i = 0; i < pictures.size(); ++i) pictures[i].places = std::move(out.places[i]);
    return std::move(out.tokens);
  } catch (const Error& error) {
    throw wrong_value("messages",
                      fmt::format("this model's chat template does not show these pictures: {}", error.what()));
  }
}

std::vector<text::TokenId> without_rows(std::span<const text::TokenId> prompt, std::span<const AskedPicture> pictures,
                                        const ServedModel& model) {
  std::vector<text::TokenId> out;
  size_t at = 0;
  const size_t ends = pictures.empty() || model.pictures->tower->text().end.empty() ? 0 : 1;
  for (const AskedPicture& one : pictures) {
    out.insert(out.end(), prompt.begin() + at, prompt.begin() + one.places.front() + 1);
    at = one.places.back() + 1 + ends;
  }
  out.insert(out.end(), prompt.begin() + at, prompt.end());
  return out;
}

}  // namespace lumen::model::serve
