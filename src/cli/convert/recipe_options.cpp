#include "cli/convert/recipe_options.h"

#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/numbers.h"
#include "model/recipe/recipe.h"

namespace lumen::cli {
namespace {

model::recipe::Recipe read_recipe(const model::arch::Library& library, const std::string& name) {
  if (const auto text = library.recipe(name)) return model::recipe::parse_recipe(text->text, text->name);
  std::error_code error;
  if (std::filesystem::exists(name, error)) return model::recipe::parse_recipe(read_file(name, 1 << 20), name);
  std::string known;
  for (const std::string& one : library.recipe_names())
    if (!model::recipe::parse_recipe(library.recipe(one)->text, one).compress.empty())
      known += (known.empty() ? "" : ", ") + one;
  throw Error(Exit::usage, fmt::format("'{}' is neither a recipe nor a file", name),
              "recipes for this command: " + known);
}

}  // namespace

void take_recipe(CLI::App& sub, const model::arch::Library& library, const std::string& name) {
  const model::recipe::Recipe recipe = read_recipe(library, name);
  if (recipe.compress.empty())
    throw usage_error("'{}' has no [compress], the section for `lumen {}`", name, sub.get_name());
  std::string said;
  for (const auto& [key, values] : recipe.compress) {
    // Recipes do not contain the model's input and output paths.
    CLI::Option* option = key == "type" ? sub.get_option_no_throw(key) : sub.get_option_no_throw("--" + key);
    if (!option || key == "recipe")
      throw usage_error("'{}': [compress] has '{}', which is no option of `lumen {}`", name, key, sub.get_name());
    if (option->count() > 0) {
      verbose(fmt::format("--{} keeps the value of the command line or the environment", key));
      continue;
    }
    try {
      for (const std::string& value : values) option->add_result(value);
      option->run_callback();
    } catch (const CLI::ParseError& refusal) {
      throw usage_error("'{}': [compress] {}", name, usage_text(refusal));
    }
    std::string all;
    for (const std::string& value : values) all += (all.empty() ? "" : ",") + value;
    said += fmt::format(" --{} {}", key, all);
  }
  note(fmt::format("recipe '{}':{}", recipe.name, said));
}

}  // namespace lumen::cli
