#include "cli/names.h"

#include <cmath>

#include "base/error.h"
#include "cli/settings/declare.h"
#include "model/compress/quantize.h"
#include "model/recipe/recipe.h"

namespace lumen::cli {
namespace {

std::string wrapped(const std::string& title, const std::vector<std::string>& names, size_t width) {
  std::string out = title, line = title;
  for (const std::string& name : names) {
    if (line.size() + name.size() + 1 > width) {
      out += "\n ";
      line = " ";
    }
    out += " " + name;
    line += " " + name;
  }
  return out;
}

}  // namespace

std::string example_format(double bits) {
  std::string best = "TYPE";
  double distance = 1e9;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->gguf_file_type || !f->encodes()) continue;
    const double d = std::abs(f->bits_per_weight() - bits);
    if (d < distance) {
      distance = d;
      best = f->name;
    }
  }
  return best;
}

std::string format_names(size_t width) {
  const auto library = model::arch::Library::builtin();
  std::vector<std::string> formats, mixtures;
  for (const FormatRef& f : library->formats().all()) {
    if (f->encodes()) formats.push_back(f->name);
  }
  for (const std::string& name : library->recipe_names()) {
    const model::recipe::Recipe recipe = model::recipe::parse_recipe(library->recipe(name)->text, name);
    if (recipe.file_type >= 0 && !library->formats().find(name)) mixtures.push_back(name);
  }
  return wrapped("Formats:", formats, width) + "\n" + wrapped("Mixtures:", mixtures, width);
}

void CacheTypes::add_flags(CLI::App& app) {
  add_setting(app, "--cache-type-k", keys);
  add_setting(app, "--cache-type-v", values);
}

void CacheTypes::choose(const model::arch::Library& library, model::infer::SessionOptions* options) const {
  if (!keys.empty()) options->keys = named_format(library.formats(), keys);
  if (!values.empty()) options->values = named_format(library.formats(), values);
}

void add_narrow_flag(CLI::App& app, model::infer::Narrow* narrow) {
  *narrow = model::infer::Narrow::apart;
  add_setting_function<std::string>(app, "--narrow", [narrow](const std::string& word) {
    *narrow = word == "auto"    ? model::infer::Narrow::apart
              : word == "never" ? model::infer::Narrow::never
                                : model::infer::Narrow::always;
  })->default_str("auto");
}

FormatRef named_format(const FormatLibrary& formats, const std::string& name) {
  try {
    return model::compress::find_format(formats, name);
  } catch (const Error& error) {
    throw Error(Exit::usage, error.what(), error.hint());
  }
}

std::string example_size(double weights) {
  const auto library = model::arch::Library::builtin();
  std::string best;
  double distance = 1e300;
  for (const std::string& name : library->family_names()) {
    const model::arch::FamilyRef family = library->family(name);
    for (const std::string& size : family->sizes()) {
      double count = 0;
      for (const model::arch::Parameter& p : family->parameters(family->config(size, {}))) count += p.count();
      if (std::abs(count - weights) >= distance) continue;
      distance = std::abs(count - weights);
      best = size;
    }
  }
  return best;
}

std::string size_names() {
  const auto library = model::arch::Library::builtin();
  std::string text;
  for (const std::string& family : library->family_names()) {
    if (library->family(family)->sizes().empty()) continue;
    text += text.empty() ? "" : "\n";
    text += wrapped(fmt::format("Sizes of {}:", family), library->family(family)->sizes(), 110);
  }
  return text;
}

}  // namespace lumen::cli
