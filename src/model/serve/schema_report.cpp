#include "model/serve/schema_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace lumen::model::serve {
namespace {

void refuse_strict(const std::string& about, const std::vector<std::string>& relaxed) {
  throw user_error(
      "'strict' is true, but a grammar cannot enforce these keywords of {}: {} (without 'strict' they are "
      "checked after the output)",
      about, fmt::join(relaxed, ", "));
}

}  // namespace

void SchemaReport::add_answer(const nlohmann::ordered_json& schema, const std::vector<std::string>& relaxed,
                              bool is_strict) {
  if (relaxed.empty()) return;
  if (is_strict) refuse_strict("the schema", relaxed);
  answer_.emplace(schema);
  relaxed_.insert(relaxed_.end(), relaxed.begin(), relaxed.end());
}

void SchemaReport::add_function(const std::string& name, const nlohmann::ordered_json& schema,
                                const std::vector<std::string>& relaxed, bool is_strict) {
  if (relaxed.empty()) return;
  if (is_strict) refuse_strict(fmt::format("the function '{}'", name), relaxed);
  functions_.emplace(name, infer::SchemaCheck(schema));
  for (const std::string& place : relaxed) relaxed_.push_back(name + ":" + place);
}

nlohmann::ordered_json SchemaReport::of(const std::string& text,
                                        const std::vector<std::pair<std::string, std::string>>& calls) {
  if (relaxed_.empty()) return nullptr;
  std::optional<bool> valid = true;
  const auto add = [&](std::optional<bool> one) {
    if (valid != false) valid = one == true ? valid : one;
  };
  if (answer_ && calls.empty()) add(answer_->check(text));
  for (const auto& [name, arguments] : calls)
    if (const auto found = functions_.find(name); found != functions_.end()) add(found->second.check(arguments));
  nlohmann::ordered_json out;
  out["relaxed"] = relaxed_;
  out["valid"] = valid ? nlohmann::ordered_json(*valid) : nlohmann::ordered_json();
  return out;
}

}  // namespace lumen::model::serve
