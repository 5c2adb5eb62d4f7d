// The table of options. A row declares one option once: its names, the commands that have it, its bounds, its help;
// rows of recipe keys come from model/recipe/recipe_keys.def. The command line (declare.h), environment variables
// (environment.h), the manual, shell completion, docs/reference/options.md, the C API (src/api) and the signatures of
// the Python package read the rows. Proved by tests/cli/settings/settings_test.cpp.
//
// May include: base, cli/paths, model/recipe.
// Offers: bounds.h, declare.h, environment.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/paths/kinds.h"

namespace lumen::cli {

// The heading of everyday options, which the help lists first.
inline constexpr const char* kEveryday = "Options";

struct Setting {
  const char* names;     // as the parser takes them: "-c,--ctx-size", "--mmap,!--no-mmap", "-m,--model,model", "input"
  const char* commands;  // that have the option: "run,chat,bench kernels"; "*": every command
  const char* help;

  const char* heading = kEveryday;  // in the help and the manual
  const char* placeholder = "";     // what stands for the value in the help; empty: the value's type
  std::optional<double> least = {},
                        most = {};  // bounds of numbers, both included; without `most` there is no upper one
  const char* choices = "";         // the values that are allowed, separated by blanks; empty: any
  std::optional<Reads> reads = {};
  std::optional<Writes> writes = {};
  char delimiter = '\0';   // separates several values in one argument
  bool takes_one = false;  // of a repeatable option: each use takes one value
  bool is_required = false;
  bool shows_default = false;          // the help shows the value that holds without the option
  const char* key = "";                // the key of a training recipe that the option sets
  const char* key_value = "";          // of a flag that sets such a key to this value
  const char* own_variable = nullptr;  // instead of LUMEN_ and the first long name; "": none
  bool names_command = false;          // that variable has the command's first word too: LUMEN_DOCTOR_JSON
  const char* api = "";  // the same options in include/lumen.h and in Python: "generate.exact,embed.exact"

  // Copies with one more property; a row of the table is a chain of these.
  constexpr Setting under(const char* text) const {
    return with([&](Setting& s) { s.heading = text; });
  }
  constexpr Setting takes(const char* text) const {
    return with([&](Setting& s) { s.placeholder = text; });
  }
  constexpr Setting from(double bound) const {
    return with([&](Setting& s) { s.least = bound; });
  }
  constexpr Setting from(double low, double high) const {
    return with([&](Setting& s) { s.least = low, s.most = high; });
  }
  constexpr Setting one_of(const char* words) const {
    return with([&](Setting& s) { s.choices = words; });
  }
  constexpr Setting reading(Reads what, const char* text = nullptr) const {
    return (text ? takes(text) : *this).with([&](Setting& s) { s.reads = what; });
  }
  constexpr Setting writing(Writes what, const char* text = nullptr) const {
    return (text ? takes(text) : *this).with([&](Setting& s) { s.writes = what; });
  }
  constexpr Setting list(char sign = ',') const {
    return with([&](Setting& s) { s.delimiter = sign; });
  }
  constexpr Setting one_each() const {
    return with([&](Setting& s) { s.takes_one = true; });
  }
  constexpr Setting required() const {
    return with([&](Setting& s) { s.is_required = true; });
  }
  constexpr Setting with_default() const {
    return with([&](Setting& s) { s.shows_default = true; });
  }
  constexpr Setting for_key(const char* name, const char* value = "") const {
    return with([&](Setting& s) { s.key = name, s.key_value = value; });
  }
  constexpr Setting as_variable(const char* name) const {
    return with([&](Setting& s) { s.own_variable = name; });
  }
  constexpr Setting no_variable() const { return as_variable(""); }
  constexpr Setting in_api(const char* name) const {
    return with([&](Setting& s) { s.api = name; });
  }

  // "--ctx-size", "input": how the source and messages name it.
  std::string name() const;
  // All names with their dashes, "--no-mmap" without its mark.
  std::vector<std::string> spellings() const;
  bool is_of(std::string_view command) const;
  // "LUMEN_CTX_SIZE"; empty where there is none. Options that name what is written or replaced have none, so that only
  // the command line can name it, and neither have arguments without a dash.
  std::string variable() const;

 private:
  template <class Change>
  constexpr Setting with(const Change& change) const {
    Setting out = *this;
    change(out);
    return out;
  }
};

// All rows.
const std::vector<Setting>& settings();
// Those of a command, "run" or "bench kernels", in the order of the table.
std::vector<const Setting*> settings_of(std::string_view command);
// The row by one of its names ("--ctx-size"); null where the command has none.
const Setting* find_setting(std::string_view command, std::string_view name);
// The same of a row that exists.
const Setting& setting(std::string_view command, std::string_view name);
// The row of an option of the C interface: "generate.top_k", which must exist.
const Setting& api_setting(std::string_view name);

}  // namespace lumen::cli
