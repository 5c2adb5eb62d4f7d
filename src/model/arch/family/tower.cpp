#include "model/arch/family/tower.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::model::arch {
namespace {

std::vector<std::string> texts_of(const lang::ModelDecl& decl, std::string_view attribute) {
  std::vector<std::string> texts;
  for (const lang::Attribute& a : decl.attributes) {
    if (a.name != attribute) continue;
    for (const lang::ExprPtr& value : a.values) {
      if (value->kind != lang::ExprKind::string)
        throw error_at(value->place, fmt::format("attribute '{}' takes strings", attribute));
      texts.push_back(value->text);
    }
  }
  return texts;
}

FamilyRef tower_with(const Library& library, std::string_view attribute, const std::string& value) {
  for (const lang::File* file : library.scope().files)
    for (const lang::ModelDecl& decl : file->models)
      if (std::ranges::count(texts_of(decl, attribute), value) > 0)
        return std::make_shared<Family>(library.shared_from_this(), decl);
  return nullptr;
}

}  // namespace

FamilyRef tower_of(const Library& library, const std::string& architecture) {
  return tower_with(library, "tower", architecture);
}

FamilyRef tower_of_projector(const Library& library, const std::string& projector) {
  FamilyRef found = tower_with(library, "projector", projector);
  if (found) return found;
  std::string known;
  for (const lang::File* file : library.scope().files)
    for (const lang::ModelDecl& decl : file->models)
      for (const std::string& name : texts_of(decl, "projector")) known += (known.empty() ? "" : ", ") + name;
  throw Error(Exit::user, fmt::format("no tower reads files of the projector '{}'", projector),
              fmt::format("known projectors: {}", known));
}

PictureText picture_text(const Family& tower) {
  const auto one = [&](const char* attribute) {
    const std::vector<std::string> texts = texts_of(tower.declaration(), attribute);
    if (texts.size() != 1)
      throw error_at(tower.declaration().place,
                     fmt::format("the tower '{}' needs the attribute '{}'", tower.name(), attribute),
                     "e.g. picture_mark \"<image>\", picture_place \"<image>\"");
    return texts[0];
  };
  const auto some = [&](const char* attribute) {
    const std::vector<std::string> texts = texts_of(tower.declaration(), attribute);
    return texts.empty() ? std::string() : texts[0];
  };
  PictureText out{one("picture_mark"), one("picture_place"), some("picture_written"), some("picture_line_end"),
                  some("picture_end")};
  if (out.place.empty() || out.mark.find(out.place) == std::string::npos)
    throw error_at(tower.declaration().place, "picture_mark does not contain picture_place");
  return out;
}

}  // namespace lumen::model::arch
