// Tensors of adapter files: validated, and as f32, for the readers of both kinds of files. Errors name the file and the
// tensor. Proved by tests/model/arch/adapter/adapter_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "model/file/tensors.h"

namespace lumen::model::arch {

std::string shape_text(const std::vector<int64_t>& shape);

// Values of any float type, as f32; Error unless all are finite.
std::vector<float> floats_of(const FormatLibrary& formats, const file::StoredTensor& t, const std::string& file);
// A matrix, or `count` stacked ones if that is not 0.
Weight matrix_in(const FormatLibrary& formats, const file::StoredTensor& t, const std::string& file, int64_t count = 0);

// The tensors of one target, as the file names it.
struct Pair {
  const file::StoredTensor* a = nullptr;
  const file::StoredTensor* b = nullptr;
  const file::StoredTensor* magnitude = nullptr;
  const file::StoredTensor* bias = nullptr;  // of B
  bool looked_up = false;                    // stored in the layout of an embedding's update
};
using Pairs = std::map<std::string, Pair>;

void put_in_pair(Pairs& pairs, const std::string& target, bool is_a, const file::StoredTensor& t, bool looked_up,
                 const std::string& file);
// Checks that each target has both A and B.
void require_pairs(const Pairs& pairs, const std::string& file);

void require_shape(const Weight& w, int64_t rows, int64_t columns, const file::StoredTensor& t,
                   const std::string& file);
// Checks that the parameter is a single matrix.
void require_matrix(const Parameter& p, const std::string& target, const std::string& file);
[[noreturn]] void refuse_shape(const file::StoredTensor& t, const std::vector<int64_t>& wanted,
                               const std::string& file);
[[noreturn]] void refuse_target(const Model& model, const std::string& target, const std::string& file);

Adapter read_folder_adapter(const Model& model, const std::filesystem::path& folder);
Adapter read_gguf_adapter(const Model& model, const std::filesystem::path& path);

}  // namespace lumen::model::arch
