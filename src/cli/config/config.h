// The user's configuration file: $LUMEN_CONFIG, $XDG_CONFIG_HOME/lumen/config.toml or ~/.config/lumen/config.toml. It
// has options of commands, folders with models, and aliases of models:
//
// model-folders = ["~/models"]
// [all]          # options of every command that has them
// threads = 8
// [serve]        # options of one command; [bench.kernels] for a command of a command
// ctx-size = 4096
// [aliases]
// small = "hf:USER/REPO:Q4_K_M"
//
// The command line and environment variables have priority. Proved by tests/cli/config/config_test.cpp.
//
// May include: base, base/file, base/messages, base/structured, cli/settings, model/file/hub.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "cli/settings/environment.h"
#include "model/file/hub/resolve.h"

namespace lumen::cli {

// Empty with LUMEN_CONFIG=off, and where no home is known. The file may be missing.
std::filesystem::path config_file();

class Config {
 public:
  Config() = default;
  // `commands`: the names that tables may have ("bench kernels" for [bench.kernels]), besides those of the option
  // table. Error with line and column for a table, a key or a type that is wrong, whichever command runs.
  Config(std::string text, const std::string& name, const std::vector<std::string>& commands);
  // Reads config_file(); there are no values where that does not exist. Error when LUMEN_CONFIG names a missing file.
  static Config of_user(const std::vector<std::string>& commands);

  // The values for a command, "serve" or "bench kernels".
  std::vector<ConfiguredValue> values_for(const std::string& command) const;
  bool has_values_for(const std::string& command) const { return !values_for(command).empty(); }
  const model::file::LocalNames& names() const { return names_; }

 private:
  struct Value {
    std::string command;  // empty: all
    std::string key;      // "ctx-size"
    ConfiguredValue value;
  };
  void add_table(const Toml& table, const std::string& command, const std::vector<std::string>& commands);
  void add_value(const Toml& table, const std::string& command, const std::string& key);
  void read_names(const Toml& top);

  std::vector<Value> values_;
  model::file::LocalNames names_;
};

}  // namespace lumen::cli
