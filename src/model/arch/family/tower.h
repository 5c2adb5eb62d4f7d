// Towers: the families of the parts of models that read pictures. A tower has the attribute `tower`, which names the
// Hugging Face architectures that it is a part of; its parameters are those tensors that begin with one of its
// prefixes (hf_prefix). Proved by tests/model/infer/tower/tower_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/arch/family/family.h"

namespace lumen::model::arch {

// The tower of a Hugging Face architecture; null where no family describes it.
FamilyRef tower_of(const Library& library, const std::string& architecture);
// The tower of a GGUF file of its own, by what the file calls it (attribute `projector`). Error where no family does.
FamilyRef tower_of_projector(const Library& library, const std::string& projector);

// How a tower's pictures stand in the text of a prompt.
struct PictureText {
  std::string mark;   // what stands for a picture (attribute picture_mark)
  std::string place;  // .. and in it the token that stands for each row (picture_place)
  // What chat templates write for a picture, if it is not the mark (picture_written).
  std::string written = {};
  // Tokens after each line of rows (picture_line_end), and after the last one in its place (picture_end).
  std::string line_end = {}, end = {};
};
PictureText picture_text(const Family& tower);

}  // namespace lumen::model::arch
