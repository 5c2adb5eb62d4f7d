#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/infer/recorded/recorded.h"

namespace lumen::model::infer {
namespace {

constexpr const char *kAbout = "recording.json", *kOutputs = "recording.safetensors";
constexpr int64_t kVersion = 1, kMostModules = 1 << 20;
constexpr uint64_t kLargestAbout = uint64_t{64} << 20;

// f32, and beginning with the axes of sequences and tokens.
void check_output(const Recording& r, const std::string& name, const std::string& where) {
  const file::StoredTensor* t = r.outputs->find(name);
  if (!t) throw user_error("{}: the output of '{}' is missing", where, name);
  if (t->element.format || t->element.scalar != Scalar::f32) throw user_error("{}: '{}' is not in f32", where, name);
  if (t->shape.size() < 3 || t->shape[0] != r.sequences || t->shape[1] != r.tokens)
    throw user_error("{}: '{}' does not have the shape [{}, {}, ..] of sequences and tokens", where, name, r.sequences,
                     r.tokens);
}

}  // namespace

Recording read_recording(const std::filesystem::path& folder, const FormatLibrary& formats) {
  const std::filesystem::path about = folder / kAbout, outputs = folder / kOutputs;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(about, failure))
    throw Error(Exit::user, fmt::format("{}: there is no recording here ({} is missing)", folder.string(), kAbout),
                "make one: python3 tools/record_model.py MODEL_FOLDER " + folder.string());
  const std::string where = about.string();
  const nlohmann::json said = parse_json(read_file(about, kLargestAbout), where);
  if (!said.is_object()) throw user_error("{}: not a JSON object", where);
  if (const int64_t version = json_integer(said, "lumen_recording", where); version != kVersion)
    throw user_error("{}: version {} of recordings is not known, only {}", where, version, kVersion);
  Recording r;
  const std::filesystem::path model = json_text(said, "model", where);
  r.model = (model.is_absolute() ? model : folder / model).lexically_normal();
  r.program = "transformers " + json_text(said, "transformers", where);
  r.kind = json_text(said, "class", where);
  r.layers = json_integer(said, "layers", where);
  r.has_logits = json_boolean(said, "logits", false, where);
  r.outputs = std::make_shared<const file::SafetensorsFile>(outputs, formats);
  const file::StoredTensor& tokens = r.outputs->get("tokens");
  if (tokens.element.format || tokens.element.scalar != Scalar::i32 || tokens.shape.size() != 2 ||
      tokens.shape[0] < 1 || tokens.shape[1] < 1)
    throw user_error("{}: 'tokens' is not a table of sequences and tokens in i32", outputs.string());
  r.sequences = tokens.shape[0];
  r.tokens = tokens.shape[1];
  const nlohmann::json& modules = json_member(said, "modules", where);
  if (!modules.is_array() || std::ssize(modules) > kMostModules)
    throw user_error("{}: \"modules\" is not a list of modules", where);
  std::set<std::string> names;
  std::set<int64_t> layers;
  for (const nlohmann::json& one : modules) {
    if (!one.is_object()) throw user_error("{}: \"modules\" is not a list of modules", where);
    RecordedModule m{json_text(one, "name", where), -1};
    if (one.contains("layer")) m.layer = json_integer(one, "layer", where);
    if (!names.insert(m.name).second) throw user_error("{}: '{}' is there twice", where, m.name);
    if (m.layer < -1 || m.layer >= r.layers || (m.layer >= 0 && !layers.insert(m.layer).second))
      throw user_error("{}: '{}' has the layer number {}, which is not possible", where, m.name, m.layer);
    check_output(r, m.name, outputs.string());
    r.modules.push_back(std::move(m));
  }
  check_output(r, "result", outputs.string());
  if (r.outputs->find("embedding")) check_output(r, "embedding", outputs.string());
  return r;
}

}  // namespace lumen::model::infer
