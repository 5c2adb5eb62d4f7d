// needs: none. safetensors: round trips, the rules of the reference reader, shards.
#include "model/file/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "lang/parser.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

const FormatLibrary& library() {
  static const FormatLibrary formats = [] {
    FormatLibrary out;
    out.add(lang::parse_file(std::make_shared<Source>(Source{"test.lum", R"(
format small_float : safetensors "F8_E4M3" {
  v : float<4, 3, 7, fn>
  decode(i) = v
}
format rows : block 2 {
  row r : f32
  q : i8[2]
  decode(i) = q[i] * r
}
)"})));
    return out;
  }();
  return formats;
}

fs::path temporary() {
  return fs::temp_directory_path() / fmt::format("lumen-safetensors-{}.safetensors", ::getpid());
}

std::string file_with(std::string_view header, size_t data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + std::string(header) + std::string(data, '\1');
}

SafetensorsFile open(const std::string& bytes) {
  return SafetensorsFile(std::as_bytes(std::span(bytes)), "t.safetensors", library());
}

void refuse(const std::string& bytes, const std::string& part) {
  try {
    open(bytes);
    FAIL() << "accepted; expected: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("t.safetensors"), std::string::npos) << e.what();
  }
}

TEST(Safetensors, WorkedExample) {
  const std::string bytes = file_with(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}} )",
      12);
  EXPECT_EQ(bytes.size(), 8u + 112u + 12u);
  const SafetensorsFile file = open(bytes);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.get("b").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file.get("b").element.scalar, Scalar::bf16);
  EXPECT_EQ(file.get("b").offset, 8u + 112u + 8u);
}

TEST(Safetensors, EverythingComesBack) {
  const std::vector<TensorSpec> specs = {{"byte", {3}, {Scalar::u8, nullptr}},
                                         {"scalar", {}, {}},
                                         {"flags", {2, 2}, {Scalar::boolean, nullptr}},
                                         {"float8", {2, 5}, {Scalar::f32, library().get("small_float")}},
                                         {"rows", {3, 4}, {Scalar::f32, library().get("rows")}},
                                         {"empty", {4, 0}, {}},
                                         {"안녕 \"quoted\"", {2}, {Scalar::f64, nullptr}}};
  SafetensorsWriter writer(temporary(), {{"format", "pt"}}, specs);
  std::vector<std::vector<uint8_t>> blobs;
  for (const TensorSpec& spec : specs) {
    std::vector<uint8_t> blob(static_cast<size_t>(spec.blob_bytes()));
    for (size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<uint8_t>(i * 29 + blobs.size());
    writer.write(std::span(blob).first(blob.size() / 2));
    writer.write(std::span(blob).subspan(blob.size() / 2));
    blobs.push_back(std::move(blob));
  }
  writer.commit();
  const SafetensorsFile file(temporary(), library());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const StoredTensor& t = file.get(specs[i].name);
    EXPECT_EQ(t.shape, specs[i].shape);
    EXPECT_EQ(t.element, specs[i].element);
    const std::vector<uint8_t> blob = t.blob();
    ASSERT_EQ(blob.size(), blobs[i].size());
    for (int level = 0; level < kLevels; ++level) {
      const int64_t begin = t.element.format ? blob_layout(*t.element.format, t.rows(), t.columns()).section[level] : 0;
      if (t.sections[level].empty()) continue;
      EXPECT_EQ(std::memcmp(t.sections[level].data(), blobs[i].data() + begin, t.sections[level].size()), 0) << t.name;
    }
  }
  EXPECT_EQ(file.get("rows").sections[1].size(), 12u);
  // The format with rows travels with the file.
  const std::string bytes = read_file(temporary());
  EXPECT_NE(bytes.find("lumen.format.rows"), std::string::npos);
  EXPECT_EQ((*reinterpret_cast<const uint64_t*>(bytes.data())) % 8, 0u);
  fs::remove(temporary());
}

