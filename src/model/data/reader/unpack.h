// Compressed data files. A file that unpacks to far more than data normally does, or to more than memory holds, is an
// Error with its name before it takes that memory. Proved by tests/model/data/data_form_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::model::data {

// Whether the bytes begin with gzip's magic number.
bool is_gzip(std::string_view bytes);

// The unsupported compression of a file ("zstd", "bzip2", "xz", "zip"), by its first bytes; "" for others.
std::string foreign_packing(std::string_view bytes);

// The bytes of one or several gzip members. Error that names the file when they are damaged, truncated, more than
// `limit` once unpacked, or more than 200 times the packed size; with Exit::hardware when memory cannot hold them.
std::string gunzip(std::string_view packed, const std::string& name, uint64_t limit);

}  // namespace lumen::model::data
