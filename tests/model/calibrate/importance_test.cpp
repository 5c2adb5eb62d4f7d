// needs: none. Files of importance matrices in both forms, joined ones, and what is wrong with hostile ones.
#include "model/calibrate/importance.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::calibrate {
namespace {

const FormatLibrary& formats() {
  return test_library()->formats();
}

Importance some() {
  Importance out;
  ImportanceEntry plain;
  plain.columns = 3;
  plain.sums = {1.5, 0, 40};
  plain.counts = {8};
  ImportanceEntry experts;
  experts.columns = 2;
  experts.sums = {1, 2, 0, 0, 5, 6};
  experts.counts = {4, 0, 2};
  out.entries["blk.0.attn_q.weight"] = plain;
  out.entries["blk.0.ffn_up_exps.weight"] = experts;
  out.datasets = {"a.txt", "b.txt"};
  out.windows = 4;
  out.length = 2;
  return out;
}

std::filesystem::path at(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / ("importance-" + name);
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void save(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Importance, GgufKeepsEverything) {
  write_importance(some(), at("a.gguf"), ImportanceForm::gguf);
  const Importance got = read_importance(at("a.gguf"), formats());
  ASSERT_EQ(got.entries.size(), 2u);
  for (const auto& [name, e] : some().entries) {
    EXPECT_EQ(got.entries.at(name).columns, e.columns);
    EXPECT_EQ(got.entries.at(name).sums, e.sums);
    EXPECT_EQ(got.entries.at(name).counts, e.counts);
  }
  EXPECT_EQ(got.datasets, some().datasets);
  EXPECT_EQ(got.windows, 4);
  EXPECT_EQ(got.length, 2);
  EXPECT_EQ(got.entries.at("blk.0.ffn_up_exps.weight").means(2), (std::vector<float>{2.5f, 3}));
  EXPECT_TRUE(got.entries.at("blk.0.ffn_up_exps.weight").means(1).empty());
}

// The older form has means times windows, and one matrix of all experts' columns.
TEST(Importance, WindowsKeepMeans) {
  write_importance(some(), at("a.dat"), ImportanceForm::windows);
  const std::string bytes = bytes_of(at("a.dat"));
  int32_t first[2];
  std::memcpy(first, bytes.data(), sizeof first);
  EXPECT_EQ(first[0], 2);
  EXPECT_EQ(first[1], 19);
  const Importance got = read_importance(at("a.dat"), formats());
  EXPECT_EQ(got.entries.at("blk.0.attn_q.weight").means(0), (std::vector<float>{1.5f / 8, 0, 5}));
  EXPECT_EQ(got.entries.at("blk.0.ffn_up_exps.weight").columns, 6);
  EXPECT_EQ(got.windows, 4);
  EXPECT_EQ(got.length, 0);
  EXPECT_EQ(got.datasets, std::vector<std::string>{"b.txt"});
}

TEST(Importance, ExpertsOfTheOlderFormAreTakenApart) {
  write_importance(some(), at("a.dat"), ImportanceForm::windows);
  const ImportanceEntry one = read_importance(at("a.dat"), formats()).entries.at("blk.0.ffn_up_exps.weight");
  const ImportanceEntry three = one.unstacked(3, 2);
  EXPECT_EQ(three.matrices(), 3);
  EXPECT_EQ(three.columns, 2);
  const ImportanceEntry want = some().entries.at("blk.0.ffn_up_exps.weight");
  EXPECT_EQ(three.means(0), want.means(0));
  EXPECT_TRUE(three.means(1).empty()) << "no row reached it";
  EXPECT_EQ(three.means(2), want.means(2));
  // What cannot be so many matrices of so many columns stays as it is, and is refused by whoever asked.
  EXPECT_EQ(one.unstacked(4, 2).matrices(), 1);
  EXPECT_EQ(one.unstacked(2, 2).matrices(), 1);
  EXPECT_EQ(want.unstacked(3, 2).counts, want.counts);
}

TEST(Importance, JoinedOnesCountTogether) {
  Importance all = some();
  all.add(some());
  EXPECT_EQ(all.entries.at("blk.0.attn_q.weight").sums, (std::vector<double>{3, 0, 80}));
  EXPECT_EQ(all.entries.at("blk.0.attn_q.weight").counts, std::vector<double>{16});
  EXPECT_EQ(all.windows, 8);
  Importance other = some();
  other.entries.at("blk.0.attn_q.weight").columns = 1;
  EXPECT_THROW(all.add(other), Error);
}

TEST(Importance, HostileFilesAreErrors) {
  write_importance(some(), at("b.dat"), ImportanceForm::windows);
  write_importance(some(), at("b.gguf"), ImportanceForm::gguf);
  for (const char* name : {"b.dat", "b.gguf"}) {
    const std::string whole = bytes_of(at(name));
    for (size_t length = 0; length < whole.size(); ++length) {
      save(at("cut"), whole.substr(0, length));
      try {
        (void)read_importance(at("cut"), formats());
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("cut"), std::string::npos) << e.what();
      }
    }
    for (size_t byte = 0; byte < std::min<size_t>(whole.size(), 400); ++byte)
      for (const int flip : {0x80, 0xff, 0x01}) {
        std::string bad = whole;
        bad[byte] = static_cast<char>(bad[byte] ^ flip);
        save(at("flipped"), bad);
        try {
          (void)read_importance(at("flipped"), formats());
        } catch (const Error&) {
        }
      }
  }
  Importance negative = some();
  negative.entries.at("blk.0.attn_q.weight").sums[1] = -1;
  write_importance(negative, at("negative.gguf"), ImportanceForm::gguf);
  EXPECT_THROW((void)read_importance(at("negative.gguf"), formats()), Error);
}

}  // namespace
}  // namespace lumen::model::calibrate
