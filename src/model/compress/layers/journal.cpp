#include "model/compress/layers/journal.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/file/safetensors.h"

namespace lumen::model {
namespace {

constexpr const char* kJournal = "journal.json";

}  // namespace

Journal::Journal(std::filesystem::path folder, std::string key, bool anew)
    : folder_(std::move(folder)), key_(std::move(key)) {
  lock_ = std::make_unique<FolderLock>(folder_);
  const std::filesystem::path file = folder_ / kJournal;
  if (!std::filesystem::exists(file)) {
    write();
    return;
  }
  const nlohmann::json told = parse_json(read_file(file, 1 << 28), file.string());
  const auto wrong = [&](const std::string& why) {
    return Error(Exit::user, fmt::format("'{}' {}", folder_.string(), why),
                 "remove the folder, name another one with --work-folder, or begin anew with --restart");
  };
  const bool whole = told.is_object() && told.contains("key") && told["key"].is_string() && told.contains("parts") &&
                     told["parts"].is_array();
  if (!anew && !whole) throw wrong("holds no journal of a run");
  if (!anew && told["key"] != key_) throw wrong("holds what another run has done, with another model, text or options");
  if (anew) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("part-") || name.ends_with(".values")) std::filesystem::remove(entry.path());
    }
    write();
    return;
  }
  for (const nlohmann::json& part : told["parts"]) {
    const size_t number = parts_.size();
    if (!part.is_object() || !part.contains("weights") || !part["weights"].is_array())
      throw wrong(fmt::format("has a broken journal at part {}", number));
    for (const nlohmann::json& name : part["weights"])
      if (name.is_string()) part_of_[name] = number;
    if (!std::filesystem::exists(part_file(number))) throw wrong(fmt::format("has lost part {}", number));
    parts_.push_back(part);
  }
}

std::filesystem::path Journal::part_file(size_t part) const {
  return folder_ / fmt::format("part-{:05}.safetensors", part);
}

void Journal::write() const {
  write_file_atomic(folder_ / kJournal, nlohmann::json{{"key", key_}, {"parts", parts_}}.dump(1));
}

void Journal::add(const std::vector<Kept>& weights, nlohmann::json report) {
  std::vector<TensorSpec> specs;
  nlohmann::json names = nlohmann::json::array();
  for (const Kept& k : weights) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = k.name;
    for (const graph::Dim& d : k.weight->type.shape) spec.shape.push_back(d.number());
    spec.element = k.weight->type.element;
    names.push_back(k.name);
    part_of_[k.name] = parts_.size();
  }
  SafetensorsWriter writer(part_file(parts_.size()), {}, specs);
  for (const Kept& k : weights) writer.write({k.weight->bytes.data(), k.weight->bytes.size()});
  writer.commit();
  report["weights"] = std::move(names);
  parts_.push_back(std::move(report));
  write();
}

std::optional<Weight> Journal::weight(const std::string& name, const FormatLibrary& formats, const FormatRef& format) {
  const auto part = part_of_.find(name);
  if (part == part_of_.end()) return std::nullopt;
  std::shared_ptr<const TensorFile>& file = open_[part->second];
  if (!file) file = open_tensors(part_file(part->second), formats);
  StoredTensor stored = file->get(name);
  if (format) stored.element = {Scalar::f32, format};  // files know floats of two bytes as numbers, not as formats
  Weight w;
  for (const int64_t d : stored.shape) w.type.shape.emplace_back(d);
  w.type.element = stored.element;
  w.bytes = stored.is_blob() ? Bytes(stored.data, file) : Bytes(stored.blob());
  return w;
}

void Journal::remove() {
  open_.clear();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name == kJournal || name.starts_with("part-") || name.ends_with(".values"))
      std::filesystem::remove(entry.path(), ignored);
  }
  lock_.reset();
  std::filesystem::remove(folder_, ignored);  // if it is empty now
}

}  // namespace lumen::model