TEST(Safetensors, RefusesFilesThatLie) {
  refuse("", "too few");
  refuse(std::string(8, '\xff'), "claims");
  refuse(file_with("{}", 0).substr(0, 9), "more than the file has");
  refuse(file_with("{", 0), "JSON");
  refuse(file_with("[]", 0), "no JSON object");
  refuse(file_with("{\"a\":{\"dtype\":\"\xff\"}}", 0), "JSON");
  refuse(file_with(std::string(100, '['), 0), "nested");
  refuse(file_with("{}", 1), "1 bytes after");
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  EXPECT_EQ(open(file_with(tensor("F32", "[2]", "[0,8]"), 8)).tensors().size(), 1u);
  refuse(file_with(tensor("F33", "[2]", "[0,8]"), 8), "F33");
  refuse(file_with(tensor("C64", "[1]", "[0,8]"), 8), "C64");
  refuse(file_with(tensor("F32", "[3]", "[0,8]"), 8), "does not fit");
  refuse(file_with(tensor("F32", "[-2]", "[0,8]"), 8), "whole number");
  refuse(file_with(tensor("F32", "[2.0]", "[0,8]"), 8), "whole number");
  refuse(file_with(tensor("F32", "[1e0]", "[0,8]"), 8), "whole number");
  refuse(file_with(tensor("F32", "2", "[0,8]"), 8), "shape");
  refuse(file_with(tensor("F32", "[4294967296,4294967296]", "[0,8]"), 8), "too large");
  refuse(file_with(tensor("F32", "[2]", "[1,9]"), 9), "begins at 1 instead of 0");
  refuse(file_with(tensor("F32", "[2]", "[8,0]"), 8), "not inside");
  refuse(file_with(tensor("F32", "[2]", "[0,16]"), 8), "not inside");
  refuse(file_with(tensor("F32", "[2]", "[0]"), 8), "no pair");
  refuse(file_with(tensor("F32", "[2]", "[0,8]"), 9), "after the last");
  refuse(
      file_with(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          3),
      "begins at 1 instead of 2");
  refuse(
      file_with(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      "same key twice");
  refuse(file_with(R"({"__metadata__":{"x":1}})", 0), "no string");
  refuse(file_with(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), "\"dtype\" is missing");
  refuse(file_with(
             R"({"__metadata__":{"lumen.tensor.a.format":"rows"},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
             4),
         "lacks");
}

TEST(Safetensors, Shards) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("lumen-shards-{}", ::getpid());
  fs::create_directory(folder);
  const auto one = [&](const char* file, const char* name) {
    SafetensorsWriter w(folder / file, {}, {{name, {1}, {Scalar::u8, nullptr}}});
    const uint8_t x = 5;
    w.write({&x, 1});
    w.commit();
  };
  one("model-00001-of-00002.safetensors", "a");
  one("model-00002-of-00002.safetensors", "b");
  const auto index = [&](const std::string& text) { write_file_atomic(folder / "model.safetensors.index.json", text); };
  index(
      R"({"metadata":{},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  const auto file = open_tensors(folder, library());
  EXPECT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->get("b").data[0], 5);
  index(R"({"weight_map":{"b":"model-00001-of-00002.safetensors"}})");
  EXPECT_THROW(open_tensors(folder, library()), Error);
  index(R"({"weight_map":{"a":"../model-00001-of-00002.safetensors"}})");
  EXPECT_THROW(open_tensors(folder, library()), Error);
  one("model.safetensors", "c");
  EXPECT_EQ(open_tensors(folder, library())->tensors()[0].name, "c");
  fs::remove_all(folder);
}

RC_GTEST_PROP(Safetensors, DamagedFilesAreErrorsOrFiles, ()) {
  std::string bytes = file_with(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[8,12]}})",
      12);
  const int flips = *rc::gen::inRange(0, 4);
  for (int i = 0; i < flips; ++i) bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size() + 1));
  try {
    const auto file = open(bytes);
    for (const StoredTensor& t : file.tensors()) RC_ASSERT(t.data.size() <= bytes.size());
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace lumen::model::file
