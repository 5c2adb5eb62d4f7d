// Quantized weights in checkpoints of Hugging Face folders: the several tensors of a weight, described by
// models/checkpoints.toml, are repacked into one blob of a number format without decoding. Hostile files: shapes are
// checked against the weight's before anything is read. pack.h is the inverse. Proved by
// tests/model/arch/packed_test.cpp.
//
// May include: base, base/structured, base/threads, graph/pass, graph/transform, model/arch, model/file, number/codec,
// number/facts, number/format, number/library.
// Offers: held_tensors.h, pack.h.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/held.h"
#include "model/arch/checkpoint/packed/method.h"
#include "model/arch/checkpoint/packed/scheme.h"
#include "model/arch/model.h"
#include "model/file/tensors.h"

namespace lumen::model::arch {

class PackedCheckpoint {
 public:
  // From a folder's config.json; nullopt when its weights are plain. Error for a quantization method that no scheme
  // describes, and for unsupported keys (method.h).
  static std::optional<PackedCheckpoint> of(const nlohmann::json& config, const std::string& file);

  // Whether its matrices are [out, in], even those that plain folders store as [in, out].
  bool is_unturned() const { return parts_.front().scheme->unturned; }
  // Whether MODULE.weight is packed in the file.
  bool holds(const file::TensorFile& file, const std::string& weight) const;
  // Bytes of its tensors, which are about those of the weight.
  int64_t stored_bytes(const file::TensorFile& file, const std::string& weight) const;
  // The type that read() returns, without reading codes. Both add the names of the weight's tensors to `used`.
  graph::Type type(const file::TensorFile& file, const std::string& weight, const graph::Shape& shape,
                   const FormatLibrary& formats, std::set<std::string>& used) const;
  Weight read(const file::TensorFile& file, const std::string& weight, const graph::Shape& shape,
              const FormatLibrary& formats, std::set<std::string>& used) const;

  // The format of the input of a packed weight's products; nullopt: floats.
  std::optional<HeldFormat> input(const file::TensorFile& file, const std::string& weight, const FormatLibrary& formats,
                                  std::set<std::string>& used) const;
  // The formats of keys and values, from tensors with the prefix `attention`; without a cache: floats.
  bool has_cache() const { return cache_ != nullptr; }
  HeldFormat keys(const file::TensorFile& file, const std::string& attention, const FormatLibrary& formats,
                  std::set<std::string>& used) const;
  HeldFormat values(const file::TensorFile& file, const std::string& attention, const FormatLibrary& formats,
                    std::set<std::string>& used) const;

 private:
  class Reader;
  // Modules that are packed alike.
  struct Part {
    ModuleGroup group;
    const Scheme* scheme = nullptr;
    int64_t bits = 0;
    std::vector<std::vector<int64_t>> steps;  // block sizes by field; empty where the tensor's shape implies them
    const HeldRule* activation = nullptr;
  };

  static Part part_of(const PackingMethod& method, ModuleGroup group, const std::string& file);
  const Part* part_for(const std::string& weight) const;  // null: no group matches
  graph::Type open(const file::TensorFile& file, const std::string& weight, const graph::Shape& shape,
                   const FormatLibrary& formats, std::set<std::string>& used, std::vector<Reader>& readers) const;

  std::vector<Part> parts_;
  std::string file_;
  nlohmann::json config_;
  const HeldRule* cache_ = nullptr;
};

}  // namespace lumen::model::arch
