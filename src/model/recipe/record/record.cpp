#include "model/recipe/record/record.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/carry.h"
#include "model/arch/split_weights.h"
#include "model/recipe/recipe_keys.h"
#include "model/recipe/record/lora_base.h"
#include "model/recipe/record/provenance.h"

namespace lumen::model::recipe {
namespace {

using nlohmann::json;

constexpr const char* kCarried = "base.";  // + name of a small file
constexpr double kLargestConfig = 1e15;
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

std::string name_of(const data::DataFile& file) {
  return file.path.empty() ? "the built-in text" : "'" + file.path + "'";
}

std::string content_of(const data::DataFile& file) {
  return fmt::format("{} bytes, hash {}", file.bytes, file.hash.hex());
}

arch::Weight stored_weight(const file::Checkpoint& checkpoint, const FormatLibrary& formats, const arch::Parameter& p) {
  const file::StoredTensor& tensor = checkpoint.weights->get(p.name);
  std::vector<int64_t> expected;
  for (const graph::Dim& d : p.shape) expected.push_back(d.number());
  if (tensor.shape != expected)
    throw user_error("{}: tensor '{}' has another shape than the model's", checkpoint.folder.string(), p.name);
  arch::Weight w;
  w.type = {p.shape, tensor.element};
  if (!tensor.element.format && tensor.element.scalar != Scalar::f32) {
    const FormatRef format = arch::format_of_scalar(formats, tensor.element.scalar);
    if (!format)
      throw user_error("{}: tensor '{}' has element type {}, which weights cannot have", checkpoint.folder.string(),
                       p.name, scalar_name(tensor.element.scalar));
    w.type.element = {Scalar::f32, format};
  }
  // In memory the sections of a format's rows have padding between and after them, in files they have none.
  const bool has_sections = tensor.element.format && !tensor.is_blob();
  if (has_sections)
    w.bytes = tensor.blob();
  else if (tensor.is_blob() && std::ssize(tensor.data) == graph::byte_size(w.type))
    w.bytes = arch::Bytes(tensor.data, checkpoint.weights);
  else
    throw user_error("{}: tensor '{}' is not in the form that training writes", checkpoint.folder.string(), p.name);
  return w;
}

// Checks that the base model has exactly the weights, with their shapes, that the checkpoint expects.
void require_shapes(const arch::Model& model, const std::string& where) {
  for (const arch::Parameter& p : model.parameters) {
    const auto w = model.weights.find(p.name);
    if (w == model.weights.end() || w->second.type.shape != p.shape)
      throw user_error("{}: its model has no weight '{}' of this shape", where, p.name);
  }
  if (model.weights.size() != model.parameters.size())
    throw user_error("{}: its model has {} weights, {} of them known", where, model.weights.size(),
                     model.parameters.size());
}

}  // namespace

void record_run(const arch::Model& model, const std::vector<data::DataFile>& read, const Hash& tokens,
                file::CheckpointContent* content) {
  json& more = content->state.more;
  json numbers = json::object();
  for (const auto& [key, value] : model.config) numbers[key] = value;
  more["family"] = model.family->name();
  more["name"] = model.name;
  more["config"] = numbers;
  json files = json::array();
  for (const data::DataFile& f : read)
    files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"xxh3_128", f.hash.hex()}});
  more["data"] = {{"files", files}, {"tokens_xxh3_128", tokens.hex()}};
  for (const auto& [name, text] : model.files) content->files[kCarried + name] = text;
  if (!model.metadata.entries().empty()) content->header = model.metadata;
  if (model.tokenizer) {
    content->files[kTokenizer] = model.tokenizer->to_json();
    content->files[kTokenizerConfig] = model.tokenizer->to_config_json();
  }
}

