// Towers in GGUF files of their own, as ggml's programs write them ("mmproj"): the architecture is `clip`, and the key
// clip.projector_type names the kind of tower (attribute `projector` of a tower's text). Proved by
// tests/cli/pictures/mmproj_check.py.
//
// May include: base, model/arch/family, model/file.
// Offers: renamed_tensors.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/arch/family/family.h"
#include "model/file/gguf.h"

namespace lumen::model::arch {

// How a tower's tensors stand in such files, by attributes of its text; * is the number of a layer:
//   gguf_joined NAME PART ..           rows of these tensors follow each other in one
//   gguf_counted BEGIN LAYERS COUNT    after BEGIN are numbers of layers, those  where the config key LAYERS is 1; the
//                                      text counts them, and has their number as COUNT
struct TowerNames {
  explicit TowerNames(const Family& family);
  struct Joined {
    std::string name;
    std::vector<std::string> parts;
  };
  struct Counted {
    std::string begin, layers, count;
  };
  std::vector<Joined> joined;
  std::vector<Counted> counted;
};

// What a file's metadata says. `projector`: the kind of tower; "" for files of other kinds.
bool is_tower_file(const file::GgufMetadata& metadata);
std::string projector_of(const file::GgufMetadata& metadata);
// How pictures are prepared, as a preprocessor_config.json.
std::string preparation_in(const file::GgufMetadata& metadata);

// The config of a tower's file, with its counts.
graph::Config tower_config(const Family& family, const file::GgufMetadata& metadata, const file::TensorFile& file);

// The tensors of a file with the names and the shapes of the family's parameters. Error for tensors that cannot be
// parted.
std::shared_ptr<const file::TensorFile> tensors_of_tower_file(const Family& family, const graph::Config& config,
                                                              std::shared_ptr<const file::TensorFile> file,
                                                              const std::string& name);

}  // namespace lumen::model::arch
