// needs: a folder named by LUMEN_EXCHANGE_DIR; run by reference.py, which checks what is written here with other
// people's libraries and lays out files of theirs to be read here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/embedded.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "model/file/gguf.h"
#include "model/file/safetensors.h"
#include "model/text/tokenizer/tokenizer.h"
#include "number/codec/codec.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

#define EXCHANGE_FOLDER()                                                       \
  const char* named = std::getenv("LUMEN_EXCHANGE_DIR");                        \
  if (!named) GTEST_SKIP() << "run tests/model/file/reference.py THIS_PROGRAM"; \
  const fs::path folder = named

template <typename T>
std::span<const uint8_t> raw(const std::vector<T>& x) {
  return {reinterpret_cast<const uint8_t*>(x.data()), x.size() * sizeof(T)};
}

std::vector<float> wave(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.37) * (1 + static_cast<double>(i % 7)));
  return x;
}

std::string sample_text() {
  return std::string(embedded::data()[0].text.substr(0, 200000));
}

TEST(Exchange, Write) {
  EXCHANGE_FOLDER();
  const FormatLibrary formats = FormatLibrary::builtin();
  // Every format with a GGUF id: encoded blocks, and beside them what we say they decode to.
  constexpr int64_t kRows = 3, kColumns = 512;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<uint8_t>> blobs;
  const auto put = [&](std::string name, std::vector<int64_t> shape, graph::Element element,
                       std::span<const uint8_t> blob) {
    specs.push_back({std::move(name), std::move(shape), std::move(element)});
    blobs.emplace_back(blob.begin(), blob.end());
  };
  put("f32", {kRows, kColumns}, {}, raw(wave(kRows * kColumns)));
  put("i32", {2, 1, 3}, {Scalar::i32, nullptr}, raw(std::vector<int32_t>{1, -2, 3, 4, 5, 6}));
  put("f64", {2}, {Scalar::f64, nullptr}, raw(std::vector<double>{0.1, -1e300}));
  for (const FormatRef& f : formats.all()) {
    if (!f->gguf_type || !f->encodes()) continue;
    const std::vector<uint8_t> blob = encode(*f, wave(kRows * kColumns), kRows, kColumns);
    put(f->name + ".blocks", {kRows, kColumns}, {Scalar::f32, f}, blob);
    put(f->name + ".values", {kRows, kColumns}, {}, raw(decode(*f, blob, kRows, kColumns)));
  }
  GgufMetadata m;
  m.set("general.architecture", std::string("test"));
  m.set("test.u8", uint8_t{200});
  m.set("test.i64", int64_t{-5000000000});
  m.set("test.f64", 0.1);
  m.set("test.flag", true);
  m.set("test.text", std::string("안녕"));
  m.set("test.texts", GgufArray(std::vector<std::string>{"a", "", "ㅋ"}));
  m.set("test.numbers", GgufArray(std::vector<float>{1.5f, -2.25f}));
  m.set("general.alignment", uint32_t{64});
  GgufWriter gguf(folder / "ours.gguf", m, specs);
  for (const auto& blob : blobs) gguf.write(blob);
  gguf.commit();

  const std::vector<TensorSpec> plain = {{"a", {2, 3}, {}},
                                         {"b", {4}, {Scalar::i64, nullptr}},
                                         {"c", {}, {Scalar::f16, nullptr}},
                                         {"d", {3}, {Scalar::boolean, nullptr}},
                                         {"e", {0, 2}, {}}};
  SafetensorsWriter tensors(folder / "ours.safetensors", {{"format", "np"}}, plain);
  tensors.write(raw(wave(6)));
  tensors.write(raw(std::vector<int64_t>{1, -2, int64_t{1} << 40, 0}));
  tensors.write(raw(std::vector<uint16_t>{f32_to_f16(0.5f)}));
  tensors.write(raw(std::vector<uint8_t>{1, 0, 1}));
  tensors.commit();

  const std::string text = sample_text();
  write_file_atomic(folder / "text.txt", text);
  const text::Tokenizer trained = text::Tokenizer::train(
      text, {.vocabulary = 600, .min_frequency = 2, .specials = {"<|endoftext|>"}, .end_of_text = "<|endoftext|>"});
  write_file_atomic(folder / "trained.json", trained.to_json());
  write_file_atomic(folder / "trained.ids", json_print(trained.encode(text), "ids"));
  const text::Tokenizer characters = text::Tokenizer::characters(text + "안녕 wörld");
  write_file_atomic(folder / "characters.json", characters.to_json());
  write_file_atomic(folder / "characters.ids", json_print(characters.encode(text), "ids"));
}

TEST(Exchange, Read) {
  EXCHANGE_FOLDER();
  const FormatLibrary formats = FormatLibrary::builtin();
  const auto expected = parse_json(read_file(folder / "theirs.json", 1 << 30), "theirs.json");
  const auto check = [&](const TensorFile& file, const nlohmann::json& tensors) {
    for (const auto& [name, info] : tensors.items()) {
      const StoredTensor& t = file.get(name);
      EXPECT_EQ(t.shape, info["shape"].get<std::vector<int64_t>>()) << name;
      std::vector<float> values;
      if (t.element.format) {
        values = decode(*t.element.format, t.blob(), t.rows(), t.columns());
      } else {
        ASSERT_EQ(t.element.scalar, Scalar::f32) << name;
        values.resize(t.data.size() / 4);
        t.copy_blob(reinterpret_cast<uint8_t*>(values.data()));
      }
      EXPECT_EQ(values, info["values"].get<std::vector<float>>()) << name;
    }
  };
  const GgufFile gguf(folder / "theirs.gguf", formats);
  check(gguf, expected["gguf"]);
  EXPECT_EQ(gguf.metadata().text("test.text"), "안녕");
  EXPECT_EQ(gguf.metadata().integers("test.ints"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(gguf.metadata().texts("test.texts"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(gguf.metadata().number("test.float"), 1.5);
  EXPECT_TRUE(gguf.metadata().boolean("test.flag", false));
  check(SafetensorsFile(folder / "theirs.safetensors", formats), expected["safetensors"]);
  const std::string text = sample_text();
  for (const char* name : {"theirs_gpt.json", "theirs_split.json"}) {
    EXPECT_EQ(text::Tokenizer::load(folder / name).encode(text),
              expected["ids"][name].get<std::vector<text::TokenId>>())
        << name;
  }
}

}  // namespace
}  // namespace lumen::model::file
