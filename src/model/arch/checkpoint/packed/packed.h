// Rounded weights as checkpoints of Hugging Face folders keep them: several tensors for one weight, described by
// models/checkpoints.toml, become one blob of a number format without being expanded. Hostile files: shapes are checked
// against the weight's before anything is read. pack.h is the way back. Proved by tests/model/arch/packed_test.cpp.
//
// May include: base, base/structured, model/arch, model/file, number/facts, number/format, number/library.
// Offers: pack.h.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/scheme.h"
#include "model/arch/model.h"
#include "model/file/tensors.h"

namespace lumen::model {

class PackedCheckpoint {
 public:
  // What a folder's config.json says; nothing when its weights are plain. Error when it names a way of rounding that no
  // scheme describes.
  static std::optional<PackedCheckpoint> of(const nlohmann::json& config, const std::string& file);

  // Whether its matrices are [out, in], even those that plain folders keep as [in, out].
  bool is_unturned() const { return scheme_->unturned; }
  // Whether MODULE.weight is packed in the file.
  bool holds(const TensorFile& file, const std::string& weight) const;
  // Bytes of the tensors it is made of, which are about those of the weight.
  int64_t stored_bytes(const TensorFile& file, const std::string& weight) const;
  // What read() gives, without reading codes. Both tell the names of the tensors the weight is made of.
  graph::Type type(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
                   const FormatLibrary& formats, std::set<std::string>& used) const;
  Weight read(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
              const FormatLibrary& formats, std::set<std::string>& used) const;

 private:
  class Reader;

  graph::Type open(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
                   const FormatLibrary& formats, std::set<std::string>& used, std::vector<Reader>& readers) const;
  std::string module_of(const std::string& weight) const;  // "" when no module has such a weight

  const Scheme* scheme_ = nullptr;
  std::string file_;
  int64_t bits_ = 0;
  std::vector<std::vector<int64_t>> steps_;  // by field; empty where the tensor's shape says them
};

}  // namespace lumen::model
