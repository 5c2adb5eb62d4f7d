// Rounded weights as checkpoints of Hugging Face folders keep them: several tensors for one weight, described by
// models/checkpoints.toml, become one blob of a number format without being expanded. Hostile files: shapes are checked
// against the weight's before anything is read. pack.h is the way back. Proved by tests/model/arch/packed_test.cpp.
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

namespace lumen::model {

class PackedCheckpoint {
 public:
  // What a folder's config.json says; nothing when its weights are plain. Error when it names a way of rounding that no
  // scheme describes, and for keys of it that are not described (method.h).
  static std::optional<PackedCheckpoint> of(const nlohmann::json& config, const std::string& file);

  // Whether its matrices are [out, in], even those that plain folders keep as [in, out].
  bool is_unturned() const { return parts_.front().scheme->unturned; }
  // Whether MODULE.weight is packed in the file.
  bool holds(const TensorFile& file, const std::string& weight) const;
  // Bytes of the tensors it is made of, which are about those of the weight.
  int64_t stored_bytes(const TensorFile& file, const std::string& weight) const;
  // What read() gives, without reading codes. Both tell the names of the tensors the weight is made of.
  graph::Type type(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
                   const FormatLibrary& formats, std::set<std::string>& used) const;
  Weight read(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
              const FormatLibrary& formats, std::set<std::string>& used) const;

  // In what a packed weight's products hold what they read; nothing: in floats.
  std::optional<HeldFormat> input(const TensorFile& file, const std::string& weight, const FormatLibrary& formats,
                                  std::set<std::string>& used) const;
  // In what keys and values are held, beside tensors that begin with `attention`; nothing: in floats.
  bool has_cache() const { return cache_ != nullptr; }
  HeldFormat keys(const TensorFile& file, const std::string& attention, const FormatLibrary& formats,
                  std::set<std::string>& used) const;
  HeldFormat values(const TensorFile& file, const std::string& attention, const FormatLibrary& formats,
                    std::set<std::string>& used) const;

 private:
  class Reader;
  // Modules that are packed alike.
  struct Part {
    ModuleGroup group;
    const Scheme* scheme = nullptr;
    int64_t bits = 0;
    std::vector<std::vector<int64_t>> steps;  // by field; empty where the tensor's shape says them
    const HeldRule* activation = nullptr;
  };

  static Part part_of(const PackingMethod& method, ModuleGroup group, const std::string& file);
  const Part* part_for(const std::string& weight) const;  // null: no module of any
  graph::Type open(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
                   const FormatLibrary& formats, std::set<std::string>& used, std::vector<Reader>& readers) const;

  std::vector<Part> parts_;
  std::string file_;
  nlohmann::json config_;
  const HeldRule* cache_ = nullptr;
};

}  // namespace lumen::model
