// Pictures as a model reads them: a tower (model/arch/family/tower.h) computes rows of them, which stand for tokens of
// a prompt. A tower is a graph of its own, compiled for a few numbers of patches. Proved by
// tests/model/infer/tower/tower_test.cpp.
//
// May include: base, base/sealed, model/arch, model/arch/family, model/image/prepare, model/infer/pictures,
// model/infer/session, run/engine.
// Offers: picture_prompt.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/arch/family/tower.h"
#include "model/arch/model.h"
#include "model/image/prepare/prepare.h"
#include "model/infer/pictures/pictures.h"
#include "model/infer/session/session.h"

namespace lumen::model::infer {

// How the tower's pictures are prepared: by the files of its folder, and by its family where they say nothing.
image::Preparation preparation_of(const arch::Model& tower);

// The numbers of patches for which towers are compiled: at least `count`, whole squares of `square` patches.
int64_t patches_of_step(int64_t count, int64_t square);

// Integers that a tower reads besides the numbers of the patches, by name: where each patch is, how many there are, in
// how many lines and columns, and which are in each window of `window` pixels (0: no windows).
struct PatchPlaces {
  int64_t patches = 0, windows = 0, most_in_window = 0;  // with padding
  std::map<std::string, std::vector<int32_t>> inputs = {};
};
PatchPlaces patch_places(const image::Patches& patches, const image::Preparation& how, int64_t window);

// A picture as a tower reads it.
struct PreparedPicture {
  Hash hash;  // collision-resistant: equal ones are equal pictures, also where strangers choose them
  image::Patches patches;
  int64_t lines = 0, columns = 0;  // of its rows
  int64_t count() const { return lines * columns; }
};

class Tower {
 public:
  // `exact`: f32 activations throughout.
  Tower(run::Engine& engine, arch::Model tower, bool exact);

  // How many rows a picture of this size in pixels has, and the picture prepared. Any thread may call these two.
  int64_t rows_of(int64_t height, int64_t width, const std::string& name) const;
  PreparedPicture prepared(const image::Image& picture, const std::string& name) const;
  // The picture with its rows, held in `book` (LoadedModel::pictures). Error if they do not fit `width` numbers.
  PictureRef hold(const PreparedPicture& picture, PictureBook& book, int64_t width);
  // Both at once.
  PictureRef see(const image::Image& picture, const std::string& name, PictureBook& book, int64_t width);
  const arch::PictureText& text() const { return text_; }

 private:
  struct Step {
    int64_t patches, windows;
    std::shared_ptr<run::Program> program;
    std::map<std::string, run::DeviceTensorRef> in;
  };
  Step& step(const PatchPlaces& places);
  std::vector<float> rows(const PreparedPicture& picture, int64_t width);

  arch::Model model_;
  arch::PictureText text_;
  image::Preparation how_;
  LoadedModel loaded_;
  graph::Graph graph_;
  bool exact_;
  std::deque<Step> steps_;
};

}  // namespace lumen::model::infer
