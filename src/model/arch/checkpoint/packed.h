// Rounded weights as checkpoints of Hugging Face folders keep them: several tensors for one weight, described by
// models/checkpoints.toml, become one blob of a number format without being expanded. Hostile files: shapes are checked
// against the weight's before anything is read. Proved by tests/model/arch/packed_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/arch/model.h"
#include "model/file/tensors.h"

namespace lumen::model {

class PackedCheckpoint {
 public:
  // What a folder's config.json says; nothing when its weights are plain. Error when it names a way of rounding that no
  // scheme describes.
  static std::optional<PackedCheckpoint> of(const nlohmann::json& config, const std::string& file);

  // Whether its matrices are [out, in], even those that plain folders keep as [in, out].
  bool is_unturned() const { return unturned_; }
  // Whether MODULE.weight is packed in the file.
  bool holds(const TensorFile& file, const std::string& weight) const;
  // Bytes of the tensors it is made of, which are about those of the weight.
  int64_t stored_bytes(const TensorFile& file, const std::string& weight) const;
  // The weight, and the names of the tensors it was made of.
  Weight read(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
              const FormatLibrary& formats, std::set<std::string>& used) const;

 private:
  struct Field {
    std::string field, tensor, packed, map, scale, offset;
    std::vector<std::string> axes;
    std::vector<int64_t> order, steps;
    int64_t add = 0, per = 0;
  };
  class Reader;

  std::string module_of(const std::string& weight) const;  // "" when no module has such a weight

  std::string name_, format_, file_, weight_;
  bool unturned_ = false;
  int64_t bits_ = 0;
  std::vector<std::string> ignore_, trivial_;
  std::vector<Field> fields_;
};

}  // namespace lumen::model
