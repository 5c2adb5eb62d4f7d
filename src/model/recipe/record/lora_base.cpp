#include "model/recipe/record/lora_base.h"

#include "base/error.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/recipe/record/provenance.h"
#include "model/recipe/record/record.h"

namespace lumen::model::recipe {

void record_base(const Hash& weights, file::CheckpointContent* content) {
  content->state.more["base"] = {{"weights_xxh3_128", weights.hex()}};
}

std::optional<Hash> recorded_base(const file::Checkpoint& checkpoint) {
  const nlohmann::json& more = checkpoint.state.more;
  if (!more.contains("base")) return std::nullopt;
  const std::string where = (checkpoint.folder / "trainer_state.json").string();
  return hash_of(json_text(json_member(more, "base", where), "weights_xxh3_128", where), where);
}

arch::Model read_base(const arch::LibraryRef& library, const Hash& weights, const std::string& path) {
  constexpr const char* kHint = "--model names the file or folder of the adapter's base model";
  if (path.empty()) throw Error(Exit::user, "the recipe has no path of the adapter's base model", kHint);
  arch::Model model;
  try {
    model = read_model(library, path);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("the base model of the adapter cannot be read: {}", error.what()), kHint);
  }
  if (const Hash now = weights_hash(model); !(now == weights))
    throw Error(Exit::verify,
                fmt::format("{} has other weights than the base model of this adapter (hash {}, recorded {})", path,
                            now.hex(), weights.hex()),
                kHint);
  return model;
}

}  // namespace lumen::model::recipe