StoredRun read_run(const arch::LibraryRef& library, const file::Checkpoint& checkpoint, const std::string& base) {
  const std::string where = (checkpoint.folder / "trainer_state.json").string();
  const json& more = checkpoint.state.more;
  StoredRun run;
  run.recipe = parse_recipe(checkpoint.state.config, where);
  check_recipe(run.recipe);
  arch::Model& model = run.model;
  model.family = library->family(json_text(more, "family", where));
  model.name = json_text(more, "name", where);
  const json& config = json_member(more, "config", where);
  if (!config.is_object()) throw user_error("{}: \"config\" is no object", where);
  graph::Config numbers;
  for (const auto& [key, value] : config.items()) {
    if (!value.is_number()) throw user_error("{}: \"config\" holds '{}', which is no number", where, key);
    numbers[key] = value.get<double>();
    if (!(std::abs(numbers[key]) <= kLargestConfig))
      throw user_error("{}: \"config\" holds {} = {}, which is out of range", where, key, numbers[key]);
  }
  model.config = model.family->config("", numbers);
  if (checkpoint.header) model.metadata = *checkpoint.header;
  model.parameters = own_parameters(model);
  if (const auto beside = recorded_base(checkpoint)) {
    if (!base.empty()) run.recipe.base = base;
    arch::Model whole = read_base(library, *beside, run.recipe.base);
    if (whole.family->name() != model.family->name())
      throw user_error("{}: the adapter's model is of the family '{}', but {} is of '{}'", where, model.family->name(),
                       run.recipe.base, whole.family->name());
    model.weights = std::move(whole.weights);
    require_shapes(model, where);
  } else {
    if (!base.empty())
      throw usage_error("--model {} and --resume contradict each other: the checkpoint holds the model that is trained",
                        base);
    for (const arch::Parameter& p : model.parameters)
      model.weights[p.name] = stored_weight(checkpoint, library->formats(), p);
  }
  const std::string_view carried = kCarried;
  for (const auto& [name, text] : checkpoint.files)
    if (name.starts_with(carried)) model.files[name.substr(carried.size())] = text;
  if (checkpoint.header && !arch::has_no_tokenizer(model.metadata)) {
    model.tokenizer = text::Tokenizer::from_gguf(model.metadata);
  } else if (const auto text = checkpoint.files.find(kTokenizer); text != checkpoint.files.end()) {
    const auto more_of_it = checkpoint.files.find(kTokenizerConfig);
    model.tokenizer = text::Tokenizer::from_json(
        text->second, (checkpoint.folder / kTokenizer).string(),
        more_of_it == checkpoint.files.end() ? std::string_view() : std::string_view(more_of_it->second));
  }
  if (!model.tokenizer) throw user_error("{}: the checkpoint has no tokenizer", checkpoint.folder.string());

  const json& data = json_member(more, "data", where);
  run.tokens = hash_of(json_text(data, "tokens_xxh3_128", where), where);
  const json& files = json_member(data, "files", where);
  if (!files.is_array()) throw user_error("{}: \"files\" is no array", where);
  for (const json& f : files) {
    const int64_t bytes = json_integer(f, "bytes", where);
    if (bytes < 0) throw user_error("{}: a file of {} bytes", where, bytes);
    run.files.push_back(
        {json_text(f, "path", where), static_cast<uint64_t>(bytes), hash_of(json_text(f, "xxh3_128", where), where)});
  }
  return run;
}

std::string data_changes(const std::vector<data::DataFile>& was, const std::vector<data::DataFile>& now) {
  std::string text;
  const auto line = [&](const std::string& one) { text += (text.empty() ? "" : "\n") + one; };
  for (size_t i = 0; i < std::max(was.size(), now.size()); ++i) {
    if (i >= now.size()) {
      line(fmt::format("{} is missing ({})", name_of(was[i]), content_of(was[i])));
    } else if (i >= was.size()) {
      line(fmt::format("{} is new ({})", name_of(now[i]), content_of(now[i])));
    } else if (was[i].bytes != now[i].bytes || !(was[i].hash == now[i].hash)) {
      line(fmt::format("{} has {}; the checkpoint's run read {} with {}", name_of(now[i]), content_of(now[i]),
                       name_of(was[i]), content_of(was[i])));
    }
  }
  return text;
}

std::vector<RecipeChange> recipe_changes(const Recipe& was, const Recipe& now) {
  std::set<std::string> free, of_model = {"[[quantize]]"};
  for (const RecipeKey& key : recipe_keys()) {
    if (key.effect == RecipeEffect::none) free.insert(key.name());
    if (key.effect == RecipeEffect::model) of_model.insert(key.name());
  }
  const auto all = [](const Recipe& recipe) {
    std::map<std::string, std::string> values;
    for (const RecipeValue& v : values_of(recipe)) values[v.section.empty() ? v.key : v.section + "." + v.key] = v.text;
    return values;
  };
  const auto before = all(was), after = all(now);
  std::set<std::string> keys;
  for (const auto* side : {&before, &after})
    for (const auto& entry : *side) keys.insert(entry.first);
  std::vector<RecipeChange> changes;
  for (const std::string& key : keys) {
    if (free.contains(key) || key.starts_with("file.")) continue;
    const auto value = [&](const auto& side) {
      const auto found = side.find(key);
      return found == side.end() || found->second.empty() ? std::string("nothing") : found->second;
    };
    const std::string a = value(before), b = value(after);
    if (a == b) continue;
    changes.push_back({key, a, b, key.starts_with("model.config.") || of_model.contains(key)});
  }
  return changes;
}

}  // namespace lumen::model::recipe
