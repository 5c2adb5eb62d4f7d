#include "model/compress/layers/journal.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/round_up.h"
#include "base/structured/base64.h"
#include "base/structured/json.h"

namespace lumen::model::compress {
namespace {

constexpr const char *kKind = "work", *kJournal = "journal", *kValues = "values";
constexpr uint64_t kAlignment = arch::Bytes::kAlignment;
constexpr uint64_t kLargestPart = uint64_t{1} << 50;

std::string part_name(size_t part) {
  return fmt::format("part-{:05}", part);
}

std::string text_of(const Seal& seal) {
  return encode_base64({reinterpret_cast<const char*>(seal.data()), seal.size()});
}

Seal seal_of(const std::string& text) {
  const std::string bytes = decode_base64(text, "a seal");
  Seal out{};
  if (bytes.size() != out.size()) throw user_error("a seal has {} bytes", bytes.size());
  std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

// The JSON library casts any number to the requested type, even one that does not fit.
uint64_t whole(const nlohmann::json& number, uint64_t most = UINT64_MAX) {
  if (!number.is_number_unsigned() || number.get<uint64_t>() > most)
    throw user_error("{} is not a valid whole number here", number.dump());
  return number.get<uint64_t>();
}

SealedFolderOptions quiet() {
  SealedFolderOptions o;
  o.quiet = true;
  return o;
}

}  // namespace

Journal::Journal(std::filesystem::path folder, std::string key, bool anew, std::function<std::string()> model)
    : folder_(std::move(folder)),
      key_(std::move(key)),
      whole_model_(std::move(model)),
      lock_(std::make_unique<FolderLock>(folder_)),
      files_(folder_, quiet()),
      values_folder_(files_.path() / kValues) {
  const auto wrong = [&](const std::string& why, const char* hint) {
    return Error(Exit::user, fmt::format("'{}' {}", folder_.string(), why), hint);
  };
  if (!files_.usable())
    throw wrong("the work cannot be kept: " + files_.trouble(), "name another folder with --work-folder");
  if (::mkdir(values_folder_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw wrong(fmt::format("the work cannot be kept: {}", std::strerror(errno)),
                "name another folder with --work-folder");
  SealedContents kept = files_.map(kKind, kJournal);
  nlohmann::json told;
  if (kept.is_whole()) {
    told = nlohmann::json::parse(kept.text(), nullptr, false);
    const bool is_whole = told.is_object() && told.contains("key") && told["key"].is_string() &&
                          told.contains("model") && told["model"].is_string() && told.contains("parts") &&
                          told["parts"].is_array() && told.contains("values") && told["values"].is_object();
    if (!is_whole) kept = {SealedContents::State::refused, "is of another version of Lumen", {}, nullptr};
  }
  if (!anew && kept.state == SealedContents::State::refused)
    warn(fmt::format("'{}' {}: every part is computed again", (files_.path() / kKind / kJournal).string(), kept.why));
  if (anew || !kept.is_whole()) {
    const int64_t gone = clear();
    if (!anew && gone > 0 && kept.state == SealedContents::State::absent)
      warn(fmt::format("'{}' is not there: every part is computed again", (files_.path() / kKind / kJournal).string()));
    write();
    return;
  }
  if (told["key"] != key_)
    throw wrong("has the work of another run, with another model, text or options",
                "remove the folder, name another one with --work-folder, or begin anew with --restart");
  model_ = told["model"].get<std::string>();
  parts_.resize(told["parts"].size());
  for (size_t k = 0; k < parts_.size(); ++k) open_part(k, told["parts"][k]);
  read_values(told["values"]);
}

Journal::Part Journal::read_part(const nlohmann::json& json) {
  Part part;
  uint64_t offset = 0;
  for (const nlohmann::json& w : json.at("weights")) {
    Stored& stored = part.weights.emplace_back();
    w.at("name").get_to(stored.name);
    for (const nlohmann::json& d : w.at("shape")) stored.shape.push_back(whole(d, INT64_MAX));
    stored.bytes = whole(w.at("bytes"));
    // Their sum is limited, too: offsets must be ascending, without overflow.
    if (stored.bytes > kLargestPart - offset) throw user_error("a weight has {} bytes", stored.bytes);
    stored.offset = offset;
    offset += round_up(stored.bytes, kAlignment);
  }
  part.contents = {whole(json.at("contents").at(0)), whole(json.at("contents").at(1))};
  for (const nlohmann::json& l : json.at("lines"))
    part.report.lines.push_back({l.at("name"), l.at("strategy"), l.at("remark"), l.at("error"), l.at("output_error")});
  json.at("changed").get_to(part.report.changed);
  json.at("losses").get_to(part.report.losses);
  return part;
}

nlohmann::json Journal::json_of(const Part& part) {
  nlohmann::json weights = nlohmann::json::array(), lines = nlohmann::json::array();
  for (const Stored& w : part.weights) weights.push_back({{"name", w.name}, {"shape", w.shape}, {"bytes", w.bytes}});
  for (const Line& l : part.report.lines)
    lines.push_back({{"name", l.name},
                     {"strategy", l.strategy},
                     {"remark", l.remark},
                     {"error", l.error},
                     {"output_error", l.output_error}});
  return {{"weights", std::move(weights)},
          {"contents", {part.contents.low, part.contents.high}},
          {"lines", std::move(lines)},
          {"changed", part.report.changed},
          {"losses", part.report.losses}};
}

void Journal::open_part(size_t number, const nlohmann::json& json) {
  if (json.is_null()) return;  // discarded, and not computed again yet
  Part part;
  try {
    part = read_part(json);
  } catch (const Error& failure) {
    return discard(number, fmt::format("the journal's entry is broken ({})", failure.what()));
  } catch (const std::exception&) {  // a library's message does not help users
    return discard(number, "the journal's entry is broken");
  }
  contents_before_[number] = part.contents;
  part.file = files_.map(kKind, part_name(number));
  const uint64_t end = part.weights.empty() ? 0 : part.weights.back().offset + part.weights.back().bytes;
  if (!part.file.is_whole())
    return discard(number, fmt::format("'{}' {}", (files_.path() / kKind / part_name(number)).string(),
                                       part.file.why.empty() ? "is not there" : part.file.why));
  if (part.file.bytes.size() < end || hash_bytes(part.file.bytes.data(), part.file.bytes.size()) != part.contents)
    return discard(number, fmt::format("'{}' is of another moment", part_name(number)));
  parts_[number] = std::move(part);
}

void Journal::read_values(const nlohmann::json& json) {
  try {
    if (json.empty()) return;
    values_behind_ = whole(json.at("behind"));
    for (const auto& [set, seals] : json.at("seals").items())
      for (const auto& [number, seal] : seals.items()) values_[set][std::stoi(number)] = seal_of(seal);
  } catch (const std::exception&) {
    values_behind_ = SIZE_MAX;  // the parts are run again for their values
  }
}

size_t Journal::first_missing() const {
  size_t k = 0;
  while (has(k)) ++k;
  return k;
}

std::vector<std::pair<std::string, std::vector<int64_t>>> Journal::weights(size_t part) const {
  std::vector<std::pair<std::string, std::vector<int64_t>>> out;
  for (const Stored& w : parts_.at(part)->weights) out.emplace_back(w.name, w.shape);
  return out;
}

void Journal::discard(size_t part, const std::string& why) {
  warn(fmt::format("part {} in '{}' is computed again: {}", part + 1, folder_.string(), why));
  parts_[part] = std::nullopt;
}

int64_t Journal::clear() {
  parts_.clear();
  values_behind_ = SIZE_MAX;
  return clear_sealed(folder_);
}

void Journal::write() {
  nlohmann::json parts = nlohmann::json::array(), values = nlohmann::json::object();
  for (const std::optional<Part>& part : parts_) parts.push_back(part ? json_of(*part) : nlohmann::json());
  if (values_behind_ != SIZE_MAX) {
    values = {{"behind", values_behind_}, {"seals", nlohmann::json::object()}};
    for (const auto& [set, seals] : values_)
      for (const auto& [number, seal] : seals) values["seals"][set][std::to_string(number)] = text_of(seal);
  }
  const std::string text =
      nlohmann::json{{"key", key_}, {"model", model_}, {"parts", parts}, {"values", values}}.dump();
  const auto file = files_.create(kKind, kJournal);
  if (!file) throw user_error("cannot write to '{}': {}", folder_.string(), files_.trouble());
  file->write(text.data(), text.size());
  file->finish(true);
}

void Journal::require_same_model() {
  if (!whole_model_) return;
  const std::string now = whole_model_();
  if (model_.empty()) model_ = now;
  if (model_ == now) return;
  remove();
  throw Error(Exit::verify,
              fmt::format("the work kept in '{}' is of another model, which equals this one in the bytes that were "
                          "compared at the start; it is removed",
                          folder_.string()),
              "run the command again: it begins anew");
}

void Journal::add(size_t number, const std::vector<Kept>& weights, Report report, const Values& values) {
  require_same_model();
  Part part;
  part.report = std::move(report);
  const auto file = files_.create(kKind, part_name(number));
  if (!file) throw user_error("cannot write to '{}': {}", folder_.string(), files_.trouble());
  for (const Kept& k : weights) {
    Stored& stored = part.weights.emplace_back();
    stored.name = k.name;
    for (const graph::Dim& d : k.weight->type.shape) stored.shape.push_back(d.number());
    if (const uint64_t rest = file->position() % kAlignment; rest != 0)
      file->write(std::string(kAlignment - rest, '\0').data(), kAlignment - rest);
    stored.offset = file->position();
    stored.bytes = k.weight->bytes.size();
    file->write(k.weight->bytes.data(), k.weight->bytes.size());
  }
  file->finish(true);
  part.file = file->map();
  part.contents = hash_bytes(part.file.bytes.data(), part.file.bytes.size());
  const auto before = contents_before_.find(number);
  if (before != contents_before_.end() && before->second != part.contents) {
    for (size_t k = number + 1; k < parts_.size(); ++k)
      if (has(k)) discard(k, fmt::format("part {} before it came out otherwise than it was", number + 1));
  }
  contents_before_[number] = part.contents;
  parts_.resize(std::max(parts_.size(), number + 1));
  parts_[number] = std::move(part);
  values_behind_ = number;
  values_ = values;
  write();
}

std::optional<arch::Weight> Journal::weight(const std::string& name, const FormatRef& format, size_t end) const {
  for (size_t k = std::min(end, parts_.size()); k-- > 0;) {
    if (!parts_[k]) continue;
    for (const Stored& stored : parts_[k]->weights) {
      if (stored.name != name) continue;
      arch::Weight w;
      for (const int64_t d : stored.shape) w.type.shape.emplace_back(d);
      w.type.element = {Scalar::f32, format};
      w.bytes = arch::Bytes(parts_[k]->file.bytes.subspan(stored.offset, stored.bytes), parts_[k]->file.keeper);
      return w;
    }
  }
  return std::nullopt;
}

std::optional<Journal::Values> Journal::values(size_t part) const {
  if (values_behind_ != part) return std::nullopt;
  return values_;
}

void Journal::remove() {
  parts_.clear();
  std::error_code ignored;
  remove_tree(files_.path(), ignored);
  lock_.reset();
  std::filesystem::remove(folder_, ignored);  // only if it is empty
}

}  // namespace lumen::model::compress
