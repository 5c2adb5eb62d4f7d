#include "cli/pictures/pictures.h"

#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/image/image.h"

namespace lumen::cli {
namespace {

model::arch::Model tower_in(const model::arch::LibraryRef& library, const std::filesystem::path& path) {
  std::optional<model::arch::Model> tower = model::arch::read_tower(library, path);
  if (!tower)
    throw Error(Exit::user, fmt::format("'{}' reads no pictures", path.string()),
                "docs/guide/pictures.md lists the models that do, as Hugging Face folders");
  return std::move(*tower);
}

}  // namespace

PictureReader::PictureReader(const model::arch::LibraryRef& library, const std::filesystem::path& path,
                             model::infer::LoadedModel& loaded, bool exact)
    : loaded_(loaded), tower_(loaded.engine(), tower_in(library, path), exact) {
  loaded.read_pictures();
}

model::infer::PictureRef PictureReader::read(const std::filesystem::path& file) {
  return read(read_file(file, kLargestPictureFile), file.string());
}

model::infer::PictureRef PictureReader::read(std::string_view bytes, const std::string& name) {
  return tower_.see(model::image::read_image(bytes, name), name, loaded_.pictures(),
                    model::infer::picture_width(loaded_.model()));
}

}  // namespace lumen::cli
