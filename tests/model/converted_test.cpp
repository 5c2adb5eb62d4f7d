// needs: none. GGUF files that another program's converter made of the families' folders: they must mean the same
// model as the folders do. The fixtures and the script that makes them: converted_reference.py.
#include "base/error.h"
#include "family_case.h"
#include "model/arch/read.h"
#include "model/arch/write.h"
#include "model/infer/session_many.h"

namespace lumen::model {
namespace {

const std::filesystem::path kConverted = kFixtures / "converted";

class Converted : public testing::TestWithParam<std::string> {};

std::filesystem::path file_of(const std::string& name) {
  return kConverted / (name + ".gguf");
}

TEST_P(Converted, WholeTexts) {
  const Expected e(GetParam());
  const Model m = read_gguf(test_library(), file_of(GetParam()));
  EXPECT_EQ(m.family->name(), read_hf(test_library(), kFamilies / GetParam()).family->name());
  const LoadedModel loaded(engine(), m);
  const auto logits = forward(m, loaded, e, e.batch, e.length);
  for (int64_t r = 0; r < e.batch; ++r) EXPECT_LT(e.off_text(logits, r, r), kLogitBound) << "text " << r;
}

TEST_P(Converted, PiecesWithACache) {
  const Expected e(GetParam());
  const Model m = read_gguf(test_library(), file_of(GetParam()));
  const LoadedModel loaded(engine(), m);
  Session s(loaded, {.context = e.length, .chunk = 7, .exact = true});
  EXPECT_LT(e.off(s.feed(e.text(1).first(11)), 1, 10), kLogitBound);
  EXPECT_LT(e.off(s.feed(e.text(1).subspan(11, 1)), 1, 11), kLogitBound);
  EXPECT_LT(e.off(s.feed(e.text(1).subspan(12)), 1, e.length - 1), kLogitBound);
}

// The converted file, our own of the folder, and a folder written from the converted file: all the same.
TEST_P(Converted, ThroughOurFiles) {
  const Expected e(GetParam());
  const Model theirs = read_gguf(test_library(), file_of(GetParam()));
  const TestFolder folder;
  write_gguf(read_hf(test_library(), kFamilies / GetParam()), folder / "ours.gguf");
  write_gguf(theirs, folder / "again.gguf");
  std::vector<Model> all = {read_gguf(test_library(), folder / "ours.gguf"),
                            read_gguf(test_library(), folder / "again.gguf")};
  // GGUF holds some scalings of positions as numbers, from which no config can be told.
  const auto freqs = theirs.weights.find("rope_freqs");
  if (freqs != theirs.weights.end() &&
      std::ranges::any_of(freqs->second.f32(), [](float divisor) { return divisor != 1; })) {
    EXPECT_THROW(write_hf(theirs, folder / "hf"), Error);
  } else {
    write_hf(theirs, folder / "hf");
    all.push_back(read_hf(test_library(), folder / "hf"));
  }
  for (const Model& m : all) {
    EXPECT_EQ(m.family->name(), theirs.family->name());
    const LoadedModel loaded(engine(), m);
    EXPECT_LT(e.off_text(forward(m, loaded, e, 1, e.length), 0, 0), kLogitBound) << m.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Converted, testing::ValuesIn(names_in(kConverted)),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model
