// The inputs of steps that read pictures: `pictures`, rows in place of embeddings; `seen`, which tokens have one; and
// `at`, the positions of tokens on three axes. Proved by tests/model/infer/pictures/pictures_test.cpp.
#pragma once

#include <map>

#include "model/infer/pictures/positions.h"
#include "model/infer/session/handed.h"
#include "model/infer/session/session.h"

namespace lumen::model::infer {

inline constexpr const char *kPictures = "pictures", *kSeen = "seen", *kAt = "at";

// Whether the positions of pictures have lines and columns in this model.
bool positions_by_grid(const arch::Model& model);

// Fills the inputs of one step. `in`: those of the program, by name.
class SeenRows {
 public:
  SeenRows(const LoadedModel& loaded, int64_t tokens);
  // Says what the step's token number i is; returns its id for the embedding.
  text::TokenId put(int64_t i, text::TokenId id, const std::array<int32_t, 3>& position);
  // Rows are not uploaded where no token has one: nothing reads them then.
  void hand_over(std::map<std::string, Handed>& in);

 private:
  const PictureBook& book_;
  int64_t tokens_;
  std::vector<float> rows_;
  std::vector<int32_t> seen_, at_;
};

}  // namespace lumen::model::infer
