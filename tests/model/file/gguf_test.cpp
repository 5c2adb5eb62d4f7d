// needs: none. GGUF: the worked example of the format, round trips, formats with and without an id, and files that lie.
#include "model/file/gguf.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "lang/parser.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

// Formats for these tests: one that files know by an id, and one with fields at every level.
const FormatLibrary& library() {
  static const FormatLibrary formats = [] {
    FormatLibrary out;
    out.add(lang::parse_file(std::make_shared<Source>(Source{"test.lum", R"(
format with_id : block 4, gguf 2 {
  d : f16
  q : u4[4]
  decode(i) = d * (q[i] - 8)
}
format levels : block 2, tile 2 4 {
  row r : f32
  tile s : f16
  tensor z : f32
  q : i8[2]
  decode(i) = q[i] * r * s * z
}
)"})));
    return out;
  }();
  return formats;
}

graph::Element format(const char* name) {
  return {Scalar::f32, library().get(name)};
}

fs::path temporary() {
  return fs::temp_directory_path() / fmt::format("lumen-gguf-{}.gguf", ::getpid());
}

std::vector<uint8_t> pattern(int64_t bytes, int seed) {
  std::vector<uint8_t> out(static_cast<size_t>(bytes));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i * 37 + static_cast<size_t>(seed));
  return out;
}

// Little pieces of a file by hand.
struct Bytes {
  std::string text;
  template <typename T>
  Bytes& put(T x) {
    text.append(reinterpret_cast<const char*>(&x), sizeof x);
    return *this;
  }
  Bytes& raw(std::string_view s) {
    text += s;
    return *this;
  }
  Bytes& string(std::string_view s) { return put<uint64_t>(s.size()).raw(s); }
  Bytes& header(int64_t tensors, int64_t keys) { return raw("GGUF").put<uint32_t>(3).put(tensors).put(keys); }
  Bytes& info(std::string_view name, std::vector<int64_t> dims, int32_t type, uint64_t offset) {
    string(name).put(static_cast<uint32_t>(dims.size()));
    for (const int64_t d : dims) put(d);
    return put(type).put(offset);
  }
  Bytes& pad(size_t n = 32) {
    text.resize((text.size() + n - 1) / n * n, '\0');
    return *this;
  }
};

GgufFile open(const std::string& bytes) {
  return GgufFile(std::as_bytes(std::span(bytes)), "t.gguf", library());
}

void refuse(const Bytes& bytes, const std::string& part) {
  try {
    open(bytes.text);
    FAIL() << "accepted; expected: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("t.gguf"), std::string::npos) << e.what();
  }
}

// The worked example of the format's description, byte for byte.
std::string worked_example() {
  Bytes b;
  b.header(1, 2).string("general.architecture").put<int32_t>(8).string("llama");
  b.string("llama.block_count").put<int32_t>(4).put<uint32_t>(1);
  b.info("output_norm.weight", {4}, 0, 0).pad();
  for (int i = 0; i < 4; ++i) b.put(1.0f);
  return b.pad().text;
}

TEST(Gguf, WorkedExample) {
  const std::string bytes = worked_example();
  ASSERT_EQ(bytes.size(), 192u);
  const GgufFile file = open(bytes);
  EXPECT_EQ(file.metadata().text("general.architecture"), "llama");
  EXPECT_EQ(file.metadata().integer("llama.block_count"), 1);
  const StoredTensor& t = file.get("output_norm.weight");
  EXPECT_EQ(t.shape, std::vector<int64_t>{4});
  EXPECT_EQ(t.offset, 0xa0u);
  float ones[4];
  t.copy_blob(reinterpret_cast<uint8_t*>(ones));
  EXPECT_EQ(ones[3], 1.0f);
  EXPECT_THROW(file.get("other"), Error);

  GgufMetadata m;
  m.set("general.architecture", std::string("llama"));
  m.set("llama.block_count", uint32_t{1});
  GgufWriter writer(temporary(), m, {{"output_norm.weight", {4}, {}}});
  writer.write(t.data);
  writer.commit();
  EXPECT_EQ(read_file(temporary()), bytes);
  fs::remove(temporary());
}

TEST(Gguf, EveryKindOfValueComesBack) {
  GgufMetadata m;
  m.set("a", uint8_t{200});
  m.set("b", int8_t{-3});
  m.set("c", uint16_t{60000});
  m.set("d", int16_t{-30000});
  m.set("e", uint32_t{4000000000u});
  m.set("f", int32_t{-7});
  m.set("g", 1.5f);
  m.set("h", true);
  m.set("i", std::string("text with \0 inside", 18));
  m.set("j", GgufArray(std::vector<std::string>{"", "x", "안녕"}));
  m.set("k", GgufArray(std::vector<bool>{true, false, true}));
  m.set("l", uint64_t{1} << 63);
  m.set("m", int64_t{-5});
  m.set("n", 0.1);
  m.set("o", GgufArray(std::vector<int32_t>{1, -2}));
  m.set("p", GgufArray(std::vector<double>{}));
  m.set("general.alignment", uint32_t{64});
  GgufWriter(temporary(), m, {}).commit();
  const GgufFile file(temporary(), library());
  EXPECT_EQ(file.metadata().entries(), m.entries());
  EXPECT_EQ(file.alignment(), 64u);
  EXPECT_EQ(file.metadata().integer("b"), -3);
  EXPECT_EQ(file.metadata().number("f"), -7);
  EXPECT_EQ(file.metadata().integers("k"), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(file.metadata().integers("f"), std::vector<int64_t>{-7});
  EXPECT_EQ(file.metadata().integer("missing", 9), 9);
  EXPECT_THROW(file.metadata().integer("l"), Error);
  EXPECT_THROW(file.metadata().integer("g"), Error);
  EXPECT_THROW(file.metadata().text("a"), Error);
  EXPECT_THROW(file.metadata().integer("missing"), Error);
  EXPECT_EQ(gguf_type_name(*file.metadata().find("j")), "array of string");
  EXPECT_EQ(gguf_print(*file.metadata().find("o")), "[1, -2]");
  fs::remove(temporary());
}

TEST(Gguf, TensorsOfAllKindsComeBack) {
  const std::vector<TensorSpec> specs = {{"scalar", {}, {}},
                                         {"half", {3, 5}, {Scalar::f16, nullptr}},
                                         {"known", {6, 8}, format("with_id")},
                                         {"own", {2, 3, 6}, format("levels")},
                                         {"empty", {0, 4}, {}},
                                         {"last", {7}, {Scalar::i8, nullptr}}};
  for (const size_t part : {size_t{1}, size_t{13}, size_t{1} << 20}) {
    GgufWriter writer(temporary(), GgufMetadata(), specs);
    std::vector<std::vector<uint8_t>> blobs;
    for (size_t i = 0; i < specs.size(); ++i) {
      std::vector<uint8_t> blob = pattern(specs[i].blob_bytes(), static_cast<int>(i));
      for (size_t at = 0; at < blob.size(); at += part)
        writer.write(std::span(blob).subspan(at, std::min(part, blob.size() - at)));
      blobs.push_back(std::move(blob));
    }
    writer.commit();
    const GgufFile file(temporary(), library());
    ASSERT_EQ(file.tensors().size(), specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      const StoredTensor& t = file.tensors()[i];
      EXPECT_EQ(t.name, specs[i].name);
      EXPECT_EQ(t.shape, specs[i].shape);
      EXPECT_EQ(t.element, specs[i].element);
      EXPECT_EQ(t.offset % 32, 0u);
      std::vector<uint8_t> blob = t.blob();
      ASSERT_EQ(blob.size(), blobs[i].size());
      if (t.is_blob()) {
        EXPECT_EQ(blob, blobs[i]);
      }
      // Sections are kept; the padding between them is not, and reads as zeros.
      for (size_t k = 0; k < blob.size(); ++k) EXPECT_TRUE(blob[k] == blobs[i][k] || blob[k] == 0);
    }
  }
  fs::remove(temporary());
}

TEST(Gguf, SectionsOfABlobStandBesideIt) {
  const TensorSpec spec{"own", {2, 3, 6}, format("levels")};
  const Format& f = *spec.element.format;
  const BlobLayout layout = blob_layout(f, 6, 6);
  const std::vector<uint8_t> blob = pattern(layout.total, 1);
  {
    GgufWriter writer(temporary(), GgufMetadata(), {spec});
    writer.write(blob);
    writer.commit();
  }
  {
    const GgufFile file(temporary(), FormatLibrary());  // the file explains itself
    const StoredTensor& t = file.get("own");
    EXPECT_EQ(t.element.format->hash, f.hash);
    EXPECT_EQ(t.shape, spec.shape);
    EXPECT_FALSE(t.is_blob());
    const int64_t bytes[kLevels] = {layout.data_bytes, 6 * f.row_bytes, 3 * 2 * f.tile_bytes, f.tensor_bytes};
    for (int level = 0; level < kLevels; ++level) {
      ASSERT_EQ(static_cast<int64_t>(t.sections[level].size()), bytes[level]) << level;
      EXPECT_EQ(std::memcmp(t.sections[level].data(), blob.data() + layout.section[level], t.sections[level].size()),
                0);
      EXPECT_EQ(std::memcmp(t.blob().data() + layout.section[level], blob.data() + layout.section[level],
                            t.sections[level].size()),
                0);
    }
  }
  fs::remove(temporary());
}

TEST(Gguf, NothingAppearsBeforeCommit) {
  fs::remove(temporary());
  {
    GgufWriter writer(temporary(), GgufMetadata(), {{"a", {4}, {}}});
    writer.write(pattern(8, 0));
  }
  EXPECT_FALSE(fs::exists(temporary()));
}

TEST(Gguf, WriterRefuses) {
  EXPECT_THROW(GgufWriter(temporary(), GgufMetadata(), {{std::string(64, 'n'), {4}, {}}}), Error);
  EXPECT_THROW(GgufWriter(temporary(), GgufMetadata(), {{"a", {1, 1, 1, 1, 1}, {}}}), Error);
  EXPECT_THROW(GgufWriter(temporary(), GgufMetadata(), {{"a", {5}, format("with_id")}}), Error);
  EXPECT_THROW(GgufWriter(temporary(), GgufMetadata(), {{"a", {int64_t{1} << 62, 8}, {}}}), Error);
  GgufMetadata m;
  m.set("general.alignment", uint32_t{48});
  EXPECT_THROW(GgufWriter(temporary(), m, {}), Error);
}

TEST(Gguf, RefusesFilesThatLie) {
  refuse(Bytes().raw("GGML").put<uint32_t>(3).put<int64_t>(0).put<int64_t>(0), "no GGUF file");
  refuse(Bytes().raw("GGUF"), "ends inside the header");
  refuse(Bytes().raw("GGUF").put<uint32_t>(1).put<int64_t>(0).put<int64_t>(0), "version 1");
  refuse(Bytes().raw("GGUF").put<uint32_t>(4).put<int64_t>(0).put<int64_t>(0), "version 4");
  refuse(Bytes().raw("GGUF").put<uint32_t>(3u << 24).put<int64_t>(0).put<int64_t>(0), "big-endian");
  refuse(Bytes().header(-1, 0), "-1 tensors");
  refuse(Bytes().header(int64_t{1} << 60, 0), "tensors");
  refuse(Bytes().header(0, int64_t{1} << 60), "keys");
  refuse(Bytes().header(0, 1).string("").put<int32_t>(0).put<uint8_t>(1).pad(), "empty");
  refuse(Bytes().header(0, 1).put<uint64_t>(~uint64_t{0}).pad(64), "length");
  refuse(Bytes().header(0, 1).string("k").put<int32_t>(13).pad(64), "unknown value type 13");
  refuse(Bytes().header(0, 1).string("k").put<int32_t>(7).put<uint8_t>(2).pad(64), "boolean with value 2");
  refuse(Bytes().header(0, 1).string("k").put<int32_t>(9).put<int32_t>(9).put<uint64_t>(1).pad(64), "array of arrays");
  refuse(Bytes().header(0, 1).string("k").put<int32_t>(9).put<int32_t>(77).put<uint64_t>(1).pad(64), "unknown type 77");
  refuse(Bytes().header(0, 1).string("k").put<int32_t>(9).put<int32_t>(0).put<uint64_t>(uint64_t{1} << 40).pad(64),
         "claims");
  refuse(Bytes().header(0, 1).string("k").put<int32_t>(9).put<int32_t>(8).put<uint64_t>(9).pad(64),
         "claims 9 elements");
  refuse(Bytes()
             .header(0, 2)
             .string("k")
             .put<int32_t>(0)
             .put<uint8_t>(1)
             .string("k")
             .put<int32_t>(0)
             .put<uint8_t>(1)
             .pad(),
         "twice");
  refuse(Bytes().header(0, 1).string("general.alignment").put<int32_t>(4).put<uint32_t>(24).pad(), "power of two");
  refuse(Bytes().header(0, 1).string("general.alignment").put<int32_t>(10).put<uint64_t>(32).pad(), "power of two");
  refuse(Bytes().header(1, 0).info(std::string(64, 'n'), {4}, 0, 0).pad().pad(64), "64 bytes");
  refuse(Bytes().header(1, 0).info("a", {1, 1, 1, 1, 1}, 0, 0).pad(), "5 dimensions");
  refuse(Bytes().header(1, 0).info("a", {-4}, 0, 0).pad(), "negative dimension");
  refuse(Bytes().header(1, 0).info("a", {int64_t{1} << 40, int64_t{1} << 40}, 0, 0).pad(), "too large");
  refuse(Bytes().header(1, 0).info("a", {0, int64_t{1} << 40, int64_t{1} << 40}, 0, 0).pad(), "too large");
  refuse(Bytes().header(1, 0).info("a", {int64_t{1} << 61}, 0, 0).pad(), "too large");
  refuse(Bytes().header(1, 0).info("a", {4}, 99, 0).pad(), "type id 99");
  refuse(Bytes().header(1, 0).info("a", {6}, 2, 0).pad(), "no multiple of 4");
  refuse(Bytes().header(1, 0).info("a", {4}, 0, 32).pad(64), "begins at 32 instead of 0");
  refuse(Bytes().header(1, 0).info("a", {4}, 0, 0).pad(), "past the end");
  refuse(Bytes().header(1, 0).info("a", {1 << 20}, 0, 0).pad(), "past the end");
  refuse(Bytes().header(2, 0).info("a", {4}, 0, 0).info("a", {4}, 0, 32).pad().raw(std::string(64, '\0')), "twice");
  refuse(Bytes().header(2, 0).info("a", {4}, 0, 0).info("b", {4}, 0, 16).pad().raw(std::string(64, '\0')),
         "instead of 32");
  // A file that names its own format, wrongly.
  const auto named = [](std::string_view text, std::string_view shape, int32_t type) {
    return Bytes()
        .header(1, 3)
        .string("lumen.tensor.a.format")
        .put<int32_t>(8)
        .string("mine")
        .string("lumen.tensor.a.shape")
        .put<int32_t>(8)
        .string(shape)
        .string("lumen.format.mine")
        .put<int32_t>(8)
        .string(text)
        .info("a", {4}, type, 0)
        .pad()
        .raw(std::string(32, '\0'));
  };
  const std::string mine = "format mine {\n  v : i8\n  decode(i) = v\n}\n";
  EXPECT_EQ(open(named(mine, "2x2", 24).text).get("a").shape, (std::vector<int64_t>{2, 2}));
  refuse(named(mine, "2x3", 24), "do not fit");
  refuse(named(mine, "2x", 24), "no shape");
  refuse(named(mine, "4", 0), "plain bytes");
  refuse(named("format mine {", "4", 24), "mine");
  refuse(named("format other {\n  v : i8\n  decode(i) = v\n}\n", "4", 24), "defines no format");
}

// What other readers fell for, each by a product, a sum or a size that wraps around (CVE-2024-21802, -21825, -21836,
// -23496, -23605, -25664 to -25668, CVE-2025-53630).
TEST(Gguf, OverflowsKnownFromOtherReaders) {
  constexpr uint64_t kMost = ~uint64_t{0};
  const auto key = [] { return Bytes().header(0, 1).string("k"); };
  // A text's length plus one for its end is 0; or close below that.
  for (const uint64_t length : {kMost, kMost - 7, uint64_t{1} << 63, uint64_t{1} << 32}) {
    refuse(Bytes().header(0, 1).put<uint64_t>(length).pad(256), "length");
    refuse(key().put<int32_t>(8).put<uint64_t>(length).pad(256), "length");
    refuse(key().put<int32_t>(9).put<int32_t>(8).put<uint64_t>(1).put<uint64_t>(length).pad(256), "length");
    refuse(Bytes().header(1, 0).put<uint64_t>(length).pad(256), "length");
  }
  // Counts whose product with what one takes is 0 or small, for every size of an entry.
  for (const int64_t count : {int64_t{1} << 58, int64_t{1} << 60, int64_t{1} << 62, INT64_MAX}) {
    refuse(Bytes().header(count, 0).pad(256), "tensors");
    refuse(Bytes().header(0, count).pad(256), "keys");
  }
  for (const int32_t type : {0, 2, 4, 6, 7, 8, 10, 12}) {
    for (const uint64_t count : {uint64_t{1} << 61, uint64_t{1} << 62, uint64_t{1} << 63, kMost, kMost / 8 + 2})
      refuse(key().put<int32_t>(9).put<int32_t>(type).put<uint64_t>(count).pad(256), "claims");
  }
  // Dimensions whose product wraps around to a size that would fit, alone or together with others.
  refuse(Bytes().header(1, 0).info("a", {int64_t{1} << 32, int64_t{1} << 32}, 0, 0).pad().pad(64), "too large");
  refuse(Bytes().header(1, 0).info("a", {(int64_t{1} << 62) + 4, 4}, 0, 0).pad().pad(64), "too large");
  refuse(Bytes().header(1, 0).info("a", {32, INT64_MAX}, 2, 0).pad().pad(64), "too large");
  refuse(Bytes().header(1, 0).info("a", {INT64_MAX - 3, 1, 1, 1}, 0, 0).pad().pad(64), "too large");
  // Sizes that are possible, but whose padded sum is not.
  const int64_t large = int64_t{1} << 60;
  Bytes sum = Bytes().header(4, 0);
  for (int i = 0; i < 4; ++i)
    sum = sum.info(std::string(1, static_cast<char>('a' + i)), {large}, 0, static_cast<uint64_t>(i) << 62);
  EXPECT_THROW(open(sum.pad().pad(64).text), Error);
  refuse(Bytes().header(1, 0).info("a", {4}, 0, kMost - 15).pad().pad(64), "instead of 0");
  // Types without a block size, and what is no type at all.
  for (const int32_t type : {4, 5, 31, 32, 33, 36, 37, 38, 43, -1, INT32_MAX, INT32_MIN})
    refuse(Bytes().header(1, 0).info("a", {32}, type, 0).pad().pad(64), "type id");
  for (const int32_t type : {-1, 13, INT32_MAX, INT32_MIN}) refuse(key().put<int32_t>(type).pad(64), "unknown");
  for (const uint32_t alignment : {0U, 3U, ~0U})
    refuse(Bytes().header(0, 1).string("general.alignment").put<int32_t>(4).put<uint32_t>(alignment).pad(),
           "power of two");
}

// Cutting or flipping bytes of a good file gives an Error or a file; never anything else.
RC_GTEST_PROP(Gguf, DamagedFilesAreErrorsOrFiles, ()) {
  std::string bytes = worked_example();
  const int flips = *rc::gen::inRange(0, 4);
  for (int i = 0; i < flips; ++i) bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size() + 1));
  try {
    const auto file = open(bytes);
    for (const StoredTensor& t : file.tensors()) RC_ASSERT(t.blob().size() <= bytes.size());
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace lumen::model::file
