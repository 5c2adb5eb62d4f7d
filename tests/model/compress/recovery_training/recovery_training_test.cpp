// needs: cpu. What stands around codes is trained over the whole model: it comes nearer to its teacher, codes stay bit
// for bit, runs that were stopped go on in the same bytes, at any number of threads.
#include "model/compress/recovery_training/recovery_training.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/sealed/sealed.h"
#include "model/compress/quantize.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

run::Engine& fields_engine(int threads = 1) {
  static const std::string cache = (std::filesystem::temp_directory_path() / "lumen-test-cache").string();
  static run::Engine one(run::Engine::Options{.cache_folder = cache, .threads = 1, .machine = nullptr});
  static run::Engine two(run::Engine::Options{.cache_folder = cache, .threads = 2, .machine = nullptr});
  return threads == 1 ? one : two;
}

arch::Model fields_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(family,
                             family->config("", {{"vocab", 24},
                                                 {"hidden", 64},
                                                 {"layers", 2},
                                                 {"heads", 4},
                                                 {"kv_heads", 2},
                                                 {"head_dim", 16},
                                                 {"ffn", 64},
                                                 {"context", 16}}),
                             3);
  for (auto& [name, w] : m.weights) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v *= w.type.shape.size() == 1 ? 1 : 4;
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

arch::Model fields_rounded(const arch::Model& m, const std::string& format) {
  QuantizeOptions q;
  q.target = format;
  q.pure = true;
  return quantize(fields_engine(), m, q, nullptr);
}

std::vector<text::TokenId> fields_text(int64_t count) {
  std::vector<text::TokenId> out;
  uint32_t state = 11;
  for (int64_t i = 0; i < count; ++i) out.push_back(((state = state * 1664525 + 1013904223) >> 19) % 24);
  return out;
}

// Bits of blobs that are not those of scales.
std::vector<uint64_t> codes_of(const arch::Weight& w) {
  const Format& f = *w.type.element.format;
  std::string why;
  const ScaleFields scales = *find_scale_fields(f, &why);
  const BlobLayout layout = blob_layout(f, w.rows(), w.columns());
  std::vector<uint64_t> out;
  for (int k = 0; k < std::ssize(f.fields); ++k) {
    if (std::ranges::count(scales.fields, k) > 0) continue;
    for (int64_t r = 0; r < w.rows(); ++r)
      for (int64_t b = 0; b < w.columns() / f.block; ++b)
        for (int64_t i = 0; i < f.fields[k].count; ++i)
          out.push_back(f.fields[k].layout.read(
              w.bytes.data() + layout.section[0] + r * layout.row_stride + b * f.block_bytes, i));
  }
  return out;
}

RecoveryTrainingOptions fields_options() {
  RecoveryTrainingOptions o;
  o.run = {.length = 8, .batch = 16};
  o.steps = 16;
  o.rate = 0.01;
  return o;
}

TEST(RecoveryTraining, ComesNearerAndLeavesCodes) {
  const arch::Model m = fields_model();
  const std::vector<text::TokenId> text = fields_text(64 * 8), other = fields_text(128 * 8);
  for (const char* format : {"int3_g32", "q4_1"}) {
    SCOPED_TRACE(format);
    const arch::Model rounded = fields_rounded(m, format);
    RecoveryTraining recovery(fields_engine(), rounded, &m, text, fields_options());
    EXPECT_GT(recovery.trained(), 0);
    ASSERT_TRUE(recovery.run());
    EXPECT_LT(recovery.after(), 0.95 * recovery.before());
    const arch::Model result = recovery.result();
    int matrices = 0, vectors = 0;
    for (const auto& [name, w] : result.weights) {
      const arch::Weight& was = rounded.weights.at(name);
      ASSERT_EQ(w.type, was.type) << name;
      if (w.is_f32()) {
        vectors += !(w.bytes == was.bytes);
        continue;
      }
      EXPECT_EQ(codes_of(w), codes_of(was)) << name;
      matrices += !(w.bytes == was.bytes);
    }
    EXPECT_GT(matrices, 10);
    EXPECT_EQ(vectors, 5) << "all norms";
    // What was measured is what is handed back, and other text gains as well.
    const std::span<const text::TokenId> held = std::span(other).subspan(64 * 8);
    calibrate::TextLoss here(fields_engine(), rounded, text, {.length = 8, .batch = 16}, {}, &m),
        there(fields_engine(), rounded, held, {.length = 8, .batch = 16}, {}, &m);
    const auto of = [](const arch::Model& x) {
      return [&x](const std::string& name) { return values_of(fields_engine(), x.weights.at(name)); };
    };
    EXPECT_NEAR(here.value(of(result)), recovery.after(), 1e-9);
    EXPECT_NEAR(here.value(of(rounded)), recovery.before(), 1e-9);
    EXPECT_LT(there.value(of(result)), there.value(of(rounded)));
  }
}

