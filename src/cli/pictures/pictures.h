// Pictures that users give to a model: the tower of the model's folder, and files read through it. Proved by
// tests/cli/pictures/pictures_check.py.
//
// May include: base, base/file, base/structured, model/arch, model/arch/checkpoint, model/arch/family, model/file/hub,
// model/image, model/infer/session, model/infer/tower.
// Offers: tower_note.h.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/model.h"
#include "model/infer/session/session.h"
#include "model/infer/tower/tower.h"

namespace lumen::cli {

inline constexpr uint64_t kLargestPictureFile = uint64_t{64} << 20;

// A model that reads pictures. From its construction on, sessions of `loaded` do so.
class PictureReader {
 public:
  // `path`: the model's, or its tower's. Error for models that have no tower.
  PictureReader(const model::arch::LibraryRef& library, const std::filesystem::path& path,
                model::infer::LoadedModel& loaded, bool exact);
  model::infer::PictureRef read(const std::filesystem::path& file);
  model::infer::PictureRef read(std::string_view bytes, const std::string& name);
  const model::arch::PictureText& text() const { return tower_.text(); }

 private:
  model::infer::LoadedModel& loaded_;
  model::infer::Tower tower_;
};

}  // namespace lumen::cli
