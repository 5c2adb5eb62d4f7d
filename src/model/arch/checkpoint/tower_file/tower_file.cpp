#include "model/arch/checkpoint/tower_file/tower_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "model/arch/checkpoint/tower_file/renamed_tensors.h"
#include "model/arch/family/config_file.h"

namespace lumen::model::arch {
namespace {

constexpr const char *kArchitecture = "clip", *kProjectors[] = {"clip.projector_type", "clip.vision.projector_type"};

std::vector<std::string> texts_in(const lang::Attribute& a, size_t least) {
  std::vector<std::string> out;
  for (const lang::ExprPtr& value : a.values) {
    if (value->kind != lang::ExprKind::string && value->kind != lang::ExprKind::name)
      throw error_at(value->place, fmt::format("attribute '{}' takes strings", a.name));
    out.push_back(value->text);
  }
  if (out.size() < least) throw error_at(a.place, fmt::format("attribute '{}' takes {} strings", a.name, least));
  return out;
}

// The number that a name has in place of the star; nullopt where it does not fit.
std::optional<std::string> star_of(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return name == pattern ? std::optional<std::string>("") : std::nullopt;
  const std::string begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end)) return std::nullopt;
  std::string number = name.substr(star, name.size() - begin.size() - end.size());
  const bool is_number = std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? std::optional(number) : std::nullopt;
}

std::string with_star(std::string pattern, const std::string& number) {
  const size_t star = pattern.find('*');
  return star == std::string::npos ? pattern : pattern.replace(star, 1, number);
}

// The number after `begin`; nullopt where there is none.
std::optional<int64_t> number_after(const std::string& begin, const std::string& name, size_t* end) {
  if (!name.starts_with(begin)) return std::nullopt;
  *end = name.find('.', begin.size());
  if (*end == std::string::npos || *end == begin.size() || *end - begin.size() > 6) return std::nullopt;
  int64_t out = 0;
  for (size_t at = begin.size(); at < *end; ++at) {
    if (name[at] < '0' || name[at] > '9') return std::nullopt;
    out = out * 10 + (name[at] - '0');
  }
  return out;
}

std::set<int64_t> numbers_after(const std::string& begin, const file::TensorFile& file) {
  std::set<int64_t> out;
  size_t end = 0;
  for (const file::StoredTensor& t : file.tensors())
    if (const auto number = number_after(begin, t.name, &end)) out.insert(*number);
  return out;
}

// Equal parts of a tensor's rows, which follow each other in its bytes.
std::vector<file::StoredTensor> parted(const file::StoredTensor& whole, const std::vector<std::string>& names,
                                       const std::string& file) {
  const auto count = std::ssize(names);
  if (whole.shape.empty() || whole.shape[0] % count != 0 || !whole.is_blob() || std::ssize(whole.data) % count != 0)
    throw user_error("{}: '{}' cannot be parted into {}", file, whole.name, fmt::join(names, ", "));
  std::vector<file::StoredTensor> out;
  const size_t each = whole.data.size() / size_t(count);
  for (size_t i = 0; i < names.size(); ++i) {
    file::StoredTensor& part = out.emplace_back(whole);
    part.name = names[i];
    part.shape[0] /= count;
    part.offset += i * each;
    part.data = whole.data.subspan(i * each, each);
    part.sections = {};
    part.sections[0] = part.data;
    // Blocks of some formats hold several rows.
    if (part.blob_bytes() != std::ssize(part.data))
      throw user_error("{}: '{}' cannot be parted into {}", file, whole.name, fmt::join(names, ", "));
  }
  return out;
}

}  // namespace

TowerNames::TowerNames(const Family& family) {
  for (const lang::Attribute& a : family.declaration().attributes) {
    if (a.name == "gguf_joined") {
      std::vector<std::string> texts = texts_in(a, 2);
      joined.push_back({texts[0], {texts.begin() + 1, texts.end()}});
    }
    if (a.name == "gguf_counted") {
      const std::vector<std::string> texts = texts_in(a, 3);
      counted.push_back({texts[0], texts[1], texts[2]});
    }
  }
}

