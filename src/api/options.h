// Options of the caller: a JSON object. Each part of the library takes its own options; one that is left over is an
// error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/family/family.h"
#include "run/engine/engine.h"

namespace lumen::api {

class Options {
 public:
  explicit Options(const char* text);  // null: none

  // take() leaves the value unchanged where the option is absent. Error (usage) for a value of another type.
  void take(const char* key, bool& value);
  void take(const char* key, int64_t& value, int64_t least, int64_t most);
  void take(const char* key, double& value);  // finite
  void take(const char* key, std::string& value);
  void take(const char* key, std::vector<std::string>& values);
  std::optional<nlohmann::ordered_json> take(const char* key);
  // The same for an option that the table of options declares (cli/settings/settings.h): "generate.top_k" is "top_k" of
  // lumen_generate, within the bounds of its row.
  void take_setting(const char* name, bool& value);
  void take_setting(const char* name, int64_t& value);
  void take_setting(const char* name, double& value);
  void take_setting(const char* name, std::string& value);
  void take_setting(const char* name, std::vector<std::string>& values);
  // Error (usage) that names an option that no take() asked for.
  void finish() const;

 private:
  nlohmann::ordered_json left_ = nlohmann::ordered_json::object();
  std::vector<std::string> known_;
};

// "device", "threads", "cache", "tune".
run::Engine::Options engine_options(Options& options);
// The library with the number formats that the option "formats" defines.
model::arch::LibraryRef library_with_formats(Options& options);

}  // namespace lumen::api
