#include "cli/pictures/tower_note.h"

#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "model/arch/family/config_file.h"
#include "model/arch/family/tower.h"
#include "model/file/hub/resolve.h"

namespace lumen::cli {

void note_tower(const model::arch::LibraryRef& library, const std::filesystem::path& in, const std::string& out) {
  const std::filesystem::path config = model::file::resolve_path(in) / "config.json";
  std::error_code failure;
  if (!std::filesystem::exists(config, failure)) return;
  const nlohmann::json said = parse_json(read_file(config, 16 << 20), config.string());
  if (said.is_object() && model::arch::tower_of(*library, model::arch::architecture_of(said)))
    note(fmt::format("'{}' is the text part alone; to show it pictures, run it with --mmproj '{}'", out, in.string()));
}

}  // namespace lumen::cli
