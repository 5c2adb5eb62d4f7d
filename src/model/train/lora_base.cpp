#include "model/train/lora_base.h"

#include "base/error.h"
#include "model/arch/read.h"
#include "model/file/json.h"

namespace lumen::model {

Hash weights_hash(const Model& model) {
  std::string text;
  for (const auto& [name, w] : model.weights)
    text += fmt::format("{} {} {}\n", name, print(w.type), hash_bytes(w.bytes.data(), w.bytes.size()).hex());
  return hash_text(text);
}

void record_base(const BaseModel& base, CheckpointContent* content) {
  content->state.more["base"] = {{"path", base.path}, {"weights_xxh3_128", base.hash.hex()}};
}

std::optional<BaseModel> recorded_base(const Checkpoint& checkpoint) {
  const nlohmann::json& more = checkpoint.state.more;
  if (!more.contains("base")) return std::nullopt;
  const std::string where = (checkpoint.folder / "trainer_state.json").string();
  const nlohmann::json& base = json_member(more, "base", where);
  const std::string hex = json_text(base, "weights_xxh3_128", where);
  const auto hash = read_hash(hex);
  if (!hash) throw user_error("{}: '{}' is no content hash", where, hex);
  return BaseModel{json_text(base, "path", where), *hash};
}

Model read_base(const LibraryRef& library, const BaseModel& base, const std::string& elsewhere) {
  const std::string path = elsewhere.empty() ? base.path : elsewhere;
  constexpr const char* kHint = "--model names the file or folder the adapter was begun with";
  if (path.empty()) throw Error(Exit::user, "the checkpoint does not say where the model of its adapter lies", kHint);
  std::error_code failure;
  if (!std::filesystem::exists(path, failure) && elsewhere.empty())
    throw Error(Exit::user, fmt::format("the model of this adapter is no longer at {}", path), kHint);
  Model model = read_model(library, path);
  if (const Hash now = weights_hash(model); !(now == base.hash))
    throw Error(Exit::verify,
                fmt::format("{} has other weights than the model this adapter was trained beside (hash {}, then {})",
                            path, now.hex(), base.hash.hex()),
                kHint);
  return model;
}

}  // namespace lumen::model