bool is_tower_file(const file::GgufMetadata& metadata) {
  return metadata.text("general.architecture", "") == kArchitecture;
}

std::string projector_of(const file::GgufMetadata& metadata) {
  for (const char* key : kProjectors)
    if (metadata.has(key)) return metadata.text(key);
  throw user_error("{}: the key '{}' is missing, so the kind of the tower is not known", metadata.source,
                   kProjectors[0]);
}

std::string preparation_in(const file::GgufMetadata& metadata) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, name] :
       {std::pair{"clip.vision.image_mean", "image_mean"}, {"clip.vision.image_std", "image_std"}})
    if (metadata.has(key)) out[name] = metadata.numbers(key);
  for (const auto& [key, name] :
       {std::pair{"clip.vision.image_min_pixels", "min_pixels"}, {"clip.vision.image_max_pixels", "max_pixels"}})
    if (metadata.has(key)) out[name] = metadata.integer(key);
  return out.dump();
}

graph::Config tower_config(const Family& family, const file::GgufMetadata& metadata, const file::TensorFile& file) {
  graph::Config values =
      read_gguf_config(family, metadata, [&](const std::string& name) { return file.find(name) != nullptr; });
  for (const TowerNames::Counted& one : TowerNames(family).counted) {
    const std::set<int64_t> layers = numbers_after(one.begin, file);
    values[one.count] = double(layers.size());
    if (layers.empty()) continue;
    // Files may leave out which layers these are.
    for (int64_t i = 0; i <= *layers.rbegin(); ++i)
      if (const std::string key = fmt::format("{}.{}", one.layers, i); layers.contains(i) || values.contains(key))
        values[key] = layers.contains(i) ? 1 : 0;
  }
  return family.config("", values);
}

std::shared_ptr<const file::TensorFile> tensors_of_tower_file(const Family& family, const graph::Config& config,
                                                              std::shared_ptr<const file::TensorFile> file,
                                                              const std::string& name) {
  const TowerNames names(family);
  std::vector<file::StoredTensor> tensors;
  for (const file::StoredTensor& t : file->tensors()) {
    bool is_joined = false;
    for (const TowerNames::Joined& one : names.joined) {
      const std::optional<std::string> star = star_of(one.name, t.name);
      if (!star) continue;
      std::vector<std::string> parts;
      for (const std::string& part : one.parts) parts.push_back(with_star(part, *star));
      for (file::StoredTensor& part : parted(t, parts, name)) tensors.push_back(std::move(part));
      is_joined = true;
    }
    if (!is_joined) tensors.push_back(t);
  }
  for (const TowerNames::Counted& one : names.counted) {
    const std::set<int64_t> layers = numbers_after(one.begin, *file);
    for (file::StoredTensor& t : tensors) {
      size_t end = 0;
      const std::optional<int64_t> number = number_after(one.begin, t.name, &end);
      if (!number) continue;
      const auto place = std::distance(layers.begin(), layers.find(*number));
      t.name = fmt::format("{}{}{}", one.begin, place, t.name.substr(end));
    }
  }
  // Convolutions have more axes than the matrices that stand for them here.
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const Parameter& p : family.all_parameters(config)) {
    if (p.gguf.empty() || p.gguf.find("{e}") != std::string::npos) continue;
    for (const graph::Dim& d : p.shape) shapes[p.gguf].push_back(d.number());
  }
  for (file::StoredTensor& t : tensors) {
    const auto shape = shapes.find(t.name);
    if (shape == shapes.end() || shape->second.empty() || t.shape.size() <= shape->second.size() ||
        t.shape[0] != shape->second[0])
      continue;
    int64_t wanted = 1, stored = 1;
    for (const int64_t n : shape->second) wanted *= n;
    for (const int64_t n : t.shape) stored *= n;
    if (wanted == stored) t.shape = shape->second;
  }
  return std::make_shared<const RenamedTensors>(std::move(file), std::move(tensors), name);
}

}  // namespace lumen::model::arch
