#include <filesystem>

#include "base/file/file.h"
#include "model/recipe/objective/objective.h"

namespace lumen::model::recipe {

void take_text(ObjectiveSettings& settings) {
  constexpr size_t kMostText = 1 << 20;
  if (settings.text.empty() && settings.name.ends_with(".lum")) {
    settings.text = read_file(settings.name, kMostText);
    settings.name = std::filesystem::path(settings.name).stem().string();
  }
}

}  // namespace lumen::model::recipe
