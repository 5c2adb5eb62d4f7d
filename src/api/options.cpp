#include "api/options.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/messages/spelling.h"
#include "base/structured/json.h"
#include "cli/settings/settings.h"

namespace lumen::api {
namespace {

Error wrong_kind(const char* key, const char* what) {
  return usage_error("option '{}' takes {}", key, what);
}

// "top_k" of "generate.top_k", which the table must have.
const char* key_of(const char* name) {
  (void)cli::api_setting(name);
  return std::strrchr(name, '.') + 1;
}

// Bounds as messages put them; a tiny lower one only excludes 0.
std::string bounds_text(const cli::Setting& row) {
  constexpr double kTiny = 1e-6;
  if (!row.least) return "a number";
  const std::string low = *row.least > 0 && *row.least <= kTiny ? "above 0" : fmt::format("from {}", *row.least);
  return row.most ? fmt::format("a number {} to {}", low, *row.most) : fmt::format("a number {}", low);
}

}  // namespace

Options::Options(const char* text) {
  if (!text) return;
  left_ = parse_ordered_json(text, "options");
  if (!left_.is_object()) throw usage_error("options are an object of JSON");
}

std::optional<nlohmann::ordered_json> Options::take(const char* key) {
  known_.emplace_back(key);
  const auto at = left_.find(key);
  if (at == left_.end()) return std::nullopt;
  nlohmann::ordered_json value = std::move(*at);
  left_.erase(at);
  if (value.is_null()) return std::nullopt;  // null means absent
  return value;
}

void Options::take(const char* key, bool& value) {
  const auto given = take(key);
  if (!given) return;
  if (!given->is_boolean()) throw wrong_kind(key, "true or false");
  value = given->get<bool>();
}

void Options::take(const char* key, int64_t& value, int64_t least, int64_t most) {
  const auto given = take(key);
  if (!given) return;
  const bool is_there = given->is_number_integer() &&
                        !(given->is_number_unsigned() && given->get<uint64_t>() > uint64_t{INT64_MAX}) &&
                        given->get<int64_t>() >= least && given->get<int64_t>() <= most;
  if (!is_there) throw usage_error("option '{}' takes a whole number from {} to {}", key, least, most);
  value = given->get<int64_t>();
}

void Options::take(const char* key, double& value) {
  const auto given = take(key);
  if (!given) return;
  if (!given->is_number() || !std::isfinite(given->get<double>())) throw wrong_kind(key, "a number");
  value = given->get<double>();
}

void Options::take(const char* key, std::string& value) {
  const auto given = take(key);
  if (!given) return;
  if (!given->is_string()) throw wrong_kind(key, "a string");
  value = given->get<std::string>();
}

void Options::take(const char* key, std::vector<std::string>& values) {
  const auto given = take(key);
  if (!given) return;
  if (!given->is_array()) throw wrong_kind(key, "a list of strings");
  values.clear();
  for (const auto& entry : *given) {
    if (!entry.is_string()) throw wrong_kind(key, "a list of strings");
    values.push_back(entry.get<std::string>());
  }
}

void Options::take_setting(const char* name, bool& value) {
  take(key_of(name), value);
}

void Options::take_setting(const char* name, int64_t& value) {
  const cli::Setting& row = cli::api_setting(name);
  take(key_of(name), value, int64_t(row.least.value_or(INT32_MIN)), int64_t(row.most.value_or(INT32_MAX)));
}

void Options::take_setting(const char* name, double& value) {
  const cli::Setting& row = cli::api_setting(name);
  double given = value;
  take(key_of(name), given);
  if (given == value) return;
  if (given < row.least.value_or(given) || given > row.most.value_or(given))
    throw wrong_kind(key_of(name), bounds_text(row).c_str());
  value = given;
}

void Options::take_setting(const char* name, std::string& value) {
  take(key_of(name), value);
}

void Options::take_setting(const char* name, std::vector<std::string>& values) {
  take(key_of(name), values);
}

void Options::finish() const {
  if (left_.empty()) return;
  const std::string name = left_.begin().key();
  const std::string near = did_you_mean_any(name, known_);
  throw Error(Exit::usage, fmt::format("there is no option '{}' here", name), near);
}

run::Engine::Options engine_options(Options& options) {
  run::Engine::Options out;
  int64_t threads = 0;
  options.take_setting("model.device", out.device);
  options.take_setting("model.threads", threads);
  options.take_setting("model.cache", out.cache_folder);
  out.tune = true;
  options.take_setting("model.tune", out.tune);
  out.threads = int(threads);
  return out;
}

model::arch::LibraryRef library_with_formats(Options& options) {
  const auto library = model::arch::Library::builtin();
  std::vector<std::string> formats;
  options.take("formats", formats);
  for (size_t i = 0; i < formats.size(); ++i)
    library->add_model_text(std::make_shared<Source>(Source{fmt::format("formats[{}]", i), formats[i]}));
  return library;
}

}  // namespace lumen::api
