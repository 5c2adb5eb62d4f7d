// The formats available to a program. Embedded and user formats are read by the same code; the only difference is the
// name in diagnostics. Proved by tests/number/library_test.cpp.
#include "number/library/library.h"

#include <algorithm>

#include "base/embedded.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/messages/spelling.h"
#include "lang/parser.h"
#include "number/facts/type_ids.h"

namespace lumen {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

// A format with parameters that have no defaults is a template, not a format.
bool is_pattern(const lang::FormatDecl& d) {
  return std::any_of(d.params.begin(), d.params.end(), [](const lang::Param& p) { return !p.default_value; });
}

template <typename Declaration>
void refuse_clashes(const std::vector<lang::File>& files, std::vector<Declaration> lang::File::* list,
                    std::string_view kind) {
  std::map<std::string, const Declaration*> seen;
  for (const lang::File& file : files) {
    for (const Declaration& d : file.*list) {
      if (!seen.emplace(d.name, &d).second) {
        throw error_at(d.place, fmt::format("{} '{}' is defined twice", kind, d.name), "choose another name");
      }
    }
  }
}

}  // namespace

FormatLibrary FormatLibrary::builtin() {
  std::vector<lang::File> files;
  for (const embedded::File& file : embedded::formats()) {
    files.push_back(lang::parse_file(
        std::make_shared<Source>(Source{fmt::format("<embedded {}>", file.path), std::string(file.text)})));
  }
  FormatLibrary library;
  library.add_all(std::move(files), true);
  return library;
}

void FormatLibrary::add(const lang::File& file) {
  add_all({file});
}

void FormatLibrary::add_folder(const std::filesystem::path& folder) {
  std::vector<lang::File> files;
  for (const std::filesystem::path& path : list_folder(folder)) {
    if (path.extension() != ".lum") continue;
    files.push_back(lang::parse_file(std::make_shared<Source>(Source{path.string(), read_file(path, kMaxFileBytes)})));
  }
  add_all(std::move(files));
}

void FormatLibrary::add_all(std::vector<lang::File> added, bool embedded) {
  std::vector<lang::File> files = files_;
  files.insert(files.end(), std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  refuse_clashes(files, &lang::File::formats, "format");
  refuse_clashes(files, &lang::File::aliases, "format");
  refuse_clashes(files, &lang::File::functions, "function");
  refuse_clashes(files, &lang::File::tables, "table");
  std::vector<const lang::File*> scope;
  for (const lang::File& file : files) scope.push_back(&file);

  FormatLibrary all;  // replaces this library if there is no error
  all.formats_ = formats_;
  all.origins_ = origins_;
  auto take = [&](FormatRef format, const Place& place) {
    const std::string name = format->name;
    if (all.formats_.contains(name))
      throw error_at(place, fmt::format("format '{}' is defined twice", name), "choose another name");
    if (const auto taken = all.taken_id(*format))
      throw error_at(place, *taken, "leave that attribute out: files then carry the definition itself");
    all.origins_.emplace(name, Origin{place, embedded});
    all.formats_.emplace(name, std::move(format));
  };
  for (size_t k = files_.size(); k < files.size(); ++k) {
    for (const lang::FormatDecl& d : files[k].formats) {
      if (!is_pattern(d)) take(read_format(d, scope), d.place);
    }
    for (const lang::FormatAlias& a : files[k].aliases) take(read_format_alias(a, scope), a.place);
  }
  formats_ = std::move(all.formats_);
  origins_ = std::move(all.origins_);
  files_ = std::move(files);
}

std::string FormatLibrary::place_of(std::string_view name) const {
  const auto found = origins_.find(name);
  if (found == origins_.end()) return "";
  const Place& place = found->second.place;
  return fmt::format("{}:{}", place.source->name, line_column(place).line);
}

bool FormatLibrary::is_embedded(std::string_view name) const {
  const auto found = origins_.find(name);
  return found != origins_.end() && found->second.embedded;
}

std::optional<std::string> FormatLibrary::taken_id(const Format& f) const {
  for (const auto& [name, other] : formats_) {
    if (name == f.name) continue;
    std::string id;
    if (f.gguf_type && f.gguf_type == other->gguf_type) id = fmt::format("gguf {}", *f.gguf_type);
    if (f.gguf_file_type && f.gguf_file_type == other->gguf_file_type)
      id = fmt::format("gguf_file {}", *f.gguf_file_type);
    if (!f.safetensors_type.empty() && f.safetensors_type == other->safetensors_type)
      id = fmt::format("safetensors \"{}\"", f.safetensors_type);
    if (!id.empty())
      return fmt::format("format '{}' claims {}, which is format '{}' ({})", f.name, id, name, place_of(name));
  }
  return claimed_scalar(f);
}

FormatRef FormatLibrary::find(std::string_view name) const {
  const auto found = formats_.find(name);
  return found == formats_.end() ? nullptr : found->second;
}

FormatRef FormatLibrary::get(std::string_view name) const {
  if (FormatRef format = find(name)) return format;
  std::vector<std::string> known;
  for (const auto& [text, format] : formats_) known.push_back(text);
  std::string hint = did_you_mean_any(name, known);
  if (hint.empty()) hint = "`lumen format list` shows all formats";
  throw Error(Exit::user, fmt::format("there is no format '{}'", name), hint);
}

FormatRef FormatLibrary::by_gguf_type(int type) const {
  for (const auto& [text, format] : formats_) {
    if (format->gguf_type == type) return format;
  }
  return nullptr;
}

std::vector<FormatRef> FormatLibrary::all() const {
  std::vector<FormatRef> result;
  for (const auto& [text, format] : formats_) result.push_back(format);
  return result;
}

}  // namespace lumen
