// Pictures in sequences of tokens. Each row that a tower made of a picture is a token with an id of its own: a negative
// number, a hash of the picture and the row. So sequences are compared, shared and cached by their tokens as ever, and
// equal tokens mean equal pictures. Proved by tests/model/infer/pictures/pictures_test.cpp.
//
// May include: base, model/text/tokenizer.
// Offers: positions.h.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::infer {

struct Picture {
  Hash hash;                            // of the numbers that the tower read
  int64_t lines = 0, columns = 0;       // of rows
  std::vector<float> rows = {};         // [lines * columns, width], line by line
  std::vector<text::TokenId> ids = {};  // of the rows; made by PictureBook::add
  int64_t width() const { return std::ssize(rows) / (lines * columns); }
};
using PictureRef = std::shared_ptr<const Picture>;

inline bool is_picture(text::TokenId id) {
  return id < 0;
}
bool has_pictures(std::span<const text::TokenId> tokens);

// The pictures of all sequences of a model. A picture stays as long as a request holds it; sequences with its tokens
// that are computed later need it held. Safe to use from several threads.
class PictureBook {
 public:
  // Gives its rows ids, or returns the picture with the same content that is held already.
  PictureRef add(Picture picture);
  struct Row {
    PictureRef picture;
    int64_t number = 0;
  };
  std::optional<Row> find(text::TokenId id) const;  // nullopt for other ids, and pictures that no request holds

 private:
  struct Held {
    std::weak_ptr<const Picture> picture;
    int64_t row = 0;
  };
  mutable std::mutex mutex_;
  std::unordered_map<text::TokenId, Held> rows_;
  std::vector<std::weak_ptr<const Picture>> pictures_;
  size_t swept_ = 0;  // entries after the last removal of pictures that no request holds
};

}  // namespace lumen::model::infer
