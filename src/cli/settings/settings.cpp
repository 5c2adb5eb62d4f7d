#include "cli/settings/settings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr const char* kEveryCommand = "*";

std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    out.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<Setting> all_rows() {
  std::vector<Setting> out;
  for (const auto rows : {shared_rows(), generating_rows(), serving_rows(), measuring_rows(), converting_rows(),
                          training_rows(), hub_rows()})
    out.insert(out.end(), rows.begin(), rows.end());
  const auto add = [&](std::span<const Setting> rows) {
    for (const Setting& row : rows) out.push_back(row), out.back().names_command = true;
  };
  add(repairing_rows());
  add(inspecting_rows());
  for (const auto rows : application_rows()) add(rows);
  return out;
}

// Rows by command and spelling.
using Index = std::map<std::pair<std::string, std::string>, const Setting*>;

Index index_rows() {
  Index out;
  for (const Setting& row : settings())
    for (const std::string& command : parts_of(row.commands))
      for (const std::string& name : row.spellings()) out.emplace(std::pair(command, name), &row);
  return out;
}

}  // namespace

std::string Setting::name() const {
  const std::vector<std::string> all = spellings();
  for (const std::string& one : all)
    if (one.starts_with("--")) return one;
  return all.front();
}

std::vector<std::string> Setting::spellings() const {
  std::vector<std::string> out = parts_of(names);
  for (std::string& one : out)
    if (one.starts_with('!')) one.erase(0, 1);
  return out;
}

bool Setting::is_of(std::string_view command) const {
  if (std::string_view(commands) == kEveryCommand) return true;
  const std::vector<std::string> all = parts_of(commands);
  return std::ranges::find(all, command) != all.end();
}

std::string Setting::variable() const {
  if (own_variable) return own_variable;
  const std::string long_name = name();
  if (writes || !long_name.starts_with("--")) return {};
  const std::string_view all = commands;
  const std::string command = names_command ? std::string(all.substr(0, all.find_first_of(" ,"))) + "_" : "";
  std::string out = "LUMEN_" + command + long_name.substr(2);
  for (char& c : out) c = c == '-' ? '_' : c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c;
  return out;
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> rows = all_rows();
  return rows;
}

std::vector<const Setting*> settings_of(std::string_view command) {
  std::vector<const Setting*> out;
  for (const Setting& row : settings())
    if (row.is_of(command)) out.push_back(&row);
  return out;
}

const Setting* find_setting(std::string_view command, std::string_view name) {
  static const Index index = index_rows();
  for (const std::string_view where : {command, std::string_view(kEveryCommand)})
    if (const auto at = index.find({std::string(where), std::string(name)}); at != index.end()) return at->second;
  return nullptr;
}

const Setting& setting(std::string_view command, std::string_view name) {
  const Setting* const row = find_setting(command, name);
  LUMEN_CHECK(row, "the table has no option {} of `lumen {}`", name, command);
  return *row;
}

const Setting& api_setting(std::string_view name) {
  for (const Setting& row : settings()) {
    const std::vector<std::string> all = parts_of(row.api);
    if (std::ranges::find(all, name) != all.end()) return row;
  }
  LUMEN_UNREACHABLE("the table has no option {} of the C interface", name);
}

}  // namespace lumen::cli
