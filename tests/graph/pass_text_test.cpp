// Needs: none. Text tests: every tests/graph/pass/*.txt holds a graph, the line "----", and what its passes make of it.
// The first line names the judges, in order:  # pass: simplify fuse.  LUMEN_BLESS=1 rewrites what is expected; the diff
// is reviewed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/file/file.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

std::filesystem::path folder() {
  return std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/graph/pass";
}

// The plan behind the graph: one line per group.
std::string print_groups(const Plan& plan) {
  std::string text = print(plan.graph);
  const auto list = [](const std::vector<ValueId>& values) { return fmt::format("[{}]", fmt::join(values, " ")); };
  for (const Group& g : plan.groups) {
    constexpr const char* kNames[] = {"map", "reduce", "dot", "attend", "attend_gradient", "move"};
    text += fmt::format("{} root={} nodes={} inputs={} results={}\n", kNames[static_cast<int>(g.shape)], g.root,
                        list(g.nodes), list(g.inputs), list(g.results));
  }
  return text;
}

const std::map<std::string, void (*)(Graph&)> kPasses = {
    {"inline", inline_calls},         {"simplify", simplify},
    {"split", split_contracts},       {"separate_attention", separate_attention},
    {"narrow_iotas", narrow_iotas},   {"clone_masks", clone_masks},
    {"convert_casts", convert_casts}, {"separate_fits", separate_fits},
    {"copy_loads", copy_loads},       {"order_operands", order_operands}};
const std::map<std::string, void (*)(Partition&)> kGroupings = {
    {"group_attention", group_attention},   {"group_attention_gradients", group_attention_gradients},
    {"group_epilogues", group_epilogues},   {"group_windows", group_windows},
    {"group_codes", group_codes},           {"group_product_codes", group_product_codes},
    {"group_reductions", group_reductions}, {"group_rows", group_rows},
    {"group_siblings", group_siblings},     {"group_small", group_small}};

std::string judge(const std::string& source, const std::string& name) {
  const std::string first = source.substr(0, source.find('\n'));
  std::istringstream words(first);
  std::string word;
  words >> word >> word;  // "# pass:"
  static const FormatLibrary library = FormatLibrary::builtin();
  const auto graphs =
      parse(std::make_shared<Source>(Source{name, source}), [](std::string_view known) { return library.find(known); });
  Plan plan{*graphs.back(), {}};
  std::optional<Partition> partition;  // from the first grouping on
  bool fused = false;
  while (words >> word) {
    if (const auto pass = kPasses.find(word); pass != kPasses.end()) {
      pass->second(plan.graph);
    } else if (const auto grouping = kGroupings.find(word); grouping != kGroupings.end()) {
      if (!partition) partition.emplace(plan.graph);
      grouping->second(*partition);
      partition->verify_or_die(word);
    } else if (word == "fuse") {
      plan = fuse(plan.graph);
      fused = true;
    } else {
      ADD_FAILURE() << name << ": no pass is called " << word;
    }
    verify_or_die(plan.graph, word);
  }
  if (partition) plan.groups = order_groups(*partition);
  return fused || partition ? print_groups(plan) : print(plan.graph);
}

// Every pass on the page that is told no names or numbers; repeat_casts, which wants two hundred nodes, is in
// repeat_test.cpp.
TEST(PassTexts, ThereIsOneForEachPass) {
  std::string heads;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string text = read_file(entry.path());
    heads += text.substr(0, text.find('\n')) + " \n";
  }
  for (const auto& [name, unused] : kPasses) EXPECT_NE(heads.find(" " + name + " "), std::string::npos) << name;
  for (const auto& [name, unused] : kGroupings) EXPECT_NE(heads.find(" " + name + " "), std::string::npos) << name;
}

TEST(PassTexts, AreWhatTheySay) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 5u);
  for (const auto& path : files) {
    const std::string text = read_file(path);
    const size_t cut = text.find("----\n");
    ASSERT_NE(cut, std::string::npos) << path;
    const std::string source = text.substr(0, cut), expected = text.substr(cut + 5);
    const std::string found = judge(source, path.filename().string());
    if (std::getenv("LUMEN_BLESS")) {
      std::ofstream(path) << source << "----\n" << found;
    } else {
      EXPECT_EQ(found, expected) << path << ": LUMEN_BLESS=1 rewrites it";
    }
  }
}

}  // namespace
}  // namespace lumen::graph
