// Which files of a repository make a model: from a list of names, local or of the hub. Proved by
// tests/model/file/hub/choose_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/file/hub/name.h"

namespace lumen::model::file {

using FileNames = std::vector<std::string>;

// A GGUF file, or all parts of a split one, in order.
struct GgufSet {
  std::string label;  // the quantization in capitals, as in Q4_K_M; the file's stem where its name has none
  FileNames files;    // the first one is read
  int parts = 1;      // that the names announce
  bool is_whole() const { return std::ssize(files) == parts; }
  std::string type() const;  // the label, or "GGUF" where it is no quantization
};

// The models among the files, sorted by name. Projectors (mmproj) and importance matrices are no models.
std::vector<GgufSet> gguf_sets(const FileNames& files);

// The set that `name` selects by its file or its part (a label, otherwise a part of a file's name; case does not
// matter). Without either: the only one, otherwise Q4_K_M or the nearest to it. Error, with
// the labels, when none or several fit, or a part is missing.
GgufSet choose_gguf(const std::vector<GgufSet>& sets, const HubName& name);

// The files of a model or an adapter in safetensors: weights, configuration, tokenizer, chat template; empty when there
// are no such weights. Weights in subfolders and second copies of the weights (consolidated) are left out.
FileNames safetensors_files(const FileNames& files);

}  // namespace lumen::model::file
