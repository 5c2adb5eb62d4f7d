#include "model/arch/checkpoint/read.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/file/file.h"
#include "base/file/leave.h"
#include "base/log.h"
#include "base/naming.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/carry.h"
#include "model/arch/checkpoint/packed/held_tensors.h"
#include "model/arch/checkpoint/packed/packed.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/parts.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/tower_file/tower_file.h"
#include "model/arch/checkpoint/wrapped.h"
#include "model/arch/family/config_file.h"
#include "model/arch/family/gguf_rules.h"
#include "model/arch/family/tower.h"
#include "model/arch/low_rank_weights.h"
#include "model/arch/modules/modules.h"
#include "model/arch/split_weights.h"
#include "model/file/gguf_split.h"
#include "model/file/hub/resolve.h"
#include "number/codec/codec.h"
#include "run/device/require.h"

namespace lumen::model::arch {
namespace {

std::vector<int64_t> numbers(const graph::Shape& shape) {
  std::vector<int64_t> out;
  for (const graph::Dim& d : shape) out.push_back(d.number());
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// The type of a file's tensor as a weight: plain f32 stays, other plain floats get their format, formats are blobs.
graph::Type type_of(const FormatLibrary& formats, const file::StoredTensor& tensor, const Parameter& p,
                    const std::string& file) {
  const std::vector<int64_t> expected = numbers(p.shape);
  if (tensor.shape != expected) {
    throw Error(Exit::user,
                fmt::format("{}: tensor '{}' has shape {}, but the config needs {}", file, tensor.name,
                            shape_text(tensor.shape), shape_text(expected)),
                "the file's metadata and tensors disagree");
  }
  graph::Type type{p.shape, tensor.element};
  if (tensor.element.format && is_plain(*tensor.element.format, Scalar::f32)) type.element = {Scalar::f32, nullptr};
  if (!tensor.element.format && tensor.element.scalar != Scalar::f32) {
    const FormatRef format = format_of_scalar(formats, tensor.element.scalar);
    if (!format) {
      throw user_error("{}: tensor '{}' has element type {}, which weights cannot have", file, tensor.name,
                       scalar_name(tensor.element.scalar));
    }
    type.element = {Scalar::f32, format};
  }
  return type;
}

Weight weight_of(const FormatLibrary& formats, const file::StoredTensor& tensor, const Parameter& p,
                 const std::shared_ptr<const file::TensorFile>& opened, const std::string& file) {
  Weight w;
  w.type = type_of(formats, tensor, p, file);
  const size_t size = graph::byte_size(w.type);
  if (tensor.is_blob() && tensor.data.size() == size) {
    w.bytes = Bytes(tensor.data, opened);  // refers to the mapped file
  } else {
    Room room(size);
    if (tensor.blob_bytes() <= static_cast<int64_t>(size)) {
      tensor.copy_blob(room.data());
    } else {  // padding after the values
      const std::vector<uint8_t> blob = tensor.blob();
      std::copy_n(blob.begin(), size, room.data());
    }
    w.bytes = std::move(room).bytes();
  }
  // Vectors (norms, biases) are always computed in f32.
  if (w.type.element.format && p.is_vector()) {
    Weight decoded = f32_weight(p.shape, decode(*w.type.element.format, w.bytes, w.rows(), w.columns()));
    // Reading a vector between matrices loads surrounding pages that are not needed: release them.
    leave_to_file(tensor.data);
    return decoded;
  }
  return w;
}

// Reads the weights of one file, tensor by tensor.
class Taker {
 public:
  Taker(FamilyRef family, std::shared_ptr<const file::TensorFile> file, std::string name, bool hf,
        std::optional<PackedCheckpoint> packed = std::nullopt)
      : family_(std::move(family)),
        file_(std::move(file)),
        name_(std::move(name)),
        hf_(hf),
        packed_(std::move(packed)) {}

  bool has(const Parameter& p) const {
    const auto names = names_of(p);
    if (hf_ && p.hf_packed)
      return packed_ &&
             std::any_of(names.begin(), names.end(), [&](const auto& n) { return packed_->holds(*file_, n); });
    return std::any_of(names.begin(), names.end(), [&](const auto& n) { return has_tensor(n); }) ||
           (hf_ && !p.hf_fused.empty() && file_->find(p.hf_fused) != nullptr) ||
           (hf_ && !p.hf_rows.empty() && has_tensor(p.hf_rows));
  }

  // Reads all parameters of the model, and determines which are present; `later`: weights that need conversion have
  // only their type. All other tensors of the file must be ignored by the family.
  void take_all(Model& model, bool later) {
    const WeightSplits splits = weight_splits(*family_, model.config, model.metadata, name_);
    const auto own = [&](std::vector<Parameter> of_family) {
      return with_branches(with_parts(std::move(of_family), splits), model.metadata, name_);
    };
    for (const Parameter& p : own(family_->all_parameters(model.config))) {
      if (!p.absent_if.empty()) model.config[p.absent_if] = has(p) ? 0 : 1;
    }
    model.parameters = own(family_->parameters(model.config));
    config_ = model.config;
    require_room(model.parameters, later);
    uint32_t salt = 0;
    for (const Parameter& p : model.parameters) {
      ++salt;
      if (const std::optional<graph::Type> type = later ? announced(p) : std::nullopt) {
        model.weights[p.name].type = *type;
        continue;
      }
      auto w = hf_ || p.gguf_key.empty() ? take(p) : of_metadata(model.metadata, p);
      if (!w && !p.optional) {
        const auto names = names_of(p);
        throw user_error("{}: tensor '{}' is missing (parameter {})", name_, names.empty() ? p.hf_rows : names.front(),
                         p.name);
      }
      model.weights[p.name] = w ? std::move(*w) : initial_weight(*family_, model.config, p, 0, salt);
    }
    require_orders(model, name_);
    if (packed_) take_held(model, *packed_, *file_, [&](const Parameter& p) { return packed_names(p); }, used_);
    const std::vector<std::string> ignored = family_->ignored(hf_, model.config);
    for (const file::StoredTensor& tensor : file_->tensors()) {
      if (used_.contains(tensor.name)) continue;
      if (std::any_of(ignored.begin(), ignored.end(), [&](const auto& i) { return fits_pattern(i, tensor.name); }))
        continue;
      throw Error(Exit::user,
                  fmt::format("{}: tensor '{}' is unknown to the family '{}'", name_, tensor.name, family_->name()),
                  "the model has a variant that this family does not describe");
    }
  }

  // Creates a weight of which only the type was read.
  Weight make(const Parameter& p) {
    used_.clear();
    std::optional<Weight> w = take(p);
    LUMEN_CHECK(w, "parameter {} was announced", p.name);
    for (const std::string& name : used_)
      for (const std::span<const uint8_t> section : file_->get(name).sections) leave_to_file(section);
    return std::move(*w);
  }

 private:
  static constexpr std::string_view kExpert = "{e}";

  std::vector<std::string> names_of(const Parameter& p) const {
    std::vector<std::string> names;
    if (const std::string& first = hf_ ? p.hf : p.gguf; !first.empty()) names.push_back(first);
    if (hf_) names.insert(names.end(), p.hf_also.begin(), p.hf_also.end());
    return names;
  }

  static std::string of_expert(std::string name, int64_t e) {
    return name.replace(name.find(kExpert), kExpert.size(), std::to_string(e));
  }

  // The packed weights of the file that a parameter consists of.
  std::vector<std::string> packed_names(const Parameter& p) const {
    std::vector<std::string> out, names = names_of(p);
    names.insert(names.end(), {p.hf_fused, p.hf_rows});
    for (const std::string& name : names) {
      const bool is_stacked = name.find(kExpert) != std::string::npos;
      const int64_t count = is_stacked ? p.shape[0].number() : 1;
      for (int64_t e = 0; e < count; ++e) {
        std::string one = is_stacked ? of_expert(name, e) : name;
        if (!one.empty() && packed_->holds(*file_, one)) out.push_back(std::move(one));
      }
      if (!out.empty()) break;
    }
    return out;
  }

  // For several, one for each expert, checks the first.
  bool has_tensor(const std::string& name) const {
    const std::string first = name.find(kExpert) == std::string::npos ? name : of_expert(name, 0);
    return file_->find(first) != nullptr || (packed_ && packed_->holds(*file_, first));
  }

  // Bytes of memory for a parameter besides the mapped file: it is reordered, joined from several tensors, or
  // initialized. Others stay in the mapping.
  int64_t taken(const Parameter& p) const {
    const auto names = names_of(p);
    const auto name = std::find_if(names.begin(), names.end(), [&](const auto& n) { return has_tensor(n); });
    const file::StoredTensor* tensor = nullptr;
    bool stays = !hf_ || (!p.hf_transposed && p.hf_plus == 0 && !is_reordered(p));
    if (name != names.end()) {
      const bool is_stacked = name->find(kExpert) != std::string::npos;
      const std::string first = is_stacked ? of_expert(*name, 0) : *name;
      if (packed_ && packed_->holds(*file_, first))
        return run::saturating_product(packed_->stored_bytes(*file_, first), is_stacked ? p.shape[0].number() : 1);
      tensor = file_->find(first);
      stays = stays && !is_stacked && tensor->is_blob();
    } else if (hf_) {
      stays = false;
      for (const std::string& joined : {p.hf_fused, p.hf_rows})
        if (!tensor && !joined.empty()) tensor = file_->find(joined);
    }
    if (!tensor) return run::saturating_product(p.count(), sizeof(float));
    if (stays || p.shape.size() < 2) return 0;
    const double each = tensor->blob_bytes() / std::max(1.0, tensor->rows() * static_cast<double>(tensor->columns()));
    return static_cast<int64_t>(std::min(9e18, each * p.count()));
  }

  void require_room(const std::vector<Parameter>& parameters, bool one_by_one) const {
    int64_t bytes = 0;
    for (const Parameter& p : parameters)
      bytes = one_by_one ? std::max(bytes, taken(p)) : run::saturating_sum(bytes, taken(p));
    run::require_host_memory(fmt::format("reading '{}'", name_), {{"weights that are joined or rearranged", bytes}},
                             "a GGUF file of the same model is read in place (`lumen export`, on a machine with "
                             "more memory)");
  }

  Weight weight(const std::string& name, const Parameter& p, const graph::Shape& shape) {
    if (packed_ && packed_->holds(*file_, name))
      return packed_->read(*file_, name, shape, family_->library().formats(), used_);
    file::StoredTensor tensor = stored(name, p);
    used_.insert(name);
    Parameter as = p;
    as.shape = in_file(p, shape);
    if (hf_ && p.hf_scalar && tensor.shape.empty()) tensor.shape = {1};
    Weight w = weight_of(family_->library().formats(), tensor, as, file_, name_);
    w.type.shape = shape;
    return w;
  }

  // A parameter of one number, which stands with those of all layers under a key.
  std::optional<Weight> of_metadata(const file::GgufMetadata& metadata, const Parameter& p) const {
    if (!metadata.has(p.gguf_key)) throw user_error("{}: the key '{}' is missing", name_, p.gguf_key);
    const std::vector<double> all = metadata.numbers(p.gguf_key);
    if (p.gguf_place >= all.size())
      throw user_error("{}: '{}' has {} numbers, but layer {} needs one", name_, p.gguf_key, all.size(), p.gguf_place);
    return f32_weight(p.shape, std::vector<float>{float(all[p.gguf_place])});
  }

  // A shape as the file has it.
  graph::Shape in_file(const Parameter& p, const graph::Shape& shape) const {
    const bool is_stored = hf_ && !p.hf_shape.empty() && graph::elements(shape) == graph::elements(p.hf_shape);
    return is_stored ? p.hf_shape : shape;
  }

  template <typename Function>
  Weight mapped(const Weight& w, const Parameter& p, Function function) const {
    if (!w.is_f32()) throw user_error("{}: parameter {} must be held in floats", name_, p.name);
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v = function(v);
    return f32_weight(w.type.shape, values);
  }

  // The type that take() will return for weights that need conversion; nullopt where they stay in the mapping, are
  // small, or where only reading them detects an error.
  std::optional<graph::Type> announced(const Parameter& p) {
    const bool may_be_absent = p.optional && p.init != "normal" && p.init != "residual";
    if (p.is_vector() || may_be_absent || p.hf_plus != 0 || taken(p) == 0) return std::nullopt;
    bool is_turned = hf_ && p.hf_transposed;
    std::optional<graph::Type> type;
    for (const std::string& name : names_of(p)) {
      if (!has_tensor(name)) continue;
      is_turned = is_turned && !(packed_ && packed_->is_unturned() && packed_->holds(*file_, name));
      if (name.find(kExpert) == std::string::npos) {
        type = tensor_type(name, p, stored_shape(p, is_turned));
      } else {
        const graph::Shape shape(p.shape.begin() + 1, p.shape.end());
        for (int64_t e = 0; e < p.shape[0].number(); ++e) {
          const graph::Type one = tensor_type(of_expert(name, e), p, shape);
          if (type && !(type->element == one.element)) return std::nullopt;
          type = one;
        }
      }
      break;
    }
    if (!type && hf_ && !p.hf_fused.empty() && file_->find(p.hf_fused))
      type = tensor_type(p.hf_fused, p, shape_of_fused(p));
    if (!type && hf_ && !p.hf_rows.empty() && has_tensor(p.hf_rows)) {
      const bool as_rows = packed_ && packed_->is_unturned() && packed_->holds(*file_, p.hf_rows);
      type = tensor_type(p.hf_rows, p, shape_of_whole(p, as_rows));
      is_turned = p.hf_columns ? !(as_rows && p.hf_transposed) : p.hf_transposed;
    }
    Weight w;
    if (!type) return std::nullopt;
    w.type = {p.shape, type->element};
    if (is_turned && is_rounded(w)) return std::nullopt;
    if (hf_) check_pairs(*family_, config_, p, name_);
    return w.type;
  }

  graph::Type tensor_type(const std::string& name, const Parameter& p, const graph::Shape& shape) {
    if (packed_ && packed_->holds(*file_, name))
      return packed_->type(*file_, name, shape, family_->library().formats(), used_);
    Parameter as = p;
    as.shape = in_file(p, shape);
    used_.insert(name);
    graph::Type type = type_of(family_->library().formats(), stored(name, p), as, name_);
    type.shape = shape;
    return type;
  }

  const file::StoredTensor& stored(const std::string& name, const Parameter& p) const {
    const file::StoredTensor* tensor = file_->find(name);
    if (!tensor) throw user_error("{}: tensor '{}' is missing (parameter {})", name_, name, p.name);
    return *tensor;
  }

  static graph::Shape shape_of_fused(const Parameter& p) {
    graph::Shape whole = p.shape;
    graph::Dim& rows = whole[whole.size() - 2];
    rows = graph::Dim(rows.number() * p.hf_parts);
    return whole;
  }

  std::optional<Weight> take(const Parameter& p) {
    std::optional<Weight> w;
    bool is_turned = hf_ && p.hf_transposed;
    for (const std::string& name : names_of(p)) {
      if (!has_tensor(name)) continue;
      is_turned = is_turned && !(packed_ && packed_->is_unturned() && packed_->holds(*file_, name));
      w = name.find(kExpert) == std::string::npos ? weight(name, p, stored_shape(p, is_turned)) : stacked(name, p);
      break;
    }
    if (!w && hf_ && !p.hf_fused.empty() && file_->find(p.hf_fused)) w = part(p);
    if (!w && hf_ && !p.hf_rows.empty() && has_tensor(p.hf_rows)) return between(p);
    if (w && !hf_ && p.gguf_minus_exp) w = mapped(*w, p, [](float v) { return std::log(-v); });
    if (!w || !hf_) return w;
    if (is_turned) w = transposed(*w);
    if (p.hf_plus != 0) w = mapped(*w, p, [&](float v) { return float(v + p.hf_plus); });
    check_pairs(*family_, config_, p, name_);
    to_own_order(*w, p);
    return w;
  }

  static graph::Shape stored_shape(const Parameter& p, bool is_turned) {
    graph::Shape shape = p.shape;
    if (is_turned) std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
    return shape;
  }

  Weight stacked(const std::string& name, const Parameter& p) {
    RowStack stack(p.shape);
    const graph::Shape shape(p.shape.begin() + 1, p.shape.end());
    for (int64_t e = 0; e < p.shape[0].number(); ++e) stack.add(weight(of_expert(name, e), p, shape));
    return stack.finish();
  }

  Weight part(const Parameter& p) {
    const int64_t rows = p.shape[p.shape.size() - 2].number();
    const Weight all = weight(p.hf_fused, p, shape_of_fused(p));
    std::vector<int64_t> source;
    for (int64_t outer = 0; outer < all.rows() / (rows * p.hf_parts); ++outer) {
      for (int64_t r = 0; r < rows; ++r) source.push_back((outer * p.hf_parts + p.hf_part) * rows + r);
    }
    return take_rows(all, p.shape, source);
  }

  // A part of an interleaved tensor. Packed matrices are [out, in], whatever the layout of plain ones.
  Weight between(const Parameter& p) {
    const bool as_rows = packed_ && packed_->is_unturned() && packed_->holds(*file_, p.hf_rows);
    if (whole_.first != p.hf_rows) whole_ = {p.hf_rows, weight(p.hf_rows, p, shape_of_whole(p, as_rows))};
    return part_of(whole_.second, p, as_rows);
  }

  FamilyRef family_;
  std::shared_ptr<const file::TensorFile> file_;
  std::string name_;
  bool hf_;
  std::optional<PackedCheckpoint> packed_;
  graph::Config config_;  // completed from the file's tensors
  std::set<std::string> used_;
  std::pair<std::string, Weight> whole_;  // cache of the last interleaved tensor
};

// `later`: weights that need conversion have only their type.
StreamedModel take_gguf(const LibraryRef& library, const std::filesystem::path& path, bool later) {
  const auto file = std::make_shared<const file::SplitGguf>(path, library->formats());
  const file::GgufMetadata& metadata = file->metadata();
  StreamedModel out;
  Model& model = out.model;
  require_model_file(metadata, file->tensors().size());
  model.family = family_of_file(*library, metadata);
  const GgufRules rules(*model.family);
  rules.require(metadata);
  model.name = metadata.text("general.name", path.stem().string());
  model.config = model.family->config("", read_gguf_config(*model.family, metadata, [&](const std::string& name) {
                                        return file->find(name) != nullptr;
                                      }));
  for (const std::string& key : rules.check(metadata, model.config))
    warn(fmt::format("{}: the key '{}' is unknown and has no effect", metadata.source, key));
  const auto taker = std::make_shared<Taker>(model.family, file, path.string(), false);
  model.metadata = metadata;
  taker->take_all(model, later);
  if (later) out.source = [taker](const Parameter& p) { return taker->make(p); };
  if (!has_no_tokenizer(metadata)) model.tokenizer = text::Tokenizer::from_gguf(metadata);
  for (const char* key : {file::kSplitNumber, file::kSplitCount, file::kSplitTensors}) model.metadata.erase(key);
  return out;
}

// Reads a member of config.json that is our own, and has a metadata key in GGUF files.
void read_texts(const nlohmann::json& config, const char* name, const std::string& path, const char* key,
                Model& model) {
  const auto member = config.find(name);
  if (member == config.end()) return;
  std::vector<std::string> texts;
  const bool is_list = member->is_array() && std::ranges::all_of(*member, [](const auto& t) { return t.is_string(); });
  if (!is_list) throw user_error("{}: \"{}\" is not a list of strings", path, name);
  for (const nlohmann::json& text : *member) texts.push_back(text.get<std::string>());
  model.metadata.set(key, file::GgufArray(texts));
}

// The config key of models that were saved without an output matrix: they give vectors, and predict no tokens.
constexpr const char* kHeadless = "headless";

bool lacks_output(const Family& family, const graph::Config& config, const file::TensorFile& file) {
  if (!config.contains(kHeadless)) return false;
  const std::vector<Parameter> parameters = family.parameters(config);
  const auto output =
      std::find_if(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.role == "output"; });
  return output != parameters.end() && !file.find(output->hf);
}

nlohmann::json config_of(const std::string& config_path) {
  nlohmann::json config = parse_json(read_file(config_path, 16 << 20), config_path);
  if (!config.is_object()) throw user_error("{}: not a JSON object", config_path);
  return config;
}

StreamedModel take_hf(const LibraryRef& library, const std::filesystem::path& folder, bool later) {
  const std::string config_path = (folder / "config.json").string();
  nlohmann::json config = config_of(config_path);
  const auto word = [&](const nlohmann::json& object, const char* name) {
    const auto value = object.find(name);
    return value != object.end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  const std::string architecture = architecture_of(config);
  if (architecture.empty() && word(config, "model_type").empty())
    throw user_error("{}: neither \"architectures\" nor \"model_type\" says what model this is", config_path);
  StreamedModel out;
  Model& model = out.model;
  const std::string member = library->text_member(architecture);
  const auto packed = PackedCheckpoint::of(config, config_path);
  if (!member.empty()) {
    const nlohmann::json* part = text_part(config, member);
    model.family = library->family_inside(architecture, word(part ? *part : config, "model_type"), part != nullptr);
    config = config_inside(*model.family, config, member, config_path);
  } else {
    model.family = family_of_config(*library, config);
  }
  model.name = folder.filename().string();
  std::shared_ptr<const file::TensorFile> file = file::open_tensors(folder, library->formats());
  if (const auto modules = modules_of(folder)) add_dense(folder, *modules, library->formats(), config, file);
  graph::Config values = read_hf_config(*model.family, config, config_path);
  if (!member.empty()) file = tensors_inside(*model.family, std::move(file), architecture, folder.string());
  model.config = model.family->config("", values);
  const auto full = with_full_names(*model.family, model.config, file, folder.string());
  const bool is_bare = full != file || architecture.ends_with("Model");
  file = full;
  if (is_bare && lacks_output(*model.family, model.config, *file)) {
    values[kHeadless] = 1;
    model.config = model.family->config("", values);
  }
  for (const SplitKey& split : kSplitKeys) read_texts(config, split.member, config_path, split.key, model);
  read_texts(config, kLowRankMember, config_path, kLowRankWeights, model);
  const auto taker = std::make_shared<Taker>(model.family, file, folder.string(), true, packed);
  taker->take_all(model, later);
  if (later) out.source = [taker](const Parameter& p) { return taker->make(p); };
  model.files = small_files(folder);
  if (!member.empty()) model.files["config.json"] = json_print(config, config_path, 2) + "\n";
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (!model.tokenizer && std::filesystem::exists(folder / name)) model.tokenizer = text::Tokenizer::load(folder);
  if (model.tokenizer) {
    const auto vocabulary = model.config.find("vocab");
    const auto most = vocabulary == model.config.end() ? int64_t{0} : static_cast<int64_t>(vocabulary->second);
    model.tokenizer = model.tokenizer->with_ends(named_ends(model.files, most));
  }
  return out;
}

// How pictures are prepared; processors of several kinds of input hold it in a member of theirs.
constexpr const char* kPreparationFiles[] = {"preprocessor_config.json", "processor_config.json"};

std::optional<Model> take_tower(const LibraryRef& library, const std::filesystem::path& folder) {
  const std::string config_path = (folder / "config.json").string();
  const nlohmann::json config = config_of(config_path);
  Model model;
  model.family = tower_of(*library, architecture_of(config));
  if (!model.family) return std::nullopt;
  model.name = fmt::format("pictures of {}", folder.filename().string());
  model.config = read_hf_config(*model.family, config, config_path);
  const auto file = tensors_of_tower(*model.family, file::open_tensors(folder, library->formats()), folder.string());
  Taker(model.family, file, folder.string(), true).take_all(model, false);
  for (const char* name : kPreparationFiles)
    if (std::filesystem::exists(folder / name)) model.files[name] = read_file(folder / name, 1 << 20);
  return model;
}

// The tower of a GGUF file of its own.
Model take_tower_file(const LibraryRef& library, const std::filesystem::path& path) {
  const auto file = std::make_shared<const file::SplitGguf>(path, library->formats());
  const file::GgufMetadata& metadata = file->metadata();
  if (!is_tower_file(metadata))
    throw Error(Exit::user, fmt::format("{} holds no tower that reads pictures", path.string()),
                "such files have the architecture 'clip'; other programs call them mmproj");
  Model model;
  model.family = tower_of_projector(*library, projector_of(metadata));
  const GgufRules rules(*model.family);
  rules.require(metadata);
  model.name = fmt::format("pictures of {}", path.filename().string());
  model.config = tower_config(*model.family, metadata, *file);
  for (const std::string& key : rules.check(metadata, model.config))
    warn(fmt::format("{}: the key '{}' is unknown and has no effect", metadata.source, key));
  model.metadata = metadata;
  const auto tensors = tensors_of_tower_file(*model.family, model.config, file, path.string());
  Taker(model.family, tensors, path.string(), false).take_all(model, false);
  model.files[path.string()] = preparation_in(metadata);
  return model;
}

StreamedModel take_model(const LibraryRef& library, const std::filesystem::path& given, bool later) {
  const std::filesystem::path path = file::resolve_path(given);
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) {
    if (const auto file = path / "model.gguf"; std::filesystem::exists(file))
      return naming(file, [&] { return take_gguf(library, file, later); });
    if (std::filesystem::exists(path / "config.json"))
      return naming(path, [&] { return take_hf(library, path, later); });
    throw Error(Exit::user, fmt::format("{}: neither model.gguf nor config.json in this folder", path.string()),
                "give a GGUF file, a folder written by `lumen train`, or a Hugging Face folder");
  }
  if (!std::filesystem::exists(path, failure)) throw user_error("{}: no such file", path.string());
  return naming(path, [&] { return take_gguf(library, path, later); });
}

}  // namespace

Model read_gguf(const LibraryRef& library, const std::filesystem::path& path) {
  return take_gguf(library, path, false).model;
}

Model read_hf(const LibraryRef& library, const std::filesystem::path& folder) {
  return take_hf(library, folder, false).model;
}

Model read_model(const LibraryRef& library, const std::filesystem::path& path) {
  return take_model(library, path, false).model;
}

std::optional<Model> read_tower(const LibraryRef& library, const std::filesystem::path& given) {
  const std::filesystem::path path = file::resolve_path(given);
  std::error_code failure;
  if (std::filesystem::is_regular_file(path, failure) &&
      is_tower_file(file::read_gguf_metadata(MappedFile(path).bytes(), path.string())))
    return naming(path, [&] { return take_tower_file(library, path); });
  if (!std::filesystem::is_directory(path, failure) || std::filesystem::exists(path / "model.gguf", failure) ||
      !std::filesystem::exists(path / "config.json", failure))
    return std::nullopt;
  return naming(path, [&] { return take_tower(library, path); });
}

StreamedModel stream_model(const LibraryRef& library, const std::filesystem::path& path) {
  return take_model(library, path, true);
}

}  // namespace lumen::model::arch