TEST(RecoveryTraining, TrainsWhatIsAsked) {
  const arch::Model m = fields_model(), rounded = fields_rounded(m, "int3_g32");
  for (const bool scales : {true, false}) {
    RecoveryTrainingOptions o = fields_options();
    o.steps = 4;
    (scales ? o.vectors : o.scales) = false;
    RecoveryTraining recovery(fields_engine(), rounded, nullptr, fields_text(32 * 8), o);
    ASSERT_TRUE(recovery.run());
    const arch::Model result = recovery.result();
    for (const auto& [name, w] : result.weights)
      EXPECT_TRUE(w.is_f32() != scales || w.bytes == rounded.weights.at(name).bytes) << name;
  }
  RecoveryTrainingOptions none = fields_options();
  none.vectors = none.scales = false;
  EXPECT_THROW(RecoveryTraining(fields_engine(), rounded, nullptr, fields_text(32 * 8), none), Error);
}

TEST(RecoveryTraining, GoesOnInTheSameBytes) {
  const arch::Model m = fields_model(), rounded = fields_rounded(m, "int3_g32");
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "lumen-field-recovery";
  std::filesystem::remove_all(folder);
  std::vector<arch::Model> results;
  RecoveryTrainingOptions o = fields_options();
  o.steps = 6;
  for (const int threads : {1, 2}) {
    RecoveryTraining whole(fields_engine(threads), rounded, &m, fields_text(16 * 8), o);
    ASSERT_TRUE(whole.run());
    results.push_back(whole.result());
  }
  o.folder = folder;
  int seen = 0;
  {
    RecoveryTraining stopped(fields_engine(), rounded, &m, fields_text(16 * 8), o);
    EXPECT_FALSE(stopped.run([&](const RecoveryTrainingProgress& p) { seen = p.step; }, [&] { return seen == 3; }));
  }
  EXPECT_EQ(seen, 3);
  {
    RecoveryTrainingOptions another = o;
    another.rate = 0.02;
    RecoveryTraining wrong(fields_engine(), rounded, &m, fields_text(16 * 8), another);
    EXPECT_THROW((void)wrong.run(), Error);
  }
  // Whatever was damaged, the result is the same.
  const std::filesystem::path kept = folder.string() + "-kept";
  std::filesystem::remove_all(kept);
  std::filesystem::copy(folder, kept, std::filesystem::copy_options::recursive);
  const std::filesystem::path state = folder / ("user-" + std::to_string(::geteuid())) / "work" / "state";
  const std::string whole_state = read_file(state);
  for (const size_t at :
       {size_t{0}, size_t{30}, whole_state.size() / 2, whole_state.size() - 50, whole_state.size() - 1}) {
    std::string changed = whole_state;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    {
      std::ofstream(state, std::ios::binary | std::ios::trunc) << changed;
    }
    testing::internal::CaptureStderr();
    RecoveryTraining damaged(fields_engine(), rounded, &m, fields_text(16 * 8), o);
    int begins = 0;
    ASSERT_TRUE(damaged.run([&](const RecoveryTrainingProgress& p) { begins = begins == 0 ? p.step : begins; }));
    EXPECT_NE(testing::internal::GetCapturedStderr().find(state.string()), std::string::npos) << at;
    EXPECT_EQ(begins, 1);
    results.push_back(damaged.result());
  }
  // A step that is none would be another one.
  for (const char* step : {"4294967298", "2.5", "1e300"}) {
    {
      std::ofstream(state, std::ios::binary | std::ios::trunc) << whole_state;
      SealedFolder sealed(folder, {.quiet = true});
      std::string told = sealed.read("work", "state");
      const size_t at = told.find("\"step\":3");
      ASSERT_NE(at, std::string::npos);
      sealed.write("work", "state", told.replace(at, 8, std::string("\"step\":") + step));
    }
    testing::internal::CaptureStderr();
    RecoveryTraining wrong(fields_engine(), rounded, &m, fields_text(16 * 8), o);
    int begins = 0;
    ASSERT_TRUE(wrong.run([&](const RecoveryTrainingProgress& p) { begins = begins == 0 ? p.step : begins; }));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("is of another version"), std::string::npos) << step;
    EXPECT_EQ(begins, 1) << step;
  }
  std::filesystem::remove_all(folder);
  std::filesystem::rename(kept, folder);  // wherever it was meanwhile
  RecoveryTraining again(fields_engine(), rounded, &m, fields_text(16 * 8), o);
  int first = 0;
  ASSERT_TRUE(again.run([&](const RecoveryTrainingProgress& p) { first = first == 0 ? p.step : first; }));
  EXPECT_EQ(first, 4);
  results.push_back(again.result());
  for (const arch::Model& r : results)
    for (const auto& [name, w] : r.weights) EXPECT_EQ(w.bytes, results[0].weights.at(name).bytes) << name;
  again.remove_folder();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace lumen::model::compress
